//! What the cache itself allows: a smaller format, positions dealt over copies, or nothing.

use super::{Subject, held, replan};
use crate::planner::answer::{copied, short, short_context};
use crate::planner::candidate::Candidate;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::plan::Advice;
use crate::planner::search::ground;
use crate::planner::units::grouped;

/// Sizes of decode context parallelism that are tried, the largest first.
const DCP_TRIES: usize = 2;

pub(super) fn changes(subject: &Subject<'_, '_>) -> Vec<Advice> {
    [fp8(subject), positions_instead_of_copies(subject)].into_iter().flatten().collect()
}

/// Half the bytes a token, where the cache is 16 bit.
fn fp8(subject: &Subject<'_, '_>) -> Option<Advice> {
    let Subject { input, ground: here, best } = subject;
    if !here.settings.kv_dtype.is_16_bit() {
        return None;
    }
    let settings = input.engines.get(here.engine)?;
    let settings = EngineSettings { kv_cache_dtype: "fp8".to_owned(), ..settings.clone() };
    let other = ground(input, here.engine, &settings, here.pool_index, here.pool).ok()?;
    let changed = replan(&other, &best.replica.shape, best.dp, best.concurrency)?;
    let message = format!(
        "An fp8 cache holds {} KV tokens instead of {} on the same GPUs; check accuracy on your own task.",
        short(changed.standing.kv_tokens_total),
        short(best.standing.kv_tokens_total),
    );
    Some(subject.gained("kv_cache_dtype=fp8".to_owned(), &changed, 1.0, message))
}

/// Where ranks hold copies: each keeps its own positions instead (decode context parallelism).
fn positions_instead_of_copies(subject: &Subject<'_, '_>) -> Option<Advice> {
    let shape = subject.shape();
    if !subject.copies() || shape.dcp > 1 {
        return None;
    }
    let copies = subject.kv_heads().map_or(shape.tp, |heads| shape.tp / heads);
    let sizes = std::iter::successors(Some(copies), |c| Some(c / 2)).take_while(|c| *c > 1).take(DCP_TRIES);
    let (dcp, changed): (u64, Candidate) = sizes
        .filter(|c| shape.tp.is_multiple_of(*c))
        .find_map(|dcp| Some((dcp, subject.on_same_ground(&Shape { dcp, ..shape }, subject.best.dp)?)))?;
    let message = format!(
        "Ranks that hold copies of {} can keep {dcp} different parts of each sequence instead: {} KV tokens against {}.",
        copied(subject.input),
        short(changed.standing.kv_tokens_total),
        short(subject.best.standing.kv_tokens_total),
    );
    Some(subject.gained(format!("decode_context_parallel_size={dcp}"), &changed, 1.0, message))
}

/// The engine's own limit binds: more memory for the cache would run no more sequences.
pub(super) fn nothing_to_gain(subject: &Subject<'_, '_>) -> Option<Advice> {
    let (ground, best) = (subject.ground, subject.best);
    let limit = ground.settings.max_num_seqs;
    if held(best) <= limit {
        return None;
    }
    let message = format!(
        "Memory does not bind: the cache of each engine holds {} sequences of {} and max_num_seqs lets {} run, so a larger \
         cache gains nothing until that is raised.",
        grouped(held(best)),
        short_context(ground.context().get()),
        grouped(limit),
    );
    Some(subject.said("none", message))
}
