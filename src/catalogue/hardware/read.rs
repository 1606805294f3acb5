//! From the files of `data/hardware` to the catalogue. Figures are taken as they stand; what is derived is flagged.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::usable_memories;
use super::names::{Name, NameIndex, squash};
use super::rows::{GpuFile, GpuRow, LinkFile, LinkRow, NodeFile, Tflops};
use super::{Form, GpuEntry, GpuFabric, HardwareCatalogue, Incomplete, LinkEntry, NodeType, fabric};
use crate::planner::hardware::{Gpu, Link, LinkScope, PeakFlops};
use crate::planner::units::Bytes;

const GPUS: &str = include_str!("../../../data/hardware/gpus.json");
const LINKS: &str = include_str!("../../../data/hardware/links.json");
const NODES: &str = include_str!("../../../data/hardware/nodes.json");

/// Parse the embedded files.
pub(super) fn embedded() -> Result<HardwareCatalogue, serde_json::Error> {
    let mut gpu_file: GpuFile = serde_json::from_str(GPUS)?;
    let ambiguous = std::mem::take(&mut gpu_file.ambiguous_names);
    let link_file: LinkFile = serde_json::from_str(LINKS)?;
    let node_file: NodeFile = serde_json::from_str(NODES)?;

    let links =
        link_file.links.into_iter().map(|row| link_entry(row, &link_file.sources)).collect::<Vec<_>>();
    let (gpus, incomplete) = gpu_entries(gpu_file);
    let nodes = node_types(node_file, &links);

    let mut names = NameIndex::default();
    // Node types first: a cloud family such as "p5" must not be taken for the GPU inside it.
    for (i, node) in nodes.iter().enumerate() {
        for name in std::iter::once(&node.key).chain(&node.aliases) {
            names.add(name, Name::Node(i));
        }
        // Azure's portal says Standard_ND96isr_H100_v5, people say ND96isr H100 v5.
        if let Some(short) = node.key.strip_prefix("Standard_").or_else(|| node.key.strip_prefix("standard_"))
        {
            names.add(short, Name::Node(i));
        }
    }
    // A family without a size ("p5", "a3") means any of its sizes, where nothing else has that name.
    let families: Vec<(usize, String)> =
        nodes.iter().enumerate().flat_map(|(i, n)| families_of(n).into_iter().map(move |f| (i, f))).collect();
    let unclaimed: Vec<_> = families.into_iter().filter(|(_, f)| names.exact(f).is_none()).collect();
    for (i, family) in unclaimed {
        names.add(&family, Name::Node(i));
    }
    // Listed "aliases" of a GPU that are a node's name or family ("g6e", "nvl72", "dgx spark") mean the node.
    let node_names: BTreeSet<String> = nodes
        .iter()
        .flat_map(|n| families_of(n).into_iter().chain(n.aliases.iter().cloned()))
        .map(|name| squash(&name))
        .collect();
    for (i, gpu) in gpus.iter().enumerate() {
        for name in gpu.aliases.iter().filter(|a| !node_names.contains(&squash(a))) {
            names.add(name, Name::Gpu(i));
        }
    }
    for name in ambiguous {
        for (i, _) in gpus.iter().enumerate().filter(|(_, g)| name.may_mean.contains(&g.gpu.key)) {
            names.add(&name.name, Name::Gpu(i));
        }
    }
    // A family's own name, where nobody uses it for one product, means any of the family.
    let families: Vec<(usize, String)> =
        gpus.iter().enumerate().map(|(i, g)| (i, g.family.clone())).collect();
    let unclaimed: Vec<_> = families.into_iter().filter(|(_, f)| names.exact(f).is_none()).collect();
    for (i, family) in unclaimed {
        names.add(&family, Name::Gpu(i));
    }
    for (i, gpu) in incomplete.iter().enumerate() {
        for name in std::iter::once(&gpu.key).chain(&gpu.aliases) {
            names.add(name, Name::Incomplete(i));
        }
    }
    let mut link_names = NameIndex::default();
    for (i, entry) in links.iter().enumerate() {
        for name in std::iter::once(&entry.link.key).chain(&entry.aliases) {
            link_names.add(name, Name::Link(i));
        }
    }
    Ok(HardwareCatalogue { gpus, links, nodes, nameless_figures: incomplete, names, link_names })
}

/// The shorter names of a cloud instance: "p5" of `p5.48xlarge`, "p6" of `p6-b200.48xlarge`,
/// "a2" and "a2-ultragpu" of `a2-ultragpu-8g`.
fn families_of(node: &NodeType) -> Vec<String> {
    let ends: &[char] = match node.cloud.as_deref() {
        Some("AWS") => &['.'],
        Some("GCP") => &['-'],
        _ => return Vec::new(),
    };
    let mut families: Vec<String> =
        node.key.match_indices(ends).filter_map(|(at, _)| node.key.get(..at)).map(str::to_owned).collect();
    families.extend(node.key.split_once('-').map(|(first, _)| first.to_owned()));
    families.sort();
    families.dedup();
    families
}

