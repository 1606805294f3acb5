//! The words that engines take for the formats of weights and cache, and what each means over a checkpoint.
//!
//! Read from the lists that each engine refuses everything beside: vLLM's `QuantizationMethods` and `CacheDType` of the releases
//! 0.6.6, 0.8.5, 0.11.0, 0.15.0, 0.26.0 and 0.33.0, SGLang's `arg_groups/choices.py` and `arg_groups/fields/model.py` of 0.5.23.

use std::fmt;

use super::newer_or_equal;

/// What an engine does with a checkpoint under one value of `quantization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Stores every linear layer so while it loads a checkpoint that is not quantised: a format of the reader of weights.
    Makes(&'static str),
    /// Confirms how the checkpoint is stored, and cannot start from one that is not.
    Confirms,
    /// Stores in a form whose bytes are not known here.
    NoRule,
}

/// One value of `quantization`, with the first and the last rules of its engine that have it.
type Method = (&'static str, Does, &'static str, &'static str);

/// No end yet.
const STILL: &str = "9999";

const VLLM: &[Method] = &[
    ("aqlm", Does::Confirms, "0.5", "0.8"),
    ("auto-round", Does::Confirms, "0.10", "0.10"),
    ("auto_awq", Does::Confirms, "0.21", STILL),
    ("auto_gptq", Does::Confirms, "0.21", STILL),
    ("awq", Does::Confirms, "0.5", STILL),
    ("awq_marlin", Does::Confirms, "0.5", STILL),
    ("bitblas", Does::Confirms, "0.8", "0.20.1"),
    ("bitsandbytes", Does::NoRule, "0.5", "0.24"),
    ("compressed-tensors", Does::Confirms, "0.5", STILL),
    ("cpu_awq", Does::Confirms, "0.12", "0.20.1"),
    ("deepseek_v4_fp8", Does::Confirms, "0.21", STILL),
    ("deepspeedfp", Does::NoRule, "0.5", "0.10"),
    ("experts_int8", Does::NoRule, "0.5", STILL),
    ("fbgemm_fp8", Does::Confirms, "0.5", STILL),
    ("fp8", Does::Makes("fp8"), "0.5", STILL),
    ("fp8_per_block", Does::Makes("fp8_block"), "0.21", STILL),
    ("fp8_per_channel", Does::Makes("fp8_channel"), "0.21", STILL),
    ("fp8_per_tensor", Does::Makes("fp8"), "0.21", STILL),
    ("fp_quant", Does::Confirms, "0.12", STILL),
    ("gguf", Does::Confirms, "0.5", "0.20.1"),
    ("gpt_oss_mxfp4", Does::Confirms, "0.21", STILL),
    ("gptq", Does::Confirms, "0.5", STILL),
    ("gptq_bitblas", Does::Confirms, "0.8", "0.20.1"),
    ("gptq_marlin", Does::Confirms, "0.5", STILL),
    ("gptq_marlin_24", Does::Confirms, "0.5", "0.20.1"),
    ("hqq", Does::Confirms, "0.5", "0.10"),
    ("humming", Does::NoRule, "0.21", STILL),
    ("inc", Does::Confirms, "0.10", STILL),
    ("int8_per_channel_weight_only", Does::Makes("int8"), "0.21", STILL),
    ("ipex", Does::Confirms, "0.5", "0.20.1"),
    ("marlin", Does::Confirms, "0.5", "0.8"),
    ("modelopt", Does::Confirms, "0.5", STILL),
    ("modelopt_fp4", Does::Confirms, "0.10", STILL),
    ("modelopt_mixed", Does::Confirms, "0.21", STILL),
    ("modelopt_mxfp8", Does::Confirms, "0.21", STILL),
    ("moe_wna16", Does::Confirms, "0.8", STILL),
    ("mxfp4", Does::Confirms, "0.10", STILL),
    ("mxfp8", Does::Makes("mxfp8"), "0.21", STILL),
    ("neuron_quant", Does::NoRule, "0.5", "0.8"),
    ("nvfp4", Does::Confirms, "0.8", "0.8"),
    ("nvfp4_per_token", Does::Makes("nvfp4"), "0.21", STILL),
    ("online", Does::NoRule, "0.21", STILL),
    ("petit_nvfp4", Does::Confirms, "0.10", "0.20.1"),
    ("ptpc_fp8", Does::Makes("fp8_channel"), "0.8", "0.20.1"),
    ("qqq", Does::Confirms, "0.5", "0.8"),
    ("quark", Does::Confirms, "0.8", STILL),
    ("rtn", Does::NoRule, "0.10", "0.10"),
    ("torchao", Does::NoRule, "0.8", STILL),
    ("tpu_int8", Does::NoRule, "0.5", "0.10"),
];

const SGLANG: &[Method] = &[
    ("auto-round", Does::Confirms, "0.4", STILL),
    ("auto-round-int8", Does::Confirms, "0.4", STILL),
    ("awq", Does::Confirms, "0.4", STILL),
    ("awq_marlin", Does::Confirms, "0.4", STILL),
    ("bitsandbytes", Does::NoRule, "0.4", STILL),
    ("compressed-tensors", Does::Confirms, "0.4", STILL),
    ("fp8", Does::Makes("fp8"), "0.4", STILL),
    ("gguf", Does::Confirms, "0.4", STILL),
    ("gptq", Does::Confirms, "0.4", STILL),
    ("gptq_marlin", Does::Confirms, "0.4", STILL),
    ("humming", Does::NoRule, "0.4", STILL),
    ("mlx_q4", Does::NoRule, "0.4", STILL),
    ("mlx_q8", Does::NoRule, "0.4", STILL),
    ("modelopt", Does::Confirms, "0.4", STILL),
    ("modelopt_fp4", Does::Confirms, "0.4", STILL),
    ("modelopt_fp8", Does::Confirms, "0.4", STILL),
    ("modelopt_mixed", Does::Confirms, "0.4", STILL),
    ("modelslim", Does::Confirms, "0.4", STILL),
    ("moe_wna16", Does::Confirms, "0.4", STILL),
    ("mxfp4", Does::Confirms, "0.4", STILL),
    ("mxfp8", Does::Makes("mxfp8"), "0.4", STILL),
    ("mxfp_w4a8", Does::Confirms, "0.4", STILL),
    ("nvfp4_online", Does::NoRule, "0.4", STILL),
    ("petit_nvfp4", Does::Confirms, "0.4", STILL),
    ("quark", Does::Confirms, "0.4", STILL),
    ("quark_int4fp8_moe", Does::NoRule, "0.4", STILL),
    ("quark_mxfp4", Does::NoRule, "0.4", STILL),
    ("unquant", Does::NoRule, "0.4", STILL),
    ("w4afp8", Does::Confirms, "0.4", STILL),
    ("w8a8_fp8", Does::Makes("fp8_channel"), "0.4", STILL),
    ("w8a8_int8", Does::Confirms, "0.4", STILL),
];

/// TensorRT-LLM has no such setting: it takes the format of the checkpoint, which these words confirm.
const TENSORRT_LLM: &[Method] = &[
    ("awq", Does::Confirms, "1.2", STILL),
    ("fp8", Does::Confirms, "1.2", STILL),
    ("gptq", Does::Confirms, "1.2", STILL),
    ("modelopt", Does::Confirms, "1.2", STILL),
    ("mxfp4", Does::Confirms, "1.2", STILL),
    ("nvfp4", Does::Confirms, "1.2", STILL),
];

/// The `quant_method` that checkpoints declare, with the values that engines take for it (`override_quantization_method` of each
/// class, SGLang's `compatible_quantization_methods`).
const CONFIRMED_BY: &[(&str, &[&str])] = &[
    (
        "gptq",
        &["gptq", "gptq_marlin", "auto_gptq", "gptq_marlin_24", "gptq_bitblas", "marlin", "moe_wna16", "inc"],
    ),
    ("gptq_marlin", &["gptq", "gptq_marlin", "auto_gptq", "moe_wna16"]),
    ("awq", &["awq", "awq_marlin", "auto_awq", "moe_wna16", "ipex", "cpu_awq", "inc"]),
    ("awq_marlin", &["awq", "awq_marlin", "auto_awq", "moe_wna16"]),
    ("auto-round", &["auto-round", "inc", "gptq_marlin", "awq_marlin", "gptq", "awq"]),
    (
        "modelopt",
        &[
            "modelopt",
            "modelopt_fp4",
            "modelopt_fp8",
            "modelopt_mixed",
            "modelopt_mxfp8",
            "nvfp4",
            "petit_nvfp4",
            "fp8",
        ],
    ),
    ("fp8", &["fp8", "deepseek_v4_fp8", "modelopt_fp4"]),
    ("mxfp4", &["mxfp4", "gpt_oss_mxfp4"]),
    ("mxfp8", &["mxfp8", "modelopt_mxfp8"]),
    ("compressed-tensors", &["compressed-tensors", "w8a8_int8", "w8a8_fp8", "auto-round-int8"]),
    ("fbgemm_fp8", &["fbgemm_fp8"]),
];

/// Why a value of `quantization` cannot be planned with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoMethod {
    /// The engine refuses it: it has these.
    Unknown { engine: &'static str, known: Vec<&'static str> },
    /// The checkpoint is stored in another way, which the engine refuses.
    StoredOtherwise { method: String },
    /// It only confirms how a checkpoint is stored, and this one is not quantised.
    NotQuantised,
    /// The engine has it, but how many bytes it makes of the weights is not known here.
    NoRule,
}

