//! What the OpenAPI document says about request bodies. `ingest::request` reads them by hand, to find every fault
//! at once; a test holds the bounds written here against those that are enforced.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The question of `POST /v1/plans`. Everything but `model` and `cluster` has a default, which the answer shows.
/// Unknown fields are refused with the nearest known name. A field that is `null` counts as not given.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanQuestion {
    pub model: ModelChoice,
    pub cluster: ClusterChoice,
    #[schema(required = false)]
    pub engine: EngineChoice,
    pub workload: Option<WorkloadBody>,
    pub slo: Option<SloBody>,
    /// What "best" means.
    #[schema(inline, required = false)]
    pub objective: Option<ObjectiveWord>,
    /// How far advice looks: `detailed` also plans published checkpoints in fewer bits and replicas on GPU products that the
    /// cluster lacks.
    #[schema(inline, required = false)]
    pub advice: Option<AdviceWord>,
    pub search: Option<SearchBody>,
    pub assumptions: Option<AssumptionsBody>,
    /// Which latency model answers: fitted constants, or the plain one that can be checked by hand.
    #[schema(inline, required = false)]
    pub latency_model: Option<LatencyModelWord>,
    /// Layouts in the answer, at most.
    #[schema(minimum = 1, maximum = 1000, default = 20)]
    pub limit: Option<u64>,
}

/// What "best" means.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveWord {
    Balanced,
    Throughput,
    Latency,
    Capacity,
    Cost,
}

/// How far advice looks.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdviceWord {
    Brief,
    Detailed,
}

/// Which latency model answers.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatencyModelWord {
    Calibrated,
    Roofline,
}

/// A model: an id or alias, or an object with `id` or `config`.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum ModelChoice {
    /// An id such as `meta-llama/Llama-3.1-70B-Instruct`, or an alias such as `llama-3.1-70b`.
    Id(String),
    Object(ModelObject),
}

/// A model by `id` or by `config`, as published or changed.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelObject {
    /// A known model. Not together with `config`.
    #[schema(min_length = 1, max_length = 200)]
    pub id: Option<String>,
    /// The revision of a stored model.
    #[schema(min_length = 1, max_length = 200)]
    pub revision: Option<String>,
    /// A Hugging Face config.json. Keys that are not read are listed in the answer.
    pub config: Option<BTreeMap<String, Value>>,
    /// What to call the model of `config`.
    #[schema(min_length = 1, max_length = 200)]
    pub name: Option<String>,
    /// As if the checkpoint were quantised so: `bf16`, `fp8`, `nvfp4`, …
    #[schema(min_length = 1, max_length = 200)]
    pub weights: Option<String>,
    /// Keys of config.json to replace: a what-if.
    pub overrides: Option<BTreeMap<String, Value>>,
    /// The quantisation block of a checkpoint that keeps it in a side file.
    pub quantization_config: Option<BTreeMap<String, Value>>,
    /// Total weights in bytes, to be split evenly over the ranks.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub weights_bytes: Option<u64>,
}

/// A cluster: any text that people write, or an object with `node_pools` or `topology`.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum ClusterChoice {
    /// E.g. `16 H100s`, `2x8xH200`, `4x p5.48xlarge`; `saved:name` for a saved one.
    Text(String),
    Object(BTreeMap<String, Value>),
}

/// One engine, or up to 8 to compare.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum EngineChoice {
    One(Box<EngineBody>),
    Several(Vec<EngineBody>),
}

