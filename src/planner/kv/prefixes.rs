//! A prefix that many requests share, over replicas that each keep a cache of their own.
//!
//! `N` caches (replicas × attention-DP groups), `u` requests with the prefix while it stays cached.
//! A router that looks at nothing touches `N · (1 − (1 − 1/N)^u)` different caches on average, each of which computes
//! the prefix once; so of the first reuse only `1/N` hits. A router that knows where the prefix lies computes it once
//! for each cache it chooses to keep it in.

use serde::Serialize;
use utoipa::ToSchema;

use super::moves::Mover;
use super::paths::Path;
use super::{assumed, count};
use crate::planner::estimate::Assumption;
use crate::planner::units::{Bytes, grouped};

/// How much busier than the mean a replica may be before the router has to spread a prefix further.
pub const MOST_SKEW: f64 = 1.25;

/// What a store has to spare each request before running one is worth it, ms: a choice of this planner, not a
/// measurement. A store is one more system to run.
pub const STORE_WORTH_MS: f64 = 10.0;

/// The question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    pub prefix_tokens: u64,
    /// Different prefixes of this length.
    pub prefixes: u64,
    pub replicas: u64,
    pub attention_dp: u64,
    /// Requests that carry a prefix while it stays cached.
    pub uses: f64,
    /// Share of all requests that carry the most popular prefix, 0..1.
    pub popularity: f64,
    /// Cache of one replica's group, where known: one copy of the bytes.
    pub pool_bytes: Option<Bytes>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Prefixes {
    pub prefix_tokens: u64,
    /// Bytes of one prefix, one copy.
    pub prefix_bytes: u64,
    /// Caches that come to hold it when nothing routes by prefix: replicas × attention-DP groups.
    pub copies: u64,
    /// One copy in every cache, over all prefixes.
    pub duplicated_bytes_total: u64,
    /// Of those, what a single copy would have spared.
    pub wasted_bytes: u64,
    /// How many ranks of a group hold the same bytes; this multiplies what the GPUs give up.
    pub replication_factor: f64,
    /// GPU memory over the fleet: `duplicated_bytes_total × replication_factor`.
    pub gpu_bytes_total: u64,
    /// Share of one group's cache that the prefixes take; `null` when no cluster was given.
    pub share_of_pool: Option<f64>,
    pub hit_rate: HitRate,
    /// Cheapest first.
    pub options: Vec<PrefixOption>,
    /// The name of the option to take.
    pub choice: String,
    pub message: String,
    pub assumptions: Vec<Assumption>,
}

/// Share of requests that find their prefix in the cache they reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct HitRate {
    /// A router that looks at nothing.
    pub random: f64,
    /// A router that knows where the prefix lies, in as few caches as the load allows.
    pub aware: f64,
    /// The chance that the first reuse hits under random routing: `1 / copies`.
    pub first_reuse_random: f64,
}

/// One way to serve a shared prefix.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PrefixOption {
    /// `local_cache`, `prefix_aware_routing`, `shared_store`, `recompute`.
    pub name: String,
    /// Mean time to have the prefix in place, over all requests that carry it.
    pub prefix_ms_per_request: f64,
    /// Share of requests that find it in their cache.
    pub hit_rate: f64,
    /// GPU bytes over the fleet, copies of replicated heads included.
    pub gpu_bytes: u64,
    /// Bytes outside the GPUs.
    pub store_bytes: u64,
    /// Load of the busiest cache over the mean; 1 = even.
    pub load_skew: f64,
    pub message: String,
}

/// Compare routing by prefix, a shared store, and computing again.
#[must_use]
pub fn compare(shared: &Shared, mover: &Mover, store: Option<&Path>) -> Prefixes {
    let prefixes = shared.prefixes.max(1);
    let caches = shared.replicas.max(1).saturating_mul(shared.attention_dp.max(1));
    let one = mover.footprint.bytes(shared.prefix_tokens);
    let all = one * prefixes;
    let uses = shared.uses.max(1.0);
    let touched = touched_caches(caches, uses);
    let random = 1.0 - touched / uses;
    let kept_in = caches_for(shared.popularity, caches);
    let aware = (1.0 - (kept_in as f64).min(uses) / uses).max(random);
    let recompute_ms = mover.recompute_s(shared.prefix_tokens) * 1e3;
    let gpu = |copies: f64| Bytes::from_f64(all.as_f64() * copies * mover.replication_factor.max(1.0)).get();
    let mut options = vec![
        PrefixOption {
            name: "local_cache".to_owned(),
            prefix_ms_per_request: (1.0 - random) * recompute_ms,
            hit_rate: random,
            gpu_bytes: gpu(touched.min(caches as f64)),
            store_bytes: 0,
            load_skew: 1.0,
            message: format!(
                "Every cache computes and keeps its own copy: {:.0} % of requests hit.",
                random * 100.0
            ),
        },
        PrefixOption {
            name: "prefix_aware_routing".to_owned(),
            prefix_ms_per_request: (1.0 - aware) * recompute_ms,
            hit_rate: aware,
            gpu_bytes: gpu(kept_in as f64),
            store_bytes: 0,
            load_skew: skew(shared.popularity, caches, kept_in),
            message: aware_words(shared, caches, kept_in, aware),
        },
        PrefixOption {
            name: "recompute".to_owned(),
            prefix_ms_per_request: recompute_ms,
            hit_rate: 0.0,
            gpu_bytes: 0,
            store_bytes: 0,
            load_skew: 1.0,
            message: format!("Nothing is kept: {recompute_ms:.1} ms of prefill for every request."),
        },
    ];
    if let Some(path) = store {
        options.push(shared_store(mover, path, shared, uses, touched, all, gpu(touched.min(caches as f64))));
    }
    // equal times go to the one that gives up less GPU memory
    options.sort_by(|a, b| {
        a.prefix_ms_per_request.total_cmp(&b.prefix_ms_per_request).then(a.gpu_bytes.cmp(&b.gpu_bytes))
    });
    let choice = choice(&options, caches);
    let wasted = all * caches.saturating_sub(1);
    Prefixes {
        prefix_tokens: shared.prefix_tokens,
        prefix_bytes: one.get(),
        copies: caches,
        duplicated_bytes_total: (all * caches).get(),
        wasted_bytes: wasted.get(),
        replication_factor: mover.replication_factor,
        gpu_bytes_total: gpu(caches as f64),
        share_of_pool: shared.pool_bytes.map(|pool| all.as_f64() / pool.as_f64().max(1.0)),
        hit_rate: HitRate { random, aware, first_reuse_random: 1.0 / caches as f64 },
        choice: choice.clone(),
        message: format!(
            "{} tokens take {:.2} GB; {caches} caches hold {:.2} GB of it, {:.2} GB more than one copy. Choose {}.",
            grouped(shared.prefix_tokens),
            one.as_f64() / 1e9,
            (all * caches).as_f64() / 1e9,
            wasted.as_f64() / 1e9,
            choice.replace('_', " "),
        ),
        options,
        assumptions: assumptions(shared, mover),
    }
}

