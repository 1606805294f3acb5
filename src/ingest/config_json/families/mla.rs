//! Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5, with and without an indexer.

use super::super::build::{Alike, Experts as Stacked, Layer, Stack};
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list};
use super::{Body, Context, FinalNorm, Rope, rope_buffer};
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};

/// The latent attention of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Latent {
    pub hidden: u64,
    pub heads: u64,
    pub nope: u64,
    pub rope: u64,
    pub value: u64,
    /// 0: queries are projected directly.
    pub q_rank: u64,
    pub kv_rank: u64,
    /// The layer attends to tokens chosen by an indexer (its own or another layer's).
    pub sparse: bool,
    /// Heads and head size of the layer's own indexer.
    pub indexer: Option<(u64, u64)>,
}

impl Latent {
    /// As the file says.
    pub fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        Self {
            hidden: context.hidden(),
            heads: config.size(&["num_attention_heads"]),
            nope: config.size(&["qk_nope_head_dim"]),
            rope: config.size(&["qk_rope_head_dim"]),
            value: config.size(&["v_head_dim"]),
            q_rank: config.opt_size(&["q_lora_rank"]).unwrap_or(0),
            kv_rank: config.size(&["kv_lora_rank"]),
            sparse: false,
            indexer: None,
        }
    }

    /// Projections, norms and caches.
    pub fn build(&self, layer: &mut Layer<'_>) {
        let hidden = Part::whole(self.hidden);
        let latent = Part::whole(self.kv_rank.saturating_add(self.rope));
        let queries = [Part::units(self.heads, self.nope.saturating_add(self.rope), "query heads")];
        if self.q_rank > 0 {
            layer.linear(
                Role::Attention,
                "self_attn.fused_qkv_a_proj",
                &[Part::whole(self.q_rank), latent],
                hidden,
                false,
            );
            layer.norm("q_a_layernorm", self.q_rank);
            layer.linear(Role::Attention, "self_attn.q_b_proj", &queries, Part::whole(self.q_rank), false);
        } else {
            layer.linear(Role::KvProjection, "self_attn.kv_a_proj_with_mqa", &[latent], hidden, false);
            layer.linear(Role::Attention, "self_attn.q_proj", &queries, hidden, false);
        }
        layer.norm("kv_a_layernorm", self.kv_rank);
        let keys_and_values = [Part::units(self.heads, self.nope.saturating_add(self.value), "query heads")];
        layer.linear(
            Role::KvProjection,
            "self_attn.kv_b_proj",
            &keys_and_values,
            Part::whole(self.kv_rank),
            false,
        );
        let out = Part::units(self.heads, self.value, "query heads");
        layer.linear(Role::Attention, "self_attn.o_proj", &[hidden], out, false);
        layer.query_heads = self.heads;
        layer.caches.push(LayerCache::Latent {
            kv_lora_rank: self.kv_rank,
            rope: self.rope,
            sparse: self.sparse,
            reach: Reach::Full,
        });
        layer.latent_cache_scales();
        layer.own_buffer(16);
        if let Some((heads, head)) = self.indexer {
            self.build_indexer(layer, heads, head);
        }
    }

    /// The indexer of a layer: whole on every rank; its key projection is never quantised.
    fn build_indexer(&self, layer: &mut Layer<'_>, heads: u64, head: u64) {
        let queries = [Part::whole(heads.saturating_mul(head))];
        layer.linear(Role::Indexer, "self_attn.indexer.wq_b", &queries, Part::whole(self.q_rank), false);
        let keys = [Part::whole(head), Part::whole(heads)];
        layer.plain_linear(
            Role::Indexer,
            "self_attn.indexer.wk_weights_proj",
            &keys,
            Part::whole(self.hidden),
            false,
        );
        layer.typed_vector(
            Role::Norm,
            "self_attn.indexer.k_norm",
            &[Part::whole(head), Part::whole(head)],
            Dtype::Fp32,
        );
        layer.caches.push(LayerCache::Indexer { head_size: head });
    }
}

