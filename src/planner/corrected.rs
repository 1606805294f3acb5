//! Memory as a fleet's own start-ups have it.

use super::engine::{MemoryBudget, MemoryCorrection, activation};
use super::estimate::{Assumption, AssumptionValue};
use super::replica::Ground;

impl Ground<'_> {
    /// What the fleet's own start-ups say of this engine on this GPU.
    fn memory_correction(&self) -> Option<&MemoryCorrection> {
        let (engine, version) = (self.rules.name(), self.rules.version());
        self.input
            .memory_corrections
            .iter()
            .find(|c| c.engine == engine && c.version == version && c.gpu == self.gpu.key)
    }

    /// Correct the estimated items of every stage; never below the residual stream of a step.
    pub(super) fn correct(&self, budget: &mut MemoryBudget) {
        let Some(correction) = self.memory_correction() else { return };
        let floor = activation::residual_stream(&self.model, self.settings.max_num_batched_tokens);
        budget.stages.iter_mut().for_each(|items| correction.apply(items, floor));
    }

    /// The correction as the answer lists it.
    pub(super) fn correction_assumed(&self) -> Option<Assumption> {
        let correction = self.memory_correction()?;
        Some(Assumption {
            name: "memory_correction".to_owned(),
            value: AssumptionValue::Text(format!(
                "{} {} on {}: x {} {:+.2} GiB",
                correction.engine,
                correction.version,
                correction.gpu,
                correction.factor,
                correction.added_bytes / 1_073_741_824.0
            )),
            unit: String::new(),
            source: format!(
                "{} start-ups of this fleet (memory of calibration {})",
                correction.observations, self.input.calibration.version
            ),
            given: false,
        })
    }
}
