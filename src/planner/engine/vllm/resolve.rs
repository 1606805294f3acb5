//! Defaults of the engine for a model and a GPU.

use super::Vllm;
use crate::planner::engine::divisions;
use crate::planner::engine::{Refusal, RefusalCode, ResolvedSettings};
use crate::planner::estimate::{Assumption, AssumptionValue};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::{Dtype, KvDtype};
use crate::planner::units::{Bytes, Tokens};

const GIB: u64 = 1 << 30;

/// Fill in every default. Memory classes of the step size: `engine/arg_utils.py` `get_batch_defaults`.
pub fn resolve(
    rules: &Vllm,
    settings: &EngineSettings,
    model: &ModelSpec,
    gpu: &Gpu,
) -> Result<ResolvedSettings, Refusal> {
    let utilization = settings.gpu_memory_utilization.unwrap_or(rules.default_utilization);
    if !(utilization > 0.0 && utilization <= 1.0) {
        return Err(Refusal::new(
            RefusalCode::SettingInvalid,
            format!("gpu_memory_utilization must lie in (0, 1], not {utilization}"),
        ));
    }
    let max_model_len = settings.max_model_len.unwrap_or(model.context_length).max(1);
    let (tokens, seqs) = batch_defaults(rules, gpu);
    let max_num_seqs = settings.max_num_seqs.unwrap_or(seqs).max(1);
    let max_num_batched_tokens = settings
        .max_num_batched_tokens
        .unwrap_or_else(|| tokens.min(max_num_seqs.saturating_mul(max_model_len)))
        .max(1);
    let (kv_dtype, kv_dtype_declared) = kv_dtype(rules, &settings.kv_cache_dtype, model)?;
    Ok(ResolvedSettings {
        engine: "vllm",
        rules_version: rules.version,
        gpu_memory_utilization: utilization,
        utilization_automatic: false,
        kv_dtype,
        kv_dtype_declared,
        kv_dtype_given: !matches!(settings.kv_cache_dtype.as_str(), "" | "auto"),
        max_model_len: Tokens(max_model_len),
        max_num_seqs,
        max_num_batched_tokens,
        block_size: settings.block_size.filter(|b| *b > 0),
        kv_cache_memory_bytes: settings.kv_cache_memory_bytes,
        quantization: settings.quantization.clone(),
        async_scheduling: settings.async_scheduling.unwrap_or(true),
        prefix_caching: settings
            .enable_prefix_caching
            .unwrap_or(rules.hybrid_prefix_caching || !has_states(model)),
        disable_hybrid_kv_cache_manager: settings.disable_hybrid_kv_cache_manager,
        language_model_only: settings.language_model_only,
        enforce_eager: settings.enforce_eager,
        num_speculative_tokens: settings.num_speculative_tokens,
        pp_layer_partition: settings.pp_layer_partition.clone(),
        divisions: divisions::of_model(model, settings.language_model_only),
        assumptions: vec![Assumption {
            name: "engine_rules".to_owned(),
            value: AssumptionValue::Text(format!("vllm {}", rules.version)),
            unit: String::new(),
            source: format!(
                "newest rules that are not newer than the version asked for ({})",
                settings.version
            ),
            given: false,
        }],
    })
}

/// Tokens of a step and sequences of a batch that `vllm serve` takes by default.
fn batch_defaults(rules: &Vllm, gpu: &Gpu) -> (u64, u64) {
    let Bytes(memory) = gpu.memory_bytes;
    if rules.large_gpu_defaults && memory >= 160 * GIB {
        (16_384, 1024)
    } else if memory >= 70 * GIB && !gpu.name.to_ascii_lowercase().contains("a100") {
        (8192, 1024)
    } else {
        (2048, 256)
    }
}

fn has_states(model: &ModelSpec) -> bool {
    model.kinds.iter().flat_map(|k| &k.caches).any(|c| matches!(c, LayerCache::State(_)))
}

/// The cache format: the caller's, else what the checkpoint declares, else the model's own.
fn kv_dtype(rules: &Vllm, text: &str, model: &ModelSpec) -> Result<(KvDtype, bool), Refusal> {
    let own = match model.dtype {
        Dtype::Fp32 => KvDtype::Fp32,
        Dtype::Fp16 => KvDtype::Fp16,
        _ => KvDtype::Bf16,
    };
    let declared = model.declared_kv_dtype.filter(|_| rules.declared_kv_dtype);
    let asked = match text {
        "" | "auto" => return Ok(declared.map_or((own, false), |d| (d, true))),
        "fp8" | "fp8_e4m3" | "fp8_e5m2" | "fp8_inc" => KvDtype::Fp8,
        "bfloat16" | "bf16" => KvDtype::Bf16,
        "float16" | "fp16" | "half" => KvDtype::Fp16,
        "float32" | "fp32" | "float" => KvDtype::Fp32,
        "fp8_per_token_head" => KvDtype::Fp8PerTokenHead,
        "int8_per_token_head" => KvDtype::Int8PerTokenHead,
        "fp8_ds_mla" => KvDtype::Fp8DsMla,
        "nvfp4_ds_mla" => KvDtype::Nvfp4DsMla,
        "nvfp4" => KvDtype::Nvfp4,
        other => {
            return Err(Refusal::new(
                RefusalCode::KvCacheDtypeNotSupported,
                format!("vLLM has no kv_cache_dtype {other:?}"),
            ));
        }
    };
    let sixteen_bit = matches!(asked, KvDtype::Bf16 | KvDtype::Fp16 | KvDtype::Fp32);
    if sixteen_bit && asked != own {
        return Err(Refusal::new(
            RefusalCode::KvCacheDtypeNotSupported,
            format!("a cache of {text} must equal the format that the model computes in"),
        ));
    }
    Ok((asked, false))
}
