//! Decoders whose layers differ in size: NAS models, MiMo V2, Gemma 4.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::super::reader::Config;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list};
use super::reach::{layer_types, name_layer};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer, vocabulary_rows};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::Reach;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, round_up};

/// Read a decoder with layers of different sizes.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    match context.architecture {
        "DeciLMForCausalLM" => Some(nas(context)),
        "MiMoV2FlashForCausalLM" | "MiMoV2ForCausalLM" => Some(mimo(context)),
        "Gemma4ForCausalLM" | "Gemma4ForConditionalGeneration" => Some(gemma(context)),
        _ => None,
    }
}

/// One entry of `block_configs`.
struct Block {
    /// KV heads, `None` without attention.
    kv_heads: Option<u64>,
    /// Feed-forward width, `None` without one.
    width: Option<u64>,
}

/// The width that a multiplier stands for: two thirds of it, up to a multiple of 256.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a width below 2^24 times a multiplier up to 64 is exact enough and fits"
)]
fn multiplied_width(multiplier: f64, hidden: u64) -> u64 {
    round_up((2.0 * multiplier * hidden as f64 / 3.0) as u64, 256)
}

fn blocks(context: &Context<'_>, heads: u64, layers: usize) -> Vec<Block> {
    let config = context.config;
    let Some(entries) = config.list(&["block_configs"]) else {
        config.refuse("block_configs", "missing", "`block_configs` is required to know the layers");
        return Vec::new();
    };
    if entries.len() < layers {
        config.refuse(
            "block_configs",
            "out_of_range",
            format!("expected an entry for each of {layers} layers, got {}", entries.len()),
        );
        return Vec::new();
    }
    let hidden = context.hidden();
    (0..layers)
        .map(|index| {
            let Some(entry) = config.element("block_configs", index) else {
                config.refuse("block_configs", "wrong_type", format!("entry {index} is no object"));
                return Block { kv_heads: None, width: None };
            };
            Block { kv_heads: attention_of(&entry, heads), width: width_of(&entry, hidden) }
        })
        .collect()
}

/// KV heads of an entry's attention.
fn attention_of(entry: &Config<'_>, heads: u64) -> Option<u64> {
    let attention = entry.section("attention", false)?;
    if attention.flag(&["replace_with_linear"], false) {
        attention.refuse(
            "replace_with_linear",
            "unknown_layer",
            "attention replaced with a linear layer is not known to the engine's class",
        );
    }
    if attention.flag(&["no_op"], false) {
        return None;
    }
    let group = attention.size(&["n_heads_in_group"]);
    heads.checked_div(group)
}

/// Feed-forward width of an entry.
fn width_of(entry: &Config<'_>, hidden: u64) -> Option<u64> {
    let ffn = entry.section("ffn", false)?;
    if ffn.flag(&["replace_with_linear"], false) {
        ffn.refuse(
            "replace_with_linear",
            "unknown_layer",
            "a feed-forward block replaced with a linear layer is not known to the engine's class",
        );
    }
    if ffn.flag(&["no_op"], false) {
        return None;
    }
    match ffn.real(&["ffn_mult"]).filter(|m| (0.0..=64.0).contains(m)) {
        Some(multiplier) => Some(multiplied_width(multiplier, hidden)),
        None => Some(ffn.size(&["intermediate_size", "ffn_mult"])),
    }
}

fn nas<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let bias = config.flag(&["attention_bias"], false) || config.flag(&["bias"], false);
    let base = Attention {
        qkv_bias: config.opt_flag(&["qkv_bias"]).unwrap_or(bias),
        out_bias: bias,
        ..Attention::of(context)
    };
    let mlp_bias = config.flag(&["mlp_bias"], false);
    let rope = Rope::of(context, base.head, None);
    let mut stack = Stack::default();
    let mut kv_heads = 0;
    for (index, block) in blocks(context, base.heads, layers).into_iter().enumerate() {
        let mut layer = context.layer(index);
        layer.name = "no_attention".to_owned();
        if let Some(own) = block.kv_heads {
            kv_heads = kv_heads.max(own);
            name_layer(&mut layer, Reach::Full);
            Attention { kv_heads: own, ..base }.build(&mut layer, "self_attn");
            layer.norm("input_layernorm", base.hidden);
            rope_buffer(&mut layer, rope);
        }
        if let Some(width) = block.width {
            layer.mlp("mlp", base.hidden, width, true, mlp_bias);
            layer.norm("post_attention_layernorm", base.hidden);
        }
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = base.heads;
    body.kv_heads = kv_heads;
    body.head_size = base.head;
    body
}

