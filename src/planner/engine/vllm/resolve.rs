//! Defaults of the engine for a model and a GPU.

use super::Vllm;
use crate::planner::engine::settings;
use crate::planner::engine::{Refusal, RefusalCode, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::KvDtype;
use crate::planner::units::{Bytes, Tokens};

/// The longest prompts that the first engine takes whole.
const WHOLE_PROMPTS: u64 = 32_768;

const GIB: u64 = 1 << 30;

/// Fill in every default. Memory classes of the step size: `engine/arg_utils.py` `get_batch_defaults`.
pub fn resolve(
    rules: &Vllm,
    asked: &EngineSettings,
    model: &ModelSpec,
    gpu: &Gpu,
) -> Result<ResolvedSettings, Refusal> {
    let utilization = settings::utilization(
        "gpu_memory_utilization",
        asked.gpu_memory_utilization,
        rules.default_utilization,
    )?;
    let max_model_len = settings::admitted_length(
        "max_model_len",
        asked,
        model.positions.in_vllm().max(1),
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    )?
    .get();
    let (tokens, seqs) = batch_defaults(rules, gpu);
    let max_num_seqs = asked.max_num_seqs.unwrap_or(seqs).max(1);
    let max_num_batched_tokens = asked
        .max_num_batched_tokens
        .unwrap_or_else(|| {
            whole_prompts(rules, gpu, max_model_len)
                .unwrap_or(tokens.min(max_num_seqs.saturating_mul(max_model_len)))
        })
        .max(1);
    let (kv_dtype, kv_dtype_declared) = kv_dtype(rules, &asked.kv_cache_dtype, model)?;
    about_to_be_dropped(rules, asked, model)?;
    Ok(ResolvedSettings {
        gpu_memory_utilization: utilization,
        kv_dtype,
        kv_dtype_declared,
        max_model_len: Tokens(max_model_len),
        max_num_seqs,
        max_num_batched_tokens,
        prefix_caching: asked
            .enable_prefix_caching
            .unwrap_or(rules.hybrid_prefix_caching || !has_states(model)),
        swa_full_tokens_ratio: None,
        mamba_full_memory_ratio: None,
        ..ResolvedSettings::as_asked("vllm", rules.version, asked, model)?
    })
}

/// Formats that releases since 0.15 refuse without a flag (`DEPRECATED_QUANTIZATION_METHODS`).
const DEPRECATED: [&str; 2] = ["fbgemm_fp8", "fp_quant"];

fn about_to_be_dropped(rules: &Vllm, asked: &EngineSettings, model: &ModelSpec) -> Result<(), Refusal> {
    let method = model.quantization_method.as_str();
    if !rules.refuses_deprecated || asked.allow_deprecated_quantization || !DEPRECATED.contains(&method) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::QuantizationNotSupported,
        format!(
            "vLLM is about to drop {method}, in which this checkpoint is stored, and refuses it without \
             --allow-deprecated-quantization (allow_deprecated_quantization)"
        ),
    ))
}

/// Tokens of a step and sequences of a batch that `vllm serve` takes by default.
fn batch_defaults(rules: &Vllm, gpu: &Gpu) -> (u64, u64) {
    let Bytes(memory) = gpu.memory_bytes;
    if rules.is_first_engine(gpu) {
        return (rules.chunk_when_cut, FIRST_ENGINE_SEQUENCES);
    }
    if rules.large_gpu_defaults && memory >= 160 * GIB {
        (16_384, 1024)
    } else if memory >= 70 * GIB && !gpu.name.to_ascii_lowercase().contains("a100") {
        (8192, 1024)
    } else {
        (2048, 256)
    }
}

/// Sequences of a batch in the first engine, on every GPU.
const FIRST_ENGINE_SEQUENCES: u64 = 256;

/// The first engine (V0) cuts prompts only where a length beyond 32k is admitted, and never on AMD (logs of MI300X); else a
/// step takes a whole prompt, of 2,048 tokens at least (`EngineArgs.create_engine_config`).
fn whole_prompts(rules: &Vllm, gpu: &Gpu, max_model_len: u64) -> Option<u64> {
    let uncut = max_model_len <= WHOLE_PROMPTS || gpu.vendor == "amd";
    (rules.is_first_engine(gpu) && uncut).then(|| max_model_len.max(2048))
}

fn has_states(model: &ModelSpec) -> bool {
    model.kinds.iter().flat_map(|k| &k.caches).any(|c| matches!(c, LayerCache::State(_)))
}

/// The cache format: the caller's, else what the checkpoint declares, else the model's own.
fn kv_dtype(rules: &Vllm, text: &str, model: &ModelSpec) -> Result<(KvDtype, bool), Refusal> {
    let own = settings::own_kv_dtype(model);
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
                format!("how vLLM stores a cache of {other:?} is not known here"),
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