impl NoMethod {
    /// The stable code of the fault.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "not_allowed",
            Self::StoredOtherwise { .. } | Self::NotQuantised => "conflict",
            Self::NoRule => "no_rule",
        }
    }
}

impl fmt::Display for NoMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { engine, known } => {
                write!(f, "{engine} has no such quantization; it has {}", known.join(", "))
            }
            Self::StoredOtherwise { method } => {
                write!(
                    f,
                    "the checkpoint is stored as {method}, and the engine refuses to start with another"
                )
            }
            Self::NotQuantised => f.write_str(
                "this only confirms how a checkpoint is stored, and this one is not quantised; \
                 `model.weights` plans as if it were",
            ),
            Self::NoRule => f.write_str(
                "how many bytes the engine makes of the weights so is not known here; \
                 give the nearest format as `model.weights`, or the total as `model.weights_bytes`",
            ),
        }
    }
}

/// The format that `quantization` makes of a checkpoint that is not quantised, under the rules `version` of `engine`.
#[must_use]
pub fn made_on_load(engine: &str, version: &str, quantization: &str) -> Option<&'static str> {
    match method(engine, version, quantization)? {
        Does::Makes(format) => Some(format),
        Does::Confirms | Does::NoRule => None,
    }
}

/// Whether `engine` starts with `quantization` on a checkpoint that declares `stored` (empty: not quantised).
///
/// # Errors
/// [`NoMethod`] with the reason.
pub fn check(engine: &'static str, version: &str, quantization: &str, stored: &str) -> Result<(), NoMethod> {
    let Some(does) = method(engine, version, quantization) else {
        let known = of(engine).iter().filter(|m| has(m, version)).map(|m| m.0).collect();
        return Err(NoMethod::Unknown { engine, known });
    };
    if does == Does::NoRule && stored != quantization {
        return Err(NoMethod::NoRule);
    }
    if stored.is_empty() {
        return if does == Does::Confirms { Err(NoMethod::NotQuantised) } else { Ok(()) };
    }
    let confirmed = CONFIRMED_BY.iter().find(|(method, _)| *method == stored);
    let agrees = stored == quantization || confirmed.is_some_and(|(_, by)| by.contains(&quantization));
    if agrees { Ok(()) } else { Err(NoMethod::StoredOtherwise { method: stored.to_owned() }) }
}

