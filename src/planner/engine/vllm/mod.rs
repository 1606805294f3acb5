//! vLLM: what it does with memory and parallel sizes.
//!
//! Read from the 0.33.0 package; paths in comments are inside it. `tests/oracle_cache.rs` compares these
//! rules with what the engine's own code computes.

mod backend;
mod cache;
mod groups;
mod pages;
mod refuse;
mod resolve;
mod split;

use std::ops::Range;

use super::{CacheLayout, EngineRules, Item, MemoryBudget, Refusal, ResolvedSettings, StageItems};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::units::Bytes;

/// The rules of one range of releases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vllm {
    version: &'static str,
    /// `gpu_memory_utilization` when none is given.
    default_utilization: f64,
}

/// vLLM 0.33.
pub static V0_33: Vllm = Vllm { version: "0.33", default_utilization: 0.92 };

impl EngineRules for Vllm {
    fn name(&self) -> &'static str {
        "vllm"
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn resolve(
        &self,
        settings: &EngineSettings,
        model: &ModelSpec,
        gpu: &Gpu,
    ) -> Result<ResolvedSettings, Refusal> {
        resolve::resolve(self, settings, model, gpu)
    }

    fn refuse(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<Refusal> {
        refuse::first_refusal(model, shape, gpu, settings)
    }

    fn pipeline_split(
        &self,
        layers: usize,
        pp: u64,
        settings: &ResolvedSettings,
    ) -> Option<Vec<Range<usize>>> {
        split::stages(layers, pp, settings.pp_layer_partition.as_deref())
    }

    fn cache_layout(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
    ) -> Result<CacheLayout, Refusal> {
        cache::layout(model, shape, gpu, settings, stages)
    }

    fn memory(
        &self,
        _model: &ModelSpec,
        _shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
        _weights: &[Bytes],
    ) -> MemoryBudget {
        let none = Item::none("not estimated yet");
        let items = StageItems { buffers: none, activation: none, runtime: none, cuda_graph: none };
        MemoryBudget {
            budget: Bytes::from_f64((gpu.memory_bytes.as_f64() * settings.gpu_memory_utilization).ceil()),
            utilization: settings.gpu_memory_utilization,
            share_of_rest: 1.0,
            stages: vec![items; stages.len()],
            outside: none,
            source: "ceil(gpu_memory_utilization x memory the driver reports), v1/worker/utils.py request_memory",
        }
    }
}
