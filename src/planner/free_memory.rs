//! GPUs of a node with different free memory: which of them the replicas take, and which layers a stage then gets.
//!
//! The caller gives the free bytes of each GPU of a node, in device order; all nodes of a pool are alike. Replicas take
//! the roomiest GPUs that lie together; all replicas of a layout are counted as their tightest, stage by stage.

use std::ops::Range;

use super::hardware::NodePool;
use super::layout::Shape;
use super::model::sharded::ShardedWeights;
use super::units::Bytes;

/// One choice of GPUs: how many replicas it seats, and the least that is free on a GPU of each stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seats {
    pub replicas: u64,
    pub free: Vec<Bytes>,
    /// Device numbers of each replica of a node, in order of rank; empty when replicas leave their node.
    pub devices: Vec<Vec<u64>>,
}

/// GPUs that form one TP group.
#[derive(Debug, Clone)]
struct Group {
    /// Device numbers, ascending.
    devices: Vec<usize>,
    /// The least that is free on one of them.
    free: Bytes,
}

/// The choices for `shape`, from most replicas to the one roomiest of each node; each further choice leaves out the
/// tightest GPUs and so has as much free in every stage, or more. `most` is what placement on links allows.
/// Empty without free memory in `pool`.
#[must_use]
pub fn seats(pool: &NodePool, shape: &Shape, most: u64) -> Vec<Seats> {
    let Some(free) = pool.free_memory_bytes.as_deref().filter(|free| !free.is_empty()) else {
        return Vec::new();
    };
    let least = free.iter().copied().min().unwrap_or(Bytes::ZERO);
    let stages = usize::try_from(shape.pp.max(1)).unwrap_or(usize::MAX).min(1 << 16);
    let everywhere = |bytes| vec![Seats { replicas: most, free: vec![bytes; stages], devices: Vec::new() }];
    let node = free.len();
    let (Ok(tp), Ok(groups)) = (
        usize::try_from(shape.tp.max(1)),
        usize::try_from(shape.pp.max(1).saturating_mul(shape.attention_dp.max(1))),
    ) else {
        return everywhere(least);
    };
    if tp > node {
        return everywhere(least);
    }
    let island = usize::try_from(pool.island_gpus.max(1)).unwrap_or(usize::MAX);
    let islands = islands(free, island, tp);
    if tp.saturating_mul(groups) > node {
        // It leaves its node: groups follow one another from node to node.
        let mut all: Vec<Group> = islands.into_iter().flatten().collect();
        all.sort_by_key(Group::first);
        if all.is_empty() {
            return everywhere(least);
        }
        let aligned = most <= 1 || groups.is_multiple_of(all.len());
        if !aligned {
            return everywhere(all.iter().map(|g| g.free).min().unwrap_or(least));
        }
        // after one round of attention groups over the node's groups the same GPUs come again
        let dealt: Vec<Group> =
            all.iter().cloned().cycle().take(groups.min(stages.saturating_mul(all.len()))).collect();
        return vec![Seats { replicas: most, free: least_by_stage(&dealt, stages), devices: Vec::new() }];
    }
    let mut runs: Vec<Run> = Vec::new();
    if tp.saturating_mul(groups) <= island {
        for groups_inside in &islands {
            runs.extend(groups_inside.chunks_exact(groups).map(|run| Run::of(run, stages)));
        }
    } else {
        let all: Vec<Group> = islands.into_iter().flatten().collect();
        runs.extend(all.chunks_exact(groups).map(|run| Run::of(run, stages)));
    }
    choices(runs, stages, pool.nodes, most)
}

/// The TP groups of each island, roomiest first. GPUs of an island are alike, so are GPUs without islands; a TP group
/// that leaves its island takes GPUs in device order.
fn islands(free: &[Bytes], island: usize, tp: usize) -> Vec<Vec<Group>> {
    let node = free.len();
    let alike = if island >= node || island <= 1 { node } else { island };
    let mut devices: Vec<(usize, Bytes)> = free.iter().copied().enumerate().collect();
    let domain = if tp > alike { node } else { alike };
    devices
        .chunks_mut(domain.max(1))
        .map(|inside| {
            if tp <= alike {
                inside.sort_by_key(|(device, bytes)| (std::cmp::Reverse(*bytes), *device));
            }
            inside
                .chunks_exact(tp)
                .map(|group| {
                    let mut devices: Vec<usize> = group.iter().map(|g| g.0).collect();
                    devices.sort_unstable();
                    Group { devices, free: group.iter().map(|g| g.1).min().unwrap_or(Bytes::ZERO) }
                })
                .collect()
        })
        .collect()
}

impl Group {
    /// Lowest device number.
    fn first(&self) -> usize {
        self.devices.first().copied().unwrap_or(0)
    }
}

/// A replica on one node, whose groups are taken in device order.
struct Run {
    /// The least that is free in each stage.
    free: Vec<Bytes>,
    /// Its devices, in order of rank.
    devices: Vec<u64>,
}

impl Run {
    fn of(run: &[Group], stages: usize) -> Self {
        let mut run = run.to_vec();
        run.sort_by_key(Group::first);
        let devices = run.iter().flat_map(|group| &group.devices).map(|device| *device as u64).collect();
        Self { free: least_by_stage(&run, stages), devices }
    }
}

/// The least that is free in each stage: the groups of a stage follow one another at its depth, attention groups outermost.
fn least_by_stage(run: &[Group], stages: usize) -> Vec<Bytes> {
    (0..stages)
        .map(|stage| {
            run.iter().skip(stage).step_by(stages.max(1)).map(|g| g.free).min().unwrap_or(Bytes::ZERO)
        })
        .collect()
}

