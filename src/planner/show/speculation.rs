//! Speculative decoding as the answer shows it.

use crate::planner::estimate::{Assumption, AssumptionValue};
use crate::planner::plan::SpeculationEcho;
use crate::planner::replica::Ground;
use crate::planner::speculation::DraftMethod;

/// What the engine is started with; `None` without drafts.
pub(super) fn shown(ground: &Ground<'_>) -> Option<SpeculationEcho> {
    let settings = &ground.settings;
    let given = settings.speculation.acceptance_rate;
    (settings.num_speculative_tokens > 0).then(|| SpeculationEcho {
        method: settings.speculation.method.map(|method| method.name().to_owned()),
        num_speculative_tokens: settings.num_speculative_tokens,
        acceptance_rate: ground.acceptance(),
        acceptance_rate_given: given.is_some(),
    })
}

impl Ground<'_> {
    /// What stands for figures of speculative decoding that were not given.
    pub(super) fn drafting_assumptions(&self) -> Vec<Assumption> {
        let settings = &self.settings;
        if settings.num_speculative_tokens == 0 {
            return Vec::new();
        }
        let text = |name: &str, value: &str, source: &str| Assumption {
            name: name.to_owned(),
            value: AssumptionValue::Text(value.to_owned()),
            unit: String::new(),
            source: source.to_owned(),
            given: false,
        };
        let given = settings.speculation.acceptance_rate.is_some();
        let source = if given {
            "speculative_config.acceptance_rate"
        } else {
            "fitted to public runs with prediction layers (mtp); how often drafts hold depends on the text: give your own"
        };
        let mut list =
            vec![Assumption { given, ..self.assumption("acceptance_rate", self.acceptance(), "", source) }];
        list.push(match settings.speculation.method {
            None => text(
                "drafter",
                "not named",
                "its weights, its cache and its passes are not counted: name speculative_config.method",
            ),
            Some(DraftMethod::Mtp) => text(
                "drafter",
                "mtp",
                "the checkpoint is taken to have a prediction layer like its last one, with a cache of its own",
            ),
            Some(DraftMethod::Ngram) => text("drafter", "ngram", "nothing is computed on the GPU to draft"),
            Some(method) => text("drafter", method.name(), "one size for each method (docs/FORMULAS.md), or draft_weights_bytes"),
        });
        list
    }
}