fn of(engine: &str) -> &'static [Method] {
    match engine {
        "vllm" => VLLM,
        "sglang" => SGLANG,
        _ => TENSORRT_LLM,
    }
}

fn has((_, _, first, last): &Method, version: &str) -> bool {
    newer_or_equal(version, first) == Some(true) && newer_or_equal(last, version) == Some(true)
}

fn method(engine: &str, version: &str, quantization: &str) -> Option<Does> {
    of(engine).iter().find(|m| m.0 == quantization && has(m, version)).map(|m| m.1)
}

/// The cache formats of vLLM, with the first rules that have each.
const VLLM_CACHES: &[(&str, &str)] = &[
    ("auto", "0.5"),
    ("bfloat16", "0.10"),
    ("float16", "0.21"),
    ("fp8", "0.5"),
    ("fp8_e4m3", "0.5"),
    ("fp8_e5m2", "0.5"),
    ("fp8_inc", "0.10"),
    ("fp8_ds_mla", "0.12"),
    ("fp8_per_token_head", "0.21"),
    ("int8_per_token_head", "0.21"),
    ("int4_per_token_head", "0.21"),
    ("nvfp4", "0.21"),
    ("nvfp4_4over6", "0.33"),
    ("nvfp4_ds_mla", "0.33"),
    ("octave_k3v3", "0.33"),
    ("octave_k3v3_compact", "0.33"),
    ("octave_k3v4", "0.33"),
    ("turboquant_3bit_nc", "0.21"),
    ("turboquant_4bit_nc", "0.21"),
    ("turboquant_k3v4_nc", "0.21"),
    ("turboquant_k8v4", "0.21"),
    ("ultraquant_4bit", "0.33"),
];

