//! A model by itself, whatever it runs on: what its weights are made of, what a token leaves in the cache, and which TP sizes an engine takes.

use serde::Serialize;
use utoipa::ToSchema;

use super::engine::EngineRules;
use super::formula::kv_formula;
use super::hardware::Gpu;
use super::input::EngineSettings;
use super::layout::Shape;
use super::model::ModelSpec;
use super::model::ledger::{Role, Tensor};

/// TP sizes that are judged: those of nodes and racks.
const TP_SIZES: [u64; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64];

/// Tensors of one purpose, over all layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LedgerGroup {
    /// `embedding`, `attention`, `kv_projection`, `indexer`, `dense_feed_forward`, `router`, `routed_experts`, `shared_expert`,
    /// `norm`, `lm_head`, `state_mixer`, `tower`.
    pub group: String,
    /// Matrices and vectors, fused ones as one, copies (experts) apart.
    pub tensors: u64,
    /// Elements of the whole model; a tied head is counted with the embedding.
    pub parameters: u64,
    /// Of those, what one token passes through.
    pub active_parameters: u64,
    /// As loaded on one GPU, scales included.
    pub bytes: u64,
}

/// A TP size and whether the engine takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TpSize {
    pub tp: u64,
    pub allowed: bool,
    /// How many ranks hold the same bytes of cache, in thousandths; null where it is not allowed.
    pub replication_thousandths: Option<u64>,
    /// The rule that refuses it, or what is copied.
    pub code: Option<String>,
    pub reason: Option<String>,
}

/// What a model is, whatever it runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelSizes {
    /// In a fixed order; the bytes sum to the model's weights.
    pub ledger: Vec<LedgerGroup>,
    /// Bytes that one token leaves in one copy of the cache, over all layers.
    pub kv_bytes_per_token: u64,
    /// How that figure comes about.
    pub kv_formula: String,
    /// Format of the cache in that figure.
    pub kv_cache_dtype: String,
    pub tp_sizes: Vec<TpSize>,
    /// The rules and the GPU for which cache and TP sizes hold, e.g. `vllm 0.33 on h100-sxm5-80gb`.
    pub rules: String,
    /// Why the engine does not start at any size.
    pub refused: Option<String>,
}

/// The sizes of a model under an engine's rules; `gpu` decides backends and defaults.
#[must_use]
pub fn sizes(model: &ModelSpec, rules: &dyn EngineRules, settings: &EngineSettings, gpu: &Gpu) -> ModelSizes {
    let mut out = ModelSizes {
        ledger: ledger(model),
        kv_bytes_per_token: 0,
        kv_formula: String::new(),
        kv_cache_dtype: String::new(),
        tp_sizes: Vec::new(),
        rules: format!("{} {} on {}", rules.name(), rules.version(), gpu.key),
        refused: None,
    };
    let resolved = match rules.resolve(settings, model, gpu) {
        Ok(resolved) => resolved,
        Err(refusal) => {
            out.refused = Some(refusal.message);
            return out;
        }
    };
    out.kv_cache_dtype = resolved.kv_dtype.as_str().to_owned();
    let layers = 0..model.layers.len();
    let whole =
        |shape: &Shape| rules.cache_layout(model, shape, gpu, &resolved, std::slice::from_ref(&layers));
    match whole(&Shape::new(1, 1)) {
        Ok(cache) => {
            out.kv_bytes_per_token = cache.token_bytes_logical.get();
            out.kv_formula = kv_formula(model, resolved.kv_dtype, &cache);
        }
        Err(refusal) => out.refused = Some(refusal.message),
    }
    out.tp_sizes = TP_SIZES
        .iter()
        .map(|tp| {
            let shape = Shape::new(*tp, 1);
            let refused =
                rules.refuse(model, &shape, gpu, &resolved).map_or_else(|| whole(&shape).err(), Some);
            tp_size(*tp, model, refused.map(|r| (r.code.as_str().to_owned(), r.message)), || {
                whole(&shape).map_or(1.0, |cache| cache.replication_factor)
            })
        })
        .collect();
    out
}

fn tp_size(
    tp: u64,
    model: &ModelSpec,
    refused: Option<(String, String)>,
    copies: impl Fn() -> f64,
) -> TpSize {
    if let Some((code, reason)) = refused {
        return TpSize {
            tp,
            allowed: false,
            replication_thousandths: None,
            code: Some(code),
            reason: Some(reason),
        };
    }
    let copies = copies();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates; a factor is not negative"
    )]
    let thousandths = (copies * 1000.0).round() as u64;
    let copied = thousandths > 1000;
    TpSize {
        tp,
        allowed: true,
        replication_thousandths: Some(thousandths),
        code: copied.then(|| "kv_replicated".to_owned()),
        reason: copied.then(|| {
            let what =
                if model.mla { "one latent".to_owned() } else { format!("{} KV heads", model.kv_heads) };
            format!("{what} over {tp} ranks: the same bytes of cache lie on {copies:.1} ranks on average")
        }),
    }
}

const ROLES: [(Role, &str); 12] = [
    (Role::Embedding, "embedding"),
    (Role::Attention, "attention"),
    (Role::KvProjection, "kv_projection"),
    (Role::Indexer, "indexer"),
    (Role::DenseFeedForward, "dense_feed_forward"),
    (Role::Router, "router"),
    (Role::RoutedExperts, "routed_experts"),
    (Role::SharedExpert, "shared_expert"),
    (Role::Norm, "norm"),
    (Role::LmHead, "lm_head"),
    (Role::StateMixer, "state_mixer"),
    (Role::Tower, "tower"),
];

fn ledger(model: &ModelSpec) -> Vec<LedgerGroup> {
    let uses: Vec<u64> = (0..model.kinds.len())
        .map(|kind| model.layers.iter().filter(|layer| **layer == kind).count() as u64)
        .collect();
    let tensors = || {
        let layers =
            model.kinds.iter().zip(&uses).flat_map(|(kind, n)| kind.tensors.iter().map(move |t| (t, *n)));
        model.head.iter().chain(&model.tail).map(|t| (t, 1)).chain(layers)
    };
    let one = Shape::new(1, 1);
    let sum = |role: Role, figure: &dyn Fn(&Tensor) -> u64| {
        tensors()
            .filter(|(t, _)| t.role == role)
            .fold(0_u64, |sum, (t, n)| sum.saturating_add(figure(t).saturating_mul(n)))
    };
    ROLES
        .iter()
        .map(|(role, group)| LedgerGroup {
            group: (*group).to_owned(),
            tensors: sum(*role, &|_| 1),
            parameters: sum(*role, &Tensor::parameters),
            active_parameters: sum(*role, &Tensor::active_parameters),
            bytes: sum(*role, &|t| t.on_rank(&one).bytes),
        })
        .filter(|group| group.tensors > 0)
        .collect()
}
