//! Step-3: queries of low rank over one KV head. Step-3.5: window layers with more query heads than the others, a gate for each
//! head. Both have experts from a listed layer on.

use super::super::build::{Experts as Stacked, Stack};
use super::super::reader::{Config, MAX_SIZE};
use super::moe::Mixture;
use super::reach::{layer_types, name_layer};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::Reach;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role};

/// Read a decoder of this family (`models/step3p5.py`).
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    match context.architecture {
        "Step3p5ForCausalLM" => Some(build(context)),
        "Step3TextForCausalLM" => Some(low_rank(context)),
        _ => None,
    }
}

/// Step-3's decoder (`models/step3_text.py`): every rank makes the low-rank queries, the key and the value; `wq` deals heads out.
fn low_rank<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let base = Attention { kv_heads: 1, ..Attention::of(context) };
    // the class takes a rank of 0 as none
    let rank = config.opt(&["share_q_dim"]).filter(|n| *n > 0).unwrap_or(base.head);
    let mixture = Mixture { router_fp32: false, correction: None, ..mixture(context, base.hidden) };
    let sparse = sparse_layers(config, layers);
    let width = config.size(&["intermediate_size"]);
    let hidden = Part::whole(base.hidden);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        name_layer(&mut layer, Reach::Full);
        let outputs = [Part::whole(rank), Part::whole(base.head), Part::whole(base.head)];
        layer.linear(Role::Attention, "self_attn.qkv_proj", &outputs, hidden, false);
        layer.norm("self_attn.inter_norm", rank);
        let heads = || Part::units(base.heads, base.head, "query heads");
        layer.linear(Role::Attention, "self_attn.wq", &[heads()], Part::whole(rank), false);
        layer.linear(Role::Attention, "self_attn.o_proj", &[hidden], heads(), false);
        base.cache(&mut layer);
        if sparse.get(index).copied().unwrap_or(false) {
            layer.name.push_str("+moe");
            mixture.build(&mut layer, "moe", "moe.gate", "share_expert");
        } else {
            layer.mlp("mlp", base.hidden, width, true, false);
        }
        layer.norm("input_layernorm", base.hidden);
        layer.norm("post_attention_layernorm", base.hidden);
        rope_buffer(&mut layer, Rope::of(context, base.head, None));
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    body.experts = Some(mixture.summary());
    body.limits = ClassLimits { ranks_within_experts: true, ..ClassLimits::default() };
    body
}

