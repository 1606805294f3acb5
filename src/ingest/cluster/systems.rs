//! Groups named by their node: platforms, racks, cloud instances, "DGX" and "SuperPOD".

use super::error::ClusterError;
use super::links::Links;
use super::meaning::{Meaning, finish};
use super::product::{Traits, product, slice_of};
use super::said::{Named, Said};
use super::size::Size;
use crate::catalogue::hardware::{HardwareCatalogue, NodeType};
use crate::planner::hardware::{ClusterAssumption, ClusterWarning};

/// Systems of one SuperPOD scalable unit
/// (https://github.com/stas00/ml-engineering network/README.md: 32 systems of 8 for H100).
const SYSTEMS_OF_A_SUPERPOD_UNIT: u64 = 32;

/// Nodes of a listed type: platform, rack or cloud instance.
pub(super) fn nodes_by_type(
    said: &Said<'_>,
    named: &Named<'_>,
    gpu: Option<&Named<'_>>,
    catalogue: &HardwareCatalogue,
) -> Result<Meaning, ClusterError> {
    let types: Vec<&NodeType> =
        named.described.nodes().iter().filter_map(|&i| catalogue.node_at(i)).collect();
    let Some(first) = types.first().copied() else {
        return Err(ClusterError::unknown_gpu(&named.spelling, Vec::new()));
    };
    let same = types.iter().all(|t| t.gpu == first.gpu && t.gpus_per_node == first.gpus_per_node);
    if !same {
        let mut sizes = types;
        sizes.sort_by(|a, b| b.gpus_per_node.cmp(&a.gpus_per_node).then_with(|| a.key.cmp(&b.key)));
        let list: Vec<String> =
            sizes.iter().map(|t| format!("{} ({} x {})", t.key, t.gpus_per_node, t.gpu)).collect();
        let message =
            format!("{} is a family of instances: which size is it, {}?", named.spelling, list.join(", or "));
        return Err(ClusterError::ambiguous(message, sizes.iter().map(|t| t.key.clone())));
    }
    let mut node = first;
    let mut assumed = Vec::new();
    let mut warnings = Vec::new();
    if let Some(range) = said.memory_gb {
        node = variant_with_memory(first, range, catalogue)?;
    } else if named.spelling.to_ascii_lowercase().ends_with("a100") && first.cloud.is_none() {
        assumed.push(assumption(
            "gpu_memory",
            "80 GB",
            "the system comes with 40 GB or 80 GB GPUs; 80 GB is taken",
        ));
        warnings.push(ClusterWarning {
            code: "gpu_memory_assumed".to_owned(),
            message:
                "A100 systems come with 40 GB or 80 GB GPUs and the text does not say which: 80 GB is taken"
                    .to_owned(),
        });
    }
    let Some(mut pool) = catalogue.pool_of_node(node, 1) else {
        return Err(ClusterError::no_figures(
            &node.key,
            &format!("the figures of {} are not known", node.gpu),
        ));
    };
    let Some(entry) = catalogue.gpu_entry_by_key(&node.gpu) else {
        return Err(ClusterError::no_figures(
            &node.key,
            &format!("the figures of {} are not known", node.gpu),
        ));
    };
    check_gpu_of(node, &entry.family, gpu, catalogue)?;
    let rack = rack_gpus(node, &named.spelling);
    let size = count_nodes(said, node, rack, gpu.is_some())?;
    pool.nodes = size.nodes;
    pool.gpus_per_node = size.per_node;
    assumed.extend(size.assumed);
    warnings.extend(size.warnings);
    if let Some(gpus) = rack {
        pool.island_gpus = gpus;
        if !named.spelling.to_ascii_lowercase().contains("gb") {
            let why = format!("{} is taken for the {} rack", named.spelling, entry.gpu.short_name);
            assumed.push(assumption("gpu", &entry.gpu.key, &why));
        }
    }
    if let Some((slices, gb)) = said.mig {
        pool.gpu = slice_of(entry, slices, gb)?;
    }
    let inferred = node.notes.iter().find(|n| n.contains("inferred"));
    if let Some(note) = inferred {
        assumed.push(assumption("node_type", &node.key, note));
    }
    let source = format!("as listed for {}", node.key);
    finish(said, Links { pool, entry, usual_source: source }, assumed, warnings, catalogue)
}

/// "H100" of `h100-sxm5-80gb`.
fn short_of(node: &NodeType) -> String {
    node.gpu.split('-').next().unwrap_or(&node.gpu).to_uppercase()
}

fn assumption(name: &str, value: &str, source: &str) -> ClusterAssumption {
    ClusterAssumption { name: name.to_owned(), value: value.to_owned(), source: source.to_owned() }
}

