//! A cluster in one normal form of text.

use std::fmt;

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
