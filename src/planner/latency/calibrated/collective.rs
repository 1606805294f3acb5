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
use smallvec::SmallVec;

use crate::planner::hardware::{Link, LinkScope};
use crate::planner::layout::place::GroupLinks;

/// Kinds of wires whose constants differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireKind {
    /// NVLink through a switch, third generation and before.
    Nvlink3,
    Nvlink4,
    Nvlink5,
    /// Bridge pairs, NVLink of the third generation and before.
    Bridge3,
    /// Bridge pairs, NVLink of the fourth generation and after. Files before the split say `bridge`.
    #[serde(alias = "bridge")]
    Bridge4,
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

/// An algorithm over a group of ranks: all of its time that does not depend on the data.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timed {
    fixed_s: f64,
    /// Bytes on a rank's wire for each byte of one rank.
    traffic: f64,
    bytes_per_s: f64,
}

impl Timed {
    /// Seconds for `bytes` of one rank.
    fn seconds(self, bytes: f64) -> f64 {
        self.fixed_s + self.traffic * bytes / self.bytes_per_s
    }
}

impl Algorithm {
    /// Over `ranks` ranks on a link of `bytes_per_s`.
    fn over(&self, ranks: f64, bytes_per_s: f64) -> Timed {
        Timed {
            fixed_s: (self.fixed_us + self.hop_us * ranks.max(1.0).log2()) * 1e-6,
            traffic: match self.traffic {
                Traffic::OneShot => ranks - 1.0,
                Traffic::TwoShot => 2.0 * (ranks - 1.0) / ranks,
                Traffic::InSwitch => (ranks + 1.0) / ranks,
                Traffic::Gather => (ranks - 1.0) / ranks,
                Traffic::Send => 1.0,
            },
            bytes_per_s: (self.share * (2.0 / ranks).powf(self.loss) * bytes_per_s).max(1.0),
        }
    }

    /// Seconds for `bytes` of one rank over `ranks` ranks on a link of `bytes_per_s`.
    #[must_use]
    pub fn seconds(&self, bytes: f64, ranks: f64, bytes_per_s: f64) -> f64 {
        self.over(ranks, bytes_per_s).seconds(bytes)
    }
}

/// The algorithms that may do an operation over a group, ready for any size of data.
#[derive(Debug, Clone, PartialEq)]
pub struct Line(SmallVec<[Timed; 4]>);

impl Line {
    /// The fastest of them for `bytes` of one rank, seconds.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.0.iter().map(|timed| timed.seconds(bytes)).fold(f64::INFINITY, f64::min)
    }
}

/// A collective over a group, hierarchical where the group leaves its domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    pub ranks: f64,
    within: Option<Line>,
    across: Option<Across>,
}

/// The part of it that crosses the network.
#[derive(Debug, Clone, PartialEq)]
struct Across {
    line: Line,
    /// For an all-to-all: ranks of a node, nodes, and the rate of a node's cards, through which all of a node's data go.
    cards: Option<(f64, f64, f64)>,
}

