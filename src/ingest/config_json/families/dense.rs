//! Dense decoders: attention by head, one multi-layer perceptron a layer.

use super::super::build::{Alike, Stack};
use super::reach::{Windows, name_layer, reaches};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, inverse_frequencies, rope_buffer};
use crate::planner::model::cache::Reach;

/// How a dense decoder differs from Llama.
struct Style {
    qkv_bias: bool,
    out_bias: bool,
    mlp_bias: bool,
    /// Gate and up rather than up alone.
    gated: bool,
    qk_norm: QkNorm,
    /// Norms over the hidden size in each layer.
    norms: &'static [&'static str],
    /// Norms are LayerNorm with a bias.
    norm_bias: bool,
    tied: bool,
    /// Built by vLLM through the model's own transformers class.
    transformers: bool,
    windows: Windows,
    /// Parts outside the layers that the class builds on every pipeline stage.
    everywhere: &'static [&'static str],
    /// Two learned numbers in the activation of each layer.
    learned_activation: bool,
    /// Positions by slopes for each head (ALiBi): no rotary table.
    slopes: bool,
    /// Half of each head is turned, and `rope_ratio` stretches the base (ChatGLM).
    half_turned: bool,
    /// The file gives the width of gate and up together (Qwen 1).
    joint_width: bool,
    /// Attention sinks: one number a query head.
    sinks: bool,
    /// Rotary positions may have axes.
    axes: bool,
}

const TWO: &[&str] = &["input_layernorm", "post_attention_layernorm"];
const ONE: &[&str] = &["input_layernorm"];
const FOUR: &[&str] = &[
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
];
const AFTER: &[&str] = &["post_attention_layernorm", "post_feedforward_layernorm"];

impl Style {
    const LLAMA: Self = Self {
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        gated: true,
        qk_norm: QkNorm::None,
        norms: TWO,
        norm_bias: false,
        tied: false,
        transformers: false,
        windows: Windows::Listed,
        everywhere: &[],
        learned_activation: false,
        slopes: false,
        half_turned: false,
        joint_width: false,
        sinks: false,
        axes: false,
    };

