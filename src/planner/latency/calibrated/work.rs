//! What one rank does for a token: sums over the ledger, all pipeline stages together.
//!
//! A token passes every stage, so the chain of one rank per stage is what its time is made of;
//! each stage is busy for its share of it.

use crate::planner::latency::load::{attended_size, per_token};
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Role, Tensor};

/// The format in which matrix products run, as far as time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 16-bit weights, or weights that are unpacked to 16 bit.
    Half,
    /// As [`Format::Half`], stored in 4 bits.
    PackedHalf,
    Fp8,
    Nvfp4,
    Mxfp4,
}

/// Layers that look equally far back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// Tokens that are looked at, infinite for full attention.
    pub tokens: f64,
    /// Cache elements of one token on the rank, over these layers.
    pub elements: f64,
    /// Query heads times head size on the rank, over these layers: `2` FLOPs each for scores and for values.
    pub width: f64,
}

/// The routed experts of one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertWork {
    pub routed: f64,
    /// Ranks over which experts are dealt out whole; 1 where every rank holds a slice of each.
    pub dealt: f64,
    pub per_token: f64,
    /// Layers with experts.
    pub layers: f64,
    /// Experts held by the rank, over all layers, bytes.
    pub bytes: f64,
    /// Parameters of the rank that one token of the whole instance passes through, on average.
    pub active_parameters: f64,
    /// Bytes of one expert of one layer on the rank.
    pub slice_bytes: f64,
    /// Features of one expert on the rank.
    pub width: f64,
}

/// One rank's work, all stages together.
#[derive(Debug, Clone, PartialEq)]
pub struct RankWork {
    pub layers: f64,
    /// Of those, with latent attention.
    pub latent_layers: f64,
    /// Of those, with a recurrent state.
    pub state_layers: f64,
    pub hidden: f64,
    /// Weights read in every step: all but routed experts, tables and towers, bytes.
    pub dense_bytes: f64,
    /// Parameters behind them, without the output head.
    pub dense_parameters: f64,
    pub head_parameters: f64,
    /// Features of the widest dense product on the rank.
    pub dense_width: f64,
    pub experts: Option<ExpertWork>,
    pub reaches: Vec<Reach>,
    /// Cache elements of one token that a sparse indexer reads, over its layers.
    pub indexer_elements: f64,
    /// Recurrent state of one sequence on the rank, bytes.
    pub state_bytes: f64,
    /// Width of prefill attention over that of decode attention: latent attention is expanded in a prefill.
    pub prefill_width: f64,
    /// Tokens that sparse attention looks at.
    pub sparse_tokens: Option<f64>,
    pub format: Format,
}

/// Tokens that a sparse indexer chooses: `index_topk` of DeepSeek-V3.2 and GLM-5 (their config.json).
const SPARSE_TOKENS: f64 = 2048.0;

impl RankWork {
    /// Sum the ledger for one rank of `shape`.
    #[must_use]
    pub fn of(model: &ModelSpec, shape: &Shape) -> Self {
        Self::of_products(model, shape).with_cache(model, shape)
    }

    /// The matrix products alone, which depend on TP, EP and attention DP.
    #[must_use]
    pub fn of_products(model: &ModelSpec, shape: &Shape) -> Self {
        let mut work = Self::empty(model);
        for (kind, n) in model.kinds.iter().zip(layers_by_kind(model)) {
            for tensor in &kind.tensors {
                work.add(tensor, n, shape, model);
            }
        }
        for tensor in model.head.iter().chain(&model.tail) {
            work.add(tensor, 1.0, shape, model);
        }
        if model.tied_embeddings && work.head_parameters == 0.0 {
            let table = (model.vocab_size as f64) * work.hidden / (shape.tp.max(1) as f64);
            work.head_parameters = table;
            work.dense_bytes += 2.0 * table;
        }
        work.prefill_width = expansion(model);
        work.average_experts(model);
        work
    }

    /// With attention over the cache and states, which depend on TP and DCP.
    #[must_use]
    pub fn with_cache(&self, model: &ModelSpec, shape: &Shape) -> Self {
        let mut work = self.clone();
        for (kind, n) in model.kinds.iter().zip(layers_by_kind(model)) {
            let has = |test: fn(&LayerCache) -> bool| if kind.caches.iter().any(test) { n } else { 0.0 };
            work.latent_layers += has(|c| matches!(c, LayerCache::Latent { .. }));
            work.state_layers += has(|c| matches!(c, LayerCache::State(_)));
            for cache in &kind.caches {
                work.add_cache(cache, kind.query_heads as f64 * attended_size(kind, model), n, shape);
            }
        }
        work
    }

