//! State-space models and hybrids with attention: Mamba 1 and 2, Jamba, Falcon-H1, Granite 4.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::dense::EVERYWHERE;
use super::linear::state_dtype;
use super::moe::EXPERTS_PER_TOKEN;
use super::{Attention, Body, Context, FinalNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};

/// A Mamba 2 mixer.
#[derive(Debug, Clone, Copy)]
pub struct Mamba2 {
    pub hidden: u64,
    pub heads: u64,
    pub head: u64,
    pub groups: u64,
    pub state: u64,
    pub kernel: u64,
    pub conv_bias: bool,
    pub bias: bool,
    pub norm: bool,
}

impl Mamba2 {
    /// As files name its sizes, in either of two schemes.
    pub fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        Self {
            hidden: context.hidden(),
            heads: config.size(&["mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads"]),
            head: config.size(&["mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"]),
            groups: config
                .positive_or(&["n_groups", "mamba_n_groups", "mamba_ngroups", "mamba_num_groups"], 1),
            state: config.size(&["ssm_state_size", "mamba_d_state", "mamba_state_dim", "state_size"]),
            kernel: config.positive_or(&["conv_kernel", "mamba_d_conv", "mamba_conv_kernel"], 4),
            conv_bias: config.flag(&["use_conv_bias", "mamba_conv_bias"], true),
            bias: config.flag(&["mamba_proj_bias", "use_bias", "add_bias_linear"], false),
            norm: true,
        }
    }

    /// Tensors and state of the mixer.
    pub fn build(&self, layer: &mut Layer<'_>, state: Dtype) {
        let hidden = Part::whole(self.hidden);
        let inner = Part::units(self.heads, self.head, "mamba heads");
        let one = Part::units(self.heads, 1, "mamba heads");
        // one group is copied to every rank; several are dealt out
        let groups = if self.groups == 1 {
            Part::heads(1, self.state, "mamba groups")
        } else {
            Part::units(self.groups, self.state, "mamba groups")
        };
        layer.plain_linear(
            Role::StateMixer,
            "mixer.conv1d",
            &[inner, groups, groups],
            Part::whole(self.kernel),
            self.conv_bias,
        );
        layer.linear(
            Role::StateMixer,
            "mixer.in_proj",
            &[inner, inner, groups, groups, one],
            hidden,
            self.bias,
        );
        layer.typed_vector(Role::StateMixer, "mixer.A", &[one], Dtype::Fp32);
        layer.vector(Role::StateMixer, "mixer.D", &[one]);
        layer.vector(Role::StateMixer, "mixer.dt_bias", &[one]);
        layer.linear(Role::StateMixer, "mixer.out_proj", &[hidden], inner, false);
        if self.bias {
            layer.vector(Role::StateMixer, "mixer.out_proj.bias", &[hidden]);
        }
        if self.norm {
            layer.vector(Role::Norm, "mixer.norm", &[inner]);
        }
        layer.caches.push(LayerCache::State(State {
            kind: StateKind::Mamba2 {
                heads: self.heads,
                head_dim: self.head,
                groups: self.groups,
                state_size: self.state,
                conv_kernel: self.kernel,
            },
            conv_dtype: layer.dtype(),
            state_dtype: state,
        }));
    }
}

/// A Mamba 1 mixer; never quantised.
#[derive(Debug, Clone, Copy)]
struct Mamba1 {
    hidden: u64,
    inner: u64,
    state: u64,
    kernel: u64,
    rank: u64,
    conv_bias: bool,
    bias: bool,
    /// Norms with weights on the step and both projections of the state.
    norms: bool,
}

