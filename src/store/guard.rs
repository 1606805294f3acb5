//! A store that may be away: calls fail at once while it is, and it comes back by itself.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::Notify;

use super::{
    Answer, ClusterRecord, Expect, ModelHead, ModelRecord, NamedValue, ObservationHead, ObservationPage,
    ObservationRecord, Page, PlanRecord, Put, Store, StoreError, migrations,
};

/// The longest a call may take. A database that hangs is as good as away.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Between two looks at a database that answers.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between the first looks at one that does not; doubled up to [`LOOK_EVERY`].
const RETRY_FIRST: Duration = Duration::from_millis(200);

/// How a database is, as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It answers, and its schema is the one this binary needs.
    Ready,
    /// It does not answer, or not yet; why.
    Away(String),
}

/// A store behind a watch. While the last look or call found it away, calls fail without waiting for it.
pub struct Guard {
    inner: Arc<dyn Store>,
    health: RwLock<Health>,
    doubt: Notify,
    migrate: bool,
}

impl Guard {
    /// Watch a store; `migrate` says whether to bring its schema up to date when it appears.
    #[must_use]
    pub fn over(inner: Arc<dyn Store>, migrate: bool) -> Arc<Self> {
        let health = RwLock::new(Health::Away("not connected yet".to_owned()));
        Arc::new(Self { inner, health, doubt: Notify::new(), migrate })
    }

    /// How the database is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Look once, and remember what was seen.
    pub async fn look(&self) -> Health {
        let seen = match tokio::time::timeout(CALL_LIMIT * 10, self.prepare()).await {
            Ok(Ok(())) => Health::Ready,
            Ok(Err(error)) => Health::Away(error.to_string()),
            Err(_) => Health::Away("the database does not answer in time".to_owned()),
        };
        self.remember(seen.clone());
        seen
    }

    /// Look again and again, for as long as the server runs.
    pub async fn watch(self: Arc<Self>) {
        let mut wait = RETRY_FIRST;
        loop {
            match self.look().await {
                Health::Ready => {
                    wait = RETRY_FIRST;
                    let _ = tokio::time::timeout(LOOK_EVERY, self.doubt.notified()).await;
                }
                Health::Away(_) => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LOOK_EVERY / 5);
                }
            }
        }
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if self.migrate && self.health() != Health::Ready {
            self.inner.migrate().await?;
        }
        match self.inner.version().await? {
            Some(version) if version >= migrations::head() => Ok(()),
            _ => Err(StoreError::Unavailable(
                "its schema is older than this program: run `shardwise migrate`".to_owned(),
            )),
        }
    }

    fn remember(&self, seen: Health) {
        let mut health = self.health.write().unwrap_or_else(PoisonError::into_inner);
        if *health != seen {
            match &seen {
                Health::Ready => tracing::info!(database = self.inner.kind(), "the database is ready"),
                Health::Away(why) => {
                    tracing::warn!(
                        database = self.inner.kind(),
                        why,
                        "the database is away; planning goes on without it"
                    );
                }
            }
        }
        metrics::gauge!("shardwise_database_ready").set(if seen == Health::Ready { 1.0 } else { 0.0 });
        *health = seen;
    }

    async fn call<T>(&self, work: Answer<'_, T>) -> Result<T, StoreError> {
        if let Health::Away(why) = self.health() {
            return Err(StoreError::Unavailable(why));
        }
        let done = tokio::time::timeout(CALL_LIMIT, work).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the database does not answer in time".to_owned()))
        });
        if let Err(StoreError::Unavailable(why)) = &done {
            metrics::counter!("shardwise_database_failures_total").increment(1);
            self.remember(Health::Away(why.clone()));
            self.doubt.notify_one();
        }
        done
    }
}

impl Store for Guard {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn migrate(&self) -> Answer<'_, ()> {
        self.inner.migrate()
    }

    fn version(&self) -> Answer<'_, Option<i64>> {
        Box::pin(self.call(self.inner.version()))
    }

    fn model<'a>(&'a self, id: &'a str, revision: &'a str) -> Answer<'a, Option<ModelRecord>> {
        Box::pin(self.call(self.inner.model(id, revision)))
    }

    fn models<'a>(&'a self, page: &'a Page) -> Answer<'a, Vec<ModelHead>> {
        Box::pin(self.call(self.inner.models(page)))
    }

    fn put_model<'a>(&'a self, model: &'a ModelRecord, expect: &'a Expect) -> Answer<'a, Put> {
        Box::pin(self.call(self.inner.put_model(model, expect)))
    }

    fn delete_model<'a>(&'a self, id: &'a str, revision: &'a str, expect: &'a Expect) -> Answer<'a, bool> {
        Box::pin(self.call(self.inner.delete_model(id, revision, expect)))
    }

    fn plan<'a>(&'a self, plan_id: &'a str) -> Answer<'a, Option<PlanRecord>> {
        Box::pin(self.call(self.inner.plan(plan_id)))
    }

    fn put_plans<'a>(&'a self, plans: &'a [PlanRecord]) -> Answer<'a, ()> {
        Box::pin(self.call(self.inner.put_plans(plans)))
    }

    fn delete_plans_before(&self, time: OffsetDateTime, limit: u32) -> Answer<'_, u64> {
        Box::pin(self.call(self.inner.delete_plans_before(time, limit)))
    }

    fn cluster<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ClusterRecord>> {
        Box::pin(self.call(self.inner.cluster(name)))
    }

    fn clusters<'a>(&'a self, after: &'a str, limit: u32) -> Answer<'a, Vec<ClusterRecord>> {
        Box::pin(self.call(self.inner.clusters(after, limit)))
    }

    fn put_cluster<'a>(&'a self, cluster: &'a ClusterRecord, expect: &'a Expect) -> Answer<'a, Put> {
        Box::pin(self.call(self.inner.put_cluster(cluster, expect)))
    }

    fn delete_cluster<'a>(&'a self, name: &'a str, expect: &'a Expect) -> Answer<'a, bool> {
        Box::pin(self.call(self.inner.delete_cluster(name, expect)))
    }

    fn named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, Option<NamedValue>> {
        Box::pin(self.call(self.inner.named_value(kind, name)))
    }

    fn named_values<'a>(&'a self, kind: &'a str, after: &'a str, limit: u32) -> Answer<'a, Vec<NamedValue>> {
        Box::pin(self.call(self.inner.named_values(kind, after, limit)))
    }

    fn put_named_value<'a>(&'a self, value: &'a NamedValue) -> Answer<'a, Put> {
        Box::pin(self.call(self.inner.put_named_value(value)))
    }

    fn delete_named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, bool> {
        Box::pin(self.call(self.inner.delete_named_value(kind, name)))
    }

    fn put_observation<'a>(&'a self, observation: &'a ObservationRecord) -> Answer<'a, ()> {
        Box::pin(self.call(self.inner.put_observation(observation)))
    }

    fn observation<'a>(&'a self, id: &'a str) -> Answer<'a, Option<ObservationRecord>> {
        Box::pin(self.call(self.inner.observation(id)))
    }

    fn observations<'a>(&'a self, page: &'a ObservationPage) -> Answer<'a, Vec<ObservationHead>> {
        Box::pin(self.call(self.inner.observations(page)))
    }

    fn delete_observation<'a>(&'a self, id: &'a str) -> Answer<'a, bool> {
        Box::pin(self.call(self.inner.delete_observation(id)))
    }
}
