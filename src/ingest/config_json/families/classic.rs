//! Older decoders with names of their own: Falcon, GPT-2, GPT-J, GPT-NeoX, GPT-BigCode, OPT, BLOOM, MPT, Phi, DBRX.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::moe::Mixture;
use super::reach::name_layer;
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, inverse_frequencies, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::Reach;
use crate::planner::model::ledger::{Part, Role, Stages};

/// How a classic decoder is laid out.
struct Style {
    attention: Attention,
    width: u64,
    mlp_bias: bool,
    /// The feed-forward block is whole on every rank.
    mlp_whole: bool,
    /// LayerNorms in each layer.
    norms: u64,
    norm_bias: bool,
    final_norm: bool,
    /// Rows of a learned position table, 0 for none.
    positions: u64,
    /// Width of the token table where it is not the hidden size.
    embedding_width: Option<u64>,
    embedding_norm: bool,
    tied: bool,
    head_bias: bool,
    everywhere: &'static [&'static str],
    rotary: Rotary,
    mixture: Option<Mixture>,
    limits: ClassLimits,
}

/// Where rotary tables come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rotary {
    None,
    /// The engine's own table.
    Table,
    /// The transformers class: only inverse frequencies.
    Frequencies,
}

const ALL: &[&str] = &[
    "embed_tokens",
    "position_embeddings",
    "norm",
    "lm_head",
    "embedding_norm",
    "project_in",
    "project_out",
];
const TABLES: &[&str] = &["embed_tokens", "position_embeddings"];

impl Style {
    fn plain(context: &Context<'_>) -> Self {
        let attention = Attention::of(context);
        Self {
            attention,
            width: context
                .config
                .opt_size(&["intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"])
                .unwrap_or_else(|| attention.hidden.saturating_mul(4)),
            mlp_bias: true,
            mlp_whole: false,
            norms: 2,
            norm_bias: true,
            final_norm: true,
            positions: 0,
            embedding_width: None,
            embedding_norm: false,
            tied: true,
            head_bias: false,
            everywhere: ALL,
            rotary: Rotary::None,
            mixture: None,
            limits: ClassLimits::default(),
        }
    }

