//! Several pools together.

use serde::Serialize;
use utoipa::ToSchema;

use super::Layout;

/// The best layout of each pool, and what they hold together. The load is dealt over the pools by what they hold.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Fleet {
    /// The fleet in one sentence.
    pub answer: String,
    /// One entry per pool in which the model fits, in the order of the request. Each alone is the
    /// "one pool only" alternative.
    pub pools: Vec<FleetPool>,
    /// Over all pools.
    pub kv_tokens_total: u64,
    pub sequences_total: u64,
    pub output_tokens_per_s: f64,
    /// The longest single sequence: the roomiest replica's.
    pub max_sequence_tokens: u64,
    /// GPUs in use, and not.
    pub gpus: u64,
    pub idle_gpus: u64,
}

/// One pool's part of a [`Fleet`].
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FleetPool {
    /// Place of the pool in `cluster.node_pools`.
    pub pool: u64,
    pub layout: Layout,
    pub kv_tokens_total: u64,
    pub sequences_total: u64,
    pub max_sequence_tokens: u64,
    /// Requests at once that it takes of the whole load.
    pub concurrency: u64,
    pub output_tokens_per_s: f64,
    pub tpot_ms: f64,
}
