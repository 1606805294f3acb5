//! Intervals from the errors of held-out measurements.

use std::collections::{BTreeMap, BTreeSet};

use super::collectives::significant;
use crate::planner::latency::calibrated::range::{Band, Bands, Measured, Ranges};
use crate::service::measurements::Observation;

/// Requests in flight at which bands change; the same as in the model.
const LEVELS: [f64; 2] = [8.0, 64.0];

fn level(concurrency: f64) -> usize {
    LEVELS.iter().filter(|most| concurrency > **most).count()
}

/// The ranges of predictions `held_out` (whole sources held out) and `unseen` (whole pairs of engine and generation).
#[must_use]
pub fn learn(rows: &[&Observation], held_out: &[(f64, f64)], unseen: &[(f64, f64)]) -> Ranges {
    let bands = |predicted: fn(&(f64, f64)) -> f64, measured: fn(&Observation) -> Option<f64>| {
        let seen = of_levels(rows, held_out, predicted, measured);
        let wider = of_levels(rows, unseen, predicted, measured)
            .into_iter()
            .zip(&seen)
            .map(|(u, s)| Band { low: u.low.min(s.low), high: u.high.max(s.high) })
            .collect();
        Bands { seen, unseen: wider }
    };
    let mut measured: BTreeMap<(&str, &str, bool), (u64, BTreeSet<&str>)> = BTreeMap::new();
    for row in rows {
        let (engine, generation) = row.pair();
        let (count, sources) =
            measured.entry((engine.name(), generation.name(), row.has_experts)).or_default();
        *count += 1;
        sources.insert(&row.unit);
    }
    Ranges {
        tpot: bands(|p| p.0, |o| o.tpot_ms),
        ttft: bands(|p| p.1, |o| o.ttft_ms),
        measured: measured
            .into_iter()
            .map(|((engine, generation, experts), (rows, sources))| Measured {
                engine: engine.to_owned(),
                generation: generation.to_owned(),
                experts,
                rows,
                sources: sources.len() as u64,
            })
            .collect(),
    }
}

/// One band a level: the tenth and the ninetieth percentile of measured over predicted. The value itself always lies inside.
fn of_levels(
    rows: &[&Observation],
    predictions: &[(f64, f64)],
    predicted: fn(&(f64, f64)) -> f64,
    measured: fn(&Observation) -> Option<f64>,
) -> Vec<Band> {
    (0..=LEVELS.len())
        .map(|wanted| {
            let mut ratios: Vec<f64> = rows
                .iter()
                .zip(predictions)
                .filter(|(row, _)| level(row.concurrency) == wanted)
                .filter_map(|(row, p)| Some(measured(row)? / predicted(p)))
                .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
                .collect();
            ratios.sort_by(f64::total_cmp);
            Band {
                low: significant(quantile(&ratios, 0.1).unwrap_or(0.5).min(1.0)),
                high: significant(quantile(&ratios, 0.9).unwrap_or(2.0).max(1.0)),
            }
        })
        .collect()
}

/// The value at a share of a sorted list, between neighbours by proportion.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list, not negative"
)]
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor();
    let lower = sorted.get(below as usize).copied()?;
    let upper = sorted.get((below as usize + 1).min(last)).copied()?;
    Some(lower + (upper - lower) * (place - below))
}

/// Errors of predictions in one line.
#[must_use]
pub fn summary(rows: &[&Observation], predictions: &[(f64, f64)]) -> String {
    let line = |name: &str, errors: Vec<f64>| {
        let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let mean = sizes.iter().sum::<f64>() / sizes.len().max(1) as f64;
        let at = |share| quantile(&sizes, share).unwrap_or(f64::NAN) * 100.0;
        format!(
            "{name} {} rows, median {:.1} %, mean {:.1} %, p90 {:.1} %",
            sizes.len(),
            at(0.5),
            mean * 100.0,
            at(0.9)
        )
    };
    let pairs = || rows.iter().zip(predictions);
    let tpot = pairs().filter_map(|(o, p)| Some(p.0 / o.tpot_ms? - 1.0)).collect();
    let few = pairs()
        .filter(|(o, _)| o.concurrency <= 64.0)
        .filter_map(|(o, p)| Some(p.1 / o.ttft_ms? - 1.0))
        .collect();
    format!("{}; {}", line("TPOT", tpot), line("TTFT up to 64 requests", few))
}
