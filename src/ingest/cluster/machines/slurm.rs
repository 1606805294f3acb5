//! Slurm: `scontrol show node`, `sinfo -h -o "%n %G"`, `slurm.conf`, `gres.conf` and `topology.conf` lines.

use super::{Inventory, NodeFacts, Site, slurm_topology};
use crate::catalogue::hardware::Form;
use crate::ingest::cluster::error::{ClusterError, cut};
use crate::planner::hardware::Cluster;

const MAX_LINES: usize = 200_000;
/// Hosts of one range at most.
const MAX_RANGE: u64 = 1_000_000;

/// True for key=value node records and for tables of nodes with gres.
pub(super) fn looks_like(text: &str) -> bool {
    let record = text.lines().take(50).any(|l| {
        let l = l.trim_start();
        l.starts_with("NodeName=") || l.starts_with("Name=gpu") || slurm_topology::is_topology(l)
    });
    record
        || is_bare_sinfo(text)
        || text.lines().filter(|l| !l.trim().is_empty()).take(50).any(|l| table_row(l).is_some())
}

/// `sinfo` as it prints by itself: partitions and nodes, and nothing of GPUs.
fn is_bare_sinfo(text: &str) -> bool {
    let head = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let has = |name: &str| head.split_whitespace().any(|cell| cell == name);
    has("PARTITION") && has("NODES") && has("NODELIST") && Header::of(head).is_none()
}

/// "node-13 gpu:h100:8" or "gpu-[01-04] gpu:a100:4(S:0-1)": a host and its gres.
fn table_row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.split_whitespace();
    let host = cells.next()?;
    let gres = cells.find(|c| c.starts_with("gpu:") || c.contains(",gpu:"))?;
    let named = !host.contains("gpu:")
        && !host.starts_with('-')
        && !host.contains('=')
        && host.chars().any(|c| c.is_ascii_alphabetic());
    let plain_number = host.chars().all(|c| c.is_ascii_digit() || c == 'x');
    (named && !plain_number).then_some((host, gres))
}

/// Where a table's header says that names and counts of hosts stand.
#[derive(Default)]
struct Header {
    names: Option<usize>,
    count: Option<usize>,
}

impl Header {
    /// "PARTITION NODES GRES", "NODELIST NODES GRES STATE"
    fn of(line: &str) -> Option<Self> {
        let cells = || line.split_whitespace().map(|cell| cell.split(['(', ':']).next().unwrap_or(""));
        cells().any(|cell| cell.starts_with("GRES")).then(|| Self {
            names: cells().position(|cell| matches!(cell, "NODELIST" | "HOSTNAMES" | "NODE_NAME")),
            count: cells().position(|cell| cell == "NODES"),
        })
    }

    /// Hosts of a row: by their names where there are any, else as counted; "0/4/0/4" ends in the total.
    fn hosts(&self, row: &str, host: &str) -> u64 {
        let cell = |at: Option<usize>| at.and_then(|i| row.split_whitespace().nth(i));
        let counted = || cell(self.count).and_then(|n| n.rsplit('/').next()?.parse::<u64>().ok());
        match cell(self.names) {
            Some(names) => hosts_in(names),
            None => counted().map_or_else(|| hosts_in(host), |n| n.min(MAX_RANGE)),
        }
    }
}

/// States in which a host takes no work, as `sinfo` and `scontrol` spell them.
fn is_down(state: &str) -> bool {
    let state = state.to_ascii_uppercase();
    ["DOWN", "DRAIN", "DRNG", "FAIL", "NOT_RESPONDING", "MAINT", "INVAL"]
        .iter()
        .any(|s| state.starts_with(s) || state.contains(&format!("+{s}")))
}