/// "MLNET/AIC" to the sources themselves; text that is no key is kept.
fn resolve(text: &str, keys: &BTreeMap<String, String>) -> String {
    if let Some(source) = keys.get(text) {
        return source.clone();
    }
    let parts: Option<Vec<&str>> = text.split('/').map(|k| keys.get(k.trim()).map(String::as_str)).collect();
    if let Some(parts) = parts {
        return parts.join("; ");
    }
    match text.split_once(' ') {
        Some((key, rest)) if keys.contains_key(key) => format!("{} {rest}", resolve(key, keys)),
        _ => text.to_owned(),
    }
}

fn link_entry(row: LinkRow, sources: &BTreeMap<String, String>) -> LinkEntry {
    let scope = match row.scope.split([' ', ',', '+', '/']).next().unwrap_or("") {
        "pair" => LinkScope::Pair,
        "rack" => LinkScope::Rack,
        "inter-node" => LinkScope::Fabric,
        _ => LinkScope::Node,
    };
    LinkEntry {
        link: Link {
            key: row.key,
            name: row.name,
            scope,
            per_direction_bytes_per_s: row.per_direction_gbps * 1e9,
            bidirectional_bytes_per_s: row.bidir_gbps * 1e9,
            per_peer_bytes_per_s: row.per_peer_per_direction_gbps.map(|g| g * 1e9),
            sources: row.sources.iter().map(|s| resolve(s, sources)).collect(),
        },
        aliases: row.aliases,
    }
}

fn gpu_entries(file: GpuFile) -> (Vec<GpuEntry>, Vec<Incomplete>) {
    let memory = usable_memories(&file.gpus);
    let mut entries = Vec::new();
    let mut incomplete = vec![Incomplete {
        key: "b100".to_owned(),
        aliases: vec!["nvidia b100".to_owned(), "NVIDIA-B100".to_owned()],
        missing: "no figures of a shipping part are known".to_owned(),
    }];
    for (row, memory) in file.gpus.into_iter().zip(memory) {
        let aliases = aliases_of(&row);
        let Some(bandwidth) = row.memory_bandwidth_gbps else {
            let missing = "its memory bandwidth is not known".to_owned();
            incomplete.push(Incomplete { key: row.key, aliases, missing });
            continue;
        };
        let form = form_of(&row);
        let family = family_of(&row.key);
        let mut sources: Vec<String> = row
            .sources
            .iter()
            .map(|(what, s)| format!("{what}: {}", resolve(s, &file.source_keys)))
            .collect();
        sources.push(format!("memory_bytes: {}", memory.source));
        entries.push(GpuEntry {
            gpu: Gpu {
                short_name: short_name(&family, &row.key, form),
                name: row.display_names.first().cloned().unwrap_or_else(|| row.key.clone()),
                compute_capability: row.compute_capability.as_deref().and_then(capability),
                memory_bytes: memory.bytes,
                driver_reserved_bytes: row
                    .memory
                    .driver_total_mib
                    .map_or(Bytes::ZERO, |mib| Bytes::from_f64(mib * 1_048_576.0) - memory.bytes),
                memory_assumed: memory.assumed,
                hbm_bytes_per_s: bandwidth * 1e9,
                peak_flops: peak_flops(&row.dense_tflops),
                sources,
                data_quality: row.data_quality,
                key: row.key,
                vendor: row.vendor,
                architecture: row.architecture,
                slice_of: None,
            },
            ray_name: row.names_printed.ray_accelerator_type,
            family,
            form,
            marketing_gb: row.memory.marketing_gb,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in MiB")]
            driver_total_mib: row.memory.driver_total_mib.map(|m| m as u64),
            aliases,
            pcie_generation: row.pcie.map(|p| p.generation),
            fabric: row.nvlink_or_fabric.map(|f| GpuFabric {
                generation: f.generation,
                bidirectional_gb_per_s: f.bidir_gbps,
                links: f.links,
            }),
            notes: row.notes.unwrap_or_default(),
        });
    }
    (entries, incomplete)
}

fn aliases_of(row: &GpuRow) -> Vec<String> {
    let printed = &row.names_printed;
    let mut names = vec![row.key.clone()];
    names.extend(row.aliases.iter().cloned());
    names.extend(printed.nvidia_smi_or_driver.iter().cloned());
    names.extend(printed.k8s_gpu_product_label.iter().cloned());
    names.extend(row.display_names.iter().cloned());
    // People leave out the maker.
    let makers = ["NVIDIA ", "NVIDIA-", "AMD Instinct ", "AMD ", "Tesla ", "Intel ", "Google "];
    let bare: Vec<String> = names
        .iter()
        .filter_map(|n| makers.iter().find_map(|m| n.strip_prefix(m)))
        .map(str::to_owned)
        .collect();
    names.extend(bare);
    names.extend(printed.gke_accelerator_label.iter().cloned());
    names.extend(printed.aws_api_gpu_name.iter().cloned());
    names
}

