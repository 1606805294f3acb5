//! The prediction for a recorded start-up, from its settings alone.

use std::ops::Range;

use super::MemoryRow;
use crate::planner::engine::{self, CacheCapacity, EngineRules, MemoryBudget, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::sharded::StageWeights;
use crate::planner::speculation::{DraftMethod, Drafter};
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
    ("2025-03-20", "0.8"),
    ("2025-02", "0.7.1"),
    ("2024-09", "0.6"),
    ("0", "0.5"),
];

/// The same of SGLang.
const SGLANG_RELEASES: &[(&str, &str)] = &[("2026-11", "0.5.23"), ("2025-08", "0.5"), ("0", "0.4")];

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
    let releases = match row.engine.as_str() {
        "vllm" => VLLM_RELEASES,
        "sglang" => SGLANG_RELEASES,
        _ => &[],
    };
    let date = row.date.as_str();
    releases.iter().find(|(since, _)| date >= *since).map_or("latest", |(_, version)| *version).to_owned()
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
    if row.model.contains("quantised") && stored_as(row).is_none() {
        return Err("the weights are quantised in a way that is not stated".to_owned());
    }
    if drafts(row).is_some_and(|(method, drafts)| method.is_none() && drafts == 0) && !row.uniform() {
        return Err("draft tokens lengthen the states, and how many there are is not stated".to_owned());
    }
    let model =
        (finders.model)(row, stored_as(row)).ok_or_else(|| format!("no model {}", row.model_name()))?;
    if let Some(sizes) = unstated_size(&row.gpu) {
        return on_either(row, finders, rules, &model, &sizes);
    }
    let gpu = gpu(row, finders)?;
    if exceeds_its_share(row, &gpu) {
        return Err("the printed weights and cache exceed the printed share of this GPU: it was another one"
            .to_owned());
    }
    if is_shared_with_others(row, &gpu) {
        return Err("others held most of the GPU's memory when the engine started".to_owned());
    }
    Ok(on(row, rules, &model, &gpu))
}

/// The products that a name stands for which does not say its memory.
fn unstated_size(gpu: &str) -> Option<Vec<&'static str>> {
    let product = gpu.split([' ', '(']).next().unwrap_or(gpu);
    (gpu.contains("not stated") && product == "H20").then(|| vec!["h20-96gb", "h20-3e-141gb"])
}

/// Where the product is not told, only what holds on each of those it may be.
fn on_either(
    row: &MemoryRow,
    finders: &Finders<'_>,
    rules: &dyn EngineRules,
    model: &ModelSpec,
    products: &[&str],
) -> Result<Prediction, String> {
    let unknown = || format!("no GPU {}", row.gpu);
    for product in products {
        let gpu = (finders.gpu)(product).ok_or_else(unknown)?;
        if !matches!(on(row, rules, model, &gpu), Prediction::Fails { .. }) {
            return Err(unknown());
        }
    }
    Ok(fails(format!("on each of {}", products.join(", "))))
}

fn on(row: &MemoryRow, rules: &dyn EngineRules, model: &ModelSpec, gpu: &Gpu) -> Prediction {
    let shape = shape(row);
    let settings = match rules.resolve(&settings(row), model, gpu) {
        Ok(settings) => settings,
        Err(refusal) => return fails(refusal.message),
    };
    if let Some(refusal) = rules.refuse(model, &shape, gpu, &settings) {
        return fails(refusal.message);
    }
    let Some(stages) = rules.pipeline_split(model.layers.len(), shape.pp, &settings) else {
        return fails("a stage would have no layers".to_owned());
    };
    start(rules, model, &shape, gpu, &settings, &stages)
}

/// Weights and pool that SGLang printed are far less than its share of this GPU: others had the rest of it.
fn is_shared_with_others(row: &MemoryRow, gpu: &Gpu) -> bool {
    match (row.mem_util, row.weights_gib_per_gpu, row.available_kv_gib) {
        (Some(share), Some(weights), Some(cache)) if row.engine == "sglang" && !row.failed() => {
            weights + cache < share * gpu.memory_bytes.gib() / 2.0
        }
        _ => false,
    }
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
    let mut budget = rules.memory(model, shape, gpu, settings, stages, &weights);
    let drafter = Drafter::of(model, shape, settings);
    if let Some((drafter, items)) = drafter.zip(budget.stages.last_mut()) {
        items.drafter = drafter.item();
    }
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
    let mut cache = match rules.cache_layout(model, shape, gpu, settings, stages) {
        Ok(cache) => cache,
        Err(refusal) => return fails(refusal.message),
    };
    if let Some((drafter, layers)) = drafter.zip(stages.last()) {
        let stage = model.layers.get(layers.clone()).unwrap_or(&[]);
        cache.grow_last_stage(drafter.share_of_cache(model, stage));
    }
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
    if let Some((method, drafts)) = drafts(row) {
        settings.num_speculative_tokens = drafts;
        settings.speculation.method = method;
    }
    settings.block_size = row.block_size;
    settings.kv_cache_memory_bytes = row.kv_cache_memory_bytes.map(Bytes);
    settings.enforce_eager = row.enforce_eager == Some(true);
    // a length in a record was admitted
    settings.allow_long_max_model_len = true;
    settings.enable_prefix_caching = row.prefix_caching;
    settings
}

/// vLLM's V0 engine: the default before 0.8, on AMD before 0.10; where no release is stated, it may have run until then.
pub(super) fn is_v0(row: &MemoryRow) -> bool {
    let last = if on_amd(row) || row.engine_version.is_none() { "0.10" } else { "0.8" };
    row.engine == "vllm" && engine::newer_or_equal(&version(row), last) == Some(false)
}

fn on_amd(row: &MemoryRow) -> bool {
    row.gpu.starts_with("MI")
}

/// What drafts tokens in a record, and how many: `mtp k=3`; one token where a method with a layer of its own says no number.
fn drafts(row: &MemoryRow) -> Option<(Option<DraftMethod>, u64)> {
    let text = row.speculative.as_deref()?;
    let method = DraftMethod::of(text.split_whitespace().next()?);
    let stated = text.split_once("k=").and_then(|(_, n)| {
        let digits: String = n.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Some((method, stated.unwrap_or(u64::from(method.is_some()))))
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
