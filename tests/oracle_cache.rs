//! Cache groups, blocks, tokens and refusals against what vLLM 0.33 computes itself (`tests/data/oracle`).
//!
//! Every row that does not hold is listed with what differs.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;

use serde_json::Value;
use shardwise::ingest::config_json::{self, WhatIf};
use shardwise::planner::engine::{self, CacheLayout, EngineRules, Refusal, RefusalCode, ResolvedSettings};
use shardwise::planner::hardware::{Gpu, PeakFlops};
use shardwise::planner::input::EngineSettings;
use shardwise::planner::layout::Shape;
use shardwise::planner::model::ModelSpec;
use shardwise::planner::units::Bytes;

/// The level reached; raise it with the rules, never lower it.
const LEAST_HOLDING_PER_MILLE: usize = 1000;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("test data is gzip");
    text.lines().map(|line| config_json::parse(line).expect("test data is JSON")).collect()
}

fn configs() -> BTreeMap<String, Value> {
    lines(include_bytes!("data/oracle/configs.jsonl.gz"))
        .into_iter()
        .map(|mut row| (format!("configs/{}", row["file"].as_str().expect("named")), row["config"].take()))
        .collect()
}

fn gpu(name: &str) -> Gpu {
    let (short, architecture, capability, gib) = match name {
        "b200" => ("B200", "Blackwell", (10, 0), 178.36),
        "a100" => ("A100", "Ampere", (8, 0), 79.25),
        _ => ("H100", "Hopper", (9, 0), 79.18),
    };
    Gpu {
        key: name.to_owned(),
        name: format!("NVIDIA {short}"),
        short_name: short.to_owned(),
        vendor: "nvidia".to_owned(),
        architecture: architecture.to_owned(),
        compute_capability: Some(capability),
        memory_bytes: Bytes::from_gib(gib),
        driver_reserved_bytes: Bytes(0),
        memory_assumed: false,
        slice_of: None,
        hbm_bytes_per_s: 3.35e12,
        peak_flops: PeakFlops::default(),
        sources: Vec::new(),
        data_quality: "ok".to_owned(),
    }
}

fn size(case: &Value, key: &str) -> u64 {
    case[key].as_u64().unwrap_or_else(|| panic!("{key} of {}", case["model"]))
}

fn shape_of(case: &Value) -> Shape {
    let (tp, dp) = (size(case, "tp"), size(case, "dp"));
    // expert parallelism over one rank is still expert parallelism to the engine
    let ep = if case["ep"] == true { (tp * dp).max(2) } else { 1 };
    Shape { tp, pp: size(case, "pp"), ep, attention_dp: dp, dcp: size(case, "dcp") }
}

fn settings_of(case: &Value) -> EngineSettings {
    let mut settings = EngineSettings::defaults_of("vllm", "0.33");
    settings.kv_cache_dtype = case["kv_dtype"].as_str().unwrap_or("auto").to_owned();
    settings.max_model_len = case["max_model_len"].as_u64();
    settings.block_size = case["block_size_arg"].as_u64();
    let args = &case["engine_args"];
    settings.max_num_batched_tokens = args["max_num_batched_tokens"].as_u64();
    settings.async_scheduling = args["async_scheduling"].as_bool();
    settings.enable_prefix_caching = args["enable_prefix_caching"].as_bool();
    settings.language_model_only = args["language_model_only"] == true;
    settings
}

fn model_of(case: &Value, configs: &BTreeMap<String, Value>) -> Result<ModelSpec, String> {
    let config = &configs[case["config"].as_str().expect("a file")];
    let side = case["hf_quant_config"].as_str().and_then(|file| configs.get(file));
    let what_if = WhatIf { overrides: case["config_overrides"].as_object(), ..WhatIf::default() };
    config_json::read_as(case["model"].as_str().expect("named"), config, side, what_if)
        .map(|read| read.spec)
        .map_err(|error| error.to_string())
}

/// What these rules say of a case.
struct Computed {
    layout: CacheLayout,
    settings: ResolvedSettings,
    stages: Vec<Range<usize>>,
}

fn compute(case: &Value, model: &ModelSpec) -> Result<Computed, Refusal> {
    let rules: &dyn EngineRules = engine::rules("vllm", "0.33").expect("known");
    let (gpu, shape) = (gpu(case["gpu"].as_str().expect("a gpu")), shape_of(case));
    let settings = rules.resolve(&settings_of(case), model, &gpu)?;
    if let Some(refusal) = rules.refuse(model, &shape, &gpu, &settings) {
        return Err(refusal);
    }
    let stages = rules
        .pipeline_split(model.layers.len(), shape.pp, &settings)
        .ok_or_else(|| Refusal::new(RefusalCode::MoreStagesThanLayers, "a stage would be empty"))?;
    let layout = rules.cache_layout(model, &shape, &gpu, &settings, &stages)?;
    Ok(Computed { layout, settings, stages })
}

