//! `kubectl get nodes -o json`: labels of GPU feature discovery, allocatable devices, cliques, MIG resources.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Inventory, Labelled, NodeFacts, Site, mig_profile};
use crate::ingest::cluster::error::ClusterError;
use crate::ingest::cluster::product::slice_of;
use crate::planner::hardware::Cluster;

const MAX_NODES: usize = 200_000;

#[derive(Deserialize)]
struct NodeList<'t> {
    #[serde(borrow, default)]
    items: Vec<Node<'t>>,
}

#[derive(Deserialize)]
struct Node<'t> {
    #[serde(borrow, default)]
    metadata: Metadata<'t>,
    #[serde(default)]
    spec: Spec,
    #[serde(borrow, default)]
    status: Status<'t>,
}

type Labels<'t> = BTreeMap<Cow<'t, str>, Cow<'t, str>>;

#[derive(Deserialize, Default)]
struct Metadata<'t> {
    #[serde(borrow, default)]
    labels: Option<Labels<'t>>,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Deserialize, Default)]
struct Status<'t> {
    #[serde(borrow, default)]
    allocatable: Option<BTreeMap<Cow<'t, str>, Quantity<'t>>>,
    #[serde(borrow, default)]
    capacity: Option<BTreeMap<Cow<'t, str>, Quantity<'t>>>,
    #[serde(borrow, default)]
    conditions: Vec<Condition<'t>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity<'t> {
    Number(u64),
    #[serde(borrow)]
    Text(Cow<'t, str>),
}

impl Quantity<'_> {
    /// A count, or bytes with a binary suffix.
    fn value(&self) -> Option<u64> {
        match self {
            Self::Number(n) => Some(*n),
            Self::Text(text) => {
                let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let n: u64 = digits.parse().ok()?;
                let scale = match text.get(digits.len()..)? {
                    "" => 1,
                    "Ki" => 1 << 10,
                    "Mi" => 1 << 20,
                    "Gi" => 1 << 30,
                    "Ti" => 1 << 40,
                    "k" => 1_000,
                    "M" => 1_000_000,
                    "G" => 1_000_000_000,
                    _ => return None,
                };
                n.checked_mul(scale)
            }
        }
    }
}

#[derive(Deserialize)]
struct Condition<'t> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'t, str>,
    #[serde(borrow)]
    status: Cow<'t, str>,
}

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    let damaged = |e: serde_json::Error| {
        ClusterError::unreadable(format!("this is no node list of Kubernetes: {e}")).at(e.line(), e.column())
    };
    let nodes = if text.contains("\"items\"") {
        serde_json::from_str::<NodeList<'_>>(text).map_err(damaged)?.items
    } else {
        vec![serde_json::from_str::<Node<'_>>(text).map_err(damaged)?]
    };
    if nodes.len() > MAX_NODES {
        return Err(ClusterError::too_many(&format!("{} nodes of", nodes.len())));
    }
    let mut reader = Reader {
        site,
        inventory: Inventory::new(),
        known: BTreeMap::new(),
        skipped: 0,
        without: 0,
        unhealthy: 0,
    };
    for node in &nodes {
        reader.take(node)?;
    }
    reader.finish()
}

struct Reader<'s, 'c> {
    site: &'s Site<'c>,
    inventory: Inventory<'c>,
    /// Products already resolved, by label and memory: a list repeats them a thousand times.
    known: BTreeMap<(String, String), Labelled<'c>>,
    skipped: u64,
    without: u64,
    unhealthy: u64,
}

impl Reader<'_, '_> {
    fn take(&mut self, node: &Node<'_>) -> Result<(), ClusterError> {
        let ready = node.status.conditions.iter().all(|c| c.kind != "Ready" || c.status == "True");
        if !ready || node.spec.unschedulable {
            self.skipped += 1;
            return Ok(());
        }
        let empty = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
        let slices = slices_of(node);
        let Some(devices) = device_count(node) else {
            if slices.is_empty() {
                self.without += 1;
            }
            return self.take_slices(labels, &slices);
        };
        self.take_slices(labels, &slices)?;
        if devices.allocatable == 0 {
            return Ok(());
        }
        if devices.allocatable < devices.capacity {
            self.unhealthy += devices.capacity - devices.allocatable;
        }
        let (label, memory) = product_label(labels);
        let node_type = instance_type(labels).and_then(|name| self.site.catalogue.node(name));
        let key = (label.clone().unwrap_or_default(), memory.clone().unwrap_or_default());
        if !self.known.contains_key(&key) {
            let labelled = match (&label, node_type) {
                (Some(label), _) => {
                    self.site.product(label, memory.as_deref().and_then(|m| m.parse().ok()))?
                }
                (None, Some(node)) => self.site.product(&node.gpu, None)?,
                (None, None) => self.site.product_of_caller(
                    "the list has devices but no product label (GPU feature discovery), so it",
                )?,
            };
            self.inventory.note(&labelled);
            self.known.insert(key.clone(), labelled);
        }
        let Some(labelled) = self.known.get(&key) else { return Ok(()) };
        let replicas =
            labels.get("nvidia.com/gpu.replicas").and_then(|r| r.parse::<u64>().ok()).unwrap_or(1).max(1);
        let sharing = labelled.shared || replicas > 1;
        let gpus = if sharing { devices.allocatable / replicas } else { devices.allocatable };
        let facts = NodeFacts {
            entry: labelled.entry,
            gpu: labelled.gpu.clone(),
            gpus,
            node_type,
            clique: labels.get("nvidia.com/gpu.clique").filter(|c| !c.is_empty()).map(ToString::to_string),
            ports: None,
            host_memory: None,
            free_memory: None,
        };
        if sharing {
            self.inventory.warn("gpu_shared", format!("GPUs are time-sliced: {replicas} shares are one GPU"));
        }
        self.inventory.add(facts, 1);
        Ok(())
    }

