//! Models from the hub: fetched once, stored, compared with the hub after a while, and served as they were while it is away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moka::future::Cache;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::models::{ModelView, hash_of};
use super::{App, Expect, Notice, ServiceError};
use crate::hub::{Answer, Fetched, Hub, HubError, HubId};
use crate::store::{DEFAULT_REVISION, Lookup, ModelRecord, StoreError};

/// A hub, and how long what came from it is taken on trust.
pub struct HubAccess {
    hub: Hub,
    refresh_after: Duration,
    /// What came a moment ago, by id and revision: a caller that looked in the database before it was stored there
    /// does not ask again. Callers of one key wait for one request.
    fresh: Cache<(String, String), Option<Arc<ModelRecord>>>,
}

impl HubAccess {
    /// Access to a hub whose models are compared with it after a while.
    #[must_use]
    pub fn new(hub: Hub, refresh_after: Duration) -> Self {
        let fresh = Cache::builder().max_capacity(1_000).time_to_live(JUST_NOW).build();
        Self { hub, refresh_after, fresh }
    }
}

/// What came of asking the hub again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// What is stored is what the hub has.
    Unchanged,
    /// The hub had another configuration: it is stored now.
    Changed,
    /// It was not stored before.
    Fetched,
}

/// How long an answer of the hub is remembered beside the database.
const JUST_NOW: Duration = Duration::from_secs(10);

/// What the hub said of a model when it was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct HubOrigin {
    /// The commit that its revision stood for.
    pub commit: Option<String>,
    /// The entity tag of its config.json: sent back, it tells whether there is another.
    pub etag: Option<String>,
}

impl HubOrigin {
    /// As the `source` of a stored model says it; `None` for one that was put.
    pub(super) fn of(source: &str) -> Option<Self> {
        let (_, rest) = source.split_once("://")?;
        let after = |mark: &str| rest.split_once(mark).map(|(_, found)| found);
        let commit = after(" commit=").and_then(|c| c.split(' ').next()).map(str::to_owned);
        Some(Self { commit, etag: after(" etag=").map(str::to_owned) })
    }
}

/// Where a stored model came from, as its `source` says it: `<endpoint> commit=<hash> etag=<tag>`.
struct Origin<'s> {
    etag: Option<&'s str>,
}

impl<'s> Origin<'s> {
    fn of(source: &'s str, endpoint: &str) -> Option<Self> {
        let rest = source.strip_prefix(endpoint)?;
        let etag = rest.split_once(" etag=").map(|(_, tag)| tag);
        Some(Self { etag })
    }

    fn written(endpoint: &str, fetched: &Fetched) -> String {
        let commit = fetched.commit.as_ref().map_or_else(String::new, |hash| format!(" commit={hash}"));
        let etag = fetched.etag.as_ref().map_or_else(String::new, |tag| format!(" etag={tag}"));
        format!("{endpoint}{commit}{etag}")
    }
}

impl App {
    /// A model that is neither stored nor in the catalogue; `None` where there is no hub, the id is no hub id, or the
    /// hub has no such model.
    pub(super) async fn ask_hub(
        &self,
        id: &str,
        revision: &str,
        notices: &mut Vec<Notice>,
    ) -> Result<Option<Arc<ModelRecord>>, ServiceError> {
        let Some(access) = self.hub.as_ref().filter(|_| HubId::read(id).is_some()) else { return Ok(None) };
        let mut told = Vec::new();
        let fetch = async {
            match access.hub.config(id, revision, None).await {
                Ok(Answer::Found(fetched)) => self.keep(id, &fetched, &mut told).await.map(Some),
                Ok(Answer::NotModified) | Err(HubError::NotFound(_)) => Ok(None),
                Err(error) => Err(ServiceError::from(error)),
            }
        };
        let key = (id.to_owned(), revision.to_owned());
        let found =
            access.fresh.try_get_with(key, fetch).await.map_err(|error: Arc<ServiceError>| (*error).clone());
        notices.extend(told);
        found
    }

