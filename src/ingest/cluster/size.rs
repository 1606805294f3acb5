//! How many nodes of how many GPUs: from the counts of a text, and from what is usual where it is silent.

use super::error::{ClusterError, cut};
use super::said::Said;
use crate::catalogue::hardware::{Form, GpuEntry, HardwareCatalogue};
use crate::planner::hardware::{ClusterAssumption, ClusterWarning};

/// Trays of one NVL72 rack, and their GPUs.
const TRAYS_OF_A_RACK: u64 = 18;

/// At most one GPU in this many may be left over when full nodes are assumed; with more, the text is asked about.
const LEFT_OVER_SHARE: u64 = 10;

/// Nodes and GPUs of a node.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub nodes: u64,
    pub per_node: u64,
    pub assumed: Vec<ClusterAssumption>,
    pub warnings: Vec<ClusterWarning>,
}

/// The counts of a group of `entry`.
pub(super) fn size_of(
    said: &Said<'_>,
    entry: &GpuEntry,
    catalogue: &HardwareCatalogue,
) -> Result<Size, ClusterError> {
    let (usual, why) = match catalogue.usual_node_size(entry) {
        // Slices are counted, seven to a GPU at most.
        (n, _) if said.mig.is_some() => (n.saturating_mul(7), format!("slices of the {n} GPUs of one node")),
        usual => usual,
    };
    let counter = Counter { said, entry, usual, why };
    let size = counter.size()?;
    match size.nodes.checked_mul(size.per_node) {
        Some(0) => Err(ClusterError::no_gpus("that is no GPU at all")),
        Some(n) if n <= super::MAX_GPUS => Ok(size),
        Some(n) => Err(ClusterError::too_many(&n.to_string())),
        None => Err(ClusterError::too_many(&format!("{} x {}", size.nodes, size.per_node))),
    }
}

struct Counter<'s, 'c> {
    said: &'s Said<'c>,
    entry: &'s GpuEntry,
    /// GPUs of a usual node, and why.
    usual: u64,
    why: String,
}

impl Counter<'_, '_> {
    fn size(&self) -> Result<Size, ClusterError> {
        let said = self.said;
        let mut counts: Vec<u64> =
            said.before.iter().chain(&said.after).chain(&said.suffix).copied().collect();
        if let Some(n) = said.superchips {
            if self.entry.form != Form::Superchip {
                return Err(ClusterError::unreadable(format!(
                    "{} is not a superchip",
                    self.entry.gpu.short_name
                )));
            }
            // A Grace Blackwell superchip carries two GPUs, a Grace Hopper one.
            counts.push(n.saturating_mul(if self.in_rack() { 2 } else { 1 }));
        }
        if counts.contains(&0) || said.nodes == Some(0) || said.per_node == Some(0) {
            return Err(ClusterError::no_gpus("zero GPUs: nothing can be planned on them"));
        }
        if let Some(n) = said.stray.filter(|_| said.nodes.is_none() && said.per_node.is_none()) {
            return Err(self.what_counts(n));
        }
        if let Some(size) = self.racks(&counts)? {
            return Ok(size);
        }
        // "half a node of H100s"
        if said.half
            && said.nodes == Some(1)
            && said.per_node.is_none()
            && counts.is_empty()
            && self.usual > 1
        {
            return Ok(exact(1, self.usual / 2));
        }
        let nodes = said.nodes.or(said.trays);
        match (nodes, said.per_node, counts.as_slice()) {
            (Some(nodes), Some(per_node), []) => Ok(exact(nodes, per_node)),
            (Some(nodes), Some(per_node), [total]) if nodes.checked_mul(per_node) == Some(*total) => {
                Ok(exact(nodes, per_node))
            }
            (Some(nodes), Some(per_node), [total]) => Err(self.contradiction(&format!(
                "{nodes} nodes x {per_node} are {} GPUs, not {total}",
                nodes.saturating_mul(per_node)
            ))),
            (Some(nodes), None, []) => Ok(exact(nodes, self.usual).assuming(
                "gpus_per_node",
                self.usual.to_string(),
                self.why.clone(),
            )),
            (Some(nodes), None, [n]) => self.over_nodes(*n, nodes),
            (None, Some(per_node), []) => Ok(exact(1, per_node).assuming(
                "nodes",
                "1".to_owned(),
                "the number of nodes is not stated".to_owned(),
            )),
            (None, Some(per_node), [total]) => self.by_node_size(*total, per_node),
            (None, None, []) => self.uncounted(),
            (None, None, [total]) => self.split(*total),
            // "8xH100 x2": a full node, twice
            (None, None, [a, b]) if said.before.len() < 2 && *a == self.usual && *b != self.usual => {
                Ok(exact(*b, *a))
            }
            // "H100 2x8"
            (None, None, [a, b]) if *b == self.usual => Ok(exact(*a, *b)),
            (None, None, [a, b]) if said.before.len() == 2 || said.before.len() == 1 => Ok(exact(*a, *b)),
            // "H100 x 8 x 2": the node first
            (None, None, [a, b]) => Ok(exact(*b, *a)),
            (Some(n), None, [a, b]) if n == *a || n == *b => Ok(exact(n, if n == *a { *b } else { *a })),
            _ => Err(self.contradiction("there are more numbers than nodes, GPUs of a node and a total")),
        }
    }

