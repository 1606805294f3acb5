//! Clusters in machines' own words: the format is recognised, the nodes are counted, equal nodes are pooled.

mod instances;
mod kubernetes;
mod ray;
mod slurm;
mod slurm_topology;
mod smi_csv;
mod smi_xml;

use std::collections::BTreeMap;

use super::error::ClusterError;
use super::grammar::groups;
use super::meaning::NO_LINKS_BETWEEN_SLICES;
use super::product::{Traits, product, slice_of};
use super::request::{set_slices, usual_pool};
use super::text::{add_pool, checked, parse_text};
use super::topology::{looks_like_amd, looks_like_matrix, parse_amd, parse_topology};
use super::words::words;
use crate::catalogue::hardware::{GpuEntry, HardwareCatalogue, NodeType};
use crate::planner::hardware::{Cluster, ClusterAssumption, ClusterWarning, Gpu, NodePool};
use crate::planner::units::Bytes;

/// What a text was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    TopologyMatrix,
    AmdTopology,
    NvidiaSmiCsv,
    NvidiaSmiXml,
    KubernetesNodes,
    Slurm,
    RayResources,
    InstanceList,
}

impl Format {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::TopologyMatrix => "nvidia_smi_topology",
            Self::AmdTopology => "amd_smi_topology",
            Self::NvidiaSmiCsv => "nvidia_smi_csv",
            Self::NvidiaSmiXml => "nvidia_smi_xml",
            Self::KubernetesNodes => "kubernetes_nodes",
            Self::Slurm => "slurm",
            Self::RayResources => "ray_resources",
            Self::InstanceList => "instance_list",
        }
    }
}

/// A cluster and the format that it was read from. Assumptions and warnings stand in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedCluster {
    pub format: Format,
    pub cluster: Cluster,
}

/// Recognise the format of a text and read it. `gpu` names the product where the format does not
/// (topology matrices, untyped Slurm and Ray resources); `nodes` counts equal nodes where it shows one.
///
/// # Errors
/// As the format's reader; a damaged output names line and column.
pub fn recognise(
    text: &str,
    gpu: Option<&str>,
    nodes: Option<u64>,
    catalogue: &HardwareCatalogue,
) -> Result<ParsedCluster, ClusterError> {
    let nodes = nodes.unwrap_or(1);
    if nodes == 0 || nodes > super::MAX_GPUS {
        return Err(ClusterError::no_gpus(format!("{nodes} nodes: expected 1 to {}", super::MAX_GPUS)));
    }
    let format = format_of(text);
    let site = Site { gpu, nodes, catalogue };
    let cluster = match format {
        Format::TopologyMatrix => parse_topology(text, gpu, nodes, catalogue)?,
        Format::AmdTopology => parse_amd(text, gpu, nodes, catalogue)?,
        Format::NvidiaSmiCsv => smi_csv::read(text, &site)?,
        Format::NvidiaSmiXml => smi_xml::read(text, &site)?,
        Format::KubernetesNodes => kubernetes::read(text, &site)?,
        Format::Slurm => slurm::read(text, &site)?,
        Format::RayResources => ray::read(text, &site)?,
        Format::InstanceList => instances::read(text, &site)?,
        Format::Text => parse_text(text, catalogue)?,
    };
    Ok(ParsedCluster { format, cluster })
}

/// The format, by marks that the others do not have.
fn format_of(text: &str) -> Format {
    let start = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    if start.starts_with("<?xml")
        || start.starts_with("<nvidia_smi_log")
        || start.starts_with("<!DOCTYPE nvidia_smi_log")
    {
        return Format::NvidiaSmiXml;
    }
    if start.starts_with('{') || is_json_list(start) {
        return json_format(start);
    }
    if looks_like_amd(text) {
        Format::AmdTopology
    } else if looks_like_matrix(text) {
        Format::TopologyMatrix
    } else if ray::looks_like_status(text) {
        Format::RayResources
    } else if slurm::looks_like(text) {
        Format::Slurm
    } else if smi_csv::looks_like(text) {
        Format::NvidiaSmiCsv
    } else if instances::looks_like_csv(text) {
        Format::InstanceList
    } else {
        Format::Text
    }
}

/// "[{", "[\"p5.48xlarge\"", but not "[8xH100] * 2".
fn is_json_list(start: &str) -> bool {
    let inside = start.strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with(['{', '"', '\'', '[', ']']))
}

fn json_format(start: &str) -> Format {
    let has = |mark: &str| start.contains(mark);
    if has("\"items\"") || has("\"metadata\"") && has("\"status\"") {
        Format::KubernetesNodes
    } else if has("accelerator_type:") || has("\"GPU\"") || has("'GPU'") {
        Format::RayResources
    } else {
        Format::InstanceList
    }
}

