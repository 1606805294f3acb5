//! A fleet turns its own start-ups into corrections of memory: learnt deterministically, only where they help on start-ups that
//! were held out, and read again from the calibration file.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::config_json::{self, WhatIf};
use shardwise::planner::engine::{MemoryCorrection, rules};
use shardwise::planner::model::ModelSpec;
use shardwise::service::accuracy::predict::version;
use shardwise::service::accuracy::{
    Finders, MemoryRow, Prediction, find_gpu, find_model, predict, read_rows,
};
use shardwise::service::calibrate::memory::{LEAST, StartUp, corrected, fit};

const GIB: f64 = 1_073_741_824.0;

/// Configurations of recorded models that the catalogue lacks.
fn configs() -> BTreeMap<String, Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("data/truth/memory_configs.jsonl.gz")[..])
        .read_to_string(&mut text)
        .expect("test data is gzip");
    let of = |line: &str| {
        let mut row: Value = serde_json::from_str(line).expect("test data is JSON");
        (row["model"].as_str().expect("named").to_owned(), row["config"].take())
    };
    text.lines().map(of).collect()
}

/// The recorded start-ups of the repository as one fleet's, with what each printed as its pool, GiB.
fn fleet() -> Vec<(StartUp, f64)> {
    let configs = configs();
    let gpu = |name: &str| find_gpu(catalogue(), name);
    let model = |row: &MemoryRow, stored: Option<&str>| -> Option<ModelSpec> {
        let Some(config) = configs.get(row.model_name()) else { return find_model(row, stored) };
        let own = config.get("quantization_config").is_some();
        let what_if = WhatIf { weights: stored.filter(|_| !own), ..WhatIf::default() };
        config_json::read_as(row.model_name(), config, None, what_if).ok().map(|read| read.spec)
    };
    let finders = Finders { model: &model, gpu: &gpu };
    let rows = read_rows(include_str!("data/truth/memory.jsonl")).expect("rows");
    rows.iter()
        .filter(|row| !row.failed())
        .filter_map(|row| {
            let Prediction::Starts { weights, kv, overhead, tokens, .. } = predict(row, &finders) else {
                return None;
            };
            let printed = row.available_kv_gib.or_else(|| {
                row.uniform().then(|| row.kv_tokens.map(|seen| kv.gib() * seen / tokens)).flatten()
            })?;
            let loaded = row.weights_gib_per_gpu.map_or(0.0, |gib| gib - weights.gib());
            let start_up = StartUp {
                engine: row.engine.clone(),
                version: rules(&row.engine, &version(row)).ok()?.version().to_owned(),
                gpu: gpu(&row.gpu)?.key,
                estimated: overhead.as_f64(),
                floor: 0.0,
                took: overhead.as_f64() + (kv.gib() - printed - loaded) * GIB,
            };
            Some((start_up.plausible().ok()?, printed))
        })
        .collect()
}

#[test]
fn held_out_residuals_fall() {
    let fleet = fleet();
    let mut groups: BTreeMap<_, Vec<&(StartUp, f64)>> = BTreeMap::new();
    for member in &fleet {
        let s = &member.0;
        groups.entry((s.engine.clone(), s.version.clone(), s.gpu.clone())).or_default().push(member);
    }
    let (mut before, mut after, mut corrected_groups) = (Vec::new(), Vec::new(), 0);
    for (name, members) in groups.iter().filter(|(_, members)| members.len() >= LEAST) {
        let mut helped = 0;
        // each start-up is predicted by what the others teach
        for (i, (left, printed)) in members.iter().enumerate() {
            let others: Vec<StartUp> =
                members.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, m)| m.0.clone()).collect();
            let learnt = fit(&others, LEAST - 1);
            let Some(correction) = &learnt[0].correction else { continue };
            helped += 1;
            let pool = |rest: f64| (left.took - rest) / GIB / printed;
            before.push(pool(left.estimated).abs());
            after.push(pool(corrected(correction, left)).abs());
        }
        println!("{name:?}: {} start-ups, corrected {helped}", members.len());
        corrected_groups += usize::from(helped > 0);
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    println!(
        "{} start-ups of {corrected_groups} groups held out: pool off by {:.4} before, {:.4} after",
        before.len(),
        mean(&before),
        mean(&after)
    );
    assert!(before.len() >= 6, "{}", before.len());
    assert!(mean(&after) < mean(&before) * 0.8, "{} -> {}", mean(&before), mean(&after));
}

#[test]
fn the_order_of_start_ups_does_not_matter_and_few_teach_nothing() {
    let mut start_ups: Vec<StartUp> = fleet().into_iter().map(|(s, _)| s).collect();
    let forward = fit(&start_ups, LEAST);
    start_ups.reverse();
    assert_eq!(forward, fit(&start_ups, LEAST));
    assert!(fit(&start_ups, 1000).iter().all(|group| group.correction.is_none()));
    for group in &forward {
        assert!(group.correction.as_ref().is_none_or(MemoryCorrection::is_usable), "{group:?}");
        assert!(group.start_ups >= LEAST || group.correction.is_none(), "{group:?}");
    }
}

