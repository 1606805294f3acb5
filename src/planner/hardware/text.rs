//! A cluster in one normal form of text.

use std::fmt::{self, Write as _};

use super::{Cluster, NodePool};

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pool) in self.pools.iter().enumerate() {
            if i > 0 {
                f.write_str(" and ")?;
            }
            pool.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        write!(f, "{} {nodes} x {} {}", self.nodes, self.gpus_per_node, self.gpu.key)
    }
}

impl Cluster {
    /// As one would say it: "2 nodes of 8 H100", "8 H200 and 4 A100".
    #[must_use]
    pub fn in_words(&self) -> String {
        let pools = self.pools.iter().map(|pool| {
            let node = format!("{} {}", pool.gpus_per_node, pool.gpu.short_name);
            if pool.nodes == 1 { node } else { format!("{} nodes of {node}", pool.nodes) }
        });
        pools.collect::<Vec<_>>().join(" and ")
    }

    /// The cluster with its links, in words that read back to the same pools:
    /// `2 nodes x 8 h100-sxm5-80gb, nvlink4 inside, islands of 8, infiniband-ndr between nodes, 8 ports a node`.
    /// Prices and free memory are no part of it.
    #[must_use]
    pub fn full_text(&self) -> String {
        self.pools.iter().map(NodePool::full_text).collect::<Vec<_>>().join(" + ")
    }
}

impl NodePool {
    /// As [`Cluster::full_text`], of one pool.
    #[must_use]
    pub fn full_text(&self) -> String {
        let mut text = format!("{self}, {} inside, islands of {}", self.intra_link.key, self.island_gpus);
        if let Some(host) = &self.host_link {
            let _ = write!(text, ", {} between islands", host.key);
        }
        let _ = write!(text, ", {} between nodes", self.inter_link.key);
        if let Some(ports) = self.inter_links_per_node {
            let _ = write!(text, ", {ports} ports a node");
        }
        if let Some(memory) = self.host_memory_bytes {
            let _ = write!(text, ", {} bytes host memory", memory.get());
        }
        text
    }
}
