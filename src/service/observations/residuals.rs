//! How far predictions lie from what a fleet's engines printed: sums over the kept observations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::stored::ObservationFilter;
use crate::service::calibrate::ranges::quantile;
use crate::service::{App, Predictions, ServiceError};
use crate::store::{Guard, ObservationHead, Store, StoreError};

/// Observations that are summed over, the newest ones.
pub(super) const MOST: usize = 20_000;
/// Observations read at once.
pub(super) const PAGE: u32 = 2_000;

/// The answer of `GET /v1/accuracy`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FleetAccuracy {
    /// Kept start-ups that were summed over, the newest first.
    pub observations: u64,
    /// True when there are more than were summed over.
    pub truncated: bool,
    /// Over all of them.
    pub all: Residuals,
    /// By engine, version and GPU, in this order.
    pub groups: Vec<ResidualGroup>,
}

/// The residuals of one engine, version and GPU.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ResidualGroup {
    pub engine: String,
    pub version: String,
    /// Catalogue key; null when nothing said what it ran on.
    pub gpu: Option<String>,
    #[serde(flatten)]
    pub residuals: Residuals,
}

/// Residuals of some start-ups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct Residuals {
    /// Start-ups, with a prediction or without.
    pub count: u64,
    /// Those of which prediction and log both say whether they start.
    pub outcomes_judged: u64,
    /// Of those, how many agree.
    pub outcomes_agreed: u64,
    /// One entry for each figure that was both printed and predicted.
    pub figures: Vec<FigureResiduals>,
}

/// How far the predictions of one figure lie. An error is `predicted / observed − 1`: 0.03 is three per cent too much.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FigureResiduals {
    /// `weights`, `activation`, `cuda_graph`, `kv_pool`, `kv_tokens`, `concurrency`, `bytes_per_token`.
    pub name: String,
    /// Start-ups with this figure.
    pub count: u64,
    /// Median of the absolute error.
    pub median: f64,
    /// Mean of the absolute error.
    pub mean: f64,
    /// The absolute error that nine of ten stay below.
    pub p90: f64,
    /// Mean of the signed error.
    pub bias: f64,
    /// Median of predicted over observed.
    pub median_ratio: f64,
}

impl App {
    /// Residuals of the kept observations, by engine, version and GPU: for the page, and for `/metrics`.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn accuracy(&self, filter: &ObservationFilter) -> Result<FleetAccuracy, ServiceError> {
        let mut heads = newest(&self.guard, filter).await?;
        let truncated = heads.len() > MOST;
        heads.truncate(MOST);
        Ok(FleetAccuracy { truncated, ..summed(&heads) })
    }
}

/// The kept observations, newest first; more than [`MOST`] are not read to their end.
async fn newest(store: &Guard, filter: &ObservationFilter) -> Result<Vec<ObservationHead>, StoreError> {
    let mut heads: Vec<ObservationHead> = Vec::new();
    loop {
        let before = heads.last().map(|last| (last.observed_at, last.id.clone()));
        let page = store.observations(&filter.page(before, PAGE)).await?;
        let last = page.len() < PAGE as usize;
        heads.extend(page);
        if last || heads.len() > MOST {
            return Ok(heads);
        }
    }
}

/// The figure whose residuals boards show: what an engine holds is what was asked for.
const ON_BOARDS: &str = "kv_tokens";
/// How long changes are gathered before the residuals are summed anew.
const GATHER: Duration = Duration::from_secs(1);
/// When they are summed without a change here: other processes may share the database.
const REFRESH: Duration = Duration::from_mins(10);
/// When they are summed after the database was away.
const RETRY: Duration = Duration::from_secs(5);

/// Keep the residuals on boards true: sum them at the start, and after an observation came or went.
pub(in crate::service) async fn follow(
    store: Arc<Guard>,
    predictions: Arc<Predictions>,
    changed: Arc<Notify>,
) {
    loop {
        let wait = match newest(&store, &ObservationFilter::default()).await {
            Ok(heads) => {
                predictions.set_residuals(ratios(&heads));
                REFRESH
            }
            Err(_) => RETRY,
        };
        if tokio::time::timeout(wait, changed.notified()).await.is_ok() {
            tokio::time::sleep(GATHER).await;
        }
    }
}

/// Median of predicted over observed KV tokens, by engine and version.
fn ratios(heads: &[ObservationHead]) -> BTreeMap<(String, String), f64> {
    let mut groups: BTreeMap<(&str, &str), Vec<&ObservationHead>> = BTreeMap::new();
    for head in heads {
        groups.entry((&head.engine, &head.version)).or_default().push(head);
    }
    let shown = groups.into_iter().filter_map(|((engine, version), heads)| {
        let figures = Residuals::of(heads.into_iter()).figures;
        let ratio = figures.iter().find(|figure| figure.name == ON_BOARDS)?.median_ratio;
        Some(((engine.to_owned(), version.to_owned()), ratio))
    });
    shown.collect()
}

