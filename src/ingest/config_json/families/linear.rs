//! Hybrids of attention and delta-rule layers: Qwen3-Next, Qwen3.5, OLMo hybrid, Kimi Linear, Kimi K3.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::dense::{EVERYWHERE, layer_types};
use super::mla::Latent;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list, by_step};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Cut, Part, Role, Sharing, Stages};

/// A gated delta net.
#[derive(Debug, Clone, Copy)]
struct DeltaNet {
    hidden: u64,
    key_heads: u64,
    value_heads: u64,
    key_dim: u64,
    value_dim: u64,
    kernel: u64,
}

impl DeltaNet {
    fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        Self {
            hidden: context.hidden(),
            key_heads: config.size(&["linear_num_key_heads"]),
            value_heads: config.size(&["linear_num_value_heads"]),
            key_dim: config.size(&["linear_key_head_dim"]),
            value_dim: config.size(&["linear_value_head_dim"]),
            kernel: config.size_or(&["linear_conv_kernel_dim"], 4),
        }
    }

    fn keys(&self) -> Part {
        Part::units(self.key_heads, self.key_dim, "linear key heads")
    }

    fn values(&self) -> Part {
        Part::units(self.value_heads, self.value_dim, "linear value heads")
    }

    fn value_units(&self) -> Part {
        Part::units(self.value_heads, 1, "linear value heads")
    }

    /// The state of a sequence; `state` is the format of the recurrent part.
    fn cache(&self, layer: &mut Layer<'_>, state: Dtype) {
        layer.caches.push(LayerCache::State(State {
            kind: StateKind::GatedDeltaNet {
                key_heads: self.key_heads,
                value_heads: self.value_heads,
                key_dim: self.key_dim,
                value_dim: self.value_dim,
                conv_kernel: self.kernel,
            },
            conv_dtype: layer.dtype(),
            state_dtype: state,
        }));
    }

    /// As Qwen builds it. Only the small projections are never quantised by block.
    fn build_qwen(&self, layer: &mut Layer<'_>, state: Dtype) {
        let (keys, values, one) = (self.keys(), self.values(), self.value_units());
        let hidden = Part::whole(self.hidden);
        layer.plain_linear(
            Role::StateMixer,
            "linear_attn.conv1d",
            &[keys, keys, values],
            Part::whole(self.kernel),
            false,
        );
        layer.linear(
            Role::StateMixer,
            "linear_attn.in_proj_qkvz",
            &[keys, keys, values, values],
            hidden,
            false,
        );
        layer.linear(Role::StateMixer, "linear_attn.in_proj_ba", &[one, one], hidden, false);
        layer.vector(Role::StateMixer, "linear_attn.dt_bias", &[one]);
        layer.typed_vector(Role::StateMixer, "linear_attn.A_log", &[one], Dtype::Fp32);
        layer.norm("linear_attn.norm", self.value_dim);
        layer.linear(Role::StateMixer, "linear_attn.out_proj", &[hidden], values, false);
        self.cache(layer, state);
    }

    /// As OLMo builds it.
    fn build_olmo(&self, layer: &mut Layer<'_>, state: Dtype) {
        let (keys, values, one) = (self.keys(), self.values(), self.value_units());
        let hidden = Part::whole(self.hidden);
        layer.linear(
            Role::StateMixer,
            "linear_attn.in_proj_qkvg",
            &[keys, keys, values, values],
            hidden,
            false,
        );
        layer.linear(Role::StateMixer, "linear_attn.b_proj", &[one], hidden, false);
        layer.linear(Role::StateMixer, "linear_attn.a_proj", &[one], hidden, false);
        layer.plain_linear(
            Role::StateMixer,
            "linear_attn.conv1d",
            &[keys, keys, values],
            Part::whole(self.kernel),
            false,
        );
        layer.vector(Role::StateMixer, "linear_attn.dt_bias", &[one]);
        layer.vector(Role::StateMixer, "linear_attn.A_log", &[one]);
        layer.norm("linear_attn.o_norm", self.value_dim);
        layer.linear(Role::StateMixer, "linear_attn.o_proj", &[hidden], values, false);
        self.cache(layer, state);
    }
}

/// Format of recurrent states: as the file names it, else the model's.
pub fn state_dtype(context: &Context<'_>) -> Dtype {
    match context.config.text(&["mamba_ssm_dtype", "mamba_ssm_cache_dtype"]) {
        Some("float32" | "fp32" | "torch.float32") => Dtype::Fp32,
        Some("float16") => Dtype::Fp16,
        Some("bfloat16") => Dtype::Bf16,
        _ => context.quantiser.dtype,
    }
}

