//! Everything anybody may show. The JSON of an answer, the tables of the command, Slack and the page
//! all draw from this one value; field names are the public contract.

mod fleet;
mod memory;

use serde::Serialize;
use utoipa::ToSchema;

use super::estimate::{Assumption, Estimate};
use super::latency::roof::Roof;

pub use fleet::{Fleet, FleetPool};
pub use memory::{MemoryItem, MemorySource, MemorySummary, StageMemory};

/// The answer to a [`super::input::PlanInput`].
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Plan {
    /// True when at least one layout fits.
    pub feasible: bool,
    /// The answer in one or two sentences.
    pub answer: String,
    pub model: ModelSummary,
    pub cluster: ClusterSummary,
    /// Every setting and default that the answer was computed with.
    pub request: RequestEcho,
    /// Every constant that was used.
    pub assumptions: Vec<Assumption>,
    /// Ranked, best first.
    pub layouts: Vec<RankedLayout>,
    /// Layouts that were considered, before `limit`.
    pub total_considered: u64,
    /// Of those, how many fit.
    pub total_feasible: u64,
    /// Layouts that cannot be, each with its reason, in search order.
    pub refused: Vec<RefusedLayout>,
    /// Refusals by code, all of them (the list above is cut at a limit).
    pub refused_counts: Vec<RefusedCount>,
    /// All pools of the cluster together, when there are several; a replica lives in one of them.
    pub fleet: Option<Fleet>,
    /// What to change next, best gain for its cost first; what speaks against a change stands before that.
    pub advice: Vec<Advice>,
    /// Things to know about the question itself.
    pub warnings: Vec<Warning>,
}

/// The model in brief.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelSummary {
    pub id: String,
    pub architecture: String,
    pub layers: u64,
    pub hidden_size: u64,
    pub query_heads: u64,
    pub kv_heads: u64,
    pub head_size: u64,
    /// `mha`, `gqa`, `mqa`, `mla`, `sparse_mla`, `sliding`, `chunked`, `hybrid`, `state`, `compressed`.
    pub attention: String,
    /// Distinct parameters (tied tensors once).
    pub parameters: u64,
    /// Parameters that one token passes through.
    pub active_parameters: u64,
    /// Weights of one full copy, as the engine stores them, on one GPU.
    pub weights_bytes: u64,
    /// Cache of one token over all layers, one copy. States of constant size are not in it.
    pub kv_bytes_per_token: u64,
    /// The arithmetic behind `kv_bytes_per_token`.
    pub kv_formula: String,
    /// How the weights are stored, e.g. `bf16`, `fp8 block 128x128`.
    pub quantization: String,
    pub context_length: u64,
    /// Where the configuration came from, e.g. `catalogue`, `request`, `stored`.
    pub source: String,
    pub notes: Vec<String>,
}

/// The cluster as understood.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ClusterSummary {
    pub gpus: u64,
    pub node_pools: Vec<PoolSummary>,
    /// The cluster in one normal form of text; parses to the same cluster.
    pub text: String,
    /// As one would say it: "2 nodes of 8 H100".
    pub words: String,
}

/// One pool of equal nodes.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PoolSummary {
    pub nodes: u64,
    pub gpus_per_node: u64,
    /// Catalogue key.
    pub gpu: String,
    pub gpu_name: String,
    pub gpu_memory_bytes: u64,
    pub intra_link: String,
    pub island_gpus: u64,
    pub host_link: Option<String>,
    pub inter_link: String,
    pub usd_per_gpu_hour: Option<f64>,
}

/// The question with every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RequestEcho {
    pub engines: Vec<EngineEcho>,
    pub workload: WorkloadEcho,
    pub slo: SloEcho,
    pub objective: super::input::Objective,
    pub latency_model: super::input::LatencyModel,
    pub limit: u64,
}

/// An engine with its defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EngineEcho {
    pub name: String,
    pub version: String,
    pub gpu_memory_utilization: f64,
    pub kv_cache_dtype: String,
    pub max_model_len: u64,
    pub max_num_seqs: u64,
    pub max_num_batched_tokens: u64,
    pub block_size: Option<u64>,
    pub kv_cache_memory_bytes: Option<u64>,
    pub quantization: Option<String>,
    /// Speculative decoding; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculative_config: Option<SpeculationEcho>,
}

/// Speculative decoding as the engine is started with it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SpeculationEcho {
    /// `mtp`, `eagle`, `eagle3`, `draft_model`, `ngram`; null: not named.
    pub method: Option<String>,
    /// Draft tokens of a step.
    pub num_speculative_tokens: u64,
    /// Chance that a draft token holds where those before it did.
    pub acceptance_rate: f64,
    /// False where the calibration's own rate stands for it.
    pub acceptance_rate_given: bool,
}