/// Sum over observations.
fn summed(heads: &[ObservationHead]) -> FleetAccuracy {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&ObservationHead>> = BTreeMap::new();
    for head in heads {
        groups.entry((&head.engine, &head.version, &head.gpu)).or_default().push(head);
    }
    FleetAccuracy {
        observations: heads.len() as u64,
        truncated: false,
        all: Residuals::of(heads.iter()),
        groups: groups
            .into_iter()
            .map(|((engine, version, gpu), heads)| ResidualGroup {
                engine: engine.to_owned(),
                version: version.to_owned(),
                gpu: Some(gpu.to_owned()).filter(|g| !g.is_empty()),
                residuals: Residuals::of(heads.into_iter()),
            })
            .collect(),
    }
}

impl Residuals {
    fn of<'a>(heads: impl Iterator<Item = &'a ObservationHead>) -> Self {
        let mut all = Self::default();
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for head in heads {
            all.count += 1;
            all.outcomes_judged += u64::from(head.outcome_agrees.is_some());
            all.outcomes_agreed += u64::from(head.outcome_agrees == Some(true));
            for (name, ratio) in head.ratios.as_object().into_iter().flatten() {
                if let Some(ratio) = ratio.as_f64().filter(|r| r.is_finite()) {
                    ratios.entry(name).or_default().push(ratio);
                }
            }
        }
        all.figures = ratios.into_iter().filter_map(|(name, ratios)| figure(name, ratios)).collect();
        all
    }
}

/// The residuals of one figure; `None` without ratios.
fn figure(name: &str, mut ratios: Vec<f64>) -> Option<FigureResiduals> {
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len() as f64;
    let mut sizes: Vec<f64> = ratios.iter().map(|r| (r - 1.0).abs()).collect();
    sizes.sort_by(f64::total_cmp);
    Some(FigureResiduals {
        name: name.to_owned(),
        count: ratios.len() as u64,
        median: quantile(&sizes, 0.5)?,
        mean: sizes.iter().sum::<f64>() / count,
        p90: quantile(&sizes, 0.9)?,
        bias: ratios.iter().map(|r| r - 1.0).sum::<f64>() / count,
        median_ratio: quantile(&ratios, 0.5)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::OffsetDateTime;

    use super::*;

    fn head(engine: &str, gpu: &str, ratio: Option<f64>, agrees: Option<bool>) -> ObservationHead {
        ObservationHead {
            id: String::new(),
            engine: engine.to_owned(),
            version: "1".to_owned(),
            gpu: gpu.to_owned(),
            model: String::new(),
            layout: String::new(),
            outcome: "started".to_owned(),
            outcome_agrees: agrees,
            kv_tokens_observed: None,
            kv_tokens_predicted: None,
            ratios: ratio.map_or_else(|| json!({}), |r| json!({ "kv_tokens": r })),
            observed_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn sums_by_engine_and_gpu() {
        let heads = [
            head("vllm", "h100", Some(1.10), Some(true)),
            head("vllm", "h100", Some(0.98), Some(false)),
            head("vllm", "h100", Some(1.02), None),
            head("sglang", "", None, None),
        ];
        let sum = summed(&heads);
        assert_eq!((sum.observations, sum.groups.len()), (4, 2));
        let (none, vllm) = (&sum.groups[0], &sum.groups[1]);
        assert_eq!((none.engine.as_str(), &none.gpu, none.residuals.figures.len()), ("sglang", &None, 0));
        let r = &vllm.residuals;
        assert_eq!((r.count, r.outcomes_judged, r.outcomes_agreed), (3, 2, 1));
        let f = &r.figures[0];
        assert_eq!((f.name.as_str(), f.count), ("kv_tokens", 3));
        for (got, expected) in [
            (f.median, 0.02),
            (f.mean, 0.14 / 3.0),
            (f.bias, 0.10 / 3.0),
            (f.p90, 0.084),
            (f.median_ratio, 1.02),
        ] {
            assert!((got - expected).abs() < 1e-12, "{got} is not {expected}");
        }
        assert_eq!(sum.all.figures[0].count, 3);
        // an engine of which no cache was printed has nothing to show
        let shown = ratios(&heads);
        assert_eq!(shown.into_iter().collect::<Vec<_>>(), [(("vllm".to_owned(), "1".to_owned()), 1.02)]);
    }
}
