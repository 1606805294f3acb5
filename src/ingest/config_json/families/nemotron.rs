//! Nemotron-H: a pattern of Mamba 2, attention, perceptron and expert layers, each alone.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::super::reader::MAX_LAYERS;
use super::dense::EVERYWHERE;
use super::linear::state_dtype;
use super::mamba::Mamba2;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture};
use super::{Attention, Body, Context, FinalNorm};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};

/// Read Nemotron-H.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    matches!(context.architecture, "NemotronHForCausalLM" | "NemotronHPuzzleForCausalLM")
        .then(|| nemotron(context))
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
    let latent = config.opt_size(&["moe_latent_size"]);
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
        router_quantised: false,
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
