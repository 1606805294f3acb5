//! The arithmetic behind a model's cache, written so that a person can redo it.

use super::engine::CacheLayout;
use super::model::ModelSpec;
use super::model::cache::{LayerCache, Reach};
use super::model::dtype::KvDtype;
use super::units::{Bytes, grouped};

/// The bytes of one token over all layers, one copy, by kind of cache:
/// `2 × 80 layers × 8 heads × 128 × 2 B = 327,680 B`.
#[must_use]
pub fn kv_formula(model: &ModelSpec, kv_dtype: KvDtype, cache: &CacheLayout) -> String {
    let mut terms: Vec<(String, u64, &LayerCache)> = Vec::new();
    let mut states = 0_u64;
    for kind in model.layers.iter().filter_map(|l| model.kinds.get(*l)) {
        for cache in &kind.caches {
            if matches!(cache, LayerCache::State(_)) {
                states = states.saturating_add(1);
                continue;
            }
            match terms.iter_mut().find(|(_, _, known)| *known == cache) {
                Some((_, layers, _)) => *layers = layers.saturating_add(1),
                None => terms.push((String::new(), 1, cache)),
            }
        }
    }
    let size = element(kv_dtype);
    let words: Vec<String> = terms.iter().map(|(_, layers, cache)| term(cache, *layers, size)).collect();
    let total = format!(" = {} B", grouped(cache.token_bytes_logical.get()));
    let mut text = match words.as_slice() {
        [] => "no cache by token".to_owned(),
        words => words.join(" + ") + &total,
    };
    if states > 0 {
        let bytes: Bytes = cache.state_bytes.iter().copied().sum();
        text.push_str(&format!(
            "; and {states} layers with a state of constant size: {} B for each sequence, on one GPU of each stage",
            grouped(bytes.get())
        ));
    }
    text
}

fn term(cache: &LayerCache, layers: u64, size: &str) -> String {
    match cache {
        LayerCache::Heads { kv_heads, key_size, value_size, reach } => {
            let heads = if key_size == value_size {
                format!("2 × {layers} layers × {kv_heads} heads × {key_size} × {size}")
            } else {
                format!("{layers} layers × {kv_heads} heads × ({key_size} + {value_size}) × {size}")
            };
            match reach {
                Reach::Full => heads,
                Reach::Sliding { window } => format!("{heads} (inside a window of {window} tokens)"),
                Reach::Chunked { chunk } => format!("{heads} (inside a chunk of {chunk} tokens)"),
            }
        }
        LayerCache::Latent { kv_lora_rank, rope, .. } => {
            format!("{layers} layers × ({kv_lora_rank} + {rope}) latent × {size}")
        }
        LayerCache::Indexer { head_size } => {
            format!("{layers} layers × ({head_size} + 4) B of indexer keys")
        }
        LayerCache::Compressed { head_size, ratio, window, .. } => match ratio {
            0 => format!("{layers} layers × {head_size} × {size} (inside a window of {window} tokens)"),
            ratio => format!("{layers} layers × {head_size} × {size} / {ratio} (compressed)"),
        },
        LayerCache::State(_) => String::new(),
    }
}

/// Bytes of one cached element, as text.
fn element(kv_dtype: KvDtype) -> &'static str {
    match kv_dtype {
        KvDtype::Fp32 => "4 B",
        KvDtype::Fp16 | KvDtype::Bf16 => "2 B",
        KvDtype::Fp8 => "1 B",
        KvDtype::Fp8PerTokenHead | KvDtype::Int8PerTokenHead => "1 B (and 4 B of scale for each head)",
        KvDtype::Fp8DsMla => "fp8 with scales (656 B a token and layer)",
        KvDtype::Nvfp4DsMla => "nvfp4 with scales (352 B a token and layer)",
        KvDtype::Nvfp4 => "9/16 B",
    }
}

/// What kind of attention a model has, in one word of the contract.
#[must_use]
pub fn attention(model: &ModelSpec) -> &'static str {
    let caches = || model.kinds.iter().flat_map(|kind| &kind.caches);
    let has = |test: fn(&LayerCache) -> bool| caches().any(test);
    let by_token = has(|c| !matches!(c, LayerCache::State(_)));
    if has(|c| matches!(c, LayerCache::State(_))) {
        return if by_token { "hybrid" } else { "state" };
    }
    if has(|c| matches!(c, LayerCache::Compressed { .. })) {
        return "compressed";
    }
    if has(|c| matches!(c, LayerCache::Latent { .. })) {
        return if has(|c| matches!(c, LayerCache::Indexer { .. } | LayerCache::Latent { sparse: true, .. })) {
            "sparse_mla"
        } else {
            "mla"
        };
    }
    if has(|c| matches!(c, LayerCache::Heads { reach: Reach::Chunked { .. }, .. })) {
        return "chunked";
    }
    if has(|c| matches!(c, LayerCache::Heads { reach: Reach::Sliding { .. }, .. })) {
        return "sliding";
    }
    match model.kv_heads {
        1 => "mqa",
        heads if heads == model.query_heads => "mha",
        _ => "gqa",
    }
}