/// The load.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct WorkloadEcho {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub context_tokens: u64,
    /// Tokens that a sequence holds, on average, while it decodes: what TPOT reads of the cache.
    pub decode_context_tokens: u64,
    pub concurrency: u64,
    /// Share of the prompt tokens that are not computed again.
    pub prefix_cache_hit_rate: f64,
}

/// The limits.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SloEcho {
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
}

/// One layout with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RankedLayout {
    /// 1 = best.
    pub rank: u64,
    pub layout: Layout,
    pub engine: EngineName,
    pub placement: Placement,
    pub kv: KvSummary,
    pub memory: MemorySummary,
    pub capacity: Capacity,
    pub latency: Latency,
    /// Where its passes lie under the roof of its GPU.
    pub roof: Roof,
    pub throughput: Throughput,
    pub cost: Cost,
    /// True when every limit of the request holds (or there is none).
    pub meets_slo: bool,
    /// No other layout has both more tokens/s per GPU and more tokens/s per user.
    pub pareto: bool,
    pub warnings: Vec<Warning>,
    /// Why it stands here.
    pub reasons: Vec<String>,
    pub launch: Launch,
}

/// Which engine a layout is for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EngineName {
    pub name: String,
    pub version: String,
}

/// The sizes of a layout.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Layout {
    pub tp: u64,
    pub pp: u64,
    /// Independent replicas.
    pub dp: u64,
    pub ep: u64,
    pub attention_dp: u64,
    pub dcp: u64,
    /// GPUs in use.
    pub gpus: u64,
    pub idle_gpus: u64,
    pub kv_cache_dtype: String,
    /// Catalogue key of the GPUs it runs on.
    pub gpu: String,
}

impl Layout {
    /// "TP=8 × PP=2", with the other sizes where they are not 1; the words of [`super::layout::sizes`].
    #[must_use]
    pub fn name(&self) -> String {
        let mut text = format!("TP={}", self.tp);
        let others = [
            ("PP", self.pp),
            ("attention DP", self.attention_dp),
            ("EP", self.ep),
            ("DCP", self.dcp),
            ("DP", self.dp),
        ];
        for (name, size) in others.into_iter().filter(|(_, size)| *size > 1) {
            text.push_str(&format!(" × {name}={size}"));
        }
        text
    }
}

/// Where ranks sit.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Placement {
    /// The slowest link that a TP group crosses.
    pub tp_link: String,
    /// The slowest link between pipeline stages.
    pub pp_link: Option<String>,
    /// The slowest link between the ranks that share experts.
    pub ep_link: Option<String>,
    pub tp_crosses_nodes: bool,
    /// Where the GPUs of a node differ in free memory: the device numbers of each replica of a node, in order of rank.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Vec<u64>>,
}

/// The cache of one token.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct KvSummary {
    /// KV heads held by one GPU (1 for MLA).
    pub kv_heads_per_gpu: u64,
    /// How many ranks of a replica hold the same KV bytes (1 = no waste).
    pub replication_factor: f64,
    /// Bytes one token takes on the fullest GPU.
    pub bytes_per_token_per_gpu: u64,
    /// Bytes of one token, one copy.
    pub bytes_per_token_logical: u64,
    /// Bytes one token takes over all GPUs that hold some of it.
    pub bytes_per_token_cluster: u64,
}
/// What a layout holds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Capacity {
    pub kv_blocks: u64,
    /// Tokens per block.
    pub block_size: u64,
    /// What the engine prints as its cache size. With attention DP it prints one line for each group.
    pub kv_tokens_per_replica: u64,
    /// Over all replicas and attention-DP groups.
    pub kv_tokens_total: u64,
    /// The longest single sequence; DP does not raise it.
    pub max_sequence_tokens: u64,
    /// Sequences of `context_tokens` in one engine line's cache, as a fraction.
    pub sequences_at_context: f64,
    /// The same, whole sequences.
    pub sequences: u64,
    /// Whole sequences over all replicas and attention-DP groups.
    pub sequences_total: u64,
    /// What the engine prints as its maximum concurrency, at `max_model_len`.
    pub engine_max_concurrency: f64,
    /// What limits the sequences: `kv_cache` or `max_num_seqs`.
    pub bound: String,
    /// The engine's own log line.
    pub engine_log_line: String,
    /// The asked requests against what the cache and the batch admit.
    pub admission: Admission,
}

