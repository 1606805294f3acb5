//! The KV cache over a fleet: where it lies, what copies of it cost, and whether to move it or compute it again.
//!
//! Three uses of "more cache" are kept apart, since they do not replace each other:
//! room for running requests (only the pool in GPU memory), reuse (a prefix kept for a later request),
//! and hand-over (from a prefill worker to a decode worker, once for each request).

pub mod footprint;
pub mod handover;
pub mod moves;
pub mod paths;
pub mod prefixes;
pub mod ratio;
pub mod residence;
pub mod tiers;

pub use footprint::Footprint;

use super::estimate::{Assumption, AssumptionValue};

/// An assumption of these estimates; `given` when the caller named the value.
fn assumed(name: &str, value: f64, unit: &str, source: &str, given: bool) -> Assumption {
    Assumption {
        name: name.to_owned(),
        value: AssumptionValue::Number(value),
        unit: unit.to_owned(),
        source: if given { "given in the request".to_owned() } else { source.to_owned() },
        given,
    }
}

/// A count as a whole number of the nearest tokens or requests; negative and NaN count as zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is the documented behaviour"
)]
fn count(figure: f64) -> u64 {
    figure as u64
}
