//! The ranked layouts as columns of text, for the table and for Markdown.

use super::grid::{Column, narrowed};
use super::words::{context, count, factor, milliseconds};
use crate::planner::plan::{Fleet, FleetPool, Plan, RankedLayout};
use crate::planner::units::grouped;

/// The columns of the first `limit` layouts. Columns in which no layout differs from the plain case are
/// left out, and the last ones when `narrow` lines would get too long.
pub(super) fn columns(plan: &Plan, limit: usize, narrow: bool) -> Vec<Column> {
    let rows: Vec<&RankedLayout> = plan.layouts.iter().take(limit).collect();
    let context_tokens = plan.request.workload.context_tokens;
    let column =
        |head: &str, cell: &dyn Fn(&RankedLayout) -> String| Column::figures(head, &rows, |row| cell(row));
    let any = |differs: &dyn Fn(&RankedLayout) -> bool| rows.iter().any(|row| differs(row));

    let mut columns = vec![column("#", &|r| r.rank.to_string())];
    if plan.request.engines.len() > 1 {
        columns.push(column("engine", &|r| r.engine.name.clone()));
    }
    if plan.cluster.node_pools.len() > 1 {
        columns.push(column("GPU", &|r| r.layout.gpu.clone()));
    }
    columns.push(column("TP", &|r| r.layout.tp.to_string()));
    columns.push(column("PP", &|r| r.layout.pp.to_string()));
    columns.push(column("DP", &|r| r.layout.dp.to_string()));
    if any(&|r| r.layout.ep > 1) {
        columns.push(column("EP", &|r| r.layout.ep.to_string()));
    }
    if any(&|r| r.layout.attention_dp > 1) {
        columns.push(column("ADP", &|r| r.layout.attention_dp.to_string()));
    }
    if any(&|r| r.layout.dcp > 1) {
        columns.push(column("DCP", &|r| r.layout.dcp.to_string()));
    }
    columns.push(column("GPUs", &|r| r.layout.gpus.to_string()));
    if any(&|r| r.layout.idle_gpus > 0) {
        columns.push(column("idle", &|r| r.layout.idle_gpus.to_string()));
    }
    columns.push(column("KV tokens", &|r| count(r.capacity.kv_tokens_total)));
    columns
        .push(column(&format!("seqs@{}", context(context_tokens)), &|r| grouped(r.capacity.sequences_total)));
    columns.push(column("copies", &|r| factor(r.kv.replication_factor)));
    columns.push(column("TPOT ms", &|r| milliseconds(r.latency.tpot_ms.value)));
    columns.push(column("TTFT ms", &|r| milliseconds(r.latency.ttft_ms.value)));
    columns.push(column("tok/s", &|r| rate(r.throughput.output_tokens_per_s)));
    if narrow { narrowed(columns) } else { columns }
}

/// One row for each pool in which the model fits, then the sum.
pub(super) fn fleet_columns(plan: &Plan, fleet: &Fleet) -> Vec<Column> {
    let rows: Vec<Option<&FleetPool>> = fleet.pools.iter().map(Some).chain([None]).collect();
    let column = |head: &str, cell: &dyn Fn(&FleetPool) -> String, sum: String| {
        Column::figures(head, &rows, |pool| pool.map_or_else(|| sum.clone(), cell))
    };
    let blank = String::new;
    let sequences = format!("seqs@{}", context(plan.request.workload.context_tokens));
    vec![
        column("pool", &|p| p.pool.to_string(), "all".to_owned()),
        column("GPU", &|p| p.layout.gpu.clone(), blank()),
        column("TP", &|p| p.layout.tp.to_string(), blank()),
        column("PP", &|p| p.layout.pp.to_string(), blank()),
        column("DP", &|p| p.layout.dp.to_string(), blank()),
        column("GPUs", &|p| p.layout.gpus.to_string(), fleet.gpus.to_string()),
        column("KV tokens", &|p| count(p.kv_tokens_total), count(fleet.kv_tokens_total)),
        column(&sequences, &|p| grouped(p.sequences_total), grouped(fleet.sequences_total)),
        column("load", &|p| grouped(p.concurrency), blank()),
        column("TPOT ms", &|p| milliseconds(p.tpot_ms), blank()),
        column("tok/s", &|p| rate(p.output_tokens_per_s), rate(fleet.output_tokens_per_s)),
    ]
}

/// Tokens a second, whole.
pub(super) fn rate(per_second: f64) -> String {
    if !per_second.is_finite() || per_second < 0.0 {
        return "-".to_owned();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite and not negative: checked above; `as` saturates"
    )]
    let whole = per_second.round() as u64;
    count(whole)
}
