//! Placement of ranks on links: which link the slowest hop of each group crosses.
//!
//! Ranks are filled as vLLM numbers them: TP innermost, then PP, then data parallel
//! (`ExternalDP x DP x PP x TP`, vllm/distributed/parallel_state.py, `initialize_model_parallel`).
//! A replica's GPUs are one contiguous run, and runs never straddle a smaller domain than they must:
//!
//! ```text
//! domain        joined by            example
//! island        intra_link           NVSwitch node, bridge pair, xGMI mesh, NVL72 rack
//! node          host_link            PCIe between bridge pairs
//! everything    inter_link           InfiniBand, RoCE, Ethernet
//! ```
//!
//! All of it is division: 100,000 GPUs cost as much as eight.

use std::sync::Arc;

use super::Shape;
use crate::planner::hardware::{Link, LinkScope, NodePool};

/// The links under one communicating group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupLinks {
    /// The slowest link that the group crosses, with its rates as a group of this size sees them.
    pub link: Arc<Link>,
    /// Ranks in the group.
    pub ranks: u64,
    /// Ranks of the group on its fullest node.
    pub ranks_per_node: u64,
    /// Ranks of the group in its fullest island.
    pub ranks_per_island: u64,
    /// True when the group leaves its node. A rack-wide NVLink domain is left only when `crosses_islands` is true too.
    pub crosses_nodes: bool,
    /// True when the group leaves its island, so that `link` is not the island's own.
    pub crosses_islands: bool,
    /// Network ports of a node, where known.
    pub nics_per_node: Option<u64>,
}

impl GroupLinks {
    /// True when the group goes over the network between nodes. A rack-wide NVLink domain is none.
    #[must_use]
    pub fn is_over_fabric(&self) -> bool {
        self.crosses_nodes && self.crosses_islands
    }
}

/// Where the groups of one replica lie, and how many such replicas the pool holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub tp: GroupLinks,
    /// `None` without pipeline stages; likewise below.
    pub pp: Option<GroupLinks>,
    pub attention_dp: Option<GroupLinks>,
    pub ep: Option<GroupLinks>,
    pub dcp: Option<GroupLinks>,
    /// Replicas that the pool holds while no TP group crosses more than it must.
    pub replicas_max: u64,
    /// GPUs that stay idle when `replicas_max` replicas run.
    pub idle_gpus: u64,
}

/// Place one replica of `shape` in `pool`, and count how many fit. `None` when not one fits. O(1).
#[must_use]
pub fn place(pool: &NodePool, shape: &Shape) -> Option<Placed> {
    Domains::of(pool)?.place(shape)
}

/// The sizes at which a run of GPUs of a pool starts to cross a slower link.
#[derive(Debug, Clone)]
pub struct Domains {
    nodes: u64,
    gpus: u64,
    node: u64,
    island: u64,
    inside_island: Arc<Link>,
    inside_node: Arc<Link>,
    between_nodes: Arc<Link>,
    nics_per_node: Option<u64>,
}

impl Domains {
    /// `None` for a pool without GPUs.
    #[must_use]
    pub fn of(pool: &NodePool) -> Option<Self> {
        let (gpus, node) = (pool.gpus(), pool.gpus_per_node);
        // A slice has no peer link at all: every slice is an island of its own.
        let island = if pool.gpu.slice_of.is_some() { 1 } else { pool.island_gpus.max(1) };
        let host = pool.host_link.as_ref();
        let inside_island = Arc::new(pool.intra_link.clone());
        (gpus > 0).then(|| Self {
            nodes: pool.nodes,
            gpus,
            node,
            island,
            inside_node: host.map_or_else(|| Arc::clone(&inside_island), |link| Arc::new(link.clone())),
            inside_island,
            between_nodes: Arc::new(slower(&pool.inter_link, host.filter(|_| island < node)).clone()),
            nics_per_node: pool.inter_links_per_node,
        })
    }

    /// Place one replica of `shape`, and count how many fit. `None` when not one fits. O(1).
    #[must_use]
    pub fn place(&self, shape: &Shape) -> Option<Placed> {
        let tp = shape.tp.max(1);
        let stages = shape.pp.max(1);
        let attention_dp = shape.attention_dp.max(1);
        let replicas_max = self.replicas(tp, stages.saturating_mul(attention_dp));
        if replicas_max == 0 {
            return None;
        }
        let block = tp.saturating_mul(stages);
        let replica = block.saturating_mul(attention_dp);
        let tp_links = self.group(tp, tp);
        // One expert group takes every TP rank of every attention group of a stage: with one attention group the TP ranks
        // themselves; with several and stages in between, its members are spread over the whole replica.
        let spread = stages > 1 && attention_dp > 1;
        let ep_run = if spread { replica } else { tp.saturating_mul(attention_dp) };
        Some(Placed {
            pp: (stages > 1).then(|| self.group(stages, block)),
            attention_dp: (attention_dp > 1).then(|| self.group(attention_dp, replica)),
            ep: (shape.ep > 1).then(|| self.group(shape.ep, ep_run)),
            dcp: (shape.dcp > 1).then(|| self.inside(&tp_links, shape.dcp)),
            tp: tp_links,
            replicas_max,
            idle_gpus: self.gpus.saturating_sub(replicas_max.saturating_mul(replica)),
        })
    }