    /// True for GPUs whose NVLink domain is a rack of trays.
    fn in_rack(&self) -> bool {
        self.entry.form == Form::Superchip && self.entry.family.starts_with("gb")
    }

    fn short(&self) -> &str {
        &self.entry.gpu.short_name
    }

    /// "2 racks of GB300"
    fn racks(&self, counts: &[u64]) -> Result<Option<Size>, ClusterError> {
        let Some(racks) = self.said.racks else { return Ok(None) };
        if racks == 0 {
            return Err(ClusterError::no_gpus("zero racks: nothing can be planned on them"));
        }
        if !self.in_rack() {
            if let ([total], None, None) = (counts, self.said.nodes, self.said.per_node) {
                return self.split(*total).map(Some);
            }
            if self.said.nodes.is_some() || self.said.per_node.is_some() {
                return Ok(None);
            }
            let message =
                format!("how many {} are in a rack? A rack has a fixed size only for NVL72", self.short());
            let candidates = [4, 8]
                .map(|n| format!("{} nodes x {} {}", racks.saturating_mul(n), self.usual, self.short()));
            return Err(ClusterError::ambiguous(message, candidates));
        }
        let trays = racks.saturating_mul(TRAYS_OF_A_RACK) / if self.said.half { 2 } else { 1 };
        let all = trays.saturating_mul(self.usual);
        match counts {
            [] => Ok(Some(exact(trays, self.usual).assuming(
                "nodes",
                trays.to_string(),
                format!("a rack has {TRAYS_OF_A_RACK} trays of {} GPUs", self.usual),
            ))),
            // "2 racks of 72 GB300", "144 GB300 in 2 racks"
            [n] if *n == all || n.checked_mul(racks) == Some(all) => Ok(Some(exact(trays, self.usual))),
            [n] if *n <= all => self.split(*n).map(Some),
            _ => Err(self.contradiction(&format!("{racks} racks hold {all} GPUs"))),
        }
    }

    /// `n` GPUs beside `nodes` nodes: of each node, or over all of them.
    fn over_nodes(&self, n: u64, nodes: u64) -> Result<Size, ClusterError> {
        let total = n.is_multiple_of(nodes).then(|| n / nodes);
        let named_first = self.said.before.len() == 1 && self.said.total_over_nodes;
        let bare = self.said.nodes_behind && !self.said.multiplied && self.said.before.len() == 1;
        if bare
            && nodes > 1
            && n <= self.usual
            && let Some(each) = total.filter(|each| *each > 0)
        {
            let short = self.short();
            let message = format!("are {n} {short} in each of the {nodes} nodes, or {each}?");
            let candidates =
                [format!("{nodes} nodes x {n} {short}"), format!("{nodes} nodes x {each} {short}")];
            return Err(ClusterError::ambiguous(message, candidates));
        }
        if named_first || n > self.usual && n > nodes && total.is_some_and(|each| each <= self.usual) {
            return match total {
                Some(each) => Ok(exact(nodes, each)),
                None => Err(self.contradiction(&format!("{n} GPUs do not divide over {nodes} nodes"))),
            };
        }
        Ok(exact(nodes, n))
    }

