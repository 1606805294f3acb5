//! How one replica is dealt out over nodes or pods.

use super::Wanted;

/// Equal shares of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    /// Nodes, or pods, of a replica.
    pub pods: u64,
    /// GPUs of each.
    pub gpus: u64,
}

impl Spread {
    /// The largest equal shares that fit a node and cut no TP group that fits one, and no attention group either.
    /// `None` when there are none: ranks can then only be dealt out unevenly.
    pub(super) fn of(wanted: &Wanted<'_>) -> Option<Self> {
        let layout = &wanted.layout.layout;
        let replica = wanted.replica_gpus();
        let rank = layout.tp.saturating_mul(layout.pp).max(1);
        let node = wanted.gpus_per_node.max(1);
        let suits = |gpus: u64, group: u64| gpus.is_multiple_of(group.max(1)) || group.is_multiple_of(gpus);
        (1..=node.min(replica))
            .rev()
            .find(|gpus| replica.is_multiple_of(*gpus) && suits(*gpus, layout.tp) && suits(*gpus, rank))
            .map(|gpus| Self { pods: replica / gpus, gpus })
            // a share smaller than a TP group that would fit a node cuts it for nothing
            .filter(|spread| spread.gpus >= layout.tp.min(node) || spread.pods == 1)
    }

    /// Attention groups on one pod, when whole groups lie on it.
    pub(super) fn groups(self, wanted: &Wanted<'_>) -> Option<u64> {
        let rank = wanted.layout.layout.tp.saturating_mul(wanted.layout.layout.pp).max(1);
        self.gpus.is_multiple_of(rank).then_some(self.gpus / rank)
    }
}
