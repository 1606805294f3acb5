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
const PRIOR_WEIGHT: f64 = 3.0;

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
