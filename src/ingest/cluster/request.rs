//! The `cluster` field of a request: a text, a topology, or node pools in full.

use serde_json::Value;

use super::MAX_GPUS;
use super::error::ClusterErrorKind;
use super::machines::{Format, ParsedCluster, recognise};
use super::text::{MAX_POOLS, add_pool, checked};
use super::topology::parse_topology;
use crate::catalogue::hardware::{GpuEntry, HardwareCatalogue};
use crate::ingest::fields::{Fields, wrong_type};
use crate::ingest::{FieldError, Pointer};
use crate::planner::hardware::{Cluster, ClusterAssumption, Gpu, Link, LinkScope, NodePool};
use crate::planner::units::Bytes;

/// Longest text of a cluster: a pasted node list may be large.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// Most host memory and GPU memory that is believed, bytes (1 PiB).
const MAX_BYTES: u64 = 1 << 50;
/// Most network ports of a node.
const MAX_PORTS: u64 = 1_024;

/// The name in `{"saved": "prod-east"}` or `saved:prod-east`: a cluster that a running service keeps.
#[must_use]
pub fn saved_name(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => text.trim().strip_prefix("saved:").map(str::trim),
        Value::Object(fields) if fields.len() == 1 => fields.get("saved").and_then(Value::as_str),
        _ => None,
    }
}

/// Read the `cluster` field at `place`.
///
/// # Errors
/// Every fault of the field, each with its pointer.
pub fn from_json(
    value: &Value,
    place: &Pointer,
    catalogue: &HardwareCatalogue,
) -> Result<Cluster, Vec<FieldError>> {
    if saved_name(value).is_some() {
        let detail = "saved clusters are looked up by a running service; write the cluster out here";
        return Err(vec![FieldError::at(place, "unknown_cluster", detail).got(value)]);
    }
    match value {
        Value::String(text) => from_text(text, place, catalogue),
        Value::Object(_) => from_object(value, place, catalogue),
        other => Err(vec![wrong_type(place, other, "a text, or an object with `topology` or `node_pools`")]),
    }
}

/// As [`from_json`], with the name of the format. `gpu` and `nodes` stand beside a text; an object has its own.
///
/// # Errors
/// Every fault of the field, each with its pointer.
pub fn read(
    value: &Value,
    gpu: Option<&str>,
    nodes: Option<u64>,
    place: &Pointer,
    catalogue: &HardwareCatalogue,
) -> Result<(&'static str, Cluster), Vec<FieldError>> {
    if let (Value::String(text), None) = (value, saved_name(value)) {
        let parsed = recognised(text, gpu, nodes, place, catalogue)?;
        return Ok((parsed.format.name(), parsed.cluster));
    }
    if gpu.is_some() || nodes.is_some() {
        let detail = "`gpu` and `nodes` stand beside a text; an object has them inside";
        return Err(vec![FieldError::at(place, "not_allowed", detail)]);
    }
    let format = if value.get("topology").is_some() { Format::TopologyMatrix.name() } else { "node_pools" };
    Ok((format, from_json(value, place, catalogue)?))
}

fn from_text(text: &str, place: &Pointer, catalogue: &HardwareCatalogue) -> Result<Cluster, Vec<FieldError>> {
    recognised(text, None, None, place, catalogue).map(|parsed| parsed.cluster)
}

fn recognised(
    text: &str,
    gpu: Option<&str>,
    nodes: Option<u64>,
    place: &Pointer,
    catalogue: &HardwareCatalogue,
) -> Result<ParsedCluster, Vec<FieldError>> {
    if text.len() > MAX_TEXT_BYTES {
        let detail = format!("expected at most {MAX_TEXT_BYTES} bytes, got {}", text.len());
        return Err(vec![FieldError::at(place, "out_of_range", detail)]);
    }
    recognise(text, gpu, nodes, catalogue).map_err(|error| {
        let of_gpu = error.kind == ClusterErrorKind::UnknownGpu
            && gpu.is_some_and(|gpu| super::machines::names_nothing(gpu, catalogue));
        // beside a text, the product has a field of its own
        let place = if of_gpu { &Pointer::root().key("gpu") } else { place };
        vec![error.into_field_error(place)]
    })
}

