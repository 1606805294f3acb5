//! The models and GPUs that records name.

use serde_json::Value;

use super::MemoryRow;
use crate::catalogue::hardware::HardwareCatalogue;
use crate::catalogue::models;
use crate::ingest::config_json::{self, WhatIf};
use crate::planner::hardware::Gpu;
use crate::planner::model::ModelSpec;
use crate::planner::units::Bytes;

/// A model of a record: its own config.json, or the catalogue's under its name, its name without the organisation, or that
/// without the words for formats. `stored` applies where the file is not quantised itself.
#[must_use]
pub fn find_model(row: &MemoryRow, stored: Option<&str>) -> Option<ModelSpec> {
    let read = |config: &Value, side: Option<&Value>| {
        let quantised = side.is_some() || config.get("quantization_config").is_some_and(|q| !q.is_null());
        let what_if = WhatIf { weights: stored.filter(|_| !quantised), ..WhatIf::default() };
        let spec =
            config_json::read_as(row.model_name(), config, side, what_if).ok().map(|read| read.spec)?;
        // a build in four bits of a checkpoint that is published in eight is another checkpoint
        let rebuilt = quantised && stored == Some("int4") && spec.quantization.starts_with("fp8");
        if !rebuilt {
            return Some(spec);
        }
        let what_if = WhatIf { weights: stored, ..WhatIf::default() };
        config_json::read_as(row.model_name(), config, None, what_if).ok().map(|read| read.spec)
    };
    if let Some(config) = &row.config {
        return read(config, None);
    }
    let name = row.model_name();
    let plain = name.rsplit('/').next().unwrap_or(name);
    let bare = without_format(plain);
    if let Some(model) = [name, plain, bare].into_iter().find_map(|n| models::find(n).ok()) {
        let mut config = model.config();
        as_first_published(&mut config, row);
        return read(&config, model.side_quantization().as_ref());
    }
    // a build of the same model in another format: its sizes, stored as this record says
    let sibling = models::all().iter().find(|model| {
        let plain = model.id.rsplit('/').next().unwrap_or(model.id);
        without_tuning(without_format(plain)).eq_ignore_ascii_case(without_tuning(bare))
    })?;
    let mut config = sibling.config();
    strip_format(&mut config);
    let what_if = WhatIf { weights: Some(stored.unwrap_or("bf16")), ..WhatIf::default() };
    config_json::read_as(row.model_name(), &config, None, what_if).ok().map(|read| read.spec)
}

/// Llama 3.1 405B held each KV head twice until August 2024 (vLLM pull request 7139, SGLang pull request 723).
fn as_first_published(config: &mut Value, row: &MemoryRow) {
    let dated = !row.date.is_empty() && row.date.as_str() < "2024-08-06";
    if dated
        && row.model.contains("Llama-3.1-405B")
        && let Some(config) = config.as_object_mut()
    {
        config.insert("num_key_value_heads".to_owned(), Value::from(16));
    }
}

/// A configuration without how its weights are stored.
fn strip_format(config: &mut Value) {
    let Some(object) = config.as_object_mut() else { return };
    for key in ["quantization_config", "compression_config"] {
        object.remove(key);
    }
    if let Some(text) = object.get_mut("text_config") {
        strip_format(text);
    }
}

/// A model's name without the words for what it was trained to do, which no size follows from.
fn without_tuning(name: &str) -> &str {
    const WORDS: [&str; 6] = ["-instruct", "-it", "-chat", "-base", "-hf", "-thinking"];
    let lower = name.to_ascii_lowercase();
    let word = WORDS.iter().find(|word| lower.ends_with(**word));
    word.and_then(|word| name.get(..name.len().saturating_sub(word.len()))).unwrap_or(name)
}

/// A model's name without the words for formats at its end.
fn without_format(name: &str) -> &str {
    let is_format = |word: &str| {
        let word = word.to_ascii_lowercase();
        FORMAT_WORDS.contains(&word.as_str())
    };
    let mut rest = name;
    while let Some((front, word)) = rest.rsplit_once(['-', '_']) {
        if !is_format(word) {
            break;
        }
        rest = front;
    }
    rest
}

/// Words at the end of names that say how weights are stored.
const FORMAT_WORDS: &[&str] = &[
    "fp8",
    "fp4",
    "nvfp4",
    "mxfp4",
    "awq",
    "gptq",
    "int4",
    "int8",
    "4bit",
    "8bit",
    "w4a16",
    "w8a8",
    "dynamic",
    "bf16",
    "quantized",
    "autoround",
];

/// A GPU by the name in a record: "H100 80GB", "RTX 3090 24GB", "24GB class", "DGX Spark GB10 128GB".
#[must_use]
pub fn find_gpu(catalogue: &HardwareCatalogue, name: &str) -> Option<Gpu> {
    if name.contains("not stated") {
        return None;
    }
    let remark = name.split_once('(').map_or("", |(_, remark)| remark.trim_end_matches(')'));
    if let Some(gpu) = remark.split('/').find_map(|word| catalogue.gpu(word.trim())) {
        return Some(gpu.clone());
    }
    let plain = name.split(['(', '+']).next().unwrap_or(name).trim();
    let without_size = plain.rsplit_once(' ').map_or(
        plain,
        |(front, size)| {
            if size.ends_with("GB") { front } else { plain }
        },
    );
    let known = [plain, without_size]
        .into_iter()
        .find_map(|n| catalogue.gpu(n))
        .or_else(|| without_size.split([' ', '/']).find_map(|word| catalogue.gpu(word)));
    if let Some(gpu) = known {
        return Some(gpu.clone());
    }
    // "24GB class": what a card of that size reports, on a chip of no particular kind
    let gb: f64 = plain.split("GB").next()?.trim().parse().ok()?;
    let mut gpu = catalogue.gpu("a10")?.clone();
    name.clone_into(&mut gpu.name);
    name.clone_into(&mut gpu.short_name);
    let share = if gb <= 16.0 { SMALL_CLASS_SHARE } else { CLASS_SHARE };
    gpu.memory_bytes = Bytes::from_gib(gb * share);
    Some(gpu)
}

/// Of its nominal GB, what a card reports in GiB: 79.2 of 80, 94.97 of 96, 23.65 of 24.
const CLASS_SHARE: f64 = 0.988;
/// The usual card of 16 GB is a T4, which reports 14.6.
const SMALL_CLASS_SHARE: f64 = 0.915;
