//! Requests in flight against places for them.

use crate::planner::candidate::Candidate;
use crate::planner::engine::WhenFull;
use crate::planner::plan::Admission;
use crate::planner::replica::Ground;

/// Who runs, who waits, and whether running requests are put back.
pub(super) fn of(ground: &Ground<'_>, candidate: &Candidate) -> Admission {
    let asked = ground.input.workload.concurrency;
    let (places, by_cache) = ground.places(&candidate.replica);
    let admitted = places.saturating_mul(candidate.caches()).min(asked);
    let waiting = asked.saturating_sub(admitted);
    let bound = match (waiting, by_cache) {
        (0, _) => "none",
        (_, true) => "kv_cache",
        (_, false) => "max_num_seqs",
    };
    let preemption = preempts(ground, candidate);
    Admission {
        request_tokens: ground.load_tokens().get(),
        asked,
        admitted,
        waiting,
        bound: bound.to_owned(),
        preemption,
        when_full: ground.rules.when_full().as_str().to_owned(),
        slot_wait_ms: candidate.timing.slot_s * 1e3,
        recompute_ms: if preemption { candidate.timing.prompt_s * 1e3 } else { 0.0 },
    }
}

/// True when the engine lets more requests start than have room up to their end.
pub(in crate::planner) fn preempts(ground: &Ground<'_>, candidate: &Candidate) -> bool {
    let (places, by_cache) = ground.places(&candidate.replica);
    let too_many = places.saturating_mul(candidate.caches()) < ground.input.workload.concurrency;
    too_many && by_cache && ground.rules.when_full() == WhenFull::Recompute
}
