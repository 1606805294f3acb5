//! What a cluster is: GPUs, the links between them, nodes, and pools of equal nodes.
//!
//! Figures come from the hardware catalogue (`data/hardware`), each with its source;
//! this module holds only their shape.

mod text;

use crate::planner::units::Bytes;

/// A GPU product. Rates are dense (no sparsity) and per GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Catalogue key, e.g. `h100-sxm5-80gb`.
    pub key: String,
    /// Name for people, e.g. "NVIDIA H100 SXM5 80GB".
    pub name: String,
    /// Shortest name people use, e.g. "H100": for sentences.
    pub short_name: String,
    /// `nvidia`, `amd`, …
    pub vendor: String,
    /// `Hopper`, `Blackwell`, …
    pub architecture: String,
    /// CUDA compute capability; `None` where the vendor has none.
    pub compute_capability: Option<(u8, u8)>,
    /// Memory that a process may use, as the driver reports it (not the marketing size).
    pub memory_bytes: Bytes,
    /// What `nvidia-smi` prints as the total beyond `memory_bytes`: kept by the driver. 0 where it is not known.
    pub driver_reserved_bytes: Bytes,
    /// True when `memory_bytes` is derived from the marketing size because no driver figure is known.
    pub memory_assumed: bool,
    /// Peak memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    /// Peak dense tensor rates.
    pub peak_flops: PeakFlops,
    /// Where the figures come from, and what is inferred.
    pub sources: Vec<String>,
    /// `ok`, `partial`, `secondary`, `conflict`, `name_only`.
    pub data_quality: String,
    /// For a MIG slice: the key of the GPU that it is cut from. Slices have no links to each other.
    pub slice_of: Option<String>,
}

/// Dense tensor peak rates in FLOP/s (OP/s for int8); `None` where the GPU lacks the format or the figure is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PeakFlops {
    pub fp16: Option<f64>,
    pub bf16: Option<f64>,
    pub fp8: Option<f64>,
    pub fp4: Option<f64>,
    pub int8: Option<f64>,
}

/// Where a link reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkScope {
    /// Between two bridged cards only.
    Pair,
    /// Between the GPUs of a node.
    Node,
    /// Between the GPUs of a rack-wide domain (NVL72).
    Rack,
    /// Between nodes.
    Fabric,
}

/// A kind of link. Rates are per GPU (per NIC for fabrics, see [`NodePool::inter_links_per_node`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Catalogue key, e.g. `nvlink4`, `infiniband-ndr`.
    pub key: String,
    pub name: String,
    pub scope: LinkScope,
    /// One direction, bytes/s.
    pub per_direction_bytes_per_s: f64,
    /// Both directions together, bytes/s: the figure vendors quote, and what the roofline model counts with.
    pub bidirectional_bytes_per_s: f64,
    /// For direct meshes without a switch: one direction to each single peer, bytes/s. A group of `n` ranks
    /// then has `n - 1` times this, and only the whole node has `per_direction_bytes_per_s`.
    pub per_peer_bytes_per_s: Option<f64>,
    pub sources: Vec<String>,
}

impl Link {
    /// The link as a group of `ranks` GPUs sees it: on a direct mesh, only the wires between
    /// members carry its traffic; behind a switch every group has the full rate.
    #[must_use]
    pub fn for_group(&self, ranks: u64) -> Self {
        let Some(per_peer) = self.per_peer_bytes_per_s else { return self.clone() };
        #[expect(clippy::cast_precision_loss, reason = "a handful of ranks")]
        let wires = ranks.saturating_sub(1).max(1) as f64;
        let rate = (per_peer * wires).min(self.per_direction_bytes_per_s);
        Self { per_direction_bytes_per_s: rate, bidirectional_bytes_per_s: 2.0 * rate, ..self.clone() }
    }
}

/// Equal nodes, equally linked.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePool {
    pub nodes: u64,
    pub gpus_per_node: u64,
    pub gpu: Gpu,
    /// The best link inside a node (or bridge pair, or rack domain).
    pub intra_link: Link,
    /// GPUs that `intra_link` joins at full rate: the node, or 2 for bridge pairs, or 72 for NVL72.
    pub island_gpus: u64,
    /// What joins GPUs of one node outside an island (PCIe, SYS); `None` when an island covers the node.
    pub host_link: Option<Link>,
    /// What joins nodes.
    pub inter_link: Link,
    /// Network ports of a node on `inter_link`; `None` when unknown (then one per GPU is assumed).
    pub inter_links_per_node: Option<u64>,
    /// Host memory of a node.
    pub host_memory_bytes: Option<Bytes>,
    /// Price, with its date and kind in `price_source`.
    pub usd_per_gpu_hour: Option<f64>,
    pub price_source: Option<String>,
    /// Free memory of each GPU of a node, in device order, where the caller measured it;
    /// `None` = all of `gpu.memory_bytes` is free.
    pub free_memory_bytes: Option<Vec<Bytes>>,
}

impl NodePool {
    /// All GPUs of the pool (saturating).
    #[must_use]
    pub const fn gpus(&self) -> u64 {
        self.nodes.saturating_mul(self.gpus_per_node)
    }
}

/// What the caller has.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub pools: Vec<NodePool>,
    /// What was assumed to read it, e.g. "2 nodes x 8: 8 GPUs a node is usual for H100 SXM".
    pub assumed: Vec<ClusterAssumption>,
    /// Things worth knowing about it, e.g. "one GPU is cut off from NVLink".
    pub warnings: Vec<ClusterWarning>,
}

/// A default taken while reading a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAssumption {
    /// Stable name, e.g. `gpus_per_node`, `inter_link`, `form_factor`, `gpu_memory`.
    pub name: String,
    pub value: String,
    pub source: String,
}

/// A warning with a stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterWarning {
    pub code: String,
    pub message: String,
}

impl Cluster {
    /// All GPUs (saturating).
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.pools.iter().fold(0, |sum, p| sum.saturating_add(p.gpus()))
    }
}
