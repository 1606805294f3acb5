//! Mixtures of experts with attention by head.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::dense::{EVERYWHERE, Windows, layer_types, name_layer, reaches};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};
use crate::planner::model::{ClassLimits, Experts};

/// The feed-forward block of a mixture-of-experts layer.
#[derive(Debug, Clone, Copy)]
pub struct Mixture {
    pub experts: Stacked,
    /// The router's weights are fp32 whatever the model's format.
    pub router_fp32: bool,
    pub router_bias: bool,
    /// A correction of the router's scores for each expert, in this format.
    pub correction: Option<Dtype>,
    /// Width of all shared experts together, 0 for none.
    pub shared_width: u64,
    /// A gate of one output on the shared expert.
    pub shared_gate: bool,
    /// The class holds shared experts whole under sequence-parallel MoE.
    pub sequence_parallel: bool,
}

impl Mixture {
    /// Router, experts and shared experts under `name` (`mlp`, `block_sparse_moe`, …).
    pub fn build(&self, layer: &mut Layer<'_>, name: &str, gate: &'static str, shared: &str) {
        let Stacked { count, hidden, .. } = self.experts;
        let outputs = [Part::whole(count)];
        let dtype = if self.router_fp32 { Dtype::Fp32 } else { layer.dtype() };
        layer.typed_linear(Role::Router, gate, &outputs, Part::whole(hidden), dtype);
        if self.router_bias {
            layer.vector(Role::Router, "gate.bias", &outputs);
        }
        if let Some(dtype) = self.correction {
            layer.score_correction(&outputs, dtype);
        }
        layer.experts(&format!("{name}.experts"), self.experts);
        if self.shared_width > 0 {
            let sharing = if self.sequence_parallel { Sharing::SharedExperts } else { Sharing::Tensor };
            layer.mlp_shared(
                &format!("{name}.{shared}"),
                hidden,
                self.shared_width,
                self.experts.gated,
                false,
                Some(sharing),
            );
        }
        if self.shared_gate {
            layer.plain_linear(
                Role::Router,
                "shared_expert_gate",
                &[Part::whole(1)],
                Part::whole(hidden),
                false,
            );
        }
    }

    /// In brief; `shared` experts of the routed experts' width.
    pub fn summary(&self) -> Experts {
        let shared =
            if self.shared_width == 0 { 0 } else { (self.shared_width / self.experts.width.max(1)).max(1) };
        Experts { routed: self.experts.count, per_token: self.experts.per_token, shared }
    }
}

/// The names under which files keep the number of routed experts.
pub const EXPERT_COUNT: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"];
/// The names of the experts a token chooses.
pub const EXPERTS_PER_TOKEN: &[&str] = &[
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "top_k_experts",
    "moe_top_k",
];

/// How a mixture decoder differs from the others.
struct Style {
    windows: Windows,
    qkv_bias: bool,
    out_bias: bool,
    qk_norm: QkNorm,
    norms: &'static [&'static str],
    norm_bias: bool,
    mixture: Mixture,
    /// Width of the layers without experts.
    dense_width: u64,
    /// Which layers have experts.
    sparse: Vec<bool>,
    tied: bool,
    everywhere: &'static [&'static str],
    limits: ClassLimits,
    /// Attention sinks: one number a query head.
    sinks: bool,
    head_bias: bool,
    transformers: bool,
    block: &'static str,
    shared: &'static str,
    /// A gate as wide as the queries, as a projection of its own.
    gate_projection: bool,
    /// Block-sparse attention: which layers have an index, its heads and their size.
    index: Option<Index>,
}

/// The index of block-sparse attention (MiniMax M3): its queries follow the KV heads, its one key is on every rank.
struct Index {
    layers: Vec<bool>,
    heads: u64,
    head: u64,
}

/// The index that `sparse_attention_config` describes.
fn sparse_index(context: &Context<'_>, layers: usize) -> Option<Index> {
    let sparse = context.config.section_anywhere(&["sparse_attention_config"])?;
    let listed = sparse.per_layer(&["sparse_attention_freq"], layers)?;
    Some(Index {
        layers: listed.iter().take(layers).map(|n| *n != 0).collect(),
        heads: sparse.size(&["sparse_num_index_heads"]),
        head: sparse.size(&["sparse_index_dim"]),
    })
}

