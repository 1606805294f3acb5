//! State-space models and their hybrids with attention: Mamba 1 and 2, Jamba, Nemotron-H, Falcon-H1, Granite 4, Zamba2, LFM2.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::super::reader::MAX_LAYERS;
use super::dense::EVERYWHERE;
use super::linear::state_dtype;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture};
use super::{Attention, Body, Context, FinalNorm, QkNorm, Rope, rope_buffer};
use crate::planner::model::ClassLimits;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing, Stages};

/// A Mamba 2 mixer.
#[derive(Debug, Clone, Copy)]
struct Mamba2 {
    hidden: u64,
    heads: u64,
    head: u64,
    groups: u64,
    state: u64,
    kernel: u64,
    conv_bias: bool,
    bias: bool,
    norm: bool,
}

impl Mamba2 {
    /// As files name its sizes, in either of two schemes.
    fn of(context: &Context<'_>) -> Self {
        let config = context.config;
        Self {
            hidden: context.hidden(),
            heads: config.size(&["mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads"]),
            head: config.size(&["mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"]),
            groups: config
                .size_or(&["n_groups", "mamba_n_groups", "mamba_ngroups", "mamba_num_groups"], 1)
                .max(1),
            state: config.size(&["ssm_state_size", "mamba_d_state", "mamba_state_dim", "state_size"]),
            kernel: config.size_or(&["conv_kernel", "mamba_d_conv", "mamba_conv_kernel"], 4),
            conv_bias: config.flag(&["use_conv_bias", "mamba_conv_bias"], true),
            bias: config.flag(&["mamba_proj_bias", "use_bias", "add_bias_linear"], false),
            norm: true,
        }
    }

    fn build(&self, layer: &mut Layer<'_>, state: Dtype) {
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
        let expand = config.size_or(&["mamba_expand", "expand"], 2);
        let rank = match config.value(&["mamba_dt_rank", "time_step_rank"]) {
            Some((value, _)) if value.as_str() == Some("auto") => hidden.div_ceil(16),
            Some(_) => config.size(&["mamba_dt_rank", "time_step_rank"]),
            None => hidden.div_ceil(16),
        };
        let is_jamba = context.architecture == "JambaForCausalLM";
        let inner = hidden.saturating_mul(expand);
        Self {
            hidden,
            inner: if is_jamba { inner } else { config.opt(&["intermediate_size"]).unwrap_or(inner) },
            state: config.size(&["mamba_d_state", "state_size"]),
            kernel: config.size_or(&["mamba_d_conv", "conv_kernel"], 4),
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
        "NemotronHForCausalLM" | "NemotronHPuzzleForCausalLM" => Some(nemotron(context)),
        "FalconH1ForCausalLM" => Some(falcon(context)),
        "GraniteMoeHybridForCausalLM" => Some(granite(context)),
        "Zamba2ForCausalLM" => Some(zamba(context)),
        "Lfm2ForCausalLM" | "Lfm2MoeForCausalLM" => Some(lfm(context)),
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
        (config.size_or(&["attn_layer_offset"], 4), config.size_or(&["attn_layer_period"], 8));
    let (experts_at, experts_every) =
        (config.size_or(&["expert_layer_offset"], 1), config.size_or(&["expert_layer_period"], 2));
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

/// What a layer of Nemotron-H is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Mamba,
    Experts,
    Perceptron,
    Attention,
}

/// The blocks by pattern string or by list of names.
fn nemotron_blocks(context: &Context<'_>) -> Vec<Block> {
    let config = context.config;
    let refuse = |key: &str, what: &str| {
        config.refuse(key, "not_allowed", format!("`{what}` is not a kind of layer known here"));
    };
    let mut blocks = Vec::new();
    if let Some(names) = config.texts(&["layers_block_type"]) {
        for name in names {
            match name {
                "mamba" | "mamba2" | "linear_attention" => blocks.push(Block::Mamba),
                "moe" => blocks.push(Block::Experts),
                "mlp" => blocks.push(Block::Perceptron),
                "attention" | "full_attention" => blocks.push(Block::Attention),
                other => refuse("layers_block_type", other),
            }
        }
    } else if let Some(pattern) = config.text(&["hybrid_override_pattern"]) {
        for c in pattern.chars().take(usize::try_from(MAX_LAYERS).unwrap_or(0).saturating_add(1)) {
            match c {
                'M' => blocks.push(Block::Mamba),
                'E' => blocks.push(Block::Experts),
                '-' => blocks.push(Block::Perceptron),
                '*' => blocks.push(Block::Attention),
                other => refuse("hybrid_override_pattern", &other.to_string()),
            }
        }
    } else {
        config.refuse(
            "hybrid_override_pattern",
            "missing",
            "`hybrid_override_pattern` or `layers_block_type` is required",
        );
    }
    if blocks.len() > usize::try_from(MAX_LAYERS).unwrap_or(0) {
        config.refuse(
            "hybrid_override_pattern",
            "out_of_range",
            format!("at most {MAX_LAYERS} layers are read"),
        );
        blocks.clear();
    }
    blocks
}

/// The mixture of Nemotron-H: experts without gates, possibly in a narrower space.
fn nemotron_mixture(context: &Context<'_>) -> (Mixture, Option<u64>) {
    let config = context.config;
    let latent = config.opt(&["moe_latent_size"]).filter(|n| *n > 0);
    let experts = Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: latent.unwrap_or_else(|| context.hidden()),
        width: config.size(&["moe_intermediate_size"]),
        gated: false,
        bias: false,
    };
    let shared = config
        .opt(&["moe_shared_expert_intermediate_size"])
        .unwrap_or(0)
        .saturating_mul(config.size_or(&["n_shared_experts"], 0));
    let mixture = Mixture {
        experts,
        router_fp32: false,
        router_bias: false,
        correction: Some(Dtype::Fp32),
        shared_width: shared,
        shared_gate: false,
        sequence_parallel: true,
    };
    (mixture, latent)
}

fn nemotron<'c>(context: &Context<'c>) -> Body<'c> {
    let config = context.config;
    let blocks = nemotron_blocks(context);
    let hidden = context.hidden();
    let bias = config.flag(&["attention_bias"], false);
    let attention = Attention { qkv_bias: bias, out_bias: bias, ..Attention::of(context) };
    let mixer = blocks.contains(&Block::Mamba).then(|| Mamba2::of(context));
    // states are fp32 unless the file says otherwise
    let state = if config.has(&["mamba_ssm_cache_dtype", "mamba_ssm_dtype"]) {
        state_dtype(context)
    } else {
        Dtype::Fp32
    };
    let mixture = blocks.contains(&Block::Experts).then(|| nemotron_mixture(context));
    let width = if blocks.contains(&Block::Perceptron) { config.size(&["intermediate_size"]) } else { 0 };
    let mlp_bias = config.flag(&["mlp_bias"], false);
    let mut stack = Stack::default();
    for (index, block) in blocks.iter().enumerate() {
        let mut layer = context.layer(index);
        match block {
            Block::Mamba => {
                layer.name = "mamba".to_owned();
                if let Some(mixer) = &mixer {
                    mixer.build(&mut layer, state);
                }
            }
            Block::Attention => {
                layer.name = "full_attention".to_owned();
                attention.build(&mut layer, "mixer");
            }
            Block::Perceptron => {
                layer.name = "mlp".to_owned();
                layer.mlp("mixer", hidden, width, false, mlp_bias);
            }
            Block::Experts => {
                layer.name = "moe".to_owned();
                if let Some((mixture, latent)) = &mixture {
                    nemotron_experts(&mut layer, mixture, *latent, hidden);
                }
            }
        }
        layer.norm("norm", hidden);
        stack.push(layer);
    }
    let mut body = context.body(stack, context.tied(false), FinalNorm::Rms);
    body.query_heads = attention.heads;
    body.kv_heads = attention.kv_heads;
    body.head_size = attention.head;
    body.experts = mixture.as_ref().map(|(mixture, _)| {
        let shared = config.size_or(&["n_shared_experts"], 0);
        crate::planner::model::Experts { shared, ..mixture.summary() }
    });
    body.everywhere(EVERYWHERE)
}

