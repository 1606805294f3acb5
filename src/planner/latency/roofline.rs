//! The plain model: exact and simple, so that a person can check it by hand.
//!
//! ```text
//! decode step   = (weights on the rank + sequences * context * KV bytes per token on the rank)
//!                 / (HBM * hbm_efficiency) + collectives
//! TPOT          = decode step / tokens of a step; a step with k drafts also reads the drafter's weights k times
//! prefill chunk = FLOPs on the rank / (peak * compute_efficiency) + collectives
//! collective    = 2(n-1)/n * tokens * hidden * 2 B / (link * link_efficiency) + fixed, two a layer
//! ```
//!
//! `link` is the vendor's figure, both directions together. A pass goes through all pipeline stages
//! one after the other, with one send of the activations between neighbours. With several stages the
//! sequences are dealt over as many batches, which keep the stages busy in turn.
//! Source: the design's plain model; the published figures in `tests/data/figures` are its test.

use super::{LatencyInput, StageLoad, StepCost, Timing};
use crate::planner::estimate::Basis;
use crate::planner::speculation::tokens_per_step;

/// Bytes of one activation element on a link: 16-bit, as engines send them.
const ACTIVATION_BYTES: f64 = 2.0;

/// A plain roofline is a lower bound: published comparisons find it 45 to 99 % too fast
/// (`docs/ACCURACY.md`), so the interval opens upwards.
const RANGE: (f64, f64) = (1.0, 2.0);

/// The constants of the plain model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Peak memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    /// Share of it that a step reaches, 0..1.
    pub hbm_efficiency: f64,
    /// Peak dense rate in the format of the weights, FLOP/s.
    pub peak_flops: f64,
    /// Share of it that a prefill reaches, 0..1.
    pub compute_efficiency: f64,
    /// Rate of the slowest link of a TP group, both directions, bytes/s for each GPU.
    pub link_bytes_per_s: f64,
    /// True when that link is the network between nodes: a ring waits for its slowest link alone.
    pub link_is_network: bool,
    /// Rate of the slowest link between stages, both directions, bytes/s for each GPU.
    pub stage_link_bytes_per_s: f64,
    /// Share of a link's rate that a collective reaches, 0..1.
    pub link_efficiency: f64,
    /// Fixed cost of one collective, s.
    pub allreduce_fixed_s: f64,
}

impl Constants {
    fn hbm(&self) -> f64 {
        self.hbm_bytes_per_s * self.hbm_efficiency
    }

    fn flops(&self) -> f64 {
        self.peak_flops * self.compute_efficiency
    }
}

/// The timing of one layout.
#[must_use]
pub fn estimate(input: &LatencyInput<'_>, constants: &Constants) -> Timing {
    let decode = decode_step(input, constants);
    let tokens_per_step = tokens_per_step(input.drafts.tokens, input.drafts.acceptance);
    Timing {
        decode,
        tpot_s: decode.total_s() / tokens_per_step,
        chunk: prefill_chunk(input, constants, input.chunk_tokens, input.context_tokens),
        ttft_s: prompt(input, constants),
        ttft_range: RANGE,
        tpot_range: RANGE,
        basis: Basis::Assumed,
        tokens_per_step,
        slot_s: 0.0,
        prompt_s: prompt(input, constants),
    }
}

/// One token for each sequence. Every stage reads its weights and the cache of the batch in it.
fn decode_step(input: &LatencyInput<'_>, constants: &Constants) -> StepCost {
    let batch = input.batch / stages(input);
    let read = |bytes: f64| bytes / constants.hbm();
    let drafts = &input.drafts;
    let tokens = batch * (1.0 + drafts.tokens);
    let communication_s = collectives(input, constants, tokens);
    StepCost {
        weights_s: input.stages.iter().map(|s| read(s.weights_bytes)).sum::<f64>()
            + read(drafts.tokens * drafts.weights_bytes),
        kv_s: input.stages.iter().map(|s| read(batch * s.kv_read_bytes(input.context_tokens))).sum(),
        communication_s,
        network_s: over_network(constants, communication_s),
        pipeline_s: hops(input, constants, tokens),
        ..StepCost::default()
    }
}

/// A chunk of `tokens` prompt tokens behind `context` tokens that are already in the cache.
fn prefill_chunk(input: &LatencyInput<'_>, constants: &Constants, tokens: f64, context: f64) -> StepCost {
    let communication_s = collectives(input, constants, tokens);
    StepCost {
        compute_s: input.stages.iter().map(|s| chunk_flops(s, tokens, context) / constants.flops()).sum(),
        communication_s,
        network_s: over_network(constants, communication_s),
        pipeline_s: hops(input, constants, tokens),
        ..StepCost::default()
    }
}

/// FLOPs of a chunk on one rank of a stage: two for each active parameter and token, and for attention
/// `4 * tokens * (context + tokens/2) * query heads * head size`, summed over the stage's layers.
pub(super) fn chunk_flops(stage: &StageLoad, tokens: f64, context: f64) -> f64 {
    2.0 * tokens * stage.active_parameters + 4.0 * tokens * stage.attended_width(context + tokens / 2.0)
}

/// What of a prompt is computed, chunk after chunk: the passes differ only in the context behind them, and their
/// attention adds up to that of one pass over the prompt.
fn prompt(input: &LatencyInput<'_>, constants: &Constants) -> f64 {
    let computed = (input.input_tokens - input.reused_tokens).max(1.0_f64.min(input.input_tokens));
    let passes = (computed / input.chunk_tokens.max(1.0)).ceil().max(1.0);
    let whole = prefill_chunk(input, constants, computed, input.input_tokens - computed);
    let fixed_again = (passes - 1.0) * (prefill_chunk(input, constants, 0.0, 0.0).total_s());
    whole.total_s() + fixed_again
}

/// The all-reduces of a pass over the TP group.
fn collectives(input: &LatencyInput<'_>, constants: &Constants, tokens: f64) -> f64 {
    let ranks = input.shape.tp as f64;
    if ranks <= 1.0 {
        return 0.0;
    }
    let bytes = tokens * input.hidden_size * ACTIVATION_BYTES;
    let wire_s =
        2.0 * (ranks - 1.0) / ranks * bytes / (constants.link_bytes_per_s * constants.link_efficiency);
    input.all_reduces_per_pass * (wire_s + constants.allreduce_fixed_s)
}

/// What of the collectives crosses the network between nodes.
fn over_network(constants: &Constants, communication_s: f64) -> f64 {
    if constants.link_is_network { communication_s } else { 0.0 }
}

/// The sends between neighbouring stages.
fn hops(input: &LatencyInput<'_>, constants: &Constants, tokens: f64) -> f64 {
    let bytes = tokens * input.hidden_size * ACTIVATION_BYTES;
    let send_s =
        bytes / (constants.stage_link_bytes_per_s * constants.link_efficiency) + constants.allreduce_fixed_s;
    (stages(input) - 1.0) * send_s
}

fn stages(input: &LatencyInput<'_>) -> f64 {
    input.shape.pp.max(1) as f64
}