/// GPUs of the rack, when the node type is one: a count of it then counts racks.
fn rack_gpus(node: &NodeType, spelling: &str) -> Option<u64> {
    if node.cloud.is_some() || node.island_gpus <= node.gpus_per_node {
        return None;
    }
    let spelling = spelling.to_ascii_lowercase();
    // An NVL36 rack is half of an NVL36x2.
    if spelling.contains("36") && !spelling.contains("x2") { Some(36) } else { Some(node.island_gpus) }
}

/// "DGX A100" with a memory size: the variant of the system that has it.
fn variant_with_memory<'c>(
    node: &'c NodeType,
    (low, high): (f64, f64),
    catalogue: &'c HardwareCatalogue,
) -> Result<&'c NodeType, ClusterError> {
    let family =
        |n: &NodeType| catalogue.gpu_entry_by_key(&n.gpu).map(|e| (e.family.clone(), e.marketing_gb as f64));
    let wanted = family(node).map(|f| f.0);
    let fits = |gb: f64| {
        let all = gb * node.gpus_per_node as f64;
        (gb >= low * 0.93 && gb <= high * 1.07) || (all >= low * 0.93 && all <= high * 1.07)
    };
    let alike = catalogue.nodes().filter(|n| n.cloud == node.cloud && n.gpus_per_node == node.gpus_per_node);
    let found = std::iter::once(node).chain(alike).find(|n| {
        family(n).is_some_and(|(f, gb)| Some(f) == wanted && fits(gb))
            && (node.cloud.is_none() || n.key == node.key)
    });
    found.ok_or_else(|| {
        let message = format!("{} does not come with {low} GB GPUs", node.key);
        ClusterError::ambiguous(message, [node.key.clone()])
    })
}

/// A GPU named beside its node must be the one inside.
fn check_gpu_of(
    node: &NodeType,
    family: &str,
    gpu: Option<&Named<'_>>,
    catalogue: &HardwareCatalogue,
) -> Result<(), ClusterError> {
    let Some(named) = gpu else { return Ok(()) };
    let said = product(named, Traits { nodes_stated: true, ..Traits::default() }, catalogue)?;
    if said.entry.family == family {
        return Ok(());
    }
    let message = format!("{} carries {}, not {}", node.key, node.gpu, named.spelling);
    Err(ClusterError::ambiguous(message, [node.key.clone(), named.spelling.clone()]))
}

/// How many nodes of a listed type.
fn count_nodes(
    said: &Said<'_>,
    node: &NodeType,
    rack: Option<u64>,
    gpu_said: bool,
) -> Result<Size, ClusterError> {
    let per_node = node.gpus_per_node.max(1);
    let mut size = Size { per_node, ..Size::default() };
    let mut counts: Vec<u64> = said.before.iter().chain(&said.after).chain(&said.suffix).copied().collect();
    if counts.contains(&0) || said.nodes == Some(0) || said.racks == Some(0) {
        return Err(ClusterError::no_gpus("zero nodes: nothing can be planned on them"));
    }
    let each = |n: u64| rack.map_or(n, |gpus| n.saturating_mul(gpus / per_node));
    let disagree = |what: String| Err(ClusterError::ambiguous(what, [format!("2 x {}", node.key)]));
    if said.half {
        let half = rack.unwrap_or(per_node) / 2;
        size.nodes = (half / per_node).max(1);
        size.per_node = half.min(per_node);
        return Ok(size);
    }
    if let Some(part) = said.per_node.filter(|_| said.part_of == Some(per_node)) {
        return Ok(Size { nodes: 1, per_node: part, ..size });
    }
    if let Some(n) = said.per_node.filter(|n| *n != per_node) {
        return disagree(format!("{} has {per_node} GPUs, not {n}", node.key));
    }
    // Trays are nodes; racks and bare counts of a rack type are racks.
    if let Some(n) = said.trays {
        size.nodes = n;
    } else if let Some(n) = said.racks {
        size.nodes = n.saturating_mul(rack.map_or(1, |gpus| gpus / per_node));
    } else if let Some(n) = said.nodes {
        // "2 nodes of p5.48xlarge", "2 nodes, 8 GPUs, p5.48xlarge"
        counts.retain(|c| *c != per_node);
        size.nodes = n;
    } else if said.said_gpus && counts.len() == 1
        || gpu_said
            && counts.len() == 1
            && said.named.as_ref().is_some_and(|n| n.described.nodes().is_empty())
    {
        // "16 GPUs of a GB200 NVL72", "16 H100s on p5.48xlarge"
        let total = counts.remove(0);
        if total < per_node || !total.is_multiple_of(per_node) {
            return disagree(format!("{total} GPUs are not whole nodes of {} with {per_node}", node.key));
        }
        size.nodes = total / per_node;
    } else if counts.is_empty() {
        size.nodes = each(1);
        size.assumed.push(assumption("nodes", &size.nodes.to_string(), "no count was given: one is taken"));
    } else {
        let n = counts.remove(0);
        if rack.is_some_and(|gpus| n >= gpus / 2 && n.is_multiple_of(per_node)) {
            let message = format!("is {n} the number of GPUs or of {} racks?", node.key);
            let gpus = short_of(node);
            return Err(ClusterError::ambiguous(
                message,
                [format!("{n} {gpus}"), format!("{n} racks of {gpus}")],
            ));
        }
        size.nodes = each(n);
        if n > 1 && rack.is_none() && node.cloud.is_none() {
            let gpus = size.nodes.saturating_mul(per_node);
            let why =
                format!("{n} systems of {per_node} GPUs each; {n} GPUs alone are \"{n} {}\"", short_of(node));
            size.assumed.push(assumption("gpus", &gpus.to_string(), &why));
        }
    }
    let total = size.nodes.saturating_mul(per_node);
    if let Some(n) = counts.iter().find(|n| **n != per_node && **n != total) {
        return disagree(format!("{} x {} are {total} GPUs, not {n}", size.nodes, node.key));
    }
    if total > super::MAX_GPUS {
        return Err(ClusterError::too_many(&total.to_string()));
    }
    Ok(size)
}

