//! A batch as CSV: a row for each question.

use serde_json::Value;

use super::{Batch, BatchItem};
use crate::planner::answer::short_name;
use crate::planner::plan::RankedLayout;
use crate::service::csv::csv_line;

const HEAD: [&str; 20] = [
    "model",
    "cluster",
    "status",
    "fits",
    "layout",
    "cluster_gpus",
    "gpus",
    "idle_gpus",
    "kv_tokens",
    "sequences",
    "sequences_per_gpu",
    "replication_factor",
    "ttft_ms",
    "tpot_ms",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "usd_per_million_output_tokens",
    "fits_only_as",
    "short_by_bytes",
    "reason",
];

impl Batch {
    /// A row for each question (RFC 4180), the head first; of several layouts, the best.
    #[must_use]
    pub fn csv(&self) -> String {
        let head = csv_line(&HEAD.map(str::to_owned));
        std::iter::once(head).chain(self.items.iter().map(|item| csv_line(&cells(item)))).collect()
    }
}

/// A cell without a figure is empty.
fn cells(item: &BatchItem) -> [String; 20] {
    let plan = item.plan.as_ref();
    let best = plan.filter(|plan| plan.feasible).and_then(|plan| plan.layouts.first());
    let whole = |figure: fn(&RankedLayout) -> u64| best.map_or_else(String::new, |l| figure(l).to_string());
    let real =
        |figure: fn(&RankedLayout) -> f64| best.map_or_else(String::new, |l| format!("{:.2}", figure(l)));
    let why = plan.and_then(|plan| plan.why_not.as_ref());
    let reason = why.map(|why| why.code.clone()).or_else(|| item.problem.as_ref().map(|p| p.code.clone()));
    [
        named(&item.model, &["id", "name"]),
        named(&item.cluster, &["saved"]),
        item.status.to_string(),
        plan.map_or_else(String::new, |plan| plan.feasible.to_string()),
        best.map_or_else(String::new, |l| short_name(&l.layout)),
        plan.map_or_else(String::new, |plan| plan.cluster_gpus.to_string()),
        whole(|l| l.layout.gpus),
        whole(|l| l.layout.idle_gpus),
        whole(|l| l.capacity.kv_tokens_total),
        whole(|l| l.capacity.sequences_total),
        plan.and_then(|plan| plan.sequences_per_gpu).map_or_else(String::new, |n| format!("{n:.3}")),
        real(|l| l.kv.replication_factor),
        real(|l| l.latency.ttft_ms.value),
        real(|l| l.latency.tpot_ms.value),
        real(|l| l.throughput.output_tokens_per_s),
        real(|l| l.throughput.output_tokens_per_s_per_gpu),
        best.and_then(|l| l.cost.usd_per_million_output_tokens)
            .map_or_else(String::new, |usd| format!("{usd:.3}")),
        plan.and_then(|plan| plan.fits_only_as.as_ref()).map_or_else(String::new, |n| n.weights.clone()),
        why.and_then(|why| why.short_by_bytes).map_or_else(String::new, |bytes| bytes.to_string()),
        reason.unwrap_or_default(),
    ]
}

/// A model or cluster as asked: its text, or the member of its object that names it, or the object.
fn named(asked: &Value, members: &[&str]) -> String {
    let member = || members.iter().find_map(|member| asked.get(member)?.as_str());
    asked.as_str().or_else(member).map_or_else(|| asked.to_string(), str::to_owned)
}
