//! Weights in fewer bits.

use std::sync::Arc;

use super::{Subject, replan};
use crate::planner::answer::short;
use crate::planner::candidate::Candidate;
use crate::planner::input::PlanInput;
use crate::planner::plan::Advice;
use crate::planner::search::ground;
use crate::planner::units::Bytes;

/// Where the checkpoint is stored in 16 bits: what the engine would hold if it made fp8 of it while loading.
pub(super) fn fp8(subject: &Subject<'_, '_>) -> Option<Advice> {
    let Subject { input, ground: here, best } = subject;
    let changed = PlanInput { model: Arc::new(input.model.in_fp8()?), ..PlanInput::clone(input) };
    let settings = changed.engines.get(here.engine)?;
    let other = ground(&changed, here.engine, settings, here.pool_index, here.pool).ok()?;
    let after = replan(&other, &subject.shape(), best.dp, best.concurrency)?;
    let message = format!(
        "fp8 weights take {:.1} GiB of each GPU instead of {:.1} and leave room for {} KV tokens instead of {}; check accuracy \
         on your own task.",
        weights(&after).gib(),
        weights(best).gib(),
        short(after.standing.kv_tokens_total),
        short(best.standing.kv_tokens_total),
    );
    Some(subject.gained("quantization=fp8".to_owned(), &after, 1.0, message))
}

/// Weights on a GPU of the fullest stage.
fn weights(candidate: &Candidate) -> Bytes {
    candidate.replica.weights.iter().map(|w| w.bytes).max().unwrap_or_default()
}
