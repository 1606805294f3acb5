//! The positions of a configuration: which length it declares, and how rotary positions stretch it.

use super::families::Context;
use super::reader::{Config, MAX_POSITIONS};
use crate::planner::model::positions::{Positions, Scaling, ScalingKind};

/// Layer types that sections of rotary positions may be split by (transformers 5).
const LAYER_TYPES: &[&str] =
    &["full_attention", "sliding_attention", "chunked_attention", "linear_attention"];

/// Read them.
pub fn read(context: &Context<'_>, model_type: &str) -> Positions {
    let config = context.config;
    let own_length = config.opt_within(&["model_max_length"], MAX_POSITIONS);
    // Gemma 3 declares the stretched length, so no engine stretches it again
    let scaling = if model_type.contains("gemma3") { None } else { scaling(config) };
    Positions { stated: context.positions(), scaling, own_length }
}

fn scaling(config: &Config<'_>) -> Option<Scaling> {
    let section = config
        .section_anywhere(&["rope_scaling"])
        .or_else(|| config.section_anywhere(&["rope_parameters"]))?;
    let split =
        LAYER_TYPES.iter().filter(|kind| section.has_own(kind)).find_map(|kind| section.section(kind, false));
    let section = split.unwrap_or(section);
    let kind = match section.text(&["rope_type", "type"]).unwrap_or("default") {
        "yarn" | "deepseek_yarn" => ScalingKind::Yarn,
        "longrope" | "su" => ScalingKind::Long,
        "llama3" => ScalingKind::Llama3,
        "default" | "mrope" => return None,
        _ => ScalingKind::Other,
    };
    let factor = section.real(&["factor"]).unwrap_or(1.0);
    let original = section.opt_within(&["original_max_position_embeddings"], MAX_POSITIONS);
    Some(Scaling { kind, factor, original })
}
