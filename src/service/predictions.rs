//! What is predicted for the deployments that a service knows, for boards that show it beside what engines report.
//!
//! A deployment is a model on a saved cluster: the last plan of a published model that was asked for with
//! `saved:NAME` since the process started. Its best layout is what is shown. A plan on any other cluster is a question,
//! not a deployment, and the number of series stays bounded. Beside it stands how far predictions lay from what engines
//! printed, of the observations that are kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::planner::plan::Plan;
use crate::telemetry::METRICS;

/// Deployments that are remembered; beyond that the one that was planned longest ago is forgotten.
const MOST: usize = 200;

/// A deployment: saved cluster, model, engine.
type Key = (String, String, String);

/// The figures of a deployment's best layout; none where nothing fits.
#[derive(Debug, Clone, PartialEq)]
struct Predicted {
    /// When it was planned, as a count of plans.
    turn: u64,
    layout: Option<BestLayout>,
}

#[derive(Debug, Clone, PartialEq)]
struct BestLayout {
    name: String,
    kv_tokens: u64,
    sequences: u64,
    replication_factor: f64,
}

/// The predictions of every deployment.
#[derive(Debug, Default)]
pub struct Predictions {
    kept: Mutex<(u64, BTreeMap<Key, Predicted>)>,
    /// Predicted over observed KV tokens, by engine and version.
    residuals: Mutex<BTreeMap<(String, String), f64>>,
}

impl Predictions {
    /// Remember the best layout of a plan on a saved cluster.
    pub(super) fn remember(&self, cluster: &str, plan: &Plan) {
        let Some(engine) = plan.request.engines.first() else { return };
        let layout = plan.layouts.first().map(|best| BestLayout {
            name: best.layout.name(),
            kv_tokens: best.capacity.kv_tokens_total,
            sequences: best.capacity.sequences_total,
            replication_factor: best.kv.replication_factor,
        });
        let key = (cluster.to_owned(), plan.model.id.clone(), engine.name.clone());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (turn, by_key) = &mut *kept;
        *turn += 1;
        by_key.insert(key, Predicted { turn: *turn, layout });
        if by_key.len() > MOST {
            let oldest =
                by_key.iter().min_by_key(|(_, predicted)| predicted.turn).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                by_key.remove(&oldest);
            }
        }
    }

    /// Forget what was planned on a cluster that changed or went.
    pub(super) fn forget(&self, cluster: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.retain(|(saved, ..), _| saved != cluster);
    }

    /// Replace the residuals: predicted over observed KV tokens, by engine and version.
    pub(super) fn set_residuals(&self, residuals: BTreeMap<(String, String), f64>) {
        *self.residuals.lock().unwrap_or_else(PoisonError::into_inner) = residuals;
    }

    /// The predictions in Prometheus' text form. A deployment in which nothing fits has zero tokens and the layout `none`.
    #[must_use]
    pub fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = || {
            kept.1.iter().map(|((cluster, model, engine), predicted)| {
                let layout = predicted.layout.as_ref();
                let name = layout.map_or("none", |layout| layout.name.as_str());
                let labels = format!(
                    "model=\"{}\",cluster=\"{}\",layout=\"{}\",engine=\"{}\"",
                    label(model),
                    label(cluster),
                    label(name),
                    label(engine)
                );
                (labels, layout)
            })
        };
        let mut out = String::new();
        series(&mut out, "shardwise_predicted_kv_tokens", rows(), |layout| {
            Some(layout.map_or(0.0, |layout| layout.kv_tokens as f64))
        });
        series(&mut out, "shardwise_predicted_sequences", rows(), |layout| {
            Some(layout.map_or(0.0, |layout| layout.sequences as f64))
        });
        series(&mut out, "shardwise_replication_factor", rows(), |layout| {
            layout.map(|layout| layout.replication_factor)
        });
        let residuals = self.residuals.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = residuals.iter().map(|((engine, version), ratio)| {
            (format!("engine=\"{}\",version=\"{}\"", label(engine), label(version)), *ratio)
        });
        series(&mut out, "shardwise_prediction_residual_ratio", rows, Some);
        out
    }
}

/// A gauge with its help, one line for each row that has a value.
fn series<T>(
    out: &mut String,
    name: &str,
    rows: impl Iterator<Item = (String, T)>,
    value: impl Fn(T) -> Option<f64>,
) {
    let help = METRICS.iter().find(|(_, known, _)| *known == name).map_or("", |(.., help)| help);
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, row) in rows {
        if let Some(value) = value(row) {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    }
}

/// A text inside the quotes of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