/// "DGX", "HGX", "SuperPOD": systems named by their maker, the GPU beside them.
pub(super) fn system(said: &Said<'_>, catalogue: &HardwareCatalogue) -> Result<Meaning, ClusterError> {
    let listed = || catalogue.nodes().filter(|n| n.cloud.is_none() && n.key.starts_with("dgx-"));
    let Some(named) = said.named.as_ref().filter(|n| n.described.nodes().is_empty()) else {
        if said.superpod {
            return superpod(said, catalogue);
        }
        let candidates: Vec<String> = listed()
            .filter(|n| n.gpus_per_node == 8)
            .map(|n| n.key.to_uppercase().replace('-', " "))
            .collect();
        let message = format!("which DGX or HGX is it: {}?", candidates.join(", "));
        return Err(ClusterError::ambiguous(message, candidates));
    };
    if said.superpod {
        return superpod(said, catalogue);
    }
    let wanted = product(
        named,
        Traits { memory_gb: said.memory_gb, form: None, mig: None, nodes_stated: true },
        catalogue,
    )?;
    let node = listed().find(|n| n.gpu == wanted.entry.gpu.key).or_else(|| {
        listed().find(|n| catalogue.gpu_entry_by_key(&n.gpu).is_some_and(|e| e.family == wanted.entry.family))
    });
    let Some(node) = node else {
        let message = format!("no DGX or HGX with {} is known", named.spelling);
        return Err(ClusterError::ambiguous(message, listed().map(|n| n.key.clone())));
    };
    let Some(described) = catalogue.names().exact(&node.key) else {
        return Err(ClusterError::unknown_gpu(&node.key, Vec::new()));
    };
    let system = Named { described, spelling: node.key.clone() };
    let inner =
        Said { dgx: false, named: Some(system.clone()), also: Vec::new(), memory_gb: None, ..said.clone() };
    nodes_by_type(&inner, &system, None, catalogue)
}

/// Scalable units of a SuperPOD: 32 systems each.
fn superpod(said: &Said<'_>, catalogue: &HardwareCatalogue) -> Result<Meaning, ClusterError> {
    let key = match said.named.as_ref().map(|n| n.spelling.to_ascii_lowercase()) {
        None => "dgx-h100",
        Some(n) if n.contains("h100") => "dgx-h100",
        Some(n) if n.contains("h200") => "dgx-h200",
        Some(n) if n.contains("b200") && !n.contains("gb200") => "dgx-b200",
        Some(n) => {
            let message =
                format!("the size of a SuperPOD with {n} is not known: how many systems are there?");
            return Err(ClusterError::ambiguous(message, ["32x DGX H100", "32x DGX H200", "32x DGX B200"]));
        }
    };
    let Some(described) = catalogue.names().exact(key) else {
        return Err(ClusterError::unknown_gpu(key, Vec::new()));
    };
    let units = said.before.iter().chain(&said.after).copied().next().unwrap_or(1);
    let systems = units.saturating_mul(SYSTEMS_OF_A_SUPERPOD_UNIT);
    let system = Named { described, spelling: key.to_owned() };
    let inner = Said {
        named: Some(system.clone()),
        dgx: false,
        superpod: false,
        before: vec![systems],
        after: Vec::new(),
        also: Vec::new(),
        ..said.clone()
    };
    let mut meaning = nodes_by_type(&inner, &system, None, catalogue)?;
    let why = format!("a scalable unit has {SYSTEMS_OF_A_SUPERPOD_UNIT} systems");
    meaning.assumed.push(assumption("nodes", &systems.to_string(), &why));
    if said.named.is_none() {
        meaning.assumed.push(assumption("node_type", "dgx-h100", "no system was named: DGX H100 is taken"));
    }
    Ok(meaning)
}
