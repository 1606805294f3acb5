//! How far predicted TPOT and TTFT lie from measured ones: the same table for the measurements in the repository and for
//! anybody's own runs. `docs/ACCURACY.md` describes the rows.

mod baseline;
mod groups;
mod ranking;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::catalogue::calibration::{CalibrationError, calibration, priors};
use crate::planner::estimate::Basis;
use crate::planner::latency::calibrated::Calibration;
use crate::planner::latency::calibrated::range::Band;
use crate::planner::units::grouped;
use crate::service::calibrate::{Usable, collectives, embedded_rows, serving, usable};
use crate::service::measurements::{Observation, Row, RowsError, read};

pub use groups::{Errors, Group};
pub use ranking::{Ranked, Ranking};

/// Predictions beside measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyReport {
    /// Rows read, and of those the ones that could be asked.
    pub rows: usize,
    pub used: usize,
    /// Rows that the calibration in use was fitted to, by id: their error is not one on unseen data.
    pub in_fit: usize,
    /// (reason, rows) of the others.
    pub left_out: Vec<(String, usize)>,
    /// All rows first, then by GPU, engine, kind of model and requests in flight.
    pub groups: Vec<Group>,
    /// How often the stated 80 % ranges hold the measurement: all rows, engines and GPU generations that were measured
    /// together, others.
    pub inside: [Inside; 3],
    pub ranking: Ranking,
    /// True when every row was predicted by a fit that saw no row of its source.
    pub held_out: bool,
    /// Version of the constants.
    pub calibration: String,
}

/// How many measurements lie inside their stated ranges.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Inside {
    /// Measurements, and of those the ones inside: TPOT, TTFT.
    pub tpot: (u64, u64),
    pub ttft: (u64, u64),
}

impl Inside {
    /// "80 % of 1,234", or "none measured".
    fn words((asked, held): (u64, u64)) -> String {
        if asked == 0 {
            return "none measured".to_owned();
        }
        format!("{:.0} % of {}", held as f64 / asked as f64 * 100.0, grouped(asked))
    }
}

/// Rows or constants that cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error("{path}: {source}")]
    Calibration { path: String, source: CalibrationError },
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
}

/// Judge the calibration in use on a file of rows (JSONL, packed when its name ends in `.gz`, `-` for standard input).
///
/// # Errors
/// When the file cannot be read, or a line is no row.
pub fn latency(path: &Path) -> Result<LatencyReport, LatencyError> {
    of_file(Some(path), None, false)
}

/// Judge on a file of rows, or on the measurements in the binary: the calibration in use, one of a file, or the method
/// (`held_out`: every row by a fit that saw no row of its source, which takes minutes).
///
/// # Errors
/// When a file cannot be read, a line is no row, or the constants are none.
pub fn of_file(
    rows: Option<&Path>,
    constants: Option<&Path>,
    held_out: bool,
) -> Result<LatencyReport, LatencyError> {
    let rows = match rows {
        Some(path) => read(path)?,
        None => embedded_rows()?,
    };
    let judged = match constants {
        None => calibration(),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|source| LatencyError::Io { path: name.clone(), source })?;
            let read = crate::catalogue::calibration::read(&text);
            Arc::new(read.map_err(|source| LatencyError::Calibration { path: name, source })?)
        }
    };
    Ok(judge(&rows, &judged, held_out)?)
}

/// Judge rows.
///
/// # Errors
/// When the measurements in the binary, which the baseline is fitted to, are damaged.
pub fn judge(rows: &[Row], in_use: &Calibration, held_out: bool) -> Result<LatencyReport, RowsError> {
    let Usable { rows: used, left_out } = usable(rows);
    let all: Vec<&Observation> = used.iter().collect();
    let known = embedded_rows()?;
    let fitted: BTreeSet<&str> = known.iter().map(|r| r.id.as_str()).collect();
    let predicted: Vec<(f64, f64)> = if held_out {
        let base = Calibration { algorithms: collectives::fit(&collectives::embedded_points()), ..priors() };
        serving::held_out_by_source(&all, &base)
    } else {
        all.iter().map(|o| serving::predict(o, in_use)).collect()
    };
    let naive = baseline::fit(&usable(&known).rows);
    let plain: Vec<(f64, f64)> = all.iter().map(|o| naive.predict(o)).collect();
    Ok(LatencyReport {
        rows: rows.len(),
        used: all.len(),
        in_fit: all.iter().filter(|o| fitted.contains(o.id.as_str())).count(),
        left_out,
        groups: groups::of(&all, &predicted, &plain),
        inside: inside(&all, &predicted, in_use),
        ranking: ranking::of(&all, &predicted),
        held_out,
        calibration: in_use.version.clone(),
    })
}

/// How often the stated range holds the measurement.
fn inside(rows: &[&Observation], predicted: &[(f64, f64)], calibration: &Calibration) -> [Inside; 3] {
    let mut counted = [Inside::default(); 3];
    let [all, seen, unseen] = &mut counted;
    for (row, (tpot, ttft)) in rows.iter().zip(predicted) {
        let range = calibration.ranges.of(&row.question());
        let own = if range.basis == Basis::Calibrated { &mut *seen } else { &mut *unseen };
        let holds = |measured: Option<f64>, value: f64, band: Band| {
            measured.map(|ms| ms >= value * band.low && ms <= value * band.high)
        };
        let tpot = holds(row.tpot_ms, *tpot, range.tpot);
        let ttft = holds(row.ttft_ms, *ttft, range.ttft);
        for group in [&mut *all, own] {
            for (counts, held) in [(&mut group.tpot, tpot), (&mut group.ttft, ttft)] {
                counts.0 += u64::from(held.is_some());
                counts.1 += u64::from(held == Some(true));
            }
        }
    }
    counted
}

impl LatencyReport {
    /// The report as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let how = if self.held_out {
            format!("every row predicted by a fit that saw no row of its source ({} folds)", serving::FOLDS)
        } else {
            format!("predicted by calibration {}", self.calibration)
        };
        out.push_str(&format!("{} rows, {} used: {how}.", self.rows, self.used));
        if self.in_fit > 0 && !self.held_out {
            out.push_str(&format!(" {} of them are among the rows that it was fitted to.", self.in_fit));
        }
        out.push_str("\n\n");
        for (why, n) in &self.left_out {
            out.push_str(&format!("- left out: {n}, {why}\n"));
        }
        out.push('\n');
        out.push_str(&groups::markdown(&self.groups));
        out.push_str("\nInside the stated 80 % range:\n\n| | TPOT | TTFT |\n|---|---:|---:|\n");
        let names = [
            "all rows",
            "engine and GPU generation measured together before",
            "never so, or over stages or a network",
        ];
        for (name, inside) in names.into_iter().zip(&self.inside) {
            let (tpot, ttft) = (Inside::words(inside.tpot), Inside::words(inside.ttft));
            out.push_str(&format!("| {name} | {tpot} | {ttft} |\n"));
        }
        out.push('\n');
        out.push_str(&self.ranking.markdown());
        out
    }
}