impl Index {
    fn build(&self, layer: &mut Layer<'_>, hidden: u64) {
        let outputs = [Part::heads(self.heads, self.head, "index heads"), Part::whole(self.head)];
        layer.linear(Role::Indexer, "self_attn.qkv_proj", &outputs, Part::whole(hidden), false);
        layer.norm("self_attn.index_q_norm", self.head);
        layer.norm("self_attn.index_k_norm", self.head);
        // one key a token for all heads, in the cache's own format
        layer.caches.push(LayerCache::Latent {
            kv_lora_rank: self.head,
            rope: 0,
            sparse: false,
            reach: Reach::Full,
        });
    }
}

const TWO: &[&str] = &["input_layernorm", "post_attention_layernorm"];
const FOUR: &[&str] =
    &["input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"];

/// Experts as most files name them, of width `width`.
fn stacked(context: &Context<'_>, width: u64) -> Stacked {
    let config = context.config;
    Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: context.hidden(),
        width,
        gated: true,
        bias: false,
    }
}

fn plain_mixture(experts: Stacked) -> Mixture {
    Mixture {
        experts,
        router_fp32: false,
        router_bias: false,
        correction: None,
        shared_width: 0,
        shared_gate: false,
        sequence_parallel: false,
    }
}

/// Layers from `first` on.
fn from_layer(first: u64, layers: usize) -> Vec<bool> {
    (0..layers).map(|i| u64::try_from(i).unwrap_or(u64::MAX) >= first).collect()
}

/// Layers with experts by `decoder_sparse_step` and `mlp_only_layers` (Qwen).
pub fn by_step(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    let step = config.size_or(&["decoder_sparse_step"], 1).max(1);
    let dense = config.numbers(&["mlp_only_layers"], super::super::reader::MAX_SIZE).unwrap_or_default();
    (0..layers)
        .map(|i| {
            let n = u64::try_from(i).unwrap_or(0);
            !dense.contains(&n) && (n + 1).is_multiple_of(step)
        })
        .collect()
}

/// Layers with experts by a list of 0 and 1, or from `first_k_dense_replace` on.
pub fn by_list(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    if let Some(kinds) = config.texts(&["mlp_layer_types"]).filter(|kinds| kinds.len() >= layers) {
        return kinds.iter().take(layers).map(|kind| *kind != "dense").collect();
    }
    if config.value(&["moe_layer_freq"]).is_some_and(|(value, _)| value.is_array())
        && let Some(list) = config.per_layer(&["moe_layer_freq"], layers)
    {
        return list.iter().take(layers).map(|n| *n != 0).collect();
    }
    let first = config.size_or(&["first_k_dense_replace"], 0);
    let step = config.size_or(&["moe_layer_freq"], 1).max(1);
    (0..layers)
        .map(|i| {
            let n = u64::try_from(i).unwrap_or(0);
            n >= first && n.is_multiple_of(step)
        })
        .collect()
}