/// Which layers are linear: `layer_types`, else every `full_attention_interval`-th is full.
fn linear_layers(context: &Context<'_>, layers: usize, default: u64) -> Vec<bool> {
    if let Some(kinds) = layer_types(context, layers) {
        return kinds.iter().map(|kind| *kind == "linear_attention").collect();
    }
    let every = context.config.size_or(&["full_attention_interval"], default).max(1);
    (1..=layers).map(|n| !u64::try_from(n).unwrap_or(0).is_multiple_of(every)).collect()
}

/// Read a hybrid with delta-rule layers.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    match context.architecture {
        "Qwen3NextForCausalLM"
        | "Qwen3_5ForCausalLM"
        | "Qwen3_5ForConditionalGeneration"
        | "Qwen3_5MoeForCausalLM"
        | "Qwen3_5MoeForConditionalGeneration" => Some(qwen(context)),
        "OlmoHybridForCausalLM" => Some(olmo(context)),
        "KimiLinearForCausalLM" | "KimiK3ForConditionalGeneration" => Some(kimi(context)),
        _ => None,
    }
}

/// Qwen's mixture with a gated shared expert; `None` for a dense model.
fn qwen_mixture(context: &Context<'_>) -> Option<Mixture> {
    let config = context.config;
    let count = config.opt(EXPERT_COUNT).filter(|count| *count > 0)?;
    let experts = Stacked {
        count,
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: context.hidden(),
        width: config.size(&["moe_intermediate_size"]),
        gated: true,
        bias: false,
    };
    Some(Mixture {
        experts,
        router_fp32: false,
        router_bias: false,
        correction: None,
        shared_width: config.size_or(&["shared_expert_intermediate_size"], 0),
        shared_gate: true,
        sequence_parallel: true,
    })
}

fn qwen<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let attention = Attention {
        qkv_bias: config.flag(&["qkv_bias"], false),
        qk_norm: QkNorm::Head,
        gate: config.flag(&["attn_output_gate"], true),
        ..Attention::of(context)
    };
    let next = context.architecture == "Qwen3NextForCausalLM";
    let net = DeltaNet::of(context);
    let state = state_dtype(context);
    let mixture = qwen_mixture(context);
    let sparse = match (&mixture, next) {
        (None, _) => vec![false; layers],
        (Some(_), true) => by_step(context, layers),
        (Some(_), false) => vec![true; layers],
    };
    let linear = linear_layers(context, layers, 4);
    let dense_width =
        if sparse.iter().all(|sparse| *sparse) { 0 } else { config.size(&["intermediate_size"]) };
    let scaled = config.flag(&["layer_scale"], false);
    let rope = Rope::of(context, attention.head, None);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        if linear.get(index).copied().unwrap_or(false) {
            layer.name = "linear_attention".to_owned();
            net.build_qwen(&mut layer, state);
        } else {
            layer.name = "full_attention".to_owned();
            attention.build(&mut layer, "self_attn");
            rope_buffer(&mut layer, rope);
        }
        match mixture.as_ref().filter(|_| sparse.get(index).copied().unwrap_or(false)) {
            Some(mixture) => {
                layer.name.push_str("+moe");
                mixture.build(&mut layer, "mlp", "mlp.gate", "shared_expert");
            }
            None => layer.mlp("mlp", attention.hidden, dense_width, true, false),
        }
        layer.norm("input_layernorm", attention.hidden);
        layer.norm("post_attention_layernorm", attention.hidden);
        if scaled {
            layer.norm("attn_layer_scale", attention.hidden);
            layer.norm("ffn_layer_scale", attention.hidden);
        }
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = mixture.as_ref().map(Mixture::summary);
    body.limits = ClassLimits { ranks_within_experts: true, ..ClassLimits::default() };
    body.everywhere(if next { &["embed_tokens", "lm_head"] } else { &["embed_tokens"] })
}

