//! Zamba2: Mamba 2 layers, some of which first pass through transformer blocks that they share.

use super::super::build::{Layer, Stack};
use super::linear::state_dtype;
use super::mamba::Mamba2;
use super::{Attention, Body, Context, FinalNorm, QkNorm};
use crate::planner::model::ClassLimits;
use crate::planner::model::ledger::{Part, Role};

/// Read Zamba2.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    (context.architecture == "Zamba2ForCausalLM").then(|| zamba(context))
}

/// Sizes of Zamba2's shared transformer blocks.
struct SharedBlocks {
    hidden: u64,
    heads: u64,
    head: u64,
    width: u64,
    rank: u64,
    blocks: u64,
    hybrids: u64,
    attention_adapters: bool,
    bias: bool,
}

impl SharedBlocks {
    /// The blocks lie once in the model, whatever layers use them; adapters lie there for each use.
    fn build(&self, head: &mut Layer<'_>) {
        let from = head.tensors.len();
        let wide = self.heads.saturating_mul(self.head);
        let part = Part::units(self.heads, self.head, "query heads");
        head.linear(
            Role::Attention,
            "shared_transformer.self_attn.qkv_proj",
            &[part, part, part],
            Part::whole(wide),
            false,
        );
        head.linear(
            Role::Attention,
            "shared_transformer.self_attn.o_proj",
            &[Part::whole(self.hidden)],
            part,
            false,
        );
        head.mlp("shared_transformer.feed_forward", self.hidden, self.width, true, self.bias);
        head.norm("shared_transformer.input_layernorm", self.hidden.saturating_mul(2));
        head.norm("shared_transformer.pre_ff_layernorm", self.hidden);
        for tensor in head.tensors.iter_mut().skip(from) {
            tensor.copies = self.blocks;
            tensor.active_copies = self.blocks;
        }
        let from = head.tensors.len();
        let rank = Part::even(self.rank, "adapter rank");
        let inner = Part::even(self.width, "intermediate size");
        head.linear(
            Role::DenseFeedForward,
            "gate_up_proj_adapter.A",
            &[rank],
            Part::whole(self.hidden),
            false,
        );
        head.linear(
            Role::DenseFeedForward,
            "gate_up_proj_adapter.B",
            &[inner, inner],
            Part::whole(self.rank),
            false,
        );
        if self.attention_adapters {
            for _ in 0..3 {
                head.linear(Role::Attention, "attention_adapter.A", &[rank], Part::whole(wide), false);
                head.linear(Role::Attention, "attention_adapter.B", &[part], Part::whole(self.rank), false);
            }
        }
        for tensor in head.tensors.iter_mut().skip(from) {
            tensor.copies = self.hybrids;
            tensor.active_copies = self.hybrids;
        }
    }
}

fn zamba<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let hidden = context.hidden();
    let kinds = config.texts(&["layers_block_type"]).unwrap_or_default();
    if kinds.len() < layers {
        config.refuse(
            "layers_block_type",
            "missing",
            format!("an entry for each of {layers} layers is required"),
        );
    }
    let is_hybrid = |index: usize| kinds.get(index) == Some(&"hybrid");
    let heads = config.size(&["num_attention_heads"]);
    let head = config
        .opt_size(&["attention_head_dim"])
        .unwrap_or_else(|| hidden.saturating_mul(2).checked_div(heads).unwrap_or(1));
    let inner = hidden.saturating_mul(config.positive_or(&["mamba_expand"], 2));
    let mamba_heads = config.size(&["n_mamba_heads"]);
    let mixer = Mamba2 {
        hidden,
        heads: mamba_heads,
        head: config
            .opt_size(&["mamba_headdim"])
            .unwrap_or_else(|| inner.checked_div(mamba_heads).unwrap_or(1)),
        groups: config.positive_or(&["mamba_ngroups"], 1),
        state: config.size(&["mamba_d_state"]),
        kernel: config.positive_or(&["mamba_d_conv"], 4),
        conv_bias: config.flag(&["use_conv_bias"], true),
        bias: config.flag(&["add_bias_linear"], false),
        norm: true,
    };
    let state = state_dtype(context);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        layer.name = "mamba".to_owned();
        if is_hybrid(index) {
            layer.name = "full_attention+mamba".to_owned();
            layer.linear(Role::Attention, "linear", &[Part::whole(hidden)], Part::whole(hidden), false);
            Attention {
                hidden,
                heads,
                kv_heads: heads,
                head,
                value_head: head,
                qkv_bias: false,
                out_bias: false,
                qk_norm: QkNorm::None,
                gate: false,
                reach: crate::planner::model::cache::Reach::Full,
            }
            .cache(&mut layer);
        }
        mixer.build(&mut layer, state);
        layer.norm("input_layernorm", hidden);
        stack.push(layer);
    }
    let hybrids = (0..layers).filter(|index| is_hybrid(*index)).count();
    let blocks = SharedBlocks {
        hidden,
        heads,
        head,
        width: config.size(&["intermediate_size"]),
        rank: config.positive_or(&["adapter_rank"], 128),
        blocks: config.positive_or(&["num_mem_blocks"], 1),
        hybrids: u64::try_from(hybrids).unwrap_or(0),
        attention_adapters: config.flag(&["use_shared_attention_adapter"], false),
        bias: config.flag(&["add_bias_linear"], false),
    };
    let mut body = context.body(stack, context.tied(true), FinalNorm::Rms);
    blocks.build(&mut body.head);
    body.query_heads = heads;
    body.kv_heads = heads;
    body.head_size = head;
    body.limits = ClassLimits { no_pipeline: true, ..ClassLimits::default() };
    body
}
