//! Gemma 3n: several streams of which one passes through a layer, low-rank shortcuts, inputs of each layer's own, and layers near the
//! end that use earlier caches (vLLM `models/gemma3n.py`).

use super::super::build::{Layer, Stack};
use super::reach::layer_types;
use super::varied::GemmaAttention;
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer, vocabulary_rows};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::Reach;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role};

/// Mixing of the streams around a layer.
fn alternating_updates(layer: &mut Layer<'_>, hidden: u64, streams: u64) {
    let (wide, inputs) = (Part::whole(hidden), Part::whole(streams));
    layer.linear(Role::DenseFeedForward, "altup.correction_coefs", &[inputs], inputs, false);
    let pairs = [Part::whole(streams.saturating_mul(streams))];
    layer.linear(Role::DenseFeedForward, "altup.prediction_coefs", &pairs, inputs, false);
    layer.linear(Role::DenseFeedForward, "altup.modality_router", &[inputs], wide, false);
    layer.norm("altup.router_norm", hidden);
    layer.typed_vector(Role::Norm, "altup.correct_output_scale", &[wide], Dtype::Fp32);
    layer.own_buffer(layer.dtype().bytes());
}

/// A product of low rank beside attention.
fn shortcut(layer: &mut Layer<'_>, hidden: u64, rank: u64) {
    let (wide, rank) = (Part::whole(hidden), Part::even(rank, "laurel rank"));
    layer.linear(Role::DenseFeedForward, "laurel.linear_left", &[rank], wide, false);
    layer.linear(Role::DenseFeedForward, "laurel.linear_right", &[wide], rank, false);
    layer.norm("laurel.post_laurel_norm", hidden);
}

const NORMS: &[&str] = &[
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_per_layer_input_norm",
];

/// Read Gemma 3n's decoder.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    if context.architecture != "Gemma3nForCausalLM" {
        return None;
    }
    let config = context.config;
    let layers = context.layers();
    let bias = config.flag(&["attention_bias"], false);
    let base = Attention { qkv_bias: bias, out_bias: bias, qk_norm: QkNorm::Head, ..Attention::of(context) };
    let window = config.size(&["sliding_window"]);
    let kinds = layer_types(context, layers);
    let slides = |index: usize| match &kinds {
        Some(kinds) => kinds.get(index) == Some(&"sliding_attention"),
        // the class's own pattern: every fifth layer looks everywhere
        None => !index.saturating_add(1).is_multiple_of(5),
    };
    let widths = config
        .per_layer(&["intermediate_size"], layers)
        .unwrap_or_else(|| vec![config.opt_size(&["intermediate_size"]).unwrap_or(16_384); layers]);
    let shared = usize::try_from(config.size_or(&["num_kv_shared_layers"], 15)).unwrap_or(0);
    let own = layers.saturating_sub(shared);
    let streams = config.positive_or(&["altup_num_inputs"], 4);
    let rank = config.positive_or(&["laurel_rank"], 64);
    let per_layer = config.positive_or(&["hidden_size_per_layer_input"], 256);
    let (wide, narrow) = (Part::whole(base.hidden), Part::whole(per_layer));
    let local_base = config.real(&["rope_local_base_freq"]);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        let slides = slides(index);
        let reach = if slides { Reach::Sliding { window } } else { Reach::Full };
        layer.name = if slides { "sliding_attention".to_owned() } else { "full_attention".to_owned() };
        let shares_cache = index >= own;
        if shares_cache {
            layer.name.push_str("+shared_cache");
        }
        alternating_updates(&mut layer, base.hidden, streams);
        let attention = Attention { reach, ..base };
        GemmaAttention { attention, shares_cache, keys_are_values: false }.build(&mut layer);
        layer.mlp("mlp", base.hidden, widths.get(index).copied().unwrap_or(0), true, false);
        shortcut(&mut layer, base.hidden, rank);
        layer.linear(Role::DenseFeedForward, "per_layer_input_gate", &[narrow], wide, false);
        layer.linear(Role::DenseFeedForward, "per_layer_projection", &[wide], narrow, false);
        for name in NORMS {
            layer.norm(*name, base.hidden);
        }
        let kind = if slides { "sliding_attention" } else { "full_attention" };
        let rope = Rope::of(context, base.head, Some(kind));
        let rope = match local_base.filter(|_| slides) {
            Some(base) => Rope { base, ..rope },
            None => rope,
        };
        rope_buffer(&mut layer, rope);
        stack.push(layer);
    }
    let mut body = context.body(stack, true, FinalNorm::Rms);
    around(&mut body, config.opt_size(&["vocab_size_per_layer_input"]), layers, per_layer, streams);
    body.query_heads = base.heads;
    body.kv_heads = base.kv_heads;
    body.head_size = base.head;
    body.limits = ClassLimits { no_pipeline: true, ..ClassLimits::default() };
    Some(body)
}

/// What stands before and behind the layers: a second table with inputs for each of them, and a projection of each further stream.
fn around(body: &mut Body<'_>, rows: Option<u64>, layers: usize, per_layer: u64, streams: u64) {
    let wide = Part::whole(body.hidden);
    let all = per_layer.saturating_mul(u64::try_from(layers).unwrap_or(u64::MAX));
    let rows = vocabulary_rows(rows.unwrap_or(body.vocabulary));
    body.head.table(Role::Embedding, "embed_tokens_per_layer", rows, Part::whole(all));
    let outputs = [Part::even(all, "per-layer input size")];
    body.head.linear(Role::DenseFeedForward, "per_layer_model_projection", &outputs, wide, false);
    body.head.norm("per_layer_projection_norm", per_layer);
    let cut = [Part::even(body.hidden, "hidden size")];
    for _ in 1..streams.min(64) {
        body.head.linear(Role::DenseFeedForward, "altup_projections", &cut, wide, false);
        body.tail.linear(Role::DenseFeedForward, "altup_unembed_projections", &cut, wide, false);
    }
    // four scales of embeddings
    let bytes = body.head.dtype().bytes().saturating_mul(4);
    body.head.own_buffer(bytes);
}