    fn of(context: &Context<'_>) -> Option<Self> {
        let config = context.config;
        let biased = |attention: Attention| Attention { qkv_bias: true, out_bias: true, ..attention };
        Some(match context.architecture {
            "FalconForCausalLM" | "RWForCausalLM" => {
                let style = Self::plain(context);
                let new = config.flag(&["new_decoder_architecture"], false);
                let heads = style.attention.heads;
                let kv_heads = if new {
                    config.opt_size(&["num_kv_heads", "n_head_kv"]).unwrap_or(heads)
                } else if config.flag(&["multi_query"], true) {
                    1
                } else {
                    heads
                };
                let bias = config.flag(&["bias"], false);
                let parallel = new || config.flag(&["parallel_attn"], true);
                let pair = config.opt(&["num_ln_in_parallel_attn"]).map_or(new, |n| n == 2);
                Self {
                    attention: Attention { kv_heads, qkv_bias: bias, out_bias: bias, ..style.attention },
                    mlp_bias: bias,
                    norms: if !parallel || pair { 2 } else { 1 },
                    rotary: if config.flag(&["alibi"], false) { Rotary::None } else { Rotary::Table },
                    ..style
                }
            }
            "GPT2LMHeadModel" => {
                let style = Self::plain(context);
                Self { attention: biased(style.attention), positions: context.positions(), ..style }
            }
            "GPTBigCodeForCausalLM" => {
                let style = Self::plain(context);
                let kv_heads = if config.flag(&["multi_query"], true) { 1 } else { style.attention.heads };
                Self {
                    attention: Attention { kv_heads, ..biased(style.attention) },
                    positions: context.positions(),
                    mlp_whole: true,
                    everywhere: TABLES,
                    ..style
                }
            }
            "GPTJForCausalLM" => {
                Self { norms: 1, tied: false, head_bias: true, rotary: Rotary::Table, ..Self::plain(context) }
            }
            "GPTNeoXForCausalLM" => {
                let style = Self::plain(context);
                let bias = config.flag(&["attention_bias"], true);
                Self {
                    attention: Attention { qkv_bias: bias, out_bias: bias, ..style.attention },
                    tied: false,
                    everywhere: &[],
                    rotary: Rotary::Frequencies,
                    ..style
                }
            }
            "PhiForCausalLM" => {
                let style = Self::plain(context);
                let qk_norm = if config.flag(&["qk_layernorm"], false) { QkNorm::Head } else { QkNorm::None };
                Self {
                    attention: Attention { qk_norm, ..biased(style.attention) },
                    norms: 1,
                    tied: false,
                    head_bias: true,
                    everywhere: &[],
                    rotary: Rotary::Frequencies,
                    ..style
                }
            }
            "OPTForCausalLM" => {
                let style = Self::plain(context);
                let bias = config.flag(&["enable_bias"], true);
                let width = config
                    .opt_size(&["word_embed_proj_dim"])
                    .filter(|width| *width != style.attention.hidden);
                Self {
                    attention: Attention { qkv_bias: bias, out_bias: bias, ..style.attention },
                    mlp_bias: bias,
                    // two more rows: the class counts positions from 2
                    positions: context.positions().saturating_add(2),
                    embedding_width: width,
                    final_norm: config.flag(&["do_layer_norm_before"], true)
                        && !config.flag(&["_remove_final_layer_norm"], false),
                    norm_bias: true,
                    ..style
                }
            }
            "BloomForCausalLM" => {
                let style = Self::plain(context);
                let width = style.attention.hidden.saturating_mul(4);
                Self { attention: biased(style.attention), width, embedding_norm: true, ..style }
            }
            "MptForCausalLM" | "MPTForCausalLM" => {
                let style = Self::plain(context);
                let ratio = config.positive_or(&["expansion_ratio"], 4);
                let kv_heads = config
                    .section("attn_config", false)
                    .and_then(|attention| attention.opt_size(&["kv_n_heads"]))
                    .unwrap_or(style.attention.heads);
                let bias = !config.flag(&["no_bias"], true);
                Self {
                    attention: Attention { kv_heads, qkv_bias: bias, out_bias: bias, ..style.attention },
                    width: style.attention.hidden.saturating_mul(ratio),
                    mlp_bias: bias,
                    norm_bias: bias,
                    ..style
                }
            }
            "DbrxForCausalLM" => {
                let style = Self::plain(context);
                let kv_heads = config
                    .section("attn_config", false)
                    .map_or(style.attention.heads, |attention| attention.size(&["kv_n_heads"]));
                let Some(ffn) = config.section("ffn_config", false) else {
                    config.refuse(
                        "ffn_config",
                        "missing",
                        "`ffn_config` is required to know the model's size",
                    );
                    return Some(style);
                };
                let experts = Stacked {
                    count: ffn.size(&["moe_num_experts"]),
                    per_token: ffn.size(&["moe_top_k"]),
                    hidden: style.attention.hidden,
                    width: ffn.size(&["ffn_hidden_size"]),
                    gated: true,
                    bias: false,
                };
                Self {
                    attention: Attention { kv_heads, ..style.attention },
                    mixture: Some(Mixture {
                        experts,
                        router_fp32: false,
                        router_bias: false,
                        router_quantised: false,
                        correction: None,
                        shared_width: 0,
                        shared_gate: false,
                        sequence_parallel: false,
                    }),
                    norm_bias: false,
                    tied: false,
                    rotary: Rotary::Table,
                    limits: ClassLimits { experts_not_counted: true, ..ClassLimits::default() },
                    ..style
                }
            }
            _ => return None,
        })
    }

