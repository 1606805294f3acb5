//! The memory of one GPU as the answer shows it.

use crate::planner::engine::{Item, StageItems};
use crate::planner::plan::{MemoryItem, MemorySource, MemorySummary, StageMemory};
use crate::planner::replica::{Ground, Replica};
use crate::planner::units::Bytes;

/// The memory of one GPU, by stage, with what its figures rest on.
pub(super) fn shown(ground: &Ground<'_>, replica: &Replica) -> MemorySummary {
    let given = ground.settings.kv_cache_memory_bytes.is_some();
    let stages: Vec<StageMemory> =
        (0..replica.stages.len()).filter_map(|i| stage(replica, i, given)).collect();
    let all = |s: &StageMemory| {
        [s.weights_bytes, s.activation_bytes, s.runtime_bytes, s.cuda_graph_bytes, s.state_bytes, s.kv_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    };
    let budget_bytes = match ground.settings.kv_cache_memory_bytes {
        // The cache was given outright: the budget is whatever that adds up to.
        Some(_) => stages.iter().map(all).max().unwrap_or(0),
        None => replica.budget.of(replica.capacity.binding_stage).get(),
    };
    let (smallest_utilization, largest_safe_utilization) = knobs(ground, replica);
    MemorySummary {
        gpu_bytes: ground.gpu.memory_bytes.get(),
        budget_bytes,
        smallest_utilization,
        largest_safe_utilization,
        utilization: replica.budget.utilization,
        binding_stage: replica.capacity.binding_stage as u64,
        layer_partition: replica.layer_partition.clone(),
        stages,
        sources: sources(replica),
    }
}

/// The smallest and the largest safe value of the engine's knob; none where the cache was given in bytes.
fn knobs(ground: &Ground<'_>, replica: &Replica) -> (Option<f64>, Option<f64>) {
    if ground.settings.kv_cache_memory_bytes.is_some() {
        return (None, None);
    }
    let used: Vec<Bytes> = replica
        .weights
        .iter()
        .zip(&replica.budget.stages)
        .map(|(weights, items)| weights.bytes + items.total())
        .collect();
    let needed = replica.cache.bytes_for(ground.settings.max_model_len);
    let smallest = replica.budget.smallest_utilization(&used, &needed);
    (smallest, Some(replica.budget.largest_safe_utilization(ground.gpu.memory_bytes, &used)))
}

fn stage(replica: &Replica, i: usize, given: bool) -> Option<StageMemory> {
    let layers = replica.stages.get(i)?;
    let weights = replica.weights.get(i)?;
    let items = replica.budget.stages.get(i)?;
    let kv = *replica.kv_bytes.get(i)?;
    let copied = copied(kv, replica.cache.replication_factor);
    let left_free =
        if given { Bytes::ZERO } else { replica.budget.left_free(i, weights.bytes + items.total()) };
    Some(StageMemory {
        stage: i as u64,
        first_layer: layers.start as u64,
        last_layer: layers.end.saturating_sub(1) as u64,
        free_bytes: replica.budget.free.get(i).map(|bytes| bytes.get()),
        weights_bytes: weights.bytes.get(),
        weights_replicated_bytes: weights.replicated_bytes.get(),
        activation_bytes: items.activation.bytes.get(),
        runtime_bytes: (items.runtime.bytes + items.buffers.bytes + items.drafter.bytes).get(),
        cuda_graph_bytes: items.cuda_graph.bytes.get(),
        state_bytes: 0,
        state_bytes_per_sequence: replica
            .cache
            .state_bytes
            .get(i)
            .map(|bytes| bytes.get())
            .filter(|bytes| *bytes > 0),
        left_free_bytes: Some(left_free.get()).filter(|bytes| *bytes > 0),
        kv_bytes: kv.get(),
        kv_distinct_bytes: (kv - copied).get(),
        kv_copied_bytes: copied.get(),
        kv_bytes_per_token: replica.cache.token_bytes.get(i)?.get(),
        items: named(items).map(|(name, item)| shown_item(name, item)).collect(),
    })
}

/// The part of a GPU's cache that is no first copy: with each byte held `factor` times over the replica's ranks, a share
/// of `1 − 1 / factor` on each.
fn copied(kv: Bytes, factor: f64) -> Bytes {
    if factor > 1.0 { Bytes::from_f64((kv.as_f64() * (1.0 - 1.0 / factor)).round()) } else { Bytes::ZERO }
}

/// The items under their names in the answer.
fn named(items: &StageItems) -> impl Iterator<Item = (&'static str, Item)> {
    let drafter = (items.drafter.bytes > Bytes::ZERO).then_some(("drafter", items.drafter));
    let always = [
        ("activation", items.activation),
        ("runtime", items.runtime),
        ("buffers", items.buffers),
        ("cuda_graph", items.cuda_graph),
    ];
    always.into_iter().chain(drafter)
}

fn shown_item(name: &'static str, item: Item) -> MemoryItem {
    MemoryItem { name, bytes: item.bytes.get(), low_bytes: item.low.get(), high_bytes: item.high.get() }
}

/// What the items rest on: each text once, with its stages where others have another.
fn sources(replica: &Replica) -> Vec<MemorySource> {
    let all = &replica.budget.stages;
    let mut found: Vec<(MemorySource, Vec<u64>)> = Vec::new();
    for (stage, items) in (0_u64..).zip(all) {
        for (name, item) in named(items) {
            let same = |s: &MemorySource| (s.name, s.basis, s.source) == (name, item.basis, item.source);
            match found.iter_mut().find(|(source, _)| same(source)) {
                Some((_, stages)) => stages.push(stage),
                None => {
                    let source = MemorySource { name, basis: item.basis, source: item.source, stages: None };
                    found.push((source, vec![stage]));
                }
            }
        }
    }
    found
        .into_iter()
        .map(|(source, stages)| {
            let stages = (stages.len() < all.len()).then_some(stages);
            MemorySource { stages, ..source }
        })
        .collect()
}
