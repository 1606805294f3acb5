//! Errors by group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::{MemoryRow, Prediction};
use crate::service::calibrate::ranges::quantile;

/// What a row is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tokens of the cache.
    KvTokens,
    /// Bytes of the cache on a GPU.
    KvBytes,
    /// Sequences of `max_model_len`.
    Concurrency,
}

/// A row beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub id: String,
    pub source: String,
    pub engine: String,
    pub version: String,
    pub gpu: String,
    pub layout: String,
    pub model: String,
    pub complete: bool,
    /// vLLM's V0 engine, the default before 0.8: it measured other memory into its figures.
    pub v0: bool,
    /// The engine started, and the rules say it does; `None` when nothing is predicted.
    pub starts: (bool, Option<bool>),
    pub measure: Option<Measure>,
    pub observed: Option<f64>,
    pub predicted: Option<f64>,
    /// `(predicted - observed) / observed`.
    pub error: Option<f64>,
    /// Estimated overhead as a share of the predicted cache: how far a factor on all overheads moves the prediction.
    pub overhead_share: Option<f64>,
    /// Weights on a GPU, GiB: observed and predicted.
    pub weights_gib: (Option<f64>, Option<f64>),
    pub note: String,
}

impl Compared {
    /// Judge a row.
    #[must_use]
    pub fn of(row: &MemoryRow, prediction: Prediction) -> Self {
        let mut compared = Self {
            id: row.id.clone(),
            source: row.url.clone(),
            engine: row.engine.clone(),
            version: row.engine_version.clone().unwrap_or_else(|| "?".to_owned()),
            gpu: row.gpu.clone(),
            layout: row.kv_layout.clone(),
            model: row.model.clone(),
            complete: row.is_complete(),
            v0: super::predict::is_v0(row),
            starts: (!row.failed(), None),
            measure: None,
            observed: None,
            predicted: None,
            error: None,
            overhead_share: None,
            weights_gib: (row.weights_gib_per_gpu, None),
            note: String::new(),
        };
        match prediction {
            Prediction::Starts { weights, kv, overhead, tokens, concurrency } => {
                compared.starts.1 = Some(true);
                compared.overhead_share = Some(overhead.as_f64() / kv.as_f64().max(1.0));
                compared.weights_gib.1 = Some(weights.gib());
                let choices: [(Measure, Option<f64>, f64); 3] = if row.uniform() {
                    [
                        (Measure::KvTokens, row.kv_tokens, tokens),
                        (Measure::KvBytes, row.available_kv_gib, kv.gib()),
                        (Measure::Concurrency, row.max_concurrency, concurrency),
                    ]
                } else {
                    [
                        (Measure::Concurrency, row.max_concurrency, concurrency),
                        (Measure::KvBytes, row.available_kv_gib, kv.gib()),
                        (Measure::KvTokens, row.kv_tokens, tokens),
                    ]
                };
                let chosen = choices.into_iter().find_map(|(m, seen, ours)| Some((m, seen?, ours)));
                compared.judge(chosen);
                compared.note = format!("KV {:.2} GiB", kv.gib());
            }
            Prediction::Fails { reason, kv, longest } => {
                compared.starts.1 = Some(false);
                let seen = row.available_kv_gib.filter(|gib| *gib > 0.0);
                compared.judge(seen.zip(kv).map(|(seen, kv)| (Measure::KvBytes, seen, kv.gib())));
                compared.note = longest.map_or(reason.clone(), |n| format!("{reason}, the longest is {n}"));
            }
            Prediction::Unknown(why) => compared.note = why,
        }
        compared
    }

    fn judge(&mut self, chosen: Option<(Measure, f64, f64)>) {
        let Some((measure, observed, predicted)) = chosen else { return };
        self.measure = Some(measure);
        self.observed = Some(observed);
        self.predicted = Some(predicted);
        self.error = (observed > 0.0).then(|| (predicted - observed) / observed);
    }
}

/// Absolute errors of some rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    pub name: String,
    /// Rows with an error.
    pub rows: usize,
    /// Median of the absolute relative error.
    pub median: f64,
    /// The error that nine of ten rows stay below.
    pub p90: f64,
    /// Mean of the signed error.
    pub bias: f64,
}

impl Group {
    /// Group statistics; `None` without rows.
    #[must_use]
    pub fn of<'a>(name: &str, rows: impl Iterator<Item = &'a Compared>) -> Option<Self> {
        let errors: Vec<f64> = rows.filter_map(|row| row.error).collect();
        if errors.is_empty() {
            return None;
        }
        let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Some(Self {
            name: name.to_owned(),
            rows: errors.len(),
            median: quantile(&sizes, 0.5)?,
            p90: quantile(&sizes, 0.9)?,
            bias: errors.iter().sum::<f64>() / errors.len() as f64,
        })
    }
}

/// Errors with one factor on all overheads: fitted to all rows, and for each source to the rows of all others.
/// The rules themselves use 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaveOneOut {
    /// The factor that suits all rows best.
    pub factor: f64,
    pub in_sample: Group,
    pub held_out: Group,
}

/// The error of a row with a factor on its overheads.
fn with_factor(row: &Compared, factor: f64) -> Option<f64> {
    let (observed, predicted, share) = (row.observed?, row.predicted?, row.overhead_share?);
    (observed > 0.0).then(|| (predicted * (1.0 - factor).mul_add(share, 1.0) - observed) / observed)
}

