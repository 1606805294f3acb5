//! How fast a layout is: the seam behind which each latency model answers.
//!
//! Both models read the same [`LatencyInput`]; `roofline` is the plain one.

pub mod calibrated;
pub mod load;
pub mod roof;
pub mod roofline;

use smallvec::SmallVec;

use super::estimate::{Basis, Estimate};
use super::layout::Shape;
use super::plan::{Breakdown, Latency};

/// What latency depends on, for one layout. Loads are of one rank of one attention-DP group.
#[derive(Debug, Clone)]
pub struct LatencyInput<'a> {
    pub shape: &'a Shape,
    /// One entry per pipeline stage.
    pub stages: &'a [StageLoad],
    pub hidden_size: f64,
    /// Collectives of one pass over all layers: two a layer (after attention and after the feed-forward).
    pub all_reduces_per_pass: f64,
    /// Sequences decoded at once by one attention-DP group.
    pub batch: f64,
    /// Prompt tokens of a request, and of those the ones whose cache is there already.
    pub input_tokens: f64,
    pub reused_tokens: f64,
    /// Length of the sequences in the cache.
    pub context_tokens: f64,
    /// Most new tokens in one pass.
    pub chunk_tokens: f64,
    pub drafts: Drafts,
}

/// Speculative decoding as the plain model counts it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drafts {
    /// Draft tokens of a step.
    pub tokens: f64,
    /// Chance that one holds where those before it did.
    pub acceptance: f64,
    /// Weights of the drafter on a rank, bytes.
    pub weights_bytes: f64,
}

/// What one rank of a stage holds and does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageLoad {
    /// Weights on the rank, bytes.
    pub weights_bytes: f64,
    /// Parameters that one token passes through on the rank.
    pub active_parameters: f64,
    /// Cache by how far back it is read.
    pub readings: SmallVec<[Reading; 2]>,
    /// Recurrent state of one sequence, bytes, read and written once a token.
    pub state_bytes: f64,
}

/// Layers that look equally far back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Tokens that are looked at, infinite for full attention.
    pub reach_tokens: f64,
    /// Cache bytes of one token on the rank, over these layers.
    pub kv_bytes_per_token: f64,
    /// Query heads times head size on the rank, over these layers.
    pub attention_width: f64,
}

impl StageLoad {
    /// Cache bytes read by one new token of a sequence of `context` tokens.
    #[must_use]
    pub fn kv_read_bytes(&self, context: f64) -> f64 {
        self.state_bytes
            + self.readings.iter().map(|r| r.kv_bytes_per_token * context.min(r.reach_tokens)).sum::<f64>()
    }

    /// `Σ width * tokens attended to`, for a token that has `context` tokens before it.
    #[must_use]
    pub fn attended_width(&self, context: f64) -> f64 {
        self.readings.iter().map(|r| r.attention_width * context.min(r.reach_tokens)).sum()
    }
}

/// One pass by part, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepCost {
    pub weights_s: f64,
    pub kv_s: f64,
    pub compute_s: f64,
    pub communication_s: f64,
    /// Of `communication_s`, what crosses the network between nodes.
    pub network_s: f64,
    pub pipeline_s: f64,
    pub overhead_s: f64,
}

impl StepCost {
    /// The whole pass.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.weights_s + self.kv_s + self.compute_s + self.communication_s + self.pipeline_s + self.overhead_s
    }

    /// Both, one after the other.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            weights_s: self.weights_s + other.weights_s,
            kv_s: self.kv_s + other.kv_s,
            compute_s: self.compute_s + other.compute_s,
            communication_s: self.communication_s + other.communication_s,
            network_s: self.network_s + other.network_s,
            pipeline_s: self.pipeline_s + other.pipeline_s,
            overhead_s: self.overhead_s + other.overhead_s,
        }
    }

    /// The pass `n` times.
    #[must_use]
    pub fn times(&self, n: f64) -> Self {
        Self {
            weights_s: self.weights_s * n,
            kv_s: self.kv_s * n,
            compute_s: self.compute_s * n,
            communication_s: self.communication_s * n,
            network_s: self.network_s * n,
            pipeline_s: self.pipeline_s * n,
            overhead_s: self.overhead_s * n,
        }
    }

    fn breakdown_ms(&self) -> Breakdown {
        Breakdown {
            weights: self.weights_s * 1e3,
            kv: self.kv_s * 1e3,
            compute: self.compute_s * 1e3,
            communication: self.communication_s * 1e3,
            communication_inside_nodes: (self.communication_s - self.network_s) * 1e3,
            communication_between_nodes: self.network_s * 1e3,
            pipeline: self.pipeline_s * 1e3,
            overhead: self.overhead_s * 1e3,
        }
    }

    fn communication_share(&self) -> f64 {
        let total = self.total_s();
        if total > 0.0 { self.communication_s / total } else { 0.0 }
    }

    /// The part of weights, cache, compute and communication that takes longest, in the words of the contract: what a layout can
    /// change. The engine's own work stands in the breakdown.
    #[must_use]
    pub fn bound(&self) -> &'static str {
        let parts = [
            ("weights", self.weights_s),
            ("kv", self.kv_s),
            ("compute", self.compute_s),
            ("communication", self.communication_s + self.pipeline_s),
        ];
        parts.into_iter().fold(("weights", 0.0), |best, part| if part.1 > best.1 { part } else { best }).0
    }
}

/// A latency model's answer for one layout, before ranges are put on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    pub decode: StepCost,
    /// One prefill chunk at `context_tokens`.
    pub chunk: StepCost,
    /// For each output token after the first, what prompts of other requests add to it included.
    pub tpot_s: f64,
    /// From the arrival of a request to its first token.
    pub ttft_s: f64,
    /// Factors of the interval around TTFT and TPOT.
    pub ttft_range: (f64, f64),
    pub tpot_range: (f64, f64),
    pub basis: Basis,
    /// Tokens of each sequence that a decode step gives.
    pub tokens_per_step: f64,
    /// Part of the first token's time that waits for a place.
    pub slot_s: f64,
    /// What of a prompt is computed, alone.
    pub prompt_s: f64,
}

impl Timing {
    /// As the plan shows it.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of collectives is small and positive"
    )]
    pub fn show(&self, all_reduces_per_pass: f64) -> Latency {
        let tpot_ms = self.tpot_s * 1e3;
        Latency {
            ttft_ms: Estimate::within(self.ttft_s * 1e3, self.ttft_range.0, self.ttft_range.1, self.basis),
            tpot_ms: Estimate::within(tpot_ms, self.tpot_range.0, self.tpot_range.1, self.basis),
            decode_step_ms: self.decode.total_s() * 1e3,
            prefill_chunk_ms: self.chunk.total_s() * 1e3,
            decode_breakdown_ms: self.decode.breakdown_ms(),
            prefill_breakdown_ms: self.chunk.breakdown_ms(),
            communication_share: self.decode.communication_share(),
            prefill_communication_share: self.chunk.communication_share(),
            all_reduces_per_pass: all_reduces_per_pass as u64,
            tokens_per_step: self.tokens_per_step,
            bound: self.decode.bound().to_owned(),
        }
    }
}
