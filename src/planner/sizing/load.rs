//! How much of a load one replica carries within the limits of the request.
//!
//! Arriving requests share a replica between prompts and decode steps. With `a` engine caches in the replica,
//! `c` requests in decode over the replica, `P` the engine's time for one prompt (the prompt's time alone over the
//! pipeline's stages, which work on different prompts), `s` the time of a decode step at that batch and `n` output tokens:
//!
//! ```text
//! requests per second of an engine   x = 1 / (P + (n - 1)·s·a/c)      prompts and decode steps fill all time
//! share of time spent on prompts     p = x·P
//! time per output token              s / (1 - p)                      decode steps wait for prompts
//! time to the first token            TTFT + p·P / (2·(1 - p))         a prompt waits for prompts (M/D/1)
//! time in the system                 R = TTFT' + (n - 1)·TPOT'
//! users with think time Z            c + a·x·Z                         N = X·(R + Z), with X·R = c
//! ```
//!
//! Sources: operational laws (Little's law and the interactive response time law, Denning and Buzen 1978),
//! the Pollaczek-Khinchine mean for constant service.

use crate::planner::candidate::whole;
use crate::planner::input::Slo;
use crate::planner::latency::Timing;
use crate::planner::replica::{Ground, Replica};

/// A load to be carried.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// Sequences of the workload's context in the cache at once.
    Sequences(u64),
    /// Requests per second of the workload's lengths: one figure, or one for each interval of a trace.
    Rate(Vec<f64>),
    /// People who each send a request, wait for its end, and think before the next.
    Users { users: u64, think_time_s: f64 },
}

/// What one replica carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// Requests in flight.
    pub concurrency: u64,
    /// Completed requests per second; 0 for a load of sequences, which says nothing of arrivals.
    pub requests_per_s: f64,
    /// Users with the load's think time; 0 likewise.
    pub users: f64,
    pub tpot_s: f64,
    pub ttft_s: f64,
    /// Share of time spent on prompts.
    pub prefill_share: f64,
    /// Cost of carrying more: what is reached first.
    pub bound: Bound,
}

/// What keeps a replica from carrying more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    KvCache,
    MaxNumSeqs,
    Tpot,
    Ttft,
}

impl Bound {
    /// Its stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KvCache => "kv_cache",
            Self::MaxNumSeqs => "max_num_seqs",
            Self::Tpot => "tpot",
            Self::Ttft => "ttft",
        }
    }
}

/// Why a replica carries nothing of the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TooSlow {
    /// Not one sequence of the context fits in the cache.
    NoSeat,
    /// One request alone misses the limit; the time it takes, ms.
    Tpot(f64),
    Ttft(f64),
}

impl Load {
    /// True when requests arrive while others decode.
    #[must_use]
    pub const fn has_arrivals(&self) -> bool {
        matches!(self, Self::Rate(_) | Self::Users { .. })
    }

    /// The largest amount, and the mean over the trace, each divided by what one replica carries.
    #[must_use]
    pub fn replicas(&self, carried: &Carried) -> Replicas {
        match self {
            Self::Sequences(n) => Replicas::constant(n.div_ceil(carried.concurrency.max(1))),
            Self::Users { users, .. } => Replicas::constant(times(*users as f64, carried.users)),
            Self::Rate(rates) => {
                let each = || rates.iter().map(|rate| times(*rate, carried.requests_per_s));
                let sum = each().fold(0.0, |sum, n| sum + n as f64);
                Replicas { peak: each().max().unwrap_or(1), mean: sum / rates.len().max(1) as f64 }
            }
        }
    }

    /// The part of the peak that each of `replicas` has to carry, as [`Carried`] states it.
    fn share(&self, replicas: u64) -> f64 {
        let replicas = replicas.max(1) as f64;
        match self {
            Self::Sequences(n) => *n as f64 / replicas,
            Self::Users { users, .. } => *users as f64 / replicas,
            Self::Rate(rates) => rates.iter().copied().fold(0.0, f64::max) / replicas,
        }
    }

    fn of(&self, carried: &Carried) -> f64 {
        match self {
            Self::Sequences(_) => carried.concurrency as f64,
            Self::Users { .. } => carried.users,
            Self::Rate(_) => carried.requests_per_s,
        }
    }

    const fn think_time_s(&self) -> f64 {
        match self {
            Self::Users { think_time_s, .. } => *think_time_s,
            _ => 0.0,
        }
    }
}

/// Replicas for a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replicas {
    pub peak: u64,
    /// Over the intervals of a trace; the peak where the load is one figure.
    pub mean: f64,
}

impl Replicas {
    const fn constant(n: u64) -> Self {
        let n = if n == 0 { 1 } else { n };
        Self { peak: n, mean: n as f64 }
    }
}

/// Replicas that carry `amount`, at least one; a replica that carries nothing would need endlessly many.
fn times(amount: f64, one: f64) -> u64 {
    if one <= 0.0 {
        return u64::MAX;
    }
    // a quotient that is whole but for rounding needs no further replica
    whole((amount / one - 1e-9).ceil()).max(1)
}

