//! Clusters that callers saved under a name, to plan on by that name.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::models::written;
use super::question::{Understood, parse_cluster};
use super::{App, Expect, Put, ServiceError};
use crate::catalogue::hardware;
use crate::ingest::fields::Fields;
use crate::ingest::{FieldError, Pointer, cluster};
use crate::store::{ClusterRecord, Store};

/// A saved cluster.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SavedCluster {
    pub name: String,
    pub updated_at: String,
    /// The `cluster` field as it was given: a text or an object.
    pub cluster: Value,
    /// What it means.
    pub understood: Understood,
    /// Hash of the cluster.
    #[serde(skip)]
    pub hash: String,
}

/// A saved cluster in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SavedClusterEntry {
    pub name: String,
    pub updated_at: String,
}

/// A page of saved clusters, in order of name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SavedClusterPage {
    pub items: Vec<SavedClusterEntry>,
    /// Send it as `page_token` for the next page; null on the last.
    pub next_page_token: Option<String>,
}

const NAME_RULE: &str =
    "a name is 1 to 100 letters, digits, dots, dashes and underscores, the first a letter or digit";

impl App {
    /// Saved clusters after a name, at most `limit`.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn list_clusters(&self, after: &str, limit: u32) -> Result<SavedClusterPage, ServiceError> {
        let mut kept = self.guard.clusters(after, limit.saturating_add(1)).await?;
        let more = kept.len() > limit as usize;
        kept.truncate(limit as usize);
        let next_page_token = kept.last().filter(|_| more).map(|last| hex::encode(&last.name));
        let items = kept
            .into_iter()
            .map(|c| SavedClusterEntry { name: c.name, updated_at: written(c.updated_at) })
            .collect();
        Ok(SavedClusterPage { items, next_page_token })
    }

    /// The cluster saved under a name.
    ///
    /// # Errors
    /// [`ServiceError::NoCluster`]; [`ServiceError::Unavailable`].
    pub async fn cluster(&self, name: &str) -> Result<SavedCluster, ServiceError> {
        let record = self.guard.cluster(known(name)?).await?.ok_or_else(|| no_cluster(name))?;
        let understood = parse_cluster(&record.cluster, None, None, &Pointer::root())
            .map_err(|_| ServiceError::Internal(format!("the saved cluster {name} can no longer be read")))?;
        Ok(view(record, understood))
    }

    /// Save a cluster that can be read. When this returns `Ok`, it is in the database.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with pointers into `{"cluster": ...}`; [`ServiceError::Unexpected`];
    /// [`ServiceError::Unavailable`].
    pub async fn put_cluster(
        &self,
        name: &str,
        body: &Value,
        expect: &Expect,
    ) -> Result<(Put, SavedCluster), ServiceError> {
        let mut faults: Vec<FieldError> = Vec::new();
        if !is_name(name) {
            faults.push(FieldError::at(&Pointer::root(), "invalid_name", NAME_RULE));
        }
        let mut given = None;
        if let Some(mut fields) = Fields::of(body, Pointer::root(), &mut faults) {
            given = fields.required("cluster");
            fields.finish();
        }
        let place = Pointer::root().key("cluster");
        let understood = given.map(|given| parse_cluster(given, None, None, &place)).transpose();
        let (given, understood) = match (given, understood) {
            (Some(given), Ok(Some(understood))) if faults.is_empty() => (given, understood),
            (_, Err(ServiceError::Invalid(more))) => {
                faults.extend(more);
                return Err(ServiceError::Invalid(faults));
            }
            (_, Err(other)) => return Err(other),
            _ => return Err(ServiceError::Invalid(faults)),
        };
        let record = ClusterRecord {
            name: name.to_owned(),
            cluster: given.clone(),
            hash: hash_of(given),
            updated_at: OffsetDateTime::now_utc(),
        };
        let put = self.guard.put_cluster(&record, expect).await;
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.predictions.forget(name);
        Ok((put?, view(record, understood)))
    }

    /// True when the cluster of a question may be a saved one: what it means may change.
    #[must_use]
    pub fn names_saved_cluster(given: &Value) -> bool {
        cluster::saved_name(given).is_some() || bare_name(given).is_some()
    }

    /// Read a cluster, saved ones by name, and say what was understood.
    ///
    /// # Errors
    /// As [`parse_cluster`]; [`ServiceError::Unavailable`] for a saved name without the database.
    pub async fn parse_cluster(
        &self,
        value: &Value,
        gpu: Option<&str>,
        nodes: Option<u64>,
        place: &Pointer,
    ) -> Result<Understood, ServiceError> {
        parse_cluster(self.with_saved(value).await?.as_ref(), gpu, nodes, place)
    }

    /// Whether a cluster is saved under a word of a question.
    pub(super) async fn is_saved(&self, word: &str) -> bool {
        is_name(word) && matches!(self.guard.cluster(word).await, Ok(Some(_)))
    }

    /// Forget a saved cluster.
    ///
    /// # Errors
    /// [`ServiceError::NoCluster`] when none is saved; [`ServiceError::Unexpected`]; [`ServiceError::Unavailable`].
    pub async fn delete_cluster(&self, name: &str, expect: &Expect) -> Result<(), ServiceError> {
        let deleted = self.guard.delete_cluster(known(name)?, expect).await;
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.predictions.forget(name);
        if deleted? { Ok(()) } else { Err(no_cluster(name)) }
    }

    /// The cluster of a question, with a saved one in place of its name: `{"saved": "prod-east"}`, `saved:prod-east`,
    /// or `prod-east` alone where that reads as no cluster. Every question that names a cluster goes through here.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] for a name that nothing is saved under; [`ServiceError::Unavailable`].
    pub(super) async fn with_saved<'v>(&self, given: &'v Value) -> Result<Cow<'v, Value>, ServiceError> {
        let Some(name) = cluster::saved_name(given) else {
            let kept = match bare_name(given) {
                Some(name) => self.guard.cluster(name).await,
                None => Ok(None),
            };
            // without the database a bare word is what it was before: a text with faults
            return Ok(kept.ok().flatten().map_or(Cow::Borrowed(given), |record| Cow::Owned(record.cluster)));
        };
        let kept = if is_name(name) { self.guard.cluster(name).await? } else { None };
        kept.map(|record| Cow::Owned(record.cluster)).ok_or_else(|| {
            let place = Pointer::root().key("cluster");
            let detail = "no cluster is saved under this name; GET /v1/clusters lists those that are";
            let fault = FieldError::at(&place, "unknown_cluster", detail).got(given);
            ServiceError::Invalid(vec![fault])
        })
    }
}

/// A text that may be a saved name and is no cluster by itself: what "8xH100" means never depends on what is saved.
fn bare_name(given: &Value) -> Option<&str> {
    let name = given.as_str()?.trim();
    let is_text = || cluster::from_json(given, &Pointer::root(), hardware::catalogue()).is_ok();
    (is_name(name) && !is_text()).then_some(name)
}

fn is_name(name: &str) -> bool {
    name.len() <= 100
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn known(name: &str) -> Result<&str, ServiceError> {
    if is_name(name) { Ok(name) } else { Err(no_cluster(name)) }
}

fn no_cluster(name: &str) -> ServiceError {
    ServiceError::NoCluster(name.chars().take(100).collect())
}

fn view(record: ClusterRecord, understood: Understood) -> SavedCluster {
    SavedCluster {
        name: record.name,
        updated_at: written(record.updated_at),
        cluster: record.cluster,
        understood,
        hash: record.hash,
    }
}

fn hash_of(cluster: &Value) -> String {
    let mut text = hex::encode(Sha256::digest(cluster.to_string()));
    text.truncate(32);
    text
}