    /// A stored model, compared with the hub when it came from there long ago.
    pub(super) async fn refreshed(
        &self,
        stored: Option<Arc<ModelRecord>>,
        notices: &mut Vec<Notice>,
    ) -> Result<Option<Arc<ModelRecord>>, ServiceError> {
        let (Some(record), Some(access)) = (&stored, &self.hub) else { return Ok(stored) };
        let Some(origin) = Origin::of(&record.source, &access.hub.endpoint()) else { return Ok(stored) };
        let age = Duration::try_from(OffsetDateTime::now_utc() - record.updated_at).unwrap_or(Duration::ZERO);
        if age < access.refresh_after {
            return Ok(stored);
        }
        match self.compared(access, record, origin.etag, notices).await {
            Ok((_, newest)) => Ok(Some(newest)),
            Err(ServiceError::Hub(error)) => {
                // what is known is better than nothing, and is marked
                tracing::warn!(model = record.id, %error, "a model could not be compared with the hub");
                notices.push(Notice::HubModelMayBeOld);
                Ok(stored)
            }
            Err(error) => Err(error),
        }
    }

    /// Ask the hub whether it has another configuration than this one; the newest, and what came of it.
    async fn compared(
        &self,
        access: &HubAccess,
        record: &Arc<ModelRecord>,
        etag: Option<&str>,
        notices: &mut Vec<Notice>,
    ) -> Result<(Refresh, Arc<ModelRecord>), ServiceError> {
        match access.hub.config(&record.id, &record.revision, etag).await? {
            Answer::Found(fetched) => {
                let newest = self.keep(&record.id, &fetched, notices).await?;
                let same = newest.hash == record.hash;
                Ok((if same { Refresh::Unchanged } else { Refresh::Changed }, newest))
            }
            Answer::NotModified => {
                let touched = ModelRecord { updated_at: OffsetDateTime::now_utc(), ..(**record).clone() };
                self.store_fetched(&touched, notices).await?;
                Ok((Refresh::Unchanged, Arc::new(touched)))
            }
        }
    }

    /// Compare a stored hub model with the hub now, or fetch one that is not stored.
    ///
    /// # Errors
    /// [`ServiceError::NoModel`] when the hub has none, or there is no hub; [`ServiceError::Hub`] when it gave no answer;
    /// [`ServiceError::Unexpected`] for a model that was put here: it has no other source.
    pub async fn refresh_model(&self, id: &str) -> Result<(Refresh, ModelView), ServiceError> {
        let stored = match self.models.find(id, DEFAULT_REVISION).await? {
            Lookup::Known(record) | Lookup::Stale(record) => record,
            Lookup::Unknown(away) => return Err(away.into()),
        };
        let mut notices = Vec::new();
        let access = self.hub.as_ref().filter(|_| HubId::read(id).is_some());
        let refresh = match (&stored, access) {
            (Some(record), Some(access)) => {
                let Some(origin) = Origin::of(&record.source, &access.hub.endpoint()) else {
                    return Err(ServiceError::Unexpected { current: Some(record.hash.clone()) });
                };
                self.compared(access, record, origin.etag, &mut notices).await?.0
            }
            (Some(record), None) => {
                return Err(ServiceError::Unexpected { current: Some(record.hash.clone()) });
            }
            (None, _) => match self.ask_hub(id, DEFAULT_REVISION, &mut notices).await? {
                Some(_) => Refresh::Fetched,
                None => return Err(ServiceError::NoModel(id.chars().take(200).collect())),
            },
        };
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok((refresh, self.model(id).await?))
    }

    async fn keep(
        &self,
        asked_id: &str,
        fetched: &Fetched,
        notices: &mut Vec<Notice>,
    ) -> Result<Arc<ModelRecord>, ServiceError> {
        let endpoint = self.hub.as_ref().map(|access| access.hub.endpoint()).unwrap_or_default();
        let record = ModelRecord {
            // a renamed model is kept under the name that it is asked for
            id: asked_id.to_owned(),
            revision: fetched.revision.to_string(),
            config: fetched.config.clone(),
            quantization_config: fetched.quantization_config.clone(),
            source: Origin::written(&endpoint, fetched),
            hash: hash_of(&fetched.config, fetched.quantization_config.as_ref()),
            updated_at: OffsetDateTime::now_utc(),
        };
        self.store_fetched(&record, notices).await?;
        Ok(Arc::new(record))
    }

    /// Keep what came; a database that is away does not stand in the way of the answer.
    async fn store_fetched(
        &self,
        record: &ModelRecord,
        notices: &mut Vec<Notice>,
    ) -> Result<(), ServiceError> {
        match self.models.put(record.clone(), &Expect::Anything).await {
            Ok(_) | Err(StoreError::Unexpected { .. }) => Ok(()),
            Err(StoreError::Unavailable(_)) => {
                notices.push(Notice::HubModelNotStored);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
