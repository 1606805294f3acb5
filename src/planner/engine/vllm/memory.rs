//! One GPU's budget: what the engine may use, and what it needs beside weights and cache.
//!
//! `cache = ceil(u * total) - weights - buffers - peak of a profile run - runtime - CUDA graphs`
//! (`v1/worker/gpu_worker.py`, `v1/worker/utils.py`). What only a GPU can tell is a general rule here, fitted to start-up logs;
//! each item says so.

use std::ops::Range;

use super::Vllm;
use super::backend::Generation;
use crate::planner::engine::activation;
use crate::planner::engine::after_loading::{self, Growth};
use crate::planner::engine::{Item, MemoryBudget, ResolvedSettings, StageItems};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::ledger::{Cut, Role, Tensor};
use crate::planner::model::sharded::StageWeights;
use crate::planner::units::Bytes;

/// A vision or audio encoder's profile run with its cached outputs (Qwen3.5-27B TP=4: 0.9 GiB over the layers').
const ENCODER_GIB: f64 = 0.9;
/// Runtime memory that appears after the first measurement.
const RUNTIME_GIB: f64 = 0.13;
/// Workspaces of ranks that reduce together, on Hopper and later (0.4 GiB more than one rank's at TP=2 and TP=4 of three models in
/// one log, none visible in another: the lower half).
const REDUCE_WORKSPACES_GIB: f64 = 0.35;
/// A communicator's buffers for each further rank, where they count: on Hopper and later (TP=2: 0.54 GiB in all, TP=8: 2.3), on
/// A100 (TP=2: 0.67 GiB in all, 0.55 with one rank), without NVLink (0.20 GiB at TP=16 of RTX 3090).
const COLLECTIVE_GIB: [f64; 3] = [0.31, 0.12, 0.01];
/// One captured graph of one layer (0.25 to 0.4 MiB in logs of 0.10 to 0.26).
const GRAPH_MIB: f64 = 0.3;
/// Context, libraries and kernels loaded on a GPU (H100: 78.57 GiB free of 79.18).
const CONTEXT_GIB: f64 = 0.6;
/// Communicators of a replica with several ranks.
const OUTSIDE_COLLECTIVES_GIB: f64 = 0.9;

/// The budget of one GPU under `shape`.
pub fn budget(
    release: &Vllm,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    stages: &[Range<usize>],
    weights: &[StageWeights],
) -> MemoryBudget {
    let utilization = settings.gpu_memory_utilization;
    let last = stages.len().saturating_sub(1);
    let token_bytes = activation::token_bytes_by_kind(model, shape);
    let added = Growth::new(model, |kind| {
        kind.tensors.iter().map(|t| added_after_loading(release, t, shape, gpu)).fold(0, u64::saturating_add)
    });
    let items = stages
        .iter()
        .zip(weights)
        .enumerate()
        .map(|(i, (layers, weights))| StageItems {
            buffers: buffers(model, layers, weights, &added),
            activation: profile_run(release, model, gpu, settings, layers, &token_bytes, (i == 0, i == last)),
            runtime: runtime(release, shape, gpu),
            cuda_graph: if release.graphs_in_budget {
                graphs(settings, layers.len())
            } else {
                Item::none("this release takes CUDA graphs from outside the budget")
            },
            drafter: Item::NO_DRAFTER,
        })
        .collect();
    MemoryBudget {
        budget: Bytes::from_f64((gpu.memory_bytes.as_f64() * utilization).ceil()),
        utilization,
        share_of_rest: 1.0,
        knob_on_rest: false,
        stages: items,
        free: Vec::new(),
        outside: outside(release, shape, settings, stages),
        source: "ceil(gpu_memory_utilization x the memory that the driver reports), v1/worker/utils.py request_memory",
    }
}

/// Position tables; for a quantised latent the two 16-bit copies that its up-projection leaves,
/// `layers * (H/T) * kv_lora_rank * (nope + v) * 2 B`; and what kernels pad 4-bit experts by after loading.
fn buffers(model: &ModelSpec, layers: &Range<usize>, weights: &StageWeights, added: &Growth) -> Item {
    Item::exact(
        weights.buffer_bytes + added.of_stage(model, layers),
        "position tables, 16-bit copies of quantised MLA up-projections, and kernel padding made after loading",
    )
}

/// Bytes that a tensor grows by when the engine prepares it for its kernels. MXFP4 experts are padded to 256 hidden columns,
/// and before Hopper (Marlin) to 128 columns of a rank's width: gpt-oss-20b loads 13.47 GiB on H100 and 13.72 on A100.
fn added_after_loading(release: &Vllm, tensor: &Tensor, shape: &Shape, gpu: &Gpu) -> u64 {
    if !tensor.storage.is_quantised() {
        return 0;
    }
    if after_loading::is_up_projection(tensor) {
        // whole heads are multiplied out by the matrix itself
        return if release.latent_caches {
            after_loading::elements(tensor, shape).saturating_mul(2)
        } else {
            0
        };
    }
    let tiled = tensor.storage.tile != (1, 1) && tensor.storage.element == Dtype::Fp4;
    if tensor.role != Role::RoutedExperts || !tiled {
        return 0;
    }
    let width = if matches!(Generation::of(gpu), Generation::Older | Generation::Amd) { 128 } else { 1 };
    let is_up = tensor.inputs.cut == Cut::Whole;
    let (rows, cols) = tensor.storage.tile;
    let mut padded = tensor.clone();
    padded.storage.tile =
        if is_up { (rows.max(width), cols.max(256)) } else { (rows.max(256), cols.max(width)) };
    padded.on_rank(shape).bytes.saturating_sub(tensor.on_rank(shape).bytes)
}