fn mimo<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let base = Attention::of(context);
    let bias = config.flag(&["attention_bias"], false);
    let full = Attention {
        value_head: config.opt_size(&["v_head_dim"]).unwrap_or(base.head),
        qkv_bias: bias,
        ..base
    };
    let window = config.size(&["sliding_window_size", "sliding_window"]);
    let swa_head = config.opt_size(&["swa_head_dim"]).unwrap_or(base.head);
    let local = Attention {
        heads: config.opt_size(&["swa_num_attention_heads"]).unwrap_or(base.heads),
        kv_heads: config.opt_size(&["swa_num_key_value_heads"]).unwrap_or(base.kv_heads),
        head: swa_head,
        value_head: config.opt_size(&["swa_v_head_dim"]).unwrap_or(swa_head),
        reach: Reach::Sliding { window },
        ..full
    };
    let pattern = config.per_layer(&["hybrid_layer_pattern"], layers).unwrap_or_else(|| vec![0; layers]);
    let (local_sinks, full_sinks) = (
        config.flag(&["add_swa_attention_sink_bias"], false),
        config.flag(&["add_full_attention_sink_bias"], false),
    );
    let sparse = by_list(context, layers);
    let width = config.size(&["intermediate_size"]);
    let mixture = Mixture {
        experts: Stacked {
            count: config.size(EXPERT_COUNT),
            per_token: config.size(EXPERTS_PER_TOKEN),
            hidden: base.hidden,
            width: config.size(&["moe_intermediate_size"]),
            gated: true,
            bias: false,
        },
        router_fp32: config.text(&["moe_router_dtype"]).unwrap_or("float32") == "float32",
        router_bias: false,
        router_quantised: false,
        correction: Some(Dtype::Fp32),
        shared_width: 0,
        shared_gate: false,
        sequence_parallel: true,
    };
    let full_rope = Rope::of(context, full.head, None);
    let local_rope = Rope {
        base: config.real(&["swa_rope_theta"]).unwrap_or(full_rope.base),
        ..Rope::of(context, local.head, None)
    };
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        let slides = pattern.get(index).is_some_and(|n| *n == 1);
        let (attention, rope, sinks) =
            if slides { (local, local_rope, local_sinks) } else { (full, full_rope, full_sinks) };
        name_layer(&mut layer, attention.reach);
        attention.build(&mut layer, "self_attn");
        if sinks {
            layer.vector(
                Role::Attention,
                "self_attn.attention_sink_bias",
                &[Part::units(attention.heads, 1, "query heads")],
            );
        }
        if sparse.get(index).copied().unwrap_or(true) {
            layer.name.push_str("+moe");
            mixture.build(&mut layer, "mlp", "mlp.gate", "shared_experts");
        } else {
            layer.mlp("mlp", base.hidden, width, true, false);
        }
        layer.norm("input_layernorm", base.hidden);
        layer.norm("post_attention_layernorm", base.hidden);
        rope_buffer(&mut layer, rope);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = full.heads;
    body.kv_heads = full.kv_heads;
    body.head_size = full.head;
    body.experts = Some(mixture.summary());
    body.limits = ClassLimits { ranks_within_experts: true, ..ClassLimits::default() };
    body
}

/// Gemma 4's attention: layers near the end may use an earlier layer's cache, and keys may serve as values.
pub(super) struct GemmaAttention {
    pub attention: Attention,
    pub shares_cache: bool,
    pub keys_are_values: bool,
}

impl GemmaAttention {
    pub fn build(&self, layer: &mut Layer<'_>) {
        let Attention { hidden, heads, kv_heads, head, qkv_bias, .. } = self.attention;
        let (wide, queries) = (Part::whole(hidden), Part::units(heads, head, "query heads"));
        let kv = Part::heads(kv_heads, head, "KV heads");
        if self.shares_cache {
            layer.linear(Role::Attention, "self_attn.q_proj", &[queries], wide, qkv_bias);
            layer.query_heads = heads;
            layer.own_buffer(16);
        } else {
            if self.keys_are_values {
                // the engine keeps the keys' projection a second time as that of the values
                layer.linear(Role::Attention, "self_attn.qkv_proj", &[queries, kv], wide, qkv_bias);
                layer.linear(Role::KvProjection, "self_attn.v_proj", &[kv], wide, qkv_bias);
                layer.duplicate_last();
            } else {
                layer.linear(Role::Attention, "self_attn.qkv_proj", &[queries, kv, kv], wide, qkv_bias);
            }
            layer.norm("k_norm", head);
            self.attention.cache(layer);
        }
        layer.norm("q_norm", head);
        layer.linear(Role::Attention, "self_attn.o_proj", &[wide], queries, false);
        if self.attention.out_bias {
            layer.vector(Role::Attention, "self_attn.o_proj.bias", &[wide]);
        }
    }
}

