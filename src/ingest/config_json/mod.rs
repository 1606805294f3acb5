//! A Hugging Face config.json, untrusted, to a [`ModelSpec`].
//!
//! Fields are found under all their names and nesting levels, sizes are bounded, unknown keys are listed, and
//! what is not known is refused by its name: every fault of the document at once.

mod build;
mod by_name;
mod defaults;
mod families;
mod ignored;
mod names;
mod positions;
mod quantisation;
mod reader;
mod text;

pub use quantisation::AS_IF;
pub use reader::{MAX_LAYERS, MAX_LIST, MAX_POSITIONS, MAX_SIZE};
pub use text::{MAX_TEXT, parse};

use serde_json::{Map, Value};

use self::families::{Context, EXPERTS_PER_TOKEN};
use self::quantisation::{Declared, Quantiser};
use self::reader::{Config, Shared};
use super::{FieldError, Pointer};
use crate::planner::engine::last_release_with;
use crate::planner::model::dtype::Dtype;
use crate::planner::model::{ModelSpec, TowerSize};
use crate::planner::units::Bytes;

/// A model as read, and what the reader did not use.
#[derive(Debug, Clone)]
pub struct ReadModel {
    pub spec: ModelSpec,
    pub diagnostics: Vec<Diagnostic>,
}

/// Something about a document that does not stand in the way of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// JSON pointer as a URI fragment.
    pub pointer: String,
    /// Stable code, e.g. `unread_key`.
    pub code: &'static str,
    pub message: String,
}

/// Why a document is not a model that can be planned for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", summary(.faults))]
pub struct ConfigError {
    /// Every fault, each with its pointer and a stable code (`unknown_architecture`, `architecture_removed`, `not_generative`, `missing`,
    /// `out_of_range`, …).
    pub faults: Vec<FieldError>,
}

fn summary(faults: &[FieldError]) -> String {
    let mut text = faults.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if faults.len() > 3 {
        text.push_str("; …");
    }
    text
}

/// What the caller wants otherwise than the file says.
#[derive(Debug, Clone, Copy, Default)]
pub struct WhatIf<'v> {
    /// As if the checkpoint were stored so: a name of [`AS_IF`].
    pub weights: Option<&'v str>,
    /// Keys that replace those of the file (of its text config, where they stand there).
    pub overrides: Option<&'v Map<String, Value>>,
    /// A total that replaces the ledger's bytes.
    pub weights_bytes: Option<u64>,
}

/// Read a config.json. `name` is the model's id or given name; `side_quantization` is the content of ModelOpt's
/// `hf_quant_config.json`, or another quantisation block.
///
/// # Errors
/// Every fault of the document, each by the name of its field, architecture or method.
pub fn read(name: &str, config: &Value, side_quantization: Option<&Value>) -> Result<ReadModel, ConfigError> {
    read_as(name, config, side_quantization, WhatIf::default())
}

/// As [`read`], changed as the caller asks.
///
/// # Errors
/// As [`read`], and for names that are not known.
pub fn read_as(
    name: &str,
    config: &Value,
    side_quantization: Option<&Value>,
    what_if: WhatIf<'_>,
) -> Result<ReadModel, ConfigError> {
    let Value::Object(object) = config else {
        let fault = super::fields::wrong_type(&Pointer::root(), config, "a config.json object");
        return Err(ConfigError { faults: vec![fault] });
    };
    let replaced;
    let object = match what_if.overrides {
        Some(overrides) if !overrides.is_empty() => {
            replaced = overridden(object, overrides);
            &replaced
        }
        _ => object,
    };
    let wrapped;
    let side = match side_quantization {
        Some(Value::Object(side)) if side.contains_key("quantization") => Some(side),
        Some(Value::Object(side)) => {
            // a bare block: what config.json would hold under `quantization_config`
            let mut map = Map::new();
            map.insert("quantization_config".to_owned(), Value::Object(side.clone()));
            wrapped = map;
            Some(&wrapped)
        }
        _ => None,
    };
    read_object(name, object, side, what_if)
}

