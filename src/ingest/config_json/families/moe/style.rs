//! What each architecture of this family fixes, and what it reads from the file.

use super::super::super::build::Experts as Stacked;
use super::super::super::reader::MAX_SIZE;
use super::super::dense::{EVERYWHERE, granite_sinks, granite_windows};
use super::super::reach::Windows;
use super::super::{Context, QkNorm};
use super::mixture::{
    EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list, by_step, from_layer, plain_mixture, stacked,
};
use super::{Style, sparse_index};
use crate::planner::model::ClassLimits;
use crate::planner::model::dtype::Dtype;

const TWO: &[&str] = &["input_layernorm", "post_attention_layernorm"];
const FOUR: &[&str] =
    &["input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"];

impl Style {
    pub(super) fn of(context: &Context<'_>) -> Option<Self> {
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
            dense_width: &["intermediate_size"],
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
                mixture.router_quantised = true;
                mixture.shared_gate = mixture.shared_width > 0;
                Self {
                    windows: Windows::Flagged,
                    qk_norm: QkNorm::Head,
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
                    windows: granite_windows(context),
                    sinks: granite_sinks(context),
                    everywhere: EVERYWHERE,
                    block: "block_sparse_moe",
                    shared: "shared_mlp",
                    ..base(mixture)
                }
            }
            "MiniCPMForCausalLM" => Self {
                qkv_bias: false,
                windows: Windows::Never,
                everywhere: EVERYWHERE,
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            "OlmoeForCausalLM" => Self {
                qkv_bias: false,
                qk_norm: QkNorm::All,
                everywhere: EVERYWHERE,
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            // norms behind attention and experts
            "FlexOlmoForCausalLM" => Self {
                qkv_bias: false,
                qk_norm: QkNorm::All,
                norms: &["post_attention_layernorm", "post_feedforward_layernorm"],
                transformers: true,
                everywhere: EVERYWHERE,
                ..base(plain_mixture(stacked(context, config.size(&["intermediate_size"]))))
            },
            // the first DeepSeek with experts: attention by head
            "DeepseekForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.shared_width = width.saturating_mul(config.size_or(&["n_shared_experts"], 0));
                Self {
                    windows: Windows::Never,
                    sparse: by_list(context, layers),
                    limits: within,
                    ..base(mixture)
                }
            }
            "Glm4MoeForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width = width.saturating_mul(config.size_or(&["n_shared_experts"], 0));
                mixture.sequence_parallel = true;
                Self {
                    qk_norm: if config.flag(&["use_qk_norm"], false) { QkNorm::Head } else { QkNorm::None },
                    sparse: by_list(context, layers),
                    ..base(mixture)
                }
            }
            // built through its transformers class since vLLM dropped its own
            "Dots1ForCausalLM" => {
                let width = moe_width();
                let mut mixture = plain_mixture(stacked(context, width));
                let corrected = config.text(&["topk_method"]) == Some("noaux_tc");
                mixture.correction = corrected.then_some(context.quantiser.dtype);
                mixture.shared_width = width.saturating_mul(config.size_or(&["n_shared_experts"], 0));
                Self {
                    qk_norm: QkNorm::Head,
                    sparse: by_list(context, layers),
                    transformers: true,
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
                let step = config.positive_or(&["moe_layer_interval"], 1);
                let sparse = (0..layers)
                    .map(|i| {
                        let n = u64::try_from(i).unwrap_or(0);
                        (n + 1).is_multiple_of(step) && n >= start && n <= end
                    })
                    .collect();
                Self {
                    qkv_bias: config.flag(&["use_bias"], false),
                    tied: true,
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
                Self { qkv_bias: false, qk_norm: QkNorm::Head, sparse, limits: within, ..base(mixture) }
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
                    dense_width: &["prefix_dense_intermediate_size", "intermediate_size"],
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
                    .opt_size(&["moe_shared_expert_intermediate_size"])
                    .unwrap_or(width)
                    .saturating_mul(config.size_or(&["num_shared_experts"], 0));
                let bias = config.flag(&["use_bias"], false);
                Self {
                    windows: Windows::Never,
                    qkv_bias: bias || config.flag(&["use_qkv_bias"], false),
                    out_bias: bias,
                    qk_norm: if config.flag(&["use_qk_norm"], false) { QkNorm::Head } else { QkNorm::None },
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
                    dense_width: &["dense_intermediate_size"],
                    sparse: by_list(context, layers),
                    block: "block_sparse_moe",
                    index: sparse_index(context, layers),
                    ..base(mixture)
                }
            }
            "HYV3ForCausalLM" => {
                let mut mixture = plain_mixture(stacked(context, config.size(&["expert_hidden_dim"])));
                mixture.router_fp32 = true;
                mixture.correction = Some(Dtype::Fp32);
                mixture.shared_width =
                    mixture.experts.width.saturating_mul(config.size_or(&["num_shared_experts"], 0));
                Self {
                    qkv_bias: false,
                    windows: Windows::Never,
                    qk_norm: if config.flag(&["qk_norm"], false) { QkNorm::Head } else { QkNorm::None },
                    sparse: from_layer(config.size_or(&["first_k_dense_replace"], 0), layers),
                    limits: within,
                    shared: "shared_mlp",
                    ..base(mixture)
                }
            }
            "Llama4ForCausalLM" | "Llama4ForConditionalGeneration" => {
                let width = config.size(&["intermediate_size"]);
                let mut mixture = plain_mixture(stacked(context, width));
                mixture.shared_width = width;
                mixture.sequence_parallel = true;
                // the class takes a step of 0 as no layer with experts
                let step = config.size_or(&["interleave_moe_layer_step"], 1);
                let sparse = config.numbers(&["moe_layers"], MAX_SIZE).map_or_else(
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
                    dense_width: &["intermediate_size_mlp"],
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