    /// Runs of `size` GPUs that fit without leaving an island or, when larger, a node.
    /// Zero when a single run must leave both.
    fn runs_inside(&self, size: u64) -> u64 {
        if self.island >= self.node {
            // Islands of whole nodes (or one node): the last may be incomplete.
            let whole = self.gpus / self.island * (self.island / size);
            return whole.saturating_add(self.gpus % self.island / size);
        }
        let per_node = if size <= self.island {
            (self.node / self.island * (self.island / size)).saturating_add(self.node % self.island / size)
        } else {
            self.node / size
        };
        self.nodes.saturating_mul(per_node)
    }

    /// Replicas of `groups` TP groups of `tp` ranks each.
    fn replicas(&self, tp: u64, groups: u64) -> u64 {
        let replica = tp.saturating_mul(groups);
        let unit = self.island.max(self.node);
        if replica <= self.island {
            return self.runs_inside(replica);
        }
        if tp <= unit {
            let tp_groups = self.runs_inside(tp);
            if replica > unit {
                // It leaves its node in any case: every TP group counts, wherever it lies.
                return tp_groups / groups;
            }
            let per_node = tp_groups.checked_div(self.nodes).unwrap_or(0);
            return self.nodes.saturating_mul(per_node / groups);
        }
        // TP itself leaves its node: a group takes whole nodes.
        self.nodes.checked_div(tp.div_ceil(self.node.max(1))).unwrap_or(0) / groups
    }

    /// Links of a group of `ranks` that is spread over a contiguous run of `run` GPUs.
    fn group(&self, ranks: u64, run: u64) -> GroupLinks {
        let crosses_islands = run > self.island;
        let crosses_nodes = run > self.node;
        GroupLinks {
            link: as_seen_by(self.link_over(run), ranks),
            ranks,
            ranks_per_node: share_in(self.node, ranks, run),
            ranks_per_island: share_in(self.island, ranks, run),
            crosses_nodes,
            crosses_islands,
            nics_per_node: self.nics_per_node,
        }
    }

    /// Links of a group of `ranks` consecutive ranks of a TP group.
    fn inside(&self, tp: &GroupLinks, ranks: u64) -> GroupLinks {
        // Consecutive ranks stay on one node when the node's share divides into such groups.
        let whole = |share: u64| share.checked_rem(ranks) == Some(0);
        let run = if !tp.crosses_nodes || whole(tp.ranks_per_node) {
            if !tp.crosses_islands || whole(tp.ranks_per_island) { ranks } else { ranks.max(self.node) }
        } else {
            tp.ranks
        };
        self.group(ranks, run)
    }

    /// The slowest link inside a contiguous run of `run` GPUs.
    fn link_over(&self, run: u64) -> &Arc<Link> {
        if run <= self.island {
            &self.inside_island
        } else if run <= self.node {
            &self.inside_node
        } else {
            &self.between_nodes
        }
    }
}

/// The link as a group of `ranks` sees it; only a direct mesh looks different to each size.
fn as_seen_by(link: &Arc<Link>, ranks: u64) -> Arc<Link> {
    if link.per_peer_bytes_per_s.is_none() { Arc::clone(link) } else { Arc::new(link.for_group(ranks)) }
}

/// How many of the `ranks` of a group, spread over a contiguous run of `run` GPUs, share a domain of `domain` GPUs.
fn share_in(domain: u64, ranks: u64, run: u64) -> u64 {
    if run <= domain {
        return ranks;
    }
    if ranks == run {
        // Every GPU of the run is a member: spread evenly over as few domains as hold it.
        return run.div_ceil(run.div_ceil(domain.max(1)).max(1));
    }
    ranks.saturating_mul(domain).checked_div(run).unwrap_or(0).clamp(1, ranks.max(1))
}

/// The slower of a fabric and a host link: a fabric that outruns PCIe is fed through PCIe.
fn slower<'l>(fabric: &'l Link, host: Option<&'l Link>) -> &'l Link {
    match host {
        Some(host)
            if host.scope != LinkScope::Fabric
                && host.per_direction_bytes_per_s < fabric.per_direction_bytes_per_s =>
        {
            host
        }
        _ => fabric,
    }
}

