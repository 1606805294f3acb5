//! The JSON of `POST /v1/plans` to the planner's words, with every default filled in.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, hint, real_number, short_text, wrong_type};
use super::json::Document;
use super::search::few_searched;
pub(super) use super::search::read_search;
use super::{FieldError, Pointer, bounds};
use crate::planner::input::{
    EngineSettings, LatencyModel, Objective, OverrideValue, Overrides, Search, Slo, Workload,
};
use crate::planner::units::Bytes;

/// Prompt length when the request names none.
pub const DEFAULT_INPUT_TOKENS: u64 = 4096;
/// Generated length when the request names none.
pub const DEFAULT_OUTPUT_TOKENS: u64 = 512;
/// Requests in flight when the request names none.
pub const DEFAULT_CONCURRENCY: u64 = 64;
/// Layouts in an answer when the request names no limit.
pub const DEFAULT_LIMIT: u64 = 20;
/// The engine when the request names none.
pub const DEFAULT_ENGINE: &str = "vllm";

/// A question as it was asked: checked, with defaults, but with model and cluster not yet looked up.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    pub model: ModelRequest,
    /// A text, or an object of the cluster contract; `ingest::cluster` reads it.
    pub cluster: Value,
    pub engines: Vec<EngineSettings>,
    /// True when `engine` was a list: the faults of its items have an index.
    pub engines_listed: bool,
    /// The engine's settings are those of a command or log that was read: words that it refuses are what is found, and no faults
    /// of the question.
    pub of_a_command: bool,
    pub workload: Workload,
    pub slo: Slo,
    pub objective: Objective,
    pub search: Search,
    pub overrides: Overrides,
    pub latency_model: LatencyModel,
    /// Advice also looks at other checkpoints and at GPUs that the cluster lacks.
    pub advice_in_detail: bool,
    pub limit: usize,
}

/// The model of a question.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub source: ModelSource,
    /// "As if the checkpoint were quantised so": `bf16`, `fp8`, `nvfp4`, …
    pub weights: Option<String>,
    /// The format that the engine makes of a checkpoint that is not quantised, while it loads it (of `engine.quantization`).
    pub quantized_on_load: Option<&'static str>,
    /// Keys of config.json to replace: a what-if.
    pub overrides: Map<String, Value>,
    /// The quantisation block of a checkpoint that keeps it in a side file.
    pub quantization_config: Option<Value>,
    /// Total weights, to be split evenly over the ranks.
    pub weights_bytes: Option<u64>,
}

/// Where a configuration comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSource {
    /// A model known by id or alias, at a revision when one is named.
    Id { id: String, revision: Option<String> },
    /// A config.json in the request itself.
    Config { config: Value, name: String },
}

impl ModelRequest {
    /// A model by its id, as published.
    #[must_use]
    pub fn by_id(id: &str) -> Self {
        Self::of(ModelSource::Id { id: id.to_owned(), revision: None })
    }

    /// A model from a given place, as published.
    #[must_use]
    pub fn of(source: ModelSource) -> Self {
        Self {
            source,
            weights: None,
            quantized_on_load: None,
            overrides: Map::new(),
            quantization_config: None,
            weights_bytes: None,
        }
    }

    /// True when nothing of the configuration is asked to be otherwise.
    #[must_use]
    pub fn is_as_published(&self) -> bool {
        self.weights.is_none()
            && self.overrides.is_empty()
            && self.quantization_config.is_none()
            && self.weights_bytes.is_none()
    }

    /// Where its config.json stands in the request, for the faults found in it.
    #[must_use]
    pub fn config_place(&self) -> Pointer {
        let model = Pointer::root().key("model");
        match self.source {
            ModelSource::Config { .. } => model.key("config"),
            ModelSource::Id { .. } => model,
        }
    }
}

