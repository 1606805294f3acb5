//! A layout to the command that starts it. Text only: nothing here runs anything.
//!
//! Every setting that the plan's figures rest on is written out, also where it equals today's default:
//! a default that changes between two releases would make the figures wrong without a word.

mod shell;
mod vllm;

use crate::planner::input::{EngineSettings, PlanInput};
use crate::planner::plan::{EngineEcho, Launch, Plan, RankedLayout};

/// Write the launch command of every layout of `plan`, which must be the answer to `input`.
/// A layout of an engine that has no emitter here keeps an empty command.
pub fn attach(input: &PlanInput, plan: &mut Plan) {
    for layout in &mut plan.layouts {
        let engine = &layout.engine;
        let same = |name: &str, version: &str| name == engine.name && version == engine.version;
        let Some(settings) = input.engines.iter().find(|e| same(&e.name, &e.version)) else { continue };
        let Some(echo) = plan.request.engines.iter().find(|e| same(&e.name, &e.version)) else { continue };
        let gpus_per_node = plan
            .cluster
            .node_pools
            .iter()
            .find(|pool| pool.gpu == layout.layout.gpu)
            .map_or(layout.layout.gpus, |pool| pool.gpus_per_node);
        let wanted = Wanted { model: &plan.model.id, settings, echo, layout, gpus_per_node };
        if let Some(command) = wanted.command() {
            layout.launch = Launch { command };
        }
    }
}

/// One layout with all that its command needs.
struct Wanted<'a> {
    model: &'a str,
    /// As the caller gave it: only what differs from the engine's own choice.
    settings: &'a EngineSettings,
    /// The same with every default filled in.
    echo: &'a EngineEcho,
    layout: &'a RankedLayout,
    gpus_per_node: u64,
}

impl Wanted<'_> {
    fn command(&self) -> Option<String> {
        match self.settings.name.as_str() {
            "vllm" => Some(vllm::serve(self)),
            _ => None,
        }
    }

    /// The knob, lowered to what the tightest GPU has free: an engine that is asked for more refuses to start.
    fn gpu_memory_utilization(&self) -> f64 {
        let memory = &self.layout.memory;
        let Some(free) = memory.stages.iter().filter_map(|stage| stage.free_bytes).min() else {
            return self.echo.gpu_memory_utilization;
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio of bytes of one GPU")]
        let share = free as f64 / memory.gpu_bytes.max(1) as f64;
        self.echo.gpu_memory_utilization.min((share * 1000.0).floor() / 1000.0)
    }

    /// The longest sequence to admit: never more than the cache of this layout can hold,
    /// since an engine that is asked for more refuses to start.
    fn max_model_len(&self) -> u64 {
        self.echo.max_model_len.min(self.layout.capacity.max_sequence_tokens)
    }
}