impl Style {
    fn of(context: &Context<'_>) -> Option<Self> {
        let config = context.config;
        let layers = context.layers_if_given();
        let within = ClassLimits { ranks_within_experts: true, ..ClassLimits::default() };
        let base = |mixture: Mixture| Self {
            windows: Windows::Listed,
            qkv_bias: config.flag(&["attention_bias"], false),
            out_bias: false,
            qk_norm: QkNorm::None,
            norms: TWO,
            norm_bias: false,
            mixture,
            dense_width: 0,
            sparse: vec![true; layers],
            tied: false,
            everywhere: &[],
            limits: ClassLimits::default(),
            sinks: false,
            head_bias: false,
            transformers: false,
            block: "mlp",
            shared: "shared_experts",
            gate_projection: false,
            index: None,
        };
        let moe_width =
            || config.size(&["moe_intermediate_size", "expert_intermediate_size", "intermediate_size"]);
        Some(match context.architecture {
            "MixtralForCausalLM" => Self {
                everywhere: EVERYWHERE,
                qkv_bias: false,
                block: "block_sparse_moe",
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            "Qwen2MoeForCausalLM" => {
                let mut mixture = plain_mixture(stacked(context, moe_width()));
                mixture.shared_width = config.size_or(&["shared_expert_intermediate_size"], 0);
                mixture.shared_gate = true;
                Self {
                    windows: Windows::Flagged,
                    qkv_bias: true,
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse: by_step(context, layers),
                    everywhere: EVERYWHERE,
                    limits: within,
                    shared: "shared_expert",
                    ..base(mixture)
                }
            }
            "Qwen3MoeForCausalLM" | "Qwen3VLMoeForConditionalGeneration" => {
                let mut mixture = plain_mixture(stacked(context, moe_width()));
                mixture.shared_width = config.size_or(&["shared_expert_intermediate_size"], 0);
                mixture.shared_gate = mixture.shared_width > 0;
                Self {
                    windows: Windows::Flagged,
                    qk_norm: QkNorm::Head,
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse: by_step(context, layers),
                    everywhere: EVERYWHERE,
                    limits: within,
                    shared: "shared_expert",
                    ..base(mixture)
                }
            }
            "GptOssForCausalLM" => {
                let mut mixture = plain_mixture(stacked(context, config.size(&["intermediate_size"])));
                mixture.experts.bias = true;
                mixture.router_bias = true;
                Self {
                    windows: Windows::Alternate,
                    qkv_bias: true,
                    out_bias: true,
                    sinks: true,
                    everywhere: EVERYWHERE,
                    limits: ClassLimits { no_kv_replication: true, ..ClassLimits::default() },
                    ..base(mixture)
                }
            }
            "PhiMoEForCausalLM" => Self {
                qkv_bias: true,
                out_bias: true,
                norm_bias: true,
                head_bias: true,
                everywhere: EVERYWHERE,
                block: "block_sparse_moe",
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            "GraniteMoeForCausalLM" | "GraniteMoeSharedForCausalLM" | "GraniteMoeSWAForCausalLM" => {
                let mut mixture = plain_mixture(stacked(context, config.size(&["intermediate_size"])));
                mixture.shared_width = if context.architecture == "GraniteMoeForCausalLM" {
                    0
                } else {
                    config.size_or(&["shared_intermediate_size"], 0)
                };
                Self {
                    qkv_bias: false,
                    everywhere: EVERYWHERE,
                    block: "block_sparse_moe",
                    shared: "shared_mlp",
                    ..base(mixture)
                }
            }
            "OlmoeForCausalLM" => Self {
                qkv_bias: false,
                qk_norm: QkNorm::All,
                everywhere: EVERYWHERE,
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            "Glm4MoeForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width = width.saturating_mul(config.size_or(&["n_shared_experts"], 0));
                mixture.sequence_parallel = true;
                Self {
                    qk_norm: if config.flag(&["use_qk_norm"], false) { QkNorm::Head } else { QkNorm::None },
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse: by_list(context, layers),
                    ..base(mixture)
                }
            }
            "Ernie4_5_MoeForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width = width.saturating_mul(config.size_or(&["moe_num_shared_experts"], 0));
                let start = config.size_or(&["moe_layer_start_index"], 0);
                let end = config.opt(&["moe_layer_end_index"]).unwrap_or(u64::MAX);
                let step = config.size_or(&["moe_layer_interval"], 1).max(1);
                let sparse = (0..layers)
                    .map(|i| {
                        let n = u64::try_from(i).unwrap_or(0);
                        (n + 1).is_multiple_of(step) && n >= start && n <= end
                    })
                    .collect();
                Self {
                    qkv_bias: config.flag(&["use_bias"], false),
                    tied: true,
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse,
                    limits: within,
                    ..base(mixture)
                }
            }
            "ExaoneMoeForCausalLM" | "ExaoneMoEForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width =
                    width.saturating_mul(config.size_or(&["num_shared_experts", "n_shared_experts"], 0));
                let sparse = config.list(&["is_moe_layer"]).map_or_else(
                    || by_list(context, layers),
                    |list| list.iter().take(layers).map(|v| v.as_bool().unwrap_or(true)).collect(),
                );
                Self {
                    qkv_bias: false,
                    qk_norm: QkNorm::Head,
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse,
                    limits: within,
                    ..base(mixture)
                }
            }
            "Cohere2MoeForCausalLM" => {
                let width = config.size(&["intermediate_size"]);
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.shared_width = width.saturating_mul(config.size_or(&["num_shared_experts"], 0));
                Self {
                    windows: Windows::Pattern { default: 4, plus: 1 },
                    qkv_bias: false,
                    norms: &["input_layernorm"],
                    tied: true,
                    dense_width: config.size_or(&["prefix_dense_intermediate_size", "intermediate_size"], 0),
                    sparse: by_list(context, layers),
                    everywhere: EVERYWHERE,
                    limits: within,
                    ..base(mixture)
                }
            }
            "MiniMaxM2ForCausalLM" => {
                let mut mixture = plain_mixture(stacked(context, config.size(&["intermediate_size"])));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                Self {
                    qkv_bias: false,
                    windows: Windows::Never,
                    qk_norm: if config.flag(&["use_qk_norm"], true) { QkNorm::ByHead } else { QkNorm::None },
                    limits: within,
                    block: "block_sparse_moe",
                    ..base(mixture)
                }
            }
            "AfmoeForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width = width.saturating_mul(config.size_or(&["num_shared_experts"], 0));
                Self {
                    qkv_bias: false,
                    qk_norm: QkNorm::Head,
                    gate_projection: true,
                    norms: FOUR,
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse: from_layer(config.size_or(&["num_dense_layers"], 0), layers),
                    ..base(mixture)
                }
            }
            "BailingMoeForCausalLM" | "BailingMoeV2ForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = config.text(&["router_dtype"]) == Some("fp32");
                mixture.correction =
                    config.flag(&["moe_router_enable_expert_bias"], false).then_some(Dtype::Fp32);
                mixture.shared_width = config
                    .opt(&["moe_shared_expert_intermediate_size"])
                    .unwrap_or(width)
                    .saturating_mul(config.size_or(&["num_shared_experts"], 0));
                let bias = config.flag(&["use_bias"], false);
                Self {
                    windows: Windows::Never,
                    qkv_bias: bias || config.flag(&["use_qkv_bias"], false),
                    out_bias: bias,
                    qk_norm: if config.flag(&["use_qk_norm"], false) { QkNorm::Head } else { QkNorm::None },
                    dense_width: config.size_or(&["intermediate_size"], 0),
                    sparse: by_list(context, layers),
                    ..base(mixture)
                }
            }
            "HunYuanMoEV1ForCausalLM" => {
                let first =
                    |name: &str| config.per_layer(&[name], layers).and_then(|list| list.first().copied());
                let width =
                    first("moe_intermediate_size").unwrap_or_else(|| config.size(&["intermediate_size"]));
                let experts = Stacked {
                    count: config.size(EXPERT_COUNT),
                    per_token: first("moe_topk").unwrap_or_else(|| config.size(EXPERTS_PER_TOKEN)),
                    hidden: context.hidden(),
                    width,
                    gated: true,
                    bias: false,
                };
                let mut mixture = plain_mixture(experts);
                mixture.router_fp32 = true;
                let shared = if config.flag(&["use_mixed_mlp_moe"], true) {
                    first("num_shared_expert").unwrap_or(1)
                } else {
                    0
                };
                mixture.shared_width = config.size(&["intermediate_size"]).saturating_mul(shared);
                Self {
                    windows: Windows::Never,
                    qk_norm: if config.flag(&["use_qk_norm"], true) { QkNorm::Head } else { QkNorm::None },
                    transformers: true,
                    shared: "shared_mlp",
                    ..base(mixture)
                }
            }
            "MiniMaxM3ForCausalLM"
            | "MiniMaxM3SparseForCausalLM"
            | "MiniMaxM3SparseForConditionalGeneration" => {
                let width = config.size(&["intermediate_size"]);
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = true;
                mixture.correction = config.flag(&["use_routing_bias"], true).then_some(Dtype::Fp32);
                mixture.shared_width = width.saturating_mul(config.size_or(&["n_shared_experts"], 0));
                Self {
                    windows: Windows::Never,
                    qkv_bias: false,
                    qk_norm: QkNorm::Head,
                    dense_width: config.size(&["dense_intermediate_size"]),
                    sparse: by_list(context, layers),
                    block: "block_sparse_moe",
                    index: sparse_index(context, layers),
                    ..base(mixture)
                }
            }
            "Llama4ForCausalLM" | "Llama4ForConditionalGeneration" => {
                let width = config.size(&["intermediate_size"]);
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.shared_width = width;
                mixture.sequence_parallel = true;
                let step = config.size_or(&["interleave_moe_layer_step"], 1);
                let sparse = config.numbers(&["moe_layers"], super::super::reader::MAX_SIZE).map_or_else(
                    || {
                        (1..=layers)
                            .map(|n| step > 0 && u64::try_from(n).unwrap_or(0).is_multiple_of(step))
                            .collect()
                    },
                    |list| (0..layers).map(|i| list.contains(&u64::try_from(i).unwrap_or(0))).collect(),
                );
                Self {
                    windows: Windows::Chunks,
                    qkv_bias: false,
                    dense_width: config.size_or(&["intermediate_size_mlp"], 0),
                    sparse,
                    block: "feed_forward",
                    shared: "shared_expert",
                    ..base(mixture)
                }
            }
            _ => return None,
        })
    }
}