    fn take_slices(&mut self, labels: &Labels<'_>, slices: &[((u64, u64), u64)]) -> Result<(), ClusterError> {
        if slices.is_empty() {
            return Ok(());
        }
        let (label, memory) = product_label(labels);
        let label = label.ok_or_else(|| {
            ClusterError::ambiguous(
                "MIG slices without a product label: of which GPU are they?",
                ["h100", "a100-80gb"],
            )
        })?;
        let whole = label.split_once("-MIG-").map_or(label.as_str(), |(bare, _)| bare).to_owned();
        let labelled = self.site.product(&whole, memory.as_deref().and_then(|m| m.parse().ok()))?;
        for ((compute, gb), count) in slices {
            let gpu = slice_of(labelled.entry, *compute, *gb)?;
            let facts = NodeFacts {
                entry: labelled.entry,
                gpu,
                gpus: *count,
                node_type: None,
                clique: None,
                ports: None,
                host_memory: None,
                free_memory: None,
            };
            self.inventory.add(facts, 1);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Cluster, ClusterError> {
        if self.skipped > 0 {
            self.inventory.warn(
                "nodes_skipped",
                format!("{} nodes are not ready or not schedulable and are left out", self.skipped),
            );
        }
        if self.unhealthy > 0 {
            self.inventory.warn(
                "gpus_not_allocatable",
                format!(
                    "{} GPUs are not allocatable (unhealthy or reserved) and are left out",
                    self.unhealthy
                ),
            );
        }
        self.inventory.cluster(self.site.catalogue, "no node of the list has an allocatable GPU")
    }
}

/// MIG resources of a node: profile and count.
fn slices_of(node: &Node<'_>) -> Vec<((u64, u64), u64)> {
    let Some(allocatable) = &node.status.allocatable else { return Vec::new() };
    allocatable
        .iter()
        .filter_map(|(name, n)| {
            Some((mig_profile(name.strip_prefix("nvidia.com/mig-")?)?, n.value().filter(|n| *n > 0)?))
        })
        .collect()
}

struct Devices {
    allocatable: u64,
    capacity: u64,
}

/// Whole devices of a node, by any vendor's resource name.
fn device_count(node: &Node<'_>) -> Option<Devices> {
    const RESOURCES: [&str; 4] = ["nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu"];
    RESOURCES.iter().find_map(|name| {
        let of = |map: &Option<BTreeMap<Cow<'_, str>, Quantity<'_>>>| map.as_ref()?.get(*name)?.value();
        let capacity = of(&node.status.capacity);
        let allocatable = of(&node.status.allocatable).or(capacity)?;
        let shared = Some(allocatable).filter(|n| *n > 0 || capacity.is_some_and(|c| c > 0))?;
        Some(Devices { allocatable: shared, capacity: capacity.unwrap_or(shared) })
    })
}

/// The product's label and the memory label beside it.
fn product_label(labels: &Labels<'_>) -> (Option<String>, Option<String>) {
    const PRODUCTS: [&str; 6] = [
        "nvidia.com/gpu.product",
        "amd.com/gpu.product-name",
        "beta.amd.com/gpu.product-name",
        "cloud.google.com/gke-accelerator",
        "gpu.nvidia.com/class",
        "karpenter.k8s.aws/instance-gpu-name",
    ];
    let product = PRODUCTS.iter().find_map(|name| labels.get(*name)).map(|l| l.replace('_', "-"));
    // Only feature discovery prints the driver's figure; clouds round theirs.
    let memory = labels.get("nvidia.com/gpu.memory").map(ToString::to_string);
    (product, memory)
}

fn instance_type<'l>(labels: &'l Labels<'_>) -> Option<&'l str> {
    labels
        .get("node.kubernetes.io/instance-type")
        .or_else(|| labels.get("beta.kubernetes.io/instance-type"))
        .map(AsRef::as_ref)
}
