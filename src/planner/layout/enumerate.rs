//! Every shape worth asking about, in a fixed order.
//!
//! A shape is the size of one replica. How many replicas a pool holds follows from placement, so
//! the search is over shapes only and its cost does not grow with the cluster.

use super::Shape;
use crate::planner::input::Search;

/// Pipeline depths that are all tried; deeper ones only where they suit the model or the cluster.
const EVERY_PP_UP_TO: u64 = 16;
/// No engine start with more ranks than this was ever published; the search ends there unless asked.
const MAX_REPLICA_GPUS: u64 = 4_096;
/// Attention-DP groups tried by default.
const MAX_ATTENTION_DP: u64 = 64;
/// The most values that a caller may list for one axis; the rest is left out.
const MAX_LISTED: usize = 256;

/// What the enumeration needs to know of model and pool.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// GPUs of the pool.
    pub gpus: u64,
    pub gpus_per_node: u64,
    pub nodes: u64,
    pub layers: u64,
    pub query_heads: u64,
    pub kv_heads: u64,
    pub mla: bool,
    pub routed_experts: u64,
}

/// Shapes, times the listed numbers of replicas, that a search with listed sizes has at most; 0 when nothing is listed.
/// Nothing is built: an axis that is not listed counts with what it usually has.
#[must_use]
pub fn most_listed(search: &Search) -> u64 {
    let Search { tp, pp, dp, ep, attention_dp, dcp, .. } = search;
    if [tp, pp, dp, ep, attention_dp, dcp].into_iter().all(Option::is_none) {
        return 0;
    }
    let axis = |listed: &Option<Vec<u64>>, usual: u64| listed.as_ref().map_or(usual, |l| l.len() as u64);
    // of the listed EP sizes only 1 and the ranks of a stage are ever taken
    let ep = axis(ep, 2).min(2);
    [axis(tp, 8), axis(pp, 16), axis(dp, 1), axis(attention_dp, 4), axis(dcp, 2), ep]
        .into_iter()
        .fold(1, u64::saturating_mul)
}

/// TP sizes to ask about, ascending: every size up to the pool and the query heads, so that each
/// illegal one gets its reason.
#[must_use]
pub fn tp_sizes(bounds: &Bounds, search: &Search) -> Vec<u64> {
    if let Some(listed) = &search.tp {
        return in_order(listed);
    }
    let heads = if bounds.query_heads == 0 { bounds.gpus_per_node } else { bounds.query_heads };
    (1..=bounds.gpus.min(heads).min(MAX_REPLICA_GPUS)).collect()
}

/// The shapes with this TP, in the order PP, attention DP, EP, DCP.
#[must_use]
pub fn shapes_of(tp: u64, bounds: &Bounds, search: &Search) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for &pp in &pp_sizes(tp, bounds, search) {
        for &attention_dp in &attention_dp_sizes(tp, pp, bounds, search) {
            for &ep in &ep_sizes(tp, attention_dp, bounds, search) {
                for &dcp in &dcp_sizes(tp, bounds, search) {
                    shapes.push(Shape { tp, pp, ep, attention_dp, dcp });
                }
            }
        }
    }
    shapes
}