    /// "16 H100s, 8 a node"
    fn by_node_size(&self, total: u64, per_node: u64) -> Result<Size, ClusterError> {
        if self.said.part_of.is_some() {
            return Ok(exact(1, per_node));
        }
        if total.is_multiple_of(per_node) {
            return Ok(exact(total / per_node, per_node));
        }
        if total < per_node {
            return Err(self.contradiction(&format!("{total} GPUs do not fill a node of {per_node}")));
        }
        Ok(left_over(total, per_node, self.short()))
    }

    /// A product without any count.
    fn uncounted(&self) -> Result<Size, ClusterError> {
        if let Some(gb) = self.said.total_memory_gb {
            return self.by_memory(gb);
        }
        if let (Some(domains), Some(gpus)) = (self.said.domains, self.said.domain_gpus) {
            return self.split(domains.saturating_mul(gpus));
        }
        if self.said.vague {
            let message = format!("how many {}?", self.short());
            return Err(ClusterError::ambiguous(
                message,
                [1, 8, 16].map(|n| format!("{n} {}", self.short())),
            ));
        }
        // "acht H100": the word that was not understood may be the count
        if let (Some(word), false) = (self.said.unknown.first(), self.said.half) {
            let message = format!("how many {}? `{}` is not understood", self.short(), cut(word));
            return Err(ClusterError::ambiguous(
                message,
                [1, 8, 16].map(|n| format!("{n} {}", self.short())),
            ));
        }
        Ok(exact(1, 1).assuming("count", "1".to_owned(), "no count was given".to_owned()))
    }