/// Which layers own an indexer, by `index_topk_pattern`, `indexer_types` or `index_topk_freq`; none without `index_topk`.
fn indexers(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    if config.opt(&["index_topk"]).is_none() {
        return vec![false; layers];
    }
    if let Some(pattern) = config.text(&["index_topk_pattern"]).filter(|pattern| pattern.len() >= layers) {
        return pattern.bytes().take(layers).map(|c| c != b'S').collect();
    }
    if let Some(kinds) = config.texts(&["indexer_types"]).filter(|kinds| kinds.len() >= layers) {
        return kinds.iter().take(layers).map(|kind| *kind != "shared").collect();
    }
    let every = config.positive_or(&["index_topk_freq"], 1);
    let offset = config.size_or(&["index_skip_topk_offset"], 2);
    (0..layers)
        .map(|i| (u64::try_from(i).unwrap_or(0) + 1).saturating_sub(offset).is_multiple_of(every))
        .collect()
}

/// The mixture as DeepSeek's classes build it.
pub fn mixture(context: &Context<'_>) -> Option<Mixture> {
    let config = context.config;
    config.value(EXPERT_COUNT)?;
    let width = config.size(&["moe_intermediate_size"]);
    let corrected = config.text(&["topk_method"]) == Some("noaux_tc")
        || config.text(&["scoring_func"]) == Some("sigmoid");
    Some(Mixture {
        experts: Stacked {
            count: config.size(EXPERT_COUNT),
            per_token: config.size(EXPERTS_PER_TOKEN),
            hidden: context.hidden(),
            width,
            gated: true,
            bias: false,
        },
        router_fp32: false,
        router_bias: false,
        router_quantised: false,
        correction: corrected.then_some(Dtype::Fp32),
        shared_width: width.saturating_mul(config.size_or(&["n_shared_experts", "num_shared_experts"], 0)),
        shared_gate: false,
        sequence_parallel: true,
    })
}

/// Read a decoder with latent attention.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    let architecture = context.architecture;
    if !matches!(
        architecture,
        "DeepseekV2ForCausalLM"
            | "DeepseekV3ForCausalLM"
            | "DeepseekV32ForCausalLM"
            | "GlmMoeDsaForCausalLM"
            | "KimiK2ForCausalLM"
            | "KimiK25ForConditionalGeneration"
            | "KimiVLForConditionalGeneration"
            | "MistralLarge3ForCausalLM"
            | "Glm4MoeLiteForCausalLM"
    ) {
        return None;
    }
    let sparse_class = matches!(architecture, "DeepseekV32ForCausalLM" | "GlmMoeDsaForCausalLM");
    let config = context.config;
    let latent = Latent::of(context);
    let layers = context.layers();
    let own_indexer = indexers(context, layers);
    let is_sparse = own_indexer.iter().any(|own| *own);
    let sizes = (is_sparse).then(|| (config.size(&["index_n_heads"]), config.size(&["index_head_dim"])));
    let mixture = mixture(context);
    let with_experts = if mixture.is_some() { by_list(context, layers) } else { vec![false; layers] };
    let dense_width = config.size(&["intermediate_size"]);
    let rope = Rope::of(context, latent.rope, None);
    let mut stack = Stack::default();
    let mut alike = Alike::default();
    for index in 0..layers {
        let own = own_indexer.get(index).copied().unwrap_or(false);
        let experts = with_experts.get(index).copied().unwrap_or(false);
        stack.push_alike(&mut alike, (own, experts), context.layer(index), |mut layer| {
            layer.name = if is_sparse { "sparse_mla" } else { "mla" }.to_owned();
            Latent { sparse: is_sparse, indexer: sizes.filter(|_| own), ..latent }.build(&mut layer);
            match mixture.as_ref().filter(|_| experts) {
                Some(mixture) => {
                    layer.name.push_str("+moe");
                    mixture.build(&mut layer, "mlp", "mlp.gate", "shared_experts");
                }
                // the sparse classes keep dense layers whole under sequence parallelism too
                None => {
                    let sharing = if sparse_class { Sharing::SharedExperts } else { Sharing::Tensor };
                    layer.dense_shared("mlp", latent.hidden, dense_width, sharing);
                }
            }
            layer.norm("input_layernorm", latent.hidden);
            layer.norm("post_attention_layernorm", latent.hidden);
            rope_buffer(&mut layer, rope);
            if own && !config.flag(&["indexer_rope_interleave"], false) {
                // the indexer pairs features the other way, so it has a table of its own
                rope_buffer(&mut layer, Rope { base: -rope.base, ..rope });
            }
            layer
        });
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = latent.heads;
    body.kv_heads = config.opt_size(&["num_key_value_heads"]).unwrap_or(latent.heads);
    body.head_size = latent.kv_rank.saturating_add(latent.rope);
    body.mla = true;
    body.experts = mixture.as_ref().map(Mixture::summary);
    Some(body)
}
