//! What drafting takes in a speculative step.

use super::{
    ACTIVATION_BYTES, ExpertWork, P, Paths, Question, Rates, Sent, Values, cubic_mean, experts, layers_cost,
};
use crate::planner::latency::StepCost;
use crate::planner::speculation::Drafter;

/// The drafter's passes of a step, one after the other for each draft token: its weights, the output head, its layers' share of
/// cache reads, collectives and fixed costs, and a layer's cost more for choosing the token.
pub(super) fn drafted(
    q: &Question<'_>,
    rates: &Rates,
    paths: &Paths,
    v: &Values,
    (drafter, batch): (&Drafter, f64),
) -> StepCost {
    let work = q.work;
    let layers = drafter.layers / work.layers.max(1.0);
    let head = if drafter.shares_head { work.head_parameters } else { 0.0 };
    let read = (drafter.dense_bytes + ACTIVATION_BYTES * head) / rates.weights;
    let compute = 2.0 * (drafter.dense_parameters + head) * batch / rates.dense;
    let routed = work.experts.as_ref().filter(|e| drafter.expert_bytes > 0.0 && e.layers > 0.0);
    let (expert_s, expert_read) = routed.map_or((0.0, 0.0), |e| {
        let one = ExpertWork {
            bytes: drafter.expert_bytes,
            active_parameters: e.active_parameters / e.layers,
            layers: 1.0,
            ..*e
        };
        experts(&one, rates, batch * q.attention_groups.max(1.0), None, v)
    });
    let kv_bytes = work.elements_read(q.load.context_tokens) * q.kv_element_bytes * layers;
    let sent = Sent::of(q, paths, v, batch);
    let one = StepCost {
        weights_s: read + expert_read,
        kv_s: batch * kv_bytes / rates.kv,
        compute_s: cubic_mean(read, compute) - read + expert_s - expert_read,
        communication_s: sent.collectives * layers,
        network_s: sent.network * layers,
        overhead_s: layers_cost(work, rates, v) * layers + rates.cost * v.get(P::LayerCost),
        ..StepCost::default()
    };
    one.times(q.engine.draft_tokens)
}
