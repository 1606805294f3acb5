//! Mixtures of experts with attention by head.

mod mixture;
mod style;

pub use mixture::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list, by_step};

use super::super::build::{Alike, Layer, Stack};
use super::reach::{Windows, layer_types, name_layer, reaches};
use super::{
    Attention, Body, Context, FinalNorm, QkNorm, Rope, inverse_frequencies, rope_buffer, rope_buffer_fp32,
};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::ledger::{Part, Role};

/// How a mixture decoder differs from the others.
struct Style {
    windows: Windows,
    qkv_bias: bool,
    out_bias: bool,
    qk_norm: QkNorm,
    norms: &'static [&'static str],
    norm_bias: bool,
    mixture: Mixture,
    /// The names of the width of the layers without experts.
    dense_width: &'static [&'static str],
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
    let all_sparse = style.sparse.iter().all(|sparse| *sparse);
    let dense_width = if all_sparse { 0 } else { context.config.size(style.dense_width) };
    let mut stack = Stack::default();
    let mut alike = Alike::default();
    for (index, reach) in reaches(context, style.windows, layers).into_iter().enumerate() {
        let own_index =
            style.index.as_ref().is_some_and(|own| own.layers.get(index).copied().unwrap_or(false));
        let is_sparse = style.sparse.get(index).copied().unwrap_or(true);
        let kind = types.as_ref().and_then(|types| types.get(index).copied());
        let of = (reach, own_index, is_sparse, kind);
        stack.push_alike(&mut alike, of, context.layer(index), |mut layer| {
            name_layer(&mut layer, reach);
            Attention { reach, ..base }.build(&mut layer, "self_attn");
            if style.sinks {
                base.sinks(&mut layer);
            }
            if style.gate_projection {
                let gate = [Part::units(base.heads, base.head, "query heads")];
                layer.linear(Role::Attention, "self_attn.gate_proj", &gate, Part::whole(base.hidden), false);
            }
            if let Some(index_of_layer) = style.index.as_ref().filter(|_| own_index) {
                layer.name = "block_sparse_attention".to_owned();
                index_of_layer.build(&mut layer, base.hidden);
            }
            if is_sparse {
                layer.name.push_str("+moe");
                style.mixture.build(&mut layer, style.block, "gate", style.shared);
            } else {
                layer.mlp("mlp", base.hidden, dense_width, true, false);
            }
            for norm in style.norms {
                layer.layer_norm(norm, base.hidden, style.norm_bias);
            }
            let rope = Rope::of(context, base.head, kind);
            let rope =
                if context.architecture == "Glm4MoeForCausalLM" { rope.with_axes(context) } else { rope };
            if style.transformers {
                inverse_frequencies(&mut layer, rope);
            } else if context.architecture == "GptOssForCausalLM" {
                rope_buffer_fp32(&mut layer, rope);
            } else {
                rope_buffer(&mut layer, rope);
            }
            layer
        });
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