    fn empty(model: &ModelSpec) -> Self {
        Self {
            layers: model.layers.len() as f64,
            latent_layers: 0.0,
            state_layers: 0.0,
            hidden: model.hidden_size as f64,
            dense_bytes: 0.0,
            dense_parameters: 0.0,
            head_parameters: 0.0,
            dense_width: 1.0,
            experts: None,
            reaches: Vec::new(),
            indexer_elements: 0.0,
            state_bytes: 0.0,
            prefill_width: 1.0,
            sparse_tokens: None,
            format: format_of(model),
        }
    }

    fn add(&mut self, tensor: &Tensor, times: f64, shape: &Shape, model: &ModelSpec) {
        let on_rank = tensor.on_rank(shape);
        match tensor.role {
            Role::Embedding | Role::Tower => {}
            Role::RoutedExperts => self.add_experts(tensor, times, shape, model),
            Role::LmHead => {
                self.dense_bytes += times * on_rank.bytes as f64;
                self.head_parameters += times * on_rank.active_parameters as f64;
            }
            role => {
                self.dense_bytes += times * on_rank.bytes as f64;
                if tensor.is_matmul {
                    self.dense_parameters += times * on_rank.active_parameters as f64;
                }
                // a mixer's projections are dense products too, and in a pure state-space model the only ones
                let projects = tensor.is_matmul && role == Role::StateMixer;
                if projects || matches!(role, Role::DenseFeedForward | Role::Attention) {
                    self.dense_width = self.dense_width.max(on_rank.rows as f64);
                }
            }
        }
    }

    fn add_experts(&mut self, tensor: &Tensor, times: f64, shape: &Shape, model: &ModelSpec) {
        if !tensor.is_matmul {
            return;
        }
        let on_rank = tensor.on_rank(shape);
        let sizes = model.experts;
        let work = self.experts.get_or_insert_with(|| ExpertWork {
            routed: sizes.map_or(tensor.copies, |e| e.routed).max(1) as f64,
            dealt: if shape.expert_parallel() {
                shape.tp.max(1) as f64 * shape.attention_dp.max(1) as f64
            } else {
                1.0
            },
            per_token: sizes.map_or(tensor.active_copies, |e| e.per_token).max(1) as f64,
            layers: 0.0,
            bytes: 0.0,
            active_parameters: 0.0,
            slice_bytes: 0.0,
            width: f64::INFINITY,
        });
        let copies = on_rank.copies.max(1) as f64;
        work.bytes += times * on_rank.bytes as f64;
        work.active_parameters += times * on_rank.active_parameters as f64;
        work.slice_bytes += times * on_rank.bytes as f64 / copies;
        // an expert's own width is the smaller side of its matrices on the rank
        work.width = work.width.min(on_rank.rows.min(on_rank.cols) as f64);
    }

    fn add_cache(&mut self, cache: &LayerCache, query_width: f64, times: f64, shape: &Shape) {
        let tp = shape.tp.max(1);
        if let LayerCache::State(state) = cache {
            self.state_bytes += times * state_bytes(state) / tp as f64;
            return;
        }
        if let LayerCache::Latent { sparse: true, .. } = cache {
            self.sparse_tokens = Some(SPARSE_TOKENS);
        }
        let Some((tokens, elements)) = per_token(cache, tp) else { return };
        let elements = times * elements / shape.dcp.max(1) as f64;
        if let LayerCache::Indexer { .. } = cache {
            self.indexer_elements += elements;
            return;
        }
        let width = times * query_width / tp as f64;
        match self.reaches.iter_mut().find(|r| r.tokens == tokens) {
            Some(reach) => {
                reach.elements += elements;
                reach.width += width;
            }
            None => self.reaches.push(Reach { tokens, elements, width }),
        }
    }

    /// Turn sums over layers into what one layer's expert is.
    fn average_experts(&mut self, model: &ModelSpec) {
        let routes = |kind: &usize| {
            model.kinds.get(*kind).is_some_and(|k| k.tensors.iter().any(|t| t.role == Role::RoutedExperts))
        };
        let layers = model.layers.iter().filter(|kind| routes(kind)).count() as f64;
        if let Some(experts) = self.experts.as_mut() {
            experts.layers = layers;
            experts.slice_bytes /= layers.max(1.0);
        }
    }