/// SGLang's; the last is the name that releases before 0.5.23 have for `fp4_mx_block16`.
const SGLANG_CACHES: &[&str] =
    &["auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "fp4_mx_block16", "fp4_e2m1"];

/// TensorRT-LLM's `kv_cache_config.dtype`.
const TENSORRT_LLM_CACHES: &[&str] = &["auto", "bfloat16", "float16", "fp8", "nvfp4"];

/// Shorter names that are understood for every engine and written in its own words: of the format that the model computes
/// in, and of fp8.
const SHORT: &[&str] =
    &["", "bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32", "float", "fp8", "fp8_e4m3"];

/// The names of `kv_cache_dtype` that `engine` has under the rules `version`, when `text` is none of them.
#[must_use]
pub fn unknown_cache(engine: &str, version: &str, text: &str) -> Option<Vec<&'static str>> {
    let known: Vec<&'static str> = match engine {
        "vllm" => VLLM_CACHES
            .iter()
            .filter(|(_, first)| newer_or_equal(version, first) == Some(true))
            .map(|(name, _)| *name)
            .collect(),
        "sglang" => SGLANG_CACHES.to_vec(),
        _ => TENSORRT_LLM_CACHES.to_vec(),
    };
    (!known.contains(&text) && !SHORT.contains(&text)).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_what_the_release_makes_of_it() {
        let code = |engine, version, word, stored| {
            check(engine, version, word, stored).err().map(|no: NoMethod| no.code())
        };
        for (engine, version, word, stored, expected) in [
            ("vllm", "0.33", "fp8", "", None),
            ("vllm", "0.33", "banana", "", Some("not_allowed")),
            ("vllm", "0.33", "banana", "fp8", Some("not_allowed")),
            ("vllm", "0.33", "awq", "", Some("conflict")),
            ("vllm", "0.33", "awq_marlin", "awq", None),
            ("vllm", "0.33", "fp8", "compressed-tensors", Some("conflict")),
            ("vllm", "0.33", "bitsandbytes", "", Some("not_allowed")),
            ("vllm", "0.24", "bitsandbytes", "", Some("no_rule")),
            ("vllm", "0.10", "fp8_per_block", "", Some("not_allowed")),
            ("vllm", "0.20.1", "ptpc_fp8", "", None),
            ("sglang", "0.5", "w8a8_int8", "compressed-tensors", None),
            ("sglang", "0.5", "w8a8_int8", "", Some("conflict")),
            ("tensorrt-llm", "1.2", "fp8", "", Some("conflict")),
            ("tensorrt-llm", "1.2", "fp8", "fp8", None),
        ] {
            assert_eq!(code(engine, version, word, stored), expected, "{engine} {version} {word} {stored}");
        }
        assert_eq!(made_on_load("vllm", "0.33", "fp8_per_block"), Some("fp8_block"));
        assert_eq!(made_on_load("vllm", "0.33", "awq"), None);
    }

    #[test]
    fn cache_formats_are_those_of_the_release() {
        for (engine, version, text, known) in [
            ("vllm", "0.33", "nvfp4_ds_mla", true),
            ("vllm", "0.24", "nvfp4_ds_mla", false),
            ("vllm", "0.6", "fp8", true),
            ("vllm", "0.33", "banana", false),
            ("sglang", "0.5", "fp8", true),
            ("sglang", "0.5", "fp8_ds_mla", false),
            ("tensorrt-llm", "1.2", "nvfp4", true),
            ("tensorrt-llm", "1.2", "fp8_e5m2", false),
        ] {
            assert_eq!(unknown_cache(engine, version, text).is_none(), known, "{engine} {version} {text}");
        }
    }
}
