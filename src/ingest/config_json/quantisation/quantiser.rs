//! The rule from the name of a module to its storage.

use std::cell::{OnceCell, RefCell};

use super::super::by_name::ByName;
use super::super::names::{self, Pattern, Patterns};
use super::classes::Classes;
use super::format::{Alignment, Format, InputScale, Packing};
use crate::planner::model::dtype::Dtype;

/// The rule from module name to format.
pub struct Quantiser {
    /// What applies where nothing else does.
    pub(super) default: Format,
    /// Format of experts where it differs.
    pub(super) experts: Option<Format>,
    pub(super) ignore: Patterns,
    /// Formats by name pattern, first match wins; then `default` only where `default_applies`.
    pub(super) by_name: ByName,
    pub(super) default_applies: bool,
    /// True when only routed experts are quantised.
    pub(super) experts_only: bool,
    /// How patterns of the ignore list match.
    pub(super) matching: Matching,
    /// What the model's numbers are where nothing is quantised.
    pub dtype: Dtype,
    pub alignment: Alignment,
    /// Cache scales that each attention layer keeps as weights: in fp32, and in the model's format.
    pub cache_scales: (u64, u64),
    /// The same for latent attention.
    pub latent_cache_scales: bool,
    /// The method quantises the head too, where no list leaves it alone.
    pub quantises_head: bool,
    /// The method leaves towers alone that are called after vision, whatever its list says (`quantization/modelopt.py`).
    pub leaves_vision: bool,
    /// For people.
    pub label: String,
    /// What was found out of layers that are alike.
    pub(super) known: Known,
}

/// Layers that are alike, and the formats of their modules.
#[derive(Default)]
pub(super) struct Known {
    classes: OnceCell<Classes>,
    /// By class of layer, the module's name within it, and whether it is of experts.
    formats: RefCell<Vec<(usize, bool, String, Format)>>,
}

/// A layer as a quantiser knows it.
#[derive(Debug, Clone, Copy)]
pub struct Under<'n> {
    /// Bare name of the layer, e.g. `layers.3`.
    pub prefix: &'n str,
    /// As [`Quantiser::class_of`] gives it.
    pub class: Option<usize>,
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
            leaves_vision: false,
            label: dtype_label(dtype).to_owned(),
            known: Known::default(),
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

    /// The class of what lies under `prefix`: layers of one class have the same formats.
    pub fn class_of(&self, prefix: &str) -> Option<usize> {
        if self.is_plain() {
            return Some(0);
        }
        let classes = self.known.classes.get_or_init(|| Classes::of(&self.ignore, &self.by_name));
        classes.class_of(prefix)
    }

    /// [`Quantiser::format_of`] of a module of a layer; what is known of a layer that is alike is not looked for again.
    pub fn format_within(&self, layer: Under<'_>, module: &str, is_experts: bool) -> Format {
        if self.is_plain() {
            return Format::Plain;
        }
        let full = || {
            if layer.prefix.is_empty() { module.to_owned() } else { format!("{}.{module}", layer.prefix) }
        };
        // a module within further layers may be named as one of those
        let Some(class) = layer.class.filter(|_| !module.contains("layers")) else {
            return self.format_of(&full(), is_experts);
        };
        let known = self.known.formats.borrow().iter().find_map(|(of, experts, name, format)| {
            (*of == class && *experts == is_experts && name == module).then_some(*format)
        });
        known.unwrap_or_else(|| {
            let format = self.format_of(&full(), is_experts);
            self.known.formats.borrow_mut().push((class, is_experts, module.to_owned(), format));
            format
        })
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
            || (self.leaves_vision && prefix.starts_with("vision"))
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

/// As if the checkpoint were quantised so: the names of the contract.
pub fn as_if(name: &str, dtype: Dtype) -> Option<Quantiser> {
    let format = match name {
        "bf16" => return Some(Quantiser::plain(Dtype::Bf16)),
        "fp16" => return Some(Quantiser::plain(Dtype::Fp16)),
        "fp8" => Format::Fp8Tensor { static_input: false },
        "fp8_block" => Format::Fp8Block { rows: 128, cols: 128, scale_bytes: 4 },
        "fp8_channel" => Format::Fp8Channel { static_input: false, input_bound: false },
        "int8" => Format::Int8Channel,
        "int4" => {
            Format::PackedInt { bits: 4, group: 128, zero_points: false, kind: Packing::CompressedTensors }
        }
        "nvfp4" => Format::Nvfp4 { group: 16, inputs: InputScale::Kept },
        "mxfp4" => Format::Mxfp4,
        "mxfp8" => Format::Mxfp8,
        _ => return None,
    };
    let mut quantiser = Quantiser::uniform(dtype, format);
    // published checkpoints leave the routers alone that a class would quantise
    for router in ["*.mlp.gate", "*.feed_forward.gate"] {
        quantiser.ignore.push(Pattern::whole(router));
    }
    Some(quantiser)
}

/// The names that [`as_if`] knows.
pub const AS_IF: [&str; 10] =
    ["bf16", "fp16", "fp8", "fp8_block", "fp8_channel", "int8", "int4", "nvfp4", "mxfp4", "mxfp8"];