/// The oracle's word for a refusal.
fn agrees(code: RefusalCode, kind: &str) -> bool {
    match code {
        RefusalCode::QueryHeadsNotDivisible => kind == "query_heads",
        RefusalCode::KvHeadsNotDivisible => kind == "kv_heads",
        RefusalCode::VocabNotDivisible => kind == "vocab_padded",
        RefusalCode::DimensionNotDivisible => kind == "dimension",
        RefusalCode::QuantizationBlockNotDivisible => kind == "fp8_block",
        RefusalCode::MoreStagesThanLayers => kind == "pp_gt_layers",
        RefusalCode::DcpNotDivisible | RefusalCode::DcpWithoutReplication => kind == "dcp",
        RefusalCode::DcpNotSupported => kind.starts_with("dcp"),
        RefusalCode::ExpertParallelWithoutExperts => kind == "ep_not_moe",
        RefusalCode::DenseAttentionDp => kind == "dense_dp",
        RefusalCode::NoAttentionBackend => kind == "backend",
        RefusalCode::ArchitectureUnknown => kind == "architecture_unknown",
        RefusalCode::ArchitectureRemoved => kind == "architecture_dropped",
        RefusalCode::KvCacheTooSmall => kind == "kv_too_small",
        _ => false,
    }
}

/// What differs between the row and these rules; empty: the row holds.
fn differences(case: &Value, model: &ModelSpec) -> Vec<String> {
    let refused = case["refused"] == true;
    let kind = case["refused_kind"].as_str().unwrap_or("");
    let computed = match compute(case, model) {
        Ok(computed) => computed,
        Err(refusal) if refused && agrees(refusal.code, kind) => return Vec::new(),
        Err(refusal) => {
            return vec![format!("refused {} ({}), expected {kind:?}", refusal.code, refusal.message)];
        }
    };
    let Computed { layout, settings, stages } = &computed;
    let bytes = |kv: &Value| vec![Bytes(kv["available_kv_bytes"].as_u64().unwrap_or(0)); stages.len()];
    if refused {
        return match layout.capacity(&bytes(case), settings) {
            Err(_) if kind == "kv_too_small" => Vec::new(),
            _ => vec![format!("accepted, expected {kind}: {}", case["reason"])],
        };
    }
    let mut found = Vec::new();
    let mut check = |what: &str, ours: String, theirs: &Value| {
        let theirs = theirs.to_string();
        if ours != theirs {
            found.push(format!("{what} {ours}, expected {theirs}"));
        }
    };
    let stage = usize::try_from(size(case, "pp_rank")).expect("small");
    let range = stages.get(stage).expect("a stage");
    check("layers", format!("[{},{}]", range.start, range.end), &case["layers"]);
    check("step tokens", settings.max_num_batched_tokens.to_string(), &case["max_num_batched_tokens"]);
    check("block size", layout.block_size.to_string(), &case["block_size"]);
    check("block bytes", layout.block_bytes[stage].get().to_string(), &case["kv_bytes_per_block"]);
    if case["kv_heads_per_rank"].is_u64() {
        check("kv heads", layout.kv_heads_per_rank.to_string(), &case["kv_heads_per_rank"]);
    }
    for (kv, first) in std::iter::once((case, true))
        .chain(case["other_kv_sizes"].as_array().into_iter().flatten().map(|kv| (kv, false)))
    {
        match layout.capacity(&bytes(kv), settings) {
            Ok(capacity) => {
                check("blocks", capacity.blocks.to_string(), &kv["num_blocks"]);
                check("tokens", capacity.tokens.get().to_string(), &kv["kv_tokens"]);
                let theirs = kv["max_concurrency"].as_f64().unwrap_or(f64::NAN);
                if ((capacity.max_concurrency - theirs) / theirs).abs() > 1e-9 {
                    check("concurrency", capacity.max_concurrency.to_string(), &kv["max_concurrency"]);
                }
                if first {
                    let ours = serde_json::to_string(&capacity.blocks_per_request).expect("numbers");
                    check("blocks per request", ours, &case["blocks_per_full_request_by_group"]);
                }
            }
            Err(_) => check("blocks", "null".to_owned(), &kv["num_blocks"]),
        }
    }
    found
}

#[test]
fn cache_and_refusals_equal_the_engines() {
    let configs = configs();
    let mut table: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for case in lines(include_bytes!("data/oracle/cases.jsonl.gz")) {
        let architecture = configs[case["config"].as_str().expect("a file")]["architectures"][0]
            .as_str()
            .unwrap_or("?")
            .to_owned();
        let row = table.entry(architecture).or_default();
        row.0 += 1;
        let differences = match model_of(&case, &configs) {
            Ok(model) => differences(&case, &model),
            Err(error) => {
                let kind = case["refused_kind"].as_str().unwrap_or("");
                if kind.starts_with("architecture") {
                    Vec::new()
                } else {
                    row.2 += 1;
                    vec![format!("config not read: {error}")]
                }
            }
        };
        if differences.is_empty() {
            row.1 += 1;
        } else {
            println!(
                "{} {} tp{} pp{}/{} ep={} dp{} dcp{} {} q={}: {}",
                case["model"].as_str().unwrap_or(""),
                case["gpu"].as_str().unwrap_or(""),
                case["tp"],
                case["pp_rank"],
                case["pp"],
                case["ep"],
                case["dp"],
                case["dcp"],
                case["kv_dtype"],
                case["weight_quant"],
                differences.join("; ")
            );
        }
    }
    println!("{:<44} {:>5} {:>6} {:>9}", "architecture", "rows", "hold", "not read");
    for (architecture, (rows, hold, unread)) in &table {
        println!("{architecture:<44} {rows:>5} {hold:>6} {unread:>9}");
    }
    let (rows, hold, unread) =
        table.values().fold((0, 0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1, sum.2 + row.2));
    println!("{:<44} {rows:>5} {hold:>6} {unread:>9}", "all");
    assert!(hold * 1000 >= rows * LEAST_HOLDING_PER_MILLE, "{hold} of {rows} rows hold");
}
