//! Several pools: a replica lives in one of them, replicas in several add up.

use super::answer::{layout_name, sequences_total, short};
use super::candidate::Candidate;
use super::input::PlanInput;
use super::plan::{Fleet, FleetPool};
use super::replica::Ground;
use super::search::Found;
use super::show::sizes;

/// The best layout of each pool under the engine that comes first, together; `None` for a single pool.
#[must_use]
pub fn fleet(input: &PlanInput, found: &Found<'_>) -> Option<Fleet> {
    if input.cluster.pools.len() < 2 {
        return None;
    }
    let best = best_by_pool(input, found);
    let all_tokens: u64 = best.iter().fold(0, |sum, (_, c)| sum.saturating_add(c.standing.kv_tokens_total));
    let parts: Vec<(&Ground<'_>, Candidate)> = best
        .into_iter()
        .map(|(ground, alone)| {
            let share = alone.standing.kv_tokens_total as f64 / all_tokens.max(1) as f64;
            (
                ground,
                ground.candidate(alone.replica.clone(), alone.dp, part_of(input.workload.concurrency, share)),
            )
        })
        .collect();
    let gpus: u64 = parts.iter().fold(0, |sum, (_, c)| sum.saturating_add(c.gpus()));
    let pools: Vec<FleetPool> = parts.iter().map(|(ground, candidate)| pool(ground, candidate)).collect();
    let sum =
        |figure: fn(&FleetPool) -> u64| pools.iter().fold(0, |all: u64, p| all.saturating_add(figure(p)));
    let (kv_tokens_total, sequences_total) = (sum(|p| p.kv_tokens_total), sum(|p| p.sequences_total));
    Some(Fleet {
        answer: sentence(&parts, kv_tokens_total, sequences_total),
        kv_tokens_total,
        sequences_total,
        output_tokens_per_s: pools.iter().map(|p| p.output_tokens_per_s).sum(),
        max_sequence_tokens: pools.iter().map(|p| p.max_sequence_tokens).max().unwrap_or(0),
        gpus,
        idle_gpus: input.cluster.gpus().saturating_sub(gpus),
        pools,
    })
}

/// The first-ranked layout of each pool, in the order of the request.
fn best_by_pool<'f, 'a>(input: &PlanInput, found: &'f Found<'a>) -> Vec<(&'f Ground<'a>, &'f Candidate)> {
    (0..input.cluster.pools.len())
        .filter_map(|pool| {
            found.ranked.iter().find_map(|r| {
                let ground = found.grounds.get(r.ground)?;
                (ground.pool_index == pool).then_some((ground, &r.candidate))
            })
        })
        .collect()
}

/// A share of the load, at least one request.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a bounded count")]
fn part_of(concurrency: u64, share: f64) -> u64 {
    ((concurrency as f64 * share).round() as u64).max(1)
}

fn pool(ground: &Ground<'_>, candidate: &Candidate) -> FleetPool {
    FleetPool {
        pool: ground.pool_index as u64,
        layout: sizes(ground, candidate),
        kv_tokens_total: candidate.standing.kv_tokens_total,
        sequences_total: sequences_total(candidate),
        max_sequence_tokens: candidate.replica.longest.get(),
        concurrency: candidate.concurrency,
        output_tokens_per_s: candidate.tokens_per_s,
        tpot_ms: candidate.standing.tpot_s * 1e3,
    }
}

fn sentence(parts: &[(&Ground<'_>, Candidate)], kv_tokens: u64, sequences: u64) -> String {
    let each: Vec<String> = parts
        .iter()
        .map(|(ground, c)| format!("{} on {} {}", layout_name(c), c.gpus(), ground.gpu.short_name))
        .collect();
    match each.as_slice() {
        [] => "The model fits in no pool.".to_owned(),
        each => format!(
            "All pools: {}: {} KV tokens, {sequences} sequences; a replica lives in one pool.",
            each.join(" and "),
            short(kv_tokens)
        ),
    }
}
