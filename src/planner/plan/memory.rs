//! The memory of one GPU, stage by stage.

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::estimate::Basis;

/// One GPU's memory, for each pipeline stage.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemorySummary {
    /// What the driver gives.
    pub gpu_bytes: u64,
    /// What the engine may use of it; on the binding stage, where the stages have different free memory.
    pub budget_bytes: u64,
    /// The smallest value of the engine's knob (`gpu_memory_utilization`, `mem_fraction_static`,
    /// `free_gpu_memory_fraction`) with which it starts: every stage then holds one request of `max_model_len`. Left
    /// out when no value up to 1 is enough, or the cache was given in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_utilization: Option<f64>,
    /// The largest value that leaves room for what lives outside the budget: context, communicators, and the graphs of
    /// releases that do not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_safe_utilization: Option<f64>,
    /// The engine's own knob of memory for this layout, given or derived: `gpu_memory_utilization`, `mem_fraction_static`,
    /// `free_gpu_memory_fraction`.
    pub utilization: f64,
    /// The stage that holds the fewest blocks.
    pub binding_stage: u64,
    /// Layers of each stage where they follow the free memory and not the engine's own split: start it with these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_partition: Option<Vec<u64>>,
    pub stages: Vec<StageMemory>,
    /// What the items of the stages rest on, each text once.
    pub sources: Vec<MemorySource>,
}

/// The bytes of one GPU of a stage. The items sum to `budget_bytes`, or to `free_bytes` where that is less.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StageMemory {
    pub stage: u64,
    pub first_layer: u64,
    pub last_layer: u64,
    /// What the tightest GPU of the stage has free for the engine's budget, where the caller measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    pub weights_bytes: u64,
    /// Of those, bytes that every rank of the stage holds whole.
    pub weights_replicated_bytes: u64,
    pub activation_bytes: u64,
    pub runtime_bytes: u64,
    pub cuda_graph_bytes: u64,
    /// A pool of recurrent states kept apart from the cache (0 where the engine keeps them in cache pages).
    pub state_bytes: u64,
    /// Recurrent states of one sequence on this GPU, wherever the engine keeps them; left out where the stage has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bytes_per_sequence: Option<u64>,
    /// What `free_gpu_memory_fraction` leaves free of the memory that weights and a dummy run leave; left out where the engine's
    /// knob shares out the whole GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_free_bytes: Option<u64>,
    /// What is left for the cache. Engines that keep states in cache pages keep them here.
    pub kv_bytes: u64,
    /// Of those, first copies.
    pub kv_distinct_bytes: u64,
    /// The rest, what the GPUs of the replica hold beyond one copy of each token: `kv_bytes × (1 − 1 / replication_factor)`.
    pub kv_copied_bytes: u64,
    pub kv_bytes_per_token: u64,
    /// What stands behind the figures above that are neither weights nor cache.
    pub items: Vec<MemoryItem>,
}

/// One item of memory with its interval; `sources` says what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemoryItem {
    /// `activation`, `runtime`, `buffers` (counted with `runtime_bytes`), `cuda_graph`.
    pub name: &'static str,
    pub bytes: u64,
    pub low_bytes: u64,
    pub high_bytes: u64,
}

/// What the figures of one item rest on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MemorySource {
    /// Name of the item.
    pub name: &'static str,
    pub basis: Basis,
    pub source: &'static str,
    /// The stages that it holds for; left out when it holds for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<u64>>,
}