impl PlanRequest {
    /// Read a document; its duplicate keys are faults too.
    ///
    /// # Errors
    /// All faults, in the order of the contract's fields.
    pub fn read_document(document: &Document) -> Result<Self, Vec<FieldError>> {
        match (Self::read(&document.value), document.duplicates.as_slice()) {
            (read, []) => read,
            (Ok(_), duplicates) => Err(duplicates.to_vec()),
            (Err(faults), duplicates) => Err([duplicates, &faults].concat()),
        }
    }

    /// Read a request.
    ///
    /// # Errors
    /// All faults, in the order of the contract's fields.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let request = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
            let request = read_request(&mut fields);
            fields.finish();
            request
        });
        match request {
            Some(request) if faults.is_empty() => Ok(request),
            _ => Err(faults),
        }
    }
}

pub(super) fn read_request(fields: &mut Fields<'_, '_>) -> Option<PlanRequest> {
    let model = read_model(fields);
    let cluster = read_cluster(fields);
    read_question(fields, model, cluster)
}

/// Everything but model and cluster, which the caller has read.
pub(super) fn read_question(
    fields: &mut Fields<'_, '_>,
    model: Option<ModelRequest>,
    cluster: Option<Value>,
) -> Option<PlanRequest> {
    let engines = read_engines(fields);
    let engines_listed = fields.is_list("engine");
    let workload = read_workload(fields);
    let slo = read_slo(fields);
    let objective = fields.choice("objective", OBJECTIVES).unwrap_or_default();
    let search = read_search(fields);
    few_searched(fields, &search, engines.len());
    let overrides = read_assumptions(fields);
    let latency_model = fields.choice("latency_model", LATENCY_MODELS).unwrap_or_default();
    let advice_in_detail =
        fields.choice("advice", &[("brief", false), ("detailed", true)]).unwrap_or_default();
    let limit = fields.whole("limit", bounds::LIMIT).unwrap_or(DEFAULT_LIMIT);
    let quantized_on_load = EngineSettings::common_format(&engines);
    Some(PlanRequest {
        model: ModelRequest { quantized_on_load, ..model? },
        cluster: cluster?,
        engines,
        engines_listed,
        of_a_command: false,
        workload,
        slo,
        objective,
        search,
        overrides,
        latency_model,
        advice_in_detail,
        limit: usize::try_from(limit).ok()?,
    })
}

pub(super) const OBJECTIVES: &[(&str, Objective)] = &[
    ("balanced", Objective::Balanced),
    ("throughput", Objective::Throughput),
    ("latency", Objective::Latency),
    ("capacity", Objective::Capacity),
    ("cost", Objective::Cost),
];

pub(super) const LATENCY_MODELS: &[(&str, LatencyModel)] =
    &[("calibrated", LatencyModel::Calibrated), ("roofline", LatencyModel::Roofline)];

pub(super) fn read_model(fields: &mut Fields<'_, '_>) -> Option<ModelRequest> {
    let value = fields.required("model")?;
    if let Value::String(_) = value {
        let id = fields.text("model", bounds::NAME_CHARS)?;
        return Some(ModelRequest::by_id(id.trim()));
    }
    let mut model = fields.object("model")?;
    let id = model.text("id", bounds::NAME_CHARS);
    let revision = model.text("revision", bounds::NAME_CHARS);
    let config = model.open_object("config", usize::MAX);
    let name = model.text("name", bounds::NAME_CHARS);
    let weights = model.text("weights", bounds::NAME_CHARS).map(str::to_owned);
    let overrides = model.open_object("overrides", bounds::OVERRIDES).cloned().unwrap_or_default();
    let quantization_config =
        model.open_object("quantization_config", usize::MAX).cloned().map(Value::Object);
    let weights_bytes = model.whole("weights_bytes", bounds::BYTES);
    let source = match (id, config) {
        (Some(_), Some(_)) => {
            model.refuse("id", "conflict", "give `id` or `config`, not both");
            None
        }
        (None, None) => {
            if model.raw("id").is_none() && model.raw("config").is_none() {
                model.refuse("id", "missing", "give `id` (a known model) or `config` (a config.json)");
            }
            None
        }
        (Some(id), None) => {
            if name.is_some() {
                model.refuse(
                    "name",
                    "conflict",
                    "`name` belongs to `config`; a model given by `id` has its own",
                );
            }
            let id = id.trim().to_owned();
            Some(ModelSource::Id { id, revision: revision.map(str::to_owned) })
        }
        (None, Some(config)) => {
            if revision.is_some() {
                model.refuse("revision", "conflict", "`revision` belongs to `id`");
            }
            let name = name.unwrap_or("model").to_owned();
            Some(ModelSource::Config { config: Value::Object(config.clone()), name })
        }
    };
    model.finish();
    Some(ModelRequest {
        source: source?,
        weights,
        quantized_on_load: None,
        overrides,
        quantization_config,
        weights_bytes,
    })
}

