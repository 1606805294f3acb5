//! From what was said of a group to a pool of nodes.

use super::error::ClusterError;
use super::links::{Links, apply_links};
use super::product::{Traits, product};
use super::request::set_slices;
use super::said::{Named, Said};
use super::size::size_of;
use super::systems::{nodes_by_type, system};
use crate::catalogue::hardware::{Form, HardwareCatalogue};
use crate::planner::hardware::{ClusterAssumption, ClusterWarning, NodePool};
use crate::planner::units::Bytes;

/// What every pool of slices is warned of.
pub(super) const NO_LINKS_BETWEEN_SLICES: &str =
    "MIG slices have no links to each other: tensor parallelism over slices is not possible";

/// Chips of a TPU v5e or v6e pod, which one interconnect joins over all of its hosts (Google Cloud, "TPU v5e", "TPU v6e").
const TPU_POD_CHIPS: u64 = 256;

/// A pool and what was assumed to read it.
#[derive(Debug)]
pub(super) struct Meaning {
    pub pool: NodePool,
    pub assumed: Vec<ClusterAssumption>,
    pub warnings: Vec<ClusterWarning>,
}

/// Make sense of one group.
pub(super) fn meaning(said: &Said<'_>, catalogue: &HardwareCatalogue) -> Result<Meaning, ClusterError> {
    if let Some(n) = &said.huge {
        return Err(ClusterError::too_many(n));
    }
    if said.negative {
        return Err(ClusterError::no_gpus("a negative number of GPUs: nothing can be planned on them"));
    }
    if said.share.is_some() {
        return Err(a_share(said, catalogue));
    }
    let names = || said.named.iter().chain(&said.also);
    let node_name = names().find(|n| !n.described.nodes().is_empty());
    // "DGX GB200 NVL72" names its rack
    if said.superpod || said.dgx && node_name.is_none() {
        return system(said, catalogue);
    }
    let gpu_name = names().find(|n| n.described.nodes().is_empty());
    match (node_name, gpu_name) {
        (Some(node), gpu) => nodes_by_type(said, node, gpu, catalogue),
        (None, Some(gpu)) => gpus(said, gpu, catalogue),
        (None, None) => Err(nameless(said, catalogue)),
    }
}

/// "a quarter of a DGX H100": how many GPUs that is, is for the one who says it.
fn a_share(said: &Said<'_>, catalogue: &HardwareCatalogue) -> ClusterError {
    let Some(named) = &said.named else {
        return ClusterError::ambiguous("how many GPUs is that part, and of which product?", ["2 H100"]);
    };
    let node = named.described.nodes().first().and_then(|&i| catalogue.node_at(i));
    let gpu = node.and_then(|node| catalogue.gpu_entry_by_key(&node.gpu)).map(|e| e.gpu.short_name.clone());
    let gpu = gpu.unwrap_or_else(|| named.spelling.clone());
    let message = format!("how many GPUs is that part of {}?", named.spelling);
    ClusterError::ambiguous(message, [2, 1, 4].map(|n| format!("{n} {gpu}")))
}

