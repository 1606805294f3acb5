//! Where model configurations, plans, clusters and observations are kept.
//!
//! One trait, two databases ([`postgres`], [`sqlite`]), one contract that both pass (`tests/store_contract.rs`).
//! In front of either stand a guard that fails fast while the database is away ([`guard`]), a memory cache
//! ([`models`]) and a queue that writes plans behind the answer ([`plans`]).

mod fault;
pub mod guard;
pub mod migrations;
pub mod models;
pub mod plans;
pub mod postgres;
mod sql;
mod sql_observations;
pub mod sqlite;

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

pub use guard::{Guard, Health};
pub use models::{Lookup, Models};
pub use plans::{AnswerBytes, Kept, Plans};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;

/// What a store answers with, later. Boxed, so that the trait can stand behind a pointer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The revision under which a configuration is kept when the caller names none.
pub const DEFAULT_REVISION: &str = "main";

/// A model configuration as kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRecord {
    /// `org/name`.
    pub id: String,
    pub revision: String,
    pub config: Value,
    /// The quantisation block of a checkpoint that keeps it in a side file.
    pub quantization_config: Option<Value>,
    /// Who gave it: `request` or a hub's address.
    pub source: String,
    /// Hash of config and quantisation block: the entity tag.
    pub hash: String,
    pub updated_at: OffsetDateTime,
}

/// A kept configuration without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelHead {
    pub id: String,
    pub revision: String,
    pub source: String,
    pub hash: String,
    pub updated_at: OffsetDateTime,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The id and revision after which the page starts; empty texts for the first page.
    pub after: (String, String),
    /// Only ids that contain this text, in any case; empty for all.
    pub search: String,
    pub limit: u32,
}

/// What a write expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    Anything,
    /// Nothing is kept under this id yet.
    Nothing,
    /// What is kept has this hash.
    Hash(String),
}

/// What a write of a model did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Created,
    Replaced,
}

/// An answer as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRecord {
    pub plan_id: String,
    /// The JSON that was sent, deflated.
    pub answer: Vec<u8>,
    pub created_at: OffsetDateTime,
}

/// A cluster as kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRecord {
    pub name: String,
    /// The `cluster` field of a request: a text or an object.
    pub cluster: Value,
    /// Hash of the cluster: the entity tag.
    pub hash: String,
    pub updated_at: OffsetDateTime,
}

/// A small thing kept under a kind and a name: a workspace's default cluster, a deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedValue {
    /// What it is, e.g. `workspace`: names of different kinds do not meet.
    pub kind: String,
    pub name: String,
    pub value: Value,
    pub updated_at: OffsetDateTime,
}

/// A start-up as kept, without the whole of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationHead {
    /// Hash of what was observed.
    pub id: String,
    pub engine: String,
    pub version: String,
    /// Catalogue key; empty when nothing said what it ran on.
    pub gpu: String,
    /// Empty when the log names none.
    pub model: String,
    /// The sizes, e.g. "TP=8 × PP=2".
    pub layout: String,
    /// `started`, `refused`, `unknown`.
    pub outcome: String,
    pub outcome_agrees: Option<bool>,
    pub kv_tokens_observed: Option<f64>,
    pub kv_tokens_predicted: Option<f64>,
    /// Predicted over observed, by figure: an object of numbers.
    pub ratios: Value,
    /// When it was first kept, to the second.
    pub observed_at: OffsetDateTime,
}

/// A start-up as kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationRecord {
    pub head: ObservationHead,
    /// Recovered settings and figures beside the prediction.
    pub record: Value,
}

/// A page of observations, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservationPage {
    /// The time and id before which the page starts; `None` for the first page.
    pub before: Option<(OffsetDateTime, String)>,
    /// Only those of this engine, version, GPU, model.
    pub engine: Option<String>,
    pub version: Option<String>,
    pub gpu: Option<String>,
    pub model: Option<String>,
    pub limit: u32,
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// It cannot be reached, or cannot write now. The same call may succeed later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// What is kept is not what the caller expected; the hash of what is there, if anything is.
    #[error("what is stored is not the expected one")]
    Unexpected { current: Option<String> },
    /// A fault of this program or of the data.
    #[error("the database refused: {0}")]
    Internal(String),
}

