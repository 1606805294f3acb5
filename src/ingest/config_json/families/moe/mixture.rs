//! The feed-forward block of a layer with experts, and which layers have one.

use super::super::super::build::{Experts as Stacked, Layer};
use super::super::super::reader::MAX_SIZE;
use super::super::Context;
use crate::planner::model::Experts;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Part, Role, Sharing};

/// The feed-forward block of a mixture-of-experts layer.
#[derive(Debug, Clone, Copy)]
pub struct Mixture {
    pub experts: Stacked,
    /// The router's weights are fp32 whatever the model's format.
    pub router_fp32: bool,
    pub router_bias: bool,
    /// The router is quantised as other layers are, unless a list leaves it alone.
    pub router_quantised: bool,
    /// A correction of the router's scores for each expert, in this format.
    pub correction: Option<Dtype>,
    /// Width of all shared experts together, 0 for none.
    pub shared_width: u64,
    /// A gate of one output on the shared expert.
    pub shared_gate: bool,
    /// The class holds shared experts whole under sequence-parallel MoE.
    pub sequence_parallel: bool,
}

impl Mixture {
    /// Router, experts and shared experts under `name` (`mlp`, `block_sparse_moe`, …).
    pub fn build(&self, layer: &mut Layer<'_>, name: &str, gate: &'static str, shared: &str) {
        let Stacked { count, hidden, .. } = self.experts;
        let outputs = [Part::whole(count)];
        let dtype = if self.router_fp32 { Dtype::Fp32 } else { layer.dtype() };
        if self.router_quantised {
            layer.linear(Role::Router, "mlp.gate", &outputs, Part::whole(hidden), false);
        } else {
            layer.typed_linear(Role::Router, gate, &outputs, Part::whole(hidden), dtype);
        }
        if self.router_bias {
            layer.vector(Role::Router, "gate.bias", &outputs);
        }
        if let Some(dtype) = self.correction {
            layer.score_correction(&outputs, dtype);
        }
        layer.experts(&format!("{name}.experts"), self.experts);
        if self.shared_width > 0 {
            let sharing = if self.sequence_parallel { Sharing::SharedExperts } else { Sharing::Tensor };
            layer.mlp_shared(
                &format!("{name}.{shared}"),
                hidden,
                self.shared_width,
                self.experts.gated,
                false,
                Some(sharing),
            );
        }
        if self.shared_gate {
            layer.plain_linear(
                Role::Router,
                "shared_expert_gate",
                &[Part::whole(1)],
                Part::whole(hidden),
                false,
            );
        }
    }

    /// In brief; `shared` experts of the routed experts' width.
    pub fn summary(&self) -> Experts {
        let shared =
            if self.shared_width == 0 { 0 } else { (self.shared_width / self.experts.width.max(1)).max(1) };
        Experts { routed: self.experts.count, per_token: self.experts.per_token, shared }
    }
}

/// The names under which files keep the number of routed experts.
pub const EXPERT_COUNT: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"];
/// The names of the experts a token chooses.
pub const EXPERTS_PER_TOKEN: &[&str] = &[
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "top_k_experts",
    "moe_top_k",
];

/// Experts as most files name them, of width `width`.
pub(super) fn stacked(context: &Context<'_>, width: u64) -> Stacked {
    let config = context.config;
    Stacked {
        count: config.size(EXPERT_COUNT),
        per_token: config.size(EXPERTS_PER_TOKEN),
        hidden: context.hidden(),
        width,
        gated: true,
        bias: false,
    }
}

pub(super) fn plain_mixture(experts: Stacked) -> Mixture {
    Mixture {
        experts,
        router_fp32: false,
        router_bias: false,
        router_quantised: false,
        correction: None,
        shared_width: 0,
        shared_gate: false,
        sequence_parallel: false,
    }
}

/// Layers from `first` on.
pub(super) fn from_layer(first: u64, layers: usize) -> Vec<bool> {
    (0..layers).map(|i| u64::try_from(i).unwrap_or(u64::MAX) >= first).collect()
}

/// Layers with experts by `decoder_sparse_step` and `mlp_only_layers` (Qwen).
pub fn by_step(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    let step = config.positive_or(&["decoder_sparse_step"], 1);
    let dense = config.numbers(&["mlp_only_layers"], MAX_SIZE).unwrap_or_default();
    (0..layers)
        .map(|i| {
            let n = u64::try_from(i).unwrap_or(0);
            !dense.contains(&n) && (n + 1).is_multiple_of(step)
        })
        .collect()
}

/// Layers with experts by a list of 0 and 1, or from `first_k_dense_replace` on.
pub fn by_list(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    if let Some(kinds) = config.texts(&["mlp_layer_types"]).filter(|kinds| kinds.len() >= layers) {
        return kinds.iter().take(layers).map(|kind| *kind != "dense").collect();
    }
    if config.value(&["moe_layer_freq"]).is_some_and(|(value, _)| value.is_array())
        && let Some(list) = config.per_layer(&["moe_layer_freq"], layers)
    {
        return list.iter().take(layers).map(|n| *n != 0).collect();
    }
    let first = config.size_or(&["first_k_dense_replace"], 0);
    let step = config.positive_or(&["moe_layer_freq"], 1);
    (0..layers)
        .map(|i| {
            let n = u64::try_from(i).unwrap_or(0);
            n >= first && n.is_multiple_of(step)
        })
        .collect()
}
