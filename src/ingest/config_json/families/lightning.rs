//! Lightning attention with softmax attention on some layers: MiniMax Text-01 and M1.

use super::super::build::{Experts as Stacked, Stack};
use super::linear::linear_layers;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN};
use super::{Attention, Body, Context, FinalNorm, Rope, rope_buffer};
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};

/// Read a decoder with lightning attention.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    matches!(context.architecture, "MiniMaxM1ForCausalLM" | "MiniMaxText01ForCausalLM" | "MiniMaxForCausalLM")
        .then(|| build(context))
}

/// MiniMax Text-01 and M1: lightning attention, with softmax attention on some layers; experts everywhere.
fn build<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let attention = Attention::of(context);
    let hidden = attention.hidden;
    let is_linear: Vec<bool> = match config.per_layer(&["attn_type_list"], layers) {
        Some(kinds) => kinds.iter().take(layers).map(|kind| *kind == 0).collect(),
        None => linear_layers(context, layers, 8),
    };
    let experts = Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden,
        width: config.size(&["intermediate_size"]),
        gated: true,
        bias: false,
    };
    let shared = config.size_or(&["shared_intermediate_size"], 0);
    let rope = Rope::of(context, attention.head, None);
    let wide = Part::units(attention.heads, attention.head, "query heads");
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        if is_linear.get(index).copied().unwrap_or(false) {
            layer.name = "lightning_attention+moe".to_owned();
            layer.linear(
                Role::StateMixer,
                "self_attn.qkv_proj",
                &[wide, wide, wide],
                Part::whole(hidden),
                false,
            );
            layer.linear(Role::StateMixer, "self_attn.output_gate", &[wide], Part::whole(hidden), false);
            layer.linear(Role::StateMixer, "self_attn.out_proj", &[Part::whole(hidden)], wide, false);
            layer.vector(Role::Norm, "self_attn.norm", &[wide]);
            layer.caches.push(LayerCache::State(State {
                kind: StateKind::Lightning { heads: attention.heads, head_dim: attention.head },
                conv_dtype: Dtype::Fp32,
                state_dtype: Dtype::Fp32,
            }));
        } else {
            layer.name = "full_attention+moe".to_owned();
            attention.build(&mut layer, "self_attn");
            rope_buffer(&mut layer, rope);
        }
        layer.typed_linear(
            Role::Router,
            "gate",
            &[Part::whole(experts.count)],
            Part::whole(hidden),
            layer.dtype(),
        );
        layer.experts("block_sparse_moe.experts", experts);
        if shared > 0 {
            layer.mlp_shared("shared_mlp", hidden, shared, true, false, Some(Sharing::Tensor));
            layer.plain_linear(Role::Router, "coefficient", &[Part::whole(1)], Part::whole(hidden), false);
        }
        layer.norm("input_layernorm", hidden);
        layer.norm("post_attention_layernorm", hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = Some(crate::planner::model::Experts {
        routed: experts.count,
        per_token: experts.per_token,
        shared: u64::from(shared > 0),
    });
    body
}