    /// The style of an architecture; `None` when it is not a dense decoder of this kind.
    fn of(context: &Context<'_>) -> Option<Self> {
        let config = context.config;
        let attention_bias = |default| config.flag(&["attention_bias"], default);
        let llama = Self::LLAMA;
        Some(match context.architecture {
            "LlamaForCausalLM"
            | "LLaMAForCausalLM"
            | "MistralForCausalLM"
            | "Ministral3ForCausalLM"
            | "InternLM3ForCausalLM"
            | "IQuestCoderForCausalLM"
            | "TeleChat3ForCausalLM"
            | "YiForCausalLM"
            | "AquilaForCausalLM"
            | "InternLMForCausalLM"
            | "XverseForCausalLM"
            | "AquilaModel"
            | "Phi3ForCausalLM"
            | "Mistral3ForConditionalGeneration" => {
                let bias = attention_bias(false) || config.flag(&["bias"], false);
                Self {
                    qkv_bias: config.opt_flag(&["qkv_bias"]).unwrap_or(bias),
                    out_bias: bias,
                    mlp_bias: config.flag(&["mlp_bias"], false),
                    ..llama
                }
            }
            // its own model type: nothing clears the window when `use_sliding_window` is false
            "MiMoForCausalLM" => Self { qkv_bias: true, windows: Windows::Listed, ..llama },
            "Qwen2ForCausalLM" | "Qwen2_5_VLForConditionalGeneration" | "Qwen2VLForConditionalGeneration" => {
                Self { qkv_bias: true, windows: Windows::Flagged, axes: true, ..llama }
            }
            "Qwen3ForCausalLM" | "Qwen3VLForConditionalGeneration" => Self {
                qkv_bias: attention_bias(false),
                qk_norm: QkNorm::Head,
                windows: Windows::Flagged,
                ..llama
            },
            "GemmaForCausalLM" => Self { tied: true, everywhere: EVERYWHERE, ..llama },
            "Gemma2ForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                tied: true,
                norms: FOUR,
                windows: Windows::Pattern { default: 2, plus: 0 },
                everywhere: EVERYWHERE,
                ..llama
            },
            "Gemma3ForCausalLM" | "Gemma3ForConditionalGeneration" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                tied: true,
                norms: FOUR,
                qk_norm: QkNorm::Head,
                windows: Windows::Pattern { default: 6, plus: 0 },
                everywhere: EVERYWHERE,
                ..llama
            },
            "CohereForCausalLM" => Self {
                tied: true,
                norms: ONE,
                qk_norm: if config.flag(&["use_qk_norm"], false) { QkNorm::ByHead } else { QkNorm::None },
                windows: Windows::Never,
                everywhere: EVERYWHERE,
                ..llama
            },
            "Cohere2ForCausalLM" => Self {
                tied: true,
                norms: ONE,
                windows: Windows::Pattern { default: 4, plus: 1 },
                everywhere: EVERYWHERE,
                ..llama
            },
            "GraniteForCausalLM" | "GraniteSWAForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                windows: granite_windows(context),
                sinks: granite_sinks(context),
                ..llama
            },
            "Glm4ForCausalLM" => Self { qkv_bias: attention_bias(false), norms: FOUR, axes: true, ..llama },
            "GlmForCausalLM" => Self { qkv_bias: attention_bias(false), transformers: true, ..llama },
            "StableLmForCausalLM" | "StableLMEpochForCausalLM" => Self {
                qkv_bias: config.flag(&["use_qkv_bias"], false),
                norm_bias: true,
                windows: Windows::Never,
                everywhere: EVERYWHERE,
                ..llama
            },
            "Exaone4ForCausalLM" => {
                Self { norms: AFTER, qk_norm: QkNorm::Head, windows: Windows::Listed, ..llama }
            }
            // with experts it is a mixture
            "MiniCPMForCausalLM" if config.size_or(&["num_experts"], 0) > 0 => return None,
            "InternLM2ForCausalLM" | "MiniCPMForCausalLM" => {
                Self { windows: Windows::Never, everywhere: EVERYWHERE, ..llama }
            }
            "ExaoneForCausalLM"
            | "SolarForCausalLM"
            | "TeleFLMForCausalLM"
            | "TeleChat2ForCausalLM"
            | "TeleChatForCausalLM" => Self { windows: Windows::Never, ..llama },
            // `intermediate_size` counts gate and up together
            "QWenLMHeadModel" => Self {
                qkv_bias: true,
                windows: Windows::Never,
                everywhere: EVERYWHERE,
                joint_width: true,
                ..llama
            },
            "BaiChuanForCausalLM" | "BaichuanForCausalLM" => Self {
                windows: Windows::Never,
                everywhere: EVERYWHERE,
                // the class with the small letter turns positions only in the size of the 7B model
                slopes: context.architecture == "BaichuanForCausalLM" && context.hidden() != 4096,
                ..llama
            },
            "ChatGLMModel" | "ChatGLMForConditionalGeneration" => {
                let other_form = |key| config.refuse(key, "unknown_layer", "this form is not known here");
                for key in ["post_layer_norm", "rmsnorm"] {
                    if !config.flag(&[key], true) {
                        other_form(key);
                    }
                }
                if config.value(&["vision_config"]).is_some() {
                    other_form("vision_config");
                }
                let bias = config.flag(&["add_bias_linear"], false);
                Self {
                    qkv_bias: bias || config.flag(&["add_qkv_bias"], false),
                    out_bias: bias,
                    mlp_bias: bias,
                    windows: Windows::Never,
                    everywhere: EVERYWHERE,
                    half_turned: true,
                    ..llama
                }
            }
            "OrionForCausalLM" => {
                Self { norm_bias: true, windows: Windows::Never, everywhere: EVERYWHERE, ..llama }
            }
            "NemotronForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                gated: false,
                norm_bias: true,
                windows: Windows::Never,
                ..llama
            },
            "Ernie4_5ForCausalLM" => Self {
                qkv_bias: config.flag(&["use_bias"], false),
                out_bias: config.flag(&["use_bias"], false),
                mlp_bias: config.flag(&["use_bias"], false),
                tied: true,
                ..llama
            },
            "ApertusForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                gated: false,
                qk_norm: QkNorm::Head,
                learned_activation: true,
                windows: Windows::Never,
                ..llama
            },
            "OlmoForCausalLM" => Self { norms: &[], transformers: true, ..llama },
            "Olmo2ForCausalLM" | "Olmo3ForCausalLM" => Self {
                norms: AFTER,
                qk_norm: QkNorm::All,
                transformers: true,
                windows: Windows::Pattern { default: 4, plus: 0 },
                ..llama
            },
            "SeedOssForCausalLM" => Self {
                qkv_bias: attention_bias(true),
                out_bias: config.flag(&["attention_out_bias"], false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                transformers: true,
                ..llama
            },
            "SmolLM3ForCausalLM" | "HunYuanDenseV1ForCausalLM" | "NanbeigeForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                qk_norm: if context.architecture == "HunYuanDenseV1ForCausalLM" {
                    QkNorm::Head
                } else {
                    QkNorm::None
                },
                transformers: true,
                windows: Windows::Flagged,
                ..llama
            },
            "Jais2ForCausalLM" => Self {
                qkv_bias: attention_bias(true),
                out_bias: attention_bias(true),
                mlp_bias: config.flag(&["mlp_bias"], true),
                gated: false,
                norm_bias: true,
                transformers: true,
                windows: Windows::Never,
                ..llama
            },
            "HyperCLOVAXForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                norms: if config.flag(&["use_post_norm"], false) { FOUR } else { TWO },
                windows: Windows::Never,
                ..llama
            },
            "VaultGemmaForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                tied: true,
                transformers: true,
                ..llama
            },
            "CwmForCausalLM" => Self { transformers: true, ..llama },
            "ArceeForCausalLM" => Self {
                qkv_bias: attention_bias(false),
                out_bias: attention_bias(false),
                mlp_bias: config.flag(&["mlp_bias"], false),
                gated: false,
                transformers: true,
                windows: Windows::Never,
                ..llama
            },
            "Starcoder2ForCausalLM" => {
                let bias = config.flag(&["use_bias"], true);
                Self {
                    qkv_bias: bias,
                    out_bias: bias,
                    mlp_bias: bias,
                    gated: false,
                    norm_bias: true,
                    tied: true,
                    transformers: true,
                    ..llama
                }
            }
            _ => return None,
        })
    }
}

