//! Collectives by topology: the best algorithm that may run, by size, ranks and link.
//!
//! ```text
//! time(S, n) = fixed + hop * log2(n) + traffic(S, n) / (share * (2/n)^loss * link)
//! one-shot   traffic = (n-1) S            every rank sends all of its data to every other
//! two-shot   traffic = 2 (n-1)/n S        reduce-scatter, then all-gather (ring, tree or direct)
//! in-switch  traffic = (n+1)/n S          the switch adds up (NVLS)
//! gather     traffic = (n-1)/n S          half of a two-shot: all-gather, reduce-scatter, all-to-all
//! across nodes: two-shot inside a node, then a two-shot of S over the network cards of a node
//! ```
//! `S` bytes of one rank, `n` ranks, `link` one direction, bytes/s. Constants are fitted to
//! measured points (`data/calibration/collectives.json`).

use serde::{Deserialize, Serialize};

use crate::planner::hardware::LinkScope;
use crate::planner::layout::place::GroupLinks;

/// Kinds of wires whose constants differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireKind {
    /// NVLink through a switch, third generation and before.
    Nvlink3,
    Nvlink4,
    Nvlink5,
    /// Bridge pairs.
    Bridge,
    /// PCIe, fourth generation and before.
    Pcie4,
    Pcie5,
    Xgmi,
    /// RDMA networks.
    Infiniband,
    /// Everything else between nodes.
    Ethernet,
}

/// The wires under a group of ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    /// Inside a node (or a rack-wide domain).
    pub kind: WireKind,
    /// One direction of a GPU inside, bytes/s.
    pub bytes_per_s: f64,
    pub ranks: f64,
    /// Ranks of the group in one node or domain.
    pub ranks_inside: f64,
    /// The network, when the group leaves its domain.
    pub network: Option<Network>,
}

/// The network under a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    pub kind: WireKind,
    /// One direction of all cards of a node that the group can use, bytes/s.
    pub bytes_per_s: f64,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    SendReceive,
}

/// Whose kernel does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// The engine's own, inside a CUDA graph.
    Engine,
    /// The engine's own, launched one by one.
    EngineEager,
    /// NCCL or RCCL.
    Library,
}

/// How much goes over a rank's wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    OneShot,
    TwoShot,
    InSwitch,
    Gather,
    Send,
}

/// One algorithm on one kind of wire, fitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Algorithm {
    pub wire: WireKind,
    pub operation: Operation,
    pub kernel: Kernel,
    pub traffic: Traffic,
    /// Fixed time, us.
    pub fixed_us: f64,
    /// Time for each doubling of the ranks, us.
    pub hop_us: f64,
    /// Share of one direction of the link that two ranks reach.
    pub share: f64,
    /// Exponent by which more ranks reach less: `share * (2/n)^loss`.
    pub loss: f64,
}

impl Algorithm {
    /// Seconds for `bytes` of one rank over `ranks` ranks on a link of `bytes_per_s`.
    #[must_use]
    pub fn seconds(&self, bytes: f64, ranks: f64, bytes_per_s: f64) -> f64 {
        let traffic = match self.traffic {
            Traffic::OneShot => (ranks - 1.0) * bytes,
            Traffic::TwoShot => 2.0 * (ranks - 1.0) / ranks * bytes,
            Traffic::InSwitch => (ranks + 1.0) / ranks * bytes,
            Traffic::Gather => (ranks - 1.0) / ranks * bytes,
            Traffic::Send => bytes,
        };
        let wire = (self.share * (2.0 / ranks).powf(self.loss) * bytes_per_s).max(1.0);
        (self.fixed_us + self.hop_us * ranks.max(1.0).log2()) * 1e-6 + traffic / wire
    }
}

/// All fitted algorithms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Algorithms(pub Vec<Algorithm>);

/// What stands in where nothing was fitted: NCCL's ring on PCIe, the slowest of the measured kinds.
const UNFITTED: Algorithm = Algorithm {
    wire: WireKind::Pcie4,
    operation: Operation::AllReduce,
    kernel: Kernel::Library,
    traffic: Traffic::TwoShot,
    fixed_us: 10.0,
    hop_us: 8.0,
    share: 0.5,
    loss: 0.0,
};

impl Algorithms {
    /// The fastest algorithm of `operation` on one kind of wire; `engine`: the engine's own kernels may run.
    #[must_use]
    pub fn best(
        &self,
        operation: Operation,
        kind: WireKind,
        engine: Option<Kernel>,
        bytes: f64,
        ranks: f64,
        bytes_per_s: f64,
    ) -> f64 {
        let allowed = |a: &&Algorithm| {
            a.operation == operation
                && a.wire == kind
                && (a.kernel == Kernel::Library || Some(a.kernel) == engine)
        };
        let best = self
            .0
            .iter()
            .filter(allowed)
            .map(|a| a.seconds(bytes, ranks, bytes_per_s))
            .fold(f64::INFINITY, f64::min);
        if best.is_finite() { best } else { UNFITTED.seconds(bytes, ranks, bytes_per_s) }
    }