/// Whether the name that stands beside a text is no product's.
pub(super) fn names_nothing(gpu: &str, catalogue: &HardwareCatalogue) -> bool {
    Site { gpu: None, nodes: 1, catalogue }.product(gpu, None).is_err()
}

/// What the caller says beside the text.
struct Site<'s> {
    gpu: Option<&'s str>,
    nodes: u64,
    catalogue: &'s HardwareCatalogue,
}

/// A product as a machine names it.
struct Labelled<'c> {
    entry: &'c GpuEntry,
    gpu: Gpu,
    assumed: Vec<ClusterAssumption>,
    warnings: Vec<ClusterWarning>,
    /// The label said that a GPU is shared by several containers.
    shared: bool,
}

impl<'s> Site<'s> {
    /// The product of a driver name, label or type string; `mib` is the memory beside it.
    fn product(&self, label: &str, mib: Option<f64>) -> Result<Labelled<'s>, ClusterError> {
        let (bare, shared) = match label.strip_suffix("-SHARED") {
            Some(bare) => (bare, true),
            None => (label, false),
        };
        let (bare, mig) = match bare.split_once("-MIG-") {
            Some((bare, profile)) => (bare, Some(mig_profile(profile).ok_or_else(|| self.unknown(label))?)),
            None => (bare, None),
        };
        let words = words(bare, self.catalogue);
        let said = groups(&words).into_iter().next().ok_or_else(|| self.unknown(label))?;
        let named = said.named.as_ref().ok_or_else(|| self.unknown(label))?;
        let memory_gb = mib.filter(|_| mig.is_none()).map(|m| (m / 1024.0, m / 1024.0)).or(said.memory_gb);
        let traits = Traits { memory_gb, form: said.form, mig: None, nodes_stated: true };
        let mut warnings = Vec::new();
        let found = match product(named, traits, self.catalogue) {
            Err(e) if mib.is_some() => {
                let again = product(named, Traits { memory_gb: said.memory_gb, ..traits }, self.catalogue)
                    .map_err(|_| e)?;
                warnings.push(ClusterWarning {
                    code: "memory_mismatch".to_owned(),
                    message: format!(
                        "{label} is listed with {} MiB, which no known {} has",
                        mib.unwrap_or(0.0),
                        again.entry.gpu.short_name
                    ),
                });
                again
            }
            other => other?,
        };
        // a driver's own name says all; "a100", as people name a gres, does not
        let exact = self.catalogue.names().exact(bare).is_some()
            && !bare.replace('-', "").eq_ignore_ascii_case(&found.entry.family.replace('-', ""));
        let gpu = match mig {
            Some((slices, gb)) => slice_of(found.entry, slices, gb)?,
            None => found.gpu,
        };
        warnings.extend(found.warnings.into_iter().filter(|_| !exact && mib.is_none()));
        let assumed = if exact || mib.is_some() { Vec::new() } else { found.assumed };
        Ok(Labelled { entry: found.entry, gpu, assumed, warnings, shared })
    }

    /// The product that the caller named, for formats that do not.
    fn product_of_caller(&self, what: &str) -> Result<Labelled<'s>, ClusterError> {
        match self.gpu {
            Some(name) => self.product(name, None),
            None => Err(ClusterError::ambiguous(
                format!("{what} does not name the GPU: which one is it?"),
                ["h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm-141gb", "l40s"],
            )),
        }
    }

    fn unknown(&self, label: &str) -> ClusterError {
        ClusterError::unknown_gpu(label, self.catalogue.gpu_suggestions(label))
    }
}

/// Nodes of a listed type of which this many GPUs can be had: links and ports are the whole node's.
fn part_of_node(pool: NodePool, gpus: u64) -> NodePool {
    let whole = pool.island_gpus == pool.gpus_per_node;
    let island_gpus = if whole { gpus } else { pool.island_gpus };
    let host_link = pool.host_link.filter(|_| island_gpus < gpus);
    NodePool { gpus_per_node: gpus, island_gpus, host_link, ..pool }
}

/// "1g.10gb", "3g.20gb.me"
fn mig_profile(text: &str) -> Option<(u64, u64)> {
    let (slices, rest) = text.split_once("g.")?;
    let gb = rest.split_once("gb")?.0;
    Some((slices.parse().ok()?, gb.parse().ok()?))
}

/// One node as an inventory shows it.
struct NodeFacts<'c> {
    entry: &'c GpuEntry,
    gpu: Gpu,
    gpus: u64,
    node_type: Option<&'c NodeType>,
    /// The NVLink partition that the node is in.
    clique: Option<String>,
    ports: Option<u64>,
    host_memory: Option<Bytes>,
    free_memory: Option<Vec<Bytes>>,
}

