//! How far each layer looks back: everywhere, in a window, in a chunk.

use super::super::build::Layer;
use super::Context;
use crate::planner::model::cache::Reach;

/// Which layers have a sliding window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// None, whatever the file says.
    Never,
    /// As `layer_types` says, else every layer when the file names a window.
    Listed,
    /// As [`Windows::Listed`], but only with `use_sliding_window`.
    Flagged,
    /// `layer_types`, else every `n`-th layer is full; `plus`: the class counts the token itself on top.
    Pattern { default: u64, plus: u64 },
    /// Every second layer, from the first (gpt-oss).
    Alternate,
    /// Chunked where the layer has rotary positions (Llama 4).
    Chunks,
}

/// A short name by reach.
pub fn name_layer(layer: &mut Layer<'_>, reach: Reach) {
    layer.name = match reach {
        Reach::Full => "full_attention",
        Reach::Sliding { .. } => "sliding_attention",
        Reach::Chunked { .. } => "chunked_attention",
    }
    .to_owned();
}

/// How far each layer looks back.
pub fn reaches(context: &Context<'_>, windows: Windows, layers: usize) -> Vec<Reach> {
    let config = context.config;
    // the engine takes a window or a chunk of 0 as none (`config/model.py`, `models/llama4.py`)
    let window = config.opt(&["sliding_window"]).filter(|n| *n > 0);
    let chunk = config.opt(&["attention_chunk_size"]).filter(|n| *n > 0);
    let plus = if let Windows::Pattern { plus, .. } = windows { plus } else { 0 };
    let sliding = window.map_or(Reach::Full, |window| Reach::Sliding { window: window.saturating_add(plus) });
    if windows == Windows::Never {
        return vec![Reach::Full; layers];
    }
    if windows == Windows::Flagged && !config.flag(&["use_sliding_window"], false) {
        return vec![Reach::Full; layers];
    }
    if windows == Windows::Alternate {
        return (0..layers).map(|i| if i % 2 == 0 { sliding } else { Reach::Full }).collect();
    }
    if windows == Windows::Chunks {
        let with_rope = with_rope(context, layers);
        let chunked = chunk.map_or(Reach::Full, |chunk| Reach::Chunked { chunk });
        return with_rope.into_iter().map(|rope| if rope { chunked } else { Reach::Full }).collect();
    }
    if let Some(kinds) = layer_types(context, layers) {
        return kinds
            .iter()
            .map(|kind| match *kind {
                "sliding_attention" => sliding,
                "chunked_attention" => chunk.map_or(Reach::Full, |chunk| Reach::Chunked { chunk }),
                _ => Reach::Full,
            })
            .collect();
    }
    match windows {
        Windows::Pattern { default, .. } => {
            let pattern = config
                .opt_size(&["sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval"])
                .unwrap_or(default);
            (1..=layers)
                .map(|n| {
                    if u64::try_from(n).unwrap_or(0).is_multiple_of(pattern) { Reach::Full } else { sliding }
                })
                .collect()
        }
        Windows::Flagged => {
            let from = config.size_or(&["max_window_layers"], 0);
            (0..layers)
                .map(|i| if u64::try_from(i).unwrap_or(0) < from { Reach::Full } else { sliding })
                .collect()
        }
        Windows::Listed => {
            // without a list what the file itself names counts, and the default of a class that has no such list
            let of_class = config.model_type == "mistral" && !config.has(&["sliding_window"]);
            let named = (config.value(&["sliding_window"]).is_some() || of_class)
                && config.text(&["sliding_window_pattern"]).is_none();
            vec![if named { sliding } else { Reach::Full }; layers]
        }
        Windows::Never | Windows::Alternate | Windows::Chunks => vec![Reach::Full; layers],
    }
}

/// Which layers rotate positions: `no_rope_layers` holds 1 for those that do; by default every fourth does not.
fn with_rope(context: &Context<'_>, layers: usize) -> Vec<bool> {
    let config = context.config;
    if let Some(list) = config.numbers(&["no_rope_layers"], 1).filter(|list| list.len() >= layers) {
        return list.iter().take(layers).map(|n| *n != 0).collect();
    }
    let step = config.positive_or(&["no_rope_layer_interval"], 4);
    (1..=layers).map(|n| !u64::try_from(n).unwrap_or(0).is_multiple_of(step)).collect()
}

/// `layer_types`, one for each layer; a fault when there are fewer.
pub fn layer_types<'c>(context: &Context<'c>, layers: usize) -> Option<Vec<&'c str>> {
    let mut kinds = context.config.texts(&["layer_types"])?;
    if kinds.len() < layers {
        context.config.refuse(
            "layer_types",
            "out_of_range",
            format!("expected an entry for each of {layers} layers, got {}", kinds.len()),
        );
        return None;
    }
    kinds.truncate(layers);
    Some(kinds)
}
