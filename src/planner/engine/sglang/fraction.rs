//! `mem_fraction_static` when the caller gives none (`arg_groups/memory_hook.py`). All sizes in MiB.

use crate::planner::engine::activation;
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;

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

/// The table of defaults, by memory.
pub fn defaults(gpu: &Gpu) -> Defaults {
    let (chunk, batch) = match gpu.memory_bytes.get() >> 30 {
        0..20 => (2048, (8, 8)),
        20..35 => (4096, (48, 160)),
        35..60 => (4096, (32, 160)),
        60..160 => (8192, (256, 512)),
        _ => (16_384, (512, 512)),
    };
    Defaults { chunk, batch }
}

/// `f = round((G - reserved) / G, 3)` with
/// `reserved = 512 + 1.5 * chunk + 1024 * T * P / 8 + graphs`, at least 10 GiB on GPUs above 60 GiB;
/// `graphs = 2 * B`, with attention DP also `3 * B * Da` (and half of that again above 300), and the prefill graphs.
/// `T` counts all ranks of a stage, attention DP included. Vision models take 0.95 of it.
pub fn automatic(gpu: &Gpu, model: &ModelSpec, shape: &Shape, chunk: u64, running: Option<u64>) -> f64 {
    let float = |n: u64| n as f64;
    let total = gpu.memory_bytes.as_f64() / 1_048_576.0;
    let ranks = shape.tp.saturating_mul(shape.attention_dp);
    let largest = defaults(gpu).graph_batch(shape);
    let batch = float(running.map_or(largest, |n| n.min(largest)));
    let groups = float(shape.attention_dp);
    let mut graphs = 2.0 * batch;
    if shape.attention_dp > 1 {
        graphs += 3.0 * batch * groups;
        if batch > 300.0 {
            graphs += 1.5 * batch * groups;
        }
    }
    graphs += if model.mla { 1536.0 } else { 8.0 * float(prefill_graphs(chunk)) };
    let width = float(ranks.saturating_mul(shape.pp)) / 8.0;
    let mut reserved = 512.0 + 1.5 * float(chunk.max(2048)) + 1024.0 * width + graphs;
    if total > 60.0 * 1024.0 {
        reserved = reserved.max(10_240.0);
    }
    let mut fraction = ((total - reserved) / total * 1000.0).round() / 1000.0;
    if activation::has_tower(model) {
        fraction *= VISION_FACTOR;
    }
    fraction.clamp(0.05, 0.99)
}

/// Prefill sizes up to `chunk` for which graphs are captured (`arg_groups/cuda_graph_hook.py`): every 4 tokens to 32, 16 to
/// 256, 32 to 512, 64 to 1024, 256 to 4096, then every 512.
fn prefill_graphs(chunk: u64) -> u64 {
    [(0, 32, 4), (32, 256, 16), (256, 512, 32), (512, 1024, 64), (1024, 4096, 256), (4096, u64::MAX, 512)]
        .into_iter()
        .map(|(from, to, step): (u64, u64, u64)| chunk.min(to).saturating_sub(from) / step)
        .fold(0, u64::saturating_add)
}

/// A vision tower of the usual size.
const VISION_FACTOR: f64 = 0.95;

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
