//! What is usual around a GPU when a text does not say: node size, links inside, fabric between.

use super::{Form, GpuEntry, HardwareCatalogue, NodeType};
use crate::planner::hardware::{Link, LinkScope, NodePool};

/// The links of a node as it is usually built around a GPU.
#[derive(Debug, Clone)]
pub struct UsualLinks {
    pub intra: Link,
    pub island_gpus: u64,
    pub host: Option<Link>,
    pub inter: Link,
    pub nics_per_node: Option<u64>,
    /// Why these.
    pub source: String,
}

impl HardwareCatalogue {
    /// GPUs of the node that this GPU usually comes in, and why.
    #[must_use]
    pub fn usual_node_size(&self, entry: &GpuEntry) -> (u64, String) {
        if let Some(platform) = self.usual_platform(entry) {
            let n = platform.gpus_per_node;
            return (n, format!("{n} a node is usual for {} ({})", entry.gpu.short_name, platform.key));
        }
        let (n, why) = match entry.form {
            Form::Superchip | Form::Soc => (1, "one a node is usual"),
            Form::Sxm | Form::Oam => (8, "8 a node is usual for modules of this form"),
            Form::Pod => (8, "8 chips a host is usual"),
            Form::Pcie | Form::Nvl => (8, "up to 8 cards on one host"),
        };
        (n, why.to_owned())
    }

    /// The links of a node of `gpus_per_node` of this GPU, as it is usually built.
    #[must_use]
    pub fn usual_links(&self, entry: &GpuEntry, gpus_per_node: u64) -> UsualLinks {
        let platform = self.usual_platform(entry);
        let (intra, island_gpus, host) = self.usual_inside(entry, gpus_per_node);
        let (inter, nics_per_node, source) = platform
            .and_then(|p| Some((p.inter_link.clone()?, scaled(p, gpus_per_node), format!("as {}", p.key))))
            .unwrap_or_else(|| self.usual_fabric(entry, gpus_per_node));
        UsualLinks { intra, island_gpus, host, inter, nics_per_node, source }
    }

    /// A pool of a listed node type.
    #[must_use]
    pub fn pool_of_node(&self, node: &NodeType, nodes: u64) -> Option<NodePool> {
        let entry = self.gpu_entry_by_key(&node.gpu)?;
        let usual = self.usual_links(entry, node.gpus_per_node);
        let listed = node.intra_link.as_deref().and_then(|key| self.link(key));
        let pcie = self.pcie_of(entry);
        let (intra, island, host) = match listed {
            Some(link) if node.island_gpus > 1 => {
                let pairs = link.scope == LinkScope::Pair;
                let island = if pairs { node.island_gpus.min(2) } else { node.island_gpus };
                let host = (island < node.gpus_per_node).then_some(pcie);
                (link, island, host)
            }
            Some(link) => (link, node.gpus_per_node, None),
            None => (usual.intra, usual.island_gpus, usual.host),
        };
        let (inter, nics) = match &node.inter_link {
            Some(link) => (link.clone(), node.nics_per_node),
            None => (usual.inter, usual.nics_per_node),
        };
        Some(NodePool {
            nodes,
            gpus_per_node: node.gpus_per_node,
            gpu: entry.gpu.clone(),
            intra_link: intra,
            island_gpus: island,
            host_link: host,
            inter_link: inter,
            inter_links_per_node: nics,
            host_memory_bytes: None,
            usd_per_gpu_hour: node.usd_per_gpu_hour,
            price_source: node.price_source.clone(),
            free_memory_bytes: None,
        })
    }

    /// The entry with exactly this key.
    #[must_use]
    pub fn gpu_entry_by_key(&self, key: &str) -> Option<&GpuEntry> {
        self.gpus.iter().find(|e| e.gpu.key == key)
    }

    /// The PCIe link of a GPU; gen 4 where its generation is not known.
    #[must_use]
    pub fn pcie_of(&self, entry: &GpuEntry) -> Link {
        self.link_or_nothing(&format!("pcie{}", entry.pcie_generation.unwrap_or(4)))
    }

    /// The platform sold with this GPU whose network is known: the first listed.
    fn usual_platform(&self, entry: &GpuEntry) -> Option<&NodeType> {
        let platforms = || self.nodes.iter().filter(|n| n.cloud.is_none() && n.gpu == entry.gpu.key);
        platforms().find(|n| n.inter_link.is_some()).or_else(|| platforms().next())
    }

