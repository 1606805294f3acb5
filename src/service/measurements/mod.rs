//! Measurements of served models: rows as sources publish them, turned into questions to the latency model.

mod drafts;
mod models;
mod observe;
mod row;

pub use models::Families;
pub use observe::{Observation, Observed, observe};
pub use row::{Row, RowsError, parse, read};
