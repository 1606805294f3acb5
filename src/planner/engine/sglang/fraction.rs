//! `mem_fraction_static` when the caller gives none. All sizes in MiB.
//!
//! `arg_groups/memory_hook.py` of 0.5.23, `server_args.py` of 0.5.3, 0.5.6, 0.5.9 and 0.4.6.post5.

use crate::planner::engine::activation;
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::{LayerCache, StateKind};

/// How a range of releases derives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A table by ranks.
    ByRanks,
    /// What chunks and decode graphs are expected to take stays free.
    Reserved,
    /// And what prefill graphs take.
    ReservedWithPrefillGraphs,
}

/// Defaults that go with a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// Tokens of a prefill chunk.
    pub chunk: u64,
    /// Largest batch that graphs are captured for: with fewer than four TP ranks, and with more.
    batch: (u64, u64),
}

impl Defaults {
    /// Largest captured batch of an instance.
    pub const fn graph_batch(self, shape: &Shape) -> u64 {
        if shape.tp.saturating_mul(shape.attention_dp) < 4 { self.batch.0 } else { self.batch.1 }
    }
}

/// MiB of the GPU as `nvidia-smi` prints them, from which the engine starts.
fn total(gpu: &Gpu) -> f64 {
    (gpu.memory_bytes + gpu.driver_reserved_bytes).as_f64() / 1_048_576.0
}

/// The table of defaults, by memory.
pub fn defaults(rule: Rule, gpu: &Gpu) -> Defaults {
    let gib = total(gpu) / 1024.0;
    let (chunk, batch) = match (rule, gib) {
        (Rule::ByRanks, gib) if gib * 1024.0 < 25_000.0 => (2048, (8, 80)),
        (Rule::ByRanks, _) => (8192, (160, 160)),
        (_, gib) if gib < 20.0 => (2048, (8, 8)),
        (Rule::Reserved, gib) if gib < 35.0 => (2048, (16, 80)),
        (_, gib) if gib < 35.0 => (4096, (48, 160)),
        (_, gib) if gib < 60.0 => (4096, (32, 160)),
        (_, gib) if gib < 160.0 => (8192, (256, 512)),
        _ => (16_384, (512, 512)),
    };
    Defaults { chunk, batch }
}

/// What a start is asked for, as far as the share depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    pub gpu: &'a Gpu,
    pub model: &'a ModelSpec,
    pub shape: &'a Shape,
    /// Tokens of a chunk, before attention groups divide it.
    pub chunk: u64,
    /// `max_running_requests`, where the caller limits them.
    pub running: Option<u64>,
    /// CUDA graphs are captured.
    pub graphs: bool,
    /// Towers are loaded.
    pub vision: bool,
    /// A drafter with weights of its own runs beside.
    pub drafts: bool,
}

/// `f = round((G - reserved) / G, 3)` with
/// `reserved = 512 + 1.5 * chunk + 1024 * T * P / 8 + graphs`, at least 10 GiB on GPUs above 60 GiB;
/// `graphs = 2 * B`, with attention DP also `3 * B * Da` (and half of that again above 300), and the prefill graphs.
/// `T` counts all ranks of a stage, attention DP included. Vision models take a factor of it (see [`vision_factor`]).
pub fn automatic(rule: Rule, start: &Start<'_>) -> f64 {
    let fraction = match rule {
        Rule::ByRanks => by_ranks(start),
        Rule::Reserved | Rule::ReservedWithPrefillGraphs => reserved(rule, start),
    };
    let fraction = if start.vision && activation::has_tower(start.model) {
        fraction * vision_factor(rule, start.model)
    } else {
        fraction
    };
    fraction.clamp(0.05, 0.99)
}

/// 0.88, less with more ranks on GPUs up to 80 GiB; above 96 GiB, 48 GiB of the rest besides, 18 GiB left.
fn by_ranks(start: &Start<'_>) -> f64 {
    let total = total(start.gpu);
    let ranks = start.shape.tp.saturating_mul(start.shape.attention_dp).saturating_mul(start.shape.pp);
    let fraction = match ranks {
        _ if total > 81_920.0 => 0.88,
        16.. => 0.79,
        8.. => 0.81,
        4.. => 0.85,
        2.. => 0.87,
        _ => 0.88,
    };
    if total <= 96.0 * 1024.0 {
        return fraction;
    }
    let rest: f64 = 48.0 * 1024.0 * (1.0 - fraction) / total;
    (fraction + rest).min((total - 18.0 * 1024.0) / total)
}

