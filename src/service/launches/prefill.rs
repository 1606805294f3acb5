//! The prefill half of a pair: does it fit beside the decode workers, and can they read its cache?

use serde_json::Value;

use super::PrefillWorkers;
use crate::ingest::launch::PrefillAsk;
use crate::ingest::{FieldError, Pointer};
use crate::launch::platform::{PrefillPool, connectors};
use crate::planner::input::PlanInput;
use crate::planner::kv::handover::{self, Side, Verdict};
use crate::planner::plan::{Plan, PoolSummary, RankedLayout};
use crate::service::ServiceError;
use crate::service::kv::class_of;
use crate::service::question::Asked;

/// The prefill workers, planned.
pub(super) struct Half {
    plan: Plan,
    pub shown: PrefillWorkers,
    decode_from: Option<u64>,
}

impl Half {
    /// Plan the prefill workers beside the decode workers `decode`.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] when they do not fit, or when their cache cannot be handed over.
    pub fn of(ask: &PrefillAsk, asked: &Asked, decode: &RankedLayout) -> Result<Self, ServiceError> {
        let same = |e: &&crate::planner::input::EngineSettings| {
            e.name == decode.engine.name && e.version == decode.engine.version
        };
        let input = PlanInput {
            search: ask.search.clone(),
            engines: asked.input.engines.iter().find(same).cloned().into_iter().collect(),
            limit: 1,
            ..asked.input.clone()
        };
        let plan = Asked { input, source: asked.source, notes: asked.notes.clone() }.plan();
        let Some(layout) = plan.layouts.first() else {
            let why = plan.refused.first().map_or(&plan.answer, |refused| &refused.message);
            return Err(fault("does_not_fit", format!("the prefill workers do not fit: {why}")));
        };
        let connector = connector(ask, &decode.engine.name)?;
        let decode_from = side_by_side(&plan, layout, decode)?;
        let handover =
            handover::judge(&side(layout, connector), &side(decode, connector), class_of(&asked.input.model));
        if handover.verdict == Verdict::Refused {
            return Err(fault("handover_refused", refusal(&handover)));
        }
        let admitted = plan.request.engines.first().map_or(u64::MAX, |e| e.max_model_len);
        let shown = PrefillWorkers {
            layout: layout.layout.clone(),
            kv_tokens_per_replica: layout.capacity.kv_tokens_per_replica,
            max_model_len: admitted.min(layout.capacity.max_sequence_tokens),
            connector: connector.to_owned(),
            handover,
        };
        Ok(Self { plan, shown, decode_from })
    }

    pub fn pool(&self) -> Option<PrefillPool<'_>> {
        Some(PrefillPool {
            plan: &self.plan,
            layout: self.plan.layouts.first()?,
            connector: &self.shown.connector,
            decode_from: self.decode_from,
        })
    }
}

fn fault(code: &'static str, detail: String) -> ServiceError {
    ServiceError::Invalid(vec![FieldError::at(&Pointer::root().key("prefill"), code, detail)])
}

fn connector<'a>(ask: &'a PrefillAsk, engine: &str) -> Result<&'a str, ServiceError> {
    let known = connectors(engine);
    let Some(asked) = ask.connector.as_deref() else { return Ok(known.first().copied().unwrap_or_default()) };
    if known.contains(&asked) {
        return Ok(asked);
    }
    let place = Pointer::root().key("prefill").key("connector");
    let detail = format!("no flags are written for `{asked}` under {engine}");
    let fault = FieldError::at(&place, "not_allowed", detail)
        .allowed(known.iter().copied())
        .got(&Value::String(asked.to_owned()));
    Err(ServiceError::Invalid(vec![fault]))
}

/// One half as the rules of a hand-over see it.
pub fn side(layout: &RankedLayout, connector: &str) -> Side {
    Side {
        engine: layout.engine.name.clone(),
        version: layout.engine.version.clone(),
        connector: connector.to_owned(),
        tp: layout.layout.tp,
        pp: layout.layout.pp,
        attention_dp: layout.layout.attention_dp,
        dcp: layout.layout.dcp,
        page_size: Some(layout.capacity.block_size),
        kv_dtype: layout.layout.kv_cache_dtype.clone(),
    }
}

fn refusal(handover: &handover::Compatibility) -> String {
    let why: Vec<&str> = handover
        .reasons
        .iter()
        .filter(|reason| reason.verdict == Verdict::Refused)
        .map(|reason| reason.message.as_str())
        .collect();
    let near = handover.nearest.as_ref().map_or_else(String::new, |pair| {
        format!(" Decode workers of TP={} × PP={} could read it.", pair.consumer.tp, pair.consumer.pp)
    });
    format!("the decode workers cannot read this cache: {}{near}", why.join(" "))
}

/// Both halves on the cluster: on nodes of their own, or on the one node that there is, where the decode workers take the
/// GPUs after those of prefill. Returns the first of these.
fn side_by_side(
    plan: &Plan,
    prefill: &RankedLayout,
    decode: &RankedLayout,
) -> Result<Option<u64>, ServiceError> {
    let pool = |layout: &RankedLayout| plan.cluster.node_pools.iter().find(|p| p.gpu == layout.layout.gpu);
    let (Some(of_prefill), Some(of_decode)) = (pool(prefill), pool(decode)) else { return Ok(None) };
    if of_prefill.gpu != of_decode.gpu {
        return Ok(None);
    }
    if !(prefill.placement.devices.is_empty() && decode.placement.devices.is_empty()) {
        return Err(fault(
            "does_not_fit",
            "GPUs of a node differ in free memory, and each half was planned as if the best were its own"
                .to_owned(),
        ));
    }
    let per_node = of_prefill.gpus_per_node.max(1);
    if of_prefill.nodes == 1 {
        let first = after(prefill, decode, of_prefill);
        let needed = first.saturating_add(decode.layout.gpus);
        if needed > per_node {
            return Err(fault(
                "does_not_fit",
                format!(
                    "{} GPUs for prefill and {} for decode: the node has {per_node}",
                    prefill.layout.gpus, decode.layout.gpus
                ),
            ));
        }
        return Ok(Some(first));
    }
    let (for_prefill, for_decode) = (nodes(prefill, per_node), nodes(decode, per_node));
    if for_prefill.saturating_add(for_decode) > of_prefill.nodes {
        return Err(fault(
            "does_not_fit",
            format!(
                "{for_prefill} nodes for prefill and {for_decode} for decode: there are {}",
                of_prefill.nodes
            ),
        ));
    }
    Ok(None)
}

/// The first GPU after those of prefill, at the start of an island where the decode workers would otherwise straddle two.
fn after(prefill: &RankedLayout, decode: &RankedLayout, pool: &PoolSummary) -> u64 {
    let used = prefill.layout.gpus;
    let replica = decode.layout.gpus.checked_div(decode.layout.dp.max(1)).unwrap_or(1).max(1);
    if pool.island_gpus < pool.gpus_per_node {
        used.next_multiple_of(replica.min(pool.island_gpus).max(1))
    } else {
        used
    }
}

/// Whole nodes that a half takes.
fn nodes(layout: &RankedLayout, per_node: u64) -> u64 {
    let dp = layout.layout.dp.max(1);
    let replica = layout.layout.gpus.checked_div(dp).unwrap_or(1).max(1);
    if replica > per_node {
        dp.saturating_mul(replica.div_ceil(per_node))
    } else {
        dp.div_ceil((per_node / replica).max(1))
    }
}
