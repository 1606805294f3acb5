//! Hybrids of attention and gated delta nets: Qwen3-Next, Qwen3.5, OLMo hybrid.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::super::reader::Config;
use super::dense::EVERYWHERE;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_step};
use super::reach::layer_types;
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role};

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
            kernel: config.positive_or(&["linear_conv_kernel_dim"], 4),
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
    named_state_dtype(context.config, &["mamba_ssm_dtype", "mamba_ssm_cache_dtype"])
        .unwrap_or(context.quantiser.dtype)
}

/// The format that the first of `names` in the file says.
pub fn named_state_dtype(config: &Config<'_>, names: &[&str]) -> Option<Dtype> {
    match config.text(names)? {
        "float32" | "fp32" | "torch.float32" => Some(Dtype::Fp32),
        "float16" => Some(Dtype::Fp16),
        "bfloat16" => Some(Dtype::Bf16),
        _ => None,
    }
}

/// Which layers are linear: `layer_types`, else every `full_attention_interval`-th is full.
pub fn linear_layers(context: &Context<'_>, layers: usize, default: u64) -> Vec<bool> {
    if let Some(kinds) = layer_types(context, layers) {
        return kinds.iter().map(|kind| *kind == "linear_attention").collect();
    }
    let every = context.config.positive_or(&["full_attention_interval"], default);
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
        router_quantised: false,
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