fn peak_flops(t: &Tflops) -> PeakFlops {
    let flops = |tera: Option<f64>| tera.map(|t| t * 1e12);
    PeakFlops {
        fp16: flops(t.fp16),
        bf16: flops(t.bf16),
        fp8: flops(t.fp8),
        fp4: flops(t.fp4),
        int8: flops(t.int8),
    }
}

fn capability(text: &str) -> Option<(u8, u8)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn form_of(row: &GpuRow) -> Form {
    if row.key.contains("-nvl") {
        return Form::Nvl;
    }
    match row.form_factor.as_str() {
        f if f.starts_with("SXM") => Form::Sxm,
        "OAM" => Form::Oam,
        "Superchip" => Form::Superchip,
        "SoC" => Form::Soc,
        "pod" => Form::Pod,
        _ => Form::Pcie,
    }
}

/// The key without form factor and memory: `a100-sxm4-80gb` is of the family `a100`.
pub(super) fn family_of(key: &str) -> String {
    let is_variant = |part: &str| {
        part.starts_with("sxm")
            || matches!(part, "pcie" | "nvl" | "3e" | "server" | "workstation")
            || part.strip_suffix("gb").is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()))
    };
    key.split('-').filter(|part| !is_variant(part)).collect::<Vec<_>>().join("-")
}

fn short_name(family: &str, key: &str, form: Form) -> String {
    let mut name = match family.split_once("gaudi") {
        Some((_, generation)) => format!("Gaudi {generation}"),
        None if family.starts_with("tpu-") => family.replacen("tpu-", "TPU ", 1),
        None => family.to_uppercase().replace('-', " ").replace(" ADA", " Ada"),
    };
    if key.contains("-3e") {
        name.push_str("-3e");
    }
    match form {
        Form::Nvl => name.push_str(" NVL"),
        Form::Pcie if key.contains("-pcie") => name.push_str(" PCIe"),
        _ => {}
    }
    name
}

fn node_types(file: NodeFile, links: &[LinkEntry]) -> Vec<NodeType> {
    let listed = |key: &str| links.iter().map(|e| &e.link).find(|l| l.key == key);
    let keys = &file.source_keys;
    let by_name: BTreeMap<String, &str> = links
        .iter()
        .flat_map(|e| {
            std::iter::once(&e.link.key).chain(&e.aliases).map(|name| (squash(name), e.link.key.as_str()))
        })
        .collect();
    let public_link = |name: Option<String>| {
        let wanted = squash(&name?);
        by_name.get(wanted.strip_suffix("pairs").unwrap_or(&wanted)).map(|key| (*key).to_owned())
    };
    let network = |words: Option<&str>, gbit: Option<f64>, ports: Option<u64>, gpus: u64| {
        fabric::of_network(fabric::Network { words: words?, gbit_per_node: gbit?, ports, gpus }, listed)
    };
    let platforms = file.platforms.into_iter().map(|row| {
        let net =
            network(row.fabric.as_deref(), row.network_gbit_per_node, row.nics_per_node, row.gpus_per_node);
        // "8xh100" is a count and a name, not a name.
        let aliases = row.names.into_iter().chain(row.aliases);
        NodeType {
            aliases: aliases
                .filter(|a| !a.starts_with(|c: char| c.is_ascii_digit()) && a != "gh200")
                .collect(),
            key: row.key,
            cloud: None,
            gpu: row.gpu,
            gpus_per_node: row.gpus_per_node,
            intra_link: public_link(row.intra_link),
            island_gpus: row.nvlink_domain_gpus,
            nics_per_node: net.as_ref().map(|n| n.1),
            inter_link: net.map(|n| n.0),
            usd_per_gpu_hour: None,
            price_source: None,
            sources: row.sources.iter().map(|s| resolve(s, keys)).collect(),
            notes: row.notes,
        }
    });
    let instances = file.cloud_instances.into_iter().map(|row| {
        let net = network(row.fabric.as_deref(), row.network_gbit_per_node, row.nics, row.gpus);
        let price_source = row.price_usd_per_gpu_hour.map(|_| {
            format!(
                "{} {} price, {} ({})",
                row.cloud,
                row.price_kind.as_deref().unwrap_or("list"),
                row.price_date.as_deref().unwrap_or("undated"),
                row.price_source.as_deref().map_or_else(String::new, |s| resolve(s, keys)),
            )
        });
        NodeType {
            key: row.instance_type,
            aliases: row.aliases,
            cloud: Some(row.cloud),
            gpu: row.gpu,
            gpus_per_node: row.gpus,
            intra_link: public_link(row.intra_link),
            island_gpus: row.nvlink_domain_gpus,
            nics_per_node: net.as_ref().map(|n| n.1),
            inter_link: net.map(|n| n.0),
            usd_per_gpu_hour: row.price_usd_per_gpu_hour,
            price_source,
            sources: row.sources.iter().map(|s| resolve(s, keys)).collect(),
            notes: row.notes,
        }
    });
    platforms.chain(instances).collect()
}