/// Attention of the layers whose type `attention_other_setting` names, and of all others.
fn attentions<'c>(context: &Context<'c>) -> (Attention, Option<(&'c str, Attention)>) {
    let config = context.config;
    let base = Attention {
        kv_heads: config.size(&["num_attention_groups"]),
        qkv_bias: config.flag(&["attention_bias"], false),
        qk_norm: QkNorm::Head,
        ..Attention::of(context)
    };
    let other = config.section("attention_other_setting", false).and_then(|other| {
        let head = other.size(&["head_dim"]);
        let attention = Attention {
            heads: other.size(&["num_attention_heads"]),
            kv_heads: other.size(&["num_attention_groups"]),
            head,
            value_head: head,
            ..base
        };
        Some((other.text(&["attention_type"])?, attention))
    });
    (base, other)
}

/// Which layers have experts: a list in a text, else all but the first.
fn sparse_layers(config: &Config<'_>, layers: usize) -> Vec<bool> {
    let Some(text) = config.text(&["moe_layers_enum"]) else {
        return (0..layers).map(|index| index > 0).collect();
    };
    let mut sparse = vec![false; layers];
    for entry in text.split(',') {
        match entry.trim().parse::<usize>() {
            Ok(index) => {
                if let Some(one) = sparse.get_mut(index) {
                    *one = true;
                }
            }
            Err(_) => {
                config.refuse(
                    "moe_layers_enum",
                    "wrong_type",
                    "expected numbers of layers with commas between",
                );
                return sparse;
            }
        }
    }
    sparse
}

/// A number for this layer: an entry of a list, or one number for all.
fn real_at(config: &Config<'_>, name: &str, index: usize, default: f64) -> f64 {
    match config.value(&[name]) {
        Some((value, _)) if value.is_array() => match config.list(&[name]) {
            Some([]) | None => default,
            Some(list) => list.get(index).and_then(serde_json::Value::as_f64).unwrap_or_else(|| {
                config.refuse(name, "out_of_range", format!("expected a number for layer {index}"));
                default
            }),
        },
        Some(_) => config.real(&[name]).unwrap_or(default),
        None => default,
    }
}

/// Numbers that a token turns in a head: all of them or half, and no other part (the class asserts it).
fn turned(config: &Config<'_>, index: usize, head: u64) -> u64 {
    let factor = real_at(config, "partial_rotary_factors", index, 1.0);
    if factor >= 1.0 { head } else { head / 2 }
}

fn mixture(context: &Context<'_>, hidden: u64) -> Mixture {
    let config = context.config;
    Mixture {
        experts: Stacked {
            count: config.size(&["moe_num_experts"]),
            per_token: config.size(&["moe_top_k"]),
            hidden,
            width: config.size(&["moe_intermediate_size"]),
            gated: true,
            bias: false,
        },
        router_fp32: true,
        router_bias: false,
        router_quantised: false,
        correction: Some(Dtype::Fp32),
        shared_width: config.size(&["share_expert_dim"]),
        shared_gate: false,
        sequence_parallel: false,
    }
}

fn build<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let (base, other) = attentions(context);
    let kinds = layer_types(context, layers);
    let window = config.opt_within(&["sliding_window"], MAX_SIZE).filter(|n| *n > 0);
    let mixture = mixture(context, base.hidden);
    let sparse = sparse_layers(config, layers);
    let width = config.size(&["intermediate_size"]);
    let gated = config.flag(&["use_head_wise_attn_gate"], false);
    let scaled_only = config.texts(&["yarn_only_types"]).unwrap_or_default();
    let mut stack = Stack::default();
    for index in 0..layers {
        let kind = kinds.as_ref().and_then(|kinds| kinds.get(index).copied());
        // without a list every second layer has the window, from the first
        let slides = kind.map_or(index % 2 == 0, |kind| kind == "sliding_attention");
        let reach = match window {
            Some(window) if slides => Reach::Sliding { window },
            _ => Reach::Full,
        };
        let own = other.filter(|(of, _)| kind == Some(*of)).map_or(base, |(_, attention)| attention);
        let attention = Attention { reach, ..own };
        let mut layer = context.layer(index);
        name_layer(&mut layer, reach);
        attention.build(&mut layer, "self_attn");
        let hidden = Part::whole(base.hidden);
        if gated {
            let gates = [Part::units(attention.heads, 1, "query heads")];
            layer.linear(Role::Attention, "self_attn.g_proj", &gates, hidden, false);
        }
        if sparse.get(index).copied().unwrap_or(false) {
            layer.name.push_str("+moe");
            mixture.build(&mut layer, "moe", "moe.gate", "share_expert");
        } else {
            layer.mlp("mlp", base.hidden, width, true, false);
        }
        layer.norm("input_layernorm", base.hidden);
        layer.norm("post_attention_layernorm", base.hidden);
        let scaled = scaled_only.is_empty() || kind.is_some_and(|kind| scaled_only.contains(&kind));
        rope_buffer(
            &mut layer,
            Rope {
                features: turned(config, index, attention.head),
                positions: if scaled { Rope::table_positions(context) } else { context.positions() },
                base: real_at(config, "rope_theta", index, 10_000.0),
            },
        );
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    body.experts = Some(mixture.summary());
    body.limits = ClassLimits { ranks_within_experts: true, ..ClassLimits::default() };
    body
}
