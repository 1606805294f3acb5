//! How a checkpoint stores its weights: the quantisation block of a config.json, or of a side file, as a rule from module name to storage.

use regex::Regex;
use serde_json::Value;
use smallvec::SmallVec;

use crate::planner::model::dtype::{Dtype, KvDtype};
use crate::planner::model::storage::{Extra, Storage};

use super::by_name::ByName;
use super::names::{self, Pattern, Patterns};
use super::reader::{Config, MAX_LIST};

/// One way to store the weights of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 16 bits, as computed.
    Plain,
    /// 8-bit floats, one scale a block.
    Fp8Block { rows: u64, cols: u64, scale_bytes: u64 },
    /// 8-bit floats, one scale a matrix; `static_input`: one more for activations.
    Fp8Tensor { static_input: bool },
    /// 8-bit floats, one scale an output row.
    Fp8Channel { static_input: bool },
    /// 8-bit integers, one scale an output row.
    Int8Channel,
    /// 4-bit floats in groups of `group` with fp8 scales, and scales for matrix and activations.
    Nvfp4 { group: u64, input_scale: bool },
    /// 4-bit floats in groups of 32 with one-byte scales.
    Mxfp4,
    /// 8-bit floats in groups of 32 with one-byte scales.
    Mxfp8,
    /// Packed integers with 16-bit scales by group (0: one group for the row); `zero_points` packed beside them.
    PackedInt { bits: u64, group: u64, zero_points: bool, kind: Packing },
}

/// Which tool packed integers, and so what else lies beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    CompressedTensors,
    Gptq { act_order: bool },
    Awq,
}

impl Format {
    /// For people.
    pub fn label(self) -> String {
        match self {
            Self::Plain => "16-bit".to_owned(),
            Self::Fp8Block { rows, cols, .. } => format!("fp8 block {rows}x{cols}"),
            Self::Fp8Tensor { .. } => "fp8 per tensor".to_owned(),
            Self::Fp8Channel { .. } => "fp8 per channel".to_owned(),
            Self::Int8Channel => "int8 per channel".to_owned(),
            Self::Nvfp4 { .. } => "nvfp4".to_owned(),
            Self::Mxfp4 => "mxfp4".to_owned(),
            Self::Mxfp8 => "mxfp8".to_owned(),
            Self::PackedInt { bits, group: 0, .. } => format!("int{bits} per channel"),
            Self::PackedInt { bits, group, .. } => format!("int{bits} group {group}"),
        }
    }

    /// Storage of a linear layer.
    pub fn linear(self, dtype: Dtype) -> Storage {
        match self {
            Self::Plain => Storage::plain(dtype),
            Self::Fp8Block { rows, cols, scale_bytes } => {
                Storage::with(Dtype::Fp8, &[Extra::Block { rows, cols, bytes: scale_bytes }])
            }
            Self::Fp8Tensor { static_input } => {
                Storage::with(Dtype::Fp8, &[Extra::Part { bytes: if static_input { 8 } else { 4 } }])
            }
            Self::Fp8Channel { static_input } => Storage::with(
                Dtype::Fp8,
                &[Extra::Row { bytes: 4 }, Extra::Part { bytes: if static_input { 4 } else { 0 } }],
            ),
            Self::Int8Channel => Storage::with(Dtype::Int8, &[Extra::Row { bytes: 4 }]),
            Self::Nvfp4 { group, input_scale } => Storage::with(
                Dtype::Fp4,
                &[
                    Extra::Group { cols: group, bits: 8 },
                    Extra::Part { bytes: if input_scale { 8 } else { 4 } },
                ],
            ),
            Self::Mxfp4 => Storage::with(Dtype::Fp4, &[Extra::Group { cols: 32, bits: 8 }]),
            Self::Mxfp8 => Storage::with(Dtype::Fp8, &[Extra::Group { cols: 32, bits: 8 }]),
            Self::PackedInt { bits, group, zero_points, kind } => {
                let mut extras: SmallVec<[Extra; 3]> = SmallVec::new();
                extras.push(if group == 0 {
                    Extra::Row { bytes: 2 }
                } else {
                    Extra::Group { cols: group, bits: 16 }
                });
                if zero_points && group > 0 {
                    extras.push(Extra::Group { cols: group, bits });
                }
                match kind {
                    // weight_shape: two int64
                    Packing::CompressedTensors => extras.push(Extra::Copy { bytes: 16 }),
                    // g_idx: one int32 a column; qzeros are always stored
                    Packing::Gptq { .. } => extras.push(Extra::Column { bytes: 4 }),
                    Packing::Awq => {}
                }
                let element = if bits == 8 { Dtype::Int8 } else { Dtype::Int4 };
                Storage { element, extras, tile: (1, 1), row_multiple: 1 }
            }
        }
    }