/// Router, experts and the projections around them.
fn nemotron_experts(layer: &mut Layer<'_>, mixture: &Mixture, latent: Option<u64>, hidden: u64) {
    let outputs = [Part::whole(mixture.experts.count)];
    layer.typed_linear(Role::Router, "gate", &outputs, Part::whole(hidden), layer.dtype());
    layer.score_correction(&outputs, Dtype::Fp32);
    layer.experts("mixer.experts", mixture.experts);
    if mixture.shared_width > 0 {
        let sharing = Some(Sharing::SharedExperts);
        layer.mlp_shared("mixer.shared_experts", hidden, mixture.shared_width, false, false, sharing);
    }
    if let Some(latent) = latent {
        let (wide, narrow) = (Part::whole(hidden), Part::whole(latent));
        layer.linear(Role::RoutedExperts, "mixer.fc1_latent_proj", &[narrow], wide, false);
        layer.linear(Role::RoutedExperts, "mixer.fc2_latent_proj", &[wide], narrow, false);
    }
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
        .opt(&["attention_head_dim"])
        .unwrap_or_else(|| hidden.saturating_mul(2).checked_div(heads).unwrap_or(1));
    let inner = hidden.saturating_mul(config.size_or(&["mamba_expand"], 2));
    let mamba_heads = config.size(&["n_mamba_heads"]);
    let mixer = Mamba2 {
        hidden,
        heads: mamba_heads,
        head: config.opt(&["mamba_headdim"]).unwrap_or_else(|| inner.checked_div(mamba_heads).unwrap_or(1)),
        groups: config.size_or(&["mamba_ngroups"], 1).max(1),
        state: config.size(&["mamba_d_state"]),
        kernel: config.size_or(&["mamba_d_conv"], 4),
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
        rank: config.size_or(&["adapter_rank"], 128),
        blocks: config.size_or(&["num_mem_blocks"], 1),
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
    crate::planner::model::ledger::round_up(width, config.size_or(&["block_multiple_of"], 256))
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
    let kernel = config.size_or(&["conv_L_cache"], 3);
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
                layer.typed_linear(Role::Router, "gate", &outputs, Part::whole(hidden), layer.dtype());
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
