//! The cache of one rank: from the layers of a model to groups, blocks and bytes.

use std::ops::Range;

use smallvec::SmallVec;

use super::Vllm;
use super::backend::{self, Traits};
use super::groups::{self, Bucket};
use super::pages::{self, Page, PageRules};
use crate::planner::engine::capacity::{CacheGroup, GroupMember, TokenFigure};
use crate::planner::engine::rows;
use crate::planner::engine::{CacheLayout, Refusal, RefusalCode, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::KvDtype;
use crate::planner::units::Bytes;

/// Tokens that may be scheduled at once: `batches * Q`, with `P + 1` batches under async scheduling, else `P`;
/// older releases reckoned with one batch.
fn in_flight_tokens(release: &Vllm, shape: &Shape, settings: &ResolvedSettings) -> u64 {
    if !release.batches_in_flight {
        return settings.max_num_batched_tokens;
    }
    shape
        .pp
        .saturating_add(u64::from(settings.async_scheduling))
        .saturating_mul(settings.max_num_batched_tokens)
}

/// The cache of one rank of `shape`.
pub fn layout(
    release: &Vllm,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    stages: &[Range<usize>],
) -> Result<CacheLayout, Refusal> {
    let unfolded;
    let model = if release.latent_caches || !Traits::of(model).latent {
        model
    } else {
        unfolded = with_whole_heads(model);
        &unfolded
    };
    let traits = Traits::of(model);
    let stored = backend::stored_dtype(model, gpu, settings, traits)?;
    let rules = page_rules(release, model, shape, gpu, settings, stored, traits);
    let by_kind: Vec<SmallVec<[Page; 5]>> = model
        .kinds
        .iter()
        .map(|kind| {
            kind.caches
                .iter()
                .flat_map(|cache| {
                    pages::pages(cache, &rules, states_kept(release, model, gpu, settings, cache))
                })
                .collect()
        })
        .collect();
    let runs = runs(model, stages);
    let mut counted = groups::count(
        runs.iter().filter_map(|(stage, kind, n)| Some((*stage, *n, by_kind.get(*kind)?.as_slice()))),
        stages.len(),
    );
    if model.architecture == "Zamba2ForCausalLM" {
        // its shared attention is built before the layers, so its group comes first
        counted.sort_by_key(|c| !c.page.class.keeps_every_token());
    }
    let (token_rows, state_bytes) = by_stage(&counted, stages.len());
    let token_bytes = token_rows.iter().copied().map(Bytes::from_f64).collect();
    let buckets = groups::group(
        counted,
        traits.compressed,
        !release.hybrid_manager || settings.disable_hybrid_kv_cache_manager,
    )
    .map_err(|cannot| {
        Refusal::new(
            RefusalCode::CacheLayoutNotSupported,
            format!(
                "cache pages of {} B and {} B cannot share blocks: vLLM pads no latent cache",
                cannot.page, cannot.largest
            ),
        )
    })?;
    let in_flight = in_flight_tokens(release, shape, settings);
    let block_bytes = (0..stages.len())
        .map(|stage| Bytes(buckets.iter().map(|b| b.block_bytes(stage)).max().unwrap_or(0)))
        .collect();
    let logical = logical_token_bytes(model, stored);
    Ok(CacheLayout {
        groups: buckets.iter().flat_map(|b| cache_groups(b, shape.dcp, in_flight)).collect(),
        block_size: rules.block,
        block_bytes,
        reserved_blocks: u64::from(release.null_block_checked),
        kv_heads_per_rank: kv_heads_per_rank(model, shape.tp),
        replication_factor: replication(&token_rows, logical, shape),
        token_bytes,
        token_bytes_logical: Bytes::from_f64(logical),
        state_bytes,
        token_figure: if release.concurrency_figure {
            TokenFigure::ConcurrencyTimesLength
        } else {
            TokenFigure::BlocksPerGroup { shards: shape.dcp }
        },
        stored_dtype: stored,
        pools: None,
    })
}

/// Size of a head in the kernels that take the place of latent attention's (442,368 B a token of DeepSeek-V2-Lite).
const UNFOLDED_HEAD: u64 = 256;

/// The model as releases cache it that know no latents: keys and values of every query head, padded to one size.
fn with_whole_heads(model: &ModelSpec) -> ModelSpec {
    let mut model = model.clone();
    let query_heads = model.query_heads;
    for cache in model.kinds.iter_mut().flat_map(|kind| &mut kind.caches) {
        if let LayerCache::Latent { reach, .. } = cache {
            *cache = LayerCache::Heads {
                kv_heads: query_heads,
                key_size: UNFOLDED_HEAD,
                value_size: UNFOLDED_HEAD,
                reach: *reach,
            };
        }
    }
    model
}

/// Sizes that hold for all layers: the block of attention layers, raised in hybrids until a page holds one state.
///
/// `a = max(configured block, 128 for latents)`, made a multiple of the checkpoint alignment while prefixes are cached;
/// `B = a * ceil(state bytes / (a * attention bytes per token))`; a state's page is padded to `B` tokens of attention
/// (`platforms/interface.py` `_align_hybrid_block_size`).
fn page_rules(
    release: &Vllm,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    stored: KvDtype,
    traits: Traits,
) -> PageRules {
    let tp = shape.tp.max(1);
    let mut rules = PageRules {
        tp,
        kv_dtype: stored,
        block: backend::attention_block(gpu, settings, stored, traits),
        state_block: settings.max_model_len.get(),
        state_page: 0,
        draft_tokens: settings.num_speculative_tokens,
    };
    if !traits.states || backend::attention_free(model) {
        return rules;
    }
    let caches = || model.kinds.iter().flat_map(|k| &k.caches);
    let states = || caches().filter_map(|c| if let LayerCache::State(s) = c { Some(s) } else { None });
    let largest = states().map(|s| rows::state_bytes(s, tp, rules.draft_tokens)).max().unwrap_or(0);
    if let Some(row) = caches().find_map(|c| attention_row(c, tp, stored)).filter(|row| *row > 0) {
        let mut unit = if traits.latent { rules.block.max(128) } else { rules.block }.max(1);
        if settings.prefix_caching {
            for state in states() {
                unit = lcm(unit, backend::checkpoints(release, model, gpu, state).alignment);
            }
        }
        let blocks = largest.div_ceil(unit.saturating_mul(row).max(1));
        rules.block = unit.saturating_mul(blocks.max(1));
        rules.state_page = rules.block.saturating_mul(row);
    }
    if settings.prefix_caching {
        rules.state_block = rules.block;
    }
    rules
}

/// Bytes of one token of an attention layer on a rank; `None` for other caches.
fn attention_row(cache: &LayerCache, tp: u64, stored: KvDtype) -> Option<u64> {
    match cache {
        LayerCache::Heads { kv_heads, key_size, value_size, .. } => {
            Some(rows::heads_row(rows::heads_on_rank(*kv_heads, tp), *key_size, *value_size, stored))
        }
        LayerCache::Latent { kv_lora_rank, rope, .. } => Some(rows::latent_row(*kv_lora_rank, *rope, stored)),
        LayerCache::Indexer { .. } | LayerCache::Compressed { .. } | LayerCache::State(_) => None,
    }
}

/// States that a request keeps: 1 without prefix caching, else 2 and those of checkpoints; and one for each draft token.
fn states_kept(
    release: &Vllm,
    model: &ModelSpec,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    cache: &LayerCache,
) -> u64 {
    let LayerCache::State(state) = cache else { return 0 };
    let kept = if settings.prefix_caching && !backend::attention_free(model) {
        2_u64.saturating_add(backend::checkpoints(release, model, gpu, state).blocks)
    } else {
        1
    };
    kept.saturating_add(settings.num_speculative_tokens)
}

/// Runs of layers of one kind on one stage, in order: (stage, kind, layers).
fn runs(model: &ModelSpec, stages: &[Range<usize>]) -> Vec<(usize, usize, u64)> {
    let mut runs: Vec<(usize, usize, u64)> = Vec::new();
    for (stage, layers) in stages.iter().enumerate() {
        for kind in model.layers.get(layers.clone()).unwrap_or(&[]) {
            match runs.last_mut() {
                Some((s, k, n)) if *s == stage && k == kind => *n = n.saturating_add(1),
                _ => runs.push((stage, *kind, 1)),
            }
        }
    }
    runs
}

/// Bytes of one token (compressed caches take fractions) and of one sequence's states on each stage.
fn by_stage(counted: &[groups::Counted], stages: usize) -> (Vec<f64>, Vec<Bytes>) {
    let mut tokens = vec![0.0; stages];
    let mut states = vec![Bytes::ZERO; stages];
    for c in counted {
        for (stage, layers) in c.by_stage.iter().enumerate() {
            let bytes = Bytes(c.page.bytes) * *layers;
            match c.page.class {
                pages::Class::State { count } => {
                    if let Some(sum) = states.get_mut(stage) {
                        *sum += bytes * count;
                    }
                }
                // the window of DeepSeek-V4 does not grow with the sequence
                pages::Class::LatentWindow { .. } => {}
                _ => {
                    if let Some(sum) = tokens.get_mut(stage) {
                        *sum += bytes.as_f64() / Bytes(c.page.block.max(1)).as_f64();
                    }
                }
            }
        }
    }
    (tokens, states)
}

/// Bytes of one token over all layers, one copy.
fn logical_token_bytes(model: &ModelSpec, stored: KvDtype) -> f64 {
    let row_bytes: Vec<f64> = model
        .kinds
        .iter()
        .map(|kind| {
            kind.caches
                .iter()
                .map(|cache| match cache {
                    LayerCache::Indexer { head_size } => Bytes(rows::indexer_row(*head_size)).as_f64(),
                    LayerCache::Compressed { .. } => {
                        let rules = PageRules {
                            tp: 1,
                            kv_dtype: stored,
                            block: 256,
                            state_block: 0,
                            state_page: 0,
                            draft_tokens: 0,
                        };
                        pages::pages(cache, &rules, 0)
                            .iter()
                            .filter(|p| p.class == pages::Class::Latent)
                            .map(|p| Bytes(p.bytes).as_f64() / Bytes(p.block.max(1)).as_f64())
                            .sum()
                    }
                    other => attention_row(other, 1, stored).map_or(0.0, |row| Bytes(row).as_f64()),
                })
                .sum()
        })
        .collect();
    model.layers.iter().map(|kind| row_bytes.get(*kind).copied().unwrap_or(0.0)).sum()
}

/// KV heads on a rank: 1 for latents, the most that any layer has otherwise, 0 without attention.
fn kv_heads_per_rank(model: &ModelSpec, tp: u64) -> u64 {
    model
        .kinds
        .iter()
        .flat_map(|k| &k.caches)
        .map(|cache| match cache {
            LayerCache::Heads { kv_heads, .. } => rows::heads_on_rank(*kv_heads, tp),
            LayerCache::Latent { .. } | LayerCache::Compressed { .. } => 1,
            LayerCache::Indexer { .. } | LayerCache::State(_) => 0,
        })
        .max()
        .unwrap_or(0)
}

/// Bytes on all TP ranks over bytes of one copy, less what DCP deals out.
fn replication(token_rows: &[f64], logical: f64, shape: &Shape) -> f64 {
    let on_a_rank: f64 = token_rows.iter().sum();
    if logical <= 0.0 || on_a_rank <= 0.0 {
        return 1.0;
    }
    let copies = on_a_rank * Bytes(shape.tp.max(1)).as_f64() / (logical * Bytes(shape.dcp.max(1)).as_f64());
    // sums in another order differ in the last digits
    (copies * 1e9).round() / 1e9
}

/// The groups of a bucket: those with one layer more first.
fn cache_groups(bucket: &Bucket, dcp: u64, in_flight: u64) -> SmallVec<[CacheGroup; 2]> {
    let Some(first) = bucket.pages.first() else { return SmallVec::new() };
    let groups = bucket.groups.max(1);
    let most = bucket.pages.iter().map(groups::Counted::total).max().unwrap_or(0);
    let fuller = most.checked_rem(groups).unwrap_or(0);
    let make = |count: u64, rounded_up: bool| CacheGroup {
        kind: bucket.class().name(),
        count,
        block_size: first.page.block,
        members: bucket
            .pages
            .iter()
            .map(|c| GroupMember {
                layers: if rounded_up {
                    c.total().div_ceil(groups)
                } else {
                    c.total().checked_div(groups).unwrap_or(0)
                },
                page_bytes: Bytes(c.page.bytes),
            })
            .collect(),
        need: first.page.need(dcp, in_flight),
    };
    if fuller == 0 {
        SmallVec::from_iter([make(groups, false)])
    } else {
        SmallVec::from_iter([make(fuller, true), make(groups.saturating_sub(fuller), false)])
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a.max(1), b.max(1));
    while let Some(rest) = x.checked_rem(y).filter(|r| *r > 0) {
        (x, y) = (y, rest);
    }
    a.max(1).checked_div(y).unwrap_or(1).saturating_mul(b.max(1))
}