fn pp_sizes(tp: u64, bounds: &Bounds, search: &Search) -> Vec<u64> {
    let room = bounds.gpus / tp.max(1);
    if let Some(listed) = &search.pp {
        return in_order(listed);
    }
    let deepest = room.min(bounds.layers).min(MAX_REPLICA_GPUS / tp.max(1));
    let mut sizes: Vec<u64> = (1..=deepest.min(EVERY_PP_UP_TO)).collect();
    let deeper = [32, 64, bounds.nodes, room];
    sizes.extend(deeper.into_iter().filter(|&pp| pp > EVERY_PP_UP_TO && pp <= deepest));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn attention_dp_sizes(tp: u64, pp: u64, bounds: &Bounds, search: &Search) -> Vec<u64> {
    let room = bounds.gpus / tp.saturating_mul(pp).max(1);
    if let Some(listed) = &search.attention_dp {
        return in_order(listed);
    }
    // Only experts are shared between the groups: without them it is the same as replicas.
    if bounds.routed_experts == 0 {
        return vec![1];
    }
    let most = room.min(MAX_ATTENTION_DP).min(MAX_REPLICA_GPUS / tp.saturating_mul(pp).max(1));
    powers_of_two(most.max(1))
}

fn ep_sizes(tp: u64, attention_dp: u64, bounds: &Bounds, search: &Search) -> Vec<u64> {
    let ranks = tp.saturating_mul(attention_dp);
    if let Some(listed) = &search.ep {
        // Experts are either split like other tensors (1) or dealt over all ranks of a stage.
        return in_order(listed).into_iter().filter(|&ep| ep == 1 || ep == ranks).collect();
    }
    match (bounds.routed_experts, ranks) {
        (0, _) | (_, 1) => vec![1],
        _ if attention_dp > 1 => vec![ranks],
        _ => vec![1, ranks],
    }
}

fn dcp_sizes(tp: u64, bounds: &Bounds, search: &Search) -> Vec<u64> {
    if let Some(listed) = &search.dcp {
        return in_order(listed);
    }
    let copies = if bounds.mla { tp } else { tp / bounds.kv_heads.max(1) };
    powers_of_two(copies.max(1)).into_iter().filter(|c| tp.is_multiple_of(*c)).collect()
}

fn powers_of_two(most: u64) -> Vec<u64> {
    std::iter::successors(Some(1_u64), |n| n.checked_mul(2)).take_while(|n| *n <= most).collect()
}

/// What the caller listed: positive, ascending, each once. Sizes beyond the cluster stay, to be refused by name.
fn in_order(listed: &[u64]) -> Vec<u64> {
    let mut sizes: Vec<u64> = listed.iter().copied().filter(|n| *n >= 1).take(MAX_LISTED).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(gpus: u64) -> Bounds {
        Bounds {
            gpus,
            gpus_per_node: 8,
            nodes: gpus.div_ceil(8),
            layers: 80,
            query_heads: 64,
            kv_heads: 8,
            mla: false,
            routed_experts: 0,
        }
    }

    #[test]
    fn every_tp_is_asked_about_so_that_each_refusal_has_its_reason() {
        assert_eq!(tp_sizes(&bounds(16), &Search::default()), (1..=16).collect::<Vec<_>>());
    }

    #[test]
    fn depths_that_do_not_divide_the_layers_are_searched() {
        let depths: Vec<u64> = shapes_of(1, &bounds(16), &Search::default()).iter().map(|s| s.pp).collect();
        assert!(depths.contains(&3) && depths.contains(&7));
    }

    #[test]
    fn context_parallel_only_re_uses_copies() {
        let shapes = shapes_of(16, &bounds(16), &Search::default());
        assert_eq!(shapes.iter().map(|s| s.dcp).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn the_search_does_not_grow_with_the_cluster() {
        let count = |gpus| {
            let bounds = Bounds { routed_experts: 256, mla: true, query_heads: 128, ..bounds(gpus) };
            tp_sizes(&bounds, &Search::default())
                .into_iter()
                .filter(|tp| 128_u64.is_multiple_of(*tp))
                .map(|tp| shapes_of(tp, &bounds, &Search::default()).len())
                .sum::<usize>()
        };
        assert!(count(100_000) < 20_000, "{}", count(100_000));
    }

    #[test]
    fn listed_sizes_stay_to_be_refused_by_name() {
        let search = Search { tp: Some(vec![16, 3, 0, 99]), ..Search::default() };
        assert_eq!(tp_sizes(&bounds(16), &search), [3, 16, 99]);
    }

    #[test]
    fn what_a_search_lists_is_counted_without_building_it() {
        let all: Option<Vec<u64>> = Some((1..=64).collect());
        let search = Search {
            tp: all.clone(),
            pp: all.clone(),
            dp: all.clone(),
            ep: all.clone(),
            attention_dp: all.clone(),
            dcp: all,
            ..Search::default()
        };
        assert_eq!(most_listed(&search), 64_u64.pow(5) * 2);
        assert_eq!(most_listed(&Search::default()), 0);
        assert!(most_listed(&Search { tp: Some(vec![1, 2, 4, 8]), ..Search::default() }) <= 2_000);
    }
}
