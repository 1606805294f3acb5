//! The prediction for a recorded start-up, from its settings alone.

use std::ops::Range;

use super::MemoryRow;
use serde_json::Value;

use crate::catalogue::hardware::HardwareCatalogue;
use crate::catalogue::models;
use crate::ingest::config_json::{self, WhatIf};
use crate::planner::engine::{self, CacheCapacity, EngineRules, MemoryBudget, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::sharded::StageWeights;
use crate::planner::units::Bytes;

/// Where models and GPUs are looked up.
pub struct Finders<'a> {
    /// A model by name, as stored in the given format where that is not the file's own.
    pub model: &'a dyn Fn(&MemoryRow, Option<&str>) -> Option<ModelSpec>,
    /// A GPU by the name in a record.
    pub gpu: &'a dyn Fn(&str) -> Option<Gpu>,
}

/// What the rules say of a start-up.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// It starts.
    Starts {
        weights: Bytes,
        kv: Bytes,
        /// Activation, runtime and graphs on the tightest stage: the part that is estimated.
        overhead: Bytes,
        tokens: f64,
        concurrency: f64,
    },
    /// It does not start; what is left for the cache where that was reached.
    Fails { reason: String, kv: Option<Bytes>, longest: Option<u64> },
    /// Nothing can be said, and why.
    Unknown(String),
}

/// Formats of weights that no rule is known for.
const UNREAD_FORMATS: &[&str] = &["int6", "int5", "int3", "int2", "gguf", "mixed"];

/// Releases of vLLM whose rules differ, with their dates: for records without a version.
const VLLM_RELEASES: &[(&str, &str)] = &[
    ("2026-11", "0.33"),
    ("2026-07", "0.24"),
    ("2026-05-15", "0.21"),
    ("2026-04-20", "0.20"),
    ("2025-12", "0.12"),
    ("2025-07", "0.10"),
    ("0", "0.6"),
];

/// The release of a record: its own version where that is a release, else the newest before its date.
#[must_use]
pub fn version(row: &MemoryRow) -> String {
    let own = row.engine_version.as_deref().map(|v| v.split_whitespace().next().unwrap_or(v));
    // "0.1.dev1+g…" is a build from source
    if let Some(own) =
        own.filter(|v| !v.starts_with("0.1.dev") && v.starts_with(|c: char| c.is_ascii_digit()))
    {
        return own.to_owned();
    }
    if row.engine != "vllm" {
        return "latest".to_owned();
    }
    let date = row.date.as_str();
    VLLM_RELEASES.iter().find(|(since, _)| date >= *since).map_or("0.6", |(_, version)| *version).to_owned()
}

/// Predict one start-up.
#[must_use]
pub fn predict(row: &MemoryRow, finders: &Finders<'_>) -> Prediction {
    match try_predict(row, finders) {
        Ok(prediction) => prediction,
        Err(why) => Prediction::Unknown(why),
    }
}

fn try_predict(row: &MemoryRow, finders: &Finders<'_>) -> Result<Prediction, String> {
    if row.is_pooling() {
        return Err("pooling models load no output head and run no sampler: no rule for them".to_owned());
    }
    let rules = engine::rules(&row.engine, &version(row)).map_err(|e| e.to_string())?;
    if let Some(format) =
        row.weight_dtype.as_deref().filter(|text| UNREAD_FORMATS.iter().any(|f| text.contains(f)))
    {
        return Err(format!("weights stored as {format}: no rule for them"));
    }
    let model =
        (finders.model)(row, stored_as(row)).ok_or_else(|| format!("no model {}", row.model_name()))?;
    let gpu = gpu(row, finders)?;
    if exceeds_its_share(row, &gpu) {
        return Err("the printed weights and cache exceed the printed share of this GPU: it was another one"
            .to_owned());
    }
    let shape = shape(row);
    let settings = match rules.resolve(&settings(row), &model, &gpu) {
        Ok(settings) => settings,
        Err(refusal) => return Ok(fails(refusal.message)),
    };
    if let Some(refusal) = rules.refuse(&model, &shape, &gpu, &settings) {
        return Ok(fails(refusal.message));
    }
    let Some(stages) = rules.pipeline_split(model.layers.len(), shape.pp, &settings) else {
        return Ok(fails("a stage would have no layers".to_owned()));
    };
    Ok(start(rules, &model, &shape, &gpu, &settings, &stages))
}

/// What vLLM printed cannot be of this GPU: weights and cache are parts of `utilisation x total`.
fn exceeds_its_share(row: &MemoryRow, gpu: &Gpu) -> bool {
    match (row.mem_util, row.weights_gib_per_gpu, row.available_kv_gib) {
        (Some(share), Some(weights), Some(cache)) if row.engine == "vllm" && !row.failed() => {
            weights + cache > share * gpu.memory_bytes.gib()
        }
        _ => false,
    }
}

fn fails(reason: String) -> Prediction {
    Prediction::Fails { reason, kv: None, longest: None }
}

