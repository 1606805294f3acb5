//! Slurm's `topology.conf`: a tree of switches, or blocks of nodes that one NVLink domain joins.
//! It names hosts, not GPUs; node records in the same text do, or the caller.

use super::slurm::hosts_in;

/// Hosts under each leaf switch and in each block.
#[derive(Debug, Default)]
pub(super) struct SlurmTopology {
    pub leaves: Vec<u64>,
    pub blocks: Vec<(String, u64)>,
}

impl SlurmTopology {
    pub(super) fn hosts(&self) -> u64 {
        let leaves = self.leaves.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let blocks = self.blocks.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
        leaves.max(blocks)
    }

    /// The hosts of a block that all blocks share, when there are several nodes in one.
    pub(super) fn block_hosts(&self) -> Option<u64> {
        self.blocks.iter().map(|(_, hosts)| *hosts).max().filter(|n| *n > 1)
    }
}

/// True for a line of `topology.conf`.
pub(super) fn is_topology(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("SwitchName=") || line.starts_with("BlockName=")
}

/// The switches and blocks of a text.
pub(super) fn read(text: &str) -> SlurmTopology {
    let mut topology = SlurmTopology::default();
    for line in text.lines().filter(|l| is_topology(l)) {
        let pairs = || line.split_whitespace().filter_map(|p| p.split_once('='));
        let Some((_, nodes)) = pairs().find(|(key, _)| *key == "Nodes") else { continue };
        match pairs().find(|(key, _)| *key == "BlockName") {
            Some((_, name)) => topology.blocks.push((name.to_owned(), hosts_in(nodes))),
            None => topology.leaves.push(hosts_in(nodes)),
        }
    }
    topology
}
