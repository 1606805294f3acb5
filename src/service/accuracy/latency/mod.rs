//! How far predicted TPOT and TTFT lie from measured ones: the same table for the measurements in the repository and for
//! anybody's own runs. `docs/ACCURACY.md` describes the rows.

mod baseline;
mod groups;
mod ranking;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::catalogue::calibration::{CalibrationError, calibration, priors};
use crate::planner::latency::calibrated::Calibration;
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
    /// Share of measurements inside the stated 80 % ranges: TPOT, TTFT.
    pub inside: (f64, f64),
    pub ranking: Ranking,
    /// True when every row was predicted by a fit that saw no row of its source.
    pub held_out: bool,
    /// Version of the constants.
    pub calibration: String,
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
fn inside(rows: &[&Observation], predicted: &[(f64, f64)], calibration: &Calibration) -> (f64, f64) {
    let mut held = [0.0f64; 2];
    let mut asked = [0.0f64; 2];
    for (row, (tpot, ttft)) in rows.iter().zip(predicted) {
        let range = calibration.ranges.of(&row.question());
        let figures = [(row.tpot_ms, tpot, range.tpot), (row.ttft_ms, ttft, range.ttft)];
        for ((measured, value, band), (held, asked)) in
            figures.into_iter().zip(held.iter_mut().zip(asked.iter_mut()))
        {
            if let Some(measured) = measured {
                *asked += 1.0;
                let fits = measured >= value * band.low && measured <= value * band.high;
                *held += if fits { 1.0 } else { 0.0 };
            }
        }
    }
    let [tpot, ttft] = held;
    let [of_tpot, of_ttft] = asked;
    (tpot / of_tpot.max(1.0), ttft / of_ttft.max(1.0))
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
        out.push_str(&format!(
            "\nInside the stated 80 % range: TPOT {:.0} %, TTFT {:.0} % of the measurements.\n\n",
            self.inside.0 * 100.0,
            self.inside.1 * 100.0
        ));
        out.push_str(&self.ranking.markdown());
        out
    }
}