/// Gemma 4's router and experts beside the dense block, with their three norms.
fn gemma_experts(layer: &mut Layer<'_>, experts: Stacked) {
    let outputs = [Part::whole(experts.count)];
    layer.vector(Role::Router, "router.scale", &[Part::whole(experts.hidden)]);
    layer.vector(Role::Router, "router.per_expert_scale", &outputs);
    layer.typed_linear(Role::Router, "router.proj", &outputs, Part::whole(experts.hidden), layer.dtype());
    layer.experts("experts", experts);
    for name in
        ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
    {
        layer.norm(name, experts.hidden);
    }
}

fn gemma<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let bias = config.flag(&["attention_bias"], false);
    let base = Attention { qkv_bias: bias, out_bias: bias, qk_norm: QkNorm::Head, ..Attention::of(context) };
    let equal = config.flag(&["attention_k_eq_v"], false);
    let global_heads =
        config.opt_size(&["num_global_key_value_heads"]).filter(|_| equal).unwrap_or(base.kv_heads);
    let global_head = config.opt_size(&["global_head_dim"]).unwrap_or(base.head);
    let window = config.size(&["sliding_window"]);
    let kinds = layer_types(context, layers).unwrap_or_else(|| {
        config.refuse("layer_types", "missing", "`layer_types` is required to know the layers");
        Vec::new()
    });
    let shared = usize::try_from(config.size_or(&["num_kv_shared_layers"], 0)).unwrap_or(0);
    let own = layers.saturating_sub(shared);
    let double = config.flag(&["use_double_wide_mlp"], false);
    let width = config.size(&["intermediate_size"]);
    let with_experts = config.flag(&["enable_moe_block"], false);
    let experts = with_experts.then(|| Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: base.hidden,
        width: config.size(&["moe_intermediate_size", "expert_intermediate_size"]),
        gated: true,
        bias: false,
    });
    let per_layer = config.opt(&["hidden_size_per_layer_input"]).unwrap_or(0);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        let slides = kinds.get(index) == Some(&"sliding_attention");
        let attention = if slides {
            Attention { reach: Reach::Sliding { window }, ..base }
        } else {
            Attention { kv_heads: global_heads, head: global_head, value_head: global_head, ..base }
        };
        name_layer(&mut layer, attention.reach);
        let shares_cache = shared > 0 && index >= own;
        if shares_cache {
            layer.name.push_str("+shared_cache");
        }
        GemmaAttention { attention, shares_cache, keys_are_values: equal && !slides }.build(&mut layer);
        let factor = if double && shares_cache { 2 } else { 1 };
        layer.mlp("mlp", base.hidden, width.saturating_mul(factor), true, false);
        for name in [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ] {
            layer.norm(name, base.hidden);
        }
        if let Some(experts) = experts {
            layer.name.push_str("+moe");
            gemma_experts(&mut layer, experts);
        }
        if per_layer > 0 {
            let (wide, narrow) = (Part::whole(base.hidden), Part::whole(per_layer));
            layer.linear(Role::DenseFeedForward, "per_layer_input_gate", &[narrow], wide, false);
            layer.linear(Role::DenseFeedForward, "per_layer_projection", &[wide], narrow, false);
            layer.norm("post_per_layer_input_norm", base.hidden);
        }
        // a scale of the layer, and one of its router
        let scalars = if experts.is_some() { 2 } else { 1 };
        layer.own_buffer(layer.dtype().bytes().saturating_mul(scalars));
        // the full layers' table spans the whole head whatever part of it turns
        let kind = if slides { "sliding_attention" } else { "full_attention" };
        let rope = Rope { features: attention.head, ..Rope::of(context, attention.head, Some(kind)) };
        rope_buffer(&mut layer, rope);
        layer.shared_buffer("normalizer".to_owned(), layer.dtype().bytes());
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(true), FinalNorm::Rms);
    if per_layer > 0 {
        let all = per_layer.saturating_mul(u64::try_from(layers).unwrap_or(u64::MAX));
        let rows = config.opt_size(&["vocab_size_per_layer_input"]).unwrap_or(body.vocabulary);
        body.head.table(Role::Embedding, "embed_tokens_per_layer", vocabulary_rows(rows), Part::whole(all));
        let outputs = [Part::even(all, "per-layer input size")];
        body.head.linear(
            Role::DenseFeedForward,
            "per_layer_model_projection",
            &outputs,
            Part::whole(base.hidden),
            false,
        );
        body.head.norm("per_layer_projection_norm", per_layer);
        // three scales of embeddings
        let bytes = body.head.dtype().bytes().saturating_mul(3);
        body.head.own_buffer(bytes);
    }
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    body.experts = experts.map(|experts| crate::planner::model::Experts {
        routed: experts.count,
        per_token: experts.per_token,
        shared: 0,
    });
    body.everywhere(&[
        "embed_tokens",
        "embed_tokens_per_layer",
        "per_layer_model_projection",
        "per_layer_projection_norm",
        "norm",
        "lm_head",
    ])
}
