//! What to change next, on the best layout, which is the caller's own where the request names its sizes.
//! Each change is planned for real with the same core, on this layout and under its load; a gain is the quotient of the
//! two plans. At most about a dozen shapes are planned for it, each alone, whatever the size of the search; asked for in detail
//! ([`super::input::Beyond`]) a few more, for other checkpoints and GPUs.

mod cache;
mod more_gpus;
mod ranks;
mod weights;

use std::sync::Arc;

use super::answer::layout_name;
use super::candidate::{Candidate, whole};
use super::input::PlanInput;
use super::judge::Judge;
use super::layout::Shape;
use super::plan::Advice;
use super::replica::Ground;
use super::search::Found;

/// A gain smaller than this is not worth a sentence.
const LEAST_GAIN: f64 = 1.02;

/// Fewer sequences than this count as this many, so that a quotient stays a number.
const LEAST_SEATS: f64 = 1e-6;

/// What would help the best layout, best gain for its cost first; what speaks against changing anything before that.
#[must_use]
pub fn advice(input: &PlanInput, found: &Found<'_>) -> Vec<Advice> {
    let Some((ground, best)) =
        found.ranked.first().and_then(|r| found.grounds.get(r.ground).map(|g| (g, &r.candidate)))
    else {
        return Vec::new();
    };
    let subject = Subject { input, ground, best };
    let mut list: Vec<Advice> =
        [cache::changes(&subject), ranks::changes(&subject), more_gpus::changes(&subject)].concat();
    list.extend(weights::fp8(&subject));
    list.extend(weights::checkpoints(&subject));
    list.retain(|a| a.kv_tokens_gain >= LEAST_GAIN || a.tpot_gain >= LEAST_GAIN);
    let worth = |a: &Advice| a.sequences_gain.max(a.tpot_gain) / a.cost_factor.max(f64::MIN_POSITIVE);
    list.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let mut said: Vec<Advice> =
        [ranks::wide_is_right(&subject), cache::nothing_to_gain(&subject)].into_iter().flatten().collect();
    said.append(&mut list);
    said
}

/// The layout that is advised on.
struct Subject<'s, 'g> {
    input: &'s PlanInput,
    ground: &'s Ground<'g>,
    best: &'s Candidate,
}

impl Subject<'_, '_> {
    fn shape(&self) -> Shape {
        self.best.replica.shape
    }

    /// Another shape on the same ground under the same load; `None` when it does not work or the pool lacks the room.
    fn on_same_ground(&self, shape: &Shape, dp: u64) -> Option<Candidate> {
        replan(self.ground, shape, dp, self.best.concurrency)
    }

    /// A change with its gains over the layout.
    fn gained(&self, change: String, after: &Candidate, cost_factor: f64, message: String) -> Advice {
        let (b, a) = (&self.best.standing, &after.standing);
        Advice {
            change,
            layout: layout_name(self.best),
            becomes: layout_name(after),
            kv_tokens_gain: a.kv_tokens_total as f64 / b.kv_tokens_total.max(1) as f64,
            sequences_gain: seats(self.ground, after) / seats(self.ground, self.best).max(LEAST_SEATS),
            tpot_gain: b.tpot_s / a.tpot_s,
            cost_factor,
            message,
        }
    }

    /// A sentence that nothing is to be changed for.
    fn said(&self, change: &str, message: String) -> Advice {
        let layout = layout_name(self.best);
        Advice {
            change: change.to_owned(),
            becomes: layout.clone(),
            layout,
            kv_tokens_gain: 1.0,
            sequences_gain: 1.0,
            tpot_gain: 1.0,
            cost_factor: 1.0,
            message,
        }
    }

    /// KV heads that ranks can share out; `None` where one latent serves all heads.
    fn kv_heads(&self) -> Option<u64> {
        (!self.ground.model.mla).then_some(self.ground.model.kv_heads.max(1))
    }

    /// True when ranks hold copies of one another's cache.
    fn copies(&self) -> bool {
        self.best.replica.cache.replication_factor > 1.0
    }
}

/// Sequences of the asked context that run at once, as a fraction: what the cache holds, or the engine's own limit.
fn seats(ground: &Ground<'_>, candidate: &Candidate) -> f64 {
    candidate.sequences_at_context.min(ground.settings.max_num_seqs as f64) * candidate.caches() as f64
}

/// Whole sequences of the asked context in each engine's cache, whatever the engine's own limit.
fn held(candidate: &Candidate) -> u64 {
    whole(candidate.sequences_at_context)
}

/// A layout elsewhere, under the load that the best layout carries: gains compare equal loads.
fn replan(ground: &Ground<'_>, shape: &Shape, dp: u64, load: u64) -> Option<Candidate> {
    let mut judge = Judge::of(ground);
    let replica = Arc::new(judge.replica(shape).ok()?);
    if replica.placed.replicas_max < dp {
        return None;
    }
    let speed = judge.speed(&replica);
    Some(ground.candidate_of(Arc::clone(&replica), speed.as_ref(), dp, load))
}
