//! The largest working set of a forward pass through the layers, from the ledger.

use std::ops::Range;

use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::ledger::{Cut, Role, Sharing, Tensor};
use crate::planner::units::Bytes;

/// What the allocator adds to the tensors of a layer's peak: fragments and short-lived copies (fitted: 0.9 GiB at 8192 tokens
/// of Qwen3-30B-A3B against 0.62 computed, 0.65 of Qwen3-8B at TP=2 against 0.53).
const LAYER_PEAK: f64 = 1.25;
/// Peak of `tokens` tokens through `layers`, bytes: tokens x the widest half of a layer x what the allocator adds.
#[must_use]
pub fn layer_peak(model: &ModelSpec, layers: &Range<usize>, token_bytes: &[u64], tokens: u64) -> f64 {
    let stage = model.layers.get(layers.clone()).unwrap_or(&[]);
    let widest = stage.iter().filter_map(|kind| token_bytes.get(*kind).copied()).max().unwrap_or(0);
    (Bytes(widest) * tokens).as_f64() * LAYER_PEAK
}

/// Peak of `tokens` tokens through `layers` of an engine that runs them one by one, bytes: two rows of the residual stream and
/// all that the widest half of a layer gives out and takes in; 110.6 KB a token of Llama-3.1-8B, `(2 h + h + 3 f) * 2 B`
/// (start-ups of vLLM's first engine at 20,000 and 29,000 tokens: 111.1 and 110.7).
#[must_use]
pub fn eager_peak(model: &ModelSpec, layers: &Range<usize>, token_bytes: &[u64], tokens: u64) -> f64 {
    let third_row = residual_stream(model, tokens).as_f64();
    (layer_peak(model, layers, token_bytes, tokens) / LAYER_PEAK - third_row).max(0.0)
}

/// What no pass over `tokens` tokens can do without: their residual stream, `tokens x hidden x 2 B`.
#[must_use]
pub fn residual_stream(model: &ModelSpec, tokens: u64) -> Bytes {
    Bytes(tokens.saturating_mul(model.hidden_size).saturating_mul(2))
}

/// A vision or audio tower is part of the model.
#[must_use]
pub fn has_tower(model: &ModelSpec) -> bool {
    model.head.iter().any(|t| t.role == Role::Tower)
}

/// Bytes of one token's activations in the widest half of a layer, by kind: residual, normed and hidden rows, and all that
/// its projections give out and take in on one rank, in 16 bit.
#[must_use]
pub fn token_bytes_by_kind(model: &ModelSpec, shape: &Shape) -> Vec<u64> {
    let residual = model.hidden_size.saturating_mul(3);
    model
        .kinds
        .iter()
        .map(|kind| {
            let (mut mixer, mut feed_forward) = (0_u64, 0_u64);
            for tensor in kind.tensors.iter().filter(|t| t.is_matmul) {
                let width = width(tensor, shape);
                match tensor.role {
                    Role::Attention | Role::KvProjection | Role::Indexer | Role::StateMixer => {
                        mixer = mixer.saturating_add(width);
                    }
                    Role::DenseFeedForward | Role::RoutedExperts | Role::SharedExpert | Role::Router => {
                        feed_forward = feed_forward.saturating_add(width);
                    }
                    Role::Embedding | Role::LmHead | Role::Norm | Role::Tower => {}
                }
            }
            residual.saturating_add(mixer.max(feed_forward)).saturating_mul(2)
        })
        .collect()
}

/// Elements that one token brings in and out of a projection on one rank; inputs only where the rank holds a share of them.
fn width(tensor: &Tensor, shape: &Shape) -> u64 {
    let (rows, cols) = tensor.features_on_rank(shape);
    let inputs = if tensor.inputs.cut == Cut::Whole { 0 } else { cols };
    let one = rows.saturating_add(inputs);
    match tensor.sharing {
        Sharing::Experts => one.saturating_mul(tensor.active_copies),
        Sharing::Tensor | Sharing::SharedExperts => one,
    }
}