#[cfg(test)]
pub(in crate::planner) mod tests {
    use super::*;
    use crate::planner::hardware::{Gpu, PeakFlops};
    use crate::planner::units::Bytes;

    fn link(key: &str, scope: LinkScope, gb: f64) -> Link {
        Link {
            key: key.to_owned(),
            name: key.to_owned(),
            scope,
            per_direction_bytes_per_s: gb * 1e9,
            bidirectional_bytes_per_s: 2.0 * gb * 1e9,
            per_peer_bytes_per_s: None,
            sources: vec![],
        }
    }

    pub(in crate::planner) fn pool(nodes: u64, gpus_per_node: u64, island_gpus: u64) -> NodePool {
        NodePool {
            nodes,
            gpus_per_node,
            gpu: Gpu {
                key: "gpu".to_owned(),
                name: "GPU".to_owned(),
                short_name: "GPU".to_owned(),
                vendor: "nvidia".to_owned(),
                architecture: "Hopper".to_owned(),
                compute_capability: Some((9, 0)),
                memory_bytes: Bytes(80_000_000_000),
                driver_reserved_bytes: Bytes(0),
                memory_assumed: false,
                hbm_bytes_per_s: 3.35e12,
                peak_flops: PeakFlops::default(),
                sources: vec![],
                data_quality: "ok".to_owned(),
                slice_of: None,
            },
            intra_link: link("nvlink", LinkScope::Node, 450.0),
            island_gpus,
            host_link: (island_gpus < gpus_per_node).then(|| link("pcie", LinkScope::Node, 63.0)),
            inter_link: link("ib", LinkScope::Fabric, 50.0),
            inter_links_per_node: Some(8),
            host_memory_bytes: None,
            usd_per_gpu_hour: None,
            price_source: None,
            free_memory_bytes: None,
        }
    }

    /// (replicas, idle, TP link, PP link) of a shape.
    fn placed(pool: &NodePool, tp: u64, pp: u64) -> Option<(u64, u64, String, String)> {
        let p = place(pool, &Shape::new(tp, pp))?;
        Some((
            p.replicas_max,
            p.idle_gpus,
            p.tp.link.key.clone(),
            p.pp.map_or_else(String::new, |g| g.link.key.clone()),
        ))
    }

    fn expect(replicas: u64, idle: u64, tp: &str, pp: &str) -> (u64, u64, String, String) {
        (replicas, idle, tp.to_owned(), pp.to_owned())
    }

    #[test]
    fn tp_stays_in_the_node_and_pp_leaves_it() {
        let two_nodes = pool(2, 8, 8);
        assert_eq!(placed(&two_nodes, 8, 1), Some(expect(2, 0, "nvlink", "")));
        assert_eq!(placed(&two_nodes, 8, 2), Some(expect(1, 0, "nvlink", "ib")));
        assert_eq!(placed(&two_nodes, 16, 1), Some(expect(1, 0, "ib", "")));
        assert_eq!(placed(&two_nodes, 4, 2), Some(expect(2, 0, "nvlink", "nvlink")));
        assert_eq!(placed(&two_nodes, 32, 1), None);
    }

    #[test]
    fn odd_nodes_leave_gpus_idle_rather_than_straddle() {
        let sixes = pool(3, 6, 6);
        assert_eq!(placed(&sixes, 4, 1), Some(expect(3, 6, "nvlink", "")));
        assert_eq!(placed(&sixes, 2, 3), Some(expect(3, 0, "nvlink", "nvlink")));
        assert_eq!(placed(&pool(1, 3, 3), 2, 1), Some(expect(1, 1, "nvlink", "")));
        assert_eq!(placed(&pool(1, 3, 3), 1, 3), Some(expect(1, 0, "nvlink", "nvlink")));
        // 4 + 4 do not fit in six, so the stages lie on two nodes in any case
        assert_eq!(placed(&sixes, 4, 2), Some(expect(1, 10, "nvlink", "ib")));
    }

    #[test]
    fn bridge_pairs_take_tp_2() {
        let pairs = pool(1, 4, 2);
        assert_eq!(placed(&pairs, 2, 1), Some(expect(2, 0, "nvlink", "")));
        assert_eq!(placed(&pairs, 4, 1), Some(expect(1, 0, "pcie", "")));
        assert_eq!(placed(&pairs, 2, 2), Some(expect(1, 0, "nvlink", "pcie")));
    }

    #[test]
    fn a_cut_off_gpu_is_an_island_of_its_own() {
        let broken = pool(1, 8, 7);
        assert_eq!(placed(&broken, 4, 1), Some(expect(1, 4, "nvlink", "")));
        assert_eq!(placed(&broken, 1, 1), Some(expect(8, 0, "nvlink", "")));
        assert_eq!(placed(&broken, 8, 1), Some(expect(1, 0, "pcie", "")));
    }

