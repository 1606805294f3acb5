//! A node as `nvidia-smi topo -m` shows it: islands of NVLink, the slower links between them,
//! and what is wrong with it.

mod amd;
mod matrix;

pub use amd::{looks_like_amd, parse_amd};
pub use matrix::{Code, Matrix, looks_like_matrix, read_matrix};

use super::error::ClusterError;
use super::request::usual_pool;
use super::text::{add_pool, checked};
use crate::catalogue::hardware::{Form, GpuEntry, HardwareCatalogue};
use crate::planner::hardware::{Cluster, ClusterAssumption, ClusterWarning, Link, LinkScope, NodePool};

/// GPUs joined by NVLink, or, without any, GPUs of one socket: each island in order, largest first.
#[must_use]
pub fn islands(matrix: &Matrix) -> Vec<Vec<usize>> {
    let nvlink = matrix.codes().any(|c| matches!(c, Code::NvLink(_)));
    let joined = |code: Option<Code>| match code {
        Some(Code::NvLink(_)) => true,
        Some(code) => !nvlink && code < Code::Sys,
        None => false,
    };
    let mut island_of: Vec<Option<usize>> = vec![None; matrix.gpus()];
    let mut islands: Vec<Vec<usize>> = Vec::new();
    for start in 0..matrix.gpus() {
        if island_of.get(start).copied().flatten().is_some() {
            continue;
        }
        let mut island = vec![start];
        let mut at = 0;
        if let Some(slot) = island_of.get_mut(start) {
            *slot = Some(islands.len());
        }
        while let Some(&gpu) = island.get(at) {
            for other in 0..matrix.gpus() {
                if let Some(slot) = island_of.get_mut(other)
                    && slot.is_none()
                    && joined(matrix.code(gpu, other))
                {
                    *slot = Some(islands.len());
                    island.push(other);
                }
            }
            at += 1;
        }
        island.sort_unstable();
        islands.push(island);
    }
    islands.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    islands
}

/// Nodes as the matrix shows one, of the GPU that the caller names.
///
/// # Errors
/// A damaged matrix with its place; a question when the GPU is not named or NVLink seems hidden.
pub fn parse_topology(
    text: &str,
    gpu: Option<&str>,
    nodes: u64,
    catalogue: &HardwareCatalogue,
) -> Result<Cluster, ClusterError> {
    let matrix = read_matrix(text)?;
    let Some(name) = gpu else {
        return Err(which_gpu(&matrix));
    };
    let entry = catalogue
        .gpu_entry(name)
        .ok_or_else(|| ClusterError::unknown_gpu(name, catalogue.gpu_suggestions(name)))?;
    let mut node = Node {
        matrix: &matrix,
        entry,
        catalogue,
        islands: islands(&matrix),
        assumed: Vec::new(),
        warnings: Vec::new(),
    };
    let pool = node.pool(nodes)?;
    let mut cluster = Cluster { pools: Vec::new(), assumed: node.assumed, warnings: node.warnings };
    add_pool(&mut cluster, pool);
    checked(cluster)
}

/// The matrix does not name the GPU; the number of links narrows it.
fn which_gpu(matrix: &Matrix) -> ClusterError {
    let most = matrix.codes().filter_map(|c| if let Code::NvLink(n) = c { Some(n) } else { None }).max();
    let candidates: &[&str] = match (most, matrix.gpu_numa.iter().any(Option::is_some)) {
        (Some(18), true) => &["gb200-186gb", "gb300-288gb"],
        (Some(18), false) => {
            &["h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm-288gb", "h20-96gb"]
        }
        (Some(12), _) => &["a100-sxm4-80gb", "a100-sxm4-40gb", "a100-pcie-80gb", "h100-nvl-94gb"],
        (Some(8), _) => &["a800-sxm4-80gb", "h800-sxm5-80gb"],
        (Some(6), _) if matrix.gpus() <= 4 => &["h100-sxm5-80gb"],
        (Some(6), _) => &["v100-sxm2-32gb"],
        (Some(4), _) => &["rtx-3090", "rtx-a6000", "a40", "a30", "a100-sxm4-80gb"],
        (Some(_), _) => &["v100-sxm2-32gb", "v100-sxm2-16gb", "rtx-a6000"],
        (None, _) => &[
            "l40s",
            "l4",
            "a10",
            "rtx-4090",
            "rtx-5090",
            "rtx-pro-6000-server",
            "a100-pcie-80gb",
            "h100-pcie-80gb",
        ],
    };
    let hidden = if most.is_none() && nic_of_its_own(matrix) {
        "; every GPU has a network port of its own, so this may be a module node whose NVLink `topo -mp` hides"
    } else {
        ""
    };
    let message = format!("a topology matrix does not name the GPU: which one is it{hidden}?");
    ClusterError::ambiguous(message, candidates.iter().copied())
}