    /// Cache elements read for a new token behind `context` tokens.
    #[must_use]
    pub fn elements_read(&self, context: f64) -> f64 {
        let far = self.sparse_tokens.map_or(context, |most| context.min(most));
        let indexed = self.indexer_elements * context;
        indexed + self.reaches.iter().map(|r| r.elements * far.min(r.tokens)).sum::<f64>()
    }

    /// Attention FLOPs of a new token behind `context` tokens: two for each element of scores and of values.
    #[must_use]
    pub fn attention_flops(&self, context: f64) -> f64 {
        let far = self.sparse_tokens.map_or(context, |most| context.min(most));
        self.reaches.iter().map(|r| 4.0 * r.width * far.min(r.tokens)).sum()
    }

    /// Cache elements of one cached token with full reach, and of a whole window where layers have one.
    #[must_use]
    pub fn elements_held(&self, length: f64) -> f64 {
        let indexed = self.indexer_elements * length;
        indexed + self.reaches.iter().map(|r| r.elements * length.min(r.tokens)).sum::<f64>()
    }
}

/// How many layers are of each kind.
fn layers_by_kind(model: &ModelSpec) -> Vec<f64> {
    let mut times = vec![0.0; model.kinds.len()];
    for kind in &model.layers {
        if let Some(n) = times.get_mut(*kind) {
            *n += 1.0;
        }
    }
    times
}

/// The format of most weights: of the experts where there are some, else of the feed-forward.
fn format_of(model: &ModelSpec) -> Format {
    let tensors = || model.kinds.iter().flat_map(|kind| &kind.tensors);
    let main = tensors()
        .find(|t| t.role == Role::RoutedExperts && t.is_matmul)
        .or_else(|| tensors().find(|t| t.role == Role::DenseFeedForward && t.is_matmul))
        .or_else(|| tensors().find(|t| t.is_matmul));
    match main.map_or(Dtype::Bf16, |t| t.storage.element) {
        Dtype::Fp8 => Format::Fp8,
        Dtype::Fp4 if model.quantization.starts_with("mxfp4") => Format::Mxfp4,
        Dtype::Fp4 => Format::Nvfp4,
        Dtype::Int4 => Format::PackedHalf,
        Dtype::Int8 | Dtype::Fp32 | Dtype::Fp16 | Dtype::Bf16 => Format::Half,
    }
}

/// Latent attention works on `kv_lora_rank + rope` features a head in decode and on the expanded heads in
/// a prefill: (query·key features + value features) / 2, read off `kv_b_proj`, over the former.
fn expansion(model: &ModelSpec) -> f64 {
    if !model.mla {
        return 1.0;
    }
    let tensors = || model.kinds.iter().flat_map(|kind| &kind.tensors);
    let rope = model.kinds.iter().flat_map(|kind| &kind.caches).find_map(|cache| match cache {
        LayerCache::Latent { rope, .. } => Some(*rope as f64),
        _ => None,
    });
    let expanded = tensors()
        .find(|t| t.name.ends_with("kv_b_proj"))
        .map(|t| t.rows() as f64 / model.query_heads.max(1) as f64);
    match (rope, expanded) {
        (Some(rope), Some(features)) if model.head_size > 0 => {
            (features.midpoint(rope) / model.head_size as f64).clamp(0.05, 1.0)
        }
        _ => 1.0,
    }
}

/// Bytes of a recurrent state before any split: the recurrent part, which dominates.
fn state_bytes(state: &State) -> f64 {
    let elements = match state.kind {
        StateKind::Mamba1 { intermediate, state_size, .. } => intermediate as f64 * state_size as f64,
        StateKind::Mamba2 { heads, head_dim, state_size, .. } => {
            heads as f64 * head_dim as f64 * state_size as f64
        }
        StateKind::GatedDeltaNet { value_heads, key_dim, value_dim, .. } => {
            value_heads as f64 * key_dim as f64 * value_dim as f64
        }
        StateKind::Kda { heads, head_dim, .. } | StateKind::Lightning { heads, head_dim } => {
            heads as f64 * head_dim as f64 * head_dim as f64
        }
        StateKind::ShortConv { width, conv_kernel } => width as f64 * conv_kernel as f64,
    };
    elements * state.state_dtype.bytes() as f64
}