fn from_object(
    value: &Value,
    place: &Pointer,
    catalogue: &HardwareCatalogue,
) -> Result<Cluster, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut cluster = None;
    if let Some(mut fields) = Fields::of(value, place.clone(), &mut faults) {
        let pools = fields.raw("node_pools");
        if fields.has("topology") {
            cluster = read_topology(&mut fields, catalogue);
            fields.finish();
            return cluster.filter(|_| faults.is_empty()).ok_or(faults);
        }
        match pools {
            Some(Value::Array(items)) if !items.is_empty() && items.len() <= MAX_POOLS => {
                cluster = read_pools(&mut fields, items, catalogue);
            }
            Some(Value::Array(items)) => {
                let detail = format!("expected 1 to {MAX_POOLS} pools, got {}", items.len());
                fields.refuse("node_pools", "out_of_range", detail);
            }
            Some(other) => {
                let fault = wrong_type(&fields.place_of("node_pools"), other, "an array of node pools");
                fields.push(fault);
            }
            None => {
                fields.required("node_pools");
            }
        }
        fields.finish();
    }
    match cluster {
        Some(cluster) if faults.is_empty() => checked(cluster).map_err(|e| vec![e.into_field_error(place)]),
        _ => Err(faults),
    }
}

/// `{"topology": "<nvidia-smi topo -m>", "gpu": ..., "nodes": n}`
fn read_topology(fields: &mut Fields<'_, '_>, catalogue: &HardwareCatalogue) -> Option<Cluster> {
    let nodes = fields.whole("nodes", 1..=MAX_GPUS);
    let gpu = if fields.has("gpu") { Some(fields.text("gpu", 120)?) } else { None };
    let place = fields.place_of("topology");
    let value = fields.required("topology")?;
    let Value::String(text) = value else {
        fields.push(wrong_type(&place, value, "the output of nvidia-smi topo -m"));
        return None;
    };
    match parse_topology(text, gpu, nodes.unwrap_or(1), catalogue) {
        Ok(cluster) => Some(cluster),
        Err(error) => {
            let at = if error.kind == ClusterErrorKind::UnknownGpu { fields.place_of("gpu") } else { place };
            fields.push(error.into_field_error(&at));
            None
        }
    }
}

fn read_pools<'v>(
    fields: &mut Fields<'v, '_>,
    items: &'v [Value],
    catalogue: &HardwareCatalogue,
) -> Option<Cluster> {
    let place = fields.place_of("node_pools");
    let mut cluster = Cluster { pools: Vec::new(), assumed: Vec::new(), warnings: Vec::new() };
    let mut whole = true;
    for (i, item) in items.iter().enumerate() {
        let read = fields
            .nested(item, place.index(i))
            .and_then(|pool| read_pool(pool, catalogue, &mut cluster.assumed));
        match read {
            Some(pool) => add_pool(&mut cluster, pool),
            None => whole = false,
        }
    }
    whole.then_some(cluster)
}

/// One pool; what is left out is as usual for the GPU.
fn read_pool(
    mut fields: Fields<'_, '_>,
    catalogue: &HardwareCatalogue,
    assumed: &mut Vec<ClusterAssumption>,
) -> Option<NodePool> {
    let node_type = fields.text("node_type", 80).map(str::to_owned);
    let listed = node_type.as_deref().and_then(|name| catalogue.node(name));
    if let (Some(name), None) = (&node_type, listed) {
        fields.refuse(
            "node_type",
            "unknown_node_type",
            format!("\"{name}\" is not a node type of the catalogue"),
        );
    }
    let entry = read_gpu(&mut fields, listed.map(|n| n.gpu.as_str()), catalogue);
    let nodes = fields.whole("nodes", 1..=MAX_GPUS);
    let per_node = fields.whole("gpus_per_node", 1..=MAX_GPUS);
    let intra = read_link(&mut fields, "intra_link", catalogue);
    let inter = read_link(&mut fields, "inter_link", catalogue);
    let host = read_link(&mut fields, "host_link", catalogue);
    let island = fields.whole("island_gpus", 1..=MAX_GPUS);
    let ports = fields.whole("inter_links_per_node", 1..=MAX_PORTS);
    let host_memory = fields.whole("host_memory_bytes", 1..=MAX_BYTES);
    let price = fields.number("usd_per_gpu_hour", 0.0..=100_000.0);
    let free = fields.wholes("free_memory_bytes", 0..=MAX_BYTES, 1_024);
    for (link, name) in [(&intra, "intra_link"), (&host, "host_link")] {
        if let Some(link) = link.as_ref().filter(|l| l.scope == LinkScope::Fabric) {
            let inside = catalogue.links().map(|e| &e.link).filter(|l| l.scope != LinkScope::Fabric);
            let detail = format!("{} is a link between nodes", link.key);
            let fault = FieldError::at(&fields.place_of(name), "not_allowed", detail)
                .allowed(inside.map(|l| l.key.clone()));
            fields.push(fault);
        }
    }
    let per_node = per_node.or_else(|| listed.map(|n| n.gpus_per_node));
    let size = per_node.or_else(|| entry.map(|e| catalogue.usual_node_size(e).0));
    if let (Some(free), Some(gpus)) = (&free, size)
        && free.len() as u64 != gpus
    {
        let detail = format!("expected one figure for each of the {gpus} GPUs of a node, got {}", free.len());
        fields.refuse("free_memory_bytes", "out_of_range", detail);
    }
    fields.finish();
    let entry = entry?;
    let gpus_per_node = per_node.unwrap_or_else(|| {
        let (usual, why) = catalogue.usual_node_size(entry);
        assumed.push(assumption("gpus_per_node", &usual.to_string(), &why));
        usual
    });
    let nodes = nodes.unwrap_or_else(|| {
        assumed.push(assumption("nodes", "1", "the number of nodes is not stated"));
        1
    });
    let mut pool = match listed.filter(|n| n.gpus_per_node == gpus_per_node && n.gpu == entry.gpu.key) {
        Some(node) => catalogue.pool_of_node(node, nodes)?,
        None => usual_pool(entry, nodes, gpus_per_node, catalogue),
    };
    match intra {
        Some(link) => set_intra(&mut pool, link, entry, catalogue),
        None if gpus_per_node > 1 && listed.is_none() => {
            assumed.push(assumption(
                "intra_link",
                &pool.intra_link.key,
                &format!("usual for {}", entry.gpu.short_name),
            ));
        }
        None => {}
    }
    match inter {
        Some(link) => {
            if link.key != pool.inter_link.key {
                let one = link.key.starts_with("ethernet");
                pool.inter_links_per_node = Some(if one { 1 } else { gpus_per_node });
            }
            pool.inter_link = link;
        }
        None if nodes > 1 && listed.is_none() => {
            assumed.push(assumption(
                "inter_link",
                &pool.inter_link.key,
                &format!("usual for {}", entry.gpu.short_name),
            ));
        }
        None => {}
    }
    if let Some(gpus) = island {
        pool.island_gpus = gpus;
        pool.host_link =
            (gpus < gpus_per_node).then(|| pool.host_link.take().unwrap_or_else(|| catalogue.pcie_of(entry)));
    }
    pool.host_link = host.or(pool.host_link);
    pool.inter_links_per_node = ports.or(pool.inter_links_per_node);
    pool.host_memory_bytes = host_memory.map(Bytes).or(pool.host_memory_bytes);
    if price.is_some() {
        pool.usd_per_gpu_hour = price;
        pool.price_source = Some("given".to_owned());
    }
    pool.free_memory_bytes = free.map(|each| each.into_iter().map(Bytes).collect());
    Some(pool)
}

