//! The statements, written once: both dialects take `$1`, `on conflict` and row values.

/// Implements [`super::Store`] for a type with `reader()`, `writer()` and `migrator()` over one kind of pool.
macro_rules! store_over_pools {
    ($store:ty, $kind:literal) => {
        impl crate::store::Store for $store {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn migrate(&self) -> Answer<'_, ()> {
                Box::pin(async move { self.migrator().run(self.writer()).await.map_err(migrate_fault) })
            }

            fn version(&self) -> Answer<'_, Option<i64>> {
                Box::pin(async move {
                    let row = sqlx::query("select max(version) as version from _sqlx_migrations")
                        .fetch_one(self.reader())
                        .await
                        .map_err(fault)?;
                    row.try_get("version").map_err(fault)
                })
            }

            fn model<'a>(&'a self, id: &'a str, revision: &'a str) -> Answer<'a, Option<ModelRecord>> {
                Box::pin(async move {
                    let row = sqlx::query(
                        "select id, revision, source, hash, updated_at, config, quantization_config
                         from models where id = $1 and revision = $2",
                    )
                    .bind(id)
                    .bind(revision)
                    .fetch_optional(self.reader())
                    .await
                    .map_err(fault)?;
                    let Some(row) = row else { return Ok(None) };
                    let head = head!(row);
                    let config: String = row.try_get("config").map_err(fault)?;
                    let quantization: Option<String> = row.try_get("quantization_config").map_err(fault)?;
                    Ok(Some(ModelRecord {
                        id: head.id,
                        revision: head.revision,
                        config: json_of(&config)?,
                        quantization_config: quantization.as_deref().map(json_of).transpose()?,
                        source: head.source,
                        hash: head.hash,
                        updated_at: head.updated_at,
                    }))
                })
            }

            fn models<'a>(&'a self, page: &'a Page) -> Answer<'a, Vec<ModelHead>> {
                Box::pin(async move {
                    let rows = sqlx::query(
                        r"select id, revision, source, hash, updated_at from models
                          where (id, revision) > ($1, $2) and lower(id) like $3 escape '\'
                          order by id, revision limit $4",
                    )
                    .bind(&page.after.0)
                    .bind(&page.after.1)
                    .bind(contains(&page.search))
                    .bind(i64::from(page.limit))
                    .fetch_all(self.reader())
                    .await
                    .map_err(fault)?;
                    rows.into_iter().map(|row| Ok(head!(row))).collect()
                })
            }

            fn put_model<'a>(&'a self, model: &'a ModelRecord, expect: &'a Expect) -> Answer<'a, Put> {
                Box::pin(async move {
                    let mut work = self.writer().begin().await.map_err(fault)?;
                    // the row is written first, so that two writers of one id wait for one another
                    let inserted = sqlx::query(
                        "insert into models (id, revision, config, quantization_config, source, hash, updated_at)
                         values ($1, $2, $3, $4, $5, $6, $7) on conflict (id, revision) do nothing",
                    )
                    .bind(&model.id)
                    .bind(&model.revision)
                    .bind(model.config.to_string())
                    .bind(model.quantization_config.as_ref().map(ToString::to_string))
                    .bind(&model.source)
                    .bind(&model.hash)
                    .bind(model.updated_at)
                    .execute(&mut *work)
                    .await
                    .map_err(fault)?
                    .rows_affected();
                    let put = match (inserted, expect) {
                        (0, Expect::Nothing) => {
                            let current = current_hash!(work, &model.id, &model.revision);
                            return Err(StoreError::Unexpected { current });
                        }
                        (0, expect) => {
                            let expected = match expect {
                                Expect::Hash(hash) => Some(hash.as_str()),
                                Expect::Anything | Expect::Nothing => None,
                            };
                            let replaced = sqlx::query(
                                "update models set config = $3, quantization_config = $4, source = $5, hash = $6, updated_at = $7
                                 where id = $1 and revision = $2 and hash = coalesce($8, hash)",
                            )
                            .bind(&model.id)
                            .bind(&model.revision)
                            .bind(model.config.to_string())
                            .bind(model.quantization_config.as_ref().map(ToString::to_string))
                            .bind(&model.source)
                            .bind(&model.hash)
                            .bind(model.updated_at)
                            .bind(expected)
                            .execute(&mut *work)
                            .await
                            .map_err(fault)?
                            .rows_affected();
                            if replaced == 0 {
                                let current = current_hash!(work, &model.id, &model.revision);
                                return Err(StoreError::Unexpected { current });
                            }
                            Put::Replaced
                        }
                        // dropping the transaction takes the row back
                        (_, Expect::Hash(_)) => return Err(StoreError::Unexpected { current: None }),
                        (_, Expect::Anything | Expect::Nothing) => Put::Created,
                    };
                    work.commit().await.map_err(fault)?;
                    Ok(put)
                })
            }

            fn delete_model<'a>(&'a self, id: &'a str, revision: &'a str, expect: &'a Expect) -> Answer<'a, bool> {
                Box::pin(async move {
                    let mut work = self.writer().begin().await.map_err(fault)?;
                    let expected = match expect {
                        Expect::Hash(hash) => Some(hash.as_str()),
                        Expect::Anything | Expect::Nothing => None,
                    };
                    let deleted = sqlx::query(
                        "delete from models where id = $1 and revision = $2 and hash = coalesce($3, hash)",
                    )
                    .bind(id)
                    .bind(revision)
                    .bind(expected)
                    .execute(&mut *work)
                    .await
                    .map_err(fault)?
                    .rows_affected();
                    if deleted == 0 && expected.is_some() {
                        let current = current_hash!(work, id, revision);
                        return Err(StoreError::Unexpected { current });
                    }
                    work.commit().await.map_err(fault)?;
                    Ok(deleted > 0)
                })
            }

            fn plan<'a>(&'a self, plan_id: &'a str) -> Answer<'a, Option<PlanRecord>> {
                Box::pin(async move {
                    let row = sqlx::query("select plan_id, answer, created_at from plans where plan_id = $1")
                        .bind(plan_id)
                        .fetch_optional(self.reader())
                        .await
                        .map_err(fault)?;
                    let Some(row) = row else { return Ok(None) };
                    Ok(Some(PlanRecord {
                        plan_id: row.try_get("plan_id").map_err(fault)?,
                        answer: row.try_get("answer").map_err(fault)?,
                        created_at: row.try_get("created_at").map_err(fault)?,
                    }))
                })
            }

            fn put_plans<'a>(&'a self, plans: &'a [PlanRecord]) -> Answer<'a, ()> {
                Box::pin(async move {
                    let mut work = self.writer().begin().await.map_err(fault)?;
                    for plan in plans {
                        sqlx::query(
                            "insert into plans (plan_id, answer, created_at) values ($1, $2, $3)
                             on conflict (plan_id) do nothing",
                        )
                        .bind(&plan.plan_id)
                        .bind(&plan.answer)
                        .bind(plan.created_at)
                        .execute(&mut *work)
                        .await
                        .map_err(fault)?;
                    }
                    work.commit().await.map_err(fault)
                })
            }

            fn delete_plans_before(&self, time: OffsetDateTime, limit: u32) -> Answer<'_, u64> {
                Box::pin(async move {
                    let done = sqlx::query(
                        "delete from plans where plan_id in
                         (select plan_id from plans where created_at < $1 order by created_at limit $2)",
                    )
                    .bind(time)
                    .bind(i64::from(limit))
                    .execute(self.writer())
                    .await
                    .map_err(fault)?;
                    Ok(done.rows_affected())
                })
            }

            fn cluster<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ClusterRecord>> {
                Box::pin(async move {
                    let row = sqlx::query("select name, cluster, hash, updated_at from clusters where name = $1")
                        .bind(name)
                        .fetch_optional(self.reader())
                        .await
                        .map_err(fault)?;
                    row.map(|row| Ok(cluster!(row))).transpose()
                })
            }

            fn clusters<'a>(&'a self, after: &'a str, limit: u32) -> Answer<'a, Vec<ClusterRecord>> {
                Box::pin(async move {
                    let rows = sqlx::query(
                        "select name, cluster, hash, updated_at from clusters where name > $1 order by name limit $2",
                    )
                    .bind(after)
                    .bind(i64::from(limit))
                    .fetch_all(self.reader())
                    .await
                    .map_err(fault)?;
                    rows.into_iter().map(|row| Ok(cluster!(row))).collect()
                })
            }

            fn put_cluster<'a>(&'a self, cluster: &'a ClusterRecord, expect: &'a Expect) -> Answer<'a, Put> {
                Box::pin(async move {
                    // one statement for each expectation: the database decides between two writers of one name
                    let (put, statement, hash) = match expect {
                        Expect::Nothing => (
                            Put::Created,
                            "insert into clusters (name, cluster, hash, updated_at) values ($1, $2, $3, $4)
                             on conflict (name) do nothing",
                            None,
                        ),
                        Expect::Hash(hash) => (
                            Put::Replaced,
                            "update clusters set cluster = $2, hash = $3, updated_at = $4
                             where name = $1 and hash = $5",
                            Some(hash),
                        ),
                        Expect::Anything => {
                            let known = self.cluster(&cluster.name).await?.is_some();
                            (
                                if known { Put::Replaced } else { Put::Created },
                                "insert into clusters (name, cluster, hash, updated_at) values ($1, $2, $3, $4)
                                 on conflict (name) do update set cluster = excluded.cluster, hash = excluded.hash,
                                 updated_at = excluded.updated_at",
                                None,
                            )
                        }
                    };
                    let query = sqlx::query(statement)
                        .bind(&cluster.name)
                        .bind(cluster.cluster.to_string())
                        .bind(&cluster.hash)
                        .bind(cluster.updated_at);
                    let query = if let Some(hash) = hash { query.bind(hash) } else { query };
                    let written = query.execute(self.writer()).await.map_err(fault)?.rows_affected();
                    if written > 0 {
                        return Ok(put);
                    }
                    let current = self.cluster(&cluster.name).await?.map(|kept| kept.hash);
                    Err(StoreError::Unexpected { current })
                })
            }

            fn delete_cluster<'a>(&'a self, name: &'a str, expect: &'a Expect) -> Answer<'a, bool> {
                Box::pin(async move {
                    let expected = match expect {
                        Expect::Hash(hash) => Some(hash.as_str()),
                        Expect::Anything | Expect::Nothing => None,
                    };
                    let deleted =
                        sqlx::query("delete from clusters where name = $1 and hash = coalesce($2, hash)")
                            .bind(name)
                            .bind(expected)
                            .execute(self.writer())
                            .await
                            .map_err(fault)?
                            .rows_affected();
                    if deleted == 0 && expected.is_some() {
                        let current = self.cluster(name).await?.map(|kept| kept.hash);
                        return Err(StoreError::Unexpected { current });
                    }
                    Ok(deleted > 0)
                })
            }

            fn named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, Option<NamedValue>> {
                Box::pin(async move {
                    let row = sqlx::query(
                        "select kind, name, value, updated_at from named_values where kind = $1 and name = $2",
                    )
                    .bind(kind)
                    .bind(name)
                    .fetch_optional(self.reader())
                    .await
                    .map_err(fault)?;
                    row.map(|row| Ok(named_value!(row))).transpose()
                })
            }

            fn named_values<'a>(
                &'a self,
                kind: &'a str,
                after: &'a str,
                limit: u32,
            ) -> Answer<'a, Vec<NamedValue>> {
                Box::pin(async move {
                    let rows = sqlx::query(
                        "select kind, name, value, updated_at from named_values
                         where kind = $1 and name > $2 order by name limit $3",
                    )
                    .bind(kind)
                    .bind(after)
                    .bind(i64::from(limit))
                    .fetch_all(self.reader())
                    .await
                    .map_err(fault)?;
                    rows.into_iter().map(|row| Ok(named_value!(row))).collect()
                })
            }

            fn put_named_value<'a>(&'a self, value: &'a NamedValue) -> Answer<'a, Put> {
                Box::pin(async move {
                    let known = self.named_value(&value.kind, &value.name).await?.is_some();
                    sqlx::query(
                        "insert into named_values (kind, name, value, updated_at) values ($1, $2, $3, $4)
                         on conflict (kind, name) do update set value = excluded.value, updated_at = excluded.updated_at",
                    )
                    .bind(&value.kind)
                    .bind(&value.name)
                    .bind(value.value.to_string())
                    .bind(value.updated_at)
                    .execute(self.writer())
                    .await
                    .map_err(fault)?;
                    Ok(if known { Put::Replaced } else { Put::Created })
                })
            }

            fn delete_named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, bool> {
                Box::pin(async move {
                    let deleted = sqlx::query("delete from named_values where kind = $1 and name = $2")
                        .bind(kind)
                        .bind(name)
                        .execute(self.writer())
                        .await
                        .map_err(fault)?
                        .rows_affected();
                    Ok(deleted > 0)
                })
            }

            observation_statements!();
        }
    };
}

