//! Clusters as people and machines write them, to the core's `Cluster`.
