//! Engine settings with every default filled in.

use crate::planner::estimate::{Assumption, AssumptionValue};
use crate::planner::model::ModelSpec;
use crate::planner::model::dtype::{Dtype, KvDtype};

use super::divisions::{self, Division};
use super::formats::{self, NoMethod};
use super::{Refusal, RefusalCode};
use crate::planner::input::EngineSettings;
use crate::planner::speculation::Speculation;
use crate::planner::units::{Bytes, Tokens, grouped};

/// What the engine runs with, after its own defaults for this model and GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedSettings {
    /// The engine's name.
    pub engine: &'static str,
    /// The release whose rules apply.
    pub rules_version: &'static str,
    /// Share of GPU memory in the sense of the engine's own knob. Where the engine derives it from the
    /// shape (SGLang), the value here is that of a single GPU and [`Self::utilization_automatic`] is set.
    pub gpu_memory_utilization: f64,
    pub utilization_automatic: bool,
    /// Format of keys and values.
    pub kv_dtype: KvDtype,
    /// True when the checkpoint's declaration decided it.
    pub kv_dtype_declared: bool,
    /// True when the caller named a format.
    pub kv_dtype_given: bool,
    pub max_model_len: Tokens,
    pub max_num_seqs: u64,
    pub max_num_batched_tokens: u64,
    /// Tokens of a block, where the caller fixed it; `None`: the engine chooses by backend and model.
    pub block_size: Option<u64>,
    /// Cache size of one GPU, given outright: no budget is computed then.
    pub kv_cache_memory_bytes: Option<Bytes>,
    pub quantization: Option<String>,
    pub async_scheduling: bool,
    pub prefix_caching: bool,
    pub disable_hybrid_kv_cache_manager: bool,
    pub language_model_only: bool,
    pub enforce_eager: bool,
    pub num_speculative_tokens: u64,
    pub speculation: Speculation,
    pub pp_layer_partition: Option<Vec<u64>>,
    /// Share of the window pool and ratio of the state pool, in engines with pools of fixed proportions.
    pub swa_full_tokens_ratio: Option<f64>,
    pub mamba_full_memory_ratio: Option<f64>,
    /// Sizes of the model that ranks must divide, in the order in which the engine meets them: read off the ledger once,
    /// since a search asks for thousands of shapes.
    pub divisions: Vec<Division>,
    /// Choices that were made for the caller, for the answer.
    pub assumptions: Vec<Assumption>,
}

/// The cache format of a model that says nothing: the one it computes in.
#[must_use]
pub const fn own_kv_dtype(model: &ModelSpec) -> KvDtype {
    match model.dtype {
        Dtype::Fp32 => KvDtype::Fp32,
        Dtype::Fp16 => KvDtype::Fp16,
        _ => KvDtype::Bf16,
    }
}

impl ResolvedSettings {
    /// What every engine takes as it is asked for, or leaves at a default that all share; sizes and the knob of memory are the
    /// engine's own to fill in.
    ///
    /// # Errors
    /// A [`Refusal`] for a `quantization` that the engine does not start with on this checkpoint.
    pub fn as_asked(
        engine: &'static str,
        rules_version: &'static str,
        asked: &EngineSettings,
        model: &ModelSpec,
    ) -> Result<Self, Refusal> {
        quantization(engine, rules_version, asked, model)?;
        Ok(Self {
            engine,
            rules_version,
            gpu_memory_utilization: asked.gpu_memory_utilization.unwrap_or(1.0),
            utilization_automatic: false,
            kv_dtype: own_kv_dtype(model),
            kv_dtype_declared: false,
            kv_dtype_given: !matches!(asked.kv_cache_dtype.as_str(), "" | "auto"),
            max_model_len: Tokens(asked.max_model_len.unwrap_or(1).max(1)),
            max_num_seqs: asked.max_num_seqs.unwrap_or(1).max(1),
            max_num_batched_tokens: asked.max_num_batched_tokens.unwrap_or(1).max(1),
            block_size: asked.block_size.filter(|tokens| *tokens > 0),
            kv_cache_memory_bytes: asked.kv_cache_memory_bytes,
            quantization: asked.quantization.clone(),
            async_scheduling: asked.async_scheduling.unwrap_or(true),
            prefix_caching: asked.enable_prefix_caching.unwrap_or(true),
            disable_hybrid_kv_cache_manager: asked.disable_hybrid_kv_cache_manager,
            language_model_only: asked.language_model_only,
            enforce_eager: asked.enforce_eager,
            num_speculative_tokens: asked.num_speculative_tokens,
            speculation: asked.speculation,
            pp_layer_partition: asked.pp_layer_partition.clone(),
            swa_full_tokens_ratio: asked.swa_full_tokens_ratio,
            mamba_full_memory_ratio: asked.mamba_full_memory_ratio,
            divisions: divisions::of_model(model, asked.language_model_only),
            assumptions: vec![rules_assumption(engine, rules_version, &asked.version)],
        })
    }
}

/// Weights asked for as if they were stored otherwise are no checkpoint that an engine could refuse.
fn quantization(
    engine: &'static str,
    rules_version: &str,
    asked: &EngineSettings,
    model: &ModelSpec,
) -> Result<(), Refusal> {
    let Some(text) = asked.quantization.as_deref() else { return Ok(()) };
    let as_if = model.quantization_method.is_empty() && !model.is_plain();
    match formats::check(engine, rules_version, text, &model.quantization_method) {
        Err(no) if !as_if || matches!(no, NoMethod::Unknown { .. }) => {
            Err(Refusal::new(RefusalCode::QuantizationNotSupported, format!("quantization {text:?}: {no}")))
        }
        _ => Ok(()),
    }
}

/// The knob of memory as given or by default, in (0, 1].
///
/// # Errors
/// A [`Refusal`] for any other number.
pub fn utilization(name: &str, given: Option<f64>, default: f64) -> Result<f64, Refusal> {
    let value = given.unwrap_or(default);
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(Refusal::new(RefusalCode::SettingInvalid, format!("{name} must lie in (0, 1], not {value}")))
}

/// The longest sequence to admit: the model's own length `longest` where none is asked for. An engine refuses to start with
/// a longer one, unless its variable `admits` says so.
///
/// # Errors
/// A [`Refusal`] for a length beyond the model's, where nothing admits it.
pub fn admitted_length(
    knob: &str,
    asked: &EngineSettings,
    longest: u64,
    admits: &str,
) -> Result<Tokens, Refusal> {
    let length = asked.max_model_len.unwrap_or(longest).max(1);
    if length <= longest.max(1) || asked.allow_long_max_model_len {
        return Ok(Tokens(length));
    }
    Err(Refusal::new(
        RefusalCode::MaxModelLenExceedsModel,
        format!(
            "{knob} ({}) is longer than the {} tokens that the model's positions are made for: the engine refuses to start, \
             unless {admits}=1 says that it may (allow_long_max_model_len).",
            grouped(length),
            grouped(longest)
        ),
    ))
}

/// The assumption that names the rules used.
#[must_use]
pub fn rules_assumption(engine: &str, rules: &str, asked: &str) -> Assumption {
    Assumption {
        name: "engine_rules".to_owned(),
        value: AssumptionValue::Text(format!("{engine} {rules}")),
        unit: String::new(),
        source: if asked.is_empty() {
            "the newest rules known".to_owned()
        } else {
            format!("the newest rules that are not newer than the version asked for ({asked})")
        },
        given: false,
    }
}
