//! How many prefill workers feed how many decode workers, and whether to split them at all.
//!
//! ```text
//! prefill worker   Xp = groups / (TTFT(input) · (1 − hit))       requests/s
//! decode worker    Xd = seats / (output · TPOT(seats))
//! network          Xn = BW / bytes(input)                        of a decode worker
//! x : y            the pair up to 8 : 8 with the most min(x·Xp, y·Xd, y·Xn) for each GPU
//! mixed            1 / (1/Xp + 1/Xd), both on the decode worker's own layout
//! ```

use serde::Serialize;
use utoipa::ToSchema;

use super::moves::Mover;
use super::paths::Path;
use crate::planner::candidate::Candidate;
use crate::planner::input::{PlanInput, Workload};
use crate::planner::layout::Shape;
use crate::planner::search::ground;

/// Workers of a kind in a ratio, at most.
const MOST_WORKERS: u64 = 8;
/// A split below this share of what unsplit workers give is not worth making.
const LEAST_GAIN: f64 = 0.95;

/// Prompt and answer length of a point.
pub type Lengths = (u64, u64);

/// The points of a curve when the request names none.
pub const USUAL_LENGTHS: [Lengths; 6] =
    [(512, 512), (1024, 256), (4096, 512), (8192, 1024), (32_768, 512), (131_072, 1024)];

/// The ratio at one pair of lengths.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RatioPoint {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// What one worker does of its own part.
    pub prefill_requests_per_s: f64,
    pub decode_requests_per_s: f64,
    /// What the path into one decode worker carries.
    pub network_requests_per_s: f64,
    pub prefill_workers: u64,
    pub decode_workers: u64,
    /// `prefill`, `decode` or `network`: what limits the pair.
    pub bound: String,
    /// Bytes a second into each decode worker at the pair's rate.
    pub network_bytes_per_s: f64,
    pub bytes_per_request: u64,
    /// Fixed cost and transfer, nothing overlapped.
    pub added_ttft_ms: f64,
    /// Requests per second and GPU of the pair over those of workers that do both.
    pub gain_over_mixed: f64,
    /// False: do not split at these lengths.
    pub split: bool,
    pub message: String,
}

/// One side as it is planned.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    pub input: &'a PlanInput,
    pub shape: Shape,
}

/// The ratio at `lengths`; `None` when a side does not fit.
#[must_use]
pub fn at(
    prefill: Worker<'_>,
    decode: Worker<'_>,
    mover: &Mover,
    path: &Path,
    lengths: Lengths,
    hit_rate: f64,
) -> Option<RatioPoint> {
    let (input_tokens, output_tokens) = lengths;
    let computed = (1.0 - hit_rate).clamp(0.001, 1.0);
    // a prompt is timed alone: the wait behind others is what the ratio is to avoid
    let first = timed(prefill, lengths, 1)?;
    let alone = timed(decode, lengths, 1)?;
    let second = timed(decode, lengths, u64::MAX)?;
    let prefill_rate = |c: &Candidate| c.caches() as f64 / (c.timing.ttft_s * computed).max(1e-9);
    let xp = prefill_rate(&first);
    let xd = second.concurrency as f64 / (output_tokens as f64 * second.timing.decode.total_s()).max(1e-9);
    let bytes = mover.footprint.bytes(input_tokens);
    let xn = path.bytes_per_s / (bytes.as_f64() * mover.reads()).max(1.0);
    let (gpus_p, gpus_d) = (prefill.shape.gpus() as f64, decode.shape.gpus() as f64);
    let rate = |x: u64, y: u64| (x as f64 * xp).min(y as f64 * xd).min(y as f64 * xn);
    let per_gpu = |x: u64, y: u64| rate(x, y) / (x as f64 * gpus_p + y as f64 * gpus_d);
    let mut best = (1_u64, 1_u64);
    for total in 2..=MOST_WORKERS.saturating_mul(2) {
        for x in 1..total.min(MOST_WORKERS.saturating_add(1)) {
            let y = total.saturating_sub(x);
            // a larger pair has to be worth it: within 2 % the smaller stands
            if y <= MOST_WORKERS && per_gpu(x, y) > per_gpu(best.0, best.1) * 1.02 {
                best = (x, y);
            }
        }
    }
    let (x, y) = best;
    let reached = rate(x, y);
    let bound = if reached >= x as f64 * xp {
        "prefill"
    } else if reached >= y as f64 * xd {
        "decode"
    } else {
        "network"
    };
    let mixed = 1.0 / (1.0 / prefill_rate(&alone) + 1.0 / xd) / gpus_d.max(1.0);
    let gain = per_gpu(x, y) / mixed.max(f64::MIN_POSITIVE);
    let transfer_s = mover.fetch_s(path, input_tokens);
    let slower_than_prefill = transfer_s > alone.timing.ttft_s;
    let split = gain >= LEAST_GAIN && bound != "network" && !slower_than_prefill;
    Some(RatioPoint {
        input_tokens,
        output_tokens,
        prefill_requests_per_s: xp,
        decode_requests_per_s: xd,
        network_requests_per_s: xn,
        prefill_workers: x,
        decode_workers: y,
        bound: bound.to_owned(),
        network_bytes_per_s: reached / y.max(1) as f64 * bytes.as_f64() * mover.reads(),
        bytes_per_request: bytes.get(),
        added_ttft_ms: transfer_s * 1e3,
        gain_over_mixed: gain,
        split,
        message: words(x, y, bound, gain, slower_than_prefill, split),
    })
}

fn words(x: u64, y: u64, bound: &str, gain: f64, slower: bool, split: bool) -> String {
    if split {
        return format!(
            "{x} prefill to {y} decode, bound by {bound}: {gain:.2} times what as many GPUs give unsplit; decoding is \
             never interrupted by prompts."
        );
    }
    let why = if bound == "network" {
        "the network into the decode workers is the limit".to_owned()
    } else if slower {
        "handing the cache over takes longer than computing it on the decode worker".to_owned()
    } else {
        format!("the best ratio up to 8:8 ({x}:{y}) gives {gain:.2} times what unsplit workers give")
    };
    format!("Do not split: {why}.")
}

/// A worker under this load with `asked` requests at once, as far as its cache holds them.
fn timed(worker: Worker<'_>, (input_tokens, output_tokens): Lengths, asked: u64) -> Option<Candidate> {
    let mut input = worker.input.clone();
    input.workload = Workload {
        input_tokens,
        output_tokens,
        context_tokens: Some(input_tokens.saturating_add(output_tokens)),
        decode_context_tokens: None,
        concurrency: asked,
        prefix_cache_hit_rate: 0.0,
    };
    let settings = input.engines.first()?;
    let pool = input.cluster.pools.first()?;
    let ground = ground(&input, 0, settings, 0, pool).ok()?;
    let replica = ground.replica(&worker.shape, &ground.model.sharded(&worker.shape)).ok()?;
    let candidate = ground.candidate(replica, 1, asked);
    (candidate.sequences_at_context >= 1.0).then_some(candidate)
}