impl Mamba1 {
    fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        let hidden = context.hidden();
        let expand = config.positive_or(&["mamba_expand", "expand"], 2);
        let rank = match config.value(&["mamba_dt_rank", "time_step_rank"]) {
            Some((value, _)) if value.as_str() == Some("auto") => hidden.div_ceil(16),
            Some(_) => config.size(&["mamba_dt_rank", "time_step_rank"]),
            None => hidden.div_ceil(16),
        };
        let is_jamba = context.architecture == "JambaForCausalLM";
        let inner = hidden.saturating_mul(expand);
        Self {
            hidden,
            inner: if is_jamba { inner } else { config.opt_size(&["intermediate_size"]).unwrap_or(inner) },
            state: config.size(&["mamba_d_state", "state_size"]),
            kernel: config.positive_or(&["mamba_d_conv", "conv_kernel"], 4),
            rank,
            conv_bias: config.flag(&["mamba_conv_bias", "use_conv_bias"], true),
            bias: config.flag(&["mamba_proj_bias", "use_bias"], false),
            norms: is_jamba,
        }
    }

    fn build(&self, layer: &mut Layer<'_>, state: Dtype) {
        let hidden = Part::whole(self.hidden);
        let inner = Part::even(self.inner, "mamba width");
        layer.plain_linear(
            Role::StateMixer,
            "mamba.conv1d",
            &[inner],
            Part::whole(self.kernel),
            self.conv_bias,
        );
        layer.plain_linear(Role::StateMixer, "mamba.in_proj", &[inner, inner], hidden, self.bias);
        let steps = Part::whole(self.rank.saturating_add(self.state.saturating_mul(2)));
        layer.plain_linear(Role::StateMixer, "mamba.x_proj", &[steps], inner, false);
        layer.plain_linear(Role::StateMixer, "mamba.dt_proj", &[inner], Part::whole(self.rank), true);
        layer.typed_linear(Role::StateMixer, "mamba.A", &[inner], Part::whole(self.state), Dtype::Fp32);
        layer.vector(Role::StateMixer, "mamba.D", &[inner]);
        layer.plain_linear(Role::StateMixer, "mamba.out_proj", &[hidden], inner, false);
        if self.bias {
            layer.vector(Role::StateMixer, "mamba.out_proj.bias", &[hidden]);
        }
        if self.norms {
            layer.norm("mamba.dt_layernorm", self.rank);
            layer.norm("mamba.b_layernorm", self.state);
            layer.norm("mamba.c_layernorm", self.state);
        }
        layer.caches.push(LayerCache::State(State {
            kind: StateKind::Mamba1 {
                intermediate: self.inner,
                state_size: self.state,
                conv_kernel: self.kernel,
            },
            conv_dtype: layer.dtype(),
            state_dtype: state,
        }));
    }
}

/// Read a state-space model or hybrid.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    match context.architecture {
        "MambaForCausalLM" | "FalconMambaForCausalLM" | "Mamba2ForCausalLM" => Some(pure(context)),
        "JambaForCausalLM" => Some(jamba(context)),
        "FalconH1ForCausalLM" => Some(falcon(context)),
        "GraniteMoeHybridForCausalLM" => Some(granite(context)),
        _ => None,
    }
}

/// Mamba layers alone.
fn pure<'c>(context: &Context<'c>) -> Body<'c> {
    let second = context.architecture == "Mamba2ForCausalLM";
    let state = state_dtype(context);
    let hidden = context.hidden();
    let mut stack = Stack::default();
    let two = second.then(|| Mamba2::of(context));
    let one = (!second).then(|| Mamba1::of(context));
    for index in 0..context.layers() {
        let mut layer = context.layer(index);
        layer.name = "mamba".to_owned();
        if let Some(mixer) = &two {
            mixer.build(&mut layer, state);
        }
        if let Some(mixer) = &one {
            mixer.build(&mut layer, state);
        }
        layer.norm("norm", hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(!second), FinalNorm::Rms);
    body.limits = ClassLimits { no_pipeline: second, ..ClassLimits::default() };
    body.everywhere(EVERYWHERE)
}

/// Layers `i` with `(i - offset) mod period = 0`.
fn periodic(index: usize, offset: u64, period: u64) -> bool {
    let i = u64::try_from(index).unwrap_or(0);
    i >= offset && (i - offset).is_multiple_of(period.max(1))
}

