//! The naive baseline: eleven non-negative constants on bytes, prompts and layers, fitted to the measurements in the
//! binary by weighted least squares, the worst tenth dropped and the rest fitted again.
//!
//! ```text
//! TPOT = a weights/HBM + b cache/HBM + c prompts + d (layers of engine and kind) + e sequences
//! TTFT = f prompt + g layers + h prompts of the others + i
//! ```

use crate::planner::latency::calibrated::setting::EngineKind;
use crate::service::measurements::Observation;

/// Columns of TPOT: weights, cache, prompts, six of layers, sequences, one.
const TPOT: usize = 11;
/// Columns of TTFT.
const TTFT: usize = 4;

/// The fitted baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Naive {
    tpot: Vec<f64>,
    ttft: Vec<f64>,
}

/// Fit the baseline.
#[must_use]
pub fn fit(rows: &[Observation]) -> Naive {
    let tpot = rows.iter().filter_map(|o| Some((tpot_columns(o).to_vec(), o.tpot_ms?))).collect();
    let ttft = rows.iter().filter_map(|o| Some((ttft_columns(o).to_vec(), o.ttft_ms?))).collect();
    Naive { tpot: robust(tpot), ttft: robust(ttft) }
}

impl Naive {
    /// TPOT and TTFT, ms.
    #[must_use]
    pub fn predict(&self, row: &Observation) -> (f64, f64) {
        (dot(&self.tpot, &tpot_columns(row)), dot(&self.ttft, &ttft_columns(row)))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Ideal time of a prompt at the peak rate, ms.
fn prompt_ms(row: &Observation) -> f64 {
    row.ideal_prompt_ms()
}

fn tpot_columns(row: &Observation) -> [f64; TPOT] {
    let q = row.question();
    let (weights, cache) = row.ideal_step_ms();
    let layers = q.work.layers;
    let engine = match q.engine.kind {
        EngineKind::Vllm => 0,
        EngineKind::TensorRtLlm => 1,
        EngineKind::Sglang | EngineKind::Other => 2,
    };
    let mut columns = [0.0; TPOT];
    let mut set = |i: usize, value: f64| {
        if let Some(slot) = columns.get_mut(i) {
            *slot = value;
        }
    };
    set(0, weights);
    set(1, cache);
    set(2, q.load.running * prompt_ms(row) / row.output_tokens.max(1.0));
    set(3 + engine * 2 + usize::from(row.has_experts), layers);
    set(9, q.load.running);
    set(10, 1.0);
    columns
}

fn ttft_columns(row: &Observation) -> [f64; TTFT] {
    let q = row.question();
    [prompt_ms(row), q.work.layers, prompt_ms(row) * q.load.running, 1.0]
}

/// Fit, drop the worst tenth, fit again.
fn robust(mut rows: Vec<(Vec<f64>, f64)>) -> Vec<f64> {
    let first = non_negative(&rows);
    let error = |(columns, y): &(Vec<f64>, f64)| (dot(&first, columns) / y - 1.0).abs();
    rows.sort_by(|a, b| error(a).total_cmp(&error(b)));
    rows.truncate(rows.len() - rows.len() / 10);
    non_negative(&rows)
}

/// Non-negative least squares of relative errors, by cyclic descent over the columns.
fn non_negative(rows: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let width = rows.first().map_or(0, |(columns, _)| columns.len());
    let mut x = vec![0.0; width];
    let mut left: Vec<f64> = rows.iter().map(|_| 1.0).collect();
    for _ in 0..400 {
        for i in 0..width {
            let column = |row: &(Vec<f64>, f64)| row.0.get(i).copied().unwrap_or(0.0) / row.1;
            let square: f64 = rows.iter().map(|row| column(row).powi(2)).sum();
            if square <= 0.0 {
                continue;
            }
            let along: f64 = rows.iter().zip(&left).map(|(row, left)| column(row) * left).sum();
            let Some(value) = x.get_mut(i) else { continue };
            let moved = (*value + along / square).max(0.0);
            let by = moved - *value;
            *value = moved;
            for (row, left) in rows.iter().zip(left.iter_mut()) {
                *left -= by * column(row);
            }
        }
    }
    x
}
