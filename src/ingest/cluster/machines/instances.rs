//! Lists of cloud instances: JSON with a type and a count, `DescribeInstanceTypes`, CSV with a header.

use serde_json::Value;

use super::{Inventory, NodeFacts, Site};
use crate::ingest::cluster::error::ClusterError;
use crate::planner::hardware::Cluster;

const MAX_ENTRIES: usize = 100_000;
const TYPE_KEYS: [&str; 8] =
    ["instance_type", "instanceType", "InstanceType", "machine_type", "machineType", "type", "shape", "name"];
const COUNT_KEYS: [&str; 6] = ["count", "Count", "nodes", "n", "quantity", "replicas"];

/// True for a CSV whose header names an instance type.
pub(super) fn looks_like_csv(text: &str) -> bool {
    let mut lines = text.lines();
    let header = lines.next().is_some_and(|l| {
        l.split(',').any(|c| {
            matches!(
                c.trim().to_ascii_lowercase().as_str(),
                "instancetype" | "instance_type" | "machine_type"
            )
        })
    });
    header && lines.next().is_some()
}

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    let mut inventory = Inventory::new();
    if text.trim_start().starts_with(['{', '[']) {
        let value: Value = serde_json::from_str(text).map_err(|e| {
            ClusterError::unreadable(format!("the JSON is damaged: {e}")).at(e.line(), e.column())
        })?;
        let entries = match &value {
            Value::Array(items) => items.iter().collect::<Vec<_>>(),
            Value::Object(map) => {
                match map.get("InstanceTypes").or_else(|| map.get("instances")).and_then(Value::as_array) {
                    Some(items) => items.iter().collect(),
                    None => vec![&value],
                }
            }
            _ => Vec::new(),
        };
        if entries.len() > MAX_ENTRIES {
            return Err(ClusterError::unreadable(format!("more than {MAX_ENTRIES} instances")));
        }
        for entry in entries {
            let of = |keys: &[&str]| keys.iter().find_map(|k| entry.get(*k));
            let name = entry.as_str().or_else(|| of(&TYPE_KEYS).and_then(Value::as_str));
            let Some(name) = name else {
                return Err(ClusterError::unreadable("an entry has no instance type (\"instance_type\")"));
            };
            let count = match of(&COUNT_KEYS) {
                None => 1,
                Some(n) => n.as_u64().ok_or_else(|| {
                    ClusterError::unreadable(format!("the count of {name} is no whole number"))
                })?,
            };
            add(name, count, gpu_info(entry), site, &mut inventory)?;
        }
    } else {
        read_csv(text, site, &mut inventory)?;
    }
    inventory.cluster(site.catalogue, "no instance of the list has a GPU")
}

fn read_csv<'c>(text: &str, site: &Site<'c>, inventory: &mut Inventory<'c>) -> Result<(), ClusterError> {
    let mut lines = text.lines().enumerate();
    let header: Vec<String> = lines
        .next()
        .map(|(_, l)| l.split(',').map(|c| c.trim().to_ascii_lowercase()).collect())
        .unwrap_or_default();
    let place = |names: &[&str]| header.iter().position(|h| names.contains(&h.as_str()));
    let name_at = place(&["instancetype", "instance_type", "machine_type"]).unwrap_or(0);
    let count_at = place(&["count", "nodes", "quantity"]);
    for (i, line) in lines.take(MAX_ENTRIES).filter(|(_, l)| !l.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let name = cells.get(name_at).copied().unwrap_or("");
        let count = match count_at.and_then(|at| cells.get(at)) {
            None => 1,
            Some(n) => n
                .parse()
                .map_err(|_| ClusterError::unreadable(format!("\"{n}\" is no count")).at(i + 1, 1))?,
        };
        add(name, count, None, site, inventory).map_err(|e| e.at(i + 1, 1))?;
    }
    Ok(())
}

/// `GpuInfo.Gpus[0]` of DescribeInstanceTypes: name and count.
fn gpu_info(entry: &Value) -> Option<(String, u64)> {
    let gpu = entry.get("GpuInfo")?.get("Gpus")?.get(0)?;
    let name = gpu.get("Name")?.as_str()?;
    Some((name.to_owned(), gpu.get("Count")?.as_u64()?))
}

fn add<'c>(
    name: &str,
    count: u64,
    info: Option<(String, u64)>,
    site: &Site<'c>,
    inventory: &mut Inventory<'c>,
) -> Result<(), ClusterError> {
    let node = site.catalogue.node(name);
    let (entry, gpus) = match (node, info) {
        (Some(node), _) => {
            let entry = site.catalogue.gpu_entry_by_key(&node.gpu).ok_or_else(|| {
                ClusterError::no_figures(name, &format!("the figures of {} are not known", node.gpu))
            })?;
            (entry, node.gpus_per_node)
        }
        (None, Some((gpu, gpus))) => {
            let labelled = site.product(&gpu, None)?;
            inventory.note(&labelled);
            (labelled.entry, gpus)
        }
        (None, None) => return Err(ClusterError::unknown_gpu(name, near_types(name, site))),
    };
    let facts = NodeFacts {
        entry,
        gpu: entry.gpu.clone(),
        gpus,
        node_type: node,
        clique: None,
        ports: None,
        host_memory: None,
        free_memory: None,
    };
    inventory.add(facts, count);
    Ok(())
}

/// Listed types that begin alike.
fn near_types(name: &str, site: &Site<'_>) -> Vec<String> {
    let family = name.split(['.', '-']).next().unwrap_or(name);
    let alike = site
        .catalogue
        .nodes()
        .filter(|n| n.cloud.is_some() && n.key.starts_with(family) && !family.is_empty());
    alike.map(|n| n.key.clone()).take(3).collect()
}
