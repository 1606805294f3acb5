//! Flags to the API's own JSON, so that a command and a call go one way.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::args::{EngineArgs, PlanArgs, SearchArgs, WhatIfArgs, WorkloadArgs};
use super::number;
use crate::ingest::FieldError;
use crate::ingest::json::{self as document, Malformed};

/// Larger files than this are no configuration: the API's own limit on a body is lower.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// An input that the command cannot read.
#[derive(Debug, Error)]
pub enum Unreadable {
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: larger than {MAX_FILE_BYTES} bytes", path = path.display())]
    TooLarge { path: PathBuf },
    #[error("{path}: {source}", path = path.display())]
    Json { path: PathBuf, source: Malformed },
    #[error("{path}: {fault}", path = path.display())]
    Duplicate { path: PathBuf, fault: FieldError },
    #[error("--{flag} {given}: write NAME=VALUE")]
    NoValue { flag: &'static str, given: String },
    #[error("--{flag} {name}: given twice")]
    Twice { flag: &'static str, name: String },
}

/// Flags that ask about one model: of `plan`, `size` and `sweep`.
pub struct Question<'a> {
    pub model: Option<&'a str>,
    pub cluster: Option<&'a str>,
    pub engine: &'a EngineArgs,
    pub workload: &'a WorkloadArgs,
    pub search: &'a SearchArgs,
    pub what_if: &'a WhatIfArgs,
}

impl<'a> From<&'a PlanArgs> for Question<'a> {
    fn from(args: &'a PlanArgs) -> Self {
        Self {
            model: args.model.as_deref(),
            cluster: args.cluster.as_deref(),
            engine: &args.engine,
            workload: &args.workload,
            search: &args.search,
            what_if: &args.what_if,
        }
    }
}

