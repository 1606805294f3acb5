//! Refit the constants of the latency model from measurements: the same data give the same constants.

pub mod collectives;
pub mod memory;
pub mod ranges;
pub mod serving;
pub mod solve;

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::catalogue::calibration::{CalibrationFile, calibration, priors, write};
use crate::planner::latency::calibrated::Calibration;
use crate::planner::latency::calibrated::parameters::{PRIORS, Values};
use crate::service::measurements::{Families, Observation, RowsError, observe, parse, read};
use crate::service::observations::ObservationAnswer;
use collectives::significant;
use memory::StartUp;

/// What a calibration reads.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Folder with `latency.jsonl` or `latency.jsonl.gz` and, if collectives are to be refitted, `collectives.csv.gz`;
    /// `None`: the measurements in the binary.
    pub measurements: Option<PathBuf>,
}

/// A fit and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What belongs into `data/calibration/latency.json`.
    pub file: CalibrationFile,
    /// The same as text, newline at the end.
    pub json: String,
    /// For people: rows used and left out, errors in and out of fold.
    pub text: String,
}

/// The measurements in the binary: 2,754 public rows, each with its source.
const ROWS: &[u8] = include_bytes!("../../../data/calibration/measurements/latency.jsonl.gz");

/// Corrections of memory from a fleet's own start-ups, beside the latency constants in use. The same observations give the
/// same file, in whatever order they come.
///
/// # Errors
/// When none of them says anything.
pub fn from_observations(answers: &[ObservationAnswer], least: usize) -> Result<Report, CalibrateError> {
    let mut start_ups = Vec::new();
    let mut left_out: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for answer in answers {
        match StartUp::of(answer) {
            Ok(start_up) => start_ups.push(start_up),
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
    }
    let left_out: Vec<String> =
        left_out.into_iter().map(|(why, n)| format!("left out: {n} start-ups, {why}")).collect();
    if start_ups.is_empty() {
        return Err(CalibrateError::NothingToFit(left_out.join("; ")));
    }
    let groups = memory::fit(&start_ups, least);
    let mut fit = memory::report(&groups, least);
    fit.extend(left_out);
    let memory: Vec<_> = groups.into_iter().filter_map(|group| group.correction).collect();
    let base = calibration();
    let newest = answers.iter().filter_map(|a| a.observed_at.as_deref()).max().unwrap_or("undated");
    let learnt = Calibration {
        version: format!("{}+memory-{}-{}", base.version, day(newest), start_ups.len()),
        source: format!("{}; memory from {} start-ups of this fleet", base.source, start_ups.len()),
        ..Calibration::clone(&base)
    };
    let text = fit.join("\n");
    let file = CalibrationFile { memory, ..write(&learnt, fit) };
    let mut json = serde_json::to_string_pretty(&file)?;
    json.push('\n');
    Ok(Report { file, json, text })
}

/// The day of a time in RFC 3339.
fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or(time)
}

/// A calibration that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error("nothing can be used: {0}")]
    NothingToFit(String),
    #[error("the fit could not be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// Every usable row, and why the others are none.
pub struct Usable {
    pub rows: Vec<Observation>,
    /// (reason, rows), in order of the reason.
    pub left_out: Vec<(String, usize)>,
}

/// Turn rows into questions; figures that no machine can reach (faster than its weights can be read) are left out.
#[must_use]
pub fn usable(rows: &[crate::service::measurements::Row]) -> Usable {
    let mut families = Families::embedded();
    let mut left_out: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    let mut out = Vec::new();
    for row in rows {
        match observe(row, &mut families) {
            Ok(seen) if seen.tpot_ms.is_none_or(|ms| ms >= seen.floor_ms()) => out.push(seen),
            Ok(_) => *left_out.entry("faster than its weights can be read".to_owned()).or_default() += 1,
            Err(why) => *left_out.entry(why.to_owned()).or_default() += 1,
        }
    }
    Usable { rows: out, left_out: left_out.into_iter().collect() }
}

/// The rows in the binary.
///
/// # Errors
/// When they are damaged.
pub fn embedded_rows() -> Result<Vec<crate::service::measurements::Row>, RowsError> {
    let mut text = String::new();
    GzDecoder::new(ROWS)
        .read_to_string(&mut text)
        .map_err(|source| RowsError::Io { path: "embedded measurements".to_owned(), source })?;
    parse(&text, "embedded measurements")
}

/// Refit everything. Minutes in a release build: the constants are fitted once to all rows and once more for each
/// fold, to learn how far held-out measurements lie.
///
/// # Errors
/// When the measurements cannot be read, or none can be used.
pub fn run(paths: &Paths) -> Result<Report, CalibrateError> {
    let rows = match &paths.measurements {
        Some(folder) => read(&rows_file(folder))?,
        None => embedded_rows()?,
    };
    let usable = usable(&rows);
    if usable.rows.is_empty() {
        let reasons: Vec<String> = usable.left_out.iter().map(|(why, n)| format!("{n} × {why}")).collect();
        return Err(CalibrateError::NothingToFit(reasons.join("; ")));
    }
    let base = Calibration { algorithms: collectives::fit(&collectives::embedded_points()), ..priors() };
    let all: Vec<&Observation> = usable.rows.iter().collect();
    let values = rounded(&serving::fit(&all, &base));
    let held_out = serving::held_out_by_source(&all, &base);
    let unseen = serving::held_out_by_pair(&all, &base);
    let newest = rows.iter().filter_map(|r| r.measured_date.as_deref()).max().unwrap_or("undated");
    let calibration = Calibration {
        version: format!("{}-{}", newest, usable.rows.len()),
        source: format!(
            "{} public measurements, {} of them usable, newest {newest}; each row names its source",
            rows.len(),
            usable.rows.len()
        ),
        values,
        ranges: ranges::learn(&all, &held_out, &unseen),
        ..base
    };
    let fitted: Vec<(f64, f64)> = all.iter().map(|o| serving::predict(o, &calibration)).collect();
    let mut fit = vec![
        format!("all rows, in the fit: {}", ranges::summary(&all, &fitted)),
        format!("sources held out ({} folds): {}", serving::FOLDS, ranges::summary(&all, &held_out)),
        format!("engine and GPU generation held out: {}", ranges::summary(&all, &unseen)),
        ranges::coverage(&all, &unseen),
    ];
    fit.extend(usable.left_out.iter().map(|(why, n)| format!("left out: {n} rows, {why}")));
    let text = fit.join("\n");
    let file = write(&calibration, fit);
    let mut json = serde_json::to_string_pretty(&file)?;
    json.push('\n');
    Ok(Report { file, json, text })
}

fn rows_file(folder: &Path) -> PathBuf {
    let plain = folder.join("latency.jsonl");
    if plain.exists() { plain } else { folder.join("latency.jsonl.gz") }
}

/// Constants to four significant figures.
fn rounded(values: &Values) -> Values {
    let mut out = Values::priors();
    for ((_, value), prior) in values.iter().zip(PRIORS) {
        out.set(prior.name, significant(value));
    }
    out
}