/// The k roomiest runs of a node, for each k that differs from the next larger one.
fn choices(mut runs: Vec<Run>, stages: usize, nodes: u64, most: u64) -> Vec<Seats> {
    runs.sort_by_key(|run| std::cmp::Reverse(run.free.iter().copied().min()));
    let mut least = vec![Bytes(u64::MAX); stages];
    let mut found: Vec<Seats> = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        for (all, own) in least.iter_mut().zip(&run.free) {
            *all = (*all).min(*own);
        }
        let replicas = nodes.saturating_mul((i as u64).saturating_add(1)).min(most);
        match found.last_mut() {
            Some(last) if last.free == least => {
                last.replicas = replicas;
                last.devices.push(run.devices.clone());
            }
            last => {
                let mut devices = last.map_or_else(Vec::new, |last| last.devices.clone());
                devices.push(run.devices.clone());
                found.push(Seats { replicas, free: least.clone(), devices });
            }
        }
    }
    found.reverse();
    found
}

/// What a split by bytes depends on.
pub struct Split<'a> {
    pub weights: &'a ShardedWeights,
    /// Bytes of a GPU of each stage for weights and cache together.
    pub room: &'a [Bytes],
    /// Cache of one token in each layer.
    pub token_bytes: &'a [Bytes],
}

impl Split<'_> {
    /// The layers of each stage with which the tightest stage holds the most tokens: the largest `t` such that
    /// stages, filled in order, take all layers while `weights + t * cache of a token <= room` in each of them.
    /// `None` when the weights do not fit in any split.
    #[must_use]
    pub fn stages(&self) -> Option<Vec<Range<usize>>> {
        let mut best = self.with(0)?;
        let (mut holds, mut fails) = (0_u64, 1_u64 << 40);
        while holds.saturating_add(1) < fails {
            let tokens = holds.midpoint(fails);
            match self.with(tokens) {
                Some(stages) => {
                    best = stages;
                    holds = tokens;
                }
                None => fails = tokens,
            }
        }
        Some(best)
    }

    /// Each stage takes as many layers as it has room for with `tokens` tokens, and leaves one for each that follows.
    fn with(&self, tokens: u64) -> Option<Vec<Range<usize>>> {
        let (layers, count) = (self.token_bytes.len(), self.room.len());
        let last = count.checked_sub(1)?;
        let mut stages = Vec::with_capacity(count);
        let mut first = 0_usize;
        for (stage, room) in self.room.iter().enumerate() {
            let until = layers.checked_sub(last.saturating_sub(stage))?;
            let mut end = first;
            let mut cache = 0_u64;
            while end < until {
                let more = self.token_bytes.get(end).map_or(0, |b| b.get()).saturating_mul(tokens);
                let taken = cache.saturating_add(more);
                let next = end.saturating_add(1);
                let weights = self.weights.stage(first, next, stage == 0, stage == last).bytes;
                if weights.get().saturating_add(taken) > room.get() {
                    break;
                }
                (cache, end) = (taken, next);
            }
            if end == first {
                return None;
            }
            stages.push(first..end);
            first = end;
        }
        (first == layers).then_some(stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::layout::place::tests::pool;

    fn free(list: &[u64]) -> Vec<Bytes> {
        list.iter().copied().map(Bytes).collect()
    }

    fn seats_of(list: &[u64], island: u64, nodes: u64, shape: Shape, most: u64) -> Vec<(u64, Vec<u64>)> {
        let mut pool = pool(nodes, list.len() as u64, island);
        pool.free_memory_bytes = Some(free(list));
        seats(&pool, &shape, most)
            .into_iter()
            .map(|s| (s.replicas, s.free.iter().map(|b| b.get()).collect()))
            .collect()
    }

    #[test]
    fn stages_follow_the_devices() {
        assert_eq!(seats_of(&[16, 32], 2, 1, Shape::new(1, 2), 1), [(1, vec![16, 32])]);
        assert_eq!(seats_of(&[32, 16], 2, 1, Shape::new(1, 2), 1), [(1, vec![32, 16])]);
        assert_eq!(seats_of(&[16, 32], 2, 1, Shape::new(2, 1), 1), [(1, vec![16])]);
        // both pairs of equals, not two mixed ones
        assert_eq!(seats_of(&[16, 32, 16, 32], 4, 1, Shape::new(2, 2), 1), [(1, vec![16, 32])]);
        // bridge pairs cannot be re-dealt
        assert_eq!(seats_of(&[16, 32, 16, 32], 2, 1, Shape::new(2, 2), 1), [(1, vec![16, 16])]);
    }

    #[test]
    fn fewer_replicas_take_the_roomiest_gpus() {
        assert_eq!(seats_of(&[16, 32], 2, 1, Shape::new(1, 1), 2), [(2, vec![16]), (1, vec![32])]);
        assert_eq!(
            seats_of(&[50, 30, 50, 40], 4, 3, Shape::new(1, 1), 12),
            [(12, vec![30]), (9, vec![40]), (6, vec![50])]
        );
        assert_eq!(seats_of(&[7, 7], 2, 1, Shape::new(1, 1), 2), [(2, vec![7])]);
    }

    #[test]
    fn replicas_over_nodes_see_every_node() {
        assert_eq!(seats_of(&[16, 32], 2, 2, Shape::new(1, 4), 1), [(1, vec![16, 32, 16, 32])]);
        assert_eq!(seats_of(&[16, 32], 2, 2, Shape::new(4, 1), 1), [(1, vec![16])]);
        assert_eq!(seats_of(&[16, 32], 2, 3, Shape::new(1, 3), 2), [(2, vec![16, 16, 16])]);
    }
}