/// The columns that every row of `models` is read with.
macro_rules! head {
    ($row:ident) => {
        ModelHead {
            id: $row.try_get("id").map_err(fault)?,
            revision: $row.try_get("revision").map_err(fault)?,
            source: $row.try_get("source").map_err(fault)?,
            hash: $row.try_get("hash").map_err(fault)?,
            updated_at: $row.try_get("updated_at").map_err(fault)?,
        }
    };
}

/// A row of `named_values`.
macro_rules! named_value {
    ($row:ident) => {{
        let text: String = $row.try_get("value").map_err(fault)?;
        NamedValue {
            kind: $row.try_get("kind").map_err(fault)?,
            name: $row.try_get("name").map_err(fault)?,
            value: json_of(&text)?,
            updated_at: $row.try_get("updated_at").map_err(fault)?,
        }
    }};
}

/// A row of `clusters`.
macro_rules! cluster {
    ($row:ident) => {{
        let text: String = $row.try_get("cluster").map_err(fault)?;
        ClusterRecord {
            name: $row.try_get("name").map_err(fault)?,
            cluster: json_of(&text)?,
            hash: $row.try_get("hash").map_err(fault)?,
            updated_at: $row.try_get("updated_at").map_err(fault)?,
        }
    }};
}

/// The hash kept under an id and revision, seen from inside a transaction.
macro_rules! current_hash {
    ($work:ident, $id:expr, $revision:expr) => {
        sqlx::query("select hash from models where id = $1 and revision = $2")
            .bind($id)
            .bind($revision)
            .fetch_optional(&mut *$work)
            .await
            .map_err(fault)?
            .map(|row| row.try_get("hash"))
            .transpose()
            .map_err(fault)?
    };
}

pub(super) use {cluster, current_hash, head, named_value, store_over_pools};

use super::StoreError;
use serde_json::Value;

/// A `like` pattern for "contains", in lower case, with its own signs escaped.
pub(super) fn contains(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// A JSON text of the database.
pub(super) fn json_of(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Internal(format!("what is stored is not JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn patterns_keep_their_signs() {
        assert_eq!(contains("Llama_3%\\"), "%llama\\_3\\%\\\\%");
    }
}