fn olmo<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let attention = Attention {
        qk_norm: QkNorm::All,
        qkv_bias: config.flag(&["attention_bias"], false),
        ..Attention::of(context)
    };
    let net = DeltaNet::of(context);
    let state = state_dtype(context);
    let linear = linear_layers(context, layers, 4);
    let width = config.size(&["intermediate_size"]);
    let rope = Rope::of(context, attention.head, None);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        if linear.get(index).copied().unwrap_or(false) {
            layer.name = "linear_attention".to_owned();
            net.build_olmo(&mut layer, state);
        } else {
            layer.name = "full_attention".to_owned();
            attention.build(&mut layer, "self_attn");
            rope_buffer(&mut layer, rope);
        }
        layer.mlp("mlp", attention.hidden, width, true, false);
        layer.norm("norm_1", attention.hidden);
        layer.norm("norm_2", attention.hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.everywhere(EVERYWHERE)
}

/// Kimi delta attention.
#[derive(Debug, Clone, Copy)]
struct KimiDelta {
    hidden: u64,
    heads: u64,
    head: u64,
    kernel: u64,
    /// The output gate has full rank and is fused with the other projections.
    full_gate: bool,
}

impl KimiDelta {
    fn build(&self, layer: &mut Layer<'_>) {
        let hidden = Part::whole(self.hidden);
        let wide = Part::units(self.heads, self.head, "linear heads");
        let one = Part::units(self.heads, 1, "linear heads");
        let narrow = Part::whole(self.head);
        if self.full_gate {
            let outputs = [wide, wide, wide, wide, narrow, one];
            layer.linear(Role::StateMixer, "self_attn.in_proj_qkvgfab", &outputs, hidden, false);
            // rows of a rank are padded for an aligned kernel
            layer.align_last_rows(16);
        } else {
            let outputs = [wide, wide, wide, one, narrow];
            layer.linear(Role::StateMixer, "self_attn.in_proj_qkvgfab", &outputs, hidden, false);
            layer.linear(Role::StateMixer, "self_attn.g_a_proj", &[narrow], hidden, false);
            layer.linear(Role::StateMixer, "self_attn.g_b_proj", &[wide], narrow, false);
        }
        layer.linear(Role::StateMixer, "self_attn.f_b_proj", &[wide], narrow, false);
        layer.typed_vector(Role::StateMixer, "self_attn.dt_bias", &[wide], Dtype::Fp32);
        layer.typed_linear(
            Role::StateMixer,
            "self_attn.conv1d",
            &[wide, wide, wide],
            Part::whole(self.kernel),
            Dtype::Fp32,
        );
        layer.typed_vector(Role::StateMixer, "self_attn.A_log", &[one], Dtype::Fp32);
        layer.norm("self_attn.o_norm", self.head);
        layer.linear(Role::StateMixer, "self_attn.o_proj", &[hidden], wide, false);
        layer.caches.push(LayerCache::State(State {
            kind: StateKind::Kda { heads: self.heads, head_dim: self.head, conv_kernel: self.kernel },
            conv_dtype: layer.dtype(),
            state_dtype: Dtype::Fp32,
        }));
    }
}

/// Least width of an expert on a rank: the class pads smaller ones.
const LEAST_EXPERT_WIDTH: u64 = 256;

/// The mixture of Kimi Linear and K3, experts possibly in a narrower space.
struct KimiMixture {
    mixture: Mixture,
    /// Width of the experts' space where it is not the hidden size.
    latent: Option<u64>,
    latent_norm: bool,
}

impl KimiMixture {
    fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        let hidden = context.hidden();
        let latent = config.opt(&["routed_expert_hidden_size"]).filter(|n| *n > 0);
        let width = config.size(&["moe_intermediate_size"]);
        let experts = Stacked {
            count: config.size(EXPERT_COUNT),
            per_token: config.size(EXPERTS_PER_TOKEN),
            hidden: latent.unwrap_or(hidden),
            width,
            gated: true,
            bias: false,
        };
        Self {
            mixture: Mixture {
                experts,
                router_fp32: false,
                router_bias: false,
                correction: Some(Dtype::Fp32),
                shared_width: 0,
                shared_gate: false,
                sequence_parallel: true,
            },
            latent,
            latent_norm: config.flag(&["latent_moe_use_norm"], false),
        }
    }

    fn build(&self, layer: &mut Layer<'_>, hidden: u64, shared_width: u64) {
        let experts = self.mixture.experts;
        let outputs = [Part::whole(experts.count)];
        layer.typed_linear(Role::Router, "gate", &outputs, Part::whole(hidden), layer.dtype());
        layer.score_correction(&outputs, Dtype::Fp32);
        let from = layer.tensors.len();
        layer.experts("block_sparse_moe.experts", experts);
        for tensor in layer.tensors.iter_mut().skip(from) {
            for part in tensor.outputs.iter_mut().chain(std::iter::once(&mut tensor.inputs)) {
                if let Cut::Units(_) = part.cut {
                    part.cut = Cut::AtLeast { least: LEAST_EXPERT_WIDTH };
                }
            }
        }
        if shared_width > 0 {
            let name = "block_sparse_moe.shared_experts";
            layer.mlp_shared(name, hidden, shared_width, true, false, Some(Sharing::SharedExperts));
        }
        if let Some(latent) = self.latent {
            let (wide, narrow) = (Part::whole(hidden), Part::whole(latent));
            layer.linear(
                Role::RoutedExperts,
                "block_sparse_moe.routed_expert_down_proj",
                &[narrow],
                wide,
                false,
            );
            layer.linear(
                Role::RoutedExperts,
                "block_sparse_moe.routed_expert_up_proj",
                &[wide],
                narrow,
                false,
            );
            if self.latent_norm {
                layer.norm("block_sparse_moe.routed_expert_norm", latent);
            }
        }
    }
}

