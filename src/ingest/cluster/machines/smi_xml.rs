//! `nvidia-smi -q -x`: one node in full, with usable memory and NVLink partition.

use roxmltree::{Document, Node, ParsingOptions};

use super::{Inventory, NodeFacts, Site};
use crate::ingest::cluster::error::ClusterError;
use crate::planner::hardware::Cluster;
use crate::planner::units::Bytes;

/// Elements of one output at most: 16 GPUs have some 10,000.
const MAX_ELEMENTS: u32 = 500_000;

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| {
        let at = e.pos();
        ClusterError::unreadable(format!("the XML is damaged: {e}")).at(at.row as usize, at.col as usize)
    })?;
    let mut inventory = Inventory::new();
    let mut gpus: Vec<NodeFacts<'_>> = Vec::new();
    for gpu in document.root_element().children().filter(|n| n.has_tag_name("gpu")) {
        let facts = read_gpu(&document, gpu, site, &mut inventory)?;
        let same = gpus.iter_mut().find(|f| f.gpu.key == facts.gpu.key && f.clique == facts.clique);
        match same {
            Some(known) => {
                known.gpus += 1;
                // The smallest of equal products: what every rank can rely on.
                known.gpu.memory_bytes = known.gpu.memory_bytes.min(facts.gpu.memory_bytes);
                if let (Some(all), Some(more)) = (&mut known.free_memory, facts.free_memory) {
                    all.extend(more);
                }
            }
            None => gpus.push(facts),
        }
    }
    for facts in gpus {
        inventory.add(facts, site.nodes);
    }
    inventory.cluster(site.catalogue, "the output lists no GPU")
}

fn read_gpu<'c>(
    document: &Document<'_>,
    gpu: Node<'_, '_>,
    site: &Site<'c>,
    inventory: &mut Inventory<'c>,
) -> Result<NodeFacts<'c>, ClusterError> {
    let name = text_at(gpu, &["product_name"]).ok_or_else(|| {
        let at = document.text_pos_at(gpu.range().start);
        ClusterError::unreadable("a <gpu> without <product_name>").at(at.row as usize, at.col as usize)
    })?;
    if text_at(gpu, &["mig_mode", "current_mig"]) == Some("Enabled") {
        let message =
            format!("{name} is cut into MIG slices: describe them as products, e.g. \"7x A100 1g.10gb\"");
        return Err(ClusterError::ambiguous(message, ["7x A100 1g.10gb", "2x H100 3g.40gb"]));
    }
    let memory = |field: &str| text_at(gpu, &["fb_memory_usage", field]).and_then(mib);
    let total = memory("total");
    let mut labelled = site.product(name, total)?;
    inventory.note(&labelled);
    if let (Some(total), Some(reserved)) = (total, memory("reserved")) {
        labelled.gpu.memory_bytes = Bytes::from_f64((total - reserved) * 1_048_576.0);
        labelled.gpu.memory_assumed = false;
        labelled
            .gpu
            .sources
            .push("memory_bytes: total minus reserved, as nvidia-smi printed them".to_owned());
    }
    let uuid = text_at(gpu, &["fabric", "clusterUuid"])
        .filter(|u| u.chars().any(|c| c.is_ascii_hexdigit() && c != '0'));
    let clique = uuid
        .filter(|u| *u != "N/A")
        .and_then(|u| Some(format!("{u}.{}", text_at(gpu, &["fabric", "cliqueId"])?)));
    if clique.is_some() {
        inventory.assume("island_gpus", "72", "one tray shows only itself; an NVL72 rack is taken");
    }
    Ok(NodeFacts {
        entry: labelled.entry,
        gpu: labelled.gpu,
        gpus: 1,
        node_type: None,
        // One node of a rack: the partition's size is not in this output.
        clique: None,
        ports: None,
        host_memory: None,
        free_memory: memory("free").map(|m| vec![Bytes::from_f64(m * 1_048_576.0)]),
    })
}

fn text_at<'d>(node: Node<'d, '_>, path: &[&str]) -> Option<&'d str> {
    let mut at = node;
    for name in path {
        at = at.children().find(|n| n.has_tag_name(*name))?;
    }
    at.text().map(str::trim).filter(|t| !t.is_empty())
}

fn mib(text: &str) -> Option<f64> {
    text.trim_end_matches("MiB").trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
}