/// The levels that may hold the decoder's own fields.
const TEXT_SECTIONS: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

fn read_object(
    name: &str,
    object: &Map<String, Value>,
    side: Option<&Map<String, Value>>,
    what_if: WhatIf<'_>,
) -> Result<ReadModel, ConfigError> {
    let shared = Shared::default();
    let top = Config::new(object, Pointer::root(), &shared);
    let mut text = TEXT_SECTIONS.iter().find_map(|section| top.section(section, true));
    if let Some(inner) = text.as_ref().and_then(|text| text.section("text_config", true)) {
        text = Some(inner);
    }
    let config = text.as_ref().unwrap_or(&top);
    let architecture = architecture_of(&top, config);
    let dtype = dtype_of(&top, config);
    let side = side.map(|side| Config::new(side, Pointer::root().key("quantization_config"), &shared));
    let declared = declared(config, side.as_ref(), dtype, what_if.weights);
    let context = Context { architecture, config, top: &top, quantiser: &declared.quantiser };
    let body = families::read(&context);
    let Some(body) = body else {
        if shared.faults.borrow().is_empty() {
            let (code, detail) = why_unknown(architecture);
            top.refuse("architectures", code, detail);
        }
        return Err(ConfigError { faults: shared.faults.take() });
    };
    if shared.faults.borrow().is_empty() {
        agree(config, &body);
    }
    let faults = shared.faults.take();
    if !faults.is_empty() {
        return Err(ConfigError { faults });
    }
    let positions = positions::read(&context, top.model_type);
    let faults = shared.faults.take();
    if !faults.is_empty() {
        return Err(ConfigError { faults });
    }
    let diagnostics = config
        .unread()
        .into_iter()
        .map(|pointer| Diagnostic { message: format!("{pointer} was not used"), pointer, code: "unread_key" })
        .collect();
    let spec = ModelSpec {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        model_type: top.model_type.to_owned(),
        hidden_size: body.hidden,
        vocab_size: body.vocabulary,
        context_length: positions.in_vllm(),
        positions,
        query_heads: body.query_heads,
        kv_heads: body.kv_heads,
        head_size: body.head_size,
        mla: body.mla,
        dtype: declared.quantiser.dtype,
        mamba_ssm_dtype: families::named_state_dtype(config, &["mamba_ssm_dtype"]),
        declared_kv_dtype: declared.kv_dtype,
        quantization: declared.quantiser.label.clone(),
        tower: tower_size(&top),
        quantization_method: declared.method,
        experts: body.experts,
        layers: body.stack.layers,
        kinds: body.stack.kinds,
        head: body.head.tensors,
        tail: body.tail.tensors,
        head_buffers: body.head.buffers,
        tied_embeddings: body.tied,
        limits: body.limits,
        notes: shared.notes.take(),
        weights_bytes_given: what_if.weights_bytes,
    };
    Ok(ReadModel { spec, diagnostics })
}

/// Why no family reads an architecture: the code of the refusal and its sentence.
fn why_unknown(architecture: &str) -> (&'static str, String) {
    if let Some(last) = last_release_with(architecture) {
        let detail = format!(
            "vLLM dropped `{architecture}`; {last} was among the last releases with it, and it is not known here"
        );
        return ("architecture_removed", detail);
    }
    if families::keeps_no_cache(architecture) {
        let detail = format!(
            "`{architecture}` encodes or classifies and generates no text; layouts are planned for models that do"
        );
        return ("not_generative", detail);
    }
    ("unknown_architecture", format!("the architecture `{architecture}` is not known here"))
}