impl Collective {
    /// Seconds for `bytes` of one rank: within a node or domain, and over the network.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> (f64, f64) {
        let within = self.within.as_ref().map_or(0.0, |line| line.seconds(bytes));
        let Some(across) = &self.across else { return (within, 0.0) };
        let over_network = across.line.seconds(bytes);
        let over_network = match across.cards {
            Some((inside, nodes, bytes_per_s)) => {
                over_network.max(inside * bytes * (nodes - 1.0) / nodes / bytes_per_s.max(1.0))
            }
            None => over_network,
        };
        (within, over_network)
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
    /// What may do `operation` over `ranks` ranks on one kind of wire; `engine`: the engine's own kernels may run.
    fn line(
        &self,
        operation: Operation,
        kind: WireKind,
        engine: Option<Kernel>,
        ranks: f64,
        bytes_per_s: f64,
    ) -> Line {
        let allowed = |a: &&Algorithm| {
            a.operation == operation
                && a.wire == kind
                && (a.kernel == Kernel::Library || Some(a.kernel) == engine)
        };
        let mut line: SmallVec<[Timed; 4]> =
            self.0.iter().filter(allowed).map(|a| a.over(ranks, bytes_per_s)).collect();
        if line.is_empty() {
            line.push(UNFITTED.over(ranks, bytes_per_s));
        }
        Line(line)
    }

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
        self.line(operation, kind, engine, ranks, bytes_per_s).seconds(bytes)
    }

    /// An all-reduce over a group.
    #[must_use]
    pub fn all_reduce(&self, wire: &Wire, engine: Option<Kernel>) -> Collective {
        self.over(Operation::AllReduce, wire, engine, 2.0)
    }

    /// Tokens to the experts' ranks, or back: an all-to-all.
    #[must_use]
    pub fn exchange(&self, wire: &Wire) -> Collective {
        self.over(Operation::AllToAll, wire, None, 1.0)
    }

    /// Activations to the next stage.
    #[must_use]
    pub fn send(&self, wire: &Wire) -> Line {
        let (kind, bytes_per_s) = match wire.network {
            Some(network) => (network.kind, network.bytes_per_s / wire.ranks_inside.max(1.0)),
            None => (wire.kind, wire.bytes_per_s),
        };
        self.line(Operation::SendReceive, kind, None, 2.0, bytes_per_s)
    }

    /// `passes`: how often the data crosses the network, 2 for an all-reduce.
    fn over(&self, operation: Operation, wire: &Wire, engine: Option<Kernel>, passes: f64) -> Collective {
        let ranks = wire.ranks;
        if ranks <= 1.0 {
            return Collective { ranks, within: None, across: None };
        }
        let Some(network) = wire.network else {
            let within = self.line(operation, wire.kind, engine, ranks, wire.bytes_per_s);
            return Collective { ranks, within: Some(within), across: None };
        };
        let inside = wire.ranks_inside.clamp(1.0, ranks);
        let nodes = (ranks / inside).max(1.0);
        // all ranks of a node share its cards: one node's data goes out once for each pass
        let line = self.line(operation, network.kind, None, nodes, network.bytes_per_s * passes / 2.0);
        Collective {
            ranks,
            within: (inside > 1.0).then(|| self.line(operation, wire.kind, engine, inside, wire.bytes_per_s)),
            across: Some(Across {
                line,
                cards: (operation == Operation::AllToAll).then_some((inside, nodes, network.bytes_per_s)),
            }),
        }
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
    pub fn of(group: &GroupLinks, inside: &Link, given: Option<f64>) -> Self {
        Self::of_kinds(group, inside, given, WireKind::of)
    }

    /// The same for a caller who knows the kinds of its links.
    pub(super) fn of_kinds(
        group: &GroupLinks,
        inside: &Link,
        given: Option<f64>,
        kind_of: impl Fn(&Link) -> WireKind,
    ) -> Self {
        let ranks = group.ranks.max(1) as f64;
        if group.is_over_fabric() {
            let members = group.ranks_per_node.max(group.ranks_per_island).max(1) as f64;
            let cards = group.nics_per_node.map_or(members, |n| n.max(1) as f64);
            let port = given.map_or(group.link.per_direction_bytes_per_s, |both| both / 2.0);
            return Self {
                kind: kind_of(inside),
                bytes_per_s: inside.per_direction_bytes_per_s,
                ranks,
                ranks_inside: members.min(ranks),
                network: Some(Network { kind: kind_of(&group.link), bytes_per_s: port * cards }),
            };
        }
        let rate = given.map_or(group.link.per_direction_bytes_per_s, |both| both / 2.0);
        Self { kind: kind_of(&group.link), bytes_per_s: rate, ranks, ranks_inside: ranks, network: None }
    }
}

impl WireKind {
    /// By catalogue key and reach.
    #[must_use]
    pub fn of(link: &Link) -> Self {
        let key = link.key.as_str();
        if link.scope == LinkScope::Pair || key.contains("bridge") {
            return match key.chars().find(char::is_ascii_digit) {
                Some('4'..='9') => Self::Bridge4,
                _ => Self::Bridge3,
            };
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
        matches!(
            self,
            Self::Nvlink3 | Self::Nvlink4 | Self::Nvlink5 | Self::Bridge3 | Self::Bridge4 | Self::Xgmi
        )
    }
}
