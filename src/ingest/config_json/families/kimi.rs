//! Kimi delta attention with latent attention on some layers: Kimi Linear and Kimi K3.

use super::super::build::{Experts as Stacked, Layer, Stack};
use super::mla::Latent;
use super::moe::{EXPERT_COUNT, EXPERTS_PER_TOKEN, Mixture, by_list};
use super::{Body, Context, FinalNorm};
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Cut, Part, Role, Sharing, Stages};

/// Read Kimi Linear or K3.
pub fn read<'c>(context: &Context<'c>) -> Option<Body<'c>> {
    matches!(context.architecture, "KimiLinearForCausalLM" | "KimiK3ForConditionalGeneration")
        .then(|| build(context))
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
        let latent = config.opt_size(&["routed_expert_hidden_size"]);
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
                router_quantised: false,
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

fn build<'c>(context: &Context<'c>) -> Body<'c> {
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
        kernel: linear.positive_or(&["short_conv_kernel_size"], 4),
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
    body.kv_heads = config.opt_size(&["num_key_value_heads"]).unwrap_or(latent.heads);
    body.head_size = latent.kv_rank.saturating_add(latent.rope);
    body.mla = true;
    let shared = config.size_or(&["num_shared_experts"], 0);
    body.experts = Some(crate::planner::model::Experts { shared, ..mixture.mixture.summary() });
    body
}