    /// "640GB of H100"
    fn by_memory(&self, gb: f64) -> Result<Size, ClusterError> {
        let each = self.entry.marketing_gb as f64;
        let n = (gb / each).round();
        if n < 1.0 || (n * each - gb).abs() > gb * 0.02 {
            let near = [(gb / each).floor().max(1.0), (gb / each).ceil()];
            let message = format!("{gb} GB are not a whole number of {} of {each} GB", self.short());
            return Err(ClusterError::ambiguous(message, near.map(|n| format!("{n} {}", self.short()))));
        }
        if n > super::MAX_GPUS as f64 {
            return Err(ClusterError::too_many(&format!("{n}")));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number within 1..=MAX_GPUS"
        )]
        let size = self.split(n as u64)?;
        Ok(size.assuming("count", format!("{n}"), format!("{gb} GB in GPUs of {each} GB")))
    }

    /// A total over nodes of the usual size.
    fn split(&self, total: u64) -> Result<Size, ClusterError> {
        if total > super::MAX_GPUS {
            return Err(ClusterError::too_many(&total.to_string()));
        }
        let usual = self.usual.max(1);
        let mut size = if total <= usual {
            exact(1, total)
        } else if total.is_multiple_of(usual) {
            exact(total / usual, usual)
                .assuming(
                    "nodes",
                    (total / usual).to_string(),
                    format!("{} x {usual}: {}", total / usual, self.why),
                )
                .assuming("gpus_per_node", usual.to_string(), self.why.clone())
        } else if total % usual * LEFT_OVER_SHARE <= total {
            left_over(total, usual, self.short()).assuming(
                "gpus_per_node",
                usual.to_string(),
                self.why.clone(),
            )
        } else {
            return Err(self.which_split(total, usual));
        };
        let cards = matches!(self.entry.form, Form::Pcie | Form::Nvl);
        if total > 1 && total < usual && self.said.mig.is_none() && !cards {
            size = size.assuming(
                "gpus_per_node",
                total.to_string(),
                format!("all on one node, which usually has {usual}"),
            );
            size.warnings.push(ClusterWarning {
                code: "partial_node".to_owned(),
                message: format!(
                    "{total} {} on one node that usually has {usual}: few TP sizes divide them",
                    self.short()
                ),
            });
        } else if total > 1 && total < usual && cards {
            size = size.assuming("nodes", "1".to_owned(), "all cards in one host".to_owned());
        } else if total == usual && usual > 1 {
            size = size.assuming("nodes", "1".to_owned(), format!("one node: {}", self.why));
        }
        if self.in_rack() && self.said.superchips.is_none() && !self.said.said_gpus {
            size = size.assuming("count", total.to_string(), gpus_or_superchips(total));
        }
        Ok(size)
    }

    /// A total that full nodes do not divide: the ways it could be cut.
    fn which_split(&self, total: u64, usual: u64) -> ClusterError {
        let full = total / usual;
        let rest = total % usual;
        let short = self.short();
        let mut candidates = vec![format!("{full}x{usual} {short} + {rest} {short}")];
        candidates.extend(
            (2..usual)
                .rev()
                .filter(|n| total.is_multiple_of(*n) && *n >= 3)
                .take(3)
                .map(|n| format!("{}x{n} {short}", total / n)),
        );
        let message =
            format!("{total} {short} do not fill nodes of {usual}: is it {}?", candidates.join(", or "));
        ClusterError::ambiguous(message, candidates)
    }

    /// "16 H100 64": a number that may count GPUs of a node, or nothing of the cluster.
    fn what_counts(&self, stray: u64) -> ClusterError {
        let short = self.short();
        let first = self.said.before.iter().chain(&self.said.after).copied().next().unwrap_or(1);
        if let [nodes, per_node] = self.said.before.as_slice() {
            return ClusterError::ambiguous(
                format!("what does the {stray} behind {nodes}x{per_node} {short} count?"),
                [format!("{nodes}x{per_node} {short}")],
            );
        }
        let mut candidates = vec![format!("{first} {short}")];
        if (1..=16).contains(&stray) {
            if first > stray && first.is_multiple_of(stray) {
                candidates.push(format!("{} nodes x {stray} {short}", first / stray));
            }
            candidates.push(format!("{first} nodes x {stray} {short}"));
        }
        let message = format!("what does the {stray} behind {short} count?");
        ClusterError::ambiguous(message, candidates)
    }

    fn contradiction(&self, what: &str) -> ClusterError {
        let candidates = [format!("2 nodes x {} {}", self.usual, self.short())];
        ClusterError::ambiguous(format!("the counts of {} do not agree: {what}", self.short()), candidates)
    }
}

/// What a bare count of Grace Blackwell was taken for.
fn gpus_or_superchips(total: u64) -> String {
    let racks = if total.is_multiple_of(72) {
        format!(
            " ({} NVL72 rack{} of {TRAYS_OF_A_RACK} trays x 4)",
            total / 72,
            if total == 72 { "" } else { "s" }
        )
    } else {
        String::new()
    };
    format!(
        "counted as GPUs{racks}, as nvidia-smi does; {total} superchips would be {} GPUs",
        total.saturating_mul(2)
    )
}

fn exact(nodes: u64, per_node: u64) -> Size {
    Size { nodes, per_node, ..Size::default() }
}

/// Full nodes of `usual`; the rest is reported.
fn left_over(total: u64, usual: u64, short: &str) -> Size {
    let (full, rest) = (total / usual, total % usual);
    let mut size = exact(full, usual).assuming(
        "nodes",
        full.to_string(),
        format!(
            "{full} full nodes of {usual}; {rest} of the {total} GPUs do not fill a node and stay unused"
        ),
    );
    size.warnings.push(ClusterWarning {
        code: "gpus_left_over".to_owned(),
        message: format!("{rest} of {total} {short} do not fill a node of {usual} and are left out"),
    });
    size
}

impl Size {
    fn assuming(mut self, name: &str, value: String, source: String) -> Self {
        self.assumed.push(ClusterAssumption { name: name.to_owned(), value, source });
        self
    }
}