    /// An all-reduce of `bytes` over a group, hierarchical where it leaves its domain.
    #[must_use]
    pub fn all_reduce(&self, wire: &Wire, engine: Option<Kernel>, bytes: f64) -> f64 {
        self.over(Operation::AllReduce, wire, engine, bytes, 2.0)
    }

    /// Tokens to the experts' ranks and back: two all-to-alls of `bytes` of one rank.
    #[must_use]
    pub fn exchange(&self, wire: &Wire, bytes: f64) -> f64 {
        2.0 * self.over(Operation::AllToAll, wire, None, bytes, 1.0)
    }

    /// Activations to the next stage.
    #[must_use]
    pub fn send(&self, wire: &Wire, bytes: f64) -> f64 {
        match wire.network {
            Some(network) => self.best(
                Operation::SendReceive,
                network.kind,
                None,
                bytes,
                2.0,
                network.bytes_per_s / wire.ranks_inside.max(1.0),
            ),
            None => self.best(Operation::SendReceive, wire.kind, None, bytes, 2.0, wire.bytes_per_s),
        }
    }

    /// `passes`: how often the data crosses the network, 2 for an all-reduce.
    fn over(
        &self,
        operation: Operation,
        wire: &Wire,
        engine: Option<Kernel>,
        bytes: f64,
        passes: f64,
    ) -> f64 {
        if wire.ranks <= 1.0 {
            return 0.0;
        }
        let Some(network) = wire.network else {
            return self.best(operation, wire.kind, engine, bytes, wire.ranks, wire.bytes_per_s);
        };
        let inside = wire.ranks_inside.clamp(1.0, wire.ranks);
        let nodes = (wire.ranks / inside).max(1.0);
        let within = if inside > 1.0 {
            self.best(operation, wire.kind, engine, bytes, inside, wire.bytes_per_s)
        } else {
            0.0
        };
        // all ranks of a node share its cards: one node's data goes out once for each pass
        let across =
            self.best(operation, network.kind, None, bytes, nodes, network.bytes_per_s * passes / 2.0);
        let across = if operation == Operation::AllToAll {
            across.max(inside * bytes * (nodes - 1.0) / nodes / network.bytes_per_s.max(1.0))
        } else {
            across
        };
        within + across
    }
}

impl Wire {
    /// No group at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { kind: WireKind::Nvlink4, bytes_per_s: 1.0, ranks: 1.0, ranks_inside: 1.0, network: None }
    }

    /// The wires under a placed group; `inside` is the link within its node or domain.
    #[must_use]
    pub fn of(group: &GroupLinks, inside: &crate::planner::hardware::Link, given: Option<f64>) -> Self {
        let ranks = group.ranks.max(1) as f64;
        if group.is_over_fabric() {
            let members = group.ranks_per_node.max(group.ranks_per_island).max(1) as f64;
            let cards = group.nics_per_node.map_or(members, |n| n.max(1) as f64);
            let port = given.map_or(group.link.per_direction_bytes_per_s, |both| both / 2.0);
            return Self {
                kind: WireKind::of(inside),
                bytes_per_s: inside.per_direction_bytes_per_s,
                ranks,
                ranks_inside: members.min(ranks),
                network: Some(Network { kind: WireKind::of(&group.link), bytes_per_s: port * cards }),
            };
        }
        let rate = given.map_or(group.link.per_direction_bytes_per_s, |both| both / 2.0);
        Self { kind: WireKind::of(&group.link), bytes_per_s: rate, ranks, ranks_inside: ranks, network: None }
    }
}

impl WireKind {
    /// By catalogue key and reach.
    #[must_use]
    pub fn of(link: &crate::planner::hardware::Link) -> Self {
        let key = link.key.as_str();
        if link.scope == LinkScope::Pair || key.contains("bridge") {
            return Self::Bridge;
        }
        if key.contains("infinity") || key.contains("xgmi") {
            return Self::Xgmi;
        }
        if key.contains("nvlink") || key.contains("nvl72") {
            return match key.chars().find(char::is_ascii_digit) {
                Some('5' | '6') => Self::Nvlink5,
                Some('4') => Self::Nvlink4,
                _ => Self::Nvlink3,
            };
        }
        if link.scope == LinkScope::Fabric {
            let rdma = ["infiniband", "ib", "roce", "rdma", "efa"];
            return if rdma.iter().any(|name| key.contains(name)) {
                Self::Infiniband
            } else {
                Self::Ethernet
            };
        }
        if key.contains('5') || key.contains('6') { Self::Pcie5 } else { Self::Pcie4 }
    }

    /// True when the engine's own all-reduce kernels run on it.
    #[must_use]
    pub const fn has_engine_kernels(self) -> bool {
        matches!(self, Self::Nvlink3 | Self::Nvlink4 | Self::Nvlink5 | Self::Bridge | Self::Xgmi)
    }
}
