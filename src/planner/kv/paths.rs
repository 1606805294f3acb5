//! Ways by which cache travels, with what they sustain. Each figure says where it comes from; all are low confidence
//! beside a measurement of the caller's own, and every one can be given in the request.

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::hardware::{LinkScope, NodePool};
use crate::planner::layout::Shape;

/// Share of the sum of network ports that a hand-over sustains.
/// Source: a line through three public rows of a prefill/decode run on 8 × 400 Gb/s (142 of 200 GB/s measured).
pub const NIC_SHARE: f64 = 0.70;
/// Fixed cost of a transfer between nodes, s; same rows (0.7 ms by the fit, rounded up).
pub const FIXED_S: f64 = 1e-3;

/// A kind of path between where cache lies and the GPUs that want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    /// The memory of another GPU over NVLink (or what joins the GPUs of a node), as copies between peers sustain it.
    NvlinkP2p,
    /// Host memory over a coherent chip-to-chip link (Grace).
    NvlinkC2c,
    /// Host memory over PCIe.
    PcieHost,
    /// Disks of the node.
    Nvme,
    /// Memory of another node over the fabric.
    Fabric,
    /// A store reached over the network, without RDMA.
    ObjectStore,
    /// A path given by the caller.
    Given,
}

impl PathKind {
    /// The name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NvlinkP2p => "nvlink_p2p",
            Self::NvlinkC2c => "nvlink_c2c",
            Self::PcieHost => "pcie_host",
            Self::Nvme => "nvme",
            Self::Fabric => "fabric",
            Self::ObjectStore => "object_store",
            Self::Given => "given",
        }
    }
}

/// One path as a whole instance sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    pub kind: PathKind,
    pub name: String,
    /// What the whole instance pulls over it, bytes/s.
    pub bytes_per_s: f64,
    /// Cost of a transfer before the first byte, s.
    pub fixed_s: f64,
    /// Factors around the time that it takes.
    pub range: (f64, f64),
    pub source: String,
}

/// The paths that an instance of `shape` has on `pool`: each GPU has its own lane to peers and to the host,
/// the nodes' ports and disks are shared by the GPUs of the instance on them.
#[must_use]
pub fn of_pool(pool: &NodePool, shape: &Shape) -> Vec<Path> {
    let gpus = shape.gpus().max(1) as f64;
    let nodes = shape.gpus().div_ceil(pool.gpus_per_node.max(1)).max(1) as f64;
    let share_of_node = (shape.gpus() as f64 / pool.gpus_per_node.max(1) as f64).min(1.0);
    let path = |kind: PathKind, name: &str, bytes_per_s: f64, fixed_s: f64, source: String| Path {
        kind,
        name: name.to_owned(),
        bytes_per_s,
        fixed_s,
        range: (0.7, 1.6),
        source,
    };
    let mut list = Vec::new();
    if pool.intra_link.scope != LinkScope::Fabric {
        list.push(path(
            PathKind::NvlinkP2p,
            &pool.intra_link.key,
            0.82 * pool.intra_link.per_direction_bytes_per_s * gpus,
            2e-5,
            "0.82 of one direction of the link for each GPU (370 of 450 GB/s is usual between H100 peers)"
                .to_owned(),
        ));
    }
    let coherent =
        pool.gpu.key.contains("gh200") || pool.gpu.key.contains("gb200") || pool.gpu.key.contains("gb300");
    if coherent {
        list.push(path(
            PathKind::NvlinkC2c,
            "nvlink-c2c",
            450e9 * gpus,
            2e-5,
            "one direction of the 900 GB/s chip-to-chip link of each superchip (vendor's figure)".to_owned(),
        ));
    } else {
        let rate = if pool.gpu.architecture == "Hopper" || pool.gpu.architecture == "Blackwell" {
            55e9
        } else {
            25e9
        };
        list.push(path(
            PathKind::PcieHost,
            "pcie",
            rate * gpus,
            1e-4,
            "55 GB/s for each GPU on PCIe 5 x16, 25 on PCIe 4: copies from pinned host memory".to_owned(),
        ));
    }
    list.push(path(
        PathKind::Nvme,
        "nvme",
        7e9 * nodes * share_of_node,
        1e-3,
        "one PCIe 4 drive of 7 GB/s a node; name your own for an array (five drives: about 27 GB/s)"
            .to_owned(),
    ));
    let ports = pool.inter_links_per_node.unwrap_or(pool.gpus_per_node).max(1) as f64;
    list.push(path(
        PathKind::Fabric,
        &pool.inter_link.key,
        NIC_SHARE * pool.inter_link.per_direction_bytes_per_s * ports * nodes * share_of_node,
        FIXED_S,
        format!(
            "0.70 of the sum of the network ports ({ports:.0} a node), fixed cost 1 ms: one public data set"
        ),
    ));
    list.push(path(
        PathKind::ObjectStore,
        "object_store",
        2e9 * nodes * share_of_node,
        2e-2,
        "2 GB/s a node over TCP, 20 ms to the first byte: name what your own store sustains".to_owned(),
    ));
    list
}
