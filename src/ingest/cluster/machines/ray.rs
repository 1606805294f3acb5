//! `ray.cluster_resources()`: a flat map of amounts. `accelerator_type:KIND` counts nodes, `GPU` counts GPUs.

use serde_json::{Map, Value};

use super::{Inventory, NodeFacts, Site};
use crate::catalogue::hardware::GpuEntry;
use crate::ingest::cluster::error::ClusterError;
use crate::planner::hardware::Cluster;

/// True for the usage lines of `ray status`: " 0.0/16.0 GPU".
pub(super) fn looks_like_status(text: &str) -> bool {
    text.lines().take(2000).any(|line| usage(line).is_some_and(|(name, _)| name == "GPU"))
}

/// A resource and its total, in a usage line of `ray status`.
fn usage(line: &str) -> Option<(&str, f64)> {
    let mut words = line.split_whitespace();
    let (used, total) = words.next()?.split_once('/')?;
    used.parse::<f64>().ok()?;
    let total = total.parse().ok().filter(|n: &f64| n.is_finite())?;
    Some((words.next()?, total))
}

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    let map: Map<String, Value> = if looks_like_status(text) {
        text.lines().filter_map(usage).map(|(name, total)| (name.to_owned(), total.into())).collect()
    } else {
        // Printed by Python, the map has single quotes.
        let json = if text.contains('"') { text.to_owned() } else { text.replace('\'', "\"") };
        serde_json::from_str(&json).map_err(|e| {
            ClusterError::unreadable(format!("this is no map of Ray resources: {e}")).at(e.line(), e.column())
        })?
    };
    let amount = |v: &Value| v.as_f64().filter(|n| n.is_finite() && *n >= 0.0 && *n <= 1e9);
    let gpus =
        map.get("GPU").and_then(amount).ok_or_else(|| ClusterError::no_gpus("the resources have no GPU"))?;
    let kinds: Vec<(&str, f64)> = map
        .iter()
        .filter_map(|(k, v)| Some((k.strip_prefix("accelerator_type:")?, amount(v)?)))
        .filter(|(_, n)| *n >= 1.0)
        .collect();
    let mut inventory = Inventory::new();
    let [(kind, nodes)] = kinds.as_slice() else {
        let names: Vec<&str> = kinds.iter().map(|k| k.0).collect();
        if names.is_empty() {
            let labelled = site.product_of_caller("the resources have no accelerator_type, so it")?;
            return checked_text(gpus, &labelled.entry.gpu.key, site);
        }
        let message =
            format!("{gpus} GPUs of several kinds ({}): Ray does not say how many of each", names.join(", "));
        return Err(ClusterError::ambiguous(message, names.iter().map(|n| format!("8 {n}"))));
    };
    let entry = kind_of(kind, site)?;
    if !(gpus / nodes).fract().eq(&0.0) {
        let message =
            format!("{gpus} GPUs on {nodes} nodes of {kind}: the nodes differ, how many GPUs has each?");
        return Err(ClusterError::ambiguous(
            message,
            [format!("{nodes} nodes x {} {kind}", (gpus / nodes).floor())],
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded by 10^9, checked whole"
    )]
    let (each, nodes) = ((gpus / nodes) as u64, *nodes as u64);
    inventory.assume(
        "gpus_per_node",
        &each.to_string(),
        "GPUs divided evenly over the nodes that have the kind",
    );
    inventory.assume("gpu", &entry.gpu.key, "Ray's accelerator type leaves out memory and form factor");
    let facts = NodeFacts {
        entry,
        gpu: entry.gpu.clone(),
        gpus: each,
        node_type: None,
        clique: None,
        ports: None,
        host_memory: None,
        free_memory: None,
    };
    inventory.add(facts, nodes);
    inventory.cluster(site.catalogue, "the resources have no GPU")
}

/// GPUs without nodes: as the text "N KIND" would be read.
fn checked_text(gpus: f64, key: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    crate::ingest::cluster::parse_text(&format!("{gpus} {key}"), site.catalogue)
}

/// The product of Ray's kind: the caller's word first, then the usual one.
fn kind_of<'c>(kind: &str, site: &Site<'c>) -> Result<&'c GpuEntry, ClusterError> {
    if let Some(name) = site.gpu {
        return Ok(site.product(name, None)?.entry);
    }
    let by_ray = || {
        site.catalogue.gpus().find(|e| e.ray_name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(kind)))
    };
    site.catalogue.gpu_entry(kind).or_else(by_ray).ok_or_else(|| {
        // "RTX" and "G" are what Ray makes of long names.
        if matches!(kind, "RTX" | "G" | "TPU" | "Intel-GAUDI") {
            return ClusterError::ambiguous(
                format!("Ray's \"{kind}\" can be several products: which one is it?"),
                ["rtx-4090", "rtx-5090", "rtx-pro-6000-server"],
            );
        }
        ClusterError::unknown_gpu(kind, site.catalogue.gpu_suggestions(kind))
    })
}