fn assumption(name: &str, value: &str, source: &str) -> ClusterAssumption {
    ClusterAssumption { name: name.to_owned(), value: value.to_owned(), source: source.to_owned() }
}

fn read_gpu<'c>(
    fields: &mut Fields<'_, '_>,
    of_node: Option<&str>,
    catalogue: &'c HardwareCatalogue,
) -> Option<&'c GpuEntry> {
    let Some(name) = (if of_node.is_some() {
        fields.raw("gpu").and_then(Value::as_str)
    } else {
        fields.required("gpu").and_then(Value::as_str)
    }) else {
        if fields.has("gpu") {
            // Present but not a text: the strict reader says so.
            fields.text("gpu", 120);
        }
        return of_node.and_then(|key| catalogue.gpu_entry_by_key(key));
    };
    if let Some(entry) = catalogue.gpu_entry(name) {
        return Some(entry);
    }
    let close = catalogue.gpu_suggestions(name);
    let hint = close.first().map_or_else(String::new, |c| format!("; did you mean {c}?"));
    let shown: String = name.chars().take(60).collect();
    let fault = FieldError::at(
        &fields.place_of("gpu"),
        "unknown_gpu",
        format!("\"{shown}\" is not a GPU of the catalogue{hint}"),
    )
    .allowed(close)
    .got(&Value::from(name));
    fields.push(fault);
    None
}

fn read_link(fields: &mut Fields<'_, '_>, name: &'static str, catalogue: &HardwareCatalogue) -> Option<Link> {
    let key = fields.text(name, 80)?;
    if let Some(link) = catalogue.link(key) {
        return Some(link);
    }
    let close = catalogue.link_suggestions(key);
    let hint = close.first().map_or_else(String::new, |c| format!("; did you mean {c}?"));
    let fault = FieldError::at(
        &fields.place_of(name),
        "unknown_link",
        format!("\"{key}\" is not a link of the catalogue{hint}"),
    )
    .allowed(close)
    .got(&Value::from(key));
    fields.push(fault);
    None
}

/// A pool with everything as usual for the GPU.
pub(super) fn usual_pool(
    entry: &GpuEntry,
    nodes: u64,
    gpus_per_node: u64,
    catalogue: &HardwareCatalogue,
) -> NodePool {
    let usual = catalogue.usual_links(entry, gpus_per_node);
    NodePool {
        nodes,
        gpus_per_node,
        gpu: entry.gpu.clone(),
        intra_link: usual.intra,
        island_gpus: usual.island_gpus,
        host_link: usual.host,
        inter_link: usual.inter,
        inter_links_per_node: usual.nics_per_node,
        host_memory_bytes: None,
        usd_per_gpu_hour: None,
        price_source: None,
        free_memory_bytes: None,
    }
}