/// Equal nodes as pools; partitions of the same size are equal.
struct Inventory<'c> {
    nodes: Vec<(NodeFacts<'c>, u64)>,
    assumed: Vec<ClusterAssumption>,
    warnings: Vec<ClusterWarning>,
}

impl<'c> Inventory<'c> {
    const fn new() -> Self {
        Self { nodes: Vec::new(), assumed: Vec::new(), warnings: Vec::new() }
    }

    /// Add `count` such nodes.
    fn add(&mut self, facts: NodeFacts<'c>, count: u64) {
        let same = self.nodes.iter_mut().find(|(f, _)| {
            f.gpu.key == facts.gpu.key
                && f.gpu.memory_bytes == facts.gpu.memory_bytes
                && f.gpus == facts.gpus
                && f.clique == facts.clique
                && f.node_type.map(|n| &n.key) == facts.node_type.map(|n| &n.key)
                && f.ports == facts.ports
                && f.host_memory == facts.host_memory
                && f.free_memory == facts.free_memory
        });
        match same {
            Some((_, n)) => *n = n.saturating_add(count),
            None => self.nodes.push((facts, count)),
        }
    }

    fn note(&mut self, labelled: &Labelled<'_>) {
        for a in &labelled.assumed {
            if !self.assumed.contains(a) {
                self.assumed.push(a.clone());
            }
        }
        for w in &labelled.warnings {
            self.warn(&w.code, w.message.clone());
        }
    }

    fn warn(&mut self, code: &str, message: String) {
        let warning = ClusterWarning { code: code.to_owned(), message };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn assume(&mut self, name: &str, value: &str, source: &str) {
        let assumption =
            ClusterAssumption { name: name.to_owned(), value: value.to_owned(), source: source.to_owned() };
        if !self.assumed.contains(&assumption) {
            self.assumed.push(assumption);
        }
    }

    /// The cluster; `nothing` says why there may be no GPU.
    fn cluster(mut self, catalogue: &HardwareCatalogue, nothing: &str) -> Result<Cluster, ClusterError> {
        let mut cliques: BTreeMap<String, u64> = BTreeMap::new();
        for (facts, count) in &self.nodes {
            if let Some(clique) = &facts.clique {
                let gpus = cliques.entry(clique.clone()).or_insert(0);
                *gpus = gpus.saturating_add(facts.gpus.saturating_mul(*count));
            }
        }
        let mut cluster = Cluster { pools: Vec::new(), assumed: Vec::new(), warnings: Vec::new() };
        let nodes = std::mem::take(&mut self.nodes);
        for (facts, count) in nodes {
            if facts.gpus == 0 || count == 0 {
                continue;
            }
            let listed =
                facts.node_type.filter(|n| facts.gpus <= n.gpus_per_node && n.gpu == facts.entry.gpu.key);
            let part = listed.and_then(|n| Some(part_of_node(catalogue.pool_of_node(n, count)?, facts.gpus)));
            let is_listed = part.is_some();
            let mut pool = part.unwrap_or_else(|| usual_pool(facts.entry, count, facts.gpus, catalogue));
            if !is_listed {
                if facts.gpus > 1 && facts.gpu.slice_of.is_none() {
                    self.assume(
                        "intra_link",
                        &pool.intra_link.key,
                        &format!("usual for {}", facts.entry.gpu.short_name),
                    );
                }
                if count > 1 {
                    self.assume(
                        "inter_link",
                        &pool.inter_link.key,
                        &format!("usual for {}", facts.entry.gpu.short_name),
                    );
                }
            }
            if let Some(gpus) = facts.clique.as_ref().and_then(|c| cliques.get(c)) {
                pool.island_gpus = *gpus;
            }
            if facts.gpu.slice_of.is_some() {
                self.warn("mig_slices", NO_LINKS_BETWEEN_SLICES.to_owned());
                set_slices(&mut pool, facts.gpu, facts.entry, catalogue);
            } else {
                pool.gpu = facts.gpu;
            }
            pool.inter_links_per_node = facts.ports.or(pool.inter_links_per_node);
            pool.host_memory_bytes = facts.host_memory;
            pool.free_memory_bytes = facts.free_memory;
            add_pool(&mut cluster, pool);
            if cluster.pools.len() > super::MAX_POOLS {
                return Err(ClusterError::unreadable(format!(
                    "more than {} different kinds of node",
                    super::MAX_POOLS
                )));
            }
        }
        if cluster.pools.is_empty() {
            return Err(ClusterError::no_gpus(nothing));
        }
        cluster.assumed = self.assumed;
        cluster.warnings = self.warnings;
        checked(cluster)
    }
}