    /// Tensors of one layer.
    fn build(&self, layer: &mut Layer<'_>, rope: Option<Rope>) {
        let hidden = self.attention.hidden;
        name_layer(layer, Reach::Full);
        self.attention.build(layer, "self_attn");
        if let Some(mixture) = &self.mixture {
            layer.name.push_str("+moe");
            mixture.build(layer, "ffn", "ffn.router", "shared_experts");
        } else if self.mlp_whole {
            let (up, down) = ([Part::whole(self.width)], [Part::whole(hidden)]);
            layer.linear(Role::DenseFeedForward, "mlp.c_fc", &up, Part::whole(hidden), self.mlp_bias);
            layer.linear(Role::DenseFeedForward, "mlp.c_proj", &down, Part::whole(self.width), self.mlp_bias);
        } else {
            layer.mlp("mlp", hidden, self.width, false, self.mlp_bias);
        }
        for name in ["ln_1", "ln_2"].into_iter().take(usize::try_from(self.norms).unwrap_or(2)) {
            layer.layer_norm(name, hidden, self.norm_bias);
        }
        match (self.rotary, rope) {
            (Rotary::Table, Some(rope)) => rope_buffer(layer, rope),
            (Rotary::Frequencies, Some(rope)) => inverse_frequencies(layer, rope),
            _ => {}
        }
    }
}

/// Read a classic decoder.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    let style = Style::of(context)?;
    let hidden = style.attention.hidden;
    let rope = (style.rotary != Rotary::None).then(|| classic_rope(context, &style));
    let mut stack = Stack::default();
    for index in 0..context.layers() {
        let mut layer = context.layer(index);
        style.build(&mut layer, rope);
        stack.push(layer);
    }
    let final_norm =
        if style.final_norm { FinalNorm::Layer { bias: style.norm_bias } } else { FinalNorm::None };
    let mut body = context.body_with_table(
        stack,
        context.tied(style.tied),
        final_norm,
        style.embedding_width.unwrap_or(hidden),
    );
    if style.positions > 0 {
        body.head.table(
            Role::Embedding,
            "position_embeddings",
            Part::whole(style.positions),
            Part::whole(hidden),
        );
    }
    if style.embedding_norm {
        body.head.layer_norm("embedding_norm", hidden, true);
    }
    if let Some(width) = style.embedding_width {
        body.head.plain_linear(
            Role::Attention,
            "project_in",
            &[Part::whole(hidden)],
            Part::whole(width),
            false,
        );
        body.tail.plain_linear(
            Role::Attention,
            "project_out",
            &[Part::whole(width)],
            Part::whole(hidden),
            false,
        );
    }
    if style.head_bias {
        body.tail.vector(Role::LmHead, "lm_head.bias", &[super::vocabulary_rows(body.vocabulary)]);
    }
    if context.architecture == "GPTBigCodeForCausalLM" {
        // a causal mask of one byte a pair of positions
        let side = style.positions;
        for kind in &mut body.stack.kinds {
            kind.buffers.push(crate::planner::model::ledger::Buffer {
                name: "causal mask".into(),
                bytes: side.saturating_mul(side),
                with_experts_dealt: false,
            });
        }
    }
    body.query_heads = style.attention.heads;
    body.kv_heads = style.attention.kv_heads;
    body.head_size = style.attention.head;
    body.experts = style.mixture.as_ref().map(Mixture::summary);
    body.limits = style.limits;
    let mut body = body.everywhere(style.everywhere);
    if context.architecture == "PhiForCausalLM" {
        // the engine's wrapper of a transformers class builds a head without the bias of the checkpoint
        body.tail.on_stages("lm_head.bias", Stages::Nowhere);
    }
    if style.everywhere.is_empty() && context.tied(style.tied) {
        body.head.on_stages("embed_tokens", Stages::Ends);
    }
    Some(body)
}

/// Rotary sizes under the names of these files.
fn classic_rope(context: &Context<'_>, style: &Style) -> Rope {
    let rope = Rope::of(context, style.attention.head, None);
    let config = context.config;
    let rotated = config.opt_size(&["rotary_dim"]).filter(|n| *n <= style.attention.head);
    // Falcon's class takes 2048 positions when the file names none; DBRX keeps its sequence length elsewhere
    Rope { features: rotated.unwrap_or(rope.features), ..rope }
}