/// Refuses what each key allows alone and no model can be: no layers at all, more experts for a token than there are.
fn agree(config: &Config<'_>, body: &families::Body) {
    const LISTS: [&str; 4] = ["hybrid_override_pattern", "layers_block_type", "layer_types", "block_configs"];
    if body.stack.layers.is_empty() {
        let key = LISTS.into_iter().find(|key| config.has(&[key])).unwrap_or("num_hidden_layers");
        config.refuse(key, "out_of_range", "a model has at least one layer");
    }
    if let Some(experts) = body.experts.filter(|experts| experts.per_token > experts.routed) {
        let key = EXPERTS_PER_TOKEN.iter().find(|key| config.has(&[key])).unwrap_or(&"num_experts_per_tok");
        let detail = format!("a token cannot choose {} of {} experts", experts.per_token, experts.routed);
        config.refuse(key, "out_of_range", detail);
    }
}

/// The size of a vision tower; keys that are not there stand for ViT-L/14, as SGLang has it.
fn tower_size(top: &Config<'_>) -> Option<TowerSize> {
    let section = top.section_anywhere(&["vision_config"])?;
    let or = |name, usual: u64| {
        section.own_real(name).filter(|n| *n >= 1.0 && *n < 1e6).map_or(usual, |n| Bytes::from_f64(n).get())
    };
    Some(TowerSize { layers: or("num_hidden_layers", 24), hidden_size: or("hidden_size", 1024) })
}

/// First entry of `architectures`.
fn architecture_of<'v>(top: &Config<'v>, config: &Config<'v>) -> &'v str {
    let first =
        |config: &Config<'v>| config.texts(&["architectures"]).and_then(|names| names.first().copied());
    first(top).or_else(|| first(config)).unwrap_or("")
}

/// Format of the numbers that are not quantised: as the whole file declares, else its text config; bf16 without a word, as engines
/// take it (vLLM `config/model.py` `_get_and_verify_dtype`).
fn dtype_of(top: &Config<'_>, config: &Config<'_>) -> Dtype {
    const NAMES: &[&str] = &["dtype", "torch_dtype"];
    let declared = top.text(NAMES).or_else(|| config.text(NAMES)).unwrap_or("bfloat16");
    match declared.trim_start_matches("torch.") {
        "float16" | "half" | "fp16" => Dtype::Fp16,
        "float32" | "float" => {
            // engines load fp32 checkpoints in 16 bits
            config.note("the checkpoint is fp32; engines load it in 16 bits");
            Dtype::Fp16
        }
        "bfloat16" | "bf16" => Dtype::Bf16,
        other => {
            config.refuse(
                "torch_dtype",
                "not_allowed",
                format!("`{other}` is not a format of weights known here"),
            );
            Dtype::Bf16
        }
    }
}

/// The rule of storage: as asked, else as the checkpoint declares.
fn declared(config: &Config<'_>, side: Option<&Config<'_>>, dtype: Dtype, weights: Option<&str>) -> Declared {
    let declared = quantisation::read(config, side, dtype);
    let Some(name) = weights else { return declared };
    match quantisation::as_if(name, dtype) {
        Some(quantiser) => {
            if !(quantiser.is_plain() && declared.quantiser.is_plain()) {
                config.note(format!("weights as if stored in {name}: every linear layer of the decoder except routers and the head"));
            }
            Declared { quantiser, kv_dtype: declared.kv_dtype, method: String::new() }
        }
        None => {
            config.refuse("weights", "not_allowed", format!("`{name}` is none of {}", AS_IF.join(", ")));
            Declared { quantiser: Quantiser::plain(dtype), kv_dtype: None, method: String::new() }
        }
    }
}

/// The document with keys replaced: within the text config where they stand there, else at the top.
fn overridden(object: &Map<String, Value>, overrides: &Map<String, Value>) -> Map<String, Value> {
    let mut out = object.clone();
    for (key, value) in overrides {
        let section = TEXT_SECTIONS.iter().find(|section| {
            out.get(**section)
                .and_then(Value::as_object)
                .is_some_and(|inner| inner.contains_key(key) || !out.contains_key(key))
        });
        match section.and_then(|section| out.get_mut(*section)).and_then(Value::as_object_mut) {
            Some(inner) => inner.insert(key.clone(), value.clone()),
            None => out.insert(key.clone(), value.clone()),
        };
    }
    out
}
