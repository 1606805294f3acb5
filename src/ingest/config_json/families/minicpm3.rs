//! MiniCPM3: keys and values come from a latent, but the engine's class caches them by head.

use super::super::build::Stack;
use super::dense::EVERYWHERE;
use super::mla::Latent;
use super::reach::name_layer;
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::cache::Reach;
use crate::planner::model::ledger::{Part, Role};

/// Read a decoder of this family (`models/minicpm3.py`).
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    (context.architecture == "MiniCPM3ForCausalLM").then(|| build(context))
}

fn build<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    if config.opt(&["num_experts"]).is_some_and(|n| n > 0) {
        config.refuse("num_experts", "unknown_layer", "experts of this architecture are not known here");
    }
    let layers = context.layers();
    let Latent { hidden, heads, nope, rope, value, q_rank, kv_rank, .. } = Latent::of(context);
    let head = nope.saturating_add(rope);
    // values are padded to the size of keys, and every query head has its own
    let cached = Attention {
        hidden,
        heads,
        kv_heads: heads,
        head,
        value_head: head,
        qkv_bias: false,
        out_bias: false,
        qk_norm: QkNorm::None,
        gate: false,
        reach: Reach::Full,
    };
    let table = Rope::of(context, rope, None);
    let width = config.size(&["intermediate_size"]);
    let (wide, queries) = (Part::whole(hidden), [Part::units(heads, head, "query heads")]);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        name_layer(&mut layer, Reach::Full);
        if q_rank > 0 {
            layer.linear(Role::Attention, "self_attn.q_a_proj", &[Part::whole(q_rank)], wide, false);
            layer.norm("q_a_layernorm", q_rank);
            layer.linear(Role::Attention, "self_attn.q_b_proj", &queries, Part::whole(q_rank), false);
        } else {
            layer.linear(Role::Attention, "self_attn.q_proj", &queries, wide, false);
        }
        let latent = [Part::whole(kv_rank.saturating_add(rope))];
        layer.linear(Role::KvProjection, "self_attn.kv_a_proj_with_mqa", &latent, wide, false);
        layer.norm("kv_a_layernorm", kv_rank);
        let both = [Part::units(heads, nope.saturating_add(value), "query heads")];
        layer.linear(Role::KvProjection, "self_attn.kv_b_proj", &both, Part::whole(kv_rank), false);
        let out = Part::units(heads, value, "query heads");
        layer.linear(Role::Attention, "self_attn.o_proj", &[wide], out, false);
        cached.cache(&mut layer);
        layer.mlp("mlp", hidden, width, true, false);
        layer.norm("input_layernorm", hidden);
        layer.norm("post_attention_layernorm", hidden);
        rope_buffer(&mut layer, table);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(true), FinalNorm::Rms);
    body.query_heads = heads;
    body.kv_heads = heads;
    body.head_size = head;
    body.everywhere(EVERYWHERE)
}