/// The profile run: `Q` tokens through the layers, then on the last stage the sampler over `min(max_num_seqs, Q)` rows of
/// the vocabulary in fp32; the peak is the larger. The outputs of an encoder's run, on the first stage, stay during the layers'.
fn profile_run(
    release: &Vllm,
    model: &ModelSpec,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    layers: &Range<usize>,
    token_bytes: &[u64],
    (first, last): (bool, bool),
) -> Item {
    let tokens = settings.max_num_batched_tokens;
    let of_layers = if release.is_first_engine(gpu) {
        activation::eager_peak(model, layers, token_bytes, tokens)
    } else {
        activation::layer_peak(model, layers, token_bytes, tokens)
    };
    let rows = settings.max_num_seqs.min(tokens);
    let logits = Bytes(rows.saturating_mul(model.vocab_size).saturating_mul(4)).as_f64();
    let of_sampler = if last { logits * release.sampler_copies } else { 0.0 };
    let encoder = first && !settings.language_model_only && activation::has_tower(model);
    let of_encoder = if encoder { Bytes::from_gib(ENCODER_GIB).as_f64() } else { 0.0 };
    let of_layers = of_layers + of_encoder;
    let source = match (of_sampler > of_layers, encoder) {
        (true, _) => {
            "sampler peak of the profile run: fp32 copies of max_num_seqs x vocabulary, by release (fitted to start-up logs)"
        }
        (false, false) => {
            "layer peak of the profile run: max_num_batched_tokens x widest half of a layer on a rank (fitted to start-up logs)"
        }
        (false, true) => "layer peak of the profile run, and an encoder's run (fitted to start-up logs)",
    };
    Item::fitted(of_layers.max(of_sampler), (0.6, 1.6), source)
}

fn runtime(release: &Vllm, shape: &Shape, gpu: &Gpu) -> Item {
    let further = if release.collectives_in_budget { shape.tp.saturating_sub(1).min(7) } else { 0 };
    let reduces = release.reduce_workspaces
        && shape.tp > 1
        && matches!(Generation::of(gpu), Generation::Hopper | Generation::Blackwell);
    let workspaces = if reduces { REDUCE_WORKSPACES_GIB } else { 0.0 };
    let [recent, ampere, without_nvlink] = COLLECTIVE_GIB;
    let each = match (Generation::of(gpu), gpu.compute_capability) {
        (Generation::Hopper | Generation::Blackwell | Generation::Amd, _) => recent,
        (_, Some((8, 0))) => ampere,
        _ => without_nvlink,
    };
    let gib = Bytes(further).as_f64().mul_add(each, RUNTIME_GIB + workspaces);
    Item::fitted(
        Bytes::from_gib(gib).as_f64(),
        (0.2, 2.0),
        if reduces {
            "non-torch memory, and workspaces of ranks that reduce together (start-up logs of 0.13 to 0.22)"
        } else if further > 0 {
            "non-torch memory and communicators, which this release counts (start-up logs of 0.10)"
        } else {
            "non-torch memory that appears after the first measurement (start-up logs: 0.02 to 0.15 GiB)"
        },
    )
}

/// Sizes for which graphs are captured: 1, 2, 4, then every 8 to 256, then every 16 to `min(2 * max_num_seqs, 512)`.
fn capture_sizes(max_num_seqs: u64) -> u64 {
    let largest = max_num_seqs.saturating_mul(2).min(512);
    let small = [1, 2, 4].iter().filter(|n| **n <= largest).count() as u64;
    small.saturating_add(largest.min(256) / 8).saturating_add(largest.saturating_sub(256) / 16)
}

fn graphs(settings: &ResolvedSettings, layers: usize) -> Item {
    if settings.enforce_eager {
        return Item::none("no CUDA graphs with enforce_eager");
    }
    let count = capture_sizes(settings.max_num_seqs).saturating_mul(layers as u64);
    let mib = Bytes(count).as_f64() * GRAPH_MIB;
    Item::fitted(
        mib * 1_048_576.0,
        (0.5, 2.5),
        "CUDA graphs: captured sizes x layers of the stage x 0.3 MiB (start-up logs of 0.10 to 0.26)",
    )
}

/// What must stay free outside the budget.
fn outside(release: &Vllm, shape: &Shape, settings: &ResolvedSettings, stages: &[Range<usize>]) -> Item {
    let collectives =
        if shape.gpus() > 1 && !release.collectives_in_budget { OUTSIDE_COLLECTIVES_GIB } else { 0.0 };
    let graphs = if release.graphs_in_budget {
        Bytes::ZERO
    } else {
        let layers = stages.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        graphs(settings, layers).bytes
    };
    Item::fitted(
        Bytes::from_gib(CONTEXT_GIB + collectives).as_f64() + graphs.as_f64(),
        (0.6, 1.8),
        "CUDA context, communicators and whatever the release leaves outside the budget (start-up logs)",
    )
}

#[cfg(test)]
mod tests {
    use super::capture_sizes;

    #[test]
    fn graphs_are_captured_at_the_default_sizes() {
        assert_eq!(capture_sizes(1), 2);
        assert_eq!(capture_sizes(2), 3);
        assert_eq!(capture_sizes(64), 3 + 16);
        assert_eq!(capture_sizes(1024), 3 + 32 + 16);
    }
}