/// An engine and its settings, under the engine's own names; what is left out takes the engine's own default.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineBody {
    /// See `GET /v1/engines`.
    #[schema(min_length = 1, max_length = 200, default = "vllm")]
    pub name: Option<String>,
    /// The release whose rules apply; the newest known when not given.
    #[schema(min_length = 1, max_length = 200)]
    pub version: Option<String>,
    /// Share of GPU memory for the engine.
    #[schema(minimum = 0.01, maximum = 1.0)]
    pub gpu_memory_utilization: Option<f64>,
    /// SGLang's name for it.
    #[schema(minimum = 0.01, maximum = 1.0)]
    pub mem_fraction_static: Option<f64>,
    /// TensorRT-LLM's name for it.
    #[schema(minimum = 0.01, maximum = 1.0)]
    pub free_gpu_memory_fraction: Option<f64>,
    /// `auto`, `fp8`, `bfloat16`, …
    #[schema(min_length = 1, max_length = 200)]
    pub kv_cache_dtype: Option<String>,
    /// Longest sequence that the engine admits.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_model_len: Option<u64>,
    /// SGLang's name for it.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub context_length: Option<u64>,
    /// TensorRT-LLM's name for it.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_seq_len: Option<u64>,
    /// Sequences in a step, at most.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_num_seqs: Option<u64>,
    /// SGLang's name for it.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_running_requests: Option<u64>,
    /// TensorRT-LLM's name for it.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_batch_size: Option<u64>,
    /// Tokens in a step, at most.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_num_batched_tokens: Option<u64>,
    /// SGLang's name for it.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub chunked_prefill_size: Option<u64>,
    /// TensorRT-LLM's name for it.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_num_tokens: Option<u64>,
    /// Tokens of a cache block.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub block_size: Option<u64>,
    /// SGLang's name for it.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub page_size: Option<u64>,
    /// TensorRT-LLM's name for it.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub tokens_per_block: Option<u64>,
    /// Cache size of one GPU, given outright.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Quantise while loading, e.g. `fp8`, or confirm how the checkpoint is stored, e.g. `awq_marlin`: a name that the engine has.
    #[schema(min_length = 1, max_length = 200)]
    pub quantization: Option<String>,
    pub async_scheduling: Option<bool>,
    pub enable_prefix_caching: Option<bool>,
    pub disable_hybrid_kv_cache_manager: Option<bool>,
    pub language_model_only: Option<bool>,
    pub enforce_eager: Option<bool>,
    /// Admit a `max_model_len` beyond the model's own length, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 and
    /// SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 do.
    pub allow_long_max_model_len: Option<bool>,
    /// vLLM: start with a checkpoint whose format it is about to drop, as `--allow-deprecated-quantization` does.
    pub allow_deprecated_quantization: Option<bool>,
    /// Draft tokens of speculative decoding.
    #[schema(minimum = 0, maximum = 1024)]
    pub num_speculative_tokens: Option<u64>,
    /// What drafts tokens, and how often they hold.
    pub speculative_config: Option<SpeculativeBody>,
    /// Layers of each pipeline stage.
    #[schema(min_items = 1, max_items = 1024)]
    pub pp_layer_partition: Option<Vec<u64>>,
}

/// Speculative decoding, as vLLM's `speculative_config` has it.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeBody {
    /// `mtp`, `eagle`, `eagle3`, `draft_model`, `ngram`, or an engine's other name for one of these.
    #[schema(min_length = 1, max_length = 200, example = "mtp")]
    pub method: Option<String>,
    /// The drafter's id, for people.
    #[schema(min_length = 1, max_length = 200)]
    pub model: Option<String>,
    /// Draft tokens of a step.
    #[schema(minimum = 0, maximum = 1024)]
    pub num_speculative_tokens: Option<u64>,
    /// Chance that a draft token holds where those before it did.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub acceptance_rate: Option<f64>,
    /// Weights of the drafter over all ranks; needed for `draft_model`.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub draft_weights_bytes: Option<u64>,
}

/// The load to plan for.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadBody {
    /// Prompt length of a request.
    #[schema(minimum = 1, maximum = 1_073_741_824, default = 4096)]
    pub input_tokens: Option<u64>,
    /// Generated length of a request.
    #[schema(minimum = 1, maximum = 1_073_741_824, default = 512)]
    pub output_tokens: Option<u64>,
    /// Length at which sequences are counted; the engine's longest sequence when not given.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub context_tokens: Option<u64>,
    /// Tokens that a sequence holds, on average, while it decodes: what TPOT reads of the cache. When not given it is the given
    /// `context_tokens`, and without that the prompt and half of the answer (in the plain model: the length that is counted).
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub decode_context_tokens: Option<u64>,
    /// Requests in flight over the whole deployment.
    #[schema(minimum = 1, maximum = 100_000_000, default = 64)]
    pub concurrency: Option<u64>,
    /// Share of the prompt tokens whose cache is there already, so that they are not computed again.
    #[schema(minimum = 0.0, maximum = 1.0, default = 0.0)]
    pub prefix_cache_hit_rate: Option<f64>,
}

