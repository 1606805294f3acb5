//! Everything the planner may look at. Defaults are already filled in and bounds already checked
//! by whoever builds it (`ingest::request`); the planner still never panics on any value.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::engine::{self, MemoryCorrection, ResolvedSettings, formats};
use super::hardware::{Cluster, NodePool};
use super::latency::calibrated::Calibration;
use super::model::ModelSpec;
use super::speculation::Speculation;
use super::units::{Bytes, Tokens};

/// One question to the planner.
#[derive(Debug, Clone)]
pub struct PlanInput {
    /// Shared: a service plans one model many times.
    pub model: Arc<ModelSpec>,
    pub cluster: Cluster,
    /// One engine, or several to compare.
    pub engines: Vec<EngineSettings>,
    pub workload: Workload,
    pub slo: Slo,
    pub objective: Objective,
    pub search: Search,
    /// Constants given by the caller, by name.
    pub overrides: Overrides,
    pub latency_model: LatencyModel,
    /// Constants of the calibrated latency model.
    pub calibration: Arc<Calibration>,
    /// What advice may look at beyond the question; nothing unless it is asked for in detail.
    pub beyond: Arc<Beyond>,
    /// What a fleet's own start-ups say of the estimated items of memory.
    pub memory_corrections: Arc<[MemoryCorrection]>,
    /// At most this many layouts in the answer.
    pub limit: usize,
}

/// Checkpoints and GPUs that the question does not name, for advice in detail.
#[derive(Debug, Clone, Default)]
pub struct Beyond {
    /// The same model as it is published in fewer bits; the id is the name.
    pub checkpoints: Vec<Arc<ModelSpec>>,
    /// The model as if it were stored in four bits, where nobody published it so.
    pub in_four_bits: Option<Arc<ModelSpec>>,
    /// A node of each GPU product that the cluster lacks.
    pub products: Vec<NodePool>,
}

/// An engine as the caller starts it. `None` = the engine's own default for model and GPU.
/// Settings are named as vLLM names them; other engines' names map onto these where the meaning is the same.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// `vllm`, `sglang`, `tensorrt-llm`.
    pub name: String,
    /// The release whose rules apply, e.g. "0.33".
    pub version: String,
    /// Share of GPU memory in the sense of the engine's own knob.
    pub gpu_memory_utilization: Option<f64>,
    /// The engine's text, e.g. `auto`, `fp8`, `bfloat16`, `fp8_ds_mla`.
    pub kv_cache_dtype: String,
    pub max_model_len: Option<u64>,
    pub max_num_seqs: Option<u64>,
    pub max_num_batched_tokens: Option<u64>,
    pub block_size: Option<u64>,
    /// Cache size of one GPU, given outright: no budget is computed then.
    pub kv_cache_memory_bytes: Option<Bytes>,
    /// Online quantisation, e.g. `fp8`.
    pub quantization: Option<String>,
    pub async_scheduling: Option<bool>,
    pub enable_prefix_caching: Option<bool>,
    pub disable_hybrid_kv_cache_manager: bool,
    pub language_model_only: bool,
    pub enforce_eager: bool,
    /// Admit a `max_model_len` beyond the model's own length (`VLLM_ALLOW_LONG_MAX_MODEL_LEN=1`,
    /// `SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1`).
    pub allow_long_max_model_len: bool,
    /// vLLM: start with a checkpoint whose format it is about to drop (`--allow-deprecated-quantization`).
    pub allow_deprecated_quantization: bool,
    /// Draft tokens of speculative decoding, 0 without it.
    pub num_speculative_tokens: u64,
    /// What drafts them, and how many hold.
    pub speculation: Speculation,
    /// Layers of each pipeline stage, given outright (`VLLM_PP_LAYER_PARTITION`).
    pub pp_layer_partition: Option<Vec<u64>>,
    /// SGLang: tokens of the window pool, as a share of those of the full pool.
    pub swa_full_tokens_ratio: Option<f64>,
    /// SGLang: bytes of recurrent states for one byte of keys and values.
    pub mamba_full_memory_ratio: Option<f64>,
}

impl EngineSettings {
    /// An engine with everything left to its defaults.
    #[must_use]
    pub fn defaults_of(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            gpu_memory_utilization: None,
            kv_cache_dtype: "auto".to_owned(),
            max_model_len: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            block_size: None,
            kv_cache_memory_bytes: None,
            quantization: None,
            async_scheduling: None,
            enable_prefix_caching: None,
            disable_hybrid_kv_cache_manager: false,
            language_model_only: false,
            enforce_eager: false,
            allow_long_max_model_len: false,
            allow_deprecated_quantization: false,
            num_speculative_tokens: 0,
            speculation: Speculation::default(),
            pp_layer_partition: None,
            swa_full_tokens_ratio: None,
            mamba_full_memory_ratio: None,
        }
    }

    /// The format that its `quantization` makes of weights while it loads them.
    #[must_use]
    pub fn made_on_load(&self) -> Option<&'static str> {
        let rules = engine::rules(&self.name, &self.version).ok()?;
        formats::made_on_load(rules.name(), rules.version(), self.quantization.as_deref()?)
    }

    /// The format that every engine of a question makes of weights while it loads them; `None` when they differ in it.
    #[must_use]
    pub fn common_format(engines: &[Self]) -> Option<&'static str> {
        let first = engines.first()?.made_on_load()?;
        engines.iter().all(|e| e.made_on_load() == Some(first)).then_some(first)
    }
}