/// A database of models, plans, clusters and observations. Every call is one transaction; a call that returns `Ok` is durable.
pub trait Store: Send + Sync {
    /// `postgres` or `sqlite`.
    fn kind(&self) -> &'static str;

    /// Bring the schema to the newest migration.
    fn migrate(&self) -> Answer<'_, ()>;

    /// The newest applied migration. `None` before the first.
    fn version(&self) -> Answer<'_, Option<i64>>;

    /// The configuration kept under an id and revision.
    fn model<'a>(&'a self, id: &'a str, revision: &'a str) -> Answer<'a, Option<ModelRecord>>;

    /// Kept configurations in order of id and revision.
    fn models<'a>(&'a self, page: &'a Page) -> Answer<'a, Vec<ModelHead>>;

    /// Keep a configuration when what is there is as expected.
    fn put_model<'a>(&'a self, model: &'a ModelRecord, expect: &'a Expect) -> Answer<'a, Put>;

    /// Forget a configuration when what is there is as expected; false when nothing was there.
    fn delete_model<'a>(&'a self, id: &'a str, revision: &'a str, expect: &'a Expect) -> Answer<'a, bool>;

    /// The answer kept under a plan id.
    fn plan<'a>(&'a self, plan_id: &'a str) -> Answer<'a, Option<PlanRecord>>;

    /// Keep answers; one that is there already stays as it is.
    fn put_plans<'a>(&'a self, plans: &'a [PlanRecord]) -> Answer<'a, ()>;

    /// Forget the answers made before a time, at most `limit` of them; how many were forgotten.
    fn delete_plans_before(&self, time: OffsetDateTime, limit: u32) -> Answer<'_, u64>;

    /// The cluster kept under a name.
    fn cluster<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ClusterRecord>>;

    /// Kept clusters in order of name, after `after`, at most `limit`.
    fn clusters<'a>(&'a self, after: &'a str, limit: u32) -> Answer<'a, Vec<ClusterRecord>>;

    /// Keep a cluster when what is there is as expected.
    fn put_cluster<'a>(&'a self, cluster: &'a ClusterRecord, expect: &'a Expect) -> Answer<'a, Put>;

    /// Forget a cluster when what is there is as expected; false when nothing was there.
    fn delete_cluster<'a>(&'a self, name: &'a str, expect: &'a Expect) -> Answer<'a, bool>;

    /// The value kept under a kind and name.
    fn named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, Option<NamedValue>>;

    /// Values of a kind in order of name, after `after`, at most `limit`.
    fn named_values<'a>(&'a self, kind: &'a str, after: &'a str, limit: u32) -> Answer<'a, Vec<NamedValue>>;

    /// Keep a value, whatever was there.
    fn put_named_value<'a>(&'a self, value: &'a NamedValue) -> Answer<'a, Put>;

    /// Forget a value; false when nothing was there.
    fn delete_named_value<'a>(&'a self, kind: &'a str, name: &'a str) -> Answer<'a, bool>;

    /// Keep an observation; one under the same id keeps its time and takes the new prediction.
    fn put_observation<'a>(&'a self, observation: &'a ObservationRecord) -> Answer<'a, ()>;

    /// The observation kept under an id.
    fn observation<'a>(&'a self, id: &'a str) -> Answer<'a, Option<ObservationRecord>>;

    /// Kept observations, newest first.
    fn observations<'a>(&'a self, page: &'a ObservationPage) -> Answer<'a, Vec<ObservationHead>>;

    /// Forget an observation; false when nothing was there.
    fn delete_observation<'a>(&'a self, id: &'a str) -> Answer<'a, bool>;
}
