//! From a replica to what its ranks read and compute.

use smallvec::SmallVec;

use super::{Reading, StageLoad};
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::{LayerKind, ModelSpec};
use crate::planner::replica::Replica;

/// The load of one rank of each stage.
#[must_use]
pub fn stage_loads(model: &ModelSpec, replica: &Replica) -> Vec<StageLoad> {
    let cache = &replica.cache;
    replica
        .stages
        .iter()
        .zip(replica.weights.iter())
        .enumerate()
        .map(|(i, (layers, weights))| {
            let token_bytes = cache.token_bytes.get(i).map_or(0.0, |b| b.as_f64());
            StageLoad {
                weights_bytes: weights.bytes.as_f64(),
                active_parameters: weights.active_parameters as f64,
                readings: readings(
                    model,
                    replica,
                    model.layers.get(layers.clone()).unwrap_or(&[]),
                    token_bytes,
                ),
                state_bytes: cache.state_bytes.get(i).map_or(0.0, |b| b.as_f64()),
            }
        })
        .collect()
}

/// The stage's cache by reach. The engine's own bytes per token are dealt over the layers by their
/// elements, so that both agree on the sum; DCP ranks read their share of the positions.
fn readings(
    model: &ModelSpec,
    replica: &Replica,
    layers: &[usize],
    token_bytes: f64,
) -> SmallVec<[Reading; 2]> {
    let tp = replica.shape.tp.max(1);
    let mut by_reach: SmallVec<[(f64, f64, f64); 3]> = SmallVec::new();
    for (kind, count) in model.kinds.iter().zip(layers_by_kind(model, layers)) {
        if count == 0.0 {
            continue;
        }
        for cache in &kind.caches {
            let Some((reach, elements)) = per_token(cache, tp) else { continue };
            let elements = count * elements;
            let width = count * (kind.query_heads as f64) * attended_size(kind, model) / tp as f64;
            match by_reach.iter_mut().find(|(r, _, _)| *r == reach) {
                Some((_, e, w)) => {
                    *e += elements;
                    *w += width;
                }
                None => by_reach.push((reach, elements, width)),
            }
        }
    }
    let all: f64 = by_reach.iter().map(|(_, e, _)| e).sum();
    let shards = replica.shape.dcp.max(1) as f64;
    by_reach
        .into_iter()
        .map(|(reach_tokens, elements, attention_width)| Reading {
            reach_tokens,
            kv_bytes_per_token: if all > 0.0 { token_bytes * elements / all / shards } else { 0.0 },
            attention_width,
        })
        .collect()
}

/// How many of `layers` are of each kind.
fn layers_by_kind(model: &ModelSpec, layers: &[usize]) -> SmallVec<[f64; 8]> {
    let mut counts: SmallVec<[f64; 8]> = model.kinds.iter().map(|_| 0.0).collect();
    for kind in layers {
        if let Some(count) = counts.get_mut(*kind) {
            *count += 1.0;
        }
    }
    counts
}

/// How far back a cache is read, and its elements for one token on a rank; `None` for states.
pub(super) fn per_token(cache: &LayerCache, tp: u64) -> Option<(f64, f64)> {
    let far = |reach: &Reach| match reach {
        Reach::Full => f64::INFINITY,
        Reach::Sliding { window } => *window as f64,
        Reach::Chunked { chunk } => *chunk as f64,
    };
    match cache {
        LayerCache::Heads { kv_heads, key_size, value_size, reach } => {
            let heads = (kv_heads / tp).max(1) as f64;
            Some((far(reach), heads * (*key_size as f64 + *value_size as f64)))
        }
        LayerCache::Latent { kv_lora_rank, rope, reach, .. } => {
            Some((far(reach), *kv_lora_rank as f64 + *rope as f64))
        }
        LayerCache::Indexer { head_size } => Some((f64::INFINITY, *head_size as f64)),
        LayerCache::Compressed { head_size, ratio, window, .. } => {
            let reach = if *ratio == 0 { *window as f64 } else { f64::INFINITY };
            Some((reach, *head_size as f64 / (*ratio).max(1) as f64))
        }
        LayerCache::State(_) => None,
    }
}

/// Mean of key and value size of a layer's attention: what one query head multiplies with per token.
pub(super) fn attended_size(kind: &LayerKind, model: &ModelSpec) -> f64 {
    kind.caches
        .iter()
        .find_map(|cache| match cache {
            LayerCache::Heads { key_size, value_size, .. } => {
                Some((*key_size as f64).midpoint(*value_size as f64))
            }
            _ => None,
        })
        .unwrap_or(model.head_size as f64)
}