/// True when each GPU has a port that no other GPU is as close to: how module nodes are built.
fn nic_of_its_own(matrix: &Matrix) -> bool {
    matrix.gpus() >= 4
        && !matrix.nic_codes.is_empty()
        && matrix.nic_codes.iter().all(|codes| codes.iter().any(|c| matches!(c, Code::Pix | Code::Pxb)))
}

struct Node<'n> {
    matrix: &'n Matrix,
    entry: &'n GpuEntry,
    catalogue: &'n HardwareCatalogue,
    islands: Vec<Vec<usize>>,
    assumed: Vec<ClusterAssumption>,
    warnings: Vec<ClusterWarning>,
}

impl Node<'_> {
    fn pool(&mut self, nodes: u64) -> Result<NodePool, ClusterError> {
        let gpus = self.matrix.gpus() as u64;
        let nvlinks = self.nvlinks();
        let mut pool = usual_pool(self.entry, nodes, gpus, self.catalogue);
        let has_nvlink =
            self.entry.fabric.is_some() && matches!(self.entry.form, Form::Sxm | Form::Superchip);
        if nvlinks.is_empty() && has_nvlink && gpus > 1 {
            if nic_of_its_own(self.matrix) {
                return Err(self.hidden_nvlink());
            }
            let message = format!(
                "no pair has NVLink, though {} is a module with NVLink: planned as printed. If it came from `topo -mp`, \
                 which hides NVLink, paste `nvidia-smi topo -m`",
                self.entry.gpu.short_name
            );
            self.warnings.push(ClusterWarning { code: "no_nvlink".to_owned(), message });
        }
        let largest = self.islands.first().map_or(1, Vec::len) as u64;
        pool.island_gpus = largest.max(1);
        let crosses_sys = self.matrix.codes().any(|c| c == Code::Sys);
        let pcie = self.catalogue.pcie_of(self.entry);
        let sys = self.catalogue.link("pcie-sys");
        if nvlinks.is_empty() {
            pool.intra_link = pcie;
            if largest == 1 && gpus > 1 {
                // Every pair crosses the sockets: the whole node is one slow island.
                pool.island_gpus = gpus;
                pool.intra_link = sys.unwrap_or(pool.intra_link);
                pool.host_link = None;
            } else {
                pool.host_link = (largest < gpus).then_some(sys).flatten();
            }
        } else {
            if let Some(link) = self.nvlink(&nvlinks, largest) {
                pool.intra_link = link;
            }
            let rack = self.entry.form == Form::Superchip && self.entry.family.starts_with("gb");
            if rack && largest == gpus {
                pool.island_gpus = 72;
                self.assumed.push(assumption(
                    "island_gpus",
                    "72",
                    "a tray shows only its own GPUs; an NVL72 rack is taken",
                ));
            }
            pool.host_link = (largest < gpus)
                .then(|| if crosses_sys { sys.unwrap_or(pcie.clone()) } else { pcie.clone() });
        }
        self.ports(&mut pool);
        self.warn(&nvlinks, crosses_sys);
        if nodes > 1 {
            let value = pool.inter_link.key.clone();
            self.assumed.push(assumption(
                "inter_link",
                &value,
                &format!("the matrix does not show it; usual for {}", self.entry.gpu.short_name),
            ));
        }
        Ok(pool)
    }

    /// NVLink counts of all pairs.
    fn nvlinks(&self) -> Vec<u8> {
        let mut counts: Vec<u8> = self
            .matrix
            .codes()
            .filter_map(|c| if let Code::NvLink(n) = c { Some(n) } else { None })
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The NVLink that joins an island, by the number of bonded links.
    fn nvlink(&mut self, counts: &[u8], island: u64) -> Option<Link> {
        let fabric = self.entry.fabric.as_ref();
        let Some((links, both)) = fabric.and_then(|f| Some((f.links?, f.bidirectional_gb_per_s?))) else {
            let message = format!(
                "the matrix shows NVLink, which {} does not have: is it another GPU?",
                self.entry.gpu.name
            );
            self.warnings.push(ClusterWarning { code: "gpu_mismatch".to_owned(), message });
            return None;
        };
        let most = u64::from(counts.iter().copied().max()?);
        if most > links {
            let message = format!(
                "the matrix shows NV{most}, {} has {links} NVLinks: is it another GPU?",
                self.entry.gpu.name
            );
            self.warnings.push(ClusterWarning { code: "gpu_mismatch".to_owned(), message });
        }
        let modules = matches!(self.entry.form, Form::Sxm | Form::Superchip);
        let usual = self
            .catalogue
            .usual_links(self.entry, if island > 8 { island } else { self.matrix.gpus() as u64 });
        if let (false, Some((bridge, _))) = (modules, self.catalogue.bridge_of(self.entry)) {
            return Some(bridge);
        }
        if modules && most >= links {
            // One GPU's every link, to every peer: a switch.
            let switched =
                if self.entry.gpu.architecture == "Volta" { self.catalogue.link("nvlink2") } else { None };
            return switched.or(Some(usual.intra));
        }
        let generation = usual.intra.key.chars().find(char::is_ascii_digit).unwrap_or('2');
        if counts.len() == 1 && most * (island.saturating_sub(1)) == links && island > 2 {
            return self.catalogue.link(&format!("nvlink{generation}-mesh")).or(Some(usual.intra));
        }
        if island > 2 && self.entry.gpu.architecture == "Volta" {
            return self.catalogue.link("nvlink2-mesh");
        }
        let key = format!("nvlink{generation}-nv{most}");
        if let Some(link) = self.catalogue.link(&key).filter(|_| island == 2) {
            return Some(link);
        }
        // Bonded links of one pair: their share of the GPU's rate.
        let rate = both / 2.0 * 1e9 * most as f64 / links as f64;
        Some(Link {
            key,
            name: format!("NVLink {generation}, {most} bonded links"),
            scope: if island == 2 { LinkScope::Pair } else { LinkScope::Node },
            per_direction_bytes_per_s: rate,
            bidirectional_bytes_per_s: 2.0 * rate,
            per_peer_bytes_per_s: None,
            sources: vec![format!("{most} of the {links} links of {}", self.entry.gpu.key)],
        })
    }

    /// Ports close to a GPU are the node's compute fabric.
    fn ports(&self, pool: &mut NodePool) {
        let columns = self.matrix.nic_codes.iter().map(Vec::len).max().unwrap_or(0);
        let close = (0..columns).filter(|nic| {
            self.matrix.nic_codes.iter().any(|row| matches!(row.get(*nic), Some(Code::Pix | Code::Pxb)))
        });
        let close = close.count() as u64;
        if close > 0 {
            pool.inter_links_per_node = Some(close);
        }
    }

    fn warn(&mut self, nvlinks: &[u8], crosses_sys: bool) {
        let mut warn = |code: &str, message: String| {
            self.warnings.push(ClusterWarning { code: code.to_owned(), message });
        };
        let gpus = self.matrix.gpus();
        let largest = self.islands.first().map_or(0, Vec::len);
        if !nvlinks.is_empty() && largest < gpus {
            let alone: Vec<String> =
                self.islands.iter().filter(|i| i.len() == 1).flatten().map(|g| format!("GPU{g}")).collect();
            if !alone.is_empty() && largest > 2 {
                warn(
                    "gpu_cut_off",
                    format!("{} cut off from NVLink: the node may be broken", alone.join(", ")),
                );
            }
            let sizes: Vec<String> = self.islands.iter().map(|i| i.len().to_string()).collect();
            warn(
                "island_smaller_than_node",
                format!("NVLink islands of {} GPUs in a node of {gpus}", sizes.join(" + ")),
            );
        }
        if crosses_sys {
            let pair = (0..gpus)
                .flat_map(|a| (0..a).map(move |b| (b, a)))
                .find(|(a, b)| self.matrix.code(*a, *b) == Some(Code::Sys));
            let (a, b) = pair.unwrap_or((0, 1));
            warn(
                "tp_crosses_sys",
                format!(
                    "a TP group with GPU{a} and GPU{b} crosses the sockets (SYS), the slowest link of the node"
                ),
            );
        }
        if nvlinks.len() > 1 {
            let counts: Vec<String> = nvlinks.iter().map(|n| format!("NV{n}")).collect();
            warn(
                "unequal_nvlink",
                format!("pairs differ in their links ({}): the slowest of a group counts", counts.join(", ")),
            );
        } else if let (Some(island), false) = (self.islands.first(), nvlinks.is_empty()) {
            let full = island.iter().all(|a| {
                island
                    .iter()
                    .all(|b| a == b || matches!(self.matrix.code(*a, *b), Some(Code::NvLink(_)) | None))
            });
            if !full {
                warn("unequal_nvlink", "not every pair of the island has an NVLink of its own".to_owned());
            }
        }
        if self.matrix.headerless || self.matrix.rows_present < gpus {
            warn(
                "matrix_truncated",
                format!(
                    "{} of {gpus} rows are there, or the header is missing; missing pairs follow from the rows that are",
                    self.matrix.rows_present
                ),
            );
        }
    }

    fn hidden_nvlink(&self) -> ClusterError {
        let message = format!(
            "no pair has NVLink, but {} is a module with NVLink: was it printed with `topo -mp`, which hides NVLink, or is the node broken? \
             Paste `nvidia-smi topo -m`, or describe the node in words",
            self.entry.gpu.short_name
        );
        let gpus = self.matrix.gpus();
        ClusterError::ambiguous(
            message,
            [
                format!("{gpus}x {}, NVLink inside", self.entry.gpu.short_name),
                format!("{gpus}x {}, no NVLink", self.entry.gpu.short_name),
            ],
        )
    }
}

fn assumption(name: &str, value: &str, source: &str) -> ClusterAssumption {
    ClusterAssumption { name: name.to_owned(), value: value.to_owned(), source: source.to_owned() }
}