/// Granite's windows: only where the file lists kinds of layers (`models/granite.py`).
pub fn granite_windows(context: &Context<'_>) -> Windows {
    if context.config.value(&["layer_types"]).is_some() { Windows::Listed } else { Windows::Never }
}

/// Granite's sinks: with a list of kinds, unless the file says otherwise (`models/granite.py`).
pub fn granite_sinks(context: &Context<'_>) -> bool {
    context.config.flag(&["attention_sinks"], context.config.value(&["layer_types"]).is_some())
}

/// Token table, final norm and head.
pub const EVERYWHERE: &[&str] = &["embed_tokens", "norm", "lm_head"];

/// Read a dense decoder.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    let style = Style::of(context)?;
    let config = context.config;
    let base = Attention {
        qkv_bias: style.qkv_bias,
        out_bias: style.out_bias,
        qk_norm: style.qk_norm,
        ..Attention::of(context)
    };
    let width = config.size(&["intermediate_size", "n_inner", "ffn_hidden_size"]);
    let width = if style.joint_width { width / 2 } else { width };
    let layers = context.layers();
    let reaches = reaches(context, style.windows, layers);
    let full_rope = Rope::of(context, base.head, Some("full_attention"));
    let local_rope = Rope::of(context, base.head, Some("sliding_attention"));
    let full_rope = if style.axes { full_rope.with_axes(context) } else { full_rope };
    let full_rope = if style.half_turned {
        let head = base.head;
        let base = 10_000.0 * config.real(&["rope_ratio"]).unwrap_or(1.0);
        Rope { features: head / 2, positions: context.positions(), base }
    } else {
        full_rope
    };
    // Gemma 3's class turns windows by a base of their own where the file has one set of positions for all layers
    let own_base = context.architecture.starts_with("Gemma3") && !config.has(&["rope_parameters"]);
    let local_base = config.real(&["rope_local_base_freq"]).or_else(|| own_base.then_some(10_000.0));
    let local_rope =
        local_base.map_or(local_rope, |base| Rope { base, positions: context.positions(), ..local_rope });
    let mut stack = Stack::default();
    let mut alike = Alike::default();
    for (index, reach) in reaches.into_iter().enumerate() {
        stack.push_alike(&mut alike, reach, context.layer(index), |mut layer| {
            name_layer(&mut layer, reach);
            Attention { reach, ..base }.build(&mut layer, "self_attn");
            if style.sinks {
                base.sinks(&mut layer);
            }
            layer.mlp("mlp", base.hidden, width, style.gated, style.mlp_bias);
            if style.learned_activation {
                layer.norm("mlp.act_fn", 2);
                // and two that stay as they are, in the model's format
                layer.own_buffer(layer.dtype().bytes().saturating_mul(2));
            }
            for norm in style.norms {
                layer.layer_norm(norm, base.hidden, style.norm_bias);
            }
            let rope = if matches!(reach, Reach::Sliding { .. }) { local_rope } else { full_rope };
            if style.slopes {
                // the slopes are numbers of the program, no tensor
            } else if style.transformers {
                inverse_frequencies(&mut layer, rope);
            } else {
                rope_buffer(&mut layer, rope);
            }
            if context.architecture.contains("Gemma") {
                // the factor on token vectors, one number
                layer.shared_buffer("normalizer".to_owned(), layer.dtype().bytes());
            }
            layer
        });
    }
    let final_norm = match (style.norms.is_empty(), style.norm_bias) {
        (true, _) => FinalNorm::None,
        (false, true) => FinalNorm::Layer { bias: true },
        (false, false) => FinalNorm::Rms,
    };
    let tied = context.tied(style.tied);
    let mut body = context.body(stack, tied, final_norm);
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    Some(body.everywhere(style.everywhere))
}
