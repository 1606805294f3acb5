//! The positions of a configuration: which length it declares, and how rotary positions stretch it.

use super::families::{Context, POSITION_KEYS};
use super::reader::{Config, MAX_POSITIONS};
use crate::planner::model::positions::{Positions, Scaling, ScalingKind};

/// Layer types that sections of rotary positions may be split by (transformers 5).
const LAYER_TYPES: &[&str] =
    &["full_attention", "sliding_attention", "chunked_attention", "linear_attention"];

/// Ways of stretching them that engines know (`get_rope` of `rotary_embedding`).
const KINDS: &[&str] = &[
    "default",
    "linear",
    "dynamic",
    "yarn",
    "deepseek_yarn",
    "longrope",
    "su",
    "llama3",
    "mrope",
    "proportional",
];

/// A section that is there is an object.
fn is_object(config: &Config<'_>, name: &str) {
    if config.value(&[name]).is_some_and(|(value, _)| !value.is_object() && !value.is_null()) {
        config.refuse(
            name,
            "wrong_type",
            "expected an object, e.g. {\"rope_type\": \"yarn\", \"factor\": 4.0}",
        );
    }
}

/// Read them.
pub fn read(context: &Context<'_>, model_type: &str) -> Positions {
    let config = context.config;
    let own_length = config.opt_within(&["model_max_length"], MAX_POSITIONS);
    for name in POSITION_KEYS.iter().chain(&["model_max_length"]) {
        if config.value(&[name]).is_some_and(|(value, _)| value.as_u64() == Some(0)) {
            config.refuse(name, "out_of_range", "a model has at least one position");
        }
    }
    // Gemma 3 declares the stretched length, so no engine stretches it again
    let scaling = if model_type.contains("gemma3") { None } else { scaling(config) };
    Positions { stated: context.positions(), scaling, own_length }
}

fn scaling(config: &Config<'_>) -> Option<Scaling> {
    for name in ["rope_scaling", "rope_parameters"] {
        is_object(config, name);
    }
    let section = config
        .section_anywhere(&["rope_scaling"])
        .or_else(|| config.section_anywhere(&["rope_parameters"]))?;
    let split =
        LAYER_TYPES.iter().filter(|kind| section.has_own(kind)).find_map(|kind| section.section(kind, false));
    let section = split.unwrap_or(section);
    let (key, name) = ["rope_type", "type"]
        .into_iter()
        .find_map(|key| Some((key, section.text(&[key])?)))
        .unwrap_or(("rope_type", "default"));
    let kind = match name {
        "yarn" | "deepseek_yarn" => ScalingKind::Yarn,
        "longrope" | "su" => ScalingKind::Long,
        "llama3" => ScalingKind::Llama3,
        "default" | "mrope" | "bailing_mrope" | "mllama4" | "openpangu" | "axial" | "gptj" => return None,
        "linear" | "dynamic" | "ntk" | "proportional" | "deepseek_llama_scaling" => ScalingKind::Other,
        other => {
            let detail = format!(
                "`{other}` is no way of stretching positions that engines know: {}",
                KINDS.join(", ")
            );
            section.refuse(key, "not_allowed", detail);
            return None;
        }
    };
    let given = section.real(&["factor"]);
    if given.is_some_and(|factor| factor <= 0.0) {
        section.refuse("factor", "out_of_range", "positions are stretched by a factor above 0");
    }
    if given.is_none() && matches!(name, "linear" | "yarn" | "deepseek_yarn" | "llama3") {
        section.refuse("factor", "missing", format!("`{name}` stretches positions by a factor"));
    }
    let factor = given.unwrap_or(1.0);
    let original = section.opt_within(&["original_max_position_embeddings"], MAX_POSITIONS);
    if original == Some(0) {
        section.refuse("original_max_position_embeddings", "out_of_range", "expected at least 1");
    }
    Some(Scaling { kind, factor, original })
}
