//! vLLM: what it does with memory and parallel sizes.
//!
//! Read from the 0.33.0 package; paths in comments are inside it. `tests/oracle_cache.rs` compares these
//! rules with what the engine's own code computes. Older releases differ by the table in `release`.

mod backend;
mod cache;
mod groups;
mod memory;
mod pages;
mod refuse;
mod release;
mod resolve;
pub(super) mod split;

use std::ops::Range;

pub use refuse::last_release_with;
pub use release::{V0_5, V0_6, V0_7_1, V0_8, V0_10, V0_12, V0_20, V0_20_1, V0_21, V0_24, V0_33};

use super::{CacheLayout, EngineRules, MemoryBudget, Refusal, RefusalCode, ResolvedSettings, WhenFull};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::sharded::StageWeights;

/// The rules of one range of releases; `release` has the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vllm {
    version: &'static str,
    /// `gpu_memory_utilization` when none is given.
    default_utilization: f64,
    /// GPUs of 160 GiB and more take 16,384 tokens a step by default.
    large_gpu_defaults: bool,
    /// fp32 copies of the logits at the sampler's peak.
    sampler_copies: f64,
    /// CUDA graphs are estimated and taken off the budget.
    graphs_in_budget: bool,
    /// Communicators are set up after the first measurement, so their memory counts.
    collectives_in_budget: bool,
    /// A cache format that the checkpoint declares is taken without being asked for.
    declared_kv_dtype: bool,
    /// Windows and chunks have groups of their own.
    hybrid_manager: bool,
    /// Models with states cache prefixes by default.
    hybrid_prefix_caching: bool,
    /// Prefill hands out states in between, for which a request holds one block more.
    state_checkpoints: bool,
    /// A window is sized for all batches in flight, not for one.
    batches_in_flight: bool,
    /// The printed tokens are `concurrency * max_model_len`, else `blocks / groups * block size`.
    concurrency_figure: bool,
    /// The first engine (V0): prompts are not cut while no longer ones than 32k are admitted.
    prompts_whole: bool,
    /// AMD GPUs still take the first engine, which cuts no prompts there.
    first_engine_on_amd: bool,
    /// Tokens of a step of the first engine where it cuts prompts.
    chunk_when_cut: u64,
    /// Latents are cached as such; before, whole heads of keys and values.
    latent_caches: bool,
    /// On Hopper and later, ranks that reduce together get workspaces (symmetric memory, fused all-reduce) while the engine measures.
    reduce_workspaces: bool,
    /// A checkpoint in a format about to be dropped starts only with a flag.
    refuses_deprecated: bool,
    /// The block that is never handed out counts when the engine checks that one request fits.
    null_block_checked: bool,
}

impl Vllm {
    /// This release runs its first engine (V0) on this GPU.
    fn is_first_engine(&self, gpu: &Gpu) -> bool {
        self.prompts_whole || (self.first_engine_on_amd && gpu.vendor == "amd")
    }
}

impl EngineRules for Vllm {
    fn name(&self) -> &'static str {
        "vllm"
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn when_full(&self) -> WhenFull {
        // `v1/core/sched/scheduler.py`, `_preempt_request`: the cache is freed and computed again
        WhenFull::Recompute
    }

    fn longest(&self, model: &ModelSpec) -> u64 {
        model.positions.in_vllm().max(1)
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
        refuse::first_refusal(self, model, shape, gpu, settings)
    }

    fn refused_code(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<RefusalCode> {
        refuse::first_code(self, model, shape, gpu, settings)
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
        cache::layout(self, model, shape, gpu, settings, stages)
    }

    fn memory(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
        weights: &[StageWeights],
    ) -> MemoryBudget {
        memory::budget(self, model, shape, gpu, settings, stages, weights)
    }
}
