//! The blocks that declare a quantisation, method by method.

use serde_json::Value;

use super::super::names::Pattern;
use super::super::reader::{Config, MAX_LIST};
use super::format::{Alignment, Format, InputScale, Packing};
use super::quantiser::{Matching, Quantiser};
use crate::planner::model::dtype::{Dtype, KvDtype};

/// What a quantisation block says: the rule, and the cache format that it declares.
pub struct Declared {
    pub quantiser: Quantiser,
    pub kv_dtype: Option<KvDtype>,
    /// `quant_method`, or what it is without a word.
    pub method: String,
}

/// Read the quantisation block of `config` (or `side`, the side file of ModelOpt).
pub fn read(config: &Config<'_>, side: Option<&Config<'_>>, dtype: Dtype) -> Declared {
    // a block that the caller gives stands before the file's own
    let block = side
        .and_then(|side| side.section("quantization_config", false))
        .or_else(|| config.section_anywhere(&["quantization_config", "compression_config"]));
    let side = side.and_then(|side| side.section("quantization", false));
    // the engine reads the side file only for a config.json that says nothing of its own
    let kv_dtype = block.as_ref().or(side.as_ref()).and_then(declared_kv);
    let named =
        block.as_ref().and_then(|block| block.text(&["quant_method"])).filter(|name| !name.is_empty());
    let method = match (named, block.is_some() || side.is_some()) {
        (Some(name), _) => name,
        (None, true) => "modelopt",
        (None, false) => "",
    };
    let quantiser = match (&block, &side) {
        (Some(block), side) => {
            let method = block.text(&["quant_method"]).unwrap_or("");
            match method {
                "fp8" if config.has(&["hc_mult"]) => deepseek_v4(config, block, dtype),
                "fp8" if !block.has(&["moe_quant_algo"]) => fp8(block, dtype),
                "fbgemm_fp8" => listed(
                    Quantiser::uniform(dtype, Format::Fp8Channel { static_input: false, input_bound: true }),
                    block,
                    Matching::Exact,
                ),
                // Kimi's classes load their packed mxfp4 checkpoints as experts only
                "compressed-tensors"
                    if config.model_type.starts_with("kimi")
                        && block.text(&["format"]) == Some("mxfp4-pack-quantized") =>
                {
                    Quantiser { experts_only: true, ..Quantiser::uniform(dtype, Format::Mxfp4) }
                }
                "compressed-tensors" => compressed_tensors(block, dtype),
                "mxfp4" | "gpt_oss_mxfp4" => Quantiser {
                    default: Format::Mxfp4,
                    experts_only: true,
                    label: "mxfp4 experts".to_owned(),
                    ..Quantiser::plain(dtype)
                },
                "mxfp8" => listed(
                    Quantiser { leaves_vision: true, ..Quantiser::uniform(dtype, Format::Mxfp8) },
                    block,
                    Matching::Loose,
                ),
                "gptq" | "gptq_marlin" | "awq" | "awq_marlin" | "auto-round" => packed(block, method, dtype),
                "modelopt" | "modelopt_fp4" | "modelopt_mixed" | "" | "fp8" => {
                    modelopt(block, side.as_ref().filter(|_| !block.has(&["quant_algo"])), dtype)
                }
                other => {
                    block.refuse(
                        "quant_method",
                        "unknown_quantisation",
                        format!("how `{other}` stores weights is not known here"),
                    );
                    Quantiser::plain(dtype)
                }
            }
        }
        (None, Some(side)) => modelopt(side, None, dtype),
        (None, None) => Quantiser::plain(dtype),
    };
    Declared { quantiser, kv_dtype, method: method.to_owned() }
}

/// The cache format that a block declares.
fn declared_kv(block: &Config<'_>) -> Option<KvDtype> {
    if let Some((value, _)) = block.value(&["kv_cache_quant_algo"]) {
        return value.as_str().filter(|algo| algo.eq_ignore_ascii_case("fp8")).map(|_| KvDtype::Fp8);
    }
    let (value, _) = block.value(&["kv_cache_scheme"])?;
    match value {
        Value::String(text) if text.eq_ignore_ascii_case("fp8") => Some(KvDtype::Fp8),
        Value::Object(scheme) => {
            let is_float = scheme.get("type").and_then(Value::as_str) == Some("float");
            let bits = scheme.get("num_bits").and_then(Value::as_u64);
            (is_float && bits == Some(8)).then_some(KvDtype::Fp8)
        }
        _ => None,
    }
}

/// The names an ignore list may have.
const IGNORE_KEYS: [&str; 4] = ["ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"];

