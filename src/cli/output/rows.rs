//! The ranked layouts as columns of text, for the table and for Markdown.

use super::words::{WIDTH, context, count, factor, milliseconds};
use crate::planner::plan::{Plan, RankedLayout};
use crate::planner::units::grouped;

/// One column: its head and one cell for each layout.
pub(super) struct Column {
    pub(super) head: String,
    pub(super) cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.head]).map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// A text of this column's width, to the right.
    pub(super) fn padded(&self, text: &str) -> String {
        format!("{text:>width$}", width = self.width())
    }
}

/// The columns of the first `limit` layouts. Columns in which no layout differs from the plain case are
/// left out, and the last ones when `narrow` lines would get too long.
pub(super) fn columns(plan: &Plan, limit: usize, narrow: bool) -> Vec<Column> {
    let rows: Vec<&RankedLayout> = plan.layouts.iter().take(limit).collect();
    let context_tokens = plan.request.workload.context_tokens;
    let column = |head: &str, cell: &dyn Fn(&RankedLayout) -> String| Column {
        head: head.to_owned(),
        cells: rows.iter().map(|row| cell(row)).collect(),
    };
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
    while narrow && columns.len() > 4 && line_width(&columns) > WIDTH {
        columns.pop();
    }
    columns
}

fn line_width(columns: &[Column]) -> usize {
    columns.iter().map(|c| c.width() + 1).sum::<usize>().saturating_sub(1)
}

fn rate(per_second: f64) -> String {
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
