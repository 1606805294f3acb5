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
    let bands = |figure: Figure| {
        let seen = of_levels(rows, held_out, figure);
        let wider = (0..=LEVELS.len())
            .zip(&seen)
            .map(|(level, s)| {
                let u = Pairs::of(rows, unseen, figure, level).band();
                Band { low: u.low.min(s.low), high: u.high.max(s.high) }
            })
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
        tpot: bands(TPOT),
        ttft: bands(TTFT),
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

/// A predicted figure and its measurement.
#[derive(Clone, Copy)]
struct Figure {
    predicted: fn(&(f64, f64)) -> f64,
    measured: fn(&Observation) -> Option<f64>,
}

const TPOT: Figure = Figure { predicted: |p| p.0, measured: |o| o.tpot_ms };
const TTFT: Figure = Figure { predicted: |p| p.1, measured: |o| o.ttft_ms };

/// Measured over predicted for the rows of a level, with the row.
fn ratios<'r>(
    rows: &'r [&'r Observation],
    predictions: &'r [(f64, f64)],
    figure: Figure,
    wanted: usize,
) -> impl Iterator<Item = (&'r Observation, f64)> {
    rows.iter()
        .zip(predictions)
        .filter(move |(row, _)| level(row.concurrency) == wanted)
        .filter_map(move |(row, p)| Some((*row, (figure.measured)(row)? / (figure.predicted)(p))))
        .filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0)
}

/// One band a level: the tenth and the ninetieth percentile of measured over predicted. The value itself always lies inside.
fn of_levels(rows: &[&Observation], predictions: &[(f64, f64)], figure: Figure) -> Vec<Band> {
    (0..=LEVELS.len())
        .map(|wanted| {
            let mut ratios: Vec<f64> = ratios(rows, predictions, figure, wanted).map(|(_, r)| r).collect();
            ratios.sort_by(f64::total_cmp);
            Band {
                low: significant(quantile(&ratios, TAIL).unwrap_or(0.5).min(1.0)),
                high: significant(quantile(&ratios, 1.0 - TAIL).unwrap_or(2.0).max(1.0)),
            }
        })
        .collect()
}

/// Rows outside an 80 % range at each end.
const TAIL: f64 = 0.1;
/// Rows from which a pair counts whole; fewer count for their part.
const WHOLE_PAIR: f64 = 10.0;
/// Tails that are tried, widest range last.
const TAILS: [f64; 8] = [0.1, 0.08, 0.06, 0.045, 0.03, 0.02, 0.01, 0.0];

/// Measured over predicted by pair of engine and generation, each by a fit that saw no row of its pair.
///
/// A pair that was never measured is one more of these, so each counts alike, whatever its rows; and the tail is the first at
/// which a range learnt from the other pairs holds 80 % of a pair on average.
struct Pairs(BTreeMap<(&'static str, &'static str), Vec<f64>>);

impl Pairs {
    fn of(rows: &[&Observation], unseen: &[(f64, f64)], figure: Figure, level: usize) -> Self {
        let mut pairs: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (row, ratio) in ratios(rows, unseen, figure, level) {
            let (engine, generation) = row.pair();
            pairs.entry((engine.name(), generation.name())).or_default().push(ratio);
        }
        Self(pairs)
    }

    fn band(&self) -> Band {
        let enough = TAILS.into_iter().find(|tail| self.coverage(*tail).is_some_and(|share| share >= 0.8));
        let tail = enough.unwrap_or(0.0);
        let band = self.band_at(tail, None);
        Band { low: significant(band.low), high: significant(band.high) }
    }

    /// Share of a pair that lies in the range of the others, over pairs; `None` of fewer than two.
    fn coverage(&self, tail: f64) -> Option<f64> {
        let (mut inside, mut all) = (0.0, 0.0);
        for (pair, ratios) in self.0.iter().filter(|_| self.0.len() > 1) {
            let band = self.band_at(tail, Some(*pair));
            let held = ratios.iter().filter(|r| (band.low..=band.high).contains(*r)).count();
            let weight = (ratios.len() as f64 / WHOLE_PAIR).min(1.0);
            inside += weight * held as f64 / ratios.len().max(1) as f64;
            all += weight;
        }
        (all > 0.0).then(|| inside / all)
    }