pub(super) fn read_cluster(fields: &mut Fields<'_, '_>) -> Option<Value> {
    let value = fields.required("cluster")?;
    if matches!(value, Value::String(_) | Value::Object(_)) {
        return Some(value.clone());
    }
    let fault = wrong_type(
        &fields.place_of("cluster"),
        value,
        "a text such as \"16 H100s\", or an object with `node_pools` or `topology`",
    );
    fields.push(fault);
    None
}

pub(super) fn read_engines(fields: &mut Fields<'_, '_>) -> Vec<EngineSettings> {
    match fields.raw("engine") {
        None => vec![EngineSettings::defaults_of(DEFAULT_ENGINE, "")],
        Some(Value::Array(items)) => {
            let place = fields.place_of("engine");
            if items.is_empty() || items.len() > bounds::ENGINES {
                let detail = format!("expected 1 to {} engines, got {}", bounds::ENGINES, items.len());
                fields.push(FieldError::at(&place, "out_of_range", detail));
                return Vec::new();
            }
            items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| fields.nested(item, place.index(i)).map(read_engine))
                .collect()
        }
        Some(_) => fields.object("engine").map(read_engine).into_iter().collect(),
    }
}

/// Names that other engines give to a setting of the same meaning.
const SETTING_ALIASES: &[(&str, &[&str])] = &[
    ("gpu_memory_utilization", &["mem_fraction_static", "free_gpu_memory_fraction"]),
    ("max_model_len", &["context_length", "max_seq_len"]),
    ("max_num_seqs", &["max_running_requests", "max_batch_size"]),
    ("max_num_batched_tokens", &["chunked_prefill_size", "max_num_tokens"]),
    ("block_size", &["page_size", "tokens_per_block"]),
];