    fn usual_inside(&self, entry: &GpuEntry, gpus_per_node: u64) -> (Link, u64, Option<Link>) {
        let pcie = self.pcie_of(entry);
        let family = entry.family.as_str();
        let module = |key: &str| (self.link_or_nothing(key), gpus_per_node, None);
        match (entry.gpu.vendor.as_str(), entry.form) {
            ("nvidia", Form::Superchip) if family.starts_with("gb") => {
                (self.link_or_nothing("nvlink5-nvl72"), 72, None)
            }
            ("nvidia", Form::Sxm | Form::Superchip) => {
                let key = match (entry.gpu.architecture.as_str(), family) {
                    (_, "a800") => "nvlink3-nv8",
                    (_, "h800") => "nvlink4-nv8",
                    // A V100 node of 8 has no switch; only the 16-GPU node has.
                    ("Volta", _) if gpus_per_node <= 8 => "nvlink2-mesh",
                    ("Volta", _) => "nvlink2",
                    ("Ampere", _) => "nvlink3",
                    ("Hopper", _) => "nvlink4",
                    _ => "nvlink5",
                };
                module(key)
            }
            // Sold as bridged pairs.
            ("nvidia", Form::Nvl) if family == "h100" && gpus_per_node > 1 => {
                let host = (gpus_per_node > 2).then_some(pcie);
                (self.link_or_nothing("nvlink4-bridge"), 2, host)
            }
            ("amd", Form::Oam) if family.starts_with("mi35") => module("xgmi4"),
            ("amd", Form::Oam) if family.starts_with("mi25") => module("xgmi-mi250x"),
            ("amd", Form::Oam) => module("xgmi3"),
            ("intel", _) => module(if family == "gaudi3" { "gaudi3-roce" } else { "gaudi2-roce" }),
            ("google", _) => module(&family.replacen("tpu-", "ici-", 1)),
            _ => (pcie, gpus_per_node, None),
        }
    }

    /// The bridge that joins pairs of this card, where one exists.
    #[must_use]
    pub fn bridge_of(&self, entry: &GpuEntry) -> Option<(Link, u64)> {
        let (key, island) = match entry.family.as_str() {
            "h200" => ("nvlink4-bridge-h200", 4),
            "h100" => ("nvlink4-bridge", 2),
            "a100" => ("nvlink3-bridge", 2),
            "a30" => ("nvlink3-bridge-a30", 2),
            "a40" | "rtx-a6000" | "rtx-3090" => ("nvlink3-bridge-nv4", 2),
            "mi210" => ("xgmi-bridge-mi210", 4),
            _ => return None,
        };
        Some((self.link(key)?, island))
    }

    fn usual_fabric(&self, entry: &GpuEntry, gpus_per_node: u64) -> (Link, Option<u64>, String) {
        let arch = entry.gpu.architecture.as_str();
        let module = matches!(entry.form, Form::Sxm | Form::Oam | Form::Superchip);
        let (key, nics) = match (arch, module) {
            ("Volta", true) => ("infiniband-edr", gpus_per_node.div_ceil(2)),
            ("Ampere", true) => ("infiniband-hdr", gpus_per_node),
            ("Hopper" | "Blackwell" | "Blackwell Ultra", true) => ("infiniband-ndr", gpus_per_node),
            (_, true) => ("roce-400", gpus_per_node),
            _ if entry.gpu.name.contains("GeForce") => ("ethernet-10", 1),
            _ => ("ethernet-100", 1),
        };
        let link = self.link(key).unwrap_or_else(|| self.link_or_nothing("ethernet-100"));
        (link, Some(nics.max(1)), "nothing was said; a cautious choice for this class".to_owned())
    }

    /// A listed link; only a catalogue without data lacks it, and then the link carries nothing.
    fn link_or_nothing(&self, key: &str) -> Link {
        self.link(key).unwrap_or_else(|| Link {
            key: key.to_owned(),
            name: key.to_owned(),
            scope: LinkScope::Node,
            per_direction_bytes_per_s: 0.0,
            bidirectional_bytes_per_s: 0.0,
            per_peer_bytes_per_s: None,
            sources: Vec::new(),
        })
    }
}

/// Ports of a node with `gpus_per_node` GPUs where the listed platform has one or more a GPU.
fn scaled(platform: &NodeType, gpus_per_node: u64) -> Option<u64> {
    let ports = platform.nics_per_node?;
    if ports % platform.gpus_per_node.max(1) == 0 {
        return Some((ports / platform.gpus_per_node.max(1)).saturating_mul(gpus_per_node).max(1));
    }
    Some(ports)
}