/// Requests in flight against places for them, over the deployment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct Admission {
    /// Tokens of a request at its end: `input_tokens + output_tokens`.
    pub request_tokens: u64,
    /// Requests in flight that were asked for.
    pub asked: u64,
    /// Of those, the ones that have room up to their end at the same time.
    pub admitted: u64,
    /// The others.
    pub waiting: u64,
    /// What stops the others: `none`, `kv_cache` or `max_num_seqs`.
    pub bound: String,
    /// The engine lets more start than have room up to their end, and puts running ones back when the cache is full.
    pub preemption: bool,
    /// What becomes of a request that finds the cache full: `recompute` (put back, its tokens computed again later) or `wait`
    /// (not started before there is room for all of it).
    pub when_full: String,
    /// Part of `ttft_ms` that waits for a place.
    pub slot_wait_ms: f64,
    /// A prompt, computed again by a request that was put back; 0 where none is.
    pub recompute_ms: f64,
}

/// How fast.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Latency {
    /// Time to the first token of a request of `input_tokens`.
    pub ttft_ms: Estimate,
    /// Time for each further token, at the batch of `throughput.concurrency`.
    pub tpot_ms: Estimate,
    pub decode_step_ms: f64,
    /// One prefill chunk of `max_num_batched_tokens` at `context_tokens`.
    pub prefill_chunk_ms: f64,
    pub decode_breakdown_ms: Breakdown,
    pub prefill_breakdown_ms: Breakdown,
    /// Share of a decode step spent in collectives, 0..1.
    pub communication_share: f64,
    /// The same for a prefill chunk.
    pub prefill_communication_share: f64,
    pub all_reduces_per_pass: u64,
    /// Tokens of each sequence that a decode step gives: 1, with speculative decoding 1 + a + … + a^k.
    pub tokens_per_step: f64,
    /// The largest part of a decode step: `weights`, `kv`, `compute`, `communication`, `overhead`.
    pub bound: String,
}

/// A time by part, ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, ToSchema)]
pub struct Breakdown {
    pub weights: f64,
    pub kv: f64,
    pub compute: f64,
    /// Collectives: the next two together.
    pub communication: f64,
    /// Within nodes, and within a rack-wide NVLink domain.
    pub communication_inside_nodes: f64,
    /// Over the network between nodes.
    pub communication_between_nodes: f64,
    /// Sends between pipeline stages.
    pub pipeline: f64,
    pub overhead: f64,
}

impl Breakdown {
    /// The whole. The two parts of `communication` are in it once.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.weights + self.kv + self.compute + self.communication + self.pipeline + self.overhead
    }
}

/// What comes out.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Throughput {
    /// Sequences decoded at once over the deployment: the asked concurrency, capped by what fits.
    pub concurrency: u64,
    pub output_tokens_per_s: f64,
    pub output_tokens_per_s_per_gpu: f64,
    pub requests_per_s: f64,
}

/// What it costs; null where no price is known.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Cost {
    pub usd_per_hour: Option<f64>,
    pub usd_per_million_output_tokens: Option<f64>,
}

/// A thing to know, with a stable code.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

/// How to start it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct Launch {
    pub command: String,
}

/// A layout that cannot be.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RefusedLayout {
    pub layout: RefusedShape,
    pub engine: EngineName,
    /// Stable code, e.g. `kv_heads_not_divisible`, `weights_do_not_fit`.
    pub code: String,
    /// The reason, with its numbers.
    pub message: String,
    /// The nearest sizes that are legal.
    pub nearest: Option<RefusedShape>,
    /// Bytes missing on the tightest GPU, when memory is the reason.
    pub short_by_bytes: Option<u64>,
}

/// The sizes of a refused layout: only those that matter for the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct RefusedShape {
    pub tp: u64,
    pub pp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ep: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_dp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcp: Option<u64>,
}

/// How many layouts a rule refused.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RefusedCount {
    pub code: String,
    pub count: u64,
}

/// A change worth making.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Advice {
    /// What to change, e.g. `kv_cache_dtype=fp8`; `none` and `keep_tensor_parallel_size` where nothing should be.
    pub change: String,
    /// The layout that is advised on: the best, which is the caller's own where the request names its sizes.
    pub layout: String,
    /// The layout after the change.
    pub becomes: String,
    /// Factor on KV tokens over the deployment.
    pub kv_tokens_gain: f64,
    /// Factor on the sequences of the asked context that run at once, with the engine's own limit on them.
    pub sequences_gain: f64,
    /// Factor by which TPOT gets shorter (above 1 = faster).
    pub tpot_gain: f64,
    /// Factor on the cost per hour.
    pub cost_factor: f64,
    pub message: String,
}