    /// Storage of stacked experts: gate and up (`true`: cut by rows) or down.
    pub fn experts(self, dtype: Dtype, is_up: bool, alignment: Alignment) -> Storage {
        match self {
            Self::Fp8Block { rows, scale_bytes, .. } => Storage::with(
                Dtype::Fp8,
                &[Extra::RefinedBlock { block: rows, by_rows: is_up, bytes: scale_bytes }],
            ),
            // per expert: one scale a fused matrix; one activation scale for the pair
            Self::Fp8Tensor { static_input } => Storage::with(
                Dtype::Fp8,
                &[Extra::Part { bytes: 4 }, Extra::Copy { bytes: if static_input { 4 } else { 0 } }],
            ),
            Self::Fp8Channel { .. } => Storage::with(Dtype::Fp8, &[Extra::Row { bytes: 4 }]),
            Self::Mxfp4 => Storage {
                tile: if is_up {
                    (alignment.intermediate, alignment.hidden)
                } else {
                    (alignment.hidden, alignment.intermediate)
                },
                ..Self::Mxfp4.linear(dtype)
            },
            // the two sizes of the shape, in the model's own format
            Self::PackedInt { bits, group, zero_points, kind: Packing::CompressedTensors } => {
                let mut extras: SmallVec<[Extra; 3]> = SmallVec::new();
                extras.push(if group == 0 {
                    Extra::Row { bytes: 2 }
                } else {
                    Extra::Group { cols: group, bits: 16 }
                });
                extras.push(Extra::Copy { bytes: 4 });
                if zero_points && group > 0 {
                    extras.push(Extra::Group { cols: group, bits });
                }
                Storage {
                    element: if bits == 8 { Dtype::Int8 } else { Dtype::Int4 },
                    extras,
                    tile: (1, 1),
                    row_multiple: 1,
                }
            }
            other => other.linear(dtype),
        }
    }
}

/// Multiples that the kernel of 4-bit experts pads to (`fused_moe/oracle/mxfp4.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    pub intermediate: u64,
    pub hidden: u64,
}

impl Alignment {
    /// The Triton kernel of gpt-oss on Hopper and Blackwell.
    pub const TRITON: Self = Self { intermediate: 64, hidden: 1 };
    /// Marlin.
    pub const MARLIN: Self = Self { intermediate: 128, hidden: 256 };
}

/// The rule from module name to format.
pub struct Quantiser {
    /// What applies where nothing else does.
    default: Format,
    /// Format of experts where it differs.
    experts: Option<Format>,
    ignore: Patterns,
    /// Formats by name pattern, first match wins; then `default` only where `default_applies`.
    by_name: ByName,
    default_applies: bool,
    /// True when only routed experts are quantised.
    experts_only: bool,
    /// How patterns of the ignore list match.
    matching: Matching,
    /// What the model's numbers are where nothing is quantised.
    pub dtype: Dtype,
    pub alignment: Alignment,
    /// Cache scales that each attention layer keeps as weights: in fp32, and in the model's format.
    pub cache_scales: (u64, u64),
    /// The same for latent attention.
    pub latent_cache_scales: bool,
    /// The method quantises the head too, where no list leaves it alone.
    pub quantises_head: bool,
    /// For people.
    pub label: String,
}

