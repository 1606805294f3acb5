//! Use cases: the only place where core, store and hub meet.
//!
//! [`plan_offline`] answers from the catalogue alone, for the command; [`App`] adds stored models, kept plans
//! and memories, for the server.

pub mod accuracy;
mod app;
pub mod batches;
mod beyond;
pub mod calibrate;
pub mod checks;
mod clusters;
mod csv;
pub mod fits;
mod fleet;
pub mod followups;
mod from_hub;
mod inspect;
pub mod kv;
pub mod launches;
pub mod measurements;
mod models;
pub mod observations;
mod parallel;
mod plan_table;
mod predictions;
mod question;
pub mod questions;
mod sizings;
mod sweeps;
mod workspaces;

use serde::Serialize;
use thiserror::Error;
use utoipa::ToSchema;

pub use app::{App, Background, Limits, Notice, Rendered};
pub use clusters::{SavedCluster, SavedClusterEntry, SavedClusterPage};
pub use csv::csv_line;
pub use fleet::{batch_offline, size_offline, sweep_offline};
pub use from_hub::{HubAccess, HubOrigin, Refresh};
pub use inspect::{Inspected, LayerKindCount, inspect};
pub use models::{ModelEntry, ModelFacts, ModelPage, ModelView, listed_model};
pub use plan_table::{plan_csv, sweep_csv};
pub use predictions::Predictions;
pub use question::{ClusterAssumption, PlanAnswer, Understood, Versions, parse_cluster, plan_offline};
pub use sweeps::SweepAnswer;

pub use crate::store::{AnswerBytes, Expect, Health, Put};

pub use crate::hub::HubError;
use crate::ingest::FieldError;
use crate::ingest::json::Malformed;
use crate::store::StoreError;

/// Why a use case gave no answer. It knows nothing of HTTP or exit codes; the faces translate it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ServiceError {
    /// The text is not JSON.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The question has faults: all of them.
    #[error("{}", told(.0))]
    Invalid(Vec<FieldError>),
    /// No plan is kept under this id.
    #[error("no plan is kept under {0}")]
    NoPlan(String),
    /// No model is known under this id.
    #[error("no model is known under {0}")]
    NoModel(String),
    /// No cluster is saved under this name.
    #[error("no cluster is saved under {0}")]
    NoCluster(String),
    /// No start-up is kept under this id.
    #[error("no observation is kept under {0}")]
    NoObservation(String),
    /// What is stored is not what the caller expected; its hash, if anything is stored.
    #[error("what is stored is not the expected one")]
    Unexpected { current: Option<String> },
    /// The database is away and this needs it.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The hub that was asked for a model gave none; why.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A fault of this program.
    #[error("{0}")]
    Internal(String),
}

fn told(faults: &[FieldError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => Self::Unavailable(why),
            StoreError::Unexpected { current } => Self::Unexpected { current },
            StoreError::Internal(why) => Self::Internal(why),
        }
    }
}

/// A thing to know about a configuration that does not stand in the way of planning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConfigNote {
    /// JSON pointer into the configuration, as a URI fragment.
    pub pointer: String,
    /// Stable code, e.g. `unread_key`.
    pub code: String,
    pub message: String,
}