/// The most that one replica carries within the limits.
///
/// # Errors
/// [`TooSlow`] when it carries nothing.
pub fn most(ground: &Ground<'_>, replica: &Replica, load: &Load) -> Result<Carried, TooSlow> {
    let seats = Seats::of(ground, replica);
    if seats.all == 0 {
        return Err(TooSlow::NoSeat);
    }
    let slo = ground.input.slo;
    let at = |concurrency: u64| at(ground, replica, load, concurrency);
    let lone = at(1);
    if let Some(missed) = missed(slo, &lone) {
        return Err(match missed {
            Bound::Ttft => TooSlow::Ttft(lone.ttft_s * 1e3),
            _ => TooSlow::Tpot(lone.tpot_s * 1e3),
        });
    }
    let full = at(seats.all);
    let Some(mut bound) = missed(slo, &full) else {
        return Ok(Carried { bound: seats.bound, ..full });
    };
    // times never fall with the batch, so halving finds the last batch within the limits
    let (mut within, mut beyond) = (lone, full);
    while beyond.concurrency.saturating_sub(within.concurrency) > 1 {
        let middle = at(within.concurrency.midpoint(beyond.concurrency));
        match missed(slo, &middle) {
            None => within = middle,
            Some(limit) => (beyond, bound) = (middle, limit),
        }
    }
    Ok(Carried { bound, ..within })
}

/// The least concurrency at which one of `replicas` carries its share, at most what [`most`] found.
#[must_use]
pub fn at_load(
    ground: &Ground<'_>,
    replica: &Replica,
    load: &Load,
    most: &Carried,
    replicas: u64,
) -> Carried {
    let share = load.share(replicas);
    let at = |concurrency: u64| Carried { bound: most.bound, ..at(ground, replica, load, concurrency) };
    let (mut short, mut enough) = (0, *most);
    while enough.concurrency.saturating_sub(short) > 1 {
        let middle = at(short.midpoint(enough.concurrency));
        if load.of(&middle) + 1e-9 >= share { enough = middle } else { short = middle.concurrency }
    }
    enough
}

/// Requests that one replica may hold at once.
struct Seats {
    all: u64,
    bound: Bound,
}

impl Seats {
    fn of(ground: &Ground<'_>, replica: &Replica) -> Self {
        let held = whole(replica.cache.sequences_at(replica.capacity.blocks, ground.context()));
        let slots = ground.settings.max_num_seqs;
        let caches = replica.shape.attention_dp.max(1);
        let bound = if slots < held { Bound::MaxNumSeqs } else { Bound::KvCache };
        Self { all: held.min(slots).saturating_mul(caches), bound }
    }
}

fn at(ground: &Ground<'_>, replica: &Replica, load: &Load, concurrency: u64) -> Carried {
    let timing = ground.timing(replica, replica.shape.attention_dp.max(1), concurrency, concurrency);
    if load.has_arrivals() {
        arriving(ground, replica, &timing, load, concurrency)
    } else {
        held(&timing, concurrency)
    }
}

/// Sequences that are there and decode together.
fn held(timing: &Timing, concurrency: u64) -> Carried {
    Carried {
        concurrency,
        requests_per_s: 0.0,
        users: 0.0,
        tpot_s: timing.decode.total_s(),
        ttft_s: timing.ttft_s,
        prefill_share: 0.0,
        bound: Bound::KvCache,
    }
}

fn arriving(
    ground: &Ground<'_>,
    replica: &Replica,
    timing: &Timing,
    load: &Load,
    concurrency: u64,
) -> Carried {
    let shape = replica.shape;
    let engines = shape.attention_dp.max(1) as f64;
    let prompt_s = timing.ttft_s / shape.pp.max(1) as f64;
    let step_s = timing.decode.total_s();
    let further = ground.input.workload.output_tokens.saturating_sub(1) as f64;
    let batch = (concurrency as f64 / engines).max(1.0);
    let per_engine = 1.0 / (prompt_s + further * step_s / batch).max(f64::MIN_POSITIVE);
    let prefill_share = (per_engine * prompt_s).min(1.0);
    let free = (1.0 - prefill_share).max(1e-6);
    let requests_per_s = per_engine * engines;
    Carried {
        concurrency,
        requests_per_s,
        users: concurrency as f64 + requests_per_s * load.think_time_s(),
        tpot_s: step_s / free,
        ttft_s: timing.ttft_s + prefill_share * prompt_s / (2.0 * free),
        prefill_share,
        bound: Bound::KvCache,
    }
}

fn missed(slo: Slo, carried: &Carried) -> Option<Bound> {
    let beyond = |limit: Option<f64>, seconds: f64| limit.is_some_and(|ms| seconds * 1e3 > ms);
    if beyond(slo.ttft_ms, carried.ttft_s) {
        Some(Bound::Ttft)
    } else if beyond(slo.tpot_ms, carried.tpot_s) {
        Some(Bound::Tpot)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(concurrency: u64, requests_per_s: f64, users: f64) -> Carried {
        Carried {
            concurrency,
            requests_per_s,
            users,
            tpot_s: 0.02,
            ttft_s: 0.5,
            prefill_share: 0.1,
            bound: Bound::KvCache,
        }
    }

    #[test]
    fn replicas_round_up_and_a_trace_has_a_mean() {
        let one = carried(10, 2.0, 25.0);
        assert_eq!(Load::Sequences(21).replicas(&one).peak, 3);
        assert_eq!(Load::Sequences(0).replicas(&one).peak, 1);
        assert_eq!(Load::Users { users: 50, think_time_s: 5.0 }.replicas(&one).peak, 2);
        assert_eq!(Load::Rate(vec![1.0, 4.0, 7.0]).replicas(&one), Replicas { peak: 4, mean: 7.0 / 3.0 });
        assert_eq!(Load::Rate(vec![1.0]).replicas(&carried(1, 0.0, 0.0)).peak, u64::MAX);
    }

    #[test]
    fn a_share_is_of_the_peak() {
        assert_eq!(Load::Rate(vec![1.0, 6.0]).share(3), 2.0);
        assert_eq!(Load::Sequences(9).share(0), 9.0);
    }
}
