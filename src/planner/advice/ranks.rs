//! The same GPUs with their ranks dealt otherwise: fewer TP ranks and more stages, replicas or attention groups; or more.

use super::{LEAST_GAIN, Subject};
use crate::planner::answer::{copied, factor, layout_name, milliseconds, short, short_context};
use crate::planner::candidate::Candidate;
use crate::planner::layout::Shape;
use crate::planner::plan::Advice;

pub(super) fn changes(subject: &Subject<'_, '_>) -> Vec<Advice> {
    [
        stages_instead_of_ranks(subject),
        replicas_instead_of_ranks(subject),
        attention_groups_instead_of_copies(subject),
        more_ranks_in_one_domain(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A shape with another TP; experts stay dealt over all ranks of a stage where they were.
fn with_tp(shape: Shape, tp: u64) -> Shape {
    let ep = if shape.ep > 1 { tp.saturating_mul(shape.attention_dp) } else { 1 };
    Shape { tp, ep, dcp: 1, ..shape }
}

/// The largest part of TP that neither copies KV heads nor leaves the domain, and how many such parts TP has.
/// `None` where TP does neither.
fn part_of_ranks(subject: &Subject<'_, '_>) -> Option<(u64, u64)> {
    let shape = subject.shape();
    let links = &subject.best.replica.placed.tp;
    let by_heads = subject.kv_heads().filter(|_| subject.copies());
    let by_domain = links.is_over_fabric().then(|| links.ranks_per_node.max(links.ranks_per_island).max(1));
    let most = by_heads.into_iter().chain(by_domain).min()?;
    let part = (1..=most.min(shape.tp)).rev().find(|t| shape.tp.is_multiple_of(*t))?;
    (part < shape.tp).then(|| (part, shape.tp / part))
}

/// What is wrong with the TP that the layout has, for a sentence about a smaller one.
fn instead_of(subject: &Subject<'_, '_>) -> String {
    let tp = subject.shape().tp;
    if subject.copies() {
        let copies = factor(subject.best.replica.cache.replication_factor);
        return format!("TP={tp} holds {} {copies} times", copied(subject.input));
    }
    format!("TP={tp} leaves the node for every layer's all-reduce")
}

/// Fewer TP ranks and as many more stages: the layers are split instead.
fn stages_instead_of_ranks(subject: &Subject<'_, '_>) -> Option<Advice> {
    let (tp, parts) = part_of_ranks(subject)?;
    let shape = subject.shape();
    let shape = Shape { pp: shape.pp.saturating_mul(parts), ..with_tp(shape, tp) };
    let after = subject.on_same_ground(&shape, subject.best.dp)?;
    let message = format!(
        "{}; {} splits the layers over the same GPUs instead: {}.",
        instead_of(subject),
        layout_name(&after),
        tokens_and_time(subject.best, &after),
    );
    let change = format!("tensor_parallel_size={tp} pipeline_parallel_size={}", shape.pp);
    Some(subject.gained(change, &after, 1.0, message))
}

/// Fewer TP ranks and as many more replicas: each holds a cache of its own.
fn replicas_instead_of_ranks(subject: &Subject<'_, '_>) -> Option<Advice> {
    let (tp, parts) = part_of_ranks(subject)?;
    let shape = with_tp(subject.shape(), tp);
    let dp = subject.best.dp.saturating_mul(parts);
    let after = subject.on_same_ground(&shape, dp)?;
    let message = format!(
        "{}; {dp} replicas of TP={tp} on the same GPUs hold a cache each: {}, and the longest single sequence is {} tokens.",
        instead_of(subject),
        tokens_and_time(subject.best, &after),
        short_context(after.replica.longest.get()),
    );
    Some(subject.gained(format!("tensor_parallel_size={tp} data_parallel_size={dp}"), &after, 1.0, message))
}

/// Where TP ranks copy the cache and only experts need them all: attention runs in groups with their own sequences.
fn attention_groups_instead_of_copies(subject: &Subject<'_, '_>) -> Option<Advice> {
    let shape = subject.shape();
    if !subject.copies() || shape.dcp > 1 || subject.ground.model.experts.is_none() {
        return None;
    }
    let copies = subject.kv_heads().map_or(shape.tp, |heads| shape.tp / heads);
    // all copies gone where the attention weights of a group leave room, else half of them
    let tries = [copies, copies / 2].into_iter().filter(|k| *k > 1 && shape.tp.is_multiple_of(*k));
    let (groups, after) = tries
        .map(|k| {
            let attention_dp = shape.attention_dp.saturating_mul(k);
            let tp = shape.tp / k;
            Shape { tp, attention_dp, ep: tp.saturating_mul(attention_dp), dcp: 1, ..shape }
        })
        .find_map(|shape| Some((shape.attention_dp, subject.on_same_ground(&shape, subject.best.dp)?)))?;
    let message = format!(
        "{}; {groups} attention groups with sequences of their own share the experts on the same GPUs: {}.",
        instead_of(subject),
        tokens_and_time(subject.best, &after),
    );
    let tp = after.replica.shape.tp;
    Some(subject.gained(format!("attention_dp={groups} tensor_parallel_size={tp}"), &after, 1.0, message))
}

/// Twice the TP ranks in place of stages or replicas, while they stay on one fast link.
fn more_ranks_in_one_domain(subject: &Subject<'_, '_>) -> Option<Advice> {
    let (shape, dp) = (subject.shape(), subject.best.dp);
    let tp = shape.tp.checked_mul(2)?;
    let (wider, dp) = match (shape.pp, dp) {
        (pp, dp) if pp.is_multiple_of(2) => (Shape { pp: pp / 2, ..with_tp(shape, tp) }, dp),
        (_, dp) if dp.is_multiple_of(2) => (with_tp(shape, tp), dp / 2),
        _ => return None,
    };
    let after = subject.on_same_ground(&wider, dp)?;
    if after.replica.placed.tp.is_over_fabric()
        || after.standing.tpot_s * LEAST_GAIN > subject.best.standing.tpot_s
    {
        return None;
    }
    let message = format!(
        "For single users {} is faster on the same GPUs, since its ranks share one {} domain: {}.",
        layout_name(&after),
        after.replica.placed.tp.link.key,
        tokens_and_time(subject.best, &after),
    );
    Some(subject.gained(format!("tensor_parallel_size={tp}"), &after, 1.0, message))
}

/// The reversal: few sequences on one fast link. The ranks copy KV heads, every sequence fits all the same, and what
/// would stop the copying makes each token slower.
pub(super) fn wide_is_right(subject: &Subject<'_, '_>) -> Option<Advice> {
    let (shape, best) = (subject.shape(), subject.best);
    let all_fit = best.concurrency >= subject.input.workload.concurrency.max(1);
    if !subject.copies() || best.replica.placed.tp.is_over_fabric() || !all_fit {
        return None;
    }
    // where one latent serves all heads, no part of TP is free of copies: half of it is the comparison
    let (tp, parts) = part_of_ranks(subject).or_else(|| {
        (subject.kv_heads().is_none() && shape.tp.is_multiple_of(2)).then_some((shape.tp / 2, 2))
    })?;
    let narrow = with_tp(shape, tp);
    let after = subject.on_same_ground(&narrow, best.dp.saturating_mul(parts)).or_else(|| {
        subject.on_same_ground(&Shape { pp: shape.pp.saturating_mul(parts), ..narrow }, best.dp)
    })?;
    if after.standing.tpot_s < best.standing.tpot_s * LEAST_GAIN {
        return None;
    }
    let message = format!(
        "TP={} is right here although it holds {} {} times: its ranks share one {} domain and every asked sequence fits, so a \
         token takes {} instead of {} with {}.",
        shape.tp,
        copied(subject.input),
        factor(best.replica.cache.replication_factor),
        best.replica.placed.tp.link.key,
        milliseconds(best.standing.tpot_s),
        milliseconds(after.standing.tpot_s),
        layout_name(&after),
    );
    Some(subject.said("keep_tensor_parallel_size", message))
}

/// "3.3M KV tokens against 1.4M, TPOT 21.0 ms against 24.1 ms".
fn tokens_and_time(before: &Candidate, after: &Candidate) -> String {
    format!(
        "{} KV tokens against {}, TPOT {} against {}",
        short(after.standing.kv_tokens_total),
        short(before.standing.kv_tokens_total),
        milliseconds(after.standing.tpot_s),
        milliseconds(before.standing.tpot_s),
    )
}