fn start(
    rules: &dyn EngineRules,
    model: &ModelSpec,
    shape: &Shape,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    stages: &[Range<usize>],
) -> Prediction {
    let weights = weights(model, shape, stages);
    let budget = rules.memory(model, shape, gpu, settings, stages, &weights);
    let given = settings.kv_cache_memory_bytes;
    let kv: Option<Vec<Bytes>> = weights
        .iter()
        .zip(&budget.stages)
        .enumerate()
        .map(|(stage, (weights, items))| {
            given.or_else(|| budget.kv_bytes(stage, weights.bytes + items.total()))
        })
        .collect();
    let Some(kv) = kv else {
        return fails(format!("weights and overheads exceed the budget of {:.2} GiB", budget.budget.gib()));
    };
    let cache = match rules.cache_layout(model, shape, gpu, settings, stages) {
        Ok(cache) => cache,
        Err(refusal) => return fails(refusal.message),
    };
    match cache.capacity(&kv, settings) {
        Ok(capacity) => starts(&weights, &kv, &budget, &capacity),
        Err(small) => Prediction::Fails {
            reason: format!("one request needs {:.2} GiB of cache", small.needed_bytes.gib()),
            kv: Some(small.available_bytes),
            longest: Some(small.longest.get()),
        },
    }
}

fn starts(
    weights: &[StageWeights],
    kv: &[Bytes],
    budget: &MemoryBudget,
    capacity: &CacheCapacity,
) -> Prediction {
    let items = budget.stages.get(capacity.binding_stage);
    Prediction::Starts {
        overhead: items.map(|i| i.total() - i.buffers.bytes).unwrap_or_default(),
        weights: weights.iter().map(|w| w.bytes).max().unwrap_or_default(),
        kv: kv.iter().copied().min().unwrap_or_default(),
        tokens: capacity.tokens.as_f64(),
        concurrency: capacity.max_concurrency,
    }
}

fn weights(model: &ModelSpec, shape: &Shape, stages: &[Range<usize>]) -> Vec<StageWeights> {
    let sharded = model.sharded(shape);
    let last = stages.len().saturating_sub(1);
    stages
        .iter()
        .enumerate()
        .map(|(i, layers)| sharded.stage(layers.start, layers.end, i == 0, i == last))
        .collect()
}

fn shape(row: &MemoryRow) -> Shape {
    let (tp, dp) = (row.tp.unwrap_or(1), row.dp.unwrap_or(1));
    if row.engine == "sglang" && dp > 1 && row.gpu_count == row.tp && tp.is_multiple_of(dp) {
        // SGLang's TP counts all ranks: its attention groups divide them
        let tp = tp.checked_div(dp).unwrap_or(1);
        return Shape { tp, pp: row.pp.unwrap_or(1), ep: 1, attention_dp: dp, dcp: 1 };
    }
    let expert_parallel = row.ep == Some(true);
    let attention_dp = if expert_parallel { dp } else { 1 };
    let ep = if expert_parallel { tp.saturating_mul(dp) } else { 1 };
    Shape { tp, pp: row.pp.unwrap_or(1), ep, attention_dp, dcp: row.dcp.unwrap_or(1) }
}

fn settings(row: &MemoryRow) -> EngineSettings {
    let mut settings = EngineSettings::defaults_of(&row.engine, &version(row));
    settings.gpu_memory_utilization = row.mem_util;
    settings.kv_cache_dtype = match row.kv_cache_dtype.as_deref() {
        None | Some("auto" | "bf16" | "bfloat16" | "fp16" | "float16") => "auto".to_owned(),
        Some(other) => other.to_owned(),
    };
    settings.max_model_len = row.max_model_len;
    settings.max_num_seqs = row.max_num_seqs;
    settings.max_num_batched_tokens = row.max_num_batched_tokens;
    if settings.max_num_batched_tokens.is_none() && whole_prompts(row) {
        settings.max_num_batched_tokens = row.max_model_len;
    }
    settings.block_size = row.block_size;
    settings.kv_cache_memory_bytes = row.kv_cache_memory_bytes.map(Bytes);
    settings.enforce_eager = row.enforce_eager == Some(true);
    // a length in a record was admitted
    settings.allow_long_max_model_len = true;
    settings.enable_prefix_caching = row.prefix_caching;
    settings
}

/// vLLM's V0 engine: the default before 0.8, on AMD before 0.10.
pub(super) fn is_v0(row: &MemoryRow) -> bool {
    let last = if on_amd(row) { "0.10" } else { "0.8" };
    row.engine == "vllm" && engine::newer_or_equal(&version(row), last) == Some(false)
}

fn on_amd(row: &MemoryRow) -> bool {
    row.gpu.starts_with("MI")
}

/// V0 took prompts whole: up to 32k tokens, on AMD of any length.
fn whole_prompts(row: &MemoryRow) -> bool {
    is_v0(row) && (on_amd(row) || row.max_model_len.is_some_and(|m| m <= 32_768))
}

/// The recorded GPU, with the total that was printed. Records that only say "24GB class" take what cards of that size report.
fn gpu(row: &MemoryRow, finders: &Finders<'_>) -> Result<Gpu, String> {
    let mut gpu = (finders.gpu)(&row.gpu).ok_or_else(|| format!("no GPU {}", row.gpu))?;
    if let Some(gib) = row.gpu_mem_gib_printed {
        gpu.memory_bytes = Bytes::from_gib(gib);
    }
    Ok(gpu)
}

/// The format of the weights, in the words of `weights` of a plan request.
fn stored_as(row: &MemoryRow) -> Option<&'static str> {
    let text = format!("{} {}", row.weight_dtype.as_deref().unwrap_or(""), row.model).to_ascii_lowercase();
    [
        ("nvfp4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        ("fp4", "nvfp4"),
        ("int4", "int4"),
        ("awq", "int4"),
        ("gptq", "int4"),
        ("fp8", "fp8"),
        ("int8", "int8"),
    ]
    .iter()
    .find(|(word, _)| text.contains(word))
    .map(|(_, name)| *name)
}

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
    let model = [name, plain, without_format(plain)].into_iter().find_map(|n| models::find(n).ok())?;
    read(&model.config(), model.side_quantization().as_ref())
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