/// How an ignore list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Whole names (and whole modules above them for experts).
    Exact,
    /// Whole names, parts of names, and globs.
    Loose,
}

impl Quantiser {
    /// Nothing is quantised.
    pub fn plain(dtype: Dtype) -> Self {
        Self {
            default: Format::Plain,
            experts: None,
            ignore: Patterns::default(),
            by_name: ByName::default(),
            default_applies: true,
            experts_only: false,
            matching: Matching::Exact,
            dtype,
            alignment: Alignment::TRITON,
            cache_scales: (0, 0),
            latent_cache_scales: false,
            quantises_head: false,
            label: dtype_label(dtype).to_owned(),
        }
    }

    /// Every linear layer of the decoder in one format, the head and the routers excepted.
    pub fn uniform(dtype: Dtype, format: Format) -> Self {
        Self { default: format, label: format.label(), alignment: Alignment::MARLIN, ..Self::plain(dtype) }
    }

    /// True when no module is quantised.
    pub fn is_plain(&self) -> bool {
        self.default == Format::Plain && self.experts.is_none() && self.by_name.is_empty()
    }

    /// Format of the linear layer of this name.
    pub fn format_of(&self, name: &str, is_experts: bool) -> Format {
        if self.is_plain() || (self.experts_only && !is_experts) || self.is_ignored(name, is_experts) {
            return Format::Plain;
        }
        let shards = names::shards(name);
        if let Some(format) = self.by_name.find(name, &shards) {
            return format;
        }
        if is_experts && let Some(format) = self.experts {
            return format;
        }
        if self.default_applies { self.default } else { Format::Plain }
    }

    /// Rows of a quantisation block, where the layers are quantised by block.
    pub const fn block(&self) -> Option<u64> {
        match self.default {
            Format::Fp8Block { rows, .. } => Some(rows),
            _ => None,
        }
    }

    /// True when the ignore list leaves a whole tower under `prefix` alone: an entry within it, a glob or an expression on it,
    /// or (where names match loosely) its name. An exact entry of the tower's own name matches no layer.
    pub fn leaves_alone(&self, prefix: &str) -> bool {
        let inside = format!("{prefix}.");
        let sample = format!("{prefix}.blocks.0.attn.qkv_proj");
        self.is_plain()
            || self.experts_only
            || self.ignore.begins_with(&inside)
            || self.ignore.matches(&sample)
            || (self.matching == Matching::Loose && self.ignore.is_part_of(&sample))
            || (self.matching == Matching::Loose && prefix.starts_with("vision"))
    }

    /// Storage of the linear layer of this name.
    pub fn linear(&self, name: &str) -> Storage {
        self.format_of(name, false).linear(self.dtype)
    }

    /// True when the ignore list names this module.
    fn is_ignored(&self, name: &str, is_experts: bool) -> bool {
        if self.ignore.is_empty() {
            return false;
        }
        let shard = names::shards(name).into_iter().next();
        self.ignore.matches(name)
            || shard.is_some_and(|shard| self.ignore.matches(&shard))
            || (self.matching == Matching::Loose && self.ignore.is_part_of(name))
            || (is_experts && self.ignore.lies_under(name))
    }
}

/// How a dtype is named in answers.
pub const fn dtype_label(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp32 => "fp32",
        Dtype::Fp16 => "fp16",
        Dtype::Bf16 => "bf16",
        Dtype::Fp8 => "fp8",
        Dtype::Int8 => "int8",
        Dtype::Int4 => "int4",
        Dtype::Fp4 => "fp4",
    }
}

/// What a quantisation block says: the rule, and the cache format that it declares.
pub struct Declared {
    pub quantiser: Quantiser,
    pub kv_dtype: Option<KvDtype>,
}