pub(super) fn read(text: &str, site: &Site<'_>) -> Result<Cluster, ClusterError> {
    if text.lines().count() > MAX_LINES {
        return Err(ClusterError::unreadable(format!("more than {MAX_LINES} lines")));
    }
    if is_bare_sinfo(text) {
        return Err(ClusterError::no_gpus(
            "this output of sinfo has no column of GPUs; `sinfo -N -o \"%N %G %t\"` prints each node with its gres",
        ));
    }
    let mut inventory = Inventory::new();
    let mut skipped = 0_u64;
    let topology = slurm_topology::read(text);
    let mut records = records(text);
    if records.is_empty() && topology.hosts() > 0 {
        let labelled = site.product_of_caller("topology.conf names hosts, not GPUs: it")?;
        let (gpus, why) = site.catalogue.usual_node_size(labelled.entry);
        inventory.assume("gpus_per_node", &gpus.to_string(), &why);
        let kind = Some(labelled.entry.gpu.key.clone());
        records.push(Record { line: 1, hosts: topology.hosts(), gpus: vec![(kind, gpus)], down: false });
    }
    if topology.leaves.len() > 1 {
        let message = format!(
            "{} leaf switches join {} hosts: traffic between them passes the switches above",
            topology.leaves.len(),
            topology.hosts()
        );
        inventory.warn("switch_levels", message);
    }
    for record in records {
        if record.down {
            skipped = skipped.saturating_add(record.hosts);
            continue;
        }
        for (kind, gpus) in &record.gpus {
            let labelled = match kind {
                Some(kind) => site
                    .product(kind, None)
                    .or_else(|e| if site.gpu.is_some() { site.product_of_caller("it") } else { Err(e) }),
                None => site.product_of_caller("the gres is untyped (gpu:N), so it"),
            }
            .map_err(|e| e.at(record.line, 1))?;
            inventory.note(&labelled);
            let facts = |clique: Option<String>| NodeFacts {
                entry: labelled.entry,
                gpu: labelled.gpu.clone(),
                gpus: *gpus,
                node_type: None,
                clique,
                ports: None,
                host_memory: None,
                free_memory: None,
            };
            // Blocks of trays are NVLink domains; blocks of other nodes only share switches.
            let racks = topology.block_hosts().is_some()
                && record.hosts == topology.hosts()
                && labelled.entry.form == Form::Superchip;
            if racks {
                for (name, hosts) in &topology.blocks {
                    inventory.add(facts(Some(name.clone())), *hosts);
                }
            } else {
                inventory.add(facts(None), record.hosts);
            }
        }
    }
    if skipped > 0 {
        inventory.warn("nodes_skipped", format!("{skipped} nodes are down or drained and are left out"));
    }
    inventory.cluster(site.catalogue, "no node has a gpu gres: Gres=(null) means that none is configured")
}

/// One kind of host.
struct Record {
    line: usize,
    hosts: u64,
    gpus: Vec<(Option<String>, u64)>,
    down: bool,
}

fn records(text: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut header = Header::default();
    for (i, line) in text.lines().enumerate() {
        let line_number = i + 1;
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if let Some(found) = Header::of(trimmed) {
            header = found;
            continue;
        }
        if let Some((host, gres)) = table_row(trimmed) {
            records.push(Record {
                line: line_number,
                hosts: header.hosts(trimmed, host),
                gpus: gres_gpus(gres),
                down: trimmed.split_whitespace().skip(1).any(is_down),
            });
            continue;
        }
        let pairs: Vec<(&str, &str)> = trimmed.split_whitespace().filter_map(|p| p.split_once('=')).collect();
        let get = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        if let Some(host) = get("NodeName") {
            records.push(Record { line: line_number, hosts: hosts_in(host), gpus: Vec::new(), down: false });
        } else if get("Name") == Some("gpu") {
            records.push(Record { line: line_number, hosts: 1, gpus: Vec::new(), down: false });
        }
        let Some(record) = records.last_mut() else { continue };
        if get("Name") == Some("gpu") {
            // gres.conf: a line for each device, or one for a range of devices.
            let devices =
                get("Count").and_then(|n| n.parse().ok()).or_else(|| get("File").map(hosts_in)).unwrap_or(1);
            record.gpus.push((get("Type").map(str::to_owned), devices));
        }
        if let Some(gres) = get("Gres") {
            record.gpus = gres_gpus(gres);
        }
        if let (true, Some(tres)) = (record.gpus.is_empty(), get("CfgTRES")) {
            record.gpus = tres_gpus(tres);
        }
        if let Some(state) = get("State") {
            record.down = is_down(state);
        }
    }
    merge_devices(&mut records);
    records
}