/// The body of `POST /v1/plans` that the flags stand for.
///
/// # Errors
/// [`Unreadable`] when a named file cannot be read, or a NAME=VALUE is none.
pub fn body(asked: &Question<'_>) -> Result<Map<String, Value>, Unreadable> {
    let mut body = Map::new();
    if let Some(model) = asked.model {
        body.insert("model".to_owned(), model_of(model, asked.what_if)?);
    }
    if let Some(cluster) = asked.cluster {
        body.insert("cluster".to_owned(), cluster_of(cluster, asked.what_if.gpu.as_deref())?);
    }
    put(&mut body, "engine", engine_of(asked.engine));
    let (workload, slo) = workload_of(asked.workload);
    put(&mut body, "workload", workload);
    put(&mut body, "slo", slo);
    put(&mut body, "search", search_of(asked.search));
    for (name, given) in [
        ("objective", &asked.search.objective),
        ("advice", &asked.search.advice),
        ("latency_model", &asked.what_if.latency_model),
    ] {
        if let Some(text) = given {
            body.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    if let Some(limit) = &asked.search.limit {
        body.insert("limit".to_owned(), number::json(limit));
    }
    put(&mut body, "assumptions", assumptions_of(asked.what_if)?);
    Ok(body)
}

pub(super) fn put(body: &mut Map<String, Value>, name: &str, object: Map<String, Value>) {
    if !object.is_empty() {
        body.insert(name.to_owned(), Value::Object(object));
    }
}

/// An id, or the config.json at a path, with what is changed of it.
fn model_of(given: &str, what_if: &WhatIfArgs) -> Result<Value, Unreadable> {
    let mut model = match config_at(given) {
        Some(path) => from_file(&path)?,
        None => Map::from_iter([("id".to_owned(), Value::from(given))]),
    };
    if let Some(weights) = &what_if.weights {
        model.insert("weights".to_owned(), Value::from(weights.as_str()));
    }
    let overrides = pairs("override", &what_if.overrides, |text| {
        // a value of config.json may be anything: JSON where it parses, text elsewhere
        serde_json::from_str(text).unwrap_or_else(|_| number::json(text))
    })?;
    put(&mut model, "overrides", overrides);
    // the short form when there is nothing else to say
    if model.len() == 1 && model.contains_key("id") {
        return Ok(Value::from(given));
    }
    Ok(Value::Object(model))
}

/// The config.json that `given` names, when it is a path and not an id.
fn config_at(given: &str) -> Option<PathBuf> {
    let path = Path::new(given);
    if path.is_dir() && path.join("config.json").is_file() {
        return Some(path.join("config.json"));
    }
    let spelled_as_file = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let spelled_as_path = path.is_absolute() || given.starts_with("./") || given.starts_with("../");
    (path.is_file() || spelled_as_file || spelled_as_path).then(|| path.to_path_buf())
}

/// The model of a config.json, with the quantisation that some checkpoints keep in a file beside it.
fn from_file(path: &Path) -> Result<Map<String, Value>, Unreadable> {
    let config = json_at(path)?;
    let declared = config.get("_name_or_path").and_then(Value::as_str).filter(|n| !n.is_empty());
    let own = path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let folder = path.parent().and_then(Path::file_name).map(|s| s.to_string_lossy().into_owned());
    let name = match (declared, own) {
        (Some(name), _) => name.to_owned(),
        (None, Some(stem)) if stem != "config" => stem,
        _ => folder.unwrap_or_else(|| "model".to_owned()),
    };
    let mut model = Map::new();
    if config.get("quantization_config").is_none() {
        let beside = path.with_file_name("hf_quant_config.json");
        if beside.is_file() {
            model.insert("quantization_config".to_owned(), json_at(&beside)?);
        }
    }
    model.insert("config".to_owned(), config);
    model.insert("name".to_owned(), Value::from(name));
    Ok(model)
}

/// A text, or a file with a text, a JSON object or a topology matrix.
///
/// # Errors
/// [`Unreadable`] when a named file cannot be read.
pub fn cluster_of(given: &str, gpu: Option<&str>) -> Result<Value, Unreadable> {
    let Some(file) = given.strip_prefix('@') else { return Ok(Value::from(given)) };
    let path = Path::new(file);
    let text = text_at(path)?;
    // an object of the contract; a machine's own JSON is a text to recognise
    let object = serde_json::from_str::<Value>(&text).ok().filter(is_contract);
    if object.is_some() {
        return json_at(path);
    }
    // the matrix names its GPUs in the first row and again in the first column
    if text.matches("GPU0").count() >= 2 {
        let mut cluster = json!({ "topology": text });
        if let Some(gpu) = gpu {
            cluster["gpu"] = Value::from(gpu);
        }
        return Ok(cluster);
    }
    Ok(Value::from(text.trim()))
}

/// An object of the API's `cluster` field.
pub(super) fn is_contract(value: &Value) -> bool {
    ["node_pools", "topology"].iter().any(|key| value.get(key).is_some())
}

pub(super) fn engine_of(args: &EngineArgs) -> Map<String, Value> {
    let mut engine = Map::new();
    let texts = [
        ("name", args.engine.first()),
        ("version", args.engine_version.as_ref()),
        ("kv_cache_dtype", args.kv_cache_dtype.as_ref()),
        ("quantization", args.quantization.as_ref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            engine.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    numbers(
        &mut engine,
        &[
            ("gpu_memory_utilization", &args.gpu_memory_utilization),
            ("max_model_len", &args.max_model_len),
            ("max_num_seqs", &args.max_num_seqs),
            ("max_num_batched_tokens", &args.max_num_batched_tokens),
            ("block_size", &args.block_size),
            ("kv_cache_memory_bytes", &args.kv_cache_memory_bytes),
            ("num_speculative_tokens", &args.num_speculative_tokens),
        ],
    );
    let speculative = speculative_of(args);
    if !speculative.is_empty() {
        engine.insert("speculative_config".to_owned(), Value::Object(speculative));
    }
    list(&mut engine, "pp_layer_partition", &args.pp_layer_partition);
    for (name, on, off) in [
        ("async_scheduling", args.async_scheduling, args.no_async_scheduling),
        ("enable_prefix_caching", args.enable_prefix_caching, args.no_enable_prefix_caching),
        ("disable_hybrid_kv_cache_manager", args.disable_hybrid_kv_cache_manager, false),
        ("language_model_only", args.language_model_only, false),
        ("enforce_eager", args.enforce_eager, false),
        ("allow_long_max_model_len", args.allow_long_max_model_len, false),
        ("allow_deprecated_quantization", args.allow_deprecated_quantization, false),
    ] {
        if on || off {
            engine.insert(name.to_owned(), Value::from(on));
        }
    }
    engine
}

/// What drafts tokens, without their number, which has a flag of its own.
fn speculative_of(args: &EngineArgs) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(method) = &args.speculative_method {
        config.insert("method".to_owned(), Value::from(method.as_str()));
    }
    numbers(
        &mut config,
        &[("acceptance_rate", &args.acceptance_rate), ("draft_weights_bytes", &args.draft_weights_bytes)],
    );
    config
}

pub(super) fn workload_of(args: &WorkloadArgs) -> (Map<String, Value>, Map<String, Value>) {
    let (mut workload, mut slo) = (Map::new(), Map::new());
    numbers(
        &mut workload,
        &[
            ("input_tokens", &args.input_tokens),
            ("output_tokens", &args.output_tokens),
            ("context_tokens", &args.context_tokens),
            ("decode_context_tokens", &args.decode_context_tokens),
            ("concurrency", &args.concurrency),
            ("prefix_cache_hit_rate", &args.prefix_cache_hit_rate),
        ],
    );
    numbers(&mut slo, &[("ttft_ms", &args.ttft_ms), ("tpot_ms", &args.tpot_ms)]);
    (workload, slo)
}

fn search_of(args: &SearchArgs) -> Map<String, Value> {
    let mut search = Map::new();
    for (name, values) in args.sizes() {
        list(&mut search, name, values);
    }
    if args.no_idle_gpus {
        search.insert("allow_idle_gpus".to_owned(), Value::from(false));
    }
    search
}

/// `name=value` constants; `name.key=value` for one link.
fn assumptions_of(args: &WhatIfArgs) -> Result<Map<String, Value>, Unreadable> {
    let mut assumptions = Map::new();
    for (name, value) in pairs("assume", &args.assumptions, number::json)? {
        let Some((name, key)) = name.split_once('.') else {
            assumptions.insert(name, value);
            continue;
        };
        let by_key = assumptions.entry(name).or_insert_with(|| Value::Object(Map::new()));
        match by_key.as_object_mut() {
            Some(by_key) => _ = by_key.insert(key.to_owned(), value),
            None => return Err(Unreadable::Twice { flag: "assume", name: name.to_owned() }),
        }
    }
    Ok(assumptions)
}

fn pairs(
    flag: &'static str,
    given: &[String],
    value: impl Fn(&str) -> Value,
) -> Result<Map<String, Value>, Unreadable> {
    let mut pairs = Map::new();
    for pair in given {
        let (name, text) =
            pair.split_once('=').ok_or_else(|| Unreadable::NoValue { flag, given: pair.clone() })?;
        let name = name.trim().to_owned();
        if pairs.insert(name.clone(), value(text.trim())).is_some() {
            return Err(Unreadable::Twice { flag, name });
        }
    }
    Ok(pairs)
}

pub(super) fn numbers(object: &mut Map<String, Value>, given: &[(&str, &Option<String>)]) {
    for (name, text) in given {
        if let Some(text) = text {
            object.insert((*name).to_owned(), number::json(text));
        }
    }
}

pub(super) fn list(object: &mut Map<String, Value>, name: &str, given: &[String]) {
    if !given.is_empty() {
        object.insert(name.to_owned(), given.iter().map(|text| number::json(text)).collect());
    }
}

/// The text of a file; `-` is stdin.
///
/// # Errors
/// [`Unreadable`] when there is none, or too much of it.
pub fn text_at(path: &Path) -> Result<String, Unreadable> {
    let failed = |source| Unreadable::File { path: path.to_path_buf(), source };
    let mut text = String::new();
    let read = |source: &mut dyn io::Read, text: &mut String| -> io::Result<usize> {
        io::Read::read_to_string(&mut io::Read::take(source, MAX_FILE_BYTES + 1), text)
    };
    let length = if path == Path::new("-") {
        read(&mut io::stdin().lock(), &mut text)
    } else {
        fs::File::open(path).and_then(|mut file| read(&mut file, &mut text))
    }
    .map_err(failed)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(Unreadable::TooLarge { path: path.to_path_buf() });
    }
    Ok(text)
}

fn json_at(path: &Path) -> Result<Value, Unreadable> {
    let text = text_at(path)?;
    let read = document::read_config(text.as_bytes())
        .map_err(|source| Unreadable::Json { path: path.to_path_buf(), source })?;
    match read.duplicates.into_iter().next() {
        Some(fault) => Err(Unreadable::Duplicate { path: path.to_path_buf(), fault }),
        None => Ok(read.value),
    }
}

/// The flag that stands for a place of the body, for messages: `#/engine/max_model_len` is `--max-model-len`.
#[must_use]
pub fn flag_of(pointer: &str) -> String {
    let parts: Vec<&str> = pointer.trim_start_matches("#/").split('/').collect();
    match parts.as_slice() {
        ["model", "overrides", key, ..] => format!("--override {key}"),
        ["model", "weights"] => "--weights".to_owned(),
        ["model", "config", rest @ ..] if !rest.is_empty() => format!("--model: {}", rest.join(".")),
        ["model", ..] => "--model".to_owned(),
        ["cluster"] => "--cluster".to_owned(),
        ["cluster", rest @ ..] => format!("--cluster: {}", rest.join(".")),
        ["assumptions", name, rest @ ..] => {
            format!("--assume {}", [&[*name], rest].concat().join("."))
        }
        ["engine", "name"] => "--engine".to_owned(),
        ["engine", "version"] => "--engine-version".to_owned(),
        ["engine", "speculative_config", "method"] => "--speculative-method".to_owned(),
        ["engine", "speculative_config", name] => format!("--{}", name.replace('_', "-")),
        ["search", "allow_idle_gpus"] => "--no-idle-gpus".to_owned(),
        ["over" | "by", ..] => format!("--{}", parts.first().copied().unwrap_or_default()),
        ["filter", "fits"] => "--only-fitting".to_owned(),
        ["filter", "meets_slo"] => "--only-within-slo".to_owned(),
        ["engine" | "workload" | "slo" | "search" | "load" | "filter", name, ..]
        | [name]
        | [name @ "gpus", ..] => {
            format!("--{}", name.replace('_', "-"))
        }
        _ => pointer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::ingest::request::PlanRequest;
    use clap::Parser;

    fn body_of(flags: &[&str]) -> Result<Value, Unreadable> {
        let line = ["shardwise", "plan"].iter().chain(flags);
        let Command::Plan(args) = Cli::try_parse_from(line).expect("flags").command else {
            panic!("not plan")
        };
        body(&Question::from(&*args)).map(Value::Object)
    }

    #[test]
    fn two_flags_are_the_smallest_request() {
        let body = body_of(&["--model", "org/m", "--cluster", "16 H100s"]).expect("a body");
        assert_eq!(body, json!({"model": "org/m", "cluster": "16 H100s"}));
    }

    #[test]
    fn every_flag_reaches_the_request() {
        let flags = "--model org/m --cluster 8xH100 --engine vllm --engine-version 0.33 --gpu-memory-utilization 0.9 \
            --kv-cache-dtype fp8 --max-model-len 32K --max-num-seqs 64 --max-num-batched-tokens 8192 --block-size 16 \
            --kv-cache-memory-bytes 1g --quantization fp8 --num-speculative-tokens 2 \
            --speculative-method mtp --acceptance-rate 0.7 --draft-weights-bytes 2g --prefix-cache-hit-rate 0.5 --pp-layer-partition 40,40 \
            --no-async-scheduling --enable-prefix-caching --disable-hybrid-kv-cache-manager --language-model-only \
            --enforce-eager --allow-long-max-model-len --input-tokens 1k --output-tokens 100 --context-tokens 2000 --concurrency 7 --ttft-ms 900 \
            --tpot-ms 40.5 --objective capacity --tp 8,16 --pp 1 --dp 1 --ep 1 --attention-dp 1 --dcp 1,2 \
            --no-idle-gpus --limit 3 --weights fp8 --override num_key_value_heads=1 --assume reserve_bytes=3e9 \
            --assume link_bytes_per_s.nvlink4=9e11 --latency-model roofline";
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let body = body_of(&flags).expect("a body");
        assert_eq!(
            body,
            json!({
                "model": {"id": "org/m", "weights": "fp8", "overrides": {"num_key_value_heads": 1}},
                "cluster": "8xH100",
                "engine": {"name": "vllm", "version": "0.33", "kv_cache_dtype": "fp8", "quantization": "fp8",
                    "gpu_memory_utilization": 0.9, "max_model_len": 32768, "max_num_seqs": 64,
                    "max_num_batched_tokens": 8192, "block_size": 16, "kv_cache_memory_bytes": 1_000_000_000,
                    "num_speculative_tokens": 2,
                    "speculative_config": {"method": "mtp", "acceptance_rate": 0.7, "draft_weights_bytes": 2_000_000_000},
                    "pp_layer_partition": [40, 40], "async_scheduling": false,
                    "enable_prefix_caching": true, "disable_hybrid_kv_cache_manager": true,
                    "language_model_only": true, "enforce_eager": true,
                    "allow_long_max_model_len": true},
                "workload": {"input_tokens": 1000, "output_tokens": 100, "context_tokens": 2000, "concurrency": 7,
                    "prefix_cache_hit_rate": 0.5},
                "slo": {"ttft_ms": 900, "tpot_ms": 40.5},
                "search": {"tp": [8, 16], "pp": [1], "dp": [1], "ep": [1], "attention_dp": [1], "dcp": [1, 2],
                    "allow_idle_gpus": false},
                "objective": "capacity", "latency_model": "roofline", "limit": 3,
                "assumptions": {"reserve_bytes": 3_000_000_000_u64, "link_bytes_per_s": {"nvlink4": 900_000_000_000_u64}},
            })
        );
        assert!(PlanRequest::read(&body).is_ok());
    }

    #[test]
    fn a_fault_names_the_flag() {
        for (pointer, flag) in [
            ("#/engine/max_model_len", "--max-model-len"),
            ("#/workload/input_tokens", "--input-tokens"),
            ("#/search/tp/0", "--tp"),
            ("#/engine/speculative_config/method", "--speculative-method"),
            ("#/engine/speculative_config/acceptance_rate", "--acceptance-rate"),
            ("#/assumptions/reserve_bytes", "--assume reserve_bytes"),
            ("#/model/overrides/num_key_value_heads", "--override num_key_value_heads"),
            ("#/model/config/num_hidden_layers", "--model: num_hidden_layers"),
            ("#/model", "--model"),
            ("#/cluster", "--cluster"),
            ("#/limit", "--limit"),
        ] {
            assert_eq!(flag_of(pointer), flag);
        }
    }

    #[test]
    fn a_config_beside_its_quantisation_is_read_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("config.json"), r#"{"model_type": "llama"}"#).expect("written");
        fs::write(at("hf_quant_config.json"), r#"{"quantization": {"quant_algo": "FP8"}}"#).expect("written");
        let body =
            body_of(&["--model", &folder.path().to_string_lossy(), "--cluster", "8 H100"]).expect("a body");
        assert_eq!(body["model"]["config"], json!({"model_type": "llama"}));
        assert_eq!(body["model"]["quantization_config"]["quantization"]["quant_algo"], "FP8");
        fs::write(at("config.json"), r#"{"a": 1, "a": 2}"#).expect("written");
        let twice = body_of(&["--model", &at("config.json").to_string_lossy(), "--cluster", "8 H100"]);
        assert!(matches!(twice, Err(Unreadable::Duplicate { .. })));
        let missing = body_of(&["--model", "./nothing/here.json", "--cluster", "8 H100"]);
        assert!(matches!(missing, Err(Unreadable::File { .. })));
    }
}