/// A quantiser with the ignore list of the block.
fn listed(mut quantiser: Quantiser, block: &Config<'_>, matching: Matching) -> Quantiser {
    for key in IGNORE_KEYS {
        let Some(entries) = block.texts(&[key]) else { continue };
        for entry in entries {
            match Pattern::parse(entry) {
                Ok(pattern) => quantiser.ignore.push(pattern),
                Err(detail) => block.refuse(key, "not_allowed", detail),
            }
        }
        if !quantiser.ignore.is_empty() {
            break;
        }
    }
    quantiser.matching = matching;
    quantiser
}

/// `quant_method: fp8` as DeepSeek and Qwen write it.
fn fp8(block: &Config<'_>, dtype: Dtype) -> Quantiser {
    let static_input = block.text(&["activation_scheme"]) == Some("static");
    let format = match block.numbers(&["weight_block_size"], 1 << 16).as_deref() {
        None | Some([]) => Format::Fp8Tensor { static_input },
        Some([rows, cols]) if *rows > 0 && *cols > 0 => {
            Format::Fp8Block { rows: *rows, cols: *cols, scale_bytes: 4 }
        }
        Some(_) => {
            block.refuse("weight_block_size", "not_allowed", "expected two sizes from 1, e.g. [128, 128]");
            Format::Plain
        }
    };
    let quantiser = Quantiser { cache_scales: (2, 0), ..Quantiser::uniform(dtype, format) };
    listed(quantiser, block, Matching::Exact)
}

/// DeepSeek-V4: linear layers in fp8 blocks, experts in mxfp4 (then with one-byte scales on the blocks), fp8 or nvfp4.
fn deepseek_v4(config: &Config<'_>, block: &Config<'_>, dtype: Dtype) -> Quantiser {
    let fp4 = config.text(&["expert_dtype"]).unwrap_or("fp4") == "fp4";
    let format = Format::Fp8Block { rows: 128, cols: 128, scale_bytes: if fp4 { 1 } else { 4 } };
    let experts = match block.text(&["moe_quant_algo"]) {
        Some(algo) if algo.eq_ignore_ascii_case("NVFP4") => {
            Some(Format::Nvfp4 { group: 16, inputs: InputScale::Kept })
        }
        _ if fp4 => Some(Format::Mxfp4),
        _ => None,
    };
    let label = experts
        .map_or_else(|| format.label(), |experts| format!("{}, {} experts", format.label(), experts.label()));
    Quantiser { experts, label, alignment: Alignment::TRITON, ..Quantiser::uniform(dtype, format) }
}

/// GPTQ and AWQ.
fn packed(block: &Config<'_>, method: &str, dtype: Dtype) -> Quantiser {
    let bits = block.size_or(&["bits", "w_bit"], 4);
    let group = match block.value(&["group_size", "q_group_size"]) {
        Some((value, _)) if value.as_i64() == Some(-1) => 0,
        Some(_) => block.size_or(&["group_size", "q_group_size"], 128),
        None => 128,
    };
    if bits != 4 && bits != 8 {
        block.refuse("bits", "not_allowed", "packed integers of 4 or 8 bits are known here");
    }
    let kind = if method.starts_with("awq") {
        Packing::Awq
    } else {
        Packing::Gptq { act_order: block.flag(&["desc_act"], false) }
    };
    // both store zero points, symmetric or not
    let format = Format::PackedInt { bits, group, zero_points: true, kind };
    listed(Quantiser::uniform(dtype, format), block, Matching::Loose)
}

/// One scheme of compressed-tensors.
fn compressed_format(block: &Config<'_>, group: &Config<'_>) -> Format {
    let Some(weights) = group.section("weights", false) else { return Format::Plain };
    let bits = weights.size_or(&["num_bits"], 8);
    let is_float = weights.text(&["type"]).unwrap_or("int") == "float";
    let strategy = weights.text(&["strategy"]).unwrap_or("");
    let size = weights.size_or(&["group_size"], 0);
    let inputs = group.section("input_activations", false);
    let static_input = inputs.as_ref().is_some_and(|inputs| inputs.opt_flag(&["dynamic"]) == Some(false));
    let symmetric = weights.flag(&["symmetric"], true);
    let format = group.text(&["format"]).or_else(|| block.text(&["format"])).unwrap_or("");
    match (is_float, bits, strategy) {
        (true, 4, _) if size == 32 || format.starts_with("mxfp4") => Format::Mxfp4,
        (true, 4, _) => {
            let inputs = if inputs.is_some() { InputScale::Kept } else { InputScale::None };
            Format::Nvfp4 { group: if size == 0 { 16 } else { size }, inputs }
        }
        (true, 8, "block") => {
            let sizes = weights.numbers(&["block_structure"], 1 << 16).unwrap_or_default();
            match sizes.as_slice() {
                [rows, cols] if *rows > 0 && *cols > 0 => {
                    Format::Fp8Block { rows: *rows, cols: *cols, scale_bytes: 4 }
                }
                _ => Format::Fp8Block { rows: 128, cols: 128, scale_bytes: 4 },
            }
        }
        (true, 8, "channel") => Format::Fp8Channel { static_input, input_bound: false },
        (true, 8, "group") if size == 32 => Format::Mxfp8,
        (true, 8, _) => Format::Fp8Tensor { static_input },
        (false, 8, _) if inputs.is_some() => Format::Int8Channel,
        (false, 4 | 8, _) => {
            Format::PackedInt { bits, group: size, zero_points: !symmetric, kind: Packing::CompressedTensors }
        }
        _ => {
            weights.refuse(
                "num_bits",
                "unknown_quantisation",
                "this combination of bits, type and strategy is not known here",
            );
            Format::Plain
        }
    }
}

