//! What "best" means: a total order for each objective, with its tie-breaks written out.
//!
//! Every order starts with: layouts that hold a sequence of the asked context before those that do not,
//! then layouts that meet the limits of the request before those that do not. Then:
//!
//! | objective | first | then |
//! |---|---|---|
//! | `capacity` | KV tokens of the deployment | TPOT |
//! | `throughput` | output tokens per second of the deployment | KV tokens |
//! | `latency` | TPOT | TTFT |
//! | `cost` | output tokens per second and dollar (per GPU where no price is known) | KV tokens |
//! | `balanced` | `ln(tokens/s) + ln(KV tokens)/2 - ln(TPOT)/2 - ln(TTFT)/4` | KV tokens |
//!
//! Figures within a tenth of a percent count as equal. Ties go to the layout that keeps TP inside a
//! node, then uses fewer GPUs, then fewer stages, then fewer TP ranks, then no EP, attention DP, DCP,
//! then to the engine and pool that come first in the request.

use std::cmp::Reverse;

use super::input::Objective;
use super::layout::Shape;

/// What the order looks at, for one layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// It holds at least one sequence of the asked context.
    pub serves: bool,
    pub meets_slo: bool,
    pub kv_tokens_total: u64,
    pub tokens_per_s: f64,
    pub tpot_s: f64,
    pub ttft_s: f64,
    /// Price of the GPUs in use; `None` where unknown.
    pub usd_per_hour: Option<f64>,
    pub gpus: u64,
    pub tp_crosses_nodes: bool,
    pub shape: Shape,
    pub dp: u64,
    /// Place of its engine and pool in the request.
    pub engine: usize,
    pub pool: usize,
}

/// Orders layouts under one objective.
pub type Key = (bool, bool, [Reverse<i64>; 2], bool, [u64; 7], [usize; 2]);

/// The total order: the layout with the smaller key is better.
#[must_use]
pub fn key(objective: Objective, s: &Standing) -> Key {
    let tokens = grade(s.kv_tokens_total as f64);
    let merits = match objective {
        Objective::Capacity => [tokens, -grade(s.tpot_s)],
        Objective::Throughput => [grade(s.tokens_per_s), tokens],
        Objective::Latency => [-grade(s.tpot_s), -grade(s.ttft_s)],
        Objective::Cost => [grade(s.tokens_per_s / s.usd_per_hour.unwrap_or(s.gpus as f64)), tokens],
        Objective::Balanced => [balance(s), tokens],
    };
    let Shape { tp, pp, ep, attention_dp, dcp } = s.shape;
    (
        !s.serves,
        !s.meets_slo,
        merits.map(Reverse),
        s.tp_crosses_nodes,
        [s.gpus, pp, tp, ep, attention_dp, dcp, s.dp],
        [s.engine, s.pool],
    )
}

/// The balanced score: throughput counts once, capacity and time per token half, time to the first token a quarter.
fn balance(s: &Standing) -> i64 {
    grade(s.tokens_per_s) + grade(s.kv_tokens_total as f64) / 2 - grade(s.tpot_s) / 2 - grade(s.ttft_s) / 4
}

/// A positive figure on a logarithmic scale in steps of 0.1 %; zero, negative and NaN come last.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm of a finite float is below 1000")]
fn grade(figure: f64) -> i64 {
    const LAST: i64 = -1_000_000_000;
    if figure.is_nan() || figure <= 0.0 {
        return LAST;
    }
    if figure.is_infinite() {
        return -LAST;
    }
    (figure.ln() * 1000.0).round() as i64
}

/// Which layouts no other beats on both tokens per second and GPU, and tokens per second and user.
#[must_use]
pub fn pareto<'s>(standings: impl Iterator<Item = &'s Standing>) -> Vec<bool> {
    let per_gpu = |s: &Standing| s.tokens_per_s / (s.gpus.max(1) as f64);
    let mut order: Vec<(f64, f64, usize)> =
        standings.enumerate().map(|(i, s)| (per_gpu(s), s.tpot_s, i)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
    let mut front = vec![false; order.len()];
    let mut shortest = f64::INFINITY;
    for (_, tpot, i) in order {
        if tpot < shortest {
            shortest = tpot;
            if let Some(flag) = front.get_mut(i) {
                *flag = true;
            }
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    fn compare(objective: Objective, a: &Standing, b: &Standing) -> Ordering {
        key(objective, a).cmp(&key(objective, b))
    }

    fn standing(tp: u64, pp: u64, kv_tokens_total: u64, tpot_s: f64) -> Standing {
        Standing {
            serves: true,
            meets_slo: true,
            kv_tokens_total,
            tokens_per_s: 64.0 / tpot_s,
            tpot_s,
            ttft_s: 0.5,
            usd_per_hour: None,
            gpus: tp * pp,
            tp_crosses_nodes: tp > 8,
            shape: Shape::new(tp, pp),
            dp: 1,
            engine: 0,
            pool: 0,
        }
    }

    #[test]
    fn each_objective_puts_its_own_figure_first() {
        let roomy = standing(8, 2, 3_000_000, 0.02);
        let fast = standing(16, 1, 1_600_000, 0.01);
        assert_eq!(compare(Objective::Capacity, &roomy, &fast), Ordering::Less);
        assert_eq!(compare(Objective::Latency, &fast, &roomy), Ordering::Less);
    }

    #[test]
    fn a_missed_limit_outweighs_any_merit() {
        let late = Standing { meets_slo: false, ..standing(8, 2, 9_000_000, 0.001) };
        assert_eq!(compare(Objective::Capacity, &standing(8, 1, 1, 1.0), &late), Ordering::Less);
    }

    #[test]
    fn equal_merit_goes_to_the_simpler_layout() {
        let simple = standing(8, 2, 1_000_000, 0.02);
        let deep = standing(4, 4, 1_000_200, 0.02);
        assert_eq!(compare(Objective::Capacity, &simple, &deep), Ordering::Less);
    }

    #[test]
    fn hostile_figures_still_have_an_order() {
        let odd = Standing { tokens_per_s: f64::NAN, tpot_s: f64::INFINITY, ..standing(1, 1, 0, 1.0) };
        assert_eq!(compare(Objective::Balanced, &odd, &odd), Ordering::Equal);
        assert_eq!(compare(Objective::Balanced, &standing(8, 1, 5, 0.1), &odd), Ordering::Less);
    }

    #[test]
    fn the_front_keeps_what_nothing_beats() {
        let slow_and_less = Standing { tokens_per_s: 100.0, gpus: 16, ..standing(16, 1, 1, 0.05) };
        let all = [standing(8, 1, 1, 0.02), standing(16, 1, 1, 0.01), slow_and_less];
        let front = pareto(all.iter());
        assert!(front[1] && !front[2], "{front:?}");
    }
}
