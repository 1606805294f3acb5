//! The pure core: `plan(&PlanInput) -> Plan`.
//!
//! No IO, no async, no clock, no randomness, no globals, no panic on any input; it imports
//! nothing of ours outside itself. `tests/tidy.rs` and the lints below hold this.
//!
//! ```text
//! PlanInput -> enumerate -> refuse -> place -> memory -> latency -> rank -> Plan
//! ```

// what can panic is refused in the core, so that no input can bring a plan down
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::string_slice
    )
)]

pub mod advice;
pub mod answer;
pub mod candidate;
pub mod constants;
mod corrected;
pub mod engine;
pub mod estimate;
pub mod fault;
pub mod fit;
pub mod fleet;
pub mod formula;
pub mod free_memory;
pub mod hardware;
pub mod input;
pub mod judge;
pub mod kv;
pub mod latency;
pub mod layout;
pub mod model;
pub mod plan;
pub mod ranking;
pub mod replica;
pub mod search;
pub mod show;
pub mod sizes;
pub mod sizing;
pub mod smallest;
pub mod speculation;
pub mod sweep;
pub mod units;

use input::PlanInput;
use plan::Plan;

/// The main road: search every layout, rank those that work, say why the others do not.
#[must_use]
pub fn plan(input: &PlanInput) -> Plan {
    let found = search::search(input);
    show::plan(input, &found)
}