/// `quant_method: compressed-tensors`.
fn compressed_tensors(block: &Config<'_>, dtype: Dtype) -> Quantiser {
    let mut quantiser = Quantiser::uniform(dtype, Format::Plain);
    quantiser.default_applies = false;
    if let Some(groups) = block.section("config_groups", false) {
        for name in groups.keys() {
            let Some(group) = groups.section(name, false) else { continue };
            let format = compressed_format(block, &group);
            quantiser.label = format.label();
            for target in group.texts(&["targets"]).unwrap_or_default() {
                if target == "Linear" {
                    quantiser.default = format;
                    quantiser.default_applies = true;
                } else {
                    match Pattern::parse(target) {
                        Ok(pattern) => quantiser.by_name.push(pattern, format),
                        Err(detail) => group.refuse("targets", "not_allowed", detail),
                    }
                }
            }
        }
    }
    quantiser.cache_scales = (3, 3);
    listed(quantiser, block, Matching::Exact)
}

/// ModelOpt, in config.json or in its side file.
fn modelopt(block: &Config<'_>, side: Option<&Config<'_>>, dtype: Dtype) -> Quantiser {
    let source = side.unwrap_or(block);
    let algo = source.text(&["quant_algo"]).unwrap_or("").to_uppercase();
    let quantiser = match modelopt_format(&algo, source) {
        Some(format) => Quantiser::uniform(dtype, format),
        None if algo == "MIXED_PRECISION" => mixed(source, dtype),
        None => {
            source.refuse(
                "quant_algo",
                "unknown_quantisation",
                format!("how `{algo}` stores weights is not known here"),
            );
            Quantiser::plain(dtype)
        }
    };
    // a checkpoint of several algorithms has scales of the cache only where it declares the cache's format
    let scales = if algo != "MIXED_PRECISION" || declared_kv(source).is_some() { 2 } else { 0 };
    listed(
        Quantiser {
            cache_scales: (scales, 0),
            latent_cache_scales: true,
            quantises_head: true,
            leaves_vision: true,
            ..quantiser
        },
        source,
        Matching::Loose,
    )
}

/// One algorithm of ModelOpt by name.
fn modelopt_format(algo: &str, block: &Config<'_>) -> Option<Format> {
    let group = || block.positive_or(&["group_size"], 16);
    match algo {
        "FP8" => Some(Format::Fp8Tensor { static_input: true }),
        "FP8_PER_CHANNEL_PER_TOKEN" => Some(Format::Fp8Channel { static_input: false, input_bound: false }),
        "FP8_PB_WO" => Some(Format::Fp8Block { rows: 128, cols: 128, scale_bytes: 4 }),
        "NVFP4" => Some(Format::Nvfp4 { group: group(), inputs: InputScale::Kept }),
        "W4A16_NVFP4" => Some(Format::Nvfp4 { group: group(), inputs: InputScale::Dropped }),
        "MXFP8" => Some(Format::Mxfp8),
        _ => None,
    }
}

/// An algorithm for each module by name.
fn mixed(block: &Config<'_>, dtype: Dtype) -> Quantiser {
    let mut quantiser = Quantiser::uniform(dtype, Format::Plain);
    quantiser.default_applies = false;
    quantiser.label = "mixed".to_owned();
    let Some(layers) = block.section("quantized_layers", false) else { return quantiser };
    let mut labels: Vec<String> = Vec::new();
    for name in layers.keys().take(MAX_LIST) {
        let Some(layer) = layers.section(name, false) else { continue };
        let algo = layer.text(&["quant_algo"]).unwrap_or("").to_uppercase();
        let Some(format) = modelopt_format(&algo, &layer) else {
            layer.refuse(
                "quant_algo",
                "unknown_quantisation",
                format!("how `{algo}` stores weights is not known here"),
            );
            continue;
        };
        if !labels.contains(&format.label()) {
            labels.push(format.label());
        }
        quantiser.by_name.push(Pattern::whole(name), format);
    }
    if !labels.is_empty() {
        quantiser.label = format!("mixed {}", labels.join(" and "));
    }
    quantiser
}