fn best_factor(rows: &[&Compared]) -> f64 {
    let cost = |factor: f64| {
        let mut sizes: Vec<f64> = rows.iter().filter_map(|r| with_factor(r, factor)).map(f64::abs).collect();
        sizes.sort_by(f64::total_cmp);
        let at = |share| quantile(&sizes, share).unwrap_or(0.0);
        at(0.5) + 0.1 * at(0.9)
    };
    let factors = (10..=40_u32).map(|n| f64::from(n) * 0.05);
    factors.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1.0)
}

fn leave_one_out(rows: &[&Compared]) -> Option<LeaveOneOut> {
    let refit = |row: &&Compared, factor: f64| Compared { error: with_factor(row, factor), ..(*row).clone() };
    let factor = best_factor(rows);
    let in_sample: Vec<Compared> = rows.iter().map(|row| refit(row, factor)).collect();
    let sources: BTreeSet<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    let mut held_out = Vec::new();
    for source in sources {
        let (own, others): (Vec<&Compared>, Vec<&Compared>) =
            rows.iter().partition(|row| row.source == source);
        let factor = best_factor(&others);
        held_out.extend(own.iter().map(|row| refit(row, factor)));
    }
    Some(LeaveOneOut {
        factor,
        in_sample: Group::of("overhead factor fitted to all", in_sample.iter())?,
        held_out: Group::of("overhead factor fitted to the other sources", held_out.iter())?,
    })
}

/// The whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub rows: Vec<Compared>,
    /// By complete or not, then by engine, GPU, version and layout.
    pub groups: Vec<Group>,
    /// Start-ups that failed, and how many of them were predicted to.
    pub failures: (usize, usize),
    /// Start-ups that succeeded, and how many of them were predicted to fail.
    pub false_failures: (usize, usize),
    /// Rows of which nothing can be said.
    pub unknown: usize,
    /// Over the complete rows of uniform models on vLLM V1.
    pub leave_one_out: Option<LeaveOneOut>,
}

/// Gather rows into a report.
#[must_use]
pub fn report(rows: Vec<Compared>) -> Report {
    let judged = || rows.iter().filter(|r| r.starts.1.is_some());
    let complete = |r: &&Compared| r.complete;
    let uniform = |r: &&Compared| r.layout.starts_with("uniform") || r.layout.starts_with("MLA");
    let v1 = |r: &&Compared| r.engine == "vllm" && !r.v0;
    let mut groups: Vec<Group> = [
        Group::of("all", rows.iter()),
        Group::of("complete", rows.iter().filter(complete)),
        Group::of("complete, uniform", rows.iter().filter(complete).filter(uniform)),
        Group::of("complete, uniform, vllm V1", rows.iter().filter(complete).filter(uniform).filter(v1)),
        Group::of("complete, hybrid or window", rows.iter().filter(complete).filter(|r| !uniform(r))),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (kind, key) in [
        ("engine", (|r| r.engine.clone()) as fn(&Compared) -> String),
        ("gpu", |r| r.gpu.clone()),
        ("version", |r| format!("{} {}", r.engine, r.version)),
        ("layout", |r| r.layout.clone()),
    ] {
        let mut by: BTreeMap<String, Vec<&Compared>> = BTreeMap::new();
        for row in &rows {
            by.entry(key(row)).or_default().push(row);
        }
        groups.extend(
            by.into_iter().filter_map(|(name, rows)| Group::of(&format!("{kind}: {name}"), rows.into_iter())),
        );
    }
    let fitted: Vec<&Compared> = rows.iter().filter(complete).filter(uniform).filter(v1).collect();
    let leave_one_out = leave_one_out(&fitted);
    let count = |started: bool, predicted: Option<bool>| {
        judged().filter(|r| r.starts.0 == started && predicted.is_none_or(|p| r.starts.1 == Some(p))).count()
    };
    Report {
        failures: (count(false, None), count(false, Some(false))),
        false_failures: (count(true, None), count(true, Some(false))),
        unknown: rows.iter().filter(|r| r.starts.1.is_none()).count(),
        leave_one_out,
        groups,
        rows,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<52} {:>5} {:>8} {:>8} {:>8}", "group", "rows", "median", "p90", "bias")?;
        for g in &self.groups {
            writeln!(
                f,
                "{:<52} {:>5} {:>7.1}% {:>7.1}% {:>+7.1}%",
                g.name,
                g.rows,
                g.median * 100.0,
                g.p90 * 100.0,
                g.bias * 100.0
            )?;
        }
        if let Some(fit) = &self.leave_one_out {
            for (g, note) in
                [(&fit.in_sample, format!(" (factor {:.2})", fit.factor)), (&fit.held_out, String::new())]
            {
                writeln!(
                    f,
                    "{:<52} {:>5} {:>7.1}% {:>7.1}% {:>+7.1}%{note}",
                    g.name,
                    g.rows,
                    g.median * 100.0,
                    g.p90 * 100.0,
                    g.bias * 100.0
                )?;
            }
        }
        writeln!(f, "start-ups that failed: {}, predicted: {}", self.failures.0, self.failures.1)?;
        writeln!(
            f,
            "start-ups that worked: {}, predicted to fail: {}",
            self.false_failures.0, self.false_failures.1
        )?;
        writeln!(f, "rows without a prediction: {}", self.unknown)
    }
}
