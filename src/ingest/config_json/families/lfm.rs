//! LFM2: short convolutions with attention on some layers, dense or with experts.

use super::super::build::{Experts as Stacked, Stack};
use super::super::reader::MAX_LAYERS;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Stages};

/// Read LFM2.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    matches!(context.architecture, "Lfm2ForCausalLM" | "Lfm2MoeForCausalLM").then(|| lfm(context))
}

/// LFM2's feed-forward width, which the file may ask to be adjusted.
fn lfm_width(context: &Context<'_>) -> u64 {
    let config = context.config;
    let width = config.size(&["intermediate_size", "block_ff_dim"]);
    if !config.flag(&["block_auto_adjust_ff_dim"], true) {
        return width;
    }
    let mut width = width.saturating_mul(2) / 3;
    if let Some(factor) = config.real(&["block_ffn_dim_multiplier"]).filter(|f| (0.0..=64.0).contains(f)) {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a width below 2^24 times a factor up to 64 is exact enough and fits"
        )]
        {
            width = (width as f64 * factor) as u64;
        }
    }
    crate::planner::model::ledger::round_up(width, config.positive_or(&["block_multiple_of"], 256))
}

fn lfm<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let experts_model = context.architecture == "Lfm2MoeForCausalLM";
    let attention = Attention { qk_norm: QkNorm::Head, ..Attention::of(context) };
    let hidden = attention.hidden;
    let kinds = config.texts(&["layer_types"]);
    let full = config.numbers(&["full_attn_idxs"], MAX_LAYERS);
    let is_attention = |index: usize| match (&kinds, &full) {
        (Some(kinds), _) => kinds.get(index).is_some_and(|kind| *kind == "full_attention"),
        (None, Some(full)) => full.contains(&u64::try_from(index).unwrap_or(0)),
        (None, None) => false,
    };
    if kinds.is_none() && full.is_none() {
        config.refuse("layer_types", "missing", "`layer_types` or `full_attn_idxs` is required");
    }
    let kernel = config.positive_or(&["conv_L_cache"], 3);
    let bias = config.flag(&["conv_bias"], false);
    let width = if experts_model { config.size(&["intermediate_size"]) } else { lfm_width(context) };
    let dense_layers = config.size_or(&["num_dense_layers"], 0);
    let experts = experts_model.then(|| Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden,
        width: config.size(&["moe_intermediate_size"]),
        gated: true,
        bias: false,
    });
    let rope = Rope::of(context, attention.head, None);
    let inner = Part::even(hidden, "convolution width");
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        if is_attention(index) {
            layer.name = "full_attention".to_owned();
            attention.build(&mut layer, "self_attn");
            rope_buffer(&mut layer, rope);
        } else {
            layer.name = "short_convolution".to_owned();
            layer.plain_linear(Role::StateMixer, "conv.conv", &[inner], Part::whole(kernel), bias);
            layer.linear(Role::StateMixer, "conv.in_proj", &[inner, inner, inner], Part::whole(hidden), bias);
            layer.linear(Role::StateMixer, "conv.out_proj", &[Part::whole(hidden)], inner, false);
            if bias {
                layer.vector(Role::StateMixer, "conv.out_proj.bias", &[Part::whole(hidden)]);
            }
            layer.caches.push(LayerCache::State(State {
                kind: StateKind::ShortConv { width: hidden, conv_kernel: kernel },
                conv_dtype: layer.dtype(),
                state_dtype: layer.dtype(),
            }));
        }
        match experts.filter(|_| u64::try_from(index).unwrap_or(0) >= dense_layers) {
            Some(experts) => {
                layer.name.push_str("+moe");
                let outputs = [Part::whole(experts.count)];
                layer.linear(Role::Router, "feed_forward.gate", &outputs, Part::whole(hidden), false);
                if config.flag(&["use_expert_bias"], true) {
                    layer.score_correction(&outputs, Dtype::Fp32);
                }
                layer.experts("feed_forward.experts", experts);
            }
            None => layer.mlp("feed_forward", hidden, width, true, false),
        }
        layer.norm("operator_norm", hidden);
        layer.norm("ffn_norm", hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(true), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = experts.map(|experts| crate::planner::model::Experts {
        routed: experts.count,
        per_token: experts.per_token,
        shared: 0,
    });
    body.limits = ClassLimits { ranks_within_experts: experts_model, ..ClassLimits::default() };
    body.head.on_stages("embed_tokens", Stages::Every);
    body
}
