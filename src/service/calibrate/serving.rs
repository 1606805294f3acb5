//! The fit of the serving constants to measured TPOT and TTFT.

use super::solve::{Settings, minimise};
use crate::planner::latency::calibrated::parameters::{PRIORS, Values};
use crate::planner::latency::calibrated::{Calibration, estimate};
use crate::service::measurements::Observation;

/// Weight of a TTFT residual against a TPOT residual: it is noisier.
const TTFT_WEIGHT: f64 = 0.5;
/// Residuals of the logarithm beyond this count linearly.
const SCALE: f64 = 0.12;
/// Weight of a prior's residual, chosen by the error on held-out sources.
const PRIOR_WEIGHT: f64 = 5.0;
/// Parts that sources are dealt into, each held out once.
pub const FOLDS: usize = 10;

/// Predicted TPOT and TTFT of a row, ms.
#[must_use]
pub fn predict(observation: &Observation, calibration: &Calibration) -> (f64, f64) {
    let times = estimate(&observation.question(), calibration);
    (times.tpot_s * 1e3, times.ttft_s * 1e3)
}

/// Fit the constants to `rows`; everything else is taken from `base`.
#[must_use]
pub fn fit(rows: &[&Observation], base: &Calibration) -> Values {
    fit_with(rows, base, PRIOR_WEIGHT)
}

/// As [`fit`], with another weight of the priors.
#[must_use]
pub fn fit_with(rows: &[&Observation], base: &Calibration, prior_weight: f64) -> Values {
    let start: Vec<f64> = PRIORS.iter().map(|p| p.value.ln()).collect();
    let residuals = |x: &[f64]| {
        let calibration = Calibration { values: Values::from_logs(x), ..base.clone() };
        let mut out = Vec::with_capacity(rows.len() * 2 + x.len());
        for row in rows {
            let (tpot, ttft) = predict(row, &calibration);
            if let Some(measured) = row.tpot_ms {
                out.push((tpot / measured).ln());
            }
            if let Some(measured) = row.ttft_ms {
                out.push(TTFT_WEIGHT * (ttft / measured).ln());
            }
        }
        for ((x, start), prior) in x.iter().zip(&start).zip(PRIORS) {
            out.push(prior_weight * (x - start) / prior.width);
        }
        out
    };
    let (x, _) = minimise(&start, Settings { scale: SCALE, most_iterations: 40 }, residuals);
    Values::from_logs(&x)
}

/// Predictions of every row by a fit that saw no row of its source.
#[must_use]
pub fn held_out_by_source(rows: &[&Observation], base: &Calibration) -> Vec<(f64, f64)> {
    let mut units: Vec<&str> = rows.iter().map(|o| o.unit.as_str()).collect();
    units.sort_unstable();
    units.dedup();
    let fold_of = |o: &Observation| units.binary_search(&o.unit.as_str()).unwrap_or(0) % FOLDS;
    held_out(rows, base, &rows.iter().map(|o| fold_of(o)).collect::<Vec<_>>())
}

/// Predictions of every row by a fit that saw no row of its engine on its GPU generation.
#[must_use]
pub fn held_out_by_pair(rows: &[&Observation], base: &Calibration) -> Vec<(f64, f64)> {
    let name = |o: &Observation| format!("{} {}", o.pair().0.name(), o.pair().1.name());
    let mut pairs: Vec<String> = rows.iter().map(|o| name(o)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    held_out(rows, base, &rows.iter().map(|o| pairs.binary_search(&name(o)).unwrap_or(0)).collect::<Vec<_>>())
}

/// Each part is predicted by a fit to the others. The parts are independent, so they run side by side; the result does
/// not depend on how many do.
fn held_out(rows: &[&Observation], base: &Calibration, parts: &[usize]) -> Vec<(f64, f64)> {
    let count = parts.iter().max().map_or(0, |most| most + 1);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(count.max(1));
    let fit_part = |part: usize| {
        let others: Vec<&Observation> =
            rows.iter().zip(parts).filter(|(_, p)| **p != part).map(|(row, _)| *row).collect();
        Calibration { values: fit(&others, base), ..base.clone() }
    };
    let fitted: Vec<Option<Calibration>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn({
                    let fit_part = &fit_part;
                    move || {
                        (worker..count)
                            .step_by(workers)
                            .map(|part| (part, fit_part(part)))
                            .collect::<Vec<_>>()
                    }
                })
            })
            .collect();
        let mut all = vec![None; count];
        for (part, calibration) in handles.into_iter().filter_map(|h| h.join().ok()).flatten() {
            if let Some(slot) = all.get_mut(part) {
                *slot = Some(calibration);
            }
        }
        all
    });
    rows.iter()
        .zip(parts)
        .map(|(row, part)| match fitted.get(*part) {
            Some(Some(calibration)) => predict(row, calibration),
            _ => (f64::NAN, f64::NAN),
        })
        .collect()
}
