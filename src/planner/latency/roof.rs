//! Where the passes of a layout lie under the roof of their GPU.
//!
//! ```text
//! roof(I)        = min(peak, I * HBM)                     I: FLOP for each byte moved
//! decode, b sequences of c tokens on one rank of a stage:
//!   FLOP = b * (2 * active parameters + 4 * c * query heads * head size)      summed over its layers
//!   B    = weights + b * cache read for c tokens
//! prefill chunk of m tokens behind c:
//!   FLOP = m * (2 * active parameters + 4 * (c + m/2) * query heads * head size)
//!   B    = weights + cache read for c tokens
//! ```
//!
//! Every weight of the rank is counted as read once a pass, as in the plain model (a mixture of experts reads fewer at
//! small batches, so its decode lies further right than shown). Source: S. Williams, A. Waterman, D. Patterson,
//! "Roofline: an insightful visual performance model", CACM 52(4), 2009; FLOPs as in [`super::roofline`].

use serde::Serialize;
use utoipa::ToSchema;

use super::StageLoad;
use super::roofline::chunk_flops;

/// The roof of one GPU, and the passes of the stage that moves most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Roof {
    /// Peak dense rate in the format of the weights, FLOP/s.
    pub peak_flops: f64,
    pub hbm_bytes_per_s: f64,
    /// FLOP for each byte from which on the peak is the limit.
    pub ridge_flops_per_byte: f64,
    /// A decode step at `throughput.concurrency`.
    pub decode: RoofPass,
    /// A prefill chunk of `max_num_batched_tokens`.
    pub prefill_chunk: RoofPass,
}

/// One pass on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct RoofPass {
    pub flops: f64,
    /// Bytes that are read from the GPU's memory.
    pub bytes: f64,
    pub flops_per_byte: f64,
    /// What the roof lets through at this intensity, FLOP/s.
    pub limit_flops_per_s: f64,
}

/// What a pass works on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passes {
    /// Sequences that one stage decodes at once.
    pub batch: f64,
    pub context_tokens: f64,
    pub chunk_tokens: f64,
}

/// The roof and the passes under it.
#[must_use]
pub fn roof(stages: &[StageLoad], passes: Passes, peak_flops: f64, hbm_bytes_per_s: f64) -> Roof {
    let Passes { batch, context_tokens, chunk_tokens } = passes;
    let pass = |flops: f64, bytes: f64| {
        let flops_per_byte = ratio(flops, bytes);
        let limit_flops_per_s = peak_flops.min(flops_per_byte * hbm_bytes_per_s);
        RoofPass { flops, bytes, flops_per_byte, limit_flops_per_s }
    };
    let decode = |s: &StageLoad| {
        let flops = batch * (2.0 * s.active_parameters + 4.0 * s.attended_width(context_tokens));
        pass(flops, s.weights_bytes + batch * s.kv_read_bytes(context_tokens))
    };
    let chunk = |s: &StageLoad| {
        pass(chunk_flops(s, chunk_tokens, context_tokens), s.weights_bytes + s.kv_read_bytes(context_tokens))
    };
    let fullest =
        stages.iter().max_by(|a, b| decode(a).bytes.total_cmp(&decode(b).bytes)).cloned().unwrap_or_default();
    Roof {
        peak_flops,
        hbm_bytes_per_s,
        ridge_flops_per_byte: ratio(peak_flops, hbm_bytes_per_s),
        decode: decode(&fullest),
        prefill_chunk: chunk(&fullest),
    }
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::planner::latency::Reading;

    /// A rank of 4.4 GB of 16-bit weights with one KV head of 128 in each of 80 layers, by hand.
    #[test]
    fn a_pass_lies_where_it_does_by_hand() {
        let stage = StageLoad {
            weights_bytes: 4.4e9,
            active_parameters: 2.2e9,
            readings: smallvec![Reading {
                reach_tokens: f64::INFINITY,
                kv_bytes_per_token: 40_960.0,
                attention_width: 80.0 * 4.0 * 128.0,
            }],
            state_bytes: 0.0,
        };
        let passes = Passes { batch: 10.0, context_tokens: 1000.0, chunk_tokens: 2000.0 };
        let roof = roof(&[stage], passes, 989e12, 3.35e12);
        assert!((roof.ridge_flops_per_byte - 295.2).abs() < 0.1);
        // 10 * (2 * 2.2e9 + 4 * 1000 * 40,960) and 4.4e9 + 10 * 1000 * 40,960
        assert_eq!((roof.decode.flops, roof.decode.bytes), (45_638_400_000.0, 4_809_600_000.0));
        assert!((roof.decode.limit_flops_per_s - roof.decode.flops_per_byte * 3.35e12).abs() < 1.0);
        // 2000 * (2 * 2.2e9 + 4 * (1000 + 1000) * 40,960): past the ridge
        assert_eq!(roof.prefill_chunk.flops, 9_455_360_000_000.0);
        assert_eq!(roof.prefill_chunk.limit_flops_per_s, 989e12);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        let roof = roof(&[], Passes { batch: 1.0, context_tokens: 1.0, chunk_tokens: 1.0 }, 0.0, 0.0);
        assert_eq!(roof.decode.flops_per_byte, 0.0);
        assert_eq!(roof.ridge_flops_per_byte, 0.0);
    }
}