fn jamba<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let attention = Attention::of(context);
    let mixer = Mamba1::of(context);
    let state = state_dtype(context);
    let width = config.size(&["intermediate_size"]);
    let count = config.size_or(&["num_experts"], 1);
    let experts = Stacked {
        count,
        per_token: config.size_or(EXPERTS_PER_TOKEN, 2),
        hidden: attention.hidden,
        width,
        gated: true,
        bias: false,
    };
    let (attention_at, attention_every) =
        (config.size_or(&["attn_layer_offset"], 4), config.positive_or(&["attn_layer_period"], 8));
    let (experts_at, experts_every) =
        (config.size_or(&["expert_layer_offset"], 1), config.positive_or(&["expert_layer_period"], 2));
    let mut stack = Stack::default();
    for index in 0..context.layers() {
        let mut layer = context.layer(index);
        if periodic(index, attention_at, attention_every) {
            layer.name = "full_attention".to_owned();
            attention.build(&mut layer, "self_attn");
        } else {
            layer.name = "mamba".to_owned();
            mixer.build(&mut layer, state);
        }
        if count > 1 && periodic(index, experts_at, experts_every) {
            layer.name.push_str("+moe");
            layer.typed_linear(
                Role::Router,
                "router",
                &[Part::whole(count)],
                Part::whole(attention.hidden),
                layer.dtype(),
            );
            layer.experts("feed_forward.experts", experts);
        } else {
            layer.mlp("feed_forward", attention.hidden, width, true, false);
        }
        layer.norm("input_layernorm", attention.hidden);
        layer.norm("pre_ff_layernorm", attention.hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = (count > 1).then_some(crate::planner::model::Experts {
        routed: count,
        per_token: experts.per_token,
        shared: 0,
    });
    body.everywhere(EVERYWHERE)
}

fn falcon<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let attention = Attention { qkv_bias: config.flag(&["attention_bias"], false), ..Attention::of(context) };
    let mixer = Mamba2 { norm: config.flag(&["mamba_rms_norm"], false), ..Mamba2::of(context) };
    let state = state_dtype(context);
    let width = config.size(&["intermediate_size"]);
    let bias = config.flag(&["mlp_bias"], false);
    let rope = Rope::of(context, attention.head, None);
    let mut stack = Stack::default();
    for index in 0..context.layers() {
        let mut layer = context.layer(index);
        layer.name = "full_attention+mamba".to_owned();
        attention.build(&mut layer, "self_attn");
        mixer.build(&mut layer, state);
        layer.mlp("feed_forward", attention.hidden, width, true, bias);
        layer.norm("input_layernorm", attention.hidden);
        layer.norm("pre_ff_layernorm", attention.hidden);
        rope_buffer(&mut layer, rope);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body
}

fn granite<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let layers = context.layers();
    let kinds = config.texts(&["layer_types", "layers_block_type"]);
    if kinds.as_ref().is_none_or(|kinds| kinds.len() < layers) {
        config.refuse("layer_types", "missing", format!("an entry for each of {layers} layers is required"));
    }
    let kinds = kinds.unwrap_or_default();
    let bias = config.flag(&["attention_bias"], false);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..Attention::of(context) };
    let is_mamba =
        |index: usize| kinds.get(index).is_some_and(|kind| matches!(*kind, "mamba" | "linear_attention"));
    let mixer = (0..layers).any(is_mamba).then(|| Mamba2::of(context));
    let state = state_dtype(context);
    let count = config.size_or(&["num_local_experts"], 0);
    let experts = Stacked {
        count,
        per_token: config.size_or(EXPERTS_PER_TOKEN, 0),
        hidden: attention.hidden,
        width: if count > 0 { config.size(&["intermediate_size"]) } else { 0 },
        gated: true,
        bias: false,
    };
    let shared = config.size_or(&["shared_intermediate_size"], 0);
    let rotary = config.text(&["position_embedding_type"]) == Some("rope");
    let rope = Rope::of(context, attention.head, None);
    let mut stack = Stack::default();
    for index in 0..layers {
        let mut layer = context.layer(index);
        if is_mamba(index) {
            layer.name = "mamba".to_owned();
            if let Some(mixer) = &mixer {
                mixer.build(&mut layer, state);
            }
        } else {
            layer.name = "full_attention".to_owned();
            attention.build(&mut layer, "self_attn");
            if rotary {
                rope_buffer(&mut layer, rope);
            }
        }
        if count > 0 {
            layer.name.push_str("+moe");
            layer.typed_linear(
                Role::Router,
                "gate",
                &[Part::whole(count)],
                Part::whole(attention.hidden),
                layer.dtype(),
            );
            layer.experts("block_sparse_moe.experts", experts);
        }
        if shared > 0 {
            let sharing = (count > 0).then_some(Sharing::Tensor);
            layer.mlp_shared("shared_mlp", attention.hidden, shared, true, false, sharing);
        }
        layer.norm("input_layernorm", attention.hidden);
        layer.norm("post_attention_layernorm", attention.hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = (count > 0).then_some(crate::planner::model::Experts {
        routed: count,
        per_token: experts.per_token,
        shared: u64::from(shared > 0),
    });
    body.everywhere(EVERYWHERE)
}