fn shardwise(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwise"));
    command.args(args).env_remove("SHARDWISE_PLANNER_CALIBRATION").output().expect("runs")
}

fn plan(calibration: Option<&Path>) -> Value {
    let mut args =
        vec!["plan", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--cluster", "1 H100", "--tp", "1"];
    args.extend(["--max-model-len", "32768", "--format", "json"]);
    if let Some(file) = calibration {
        args.extend(["--calibration", file.to_str().expect("a path")]);
    }
    let out = shardwise(&args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// Answers of `observe` for start-ups that left `gib` GiB less for the cache than the rules say.
fn observed(folder: &Path, gib: f64, count: usize) -> String {
    let mut lines = String::new();
    for i in 0..count {
        let memory = &plan(None)["layouts"][0]["memory"]["stages"][0];
        let pool = memory["kv_bytes"].as_f64().expect("bytes") / GIB - gib - 0.01 * i as f64;
        let log = format!(
            "INFO 11-30 10:00:0{i} [core.py:77] Initializing a V1 LLM engine (v0.33.0) with config: \
             model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1\n\
             INFO 11-30 10:00:0{i} [gpu_worker.py:298] Available KV cache memory: {pool:.2} GiB\n"
        );
        let path = folder.join(format!("{i}.log"));
        std::fs::write(&path, log).expect("writes");
        let out = shardwise(&["observe", path.to_str().expect("a path"), "--cluster", "1 H100", "--json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        lines.push_str(&String::from_utf8_lossy(&out.stdout));
    }
    lines
}

#[test]
fn from_logs_to_a_calibration_that_plans_use() {
    let folder = tempfile::tempdir().expect("folder");
    let (file, own) = (folder.path().join("observed.jsonl"), folder.path().join("own.json"));
    std::fs::write(&file, observed(folder.path(), 1.5, 5)).expect("writes");
    let (from, to) = (file.to_str().expect("a path"), own.to_str().expect("a path"));
    let made = shardwise(&["calibrate", "--from", from, "--output", to]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(text.contains("vllm 0.33 on h100-sxm5-80gb: 5 start-ups"), "{text}");
    let first = std::fs::read(&own).expect("reads");
    shardwise(&["calibrate", "--from", from, "--output", to]);
    assert_eq!(first, std::fs::read(&own).expect("reads"), "the same start-ups give the same file");
    let (before, after) = (plan(None), plan(Some(&own)));
    let pool =
        |plan: &Value| plan["layouts"][0]["memory"]["stages"][0]["kv_bytes"].as_f64().expect("bytes") / GIB;
    let less = pool(&before) - pool(&after);
    assert!((1.45..1.60).contains(&less), "{less}");
    let named =
        after["assumptions"].as_array().expect("a list").iter().find(|a| a["name"] == "memory_correction");
    assert!(named.is_some_and(|a| a["source"].as_str().is_some_and(|s| s.contains("5 start-ups"))));
    assert!(after["versions"]["calibration"].as_str().expect("a version").contains("+memory-"));
    // another GPU and another release are left as they are
    let other = |calibration: &[&str]| {
        let mut args = vec![
            "plan",
            "--model",
            "meta-llama/Llama-3.1-8B-Instruct",
            "--cluster",
            "1 H200",
            "--format",
            "json",
        ];
        args.extend(calibration);
        let out: Value = serde_json::from_slice(&shardwise(&args).stdout).expect("JSON");
        out["layouts"][0]["capacity"].clone()
    };
    assert_eq!(other(&[]), other(&["--calibration", to]));
    let too_few = shardwise(&["calibrate", "--from", from, "--at-least", "6"]);
    assert!(String::from_utf8_lossy(&too_few.stdout).contains("fewer than 6"));
}

#[test]
fn files_with_figures_that_cannot_be_are_refused() {
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/calibration/latency.json");
    let base: Value = serde_json::from_str(&std::fs::read_to_string(embedded).expect("reads")).expect("JSON");
    let one = json!({"engine": "vllm", "version": "0.33", "gpu": "h100-sxm5-80gb", "factor": 1.0, "added_bytes": 1e9,
        "low_bytes": -1e8, "high_bytes": 1e8, "observations": 5});
    let with = |key: &str, value: Value| {
        let mut other = one.clone();
        other[key] = value;
        other
    };
    let folder = tempfile::tempdir().expect("folder");
    for memory in [
        json!([with("factor", json!(-1.0))]),
        json!([with("added_bytes", json!(1e15))]),
        json!([with("low_bytes", json!(2e8))]),
        json!([one, one]),
    ] {
        let mut file = base.clone();
        file["memory"] = memory;
        let path = folder.path().join("bad.json");
        std::fs::write(&path, file.to_string()).expect("writes");
        let out = shardwise(&[
            "plan",
            "--model",
            "meta-llama/Llama-3.1-8B-Instruct",
            "--cluster",
            "1 H100",
            "--calibration",
            path.to_str().expect("a path"),
        ]);
        assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stdout));
        assert!(String::from_utf8_lossy(&out.stderr).contains("memory correction"));
    }
}