/// Read the quantisation block of `config` (or `side`, the side file of ModelOpt).
pub fn read(config: &Config<'_>, side: Option<&Config<'_>>, dtype: Dtype) -> Declared {
    // a block that the caller gives stands before the file's own
    let block = side
        .and_then(|side| side.section("quantization_config", false))
        .or_else(|| config.section_anywhere(&["quantization_config", "compression_config"]));
    let side = side.and_then(|side| side.section("quantization", false));
    let kv_dtype = block.as_ref().and_then(declared_kv).or_else(|| side.as_ref().and_then(declared_kv));
    let quantiser = match (&block, &side) {
        (Some(block), side) => {
            let method = block.text(&["quant_method"]).unwrap_or("");
            match method {
                "fp8" if config.has(&["hc_mult"]) => deepseek_v4(config, block, dtype),
                "fp8" if !block.has(&["moe_quant_algo"]) => fp8(block, dtype),
                "fbgemm_fp8" => listed(
                    Quantiser::uniform(dtype, Format::Fp8Channel { static_input: false }),
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
                "mxfp8" => listed(Quantiser::uniform(dtype, Format::Mxfp8), block, Matching::Loose),
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
    Declared { quantiser, kv_dtype }
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
            Some(Format::Nvfp4 { group: 16, input_scale: true })
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
            Format::Nvfp4 { group: if size == 0 { 16 } else { size }, input_scale: inputs.is_some() }
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
        (true, 8, "channel") => Format::Fp8Channel { static_input },
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
    listed(
        Quantiser { cache_scales: (2, 0), latent_cache_scales: true, quantises_head: true, ..quantiser },
        source,
        Matching::Loose,
    )
}

/// One algorithm of ModelOpt by name.
fn modelopt_format(algo: &str, block: &Config<'_>) -> Option<Format> {
    let group = block.size_or(&["group_size"], 16).max(1);
    match algo {
        "FP8" => Some(Format::Fp8Tensor { static_input: true }),
        "FP8_PER_CHANNEL_PER_TOKEN" => Some(Format::Fp8Channel { static_input: false }),
        "FP8_PB_WO" => Some(Format::Fp8Block { rows: 128, cols: 128, scale_bytes: 4 }),
        "NVFP4" => Some(Format::Nvfp4 { group, input_scale: true }),
        "W4A16_NVFP4" => Some(Format::Nvfp4 { group, input_scale: false }),
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

/// As if the checkpoint were quantised so: the names of the contract.
pub fn as_if(name: &str, dtype: Dtype) -> Option<Quantiser> {
    let format = match name {
        "bf16" => return Some(Quantiser::plain(Dtype::Bf16)),
        "fp16" => return Some(Quantiser::plain(Dtype::Fp16)),
        "fp8" => Format::Fp8Tensor { static_input: false },
        "fp8_block" => Format::Fp8Block { rows: 128, cols: 128, scale_bytes: 4 },
        "fp8_channel" => Format::Fp8Channel { static_input: false },
        "int8" => Format::Int8Channel,
        "int4" => {
            Format::PackedInt { bits: 4, group: 128, zero_points: false, kind: Packing::CompressedTensors }
        }
        "nvfp4" => Format::Nvfp4 { group: 16, input_scale: true },
        "mxfp4" => Format::Mxfp4,
        "mxfp8" => Format::Mxfp8,
        _ => return None,
    };
    Some(Quantiser::uniform(dtype, format))
}

/// The names that [`as_if`] knows.
pub const AS_IF: [&str; 10] =
    ["bf16", "fp16", "fp8", "fp8_block", "fp8_channel", "int8", "int4", "nvfp4", "mxfp4", "mxfp8"];

/// Longest regular expression that is read.
pub const MAX_PATTERN: usize = 500;

/// A regular expression with a bound on its size.
pub fn bounded_regex(text: &str) -> Option<Regex> {
    if text.len() > MAX_PATTERN {
        return None;
    }
    regex::RegexBuilder::new(&format!("^(?:{text})")).size_limit(1 << 20).build().ok()
}
