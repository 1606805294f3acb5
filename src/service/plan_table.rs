//! A plan and a sweep as CSV, for table panels and spreadsheets: a row for each layout or point, read off the answer's JSON,
//! so that a kept answer gives the same rows as a fresh one.

use serde_json::Value;

use super::csv::csv_line;

/// A column: its name, and where its figure stands in a row of the answer.
type Column = (&'static str, &'static str);

/// The sizes of a layout, as `/v1/sweeps` takes them.
const LAYOUT: &str = "/layout";
/// Codes of what a layout warns of.
const WARNINGS: &str = "/warnings";

const OF_PLAN: [Column; 41] = [
    ("rank", "/rank"),
    ("layout", LAYOUT),
    ("tp", "/layout/tp"),
    ("pp", "/layout/pp"),
    ("dp", "/layout/dp"),
    ("ep", "/layout/ep"),
    ("attention_dp", "/layout/attention_dp"),
    ("dcp", "/layout/dcp"),
    ("gpus", "/layout/gpus"),
    ("idle_gpus", "/layout/idle_gpus"),
    ("gpu", "/layout/gpu"),
    ("engine", "/engine/name"),
    ("engine_version", "/engine/version"),
    ("kv_cache_dtype", "/layout/kv_cache_dtype"),
    ("tp_crosses_nodes", "/placement/tp_crosses_nodes"),
    ("replication_factor", "/kv/replication_factor"),
    ("kv_bytes_per_token_per_gpu", "/kv/bytes_per_token_per_gpu"),
    ("kv_tokens_per_replica", "/capacity/kv_tokens_per_replica"),
    ("kv_tokens_total", "/capacity/kv_tokens_total"),
    ("max_sequence_tokens", "/capacity/max_sequence_tokens"),
    ("sequences_at_context", "/capacity/sequences_at_context"),
    ("sequences_total", "/capacity/sequences_total"),
    ("ttft_ms", "/latency/ttft_ms/value"),
    ("ttft_ms_low", "/latency/ttft_ms/low"),
    ("ttft_ms_high", "/latency/ttft_ms/high"),
    ("tpot_ms", "/latency/tpot_ms/value"),
    ("tpot_ms_low", "/latency/tpot_ms/low"),
    ("tpot_ms_high", "/latency/tpot_ms/high"),
    ("decode_step_ms", "/latency/decode_step_ms"),
    ("communication_share", "/latency/communication_share"),
    ("bound", "/latency/bound"),
    ("concurrency", "/throughput/concurrency"),
    ("output_tokens_per_s", "/throughput/output_tokens_per_s"),
    ("output_tokens_per_s_per_gpu", "/throughput/output_tokens_per_s_per_gpu"),
    ("requests_per_s", "/throughput/requests_per_s"),
    ("usd_per_hour", "/cost/usd_per_hour"),
    ("usd_per_million_output_tokens", "/cost/usd_per_million_output_tokens"),
    ("meets_slo", "/meets_slo"),
    ("pareto", "/pareto"),
    ("binding_stage", "/memory/binding_stage"),
    ("warnings", WARNINGS),
];

const OF_SWEEP: [Column; 23] = [
    ("at", "/at"),
    ("feasible", "/feasible"),
    ("layout", LAYOUT),
    ("tp", "/layout/tp"),
    ("pp", "/layout/pp"),
    ("dp", "/layout/dp"),
    ("gpus", "/layout/gpus"),
    ("replication_factor", "/replication_factor"),
    ("kv_tokens_per_replica", "/kv_tokens_per_replica"),
    ("kv_tokens_total", "/kv_tokens_total"),
    ("kv_tokens_if_sharded", "/kv_tokens_if_sharded"),
    ("max_sequence_tokens", "/max_sequence_tokens"),
    ("sequences_at_context", "/sequences_at_context"),
    ("sequences_total", "/sequences_total"),
    ("ttft_ms", "/ttft_ms"),
    ("tpot_ms", "/tpot_ms"),
    ("concurrency", "/concurrency"),
    ("output_tokens_per_s", "/output_tokens_per_s"),
    ("output_tokens_per_s_per_gpu", "/output_tokens_per_s_per_gpu"),
    ("output_tokens_per_s_per_user", "/output_tokens_per_s_per_user"),
    ("usd_per_million_output_tokens", "/usd_per_million_output_tokens"),
    ("pareto", "/pareto"),
    ("reason", "/why_not/code"),
];

/// The layouts of a plan's answer as CSV (RFC 4180), the head first; the head alone where nothing fits.
#[must_use]
pub fn plan_csv(answer: &Value) -> String {
    let head = csv_line(&OF_PLAN.map(|(name, _)| name.to_owned()));
    let rows =
        list(answer, "layouts").iter().map(|layout| csv_line(&OF_PLAN.map(|(_, at)| cell(layout, at))));
    std::iter::once(head).chain(rows).collect()
}

/// The points of a sweep's answer as CSV, curve after curve; the first column is the curve's own value, if it has one.
#[must_use]
pub fn sweep_csv(answer: &Value) -> String {
    let head: Vec<String> =
        std::iter::once("by").chain(OF_SWEEP.map(|(name, _)| name)).map(str::to_owned).collect();
    let rows = list(answer, "curves").iter().flat_map(|curve| {
        list(curve, "points").iter().map(|point| {
            let cells = OF_SWEEP.map(|(_, at)| cell(point, at));
            csv_line(&std::iter::once(cell(curve, "/by")).chain(cells).collect::<Vec<_>>())
        })
    });
    std::iter::once(csv_line(&head)).chain(rows).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A figure as the JSON has it; without one the cell is empty.
fn cell(row: &Value, at: &str) -> String {
    match row.pointer(at) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(warnings)) if at == WARNINGS => {
            let codes: Vec<&str> = warnings.iter().filter_map(|w| w.get("code")?.as_str()).collect();
            codes.join(" ")
        }
        Some(layout @ Value::Object(_)) if at == LAYOUT => sizes(layout),
        Some(other) => other.to_string(),
    }
}

/// "tp=8 pp=2": the sizes that are not one, and TP.
fn sizes(layout: &Value) -> String {
    let of = |name: &str| layout.get(name).and_then(Value::as_u64).unwrap_or(1);
    let others = ["pp", "dp", "ep", "attention_dp", "dcp"].into_iter().filter(|name| of(name) > 1);
    let named: Vec<String> =
        std::iter::once("tp").chain(others).map(|name| format!("{name}={}", of(name))).collect();
    named.join(" ")
}