fn read_engine(mut engine: Fields<'_, '_>) -> EngineSettings {
    let name = engine.text("name", bounds::NAME_CHARS).unwrap_or(DEFAULT_ENGINE).trim().to_owned();
    let version = engine.text("version", bounds::NAME_CHARS).unwrap_or_default().trim().to_owned();
    let of = |setting: &'static str, engine: &mut Fields<'_, '_>| spelling(setting, engine);
    let utilization = of("gpu_memory_utilization", &mut engine);
    let model_len = of("max_model_len", &mut engine);
    let seqs = of("max_num_seqs", &mut engine);
    let batched = of("max_num_batched_tokens", &mut engine);
    let block = of("block_size", &mut engine);
    let (num_speculative_tokens, speculation) = super::speculation::read(&mut engine);
    let settings = EngineSettings {
        gpu_memory_utilization: engine.number(utilization, bounds::UTILIZATION),
        kv_cache_dtype: engine.text("kv_cache_dtype", bounds::NAME_CHARS).unwrap_or("auto").trim().to_owned(),
        max_model_len: engine.whole(model_len, bounds::TOKENS),
        max_num_seqs: engine.whole(seqs, bounds::SEQUENCES),
        max_num_batched_tokens: engine.whole(batched, bounds::TOKENS),
        block_size: engine.whole(block, bounds::BLOCK_SIZE),
        kv_cache_memory_bytes: engine.whole("kv_cache_memory_bytes", bounds::BYTES).map(Bytes),
        quantization: engine.text("quantization", bounds::NAME_CHARS).map(|q| q.trim().to_owned()),
        async_scheduling: engine.flag("async_scheduling"),
        enable_prefix_caching: engine.flag("enable_prefix_caching"),
        disable_hybrid_kv_cache_manager: engine.flag("disable_hybrid_kv_cache_manager").unwrap_or(false),
        language_model_only: engine.flag("language_model_only").unwrap_or(false),
        enforce_eager: engine.flag("enforce_eager").unwrap_or(false),
        num_speculative_tokens,
        speculation,
        allow_long_max_model_len: engine.flag("allow_long_max_model_len").unwrap_or(false),
        allow_deprecated_quantization: engine.flag("allow_deprecated_quantization").unwrap_or(false),
        pp_layer_partition: engine.wholes("pp_layer_partition", bounds::STAGE_LAYERS, bounds::STAGES),
        swa_full_tokens_ratio: engine.number("swa_full_tokens_ratio", 0.001..=1.0),
        mamba_full_memory_ratio: engine.number("mamba_full_memory_ratio", 0.001..=100.0),
        ..EngineSettings::defaults_of(&name, &version)
    };
    engine.finish();
    settings
}

