//! A node as `amd-smi topology` and `rocm-smi --showtopo` show it: which pairs XGMI joins.

use super::super::error::ClusterError;
use super::super::request::{set_intra, usual_pool};
use super::super::text::{add_pool, checked};
use crate::catalogue::hardware::HardwareCatalogue;
use crate::planner::hardware::{Cluster, ClusterWarning};

/// GPUs of one node at most.
const MAX_GPUS: usize = 64;

/// True for the tables of AMD's tools: they title the link types.
#[must_use]
pub fn looks_like_amd(text: &str) -> bool {
    text.lines().take(400).any(titles_link_types)
}

/// "LINK TYPE TABLE:", "==== Link Type between two GPUs ===="
fn titles_link_types(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.contains("link type") && (line.contains("table") || line.contains("between"))
}

/// Nodes as the tables show one, of the GPU that the caller names.
///
/// # Errors
/// A damaged table with its place; a question when the GPU is not named.
pub fn parse_amd(
    text: &str,
    gpu: Option<&str>,
    nodes: u64,
    catalogue: &HardwareCatalogue,
) -> Result<Cluster, ClusterError> {
    let types = link_types(text)?;
    let Some(name) = gpu else {
        return Err(ClusterError::ambiguous(
            "the tables do not name the GPU: which one is it?",
            ["mi300x", "mi325x", "mi355x", "mi250x"],
        ));
    };
    let entry = catalogue
        .gpu_entry(name)
        .ok_or_else(|| ClusterError::unknown_gpu(name, catalogue.gpu_suggestions(name)))?;
    let gpus = types.len();
    let mut pool = usual_pool(entry, nodes, gpus as u64, catalogue);
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String| {
        warnings.push(ClusterWarning { code: code.to_owned(), message });
    };
    let islands = xgmi_islands(&types);
    let largest = islands.iter().copied().max().unwrap_or(1);
    if gpus > 1 && largest == 1 {
        if pool.intra_link.key.starts_with("xgmi") {
            warn(
                "no_xgmi",
                format!(
                    "no pair has XGMI, though {} is a module with it: planned as printed",
                    entry.gpu.name
                ),
            );
        }
        set_intra(&mut pool, catalogue.pcie_of(entry), entry, catalogue);
    } else if largest < gpus {
        let sizes: Vec<String> = islands.iter().map(ToString::to_string).collect();
        warn(
            "island_smaller_than_node",
            format!("XGMI islands of {} GPUs in a node of {gpus}", sizes.join(" + ")),
        );
        pool.island_gpus = largest as u64;
        pool.host_link = Some(catalogue.pcie_of(entry));
    } else if gpus > 1 && !pool.intra_link.key.starts_with("xgmi") {
        warn(
            "gpu_mismatch",
            format!("the tables show XGMI, which {} does not have: is it another GPU?", entry.gpu.name),
        );
    }
    let mut cluster = Cluster { pools: Vec::new(), assumed: Vec::new(), warnings };
    add_pool(&mut cluster, pool);
    checked(cluster)
}

/// For each GPU, whether XGMI joins it to each other one. Hops are not looked at: they are 1 for every XGMI pair,
/// direct or not (https://github.com/ROCm/rocm-systems/issues/5763).
fn link_types(text: &str) -> Result<Vec<Vec<bool>>, ClusterError> {
    let mut lines = text.lines().enumerate().skip_while(|(_, l)| !titles_link_types(l)).skip(1);
    let (head_line, names): (usize, Vec<&str>) = lines
        .by_ref()
        .find(|(_, l)| !l.trim().is_empty())
        .map(|(i, l)| (i, l.split_whitespace().collect()))
        .ok_or_else(|| ClusterError::unreadable("the table of link types has no header"))?;
    if names.is_empty() || names.len() > MAX_GPUS {
        return Err(ClusterError::unreadable(format!(
            "the table names {} GPUs; expected 1 to {MAX_GPUS}",
            names.len()
        ))
        .at(head_line + 1, 1));
    }
    let mut types = Vec::new();
    for (i, line) in lines.take_while(|(_, l)| !l.trim().is_empty()).take(names.len()) {
        let mut cells = line.split_whitespace();
        let row = cells.next().unwrap_or("");
        if names.get(types.len()) != Some(&row) {
            return Err(ClusterError::unreadable(format!(
                "\"{}\" stands where the row of {} should be",
                super::super::error::cut(row),
                names.get(types.len()).map_or("no GPU", |n| n)
            ))
            .at(i + 1, 1));
        }
        let joined: Vec<bool> = cells.map(|cell| cell.eq_ignore_ascii_case("XGMI")).collect();
        if joined.len() != names.len() {
            return Err(ClusterError::unreadable(format!(
                "{row} has {} link types for {} GPUs",
                joined.len(),
                names.len()
            ))
            .at(i + 1, line.len().max(1)));
        }
        types.push(joined);
    }
    if types.len() != names.len() {
        return Err(ClusterError::unreadable(format!(
            "{} of {} rows of link types are there",
            types.len(),
            names.len()
        ))
        .at(head_line + 1, 1));
    }
    Ok(types)
}

/// Sizes of the groups that XGMI joins, largest first.
fn xgmi_islands(types: &[Vec<bool>]) -> Vec<usize> {
    let joined = |a: usize, b: usize| types.get(a).and_then(|row| row.get(b)).copied().unwrap_or(false);
    let mut seen = vec![false; types.len()];
    let mut sizes = Vec::new();
    for start in 0..types.len() {
        let mut open = vec![start];
        let mut size = 0;
        while let Some(gpu) = open.pop() {
            let Some(mark) = seen.get_mut(gpu).filter(|mark| !**mark) else { continue };
            *mark = true;
            size += 1;
            open.extend((0..types.len()).filter(|other| joined(gpu, *other) || joined(*other, gpu)));
        }
        if size > 0 {
            sizes.push(size);
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}