fn reserved(rule: Rule, start: &Start<'_>) -> f64 {
    let float = |n: u64| n as f64;
    let Start { gpu, model, shape, chunk, running, .. } = *start;
    let total = total(gpu);
    let ranks = shape.tp.saturating_mul(shape.attention_dp);
    let largest = defaults(rule, gpu).graph_batch(shape);
    let with_prefill = rule == Rule::ReservedWithPrefillGraphs;
    // earlier releases do not cut the batch to the requests that may run
    let batch = float(running.filter(|_| with_prefill).map_or(largest, |n| n.min(largest)));
    let groups = float(shape.attention_dp);
    let mut graphs = if start.graphs || !with_prefill { 2.0 * batch } else { 0.0 };
    if shape.attention_dp > 1 {
        graphs += 3.0 * batch * groups;
        if batch > 300.0 {
            graphs += 1.5 * batch * groups;
        }
    }
    if with_prefill && start.graphs && prefill_graphs_captured(model, shape) {
        graphs += if model.mla { 1536.0 } else { 8.0 * float(prefill_graphs(chunk)) };
    }
    let width = float(ranks.saturating_mul(shape.pp)) / 8.0;
    let mut reserved = 512.0 + 1.5 * float(chunk.max(2048)) + 1024.0 * width + graphs;
    if total > 60.0 * 1024.0 {
        reserved = reserved.max(10_240.0);
    }
    // weights of a drafter are measured since 0.5.23
    if start.drafts && !with_prefill {
        reserved += 2048.0;
    }
    ((total - reserved) / total * 1000.0).round() / 1000.0
}

/// Multimodal classes that keep their prefill graphs (`configs/model_config.py`).
const MULTIMODAL_WITH_GRAPHS: [&str; 14] = [
    "MiniMaxM3SparseForConditionalGeneration",
    "MiniMaxM3SparseForCausalLM",
    "Cohere2VisionForConditionalGeneration",
    "Glm5NextForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
    "MuseSparkForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    // captures whole prefills (`apply_inkling_prefill_cuda_graph_default`)
    "InklingForConditionalGeneration",
];

/// Whether prefill graphs are captured by default (`arg_groups/cuda_graph_hook.py`).
fn prefill_graphs_captured(model: &ModelSpec, shape: &Shape) -> bool {
    let has = |wanted: fn(&LayerCache) -> bool| model.kinds.iter().flat_map(|k| &k.caches).any(wanted);
    let class = model.architecture.as_str();
    let delta = has(|c| matches!(c, LayerCache::State(state) if matches!(state.kind, StateKind::Kda { .. })));
    let compressed = has(|c| matches!(c, LayerCache::Compressed { .. }));
    let towers = activation::has_tower(model) && !MULTIMODAL_WITH_GRAPHS.contains(&class);
    shape.pp == 1
        && shape.dcp == 1
        && !compressed
        && !towers
        && (!delta || class == "Glm5NextForConditionalGeneration")
}

/// Prefill sizes up to `chunk` for which graphs are captured (`arg_groups/cuda_graph_hook.py`): every 4 tokens to 32, 16 to
/// 256, 32 to 512, 64 to 1024, 256 to 4096, then every 512.
fn prefill_graphs(chunk: u64) -> u64 {
    [(0, 32, 4), (32, 256, 16), (256, 512, 32), (512, 1024, 64), (1024, 4096, 256), (4096, u64::MAX, 512)]
        .into_iter()
        .map(|(from, to, step): (u64, u64, u64)| chunk.min(to).saturating_sub(from) / step)
        .fold(0, u64::saturating_add)
}

/// `0.95 * clamp(1 - 0.1 * (c - 1), 0.8, 1.05)` with `c = layers * hidden^2 / (24 * 1024^2)` of the tower; releases before
/// 0.5 take 0.9.
fn vision_factor(rule: Rule, model: &ModelSpec) -> f64 {
    if rule == Rule::ByRanks {
        return 0.9;
    }
    let Some(tower) = model.tower else { return 1.0 };
    let complexity = tower.layers as f64 * (tower.hidden_size as f64).powi(2) / (24.0 * 1024.0 * 1024.0);
    0.95 * (1.0 - 0.1 * (complexity - 1.0)).clamp(0.8, 1.05)
}

#[cfg(test)]
mod tests {
    use super::prefill_graphs;

    #[test]
    fn prefill_graphs_are_the_engines() {
        let counts = [2048, 4096, 8192, 16_384].map(prefill_graphs);
        assert_eq!(counts, [42, 50, 58, 74]);
        assert_eq!((prefill_graphs(3), prefill_graphs(4)), (0, 1));
    }
}
