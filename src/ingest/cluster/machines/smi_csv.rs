//! `nvidia-smi --query-gpu=... --format=csv[,noheader][,nounits]` and `nvidia-smi -L`: one line a GPU.

use super::{Inventory, Labelled, NodeFacts, Site};
use crate::ingest::cluster::error::ClusterError;
use crate::planner::hardware::Cluster;
use crate::planner::units::Bytes;

const MAX_LINES: usize = 100_000;

/// A GPU's name, and its total and free memory in MiB.
type GpuLine = (String, Option<f64>, Option<f64>);

/// Columns by their place.
#[derive(Default)]
struct Columns {
    index: Option<usize>,
    name: Option<usize>,
    total: Option<usize>,
    free: Option<usize>,
    mig: Option<usize>,
}

/// How drivers begin the names of their products.
const MAKERS: [&str; 5] = ["NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "AMD "];

/// True for a header of the tool, or for lines that carry a GPU's name between commas.
pub(super) fn looks_like(text: &str) -> bool {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    let Some(first) = lines.next() else { return false };
    if listed(first).is_some() {
        return true;
    }
    if !first.contains(',') {
        return only_names(text);
    }
    let header = header_of(first);
    if header.name.is_some() {
        return true;
    }
    // Without a header: an index or memory beside a driver's name.
    let cells: Vec<&str> = first.split(',').map(str::trim).collect();
    let named = cells.iter().any(|c| MAKERS.iter().any(|v| c.starts_with(v)));
    let figure = cells.iter().any(|c| mib(c).is_some());
    named && figure
}

/// `--query-gpu=name`: a header of its own, or several lines that are each a driver's name.
fn only_names(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let names = match lines.as_slice() {
        ["name" | "gpu_name", names @ ..] if !names.is_empty() => names,
        names if names.len() > 1 => names,
        _ => return false,
    };
    names.iter().all(|line| MAKERS.iter().any(|maker| line.starts_with(maker)) && !line.contains(','))
}

/// "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-...)": index and name.
fn listed(line: &str) -> Option<(&str, &str)> {
    let (index, rest) = line.trim().strip_prefix("GPU ")?.split_once(':')?;
    let (name, _) = rest.split_once("(UUID:")?;
    Some((index.trim(), name.trim()))
}

fn header_of(line: &str) -> Columns {
    let mut columns = Columns::default();
    for (i, cell) in line.split(',').enumerate() {
        let name = cell.split('[').next().unwrap_or("").trim();
        match name {
            "index" => columns.index = Some(i),
            "name" | "gpu_name" => columns.name = Some(i),
            "memory.total" => columns.total = Some(i),
            "memory.free" => columns.free = Some(i),
            "mig.mode.current" => columns.mig = Some(i),
            _ => {}
        }
    }
    columns
}

/// "81559 MiB" or "81559".
fn mib(cell: &str) -> Option<f64> {
    let figure = cell.trim().trim_end_matches("MiB").trim();
    figure.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
}

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    let mut columns: Option<Columns> = None;
    let mut nodes: Vec<Vec<GpuLine>> = vec![Vec::new()];
    let mut last_index: Option<u64> = None;
    let mut inventory = Inventory::new();
    for (i, line) in text.lines().enumerate() {
        if i >= MAX_LINES {
            return Err(ClusterError::too_many(&format!("more than {MAX_LINES}")));
        }
        if line.trim().is_empty() {
            continue;
        }
        let header = header_of(line);
        if header.name.is_some() {
            // A header for each node when outputs are joined.
            columns = Some(header);
            last_index = None;
            if nodes.last().is_some_and(|n| !n.is_empty()) {
                nodes.push(Vec::new());
            }
            continue;
        }
        if line.trim_start().starts_with("MIG ") {
            let message =
                "the GPU above is cut into MIG slices: say how many of which, e.g. 7x MIG 1g.10gb of an A100";
            return Err(ClusterError::unreadable(message).at(i + 1, 1));
        }
        let cells: Vec<&str> = match listed(line) {
            Some((index, name)) => vec![index, name],
            None => line.split(',').map(str::trim).collect(),
        };
        let columns = columns.get_or_insert_with(|| guess(&cells, site));
        let cell = |at: Option<usize>| at.and_then(|i| cells.get(i)).copied();
        let Some(name) = cell(columns.name) else {
            let message = format!("expected a GPU's name in column {}", columns.name.unwrap_or(0) + 1);
            return Err(ClusterError::unreadable(message).at(i + 1, 1));
        };
        // a workstation's own screen has a chip that computes nothing
        if name.ends_with("DGX Display") {
            inventory.warn("display_left_out", format!("{name} drives a screen and is left out"));
            continue;
        }
        if cell(columns.mig).is_some_and(|mode| mode.eq_ignore_ascii_case("enabled")) {
            let message =
                format!("MIG is enabled on {name}: it is counted whole, but what runs on it sees its slices");
            inventory.warn("mig_enabled", message);
        }
        let index = cell(columns.index).and_then(|c| c.parse::<u64>().ok());
        if let (Some(now), Some(before)) = (index, last_index)
            && now <= before
        {
            nodes.push(Vec::new());
        }
        last_index = index;
        if let Some(node) = nodes.last_mut() {
            node.push((name.to_owned(), cell(columns.total).and_then(mib), cell(columns.free).and_then(mib)));
        }
    }
    for node in nodes.iter().filter(|n| !n.is_empty()) {
        add_node(node, site, &mut inventory)?;
    }
    inventory.cluster(site.catalogue, "the output lists no GPU")
}

/// Columns of an output without a header.
fn guess(cells: &[&str], site: &Site<'_>) -> Columns {
    let name = cells
        .iter()
        .position(|c| c.chars().any(|ch| ch.is_ascii_alphabetic()) && site.product(c, None).is_ok());
    let index = (cells.first().is_some_and(|c| c.parse::<u64>().is_ok_and(|n| n < 1_024)) && name != Some(0))
        .then_some(0);
    // The first large figure behind the name is the total.
    let total =
        cells.iter().enumerate().position(|(i, c)| Some(i) > name && mib(c).is_some_and(|m| m >= 4_096.0));
    Columns { index, name, total, ..Columns::default() }
}

/// A node's GPUs; different products on one host are pools of their own.
fn add_node<'c>(
    node: &[GpuLine],
    site: &Site<'c>,
    inventory: &mut Inventory<'c>,
) -> Result<(), ClusterError> {
    let mut kinds: Vec<(&GpuLine, Vec<&GpuLine>)> = Vec::new();
    for line in node {
        match kinds.iter_mut().find(|(first, _)| first.0 == line.0 && first.1 == line.1) {
            Some((_, lines)) => lines.push(line),
            None => kinds.push((line, vec![line])),
        }
    }
    for ((name, total, _), lines) in kinds {
        let labelled: Labelled<'c> = site.product(name, *total)?;
        inventory.note(&labelled);
        let free: Option<Vec<Bytes>> =
            lines.iter().map(|(_, _, free)| free.map(|m| Bytes::from_f64(m * 1_048_576.0))).collect();
        let facts = NodeFacts {
            entry: labelled.entry,
            gpu: labelled.gpu,
            gpus: lines.len() as u64,
            node_type: None,
            clique: None,
            ports: None,
            host_memory: None,
            free_memory: free,
        };
        inventory.add(facts, site.nodes);
    }
    Ok(())
}
