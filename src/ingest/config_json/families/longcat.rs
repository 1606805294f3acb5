//! LongCat-Flash: two latent attentions and two dense blocks a layer beside one mixture, some of whose experts hold nothing.

use super::super::build::{Experts as Stacked, Stack};
use super::mla::Latent;
use super::moe::EXPERTS_PER_TOKEN;
use super::{Body, Context, FinalNorm, Rope, rope_buffer};
use crate::planner::model::Experts;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role};

/// Read a decoder of this family (`models/longcat_flash.py`).
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    (context.architecture == "LongcatFlashForCausalLM").then(|| build(context))
}

fn build<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    for key in ["quantization_config", "disable_quant_module"] {
        if config.value(&[key]).is_some_and(|(value, _)| !value.as_array().is_some_and(Vec::is_empty)) {
            config.refuse(
                key,
                "unknown_quantisation",
                "which modules a quantised checkpoint of this architecture leaves alone is not known here",
            );
        }
    }
    let layers = context.layers();
    let latent = Latent::of(context);
    let rope = Rope::of(context, latent.rope, None);
    let width = config.size(&["ffn_hidden_size", "intermediate_size"]);
    let experts = Stacked {
        count: config.size(&["n_routed_experts"]),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: latent.hidden,
        width: config.opt_size(&["moe_intermediate_size", "expert_ffn_hidden_size"]).unwrap_or(width),
        gated: true,
        bias: false,
    };
    let choices = [Part::whole(experts.count.saturating_add(config.size_or(&["zero_expert_num"], 0)))];
    let router_bias = config.flag(&["router_bias"], false);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        layer.name = "double_mla+moe".to_owned();
        let router = if config.text(&["router_dtype"]).unwrap_or("float32") == "float32" {
            Dtype::Fp32
        } else {
            layer.dtype()
        };
        for _ in 0..2 {
            latent.build(&mut layer);
            // loading leaves a second copy of this projection, cut into keys' and values' parts
            let split = [Part::units(latent.heads, latent.nope.saturating_add(latent.value), "query heads")];
            let rank = Part::whole(latent.kv_rank);
            layer.plain_linear(Role::KvProjection, "self_attn.w_kc_w_vc", &split, rank, false);
            layer.duplicate_last();
            layer.mlp("mlps", latent.hidden, width, true, false);
            layer.norm("input_layernorm", latent.hidden);
            layer.norm("post_attention_layernorm", latent.hidden);
        }
        layer.typed_linear(
            Role::Router,
            "mlp.router.classifier",
            &choices,
            Part::whole(latent.hidden),
            router,
        );
        if router_bias {
            layer.typed_vector(Role::Router, "mlp.router.classifier.bias", &choices, router);
        }
        layer.score_correction(&choices, router);
        layer.experts("mlp.experts", experts);
        rope_buffer(&mut layer, rope);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = latent.heads;
    body.kv_heads = config.opt_size(&["num_key_value_heads"]).unwrap_or(latent.heads);
    body.head_size = latent.kv_rank.saturating_add(latent.rope);
    body.mla = true;
    body.experts = Some(Experts { routed: experts.count, per_token: experts.per_token, shared: 0 });
    body
}