/// The load to plan for.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Prompt length of a request.
    pub input_tokens: u64,
    /// Generated length of a request.
    pub output_tokens: u64,
    /// Length at which sequences are counted; `None` = the engine's `max_model_len`.
    pub context_tokens: Option<u64>,
    /// Tokens that a sequence holds, on average, while it decodes: what timings read of the cache. `None` = the asked context;
    /// without one, in the calibrated model, the prompt and half of the answer.
    pub decode_context_tokens: Option<u64>,
    /// Requests in flight over the whole deployment.
    pub concurrency: u64,
    /// Share of a request's prompt tokens whose cache is there already, 0..=1: they are not computed again. The cache of a
    /// running request is held whole all the same.
    pub prefix_cache_hit_rate: f64,
}

impl Workload {
    /// Tokens that a sequence holds, on average, while it decodes: as asked, else the prompt and half of the answer, which an
    /// engine started for `max_model_len` cannot exceed.
    #[must_use]
    pub fn decode_context(&self, max_model_len: Tokens) -> Tokens {
        let of_load =
            || Tokens(self.input_tokens.saturating_add(self.output_tokens / 2).max(1)).min(max_model_len);
        self.decode_context_tokens.or(self.context_tokens).map_or_else(of_load, Tokens)
    }

    /// Prompt tokens that are not computed again; none where the engine keeps no prefixes.
    #[must_use]
    pub fn reused_tokens(&self, settings: &ResolvedSettings) -> f64 {
        if settings.prefix_caching {
            self.input_tokens as f64 * self.prefix_cache_hit_rate.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// What the caller needs; `None` = no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slo {
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
}

/// What "best" means. The orders and their tie-breaks are in `planner::ranking`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    #[default]
    Balanced,
    Throughput,
    Latency,
    Capacity,
    Cost,
}

/// Limits on the search: `None` = every value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Search {
    pub tp: Option<Vec<u64>>,
    pub pp: Option<Vec<u64>>,
    /// Replicas; `None` = as many as the cluster holds.
    pub dp: Option<Vec<u64>>,
    pub ep: Option<Vec<u64>>,
    pub attention_dp: Option<Vec<u64>>,
    pub dcp: Option<Vec<u64>>,
    /// When false, only layouts that use every GPU.
    pub allow_idle_gpus: bool,
}

/// Which latency model answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatencyModel {
    /// Physics with constants fitted to measurements.
    #[default]
    Calibrated,
    /// The plain model that a person can check by hand.
    Roofline,
}

/// A constant given by the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideValue {
    Number(f64),
    /// By key, e.g. `link_bytes_per_s` for each link.
    ByKey(BTreeMap<String, f64>),
}

/// Constants given by the caller, by name. Names are checked at ingest against [`Overrides::NAMES`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    values: BTreeMap<String, OverrideValue>,
}

impl Overrides {
    /// Every constant that may be overridden, with its unit.
    pub const NAMES: &'static [(&'static str, &'static str)] = &[
        ("gpu_memory_bytes", "B"),
        ("reserve_bytes", "B"),
        ("activation_bytes", "B"),
        ("runtime_bytes", "B"),
        ("cuda_graph_bytes", "B"),
        ("hbm_bytes_per_s", "B/s"),
        ("hbm_efficiency", ""),
        ("peak_flops", "FLOP/s"),
        ("compute_efficiency", ""),
        ("link_bytes_per_s", "B/s"),
        ("link_efficiency", ""),
        ("allreduce_fixed_us", "us"),
        ("usd_per_gpu_hour", "USD/h"),
    ];

    /// Set a constant.
    pub fn set(&mut self, name: &str, value: OverrideValue) {
        self.values.insert(name.to_owned(), value);
    }

    /// The number given for `name`, if any.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.values.get(name) {
            Some(OverrideValue::Number(n)) => Some(*n),
            _ => None,
        }
    }

    /// True when the caller gave `name` at all.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The number given for `name`, for this `key` or for all.
    #[must_use]
    pub fn number_for(&self, name: &str, key: &str) -> Option<f64> {
        match self.values.get(name) {
            Some(OverrideValue::Number(n)) => Some(*n),
            Some(OverrideValue::ByKey(map)) => map.get(key).copied(),
            None => None,
        }
    }

    /// In order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OverrideValue)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v))
    }
}
