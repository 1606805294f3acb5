//! Every bound on a request, in one place. They are far above anything real and far below anything
//! that could overflow or take long: a value outside is refused with its range.

use std::ops::RangeInclusive;

/// The largest integer that every JSON reader keeps exactly (2^53 - 1).
pub const MAX_EXACT: u64 = 9_007_199_254_740_991;

/// Tokens of a prompt, an answer, a context or a batch.
pub const TOKENS: RangeInclusive<u64> = 1..=1_073_741_824;
/// Requests in flight over a deployment.
pub const CONCURRENCY: RangeInclusive<u64> = 1..=100_000_000;
/// Sequences of one engine.
pub const SEQUENCES: RangeInclusive<u64> = 1..=1_000_000;
/// Tokens of a cache block.
pub const BLOCK_SIZE: RangeInclusive<u64> = 1..=1_048_576;
/// Share of GPU memory.
pub const UTILIZATION: RangeInclusive<f64> = 0.01..=1.0;
/// Bytes of memory or weights, up to 2^53 - 1.
pub const BYTES: RangeInclusive<u64> = 1..=MAX_EXACT;
/// A share of something.
pub const SHARE: RangeInclusive<f64> = 0.0..=1.0;
/// Draft tokens of speculative decoding.
pub const DRAFT_TOKENS: RangeInclusive<u64> = 0..=1024;
/// Layers of a pipeline stage.
pub const STAGE_LAYERS: RangeInclusive<u64> = 1..=10_000;
/// Stages of a pipeline that are given one by one.
pub const STAGES: usize = 1024;
/// A latency limit in milliseconds.
pub const MILLISECONDS: RangeInclusive<f64> = 0.001..=1e9;
/// A parallel size, or a number of replicas.
pub const PARALLEL: RangeInclusive<u64> = 1..=1_000_000;
/// Values of one dimension of the search.
pub const SEARCH_VALUES: usize = 64;
/// Layouts that the listed sizes of a search may make together, over all engines.
pub const SEARCHED: u64 = 200_000;
/// Engines to compare in one request.
pub const ENGINES: usize = 8;
/// Layouts in an answer.
pub const LIMIT: RangeInclusive<u64> = 1..=1000;
/// Characters of an id, a name or a setting.
pub const NAME_CHARS: usize = 200;
/// Keys of `overrides`.
pub const OVERRIDES: usize = 256;
/// Entries of an assumption that is given by link.
pub const LINKS: usize = 64;

/// The range of an assumption by its unit and name: what physics and arithmetic allow.
#[must_use]
pub fn assumption(name: &str, unit: &str) -> RangeInclusive<f64> {
    match (name, unit) {
        ("gpu_memory_bytes", _) => 1.0..=1e15,
        (_, "B/s") => 1.0..=1e18,
        (_, "FLOP/s") => 1.0..=1e21,
        (_, "us") => 0.0..=1e9,
        (_, "USD/h") => 0.0..=1e6,
        (name, "") if name.ends_with("efficiency") => 0.001..=1.0,
        // bytes
        _ => 0.0..=1e15,
    }
}