/// Read a mixture of experts.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    let style = Style::of(context)?;
    let base = Attention {
        qkv_bias: style.qkv_bias,
        out_bias: style.out_bias,
        qk_norm: style.qk_norm,
        ..Attention::of(context)
    };
    let layers = context.layers();
    let types = layer_types(context, layers);
    let mut stack = Stack::default();
    for (index, reach) in reaches(context, style.windows, layers).into_iter().enumerate() {
        let mut layer = context.layer(index);
        name_layer(&mut layer, reach);
        Attention { reach, ..base }.build(&mut layer, "self_attn");
        if style.sinks {
            layer.typed_vector(
                Role::Attention,
                "self_attn.sinks",
                &[Part::units(base.heads, 1, "query heads")],
                layer.dtype(),
            );
        }
        if style.gate_projection {
            let gate = [Part::units(base.heads, base.head, "query heads")];
            layer.linear(Role::Attention, "self_attn.gate_proj", &gate, Part::whole(base.hidden), false);
        }
        if let Some(index_of_layer) =
            style.index.as_ref().filter(|own| own.layers.get(index).copied().unwrap_or(false))
        {
            layer.name = "block_sparse_attention".to_owned();
            index_of_layer.build(&mut layer, base.hidden);
        }
        let is_sparse = style.sparse.get(index).copied().unwrap_or(true);
        if is_sparse {
            layer.name.push_str("+moe");
            style.mixture.build(&mut layer, style.block, "gate", style.shared);
        } else {
            layer.mlp("mlp", base.hidden, style.dense_width, true, false);
        }
        for norm in style.norms {
            layer.layer_norm(norm, base.hidden, style.norm_bias);
        }
        if !style.transformers {
            let kind = types.as_ref().and_then(|types| types.get(index).copied());
            rope_buffer(&mut layer, Rope::of(context, base.head, kind));
        }
        stack.push(layer);
    }
    let final_norm = if style.norm_bias { FinalNorm::Layer { bias: true } } else { FinalNorm::Rms };
    let mut body = context.body(stack, context.tied(style.tied), final_norm);
    if style.head_bias {
        body.tail.vector(Role::LmHead, "lm_head.bias", &[super::vocabulary_rows(body.vocabulary)]);
    }
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    body.experts = Some(style.mixture.summary());
    body.limits = style.limits;
    Some(body.everywhere(style.everywhere))
}
