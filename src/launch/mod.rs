//! A layout to what starts it: the engine's commands, and files for the platforms that run engines. Text only: nothing
//! here runs anything.
//!
//! Every setting that the plan's figures rest on is written out, also where it equals today's default:
//! a default that changes between two releases would make the figures wrong without a word.

mod commands;
mod pair;
pub mod platform;
mod sglang;
mod shell;
mod spread;
mod start;
mod tensorrt_llm;
mod vllm;
mod yaml;

use crate::planner::input::{EngineSettings, PlanInput};
use crate::planner::plan::{EngineEcho, Launch, Plan, PoolSummary, RankedLayout};
use start::Start;

/// Write the launch command of every layout of `plan`, which must be the answer to `input`.
pub fn attach(input: &PlanInput, plan: &mut Plan) {
    let commands: Vec<Option<String>> = plan
        .layouts
        .iter()
        .map(|layout| Wanted::of(input, plan, layout).map(|wanted| commands::of(&wanted)))
        .collect();
    for (layout, command) in plan.layouts.iter_mut().zip(commands) {
        if let Some(command) = command {
            layout.launch = Launch { command };
        }
    }
}

/// An engine that can be started here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Vllm,
    Sglang,
    TensorRtLlm,
}

impl Engine {
    fn of(name: &str) -> Option<Self> {
        match name {
            "vllm" => Some(Self::Vllm),
            "sglang" => Some(Self::Sglang),
            "tensorrt-llm" => Some(Self::TensorRtLlm),
            _ => None,
        }
    }
}

/// The part that an engine plays: all of a request, or one half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Both,
    Prefill,
    Decode,
}

/// One layout with all that its command needs.
pub(crate) struct Wanted<'a> {
    engine: Engine,
    role: Role,
    /// The first GPU of its own on a node that holds both halves of a pair: which are used must then be said.
    own_from: Option<u64>,
    /// What carries the cache from prefill to decode.
    connector: &'a str,
    model: &'a str,
    /// As the caller gave it: only what differs from the engine's own choice.
    settings: &'a EngineSettings,
    /// The same with every default filled in.
    echo: &'a EngineEcho,
    layout: &'a RankedLayout,
    gpus_per_node: u64,
    /// GPUs of a node that the best link joins.
    island_gpus: u64,
}

impl<'a> Wanted<'a> {
    /// A layout of `plan`, which is the answer to `input`. `None` for an engine that is not known here, and for a model
    /// whose name an engine would take for a flag.
    pub(crate) fn of(input: &'a PlanInput, plan: &'a Plan, layout: &'a RankedLayout) -> Option<Self> {
        if plan.model.id.starts_with('-') {
            return None;
        }
        let engine = &layout.engine;
        let same = |name: &str, version: &str| name == engine.name && version == engine.version;
        let pool = pool(plan, layout);
        Some(Self {
            engine: Engine::of(&engine.name)?,
            role: Role::Both,
            own_from: None,
            connector: pair::NIXL,
            model: &plan.model.id,
            settings: input.engines.iter().find(|e| same(&e.name, &e.version))?,
            echo: plan.request.engines.iter().find(|e| same(&e.name, &e.version))?,
            layout,
            gpus_per_node: pool.map_or(layout.layout.gpus, |p| p.gpus_per_node),
            island_gpus: pool.map_or(layout.layout.gpus, |p| p.island_gpus),
        })
    }

    /// What starts one process; the file of options, where there is one, lies at `options_path`.
    fn start(&self, options_path: &str) -> Start {
        match self.engine {
            Engine::Vllm => vllm::start(self),
            Engine::Sglang => sglang::start(self),
            Engine::TensorRtLlm => tensorrt_llm::start(self, options_path),
        }
    }

    fn replica_gpus(&self) -> u64 {
        let layout = &self.layout.layout;
        layout.tp.saturating_mul(layout.pp).saturating_mul(layout.attention_dp)
    }

    /// Replicas that run side by side on a node.
    fn replicas_on_a_node(&self) -> u64 {
        let seats = match self.layout.placement.devices.len() as u64 {
            0 if self.island_gpus < self.gpus_per_node && self.replica_gpus() <= self.island_gpus => {
                let islands = self.gpus_per_node / self.island_gpus.max(1);
                islands.saturating_mul(self.island_gpus / self.replica_gpus().max(1))
            }
            0 => self.gpus_per_node / self.replica_gpus().max(1),
            chosen => chosen,
        };
        seats.clamp(1, self.layout.layout.dp.max(1))
    }

    /// The device numbers of a replica on its node, where it must not take just any: several share the node, or its GPUs
    /// differ in free memory or in what links them.
    fn pinned(&self, replica: u64) -> Option<Vec<u64>> {
        if let Some(chosen) = usize::try_from(replica).ok().and_then(|i| self.layout.placement.devices.get(i))
        {
            return Some(chosen.clone());
        }
        let size = self.replica_gpus();
        let islands = self.island_gpus < self.gpus_per_node;
        let shared = self.replicas_on_a_node() > 1 || self.own_from.is_some();
        if size >= self.gpus_per_node || !(shared || islands) {
            return None;
        }
        let first = if islands && size <= self.island_gpus {
            let inside = (self.island_gpus / size.max(1)).max(1);
            let island = (replica / inside).saturating_mul(self.island_gpus);
            island.saturating_add((replica % inside).saturating_mul(size))
        } else {
            replica.saturating_mul(size)
        };
        let first = first.saturating_add(self.own_from.unwrap_or(0));
        Some((first..first.saturating_add(size)).collect())
    }

    /// Layers of each stage, where they are not the engine's own split.
    fn layers(&self) -> Option<&[u64]> {
        let given = self.settings.pp_layer_partition.as_deref();
        given.or(self.layout.memory.layer_partition.as_deref())
    }

    /// The same as the engines take it.
    fn layer_partition(&self) -> Option<String> {
        Some(self.layers()?.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
    }

    /// The knob, lowered to what the tightest GPU has free: an engine that is asked for more refuses to start.
    fn gpu_memory_utilization(&self) -> f64 {
        let memory = &self.layout.memory;
        let Some(free) = memory.stages.iter().filter_map(|stage| stage.free_bytes).min() else {
            return memory.utilization;
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio of bytes of one GPU")]
        let share = free as f64 / memory.gpu_bytes.max(1) as f64;
        memory.utilization.min((share * 1000.0).floor() / 1000.0)
    }

    /// The longest sequence to admit: never more than the cache of this layout can hold,
    /// since an engine that is asked for more refuses to start.
    fn max_model_len(&self) -> u64 {
        self.echo.max_model_len.min(self.layout.capacity.max_sequence_tokens)
    }
}

/// The pool that a layout runs on.
fn pool<'p>(plan: &'p Plan, layout: &RankedLayout) -> Option<&'p PoolSummary> {
    plan.cluster.node_pools.iter().find(|pool| pool.gpu == layout.layout.gpu)
}

#[cfg(test)]
mod tests;