/// A group of GPUs in nodes as they are usual.
fn gpus(said: &Said<'_>, named: &Named<'_>, catalogue: &HardwareCatalogue) -> Result<Meaning, ClusterError> {
    let mut said = said.clone();
    if let Some(code) = tpu_cores(&said, named) {
        return Err(code);
    }
    // "640 GB H100", without any count: more than one GPU has.
    if said.before.is_empty() && said.after.is_empty() && said.nodes.is_none() && said.per_node.is_none() {
        let largest =
            named.described.gpus().iter().filter_map(|&i| catalogue.gpu_at(i)).map(|e| e.marketing_gb).max();
        if let (Some((low, high)), Some(gb)) = (said.memory_gb, largest)
            && low == high
            && low >= 2.0 * gb as f64
        {
            said.total_memory_gb = Some(low);
            said.memory_gb = None;
        }
    }
    let counts: Vec<u64> = said.before.iter().chain(&said.after).copied().collect();
    // Up to eight are on one node: then only the product can be open.
    let one_node = matches!(counts.as_slice(), [n] if *n <= 8);
    let nodes_stated = said.nodes.is_some() || said.per_node.is_some() || counts.len() > 1 || one_node;
    let traits = Traits { memory_gb: said.memory_gb, form: said.form, mig: said.mig, nodes_stated };
    let product = product(named, traits, catalogue)?;
    for other in &said.also {
        let same = self::product(other, Traits::default(), catalogue)
            .is_ok_and(|p| p.entry.family == product.entry.family);
        if !same {
            return Err(two_products(named, other));
        }
    }
    let size = size_of(&said, product.entry, catalogue)?;
    let usual = catalogue.usual_links(product.entry, size.per_node);
    let pool = NodePool {
        nodes: size.nodes,
        gpus_per_node: size.per_node,
        gpu: product.gpu,
        intra_link: usual.intra,
        island_gpus: if product.entry.form == Form::Pod && size.nodes > 1 {
            size.nodes.saturating_mul(size.per_node).min(TPU_POD_CHIPS)
        } else {
            usual.island_gpus
        },
        host_link: usual.host,
        inter_link: usual.inter,
        inter_links_per_node: usual.nics_per_node,
        host_memory_bytes: None,
        usd_per_gpu_hour: None,
        price_source: None,
        free_memory_bytes: None,
    };
    let mut assumed = product.assumed;
    if said.assumed_gpu {
        assumed.push(super::text::assumed_rack());
    }
    assumed.extend(size.assumed);
    let mut warnings = product.warnings;
    warnings.extend(size.warnings);
    finish(
        &said,
        Links { pool, entry: product.entry, usual_source: usual.source },
        assumed,
        warnings,
        catalogue,
    )
}

/// Links as said, host memory, and the warnings that every pool may have.
pub(super) fn finish(
    said: &Said<'_>,
    links: Links<'_>,
    mut assumed: Vec<ClusterAssumption>,
    mut warnings: Vec<ClusterWarning>,
    catalogue: &HardwareCatalogue,
) -> Result<Meaning, ClusterError> {
    let entry = links.entry;
    let mut pool = apply_links(said, links, &mut assumed, &mut warnings, catalogue)?;
    pool.host_memory_bytes =
        said.host_memory_gb.map(|gb| Bytes::from_f64((gb * 1e9).round())).or(pool.host_memory_bytes);
    if pool.gpu.slice_of.is_some() {
        let slice = pool.gpu.clone();
        set_slices(&mut pool, slice, entry, catalogue);
        assumed.retain(|a| a.name != "intra_link");
        warnings.push(ClusterWarning {
            code: "mig_slices".to_owned(),
            message: "MIG slices have no links to each other: tensor parallelism over slices is not possible"
                .to_owned(),
        });
    }
    if let (Some(per_peer), true) = (pool.intra_link.per_peer_bytes_per_s, pool.gpus_per_node > 1) {
        let whole = (pool.intra_link.per_direction_bytes_per_s / per_peer).round() + 1.0;
        if (pool.gpus_per_node as f64) < whole {
            warnings.push(ClusterWarning {
                code: "mesh_subset".to_owned(),
                message: format!(
                    "{} of {whole} GPUs of a direct mesh: each reaches {} peers at {:.0} GB/s, less per GPU than the whole node",
                    pool.gpus_per_node,
                    pool.gpus_per_node - 1,
                    per_peer / 1e9
                ),
            });
        }
    }
    if !said.unknown.is_empty() {
        warnings.push(ClusterWarning {
            code: "words_ignored".to_owned(),
            message: format!("not understood and left out: {}", super::error::cut(&said.unknown.join(" "))),
        });
    }
    if !said.load.is_empty() {
        warnings.push(ClusterWarning {
            code: "words_ignored".to_owned(),
            message: format!(
                "not of a cluster and left out here: {}",
                super::error::cut(&said.load.join(", "))
            ),
        });
    }
    Ok(Meaning { pool, assumed, warnings })
}