    #[test]
    fn a_rack_domain_is_one_island_over_trays() {
        let rack = pool(18, 4, 72);
        assert_eq!(placed(&rack, 16, 1), Some(expect(4, 8, "nvlink", "")));
        assert_eq!(placed(&rack, 72, 1), Some(expect(1, 0, "nvlink", "")));
        let p = place(&rack, &Shape::new(16, 1)).expect("fits");
        assert!(p.tp.crosses_nodes && !p.tp.crosses_islands);
        let two_racks = pool(36, 4, 72);
        assert_eq!(placed(&two_racks, 144, 1), Some(expect(1, 0, "ib", "")));
        assert_eq!(placed(&two_racks, 64, 2), Some(expect(1, 16, "nvlink", "ib")));
        // part of a rack
        assert_eq!(placed(&pool(4, 4, 72), 16, 1), Some(expect(1, 0, "nvlink", "")));
    }

    #[test]
    fn a_direct_mesh_gives_small_groups_few_wires() {
        let mut mesh = pool(1, 8, 8);
        mesh.intra_link.per_peer_bytes_per_s = Some(64e9);
        mesh.intra_link.per_direction_bytes_per_s = 448e9;
        for (tp, gb) in [(2, 64.0), (4, 192.0), (8, 448.0)] {
            let p = place(&mesh, &Shape::new(tp, 1)).expect("fits");
            assert!((p.tp.link.per_direction_bytes_per_s - gb * 1e9).abs() < 1.0, "TP={tp}");
        }
    }

    #[test]
    fn experts_and_attention_groups_span_the_replica() {
        let four = pool(4, 8, 8);
        let shape = Shape { tp: 4, pp: 1, ep: 32, attention_dp: 8, dcp: 2 };
        let p = place(&four, &shape).expect("fits");
        assert_eq!((p.replicas_max, p.idle_gpus), (1, 0));
        let ep = p.ep.expect("experts are dealt out");
        assert_eq!((ep.link.key.as_str(), ep.ranks, ep.ranks_per_node), ("ib", 32, 8));
        assert_eq!(p.attention_dp.expect("8 groups").ranks_per_node, 2);
        assert_eq!(p.dcp.expect("2 ranks").link.key, "nvlink");
    }

    #[test]
    fn experts_of_a_stage_lie_where_its_tp_ranks_do() {
        let two = pool(2, 8, 8);
        let p = place(&two, &Shape { ep: 8, ..Shape::new(8, 2) }).expect("fits");
        let (tp, ep, pp) = (p.tp, p.ep.expect("experts are dealt out"), p.pp.expect("two stages"));
        assert_eq!(
            (tp.link.key.as_str(), ep.link.key.as_str(), pp.link.key.as_str()),
            ("nvlink", "nvlink", "ib")
        );
        assert_eq!(ep.ranks_per_node, 8);
    }

    #[test]
    fn slices_have_no_links_between_them() {
        let mut slices = pool(1, 7, 7);
        slices.gpu.slice_of = Some("a100".to_owned());
        slices.host_link = Some(link("pcie", LinkScope::Node, 31.0));
        assert_eq!(placed(&slices, 1, 1), Some(expect(7, 0, "nvlink", "")));
        assert_eq!(placed(&slices, 2, 1).map(|p| p.2), Some("pcie".to_owned()));
    }

    #[test]
    fn absurd_sizes_neither_panic_nor_loop() {
        let huge = pool(u64::MAX, u64::MAX, u64::MAX);
        for (tp, pp) in [(0, 0), (1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (3, 7)] {
            let _ = place(&huge, &Shape { tp, pp, ep: u64::MAX, attention_dp: 2, dcp: u64::MAX });
            let _ = place(&pool(1, 1, 0), &Shape { tp, pp, ep: 2, attention_dp: 0, dcp: 3 });
        }
        assert_eq!(place(&pool(0, 8, 8), &Shape::new(1, 1)), None);
        assert!(place(&pool(12_500, 8, 8), &Shape::new(8, 1)).is_some_and(|p| p.replicas_max == 12_500));
    }

    #[test]
    fn replicas_and_idle_always_add_up() {
        for nodes in 1..5 {
            for per_node in 1..9 {
                for island in [1, 2, per_node, 4 * per_node] {
                    let pool = pool(nodes, per_node, island);
                    for tp in 1..20 {
                        for pp in 1..5 {
                            let Some(p) = place(&pool, &Shape::new(tp, pp)) else { continue };
                            assert!(p.replicas_max * tp * pp + p.idle_gpus == pool.gpus());
                            assert!(
                                p.tp.ranks_per_node >= 1 && p.tp.ranks_per_node <= tp.min(per_node).max(1)
                            );
                        }
                    }
                }
            }
        }
    }
}
