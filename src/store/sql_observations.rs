//! The statements about observations, written once for both dialects.

use time::{OffsetDateTime, PrimitiveDateTime};

/// Later than anything that is kept: where a listing of the newest starts.
pub(super) const LAST_TIME: OffsetDateTime = PrimitiveDateTime::MAX.assume_utc();

/// The part of [`super::Store`] that is about observations, inside its implementation.
macro_rules! observation_statements {
    () => {
        fn put_observation<'a>(&'a self, observation: &'a ObservationRecord) -> Answer<'a, ()> {
            Box::pin(async move {
                let head = &observation.head;
                sqlx::query(
                    "insert into observations (id, engine, version, gpu, model, layout, outcome, outcome_agrees,
                     kv_tokens_observed, kv_tokens_predicted, ratios, record, observed_at)
                     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                     on conflict (id) do update set gpu = excluded.gpu, outcome_agrees = excluded.outcome_agrees,
                     kv_tokens_predicted = excluded.kv_tokens_predicted, ratios = excluded.ratios,
                     record = excluded.record",
                )
                .bind(&head.id)
                .bind(&head.engine)
                .bind(&head.version)
                .bind(&head.gpu)
                .bind(&head.model)
                .bind(&head.layout)
                .bind(&head.outcome)
                .bind(head.outcome_agrees)
                .bind(head.kv_tokens_observed)
                .bind(head.kv_tokens_predicted)
                .bind(head.ratios.to_string())
                .bind(observation.record.to_string())
                .bind(head.observed_at)
                .execute(self.writer())
                .await
                .map_err(fault)?;
                Ok(())
            })
        }

        fn observation<'a>(&'a self, id: &'a str) -> Answer<'a, Option<ObservationRecord>> {
            Box::pin(async move {
                let row = sqlx::query("select * from observations where id = $1")
                    .bind(id)
                    .fetch_optional(self.reader())
                    .await
                    .map_err(fault)?;
                let Some(row) = row else { return Ok(None) };
                let record: String = row.try_get("record").map_err(fault)?;
                Ok(Some(ObservationRecord { head: observation!(row), record: json_of(&record)? }))
            })
        }

        fn observations<'a>(&'a self, page: &'a ObservationPage) -> Answer<'a, Vec<ObservationHead>> {
            Box::pin(async move {
                let first = (LAST_TIME, String::new());
                let (time, id) = page.before.as_ref().unwrap_or(&first);
                let rows = sqlx::query(
                    "select id, engine, version, gpu, model, layout, outcome, outcome_agrees, kv_tokens_observed,
                     kv_tokens_predicted, ratios, observed_at from observations
                     where (observed_at, id) < ($1, $2) and engine = coalesce($3, engine)
                     and version = coalesce($4, version) and gpu = coalesce($5, gpu) and model = coalesce($6, model)
                     order by observed_at desc, id desc limit $7",
                )
                .bind(time)
                .bind(id)
                .bind(page.engine.as_deref())
                .bind(page.version.as_deref())
                .bind(page.gpu.as_deref())
                .bind(page.model.as_deref())
                .bind(i64::from(page.limit))
                .fetch_all(self.reader())
                .await
                .map_err(fault)?;
                rows.into_iter().map(|row| Ok(observation!(row))).collect()
            })
        }

        fn delete_observation<'a>(&'a self, id: &'a str) -> Answer<'a, bool> {
            Box::pin(async move {
                let done = sqlx::query("delete from observations where id = $1")
                    .bind(id)
                    .execute(self.writer())
                    .await
                    .map_err(fault)?;
                Ok(done.rows_affected() > 0)
            })
        }
    };
}

/// A row of `observations` without its record.
macro_rules! observation {
    ($row:ident) => {{
        let ratios: String = $row.try_get("ratios").map_err(fault)?;
        ObservationHead {
            id: $row.try_get("id").map_err(fault)?,
            engine: $row.try_get("engine").map_err(fault)?,
            version: $row.try_get("version").map_err(fault)?,
            gpu: $row.try_get("gpu").map_err(fault)?,
            model: $row.try_get("model").map_err(fault)?,
            layout: $row.try_get("layout").map_err(fault)?,
            outcome: $row.try_get("outcome").map_err(fault)?,
            outcome_agrees: $row.try_get("outcome_agrees").map_err(fault)?,
            kv_tokens_observed: $row.try_get("kv_tokens_observed").map_err(fault)?,
            kv_tokens_predicted: $row.try_get("kv_tokens_predicted").map_err(fault)?,
            ratios: json_of(&ratios)?,
            observed_at: $row.try_get("observed_at").map_err(fault)?,
        }
    }};
}

pub(super) use {observation, observation_statements};