    fn band_at(&self, tail: f64, without: Option<(&'static str, &'static str)>) -> Band {
        let mut weighted: Vec<(f64, f64)> = Vec::new();
        for (_, ratios) in self.0.iter().filter(|(pair, _)| Some(**pair) != without) {
            let each = (ratios.len() as f64 / WHOLE_PAIR).min(1.0) / ratios.len().max(1) as f64;
            weighted.extend(ratios.iter().map(|ratio| (*ratio, each)));
        }
        weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
        Band {
            low: weighted_quantile(&weighted, tail).unwrap_or(0.5).min(1.0),
            high: weighted_quantile(&weighted, 1.0 - tail).unwrap_or(2.0).max(1.0),
        }
    }
}

/// The value at a share of the weight of a sorted list of (value, weight).
fn weighted_quantile(sorted: &[(f64, f64)], share: f64) -> Option<f64> {
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for (value, weight) in sorted {
        below += weight;
        if below >= share * all {
            return Some(*value);
        }
    }
    sorted.last().map(|(value, _)| *value)
}

/// How much the range of a pair that was never measured holds, for people: each pair's learnt from the other pairs, tail and all.
#[must_use]
pub fn coverage(rows: &[&Observation], unseen: &[(f64, f64)]) -> String {
    let of = |figure: Figure| {
        let (mut inside, mut all) = (0.0, 0.0);
        for level in 0..=LEVELS.len() {
            let pairs = Pairs::of(rows, unseen, figure, level);
            for (pair, ratios) in pairs.0.iter().filter(|_| pairs.0.len() > 1) {
                let others =
                    Pairs(pairs.0.iter().filter(|(p, _)| *p != pair).map(|(p, r)| (*p, r.clone())).collect());
                let band = others.band();
                let held = ratios.iter().filter(|r| (band.low..=band.high).contains(*r)).count();
                let weight = (ratios.len() as f64 / WHOLE_PAIR).min(1.0);
                inside += weight * held as f64 / ratios.len().max(1) as f64;
                all += weight;
            }
        }
        inside / f64::max(all, 1.0) * 100.0
    };
    format!(
        "ranges of pairs never measured, each learnt from the other pairs, hold (pairs alike): TPOT {:.0} %, TTFT {:.0} %",
        of(TPOT),
        of(TTFT)
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine pairs that scatter little and one that lies far off, as often measured as `rows` says.
    fn pairs(rows: usize) -> Pairs {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let near = |at: usize| (0..40).map(|i| 0.9 + 0.005 * (i + at) as f64).collect::<Vec<f64>>();
        let mut pairs: BTreeMap<_, _> =
            names.iter().enumerate().map(|(at, name)| ((*name, "near"), near(at))).collect();
        pairs.insert(("z", "far"), (0..rows).map(|i| 2.0 + 0.01 * i as f64).collect());
        Pairs(pairs)
    }

    #[test]
    fn a_pair_counts_alike_whatever_its_rows() {
        let (few, many) = (pairs(20).band_at(0.1, None), pairs(2000).band_at(0.1, None));
        assert!(few.high < 2.1 && many.high < 2.1, "{few:?} {many:?}");
        let lone = Pairs([(("a", "near"), vec![1.1, 1.2])].into());
        assert_eq!(lone.coverage(0.1), None);
        assert!(lone.band().high >= 1.2);
    }

    #[test]
    fn the_tail_widens_until_other_pairs_are_held() {
        // each pair lies somewhere else: the range of the others holds it only when it reaches to their ends
        let shifted: BTreeMap<_, _> = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .enumerate()
            .map(|(at, name)| {
                ((*name, "x"), (0..20).map(|i| 0.6 + 0.2 * at as f64 + 0.001 * f64::from(i)).collect())
            })
            .collect();
        let pairs = Pairs(shifted);
        let plain = pairs.band_at(0.1, None);
        let band = pairs.band();
        assert!(band.low <= plain.low && band.high >= plain.high, "{band:?} inside {plain:?}");
        assert!(weighted_quantile(&[(1.0, 1.0), (2.0, 3.0)], 0.2).is_some_and(|v| v < 1.5));
    }
}