/// The fastest; but a store only where it spares enough.
fn choice(options: &[PrefixOption], caches: u64) -> String {
    if caches == 1 {
        return "local_cache".to_owned();
    }
    let fastest = options.first();
    let without_store = options.iter().find(|o| o.name != "shared_store");
    match (fastest, without_store) {
        (Some(first), Some(other))
            if other.prefix_ms_per_request - first.prefix_ms_per_request < STORE_WORTH_MS =>
        {
            other.name.clone()
        }
        (Some(first), _) => first.name.clone(),
        (None, _) => "recompute".to_owned(),
    }
}

fn assumptions(shared: &Shared, mover: &Mover) -> Vec<Assumption> {
    let mut list = mover.answer(&[], shared.prefix_tokens).assumptions;
    let choice = "a choice of this planner, to be replaced by what your traffic shows";
    list.push(assumed("uses", shared.uses, "requests", choice, false));
    list.push(assumed("popularity", shared.popularity, "", choice, false));
    list.push(assumed("store_worth_ms", STORE_WORTH_MS, "ms", choice, false));
    list
}

/// Caches that at least one of `uses` requests reaches, when each picks one of `caches` at random.
fn touched_caches(caches: u64, uses: f64) -> f64 {
    let n = caches as f64;
    (n * (1.0 - (1.0 - 1.0 / n).powf(uses))).min(uses)
}

/// Caches in which a prefix must lie so that none is busier than [`MOST_SKEW`] times the mean.
/// A prefix in `k` of `N` caches loads each of them with `popularity/k + (1 − popularity)/N` of all requests.
fn caches_for(popularity: f64, caches: u64) -> u64 {
    let n = caches as f64;
    let allowed = MOST_SKEW - (1.0 - popularity);
    if allowed <= 0.0 { caches } else { count((popularity * n / allowed).ceil()).clamp(1, caches) }
}

fn skew(popularity: f64, caches: u64, kept_in: u64) -> f64 {
    let n = caches as f64;
    n * (popularity / kept_in.max(1) as f64 + (1.0 - popularity) / n)
}

fn aware_words(shared: &Shared, caches: u64, kept_in: u64, aware: f64) -> String {
    let alone = skew(shared.popularity, caches, 1);
    let spread = if kept_in > 1 {
        format!(
            " in one cache alone that one would carry {alone:.1} times the mean load, so it lies in {kept_in} of {caches}."
        )
    } else {
        format!(" it lies in one of {caches} caches, which carries {alone:.2} times the mean load.")
    };
    format!(
        "The router sends requests to where the prefix lies:{spread} {:.0} % of requests hit.",
        aware * 100.0
    )
}

fn shared_store(
    mover: &Mover,
    path: &Path,
    shared: &Shared,
    uses: f64,
    touched: f64,
    all: Bytes,
    gpu_bytes: u64,
) -> PrefixOption {
    let fetch_ms = mover.fetch_s(path, shared.prefix_tokens) * 1e3;
    let recompute_ms = mover.recompute_s(shared.prefix_tokens) * 1e3;
    // the first request computes and writes; every other cache that is reached for the first time fetches
    let fetches = (touched - 1.0).max(0.0);
    let per_request = (recompute_ms + fetches * fetch_ms) / uses;
    PrefixOption {
        name: "shared_store".to_owned(),
        prefix_ms_per_request: per_request,
        hit_rate: (1.0 - touched / uses).max(0.0),
        gpu_bytes,
        store_bytes: all.get(),
        load_skew: 1.0,
        message: if fetch_ms < recompute_ms {
            format!(
                "A cache that lacks the prefix fetches it over {} in {fetch_ms:.1} ms instead of computing {recompute_ms:.1} ms.",
                path.name
            )
        } else {
            format!(
                "Fetching over {} takes {fetch_ms:.1} ms, longer than computing ({recompute_ms:.1} ms): a store does not pay.",
                path.name
            )
        },
    }
}