/// The spelling of a setting that the caller used; giving it twice under two names is a fault.
fn spelling(setting: &'static str, engine: &mut Fields<'_, '_>) -> &'static str {
    let aliases =
        SETTING_ALIASES.iter().find(|(name, _)| *name == setting).map_or(&[][..], |(_, aliases)| aliases);
    let mut given = std::iter::once(setting).chain(aliases.iter().copied()).filter(|name| engine.has(name));
    let first = given.next().unwrap_or(setting);
    if let Some(second) = given.next() {
        engine.raw(second);
        engine.refuse(second, "conflict", format!("`{second}` and `{first}` are the same setting; give one"));
    }
    first
}

pub(super) fn read_workload(fields: &mut Fields<'_, '_>) -> Workload {
    let mut workload = Workload {
        input_tokens: DEFAULT_INPUT_TOKENS,
        output_tokens: DEFAULT_OUTPUT_TOKENS,
        context_tokens: None,
        decode_context_tokens: None,
        concurrency: DEFAULT_CONCURRENCY,
        prefix_cache_hit_rate: 0.0,
    };
    if let Some(mut given) = fields.object("workload") {
        workload = Workload {
            input_tokens: given.whole("input_tokens", bounds::TOKENS).unwrap_or(workload.input_tokens),
            output_tokens: given.whole("output_tokens", bounds::TOKENS).unwrap_or(workload.output_tokens),
            context_tokens: given.whole("context_tokens", bounds::TOKENS),
            decode_context_tokens: given.whole("decode_context_tokens", bounds::TOKENS),
            concurrency: given.whole("concurrency", bounds::CONCURRENCY).unwrap_or(workload.concurrency),
            prefix_cache_hit_rate: given.number("prefix_cache_hit_rate", bounds::SHARE).unwrap_or(0.0),
        };
        given.finish();
    }
    workload
}

pub(super) fn read_slo(fields: &mut Fields<'_, '_>) -> Slo {
    fields.object("slo").map_or_else(Slo::default, |mut given| {
        let slo = Slo {
            ttft_ms: given.number("ttft_ms", bounds::MILLISECONDS),
            tpot_ms: given.number("tpot_ms", bounds::MILLISECONDS),
        };
        given.finish();
        slo
    })
}

pub(super) fn read_assumptions(fields: &mut Fields<'_, '_>) -> Overrides {
    let mut overrides = Overrides::default();
    let place = fields.place_of("assumptions");
    let Some(given) = fields.open_object("assumptions", bounds::OVERRIDES) else { return overrides };
    let names: Vec<&str> = Overrides::NAMES.iter().map(|(name, _)| *name).collect();
    for (name, value) in given {
        let Some((known, unit)) = Overrides::NAMES.iter().find(|(known, _)| known == name) else {
            let shown: String = name.chars().take(64).collect();
            let detail = format!("there is no assumption `{shown}`{}", hint(name, &names));
            fields.push(
                FieldError::at(&place.key(&shown), "unknown_field", detail)
                    .allowed(names.iter().copied())
                    .got(value),
            );
            continue;
        };
        match read_assumption(known, unit, value, &place.key(known)) {
            Ok(Some(value)) => overrides.set(known, value),
            Ok(None) => {}
            Err(faults) => faults.into_iter().for_each(|fault| fields.push(fault)),
        }
    }
    overrides
}

fn read_assumption(
    name: &str,
    unit: &str,
    value: &Value,
    place: &Pointer,
) -> Result<Option<OverrideValue>, Vec<FieldError>> {
    let range = bounds::assumption(name, unit);
    match value {
        Value::Null => Ok(None),
        Value::Object(by_link) if name.starts_with("link_") => {
            if by_link.len() > bounds::LINKS {
                let detail = format!("expected at most {} links", bounds::LINKS);
                return Err(vec![FieldError::at(place, "out_of_range", detail)]);
            }
            let mut rates = BTreeMap::new();
            let mut faults = Vec::new();
            for (link, rate) in by_link {
                let rate = short_text(&Value::String(link.clone()), place, bounds::NAME_CHARS)
                    .and_then(|_| real_number(rate, &place.key(link), &range));
                match rate {
                    Ok(rate) => _ = rates.insert(link.clone(), rate),
                    Err(fault) => faults.push(fault),
                }
            }
            if faults.is_empty() { Ok(Some(OverrideValue::ByKey(rates))) } else { Err(faults) }
        }
        number => {
            real_number(number, place, &range).map(|n| Some(OverrideValue::Number(n))).map_err(|f| vec![f])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(value: &Value) -> Vec<(String, &'static str)> {
        PlanRequest::read(value).expect_err("faulty").into_iter().map(|f| (f.pointer, f.code)).collect()
    }

    #[test]
    fn the_smallest_request_has_every_default() {
        let request = PlanRequest::read(&json!({"model": "m", "cluster": "16 H100s"})).expect("valid");
        assert_eq!(request.model, ModelRequest::by_id("m"));
        assert_eq!(request.engines, [EngineSettings::defaults_of("vllm", "")]);
        assert_eq!(request.limit, 20);
        assert!(request.search.allow_idle_gpus);
        assert_eq!(request.workload.input_tokens, DEFAULT_INPUT_TOKENS);
    }

    #[test]
    fn the_whole_contract_is_read() {
        let request = PlanRequest::read(&json!({
            "model": {"config": {"num_hidden_layers": 2}, "name": "mine", "weights": "fp8", "overrides": {"num_key_value_heads": 1}, "weights_bytes": 5},
            "cluster": {"node_pools": []},
            "engine": [{"name": "vllm", "version": "0.33", "gpu_memory_utilization": 0.92, "kv_cache_dtype": "fp8", "max_model_len": 32768,
                "max_num_seqs": 256, "max_num_batched_tokens": 8192, "block_size": 16, "kv_cache_memory_bytes": null, "quantization": null},
                {"name": "sglang", "mem_fraction_static": 0.8, "page_size": 64}],
            "workload": {"input_tokens": 1, "output_tokens": 2, "context_tokens": 3, "concurrency": 4},
            "slo": {"ttft_ms": 1000, "tpot_ms": 40}, "objective": "cost",
            "search": {"tp": [8, 16], "pp": [1, 2], "dp": null, "allow_idle_gpus": false},
            "assumptions": {"reserve_bytes": 3_000_000_000_u64, "link_bytes_per_s": {"nvlink4": 9e11}},
            "latency_model": "roofline", "limit": 5,
        }))
        .expect("valid");
        assert_eq!(request.engines.len(), 2);
        assert_eq!(request.engines[0].max_model_len, Some(32768));
        assert_eq!(request.engines[1].gpu_memory_utilization, Some(0.8));
        assert_eq!(request.engines[1].block_size, Some(64));
        assert_eq!(request.search.tp, Some(vec![8, 16]));
        assert_eq!(request.search.dp, None);
        assert_eq!(request.overrides.number("reserve_bytes"), Some(3e9));
        assert_eq!(request.overrides.number_for("link_bytes_per_s", "nvlink4"), Some(9e11));
        assert_eq!(request.model.weights_bytes, Some(5));
        assert_eq!(request.latency_model, LatencyModel::Roofline);
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let found = faults(&json!({
            "modle": "x", "cluster": 16,
            "engine": {"max_modle_len": 1, "gpu_memory_utilization": 1.5, "block_size": 0, "version": 0.33},
            "workload": {"input_tokens": -1}, "objective": "speed", "search": {"tp": "8"},
            "assumptions": {"reserv_bytes": 1, "hbm_efficiency": 0}, "limit": 0,
        }));
        let expected = [
            ("#/model", "missing"),
            ("#/cluster", "wrong_type"),
            ("#/engine/version", "wrong_type"),
            ("#/engine/gpu_memory_utilization", "out_of_range"),
            ("#/engine/block_size", "out_of_range"),
            ("#/engine/max_modle_len", "unknown_field"),
            ("#/workload/input_tokens", "out_of_range"),
            ("#/objective", "not_allowed"),
            ("#/search/tp", "wrong_type"),
            ("#/assumptions/reserv_bytes", "unknown_field"),
            ("#/assumptions/hbm_efficiency", "out_of_range"),
            ("#/limit", "out_of_range"),
            ("#/modle", "unknown_field"),
        ];
        assert_eq!(found, expected.map(|(p, c)| (p.to_owned(), c)));
    }

    #[test]
    fn a_model_is_given_one_way() {
        for (model, expected) in [
            (json!({"id": "a/b", "config": {}}), vec![("#/model/id", "conflict")]),
            (json!({}), vec![("#/model/id", "missing")]),
            (json!({"id": 3}), vec![("#/model/id", "wrong_type")]),
            (json!({"id": "a/b", "name": "x"}), vec![("#/model/name", "conflict")]),
            (json!([]), vec![("#/model", "wrong_type")]),
            (json!(""), vec![("#/model", "out_of_range")]),
        ] {
            let found = faults(&json!({"model": model, "cluster": "8 H100"}));
            assert_eq!(
                found,
                expected.into_iter().map(|(p, c)| (p.to_owned(), c)).collect::<Vec<_>>(),
                "{model}"
            );
        }
        assert_eq!(faults(&json!([])), [("#".to_owned(), "wrong_type")]);
    }

    #[test]
    fn one_setting_under_two_names_is_a_conflict() {
        let found =
            faults(&json!({"model": "m", "cluster": "c", "engine": {"block_size": 16, "page_size": 16}}));
        assert_eq!(found, [("#/engine/page_size".to_owned(), "conflict")]);
    }

    #[test]
    fn a_search_of_too_many_layouts_is_refused_with_the_bound() {
        let all: Vec<u64> = (1..=64).collect();
        let faults = PlanRequest::read(&json!({
            "model": "m", "cluster": "11340 x 8 H100", "limit": 1000,
            "search": {"tp": &all, "pp": &all, "dp": &all, "ep": &all, "attention_dp": &all, "dcp": &all}
        }))
        .expect_err("too many");
        assert_eq!((faults[0].pointer.as_str(), faults[0].code), ("#/search", "out_of_range"));
        assert!(faults[0].detail.contains("200000") && faults.len() == 1, "{}", faults[0].detail);
    }
}
