//! What to change next: each change is planned for real, on the best layout, and its gain is the quotient.

use super::answer::{layout_name, short};
use super::candidate::Candidate;
use super::hardware::NodePool;
use super::input::{EngineSettings, PlanInput};
use super::layout::Shape;
use super::plan::Advice;
use super::replica::Ground;
use super::search::{Found, ground};

/// A gain smaller than this is not worth a sentence.
const LEAST_GAIN: f64 = 1.02;

/// What would help the best layout, best gain first.
#[must_use]
pub fn advice(input: &PlanInput, found: &Found<'_>) -> Vec<Advice> {
    let Some((ground, best)) =
        found.ranked.first().and_then(|r| found.grounds.get(r.ground).map(|g| (g, &r.candidate)))
    else {
        return Vec::new();
    };
    let mut list: Vec<Advice> = [
        fp8_cache(input, ground, best),
        stages_instead_of_copies(ground, found, best),
        another_replica(input, ground, best),
    ]
    .into_iter()
    .flatten()
    .filter(|a| a.kv_tokens_gain >= LEAST_GAIN || a.tpot_gain >= LEAST_GAIN)
    .collect();
    let worth = |a: &Advice| a.kv_tokens_gain.max(a.tpot_gain) / a.cost_factor.max(f64::MIN_POSITIVE);
    list.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    list
}

/// Half the bytes a token, where the cache is 16 bit.
fn fp8_cache(input: &PlanInput, here: &Ground<'_>, best: &Candidate) -> Option<Advice> {
    if !here.settings.kv_dtype.is_16_bit() {
        return None;
    }
    let settings = input.engines.get(here.engine)?;
    let settings = EngineSettings { kv_cache_dtype: "fp8".to_owned(), ..settings.clone() };
    let other = ground(input, here.engine, &settings, here.pool_index, here.pool).ok()?;
    let changed = replan(&other, &best.replica.shape, best.dp, best.concurrency)?;
    let (kv_tokens_gain, tpot_gain) = gains(best, &changed);
    Some(Advice {
        change: "kv_cache_dtype=fp8".to_owned(),
        kv_tokens_gain,
        tpot_gain,
        cost_factor: 1.0,
        message: format!(
            "An fp8 cache holds {} KV tokens instead of {} on the same GPUs; check accuracy on your own task.",
            short(changed.standing.kv_tokens_total),
            short(best.standing.kv_tokens_total),
        ),
    })
}

/// Where TP copies KV heads or leaves the node: the same GPUs with fewer TP ranks and more stages.
fn stages_instead_of_copies(here: &Ground<'_>, found: &Found<'_>, best: &Candidate) -> Option<Advice> {
    let shape = best.replica.shape;
    if best.replica.cache.replication_factor <= 1.0 && !best.replica.placed.tp.is_over_fabric() {
        return None;
    }
    let same_gpus = |c: &Candidate| c.gpus() == best.gpus() && c.replica.shape.tp < shape.tp;
    let other = found
        .ranked
        .iter()
        .filter(|r| found.grounds.get(r.ground).is_some_and(|g| g.engine == here.engine))
        .map(|r| &r.candidate)
        .filter(|c| same_gpus(c) && c.replica.shape.pp > shape.pp)
        .max_by_key(|c| c.standing.kv_tokens_total)?;
    let (kv_tokens_gain, tpot_gain) = gains(best, other);
    Some(Advice {
        change: format!(
            "tensor_parallel_size={} pipeline_parallel_size={}",
            other.replica.shape.tp, other.replica.shape.pp
        ),
        kv_tokens_gain,
        tpot_gain,
        cost_factor: 1.0,
        message: format!(
            "{} splits the cache by layers instead of copying KV heads: {} KV tokens against {} of {}.",
            layout_name(other),
            short(other.standing.kv_tokens_total),
            short(best.standing.kv_tokens_total),
            layout_name(best),
        ),
    })
}

/// One replica more: adds its whole cache, and takes its share of the load.
fn another_replica(input: &PlanInput, here: &Ground<'_>, best: &Candidate) -> Option<Advice> {
    let shape = best.replica.shape;
    let dp = best.dp.checked_add(1)?;
    let gpus = shape.gpus().checked_mul(dp)?;
    let nodes = gpus.div_ceil(here.pool.gpus_per_node.max(1)).max(here.pool.nodes);
    let pool = NodePool { nodes, ..here.pool.clone() };
    let settings = input.engines.get(here.engine)?;
    let other = ground(input, here.engine, settings, here.pool_index, &pool).ok()?;
    let changed = replan(&other, &shape, dp, best.concurrency)?;
    let (kv_tokens_gain, tpot_gain) = gains(best, &changed);
    Some(Advice {
        change: format!("data_parallel_size={dp}"),
        kv_tokens_gain,
        tpot_gain,
        cost_factor: dp as f64 / best.dp.max(1) as f64,
        message: format!(
            "One more replica ({} GPUs more, {gpus} in all) holds {} KV tokens; the longest single sequence stays {} tokens.",
            shape.gpus(),
            short(changed.standing.kv_tokens_total),
            short(changed.replica.longest.get()),
        ),
    })
}

/// The same layout elsewhere, under the load that the best layout carries: gains compare equal loads.
fn replan(ground: &Ground<'_>, shape: &Shape, dp: u64, asked: u64) -> Option<Candidate> {
    let replica = ground.replica(shape, &ground.sharded(shape)).ok()?;
    (replica.placed.replicas_max >= dp).then(|| ground.candidate(replica, dp, asked))
}

/// Factors on KV tokens, and on speed per token (above 1 = better).
fn gains(before: &Candidate, after: &Candidate) -> (f64, f64) {
    let (b, a) = (&before.standing, &after.standing);
    (a.kv_tokens_total as f64 / b.kv_tokens_total.max(1) as f64, b.tpot_s / a.tpot_s)
}
