//! DeepSeek-V4: attention over a window and over compressed entries, hyper-connections, hash-routed first layers.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN};
use super::{Body, Context, FinalNorm, Rope};
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Cut, Part, Role, Sharing, Stages};

/// Sizes of the attention.
struct Attention {
    hidden: u64,
    heads: u64,
    head: u64,
    rope: u64,
    q_rank: u64,
    o_rank: u64,
    groups: u64,
    window: u64,
    index_heads: u64,
    index_head: u64,
}

/// Ratio at which a layer chooses among its compressed entries with an indexer, and compresses overlapping runs.
const INDEXED_RATIO: u64 = 4;
/// Query heads on a rank are padded up to this for the kernel; so are the sinks.
const LEAST_SINKS: u64 = 64;

impl Attention {
    fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        Self {
            hidden: context.hidden(),
            heads: config.size(&["num_attention_heads"]),
            head: config.size(&["head_dim"]),
            rope: config.size(&["qk_rope_head_dim"]),
            q_rank: config.size(&["q_lora_rank"]),
            o_rank: config.size(&["o_lora_rank"]),
            groups: config.size(&["o_groups"]),
            window: config.size(&["sliding_window"]),
            index_heads: config.size(&["index_n_heads"]),
            index_head: config.size(&["index_head_dim"]),
        }
    }

    /// A compressor of entries of `head` features: position offsets, keys with gates, norm.
    fn compressor(&self, layer: &mut Layer<'_>, ratio: u64, head: u64) {
        let wide = head.saturating_mul(if ratio == INDEXED_RATIO { 2 } else { 1 });
        let part = Part::whole(wide);
        layer.typed_linear(Role::KvProjection, "compressor.ape", &[Part::whole(ratio)], part, Dtype::Fp32);
        layer.plain_linear(
            Role::KvProjection,
            "compressor.fused_wkv_wgate",
            &[part, part],
            Part::whole(self.hidden),
            false,
        );
        layer.norm("compressor.norm", head);
    }

    fn build(&self, layer: &mut Layer<'_>, ratio: u64) {
        let hidden = Part::whole(self.hidden);
        let sinks = Part { size: self.heads, cut: Cut::AtLeast { least: LEAST_SINKS }, what: "query heads" };
        layer.typed_vector(Role::Attention, "attn.attn_sink", &[sinks], Dtype::Fp32);
        let latents = [Part::whole(self.q_rank), Part::whole(self.head)];
        layer.linear(Role::Attention, "attn.fused_wqa_wkv", &latents, hidden, false);
        layer.norm("attn.q_norm", self.q_rank);
        let queries = [Part::units(self.heads, self.head, "query heads")];
        layer.linear(Role::Attention, "attn.wq_b", &queries, Part::whole(self.q_rank), false);
        layer.norm("attn.kv_norm", self.head);
        let groups = Part::units(self.groups, self.o_rank, "output groups");
        let in_group = self.heads.saturating_mul(self.head).checked_div(self.groups).unwrap_or(0);
        layer.linear(Role::Attention, "attn.wo_a", &[groups], Part::whole(in_group), false);
        layer.linear(Role::Attention, "attn.wo_b", &[hidden], groups, false);
        if ratio > 1 {
            self.compressor(layer, ratio, self.head);
        }
        let indexed = ratio == INDEXED_RATIO;
        if indexed {
            let queries = [Part::whole(self.index_heads.saturating_mul(self.index_head))];
            layer.linear(Role::Indexer, "attn.indexer.wq_b", &queries, Part::whole(self.q_rank), false);
            layer.plain_linear(
                Role::Indexer,
                "attn.indexer.weights_proj",
                &[Part::whole(self.index_heads)],
                hidden,
                false,
            );
            self.compressor(layer, ratio, self.index_head);
        }
        layer.query_heads = self.heads;
        layer.caches.push(LayerCache::Compressed {
            head_size: self.head,
            rope: self.rope,
            window: self.window,
            ratio: if ratio > 1 { ratio } else { 0 },
            indexer_head_size: if indexed { self.index_head } else { 0 },
        });
    }
}

