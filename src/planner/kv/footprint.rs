//! What a prefix of some length takes in the cache, and what computing it takes.

use crate::planner::engine::Refusal;
use crate::planner::layout::Shape;
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::ledger::Role;
use crate::planner::model::{LayerKind, ModelSpec};
use crate::planner::replica::Ground;
use crate::planner::units::Bytes;

/// The cache of a model, one copy, and its work for each token: everything a move or a recomputation depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Footprint {
    /// `K`: bytes of one token over all layers, each head once, as if every layer kept every token.
    pub token_bytes: Bytes,
    /// The same by how far back layers look.
    pub kept: Vec<Kept>,
    /// Recurrent states of one sequence, one copy: a prefix of a hybrid model can only be taken up from one.
    pub state_bytes: Bytes,
    /// `F`: operations of one token through every matrix of the decoder.
    pub flops_per_token: f64,
}

/// Layers that look equally far back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// Tokens that are kept, `u64::MAX` for full attention.
    pub reach: u64,
    /// Cache bytes of one token in these layers, one copy.
    pub token_bytes: Bytes,
    /// Σ over these layers of query heads times the mean of key and value size: width of the score products.
    pub attention_width: f64,
}

impl Footprint {
    /// The footprint of the request's model under an engine. Copies are left out: the cache of a single rank is
    /// the whole cache.
    ///
    /// # Errors
    /// The engine's refusal when it has no cache layout for the model on this GPU.
    pub fn of(ground: &Ground<'_>) -> Result<Self, Refusal> {
        let model = &*ground.model;
        let whole = 0..model.layers.len();
        let one = ground.rules.cache_layout(
            model,
            &Shape::new(1, 1),
            &ground.gpu,
            &ground.settings,
            std::slice::from_ref(&whole),
        )?;
        Ok(Self {
            kept: kept(model, one.token_bytes_logical),
            token_bytes: one.token_bytes_logical,
            state_bytes: one.state_bytes.iter().copied().sum(),
            flops_per_token: model.flops_per_token() as f64,
        })
    }

    /// Bytes that `tokens` tokens of one sequence keep: `Σ layers token_bytes · min(tokens, reach)`, and the states.
    #[must_use]
    pub fn bytes(&self, tokens: u64) -> Bytes {
        let rows: Bytes = self.kept.iter().map(|k| k.token_bytes * tokens.min(k.reach)).sum();
        if tokens == 0 { Bytes::ZERO } else { rows + self.state_bytes }
    }

    /// Operations of the score and value products of a causal prefill of `tokens` tokens:
    /// `4 · width · Σ_t min(t, reach)`, which is `2 · width · n²` for full attention.
    #[must_use]
    pub fn attention_flops(&self, tokens: f64) -> f64 {
        self.kept
            .iter()
            .map(|k| {
                let reach = k.reach as f64;
                let seen = if tokens <= reach {
                    tokens * tokens / 2.0
                } else {
                    reach * reach / 2.0 + (tokens - reach) * reach
                };
                4.0 * k.attention_width * seen
            })
            .sum()
    }
}

/// The bytes of a token dealt over the layers by their elements, so that the sum stays the engine's own figure.
fn kept(model: &ModelSpec, token_bytes: Bytes) -> Vec<Kept> {
    let mut by_reach: Vec<(u64, u64, f64)> = Vec::new();
    for kind in model.layers.iter().filter_map(|l| model.kinds.get(*l)) {
        let width = attention_width(kind, model);
        let mut first = true;
        for (reach, elements) in kind.caches.iter().filter_map(per_token) {
            // the scores of a layer are computed once, whatever else it caches beside keys and values
            let width = if std::mem::take(&mut first) { width } else { 0.0 };
            match by_reach.iter_mut().find(|(known, _, _)| *known == reach) {
                Some((_, e, w)) => {
                    *e = e.saturating_add(elements);
                    *w += width;
                }
                None => by_reach.push((reach, elements, width)),
            }
        }
    }
    let all = by_reach.iter().fold(0_u64, |sum, (_, e, _)| sum.saturating_add(*e));
    let mut left = token_bytes;
    let last = by_reach.len().saturating_sub(1);
    by_reach
        .into_iter()
        .enumerate()
        .map(|(i, (reach, elements, attention_width))| {
            let share = Bytes::from_f64(token_bytes.as_f64() * elements as f64 / all.max(1) as f64);
            let token_bytes = if i == last { left } else { share.min(left) };
            left = left - token_bytes;
            Kept { reach, token_bytes, attention_width }
        })
        .collect()
}

/// How far back a cache is kept, and its elements for one token; `None` for states.
fn per_token(cache: &LayerCache) -> Option<(u64, u64)> {
    let far = |reach: &Reach| match reach {
        Reach::Full => u64::MAX,
        Reach::Sliding { window } => *window,
        Reach::Chunked { chunk } => *chunk,
    };
    match cache {
        LayerCache::Heads { kv_heads, key_size, value_size, reach } => {
            Some((far(reach), kv_heads.saturating_mul(key_size.saturating_add(*value_size))))
        }
        LayerCache::Latent { kv_lora_rank, rope, reach, .. } => {
            Some((far(reach), kv_lora_rank.saturating_add(*rope)))
        }
        LayerCache::Indexer { head_size } => Some((u64::MAX, *head_size)),
        LayerCache::Compressed { head_size, ratio, window, .. } => match ratio {
            0 => Some((*window, *head_size)),
            ratio => Some((u64::MAX, head_size / ratio)),
        },
        LayerCache::State(_) => None,
    }
}

/// Mean width of queries (as projected) and attention outputs of one layer: what a prefill multiplies per pair of tokens.
/// Latent attention is prefilled with its heads unfolded, so the projections say it for every kind.
fn attention_width(kind: &LayerKind, model: &ModelSpec) -> f64 {
    const QUERIES: &str = "query heads";
    let attention = || kind.tensors.iter().filter(|t| t.role == Role::Attention);
    let queries = attention().find_map(|t| t.outputs.first().filter(|p| p.what == QUERIES)).map(|p| p.size);
    let outputs = attention().find(|t| t.inputs.what == QUERIES).map(|t| t.inputs.size);
    match (queries, outputs) {
        (Some(queries), Some(outputs)) => (queries as f64).midpoint(outputs as f64),
        _ => kind.query_heads.saturating_mul(model.head_size) as f64,
    }
}