/// Devices of one type listed line by line (gres.conf) are one node's.
fn merge_devices(records: &mut Vec<Record>) {
    let mut merged: Vec<Record> = Vec::new();
    for record in records.drain(..) {
        let same = |r: &Record| {
            r.hosts == 1
                && record.hosts == 1
                && r.gpus.len() == 1
                && record.gpus.len() == 1
                && r.line + 1 == record.line
                && r.gpus.first().map(|g| &g.0) == record.gpus.first().map(|g| &g.0)
                && record.gpus.first().is_some_and(|g| g.1 == 1)
        };
        match merged.last_mut() {
            Some(last) if same(last) && !record.down => {
                if let (Some(sum), Some(more)) = (last.gpus.first_mut(), record.gpus.first()) {
                    sum.1 = sum.1.saturating_add(more.1);
                    last.line = record.line;
                }
            }
            _ => merged.push(record),
        }
    }
    *records = merged;
}

/// "gpu:h100:8(S:0-1),tmp:844G", "gpu:8", "gpu:1080ti:2(IDX:0-1)"
fn gres_gpus(gres: &str) -> Vec<(Option<String>, u64)> {
    let mut plain = String::with_capacity(gres.len());
    let mut depth = 0_u32;
    for c in gres.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain
        .split(',')
        .filter_map(|part| {
            let rest = part.trim().strip_prefix("gpu:")?;
            match rest.rsplit_once(':') {
                Some((kind, n)) => Some((Some(kind.to_owned()), n.parse().ok()?)),
                None => match rest.parse() {
                    Ok(n) => Some((None, n)),
                    // "gpu:h100" is one.
                    Err(_) => Some((Some(cut(rest)), 1)),
                },
            }
        })
        .filter(|(_, n)| *n > 0)
        .collect()
}

/// "cpu=64,gres/gpu=8,gres/gpu:h100=8": the typed counts, or else the untyped total; never both.
fn tres_gpus(tres: &str) -> Vec<(Option<String>, u64)> {
    let parts = || tres.split(',').filter_map(|p| p.split_once('='));
    let typed: Vec<(Option<String>, u64)> = parts()
        .filter_map(|(k, n)| Some((Some(k.strip_prefix("gres/gpu:")?.to_owned()), n.parse().ok()?)))
        .collect();
    if !typed.is_empty() {
        return typed;
    }
    parts().filter(|(k, _)| *k == "gres/gpu").filter_map(|(_, n)| Some((None, n.parse().ok()?))).collect()
}

/// Hosts (or devices) in "node[01-04,07]", "a,b", "/dev/nvidia[0-7]"; several ranges multiply.
pub(super) fn hosts_in(list: &str) -> u64 {
    let mut total = 0_u64;
    let mut depth = 0;
    let mut start = 0;
    let mut items = Vec::new();
    for (i, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                items.push(list.get(start..i).unwrap_or(""));
                start = i + 1;
            }
            _ => {}
        }
    }
    items.push(list.get(start..).unwrap_or(""));
    for item in items.iter().filter(|i| !i.is_empty()) {
        let mut hosts = 1_u64;
        let mut rest = *item;
        while let Some((_, after)) = rest.split_once('[') {
            let Some((ranges, behind)) = after.split_once(']') else { break };
            let count: u64 = ranges.split(',').map(range_len).fold(0, u64::saturating_add);
            hosts = hosts.saturating_mul(count.max(1));
            rest = behind;
        }
        total = total.saturating_add(hosts);
    }
    total.min(MAX_RANGE)
}

fn range_len(range: &str) -> u64 {
    match range.split_once('-') {
        Some((low, high)) => match (low.trim().parse::<u64>(), high.trim().parse::<u64>()) {
            (Ok(low), Ok(high)) if high >= low => (high - low).saturating_add(1),
            _ => 1,
        },
        None => 1,
    }
}