/// Layers in a list of the file that counts from 1.
fn listed_from_one(list: &[u64], layers: usize) -> Vec<bool> {
    (1..=layers).map(|n| list.contains(&u64::try_from(n).unwrap_or(0))).collect()
}

fn kimi<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let latent = Latent::of(context);
    let hidden = latent.hidden;
    let linear = config.section("linear_attn_config", false);
    if linear.is_none() {
        config.refuse(
            "linear_attn_config",
            "missing",
            "`linear_attn_config` is required to know which layers are linear",
        );
    }
    let delta = linear.as_ref().map(|linear| KimiDelta {
        hidden,
        heads: linear.size(&["num_heads"]),
        head: linear.size(&["head_dim"]),
        kernel: linear.size_or(&["short_conv_kernel_size"], 4),
        full_gate: linear.flag(&["use_full_rank_gate"], false),
    });
    let is_linear = linear
        .as_ref()
        .and_then(|linear| linear.numbers(&["kda_layers"], super::super::reader::MAX_LAYERS))
        .map_or_else(|| vec![false; layers], |list| listed_from_one(&list, layers));
    let mixture = KimiMixture::of(context);
    let shared = mixture.mixture.experts.width.saturating_mul(config.size_or(&["num_shared_experts"], 0));
    let sparse = by_list(context, layers);
    let residual = config.opt(&["attn_res_block_size"]).is_some();
    let gated = config.flag(&["mla_use_output_gate"], false);
    let dense_width = config.size(&["intermediate_size"]);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        match delta.filter(|_| is_linear.get(index).copied().unwrap_or(false)) {
            Some(delta) => {
                layer.name = "linear_attention".to_owned();
                delta.build(&mut layer);
            }
            None => {
                layer.name = "mla".to_owned();
                latent.build(&mut layer);
                if gated {
                    let gate = [Part::units(latent.heads, latent.value, "query heads")];
                    layer.linear(Role::Attention, "self_attn.g_proj", &gate, Part::whole(hidden), false);
                }
            }
        }
        if sparse.get(index).copied().unwrap_or(false) {
            layer.name.push_str("+moe");
            mixture.build(&mut layer, hidden, shared);
        } else {
            layer.dense_shared("mlp", hidden, dense_width, Sharing::SharedExperts);
        }
        layer.norm("input_layernorm", hidden);
        layer.norm("post_attention_layernorm", hidden);
        if residual {
            for name in ["self_attention_res", "mlp_res"] {
                layer.norm(name, hidden);
                layer.plain_linear(Role::Attention, name, &[Part::whole(1)], Part::whole(hidden), false);
            }
        }
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    if residual {
        body.tail.norm("output_attn_res", hidden);
        body.tail.plain_linear(
            Role::Attention,
            "output_attn_res",
            &[Part::whole(1)],
            Part::whole(hidden),
            false,
        );
        body.tail.on_stages("output_attn_res", Stages::Own);
    }
    body.query_heads = latent.heads;
    body.kv_heads = config.opt(&["num_key_value_heads"]).unwrap_or(latent.heads);
    body.head_size = latent.kv_rank.saturating_add(latent.rope);
    body.mla = true;
    let shared = config.size_or(&["num_shared_experts"], 0);
    body.experts = Some(crate::planner::model::Experts { shared, ..mixture.mixture.summary() });
    body
}