/// Read DeepSeek-V4.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    if context.architecture != "DeepseekV4ForCausalLM" {
        return None;
    }
    let config = context.config;
    let layers = context.layers();
    let attention = Attention::of(context);
    let hidden = attention.hidden;
    let ratios = config.per_layer(&["compress_ratios"], layers).unwrap_or_else(|| vec![0; layers]);
    if !config.has(&["compress_ratios"]) {
        config.refuse(
            "compress_ratios",
            "missing",
            "`compress_ratios` is required to know what each layer caches",
        );
    }
    let streams = config.size(&["hc_mult"]);
    let mixed = streams.saturating_add(2).saturating_mul(streams);
    let wide = streams.saturating_mul(hidden);
    let hashed = config.size_or(&["num_hash_layers"], 0);
    let experts = Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden,
        width: config.size(&["moe_intermediate_size"]),
        gated: true,
        bias: false,
    };
    let shared = config.size_or(&["n_shared_experts"], 0);
    let corrected = config.text(&["topk_method"]) == Some("noaux_tc");
    let rope = Rope::of(context, attention.rope, None);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        let ratio = ratios.get(index).copied().unwrap_or(0);
        layer.name = if ratio > 1 { format!("compressed_{ratio}+moe") } else { "window+moe".to_owned() };
        attention.build(&mut layer, ratio);
        let outputs = [Part::whole(experts.count)];
        layer.typed_linear(Role::Router, "ffn.gate", &outputs, Part::whole(hidden), layer.dtype());
        if u64::try_from(index).unwrap_or(u64::MAX) < hashed {
            // experts of each token of the vocabulary, as 32-bit integers
            layer.typed_table(
                Role::Router,
                "ffn.gate.tid2eid",
                Part::whole(context.vocabulary()),
                Part::whole(experts.per_token),
                Dtype::Fp32,
            );
            layer.duplicate_last();
        } else if corrected {
            layer.score_correction(&outputs, Dtype::Fp32);
        }
        layer.experts("ffn.experts", experts);
        if shared > 0 {
            let width = experts.width.saturating_mul(shared);
            let from = layer.tensors.len();
            layer.mlp_shared("ffn.shared_experts", hidden, width, true, false, Some(Sharing::SharedExperts));
            // cut in whole quantisation blocks
            if let Some(block) = context.quantiser.block() {
                layer.cut_in_blocks(from, block);
            }
        }
        layer.norm("attn_norm", hidden);
        layer.norm("ffn_norm", hidden);
        for name in ["hc_attn_fn", "hc_ffn_fn"] {
            layer.typed_linear(Role::Attention, name, &[Part::whole(mixed)], Part::whole(wide), Dtype::Fp32);
        }
        layer.typed_vector(
            Role::Attention,
            "hc_base",
            &[Part::whole(mixed), Part::whole(mixed)],
            Dtype::Fp32,
        );
        layer.typed_vector(Role::Attention, "hc_scale", &[Part::whole(3), Part::whole(3)], Dtype::Fp32);
        // layers with a window alone turn by the plain table, the others by the stretched one; both in fp32
        let (name, positions) =
            if ratio > 1 { ("compressed", rope.positions) } else { ("plain", context.positions()) };
        let bytes = positions.saturating_mul(rope.features).saturating_mul(4);
        layer.shared_buffer(format!("rope {name}"), bytes);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.head.typed_linear(
        Role::Attention,
        "hc_head_fn",
        &[Part::whole(streams)],
        Part::whole(wide),
        Dtype::Fp32,
    );
    body.head.typed_vector(Role::Attention, "hc_head_base", &[Part::whole(streams)], Dtype::Fp32);
    body.head.typed_vector(Role::Attention, "hc_head_scale", &[Part::whole(1)], Dtype::Fp32);
    for name in ["hc_head_fn", "hc_head_base", "hc_head_scale"] {
        body.head.on_stages(name, Stages::Every);
    }
    body.query_heads = attention.heads;
    body.kv_heads = config.positive_or(&["num_key_value_heads"], 1);
    body.head_size = attention.head;
    body.mla = true;
    body.experts =
        Some(crate::planner::model::Experts { routed: experts.count, per_token: experts.per_token, shared });
    Some(body)
}