/// What the caller needs.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SloBody {
    /// Time to the first token, ms, at most.
    #[schema(minimum = 0.001, maximum = 1e9)]
    pub ttft_ms: Option<f64>,
    /// Time for each further token, ms, at most.
    #[schema(minimum = 0.001, maximum = 1e9)]
    pub tpot_ms: Option<f64>,
}

/// Limits on the search: a list for each size, every value when not given.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchBody {
    #[schema(min_items = 1, max_items = 64)]
    pub tp: Option<Vec<u64>>,
    #[schema(min_items = 1, max_items = 64)]
    pub pp: Option<Vec<u64>>,
    /// Replicas.
    #[schema(min_items = 1, max_items = 64)]
    pub dp: Option<Vec<u64>>,
    #[schema(min_items = 1, max_items = 64)]
    pub ep: Option<Vec<u64>>,
    #[schema(min_items = 1, max_items = 64)]
    pub attention_dp: Option<Vec<u64>>,
    #[schema(min_items = 1, max_items = 64)]
    pub dcp: Option<Vec<u64>>,
    /// When false, only layouts that use every GPU.
    #[schema(default = true)]
    pub allow_idle_gpus: Option<bool>,
}

/// Constants to use instead of the catalogue's and the engine's.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssumptionsBody {
    #[schema(minimum = 1.0, maximum = 1e15)]
    pub gpu_memory_bytes: Option<f64>,
    /// All that the engine needs apart from weights and cache.
    #[schema(minimum = 0.0, maximum = 1e15)]
    pub reserve_bytes: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1e15)]
    pub activation_bytes: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1e15)]
    pub runtime_bytes: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1e15)]
    pub cuda_graph_bytes: Option<f64>,
    #[schema(minimum = 1.0, maximum = 1e18)]
    pub hbm_bytes_per_s: Option<f64>,
    #[schema(minimum = 0.001, maximum = 1.0)]
    pub hbm_efficiency: Option<f64>,
    #[schema(minimum = 1.0, maximum = 1e21)]
    pub peak_flops: Option<f64>,
    #[schema(minimum = 0.001, maximum = 1.0)]
    pub compute_efficiency: Option<f64>,
    /// A rate for all links, or by link key.
    #[schema(required = false)]
    pub link_bytes_per_s: LinkRate,
    /// A share for all links, or by link key.
    #[schema(required = false)]
    pub link_efficiency: LinkShare,
    #[schema(minimum = 0.0, maximum = 1e9)]
    pub allreduce_fixed_us: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1e6)]
    pub usd_per_gpu_hour: Option<f64>,
}

/// Bytes/s for all links, or by link key.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum LinkRate {
    All(f64),
    ByLink(BTreeMap<String, f64>),
}

/// A share of the rate for all links, or by link key.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum LinkShare {
    All(f64),
    ByLink(BTreeMap<String, f64>),
}

/// The body of `POST /v1/clusters:parse`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterBody {
    /// A text of people or of machines (`nvidia-smi`, Kubernetes, Slurm, Ray, instance lists), or an object.
    pub cluster: ClusterChoice,
    /// Beside a text: the GPU, where its format does not name it.
    #[schema(max_length = 120)]
    pub gpu: Option<String>,
    /// Beside a text: how many such nodes there are, where it shows one.
    #[schema(minimum = 1, maximum = 999_999)]
    pub nodes: Option<u64>,
}

/// The body that saves a cluster.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SavedClusterBody {
    pub cluster: ClusterChoice,
}

/// The body of `POST /v1/observations`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObservationBody {
    /// The text of an engine's start-up log.
    pub log: String,
    /// What it ran on; without it there is no prediction.
    #[schema(required = false)]
    pub cluster: Option<ClusterChoice>,
    /// The model, where the log's own name for it is a path.
    #[schema(required = false)]
    pub model: Option<ModelChoice>,
    #[schema(required = false)]
    pub assumptions: Option<AssumptionsBody>,
    /// `false`: keep nothing. `true`: fail when it cannot be kept. Left out: keep it where the database is there.
    pub store: Option<bool>,
}

/// A config.json as it is, or with its side file: `{"config": …, "quantization_config": …}`.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum ModelBody {
    WithSideFile(ModelParts),
    /// A config.json.
    Config(BTreeMap<String, Value>),
}

/// A config.json and the quantisation block of its side file.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelParts {
    pub config: BTreeMap<String, Value>,
    pub quantization_config: Option<BTreeMap<String, Value>>,
}
