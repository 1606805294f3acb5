//! The pure core: `plan(&PlanInput) -> Plan`.
//!
//! No IO, no async, no clock, no randomness, no globals, no panic on any input; it imports
//! nothing of ours outside itself. `tests/tidy.rs` holds this.

pub mod engine;
pub mod estimate;
pub mod hardware;
pub mod input;
pub mod layout;
pub mod model;
pub mod plan;
pub mod units;