/// Make the pool one of slices: each an island of its own, with nothing but the host between them.
pub(super) fn set_slices(pool: &mut NodePool, slice: Gpu, entry: &GpuEntry, catalogue: &HardwareCatalogue) {
    let pcie = catalogue.pcie_of(entry);
    pool.gpu = slice;
    pool.island_gpus = 1;
    pool.host_link = (pool.gpus_per_node > 1).then(|| pcie.clone());
    pool.intra_link = pcie;
}

/// Put a link inside the node; its reach follows from its scope.
pub(super) fn set_intra(pool: &mut NodePool, link: Link, entry: &GpuEntry, catalogue: &HardwareCatalogue) {
    if link.key == pool.intra_link.key {
        return;
    }
    pool.island_gpus = match link.scope {
        LinkScope::Pair => 2,
        LinkScope::Rack => 72,
        LinkScope::Node | LinkScope::Fabric => pool.gpus_per_node,
    };
    pool.host_link = (pool.island_gpus < pool.gpus_per_node).then(|| catalogue.pcie_of(entry));
    pool.intra_link = link;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::hardware::catalogue;
    use crate::ingest::cluster::parse_text;
    use serde_json::json;

    fn read(value: &Value) -> Result<Cluster, Vec<FieldError>> {
        from_json(value, &Pointer::root().key("cluster"), catalogue())
    }

    #[test]
    fn a_pool_in_full_is_taken_as_it_stands() {
        let cluster = read(&json!({"node_pools": [{"nodes": 2, "gpus_per_node": 8, "gpu": "h100-sxm5-80gb",
            "intra_link": "nvlink4", "inter_link": "infiniband-ndr", "host_memory_bytes": 2_000_000_000_000_u64}]}))
        .expect("valid");
        let pool = &cluster.pools[0];
        assert_eq!((cluster.gpus(), pool.island_gpus, pool.inter_links_per_node), (16, 8, Some(8)));
        assert_eq!(pool.host_memory_bytes, Some(Bytes(2_000_000_000_000)));
        assert!(cluster.assumed.is_empty(), "{:?}", cluster.assumed);
        let text = parse_text("2x8xH100", catalogue()).expect("valid");
        assert_eq!(text.pools[0], NodePool { host_memory_bytes: None, ..pool.clone() });
    }

    #[test]
    fn what_is_left_out_is_usual_and_said() {
        let cluster = read(&json!({"node_pools": [{"gpu": "a100-80gb", "nodes": 3}]})).expect("valid");
        let names: Vec<&str> = cluster.assumed.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["gpus_per_node", "intra_link", "inter_link"]);
        assert_eq!(cluster.gpus(), 24);
    }

    #[test]
    fn every_fault_is_reported_with_its_pointer() {
        let faults = read(&json!({"node_pools": [
            {"nodes": 0, "gpus_per_nod": 8, "gpu": "h1000", "intra_link": "nvlnk4", "inter_link": 5},
            {"gpus_per_node": 2, "free_memory_bytes": [1], "intra_link": "infiniband-ndr", "gpu": "l4"}
        ], "x": 1}))
        .expect_err("faulty");
        let found: Vec<(&str, &str)> = faults.iter().map(|f| (f.pointer.as_str(), f.code)).collect();
        for wanted in [
            ("#/cluster/node_pools/0/nodes", "out_of_range"),
            ("#/cluster/node_pools/0/gpus_per_nod", "unknown_field"),
            ("#/cluster/node_pools/0/gpu", "unknown_gpu"),
            ("#/cluster/node_pools/0/intra_link", "unknown_link"),
            ("#/cluster/node_pools/0/inter_link", "wrong_type"),
            ("#/cluster/node_pools/1/free_memory_bytes", "out_of_range"),
            ("#/cluster/node_pools/1/intra_link", "not_allowed"),
            ("#/cluster/x", "unknown_field"),
        ] {
            assert!(found.contains(&wanted), "{wanted:?} is not among {found:?}");
        }
    }

    #[test]
    fn texts_ask_back_through_the_same_door() {
        let faults = read(&json!("12 H100s")).expect_err("ambiguous");
        assert_eq!((faults[0].code, faults[0].pointer.as_str()), ("ambiguous_cluster", "#/cluster"));
        assert!(!faults[0].allowed.is_empty());
        assert_eq!(read(&json!(16)).expect_err("no cluster")[0].code, "wrong_type");
        let huge = json!({"node_pools": [{"nodes": 999_999, "gpus_per_node": 999_999, "gpu": "h100"}]});
        assert_eq!(read(&huge).expect_err("too many")[0].code, "too_many_gpus");
    }
}
