//! More GPUs: another replica of the same kind, or of each other kind of the cluster.

use super::{LEAST_SEATS, Subject, replan, seats};
use crate::planner::answer::{copied, factor, layout_name, short, short_context};
use crate::planner::candidate::whole;
use crate::planner::hardware::NodePool;
use crate::planner::layout::Shape;
use crate::planner::plan::Advice;
use crate::planner::replica::Ground;
use crate::planner::search::ground;

/// Other kinds of GPUs that a replica is tried on.
const MOST_KINDS: usize = 3;

pub(super) fn changes(subject: &Subject<'_, '_>) -> Vec<Advice> {
    let mut list: Vec<Advice> = another_replica(subject).into_iter().collect();
    list.extend(replica_of_other_kinds(subject));
    list.extend(replica_of_other_products(subject));
    list
}

/// A pool with room for so many GPUs, at least as many nodes as it has.
fn grown(pool: &NodePool, gpus: u64) -> NodePool {
    let nodes = gpus.div_ceil(pool.gpus_per_node.max(1)).max(pool.nodes);
    NodePool { nodes, ..pool.clone() }
}

/// One replica more: adds its whole cache, and takes its share of the load. Where TP would copy KV heads if it were
/// doubled instead, the sentence says what that would hold.
fn another_replica(subject: &Subject<'_, '_>) -> Option<Advice> {
    let Subject { input, ground: here, best } = subject;
    let shape = subject.shape();
    let dp = best.dp.checked_add(1)?;
    let gpus = shape.gpus().checked_mul(dp)?;
    let pool = grown(here.pool, gpus);
    let other = ground(input, here.engine, input.engines.get(here.engine)?, here.pool_index, &pool).ok()?;
    let after = replan(&other, &shape, dp, best.concurrency)?;
    let mut message = format!(
        "One more replica ({} GPUs more, {gpus} in all) holds {} KV tokens; the longest single sequence stays {} tokens",
        shape.gpus(),
        short(after.standing.kv_tokens_total),
        short_context(after.replica.longest.get()),
    );
    if best.dp == 1
        && let Some(wider) = wider_tp(subject, &other)
    {
        message.push_str(&format!("; TP={} on as many GPUs holds {wider}", shape.tp.saturating_mul(2)));
    }
    message.push('.');
    let cost = dp as f64 / best.dp.max(1) as f64;
    Some(subject.gained(format!("data_parallel_size={dp}"), &after, cost, message))
}

/// What twice the TP ranks would hold where they copy KV heads: "3.5M, 1.07 times what it is now, with each of 8 KV heads 2 times".
fn wider_tp(subject: &Subject<'_, '_>, grown: &Ground<'_>) -> Option<String> {
    let shape = subject.shape();
    let tp = shape.tp.checked_mul(2)?;
    let ep = if shape.ep > 1 { tp.saturating_mul(shape.attention_dp) } else { 1 };
    let wide = replan(grown, &Shape { tp, ep, ..shape }, 1, subject.best.concurrency)?;
    let copies = wide.replica.cache.replication_factor;
    if copies <= subject.best.replica.cache.replication_factor {
        return None;
    }
    let gain = wide.standing.kv_tokens_total as f64 / subject.best.standing.kv_tokens_total.max(1) as f64;
    Some(format!(
        "{}, {gain:.2} times what it is now, with {} {} times",
        short(wide.standing.kv_tokens_total),
        copied(subject.input),
        factor(copies)
    ))
}

/// A replica of the same shape on each other kind of GPU in the cluster, beside those that run. Each kind serves the part
/// of the load that its caches have room for; the time of a token is the mean over requests.
fn replica_of_other_kinds(subject: &Subject<'_, '_>) -> Vec<Advice> {
    let Subject { input, ground: here, .. } = subject;
    let other_kinds = input.cluster.pools.iter().enumerate().filter(|(_, p)| p.gpu.key != here.gpu.key);
    other_kinds.take(MOST_KINDS).filter_map(|(index, pool)| replica_on(subject, index, pool)).collect()
}

/// The same on products that the cluster lacks, where the question asks to look so far. A memory figure of the caller's is of
/// the GPUs that there are.
fn replica_of_other_products(subject: &Subject<'_, '_>) -> Vec<Advice> {
    let Subject { input, ground: here, .. } = subject;
    if input.overrides.has("gpu_memory_bytes") {
        return Vec::new();
    }
    let runs = |pool: &&NodePool| here.rules.name() != "tensorrt-llm" || pool.gpu.vendor == "nvidia";
    input
        .beyond
        .products
        .iter()
        .filter(runs)
        .filter_map(|pool| replica_on(subject, here.pool_index, pool))
        .collect()
}

fn replica_on(subject: &Subject<'_, '_>, index: usize, pool: &NodePool) -> Option<Advice> {
    let Subject { input, ground: here, best } = subject;
    let shape = subject.shape();
    let pool = grown(pool, shape.gpus());
    let other = ground(input, here.engine, input.engines.get(here.engine)?, index, &pool).ok()?;
    let alone = replan(&other, &shape, 1, best.concurrency)?;
    let (own_seats, new_seats) = (seats(here, best), seats(&other, &alone));
    let share = new_seats / (own_seats + new_seats).max(LEAST_SEATS);
    let moved = whole((best.concurrency as f64 * share).round());
    let kept = replan(here, &shape, best.dp, best.concurrency.saturating_sub(moved).max(1))?;
    let new = replan(&other, &shape, 1, moved.max(1))?;
    let tpot_s = kept.standing.tpot_s.mul_add(1.0 - share, new.standing.tpot_s * share);
    let total = best.standing.kv_tokens_total.saturating_add(new.standing.kv_tokens_total);
    let (own_usd, new_usd) = (best.standing.usd_per_hour, new.standing.usd_per_hour);
    let cost = match (own_usd, new_usd) {
        (Some(own), Some(new)) if own > 0.0 => (own + new) / own,
        _ => best.gpus().saturating_add(shape.gpus()) as f64 / best.gpus().max(1) as f64,
    };
    let layout = layout_name(best);
    Some(Advice {
        change: format!("replica on {}", other.gpu.key),
        becomes: format!("{layout} and {} on {}", layout_name(&new), other.gpu.short_name),
        layout,
        kv_tokens_gain: total as f64 / best.standing.kv_tokens_total.max(1) as f64,
        sequences_gain: (own_seats + new_seats) / own_seats.max(LEAST_SEATS),
        tpot_gain: best.standing.tpot_s / tpot_s,
        cost_factor: cost,
        message: format!(
            "A replica on {} {} beside it adds {} KV tokens to {}.",
            shape.gpus(),
            other.gpu.short_name,
            short(new.standing.kv_tokens_total),
            short(best.standing.kv_tokens_total),
        ),
    })
}