/// "v5p-128": the number is cores in Google's naming of this generation.
fn tpu_cores(said: &Said<'_>, named: &Named<'_>) -> Option<ClusterError> {
    let n = said.suffix.or_else(|| {
        let digits = named.spelling.rsplit('-').next()?;
        digits.parse::<u64>().ok()
    })?;
    let lower = named.spelling.to_ascii_lowercase();
    (lower.contains("v5p") || lower.contains("v4")).then(|| {
        let message = format!("the {n} of {lower}-{n} counts cores, two a chip: is it {} chips?", n / 2);
        ClusterError::ambiguous(message, [format!("{} TPU v5p", n / 2), format!("{n} TPU v5p")])
    })
}

fn two_products(first: &Named<'_>, second: &Named<'_>) -> ClusterError {
    let message = format!(
        "\"{}\" and \"{}\" stand side by side: join groups with + or \"and\", and give each its count",
        first.spelling, second.spelling
    );
    ClusterError::ambiguous(message, [format!("8 {} + 8 {}", first.spelling, second.spelling)])
}

/// A group that names no product.
fn nameless(said: &Said<'_>, catalogue: &HardwareCatalogue) -> ClusterError {
    if let Some(word) = said
        .unknown
        .iter()
        .find(|w| !catalogue.gpu_suggestions(w).is_empty())
        .or_else(|| said.unknown.iter().find(|w| w.chars().any(|c| c.is_ascii_digit())))
    {
        return ClusterError::unknown_gpu(word, catalogue.gpu_suggestions(word));
    }
    if let Some((low, high)) = said.memory_gb.or(said.total_memory_gb.map(|gb| (gb, gb))) {
        let fits = |e: &&crate::catalogue::hardware::GpuEntry| {
            (low * 0.97..=high * 1.03).contains(&(e.marketing_gb as f64))
        };
        let candidates: Vec<String> = catalogue.gpus().filter(fits).map(|e| e.gpu.key.clone()).collect();
        let size = if low < high { format!("{low} to {high}") } else { low.to_string() };
        let message = format!("which GPU with {size} GB is it: {}?", candidates.join(", "));
        return ClusterError::ambiguous(message, candidates);
    }
    let counts: Vec<u64> = said.before.iter().chain(&said.after).copied().collect();
    if counts.is_empty()
        && said.nodes.is_none()
        && said.per_node.is_none()
        && said.racks.is_none()
        && said.trays.is_none()
    {
        let words = super::error::cut(&said.unknown.join(" "));
        return ClusterError::no_gpus(format!(
            "no GPU is named in \"{words}\"; a cluster reads like \"16 H100s\" or \"2x8xH200\""
        ));
    }
    // "8x Ascend": something was named that is not known
    if let (Some(word), false) = (said.unknown.first(), counts.is_empty()) {
        return ClusterError::unknown_gpu(word, Vec::new());
    }
    let size = match (said.nodes.or(said.trays), said.per_node.or(counts.first().copied())) {
        (Some(nodes), Some(gpus)) => format!("{nodes} nodes x {gpus}"),
        (Some(nodes), None) => format!("{nodes} nodes x 8"),
        (None, Some(gpus)) => gpus.to_string(),
        (None, None) => "8".to_owned(),
    };
    let candidates = ["H100", "H200", "B200", "A100 80GB"].map(|gpu| format!("{size} {gpu}"));
    let missing = if said.nodes.is_some() && said.per_node.is_none() && counts.is_empty() {
        "which GPU is it, and how many are in a node"
    } else {
        "which GPU is it"
    };
    ClusterError::ambiguous(format!("{missing}?"), candidates)
}
