//! Weights in fewer bits.

use std::sync::Arc;

use super::{Subject, replan};
use crate::planner::answer::short;
use crate::planner::candidate::Candidate;
use crate::planner::engine::formats;
use crate::planner::input::PlanInput;
use crate::planner::model::ModelSpec;
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
    let settings = &subject.ground.settings;
    // an engine that makes nothing of a checkpoint while it loads needs one that is stored so
    let on_load = formats::made_on_load(settings.engine, settings.rules_version, "fp8").is_some();
    let (change, how) = if on_load {
        ("quantization=fp8", "")
    } else {
        ("weights=fp8", " The engine takes weights as they are stored: it needs a checkpoint in fp8.")
    };
    let message = format!(
        "fp8 weights take {:.1} GiB of each GPU instead of {:.1} and leave room for {} KV tokens instead of {}; check accuracy \
         on your own task.{how}",
        weights(&after).gib(),
        weights(best).gib(),
        short(after.standing.kv_tokens_total),
        short(best.standing.kv_tokens_total),
    );
    Some(subject.gained(change.to_owned(), &after, 1.0, message))
}

/// The same model as it is published in fewer bits, or as if it were, where the question asks to look so far.
pub(super) fn checkpoints(subject: &Subject<'_, '_>) -> Vec<Advice> {
    let beyond = &subject.input.beyond;
    let mut list: Vec<Advice> =
        beyond.checkpoints.iter().filter_map(|model| published(subject, model)).collect();
    list.extend(beyond.in_four_bits.as_ref().and_then(|model| in_four_bits(subject, model)));
    list
}

fn published(subject: &Subject<'_, '_>, model: &Arc<ModelSpec>) -> Option<Advice> {
    let after = of_model(subject, model)?;
    let message = format!(
        "{} ({}) {}; check its accuracy on your own task.",
        model.name,
        model.quantization,
        takes(subject.best, &after)
    );
    Some(subject.gained(format!("model={}", model.name), &after, 1.0, message))
}

fn in_four_bits(subject: &Subject<'_, '_>, model: &Arc<ModelSpec>) -> Option<Advice> {
    let after = of_model(subject, model)?;
    let message = format!(
        "No checkpoint of this model in four bits is in the catalogue; one in int4 {}, but it has to be made and its accuracy \
         checked first.",
        takes(subject.best, &after)
    );
    Some(subject.gained("weights=int4".to_owned(), &after, 1.0, message))
}

/// Another checkpoint on the same GPUs under the same load.
fn of_model(subject: &Subject<'_, '_>, model: &Arc<ModelSpec>) -> Option<Candidate> {
    let Subject { input, ground: here, best } = subject;
    let changed = PlanInput { model: Arc::clone(model), ..PlanInput::clone(input) };
    let settings = changed.engines.get(here.engine)?;
    let other = ground(&changed, here.engine, settings, here.pool_index, here.pool).ok()?;
    replan(&other, &subject.shape(), best.dp, best.concurrency)
}

/// "takes 10.1 GiB of each GPU instead of 17.3 and leaves room for …".
fn takes(before: &Candidate, after: &Candidate) -> String {
    format!(
        "takes {:.1} GiB of each GPU instead of {:.1} and leaves room for {} KV tokens instead of {}",
        weights(after).gib(),
        weights(before).gib(),
        short(after.standing.kv_tokens_total),
        short(before.standing.kv_tokens_total),
    )
}

/// Weights on a GPU of the fullest stage.
fn weights(candidate: &Candidate) -> Bytes {
    candidate.replica.weights.iter().map(|w| w.bytes).max().unwrap_or_default()
}
