//! The cache of one rank: pages, groups and blocks.

use std::ops::Range;

use crate::planner::engine::capacity::{BlocksNeeded, CacheGroup, TokenFigure};
use crate::planner::engine::{CacheLayout, Refusal, RefusalCode, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::units::Bytes;

/// A uniform cache: every layer keeps every token.
pub fn layout(
    model: &ModelSpec,
    shape: &Shape,
    _gpu: &Gpu,
    settings: &ResolvedSettings,
    stages: &[Range<usize>],
) -> Result<CacheLayout, Refusal> {
    let block_size = settings.block_size.unwrap_or(16);
    let tp = shape.tp.max(1);
    let mut rank_bytes = Vec::with_capacity(model.kinds.len());
    let mut whole_bytes = Vec::with_capacity(model.kinds.len());
    let mut heads_per_rank = 1;
    for kind in &model.kinds {
        let (mut rank, mut whole) = (0_u64, 0_u64);
        for cache in &kind.caches {
            match cache {
                LayerCache::Heads { kv_heads, key_size, value_size, .. } => {
                    let heads = kv_heads.checked_div(tp).unwrap_or(0).max(1);
                    heads_per_rank = heads;
                    let head = key_size.saturating_add(*value_size).saturating_mul(2);
                    rank = rank.saturating_add(heads.saturating_mul(head));
                    whole = whole.saturating_add(kv_heads.saturating_mul(head));
                }
                LayerCache::Latent { kv_lora_rank, rope, .. } => {
                    let bytes = kv_lora_rank.saturating_add(*rope).saturating_mul(2);
                    rank = rank.saturating_add(bytes);
                    whole = whole.saturating_add(bytes);
                }
                _ => {
                    return Err(Refusal::new(
                        RefusalCode::ArchitectureUnknown,
                        format!("no cache rule yet for {}", kind.name),
                    ));
                }
            }
        }
        rank_bytes.push(rank);
        whole_bytes.push(whole);
    }
    let of = |bytes: &[u64], layer: &usize| Bytes(bytes.get(*layer).copied().unwrap_or(0));
    let token_bytes: Vec<Bytes> = stages
        .iter()
        .map(|r| model.layers.get(r.clone()).unwrap_or(&[]).iter().map(|l| of(&rank_bytes, l)).sum())
        .collect();
    let logical: Bytes = model.layers.iter().map(|l| of(&whole_bytes, l)).sum();
    let on_ranks: Bytes = token_bytes.iter().copied().sum();
    let layers = model.layers.len() as u64;
    Ok(CacheLayout {
        groups: vec![CacheGroup {
            kind: if model.mla { "latent" } else { "full" },
            count: 1,
            layers,
            block_size,
            page_bytes: on_ranks * block_size / layers,
            need: BlocksNeeded::EveryToken { block: block_size, shards: shape.dcp },
        }],
        block_size,
        block_bytes: token_bytes.iter().map(|b| *b * block_size).collect(),
        reserved_blocks: 1,
        kv_heads_per_rank: heads_per_rank,
        replication_factor: on_ranks.as_f64() * Bytes(tp).as_f64()
            / (logical.as_f64().max(1.0) * Bytes(shape.dcp.max(1)).as_f64()),
        token_bytes,
        token_bytes_logical: logical,
        state_bytes: vec![Bytes::ZERO; stages.len()],
        token_figure: TokenFigure::ConcurrencyTimesLength,
    })
}
