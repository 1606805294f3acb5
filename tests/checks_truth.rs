//! Checks of recorded starts: the command that a record describes is checked, and the verdict is laid beside what happened.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Value, json};
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::json::Document;
use shardwise::service::accuracy::predict::version;
use shardwise::service::accuracy::{MemoryRow, find_gpu};
use shardwise::service::checks::check_offline;

fn rows() -> Vec<MemoryRow> {
    let lines = include_str!("data/truth/memory.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn configs() -> BTreeMap<String, Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("data/truth/memory_configs.jsonl.gz")[..])
        .read_to_string(&mut text)
        .expect("gzip");
    let read = |line: &str| -> Value { serde_json::from_str(line).expect("JSON") };
    text.lines()
        .map(|line| {
            let mut row = read(line);
            (row["model"].as_str().expect("named").to_owned(), row["config"].take())
        })
        .collect()
}

/// The command of a record, as somebody would have written it.
fn command(row: &MemoryRow) -> String {
    let mut words: Vec<String> = Vec::new();
    let (program, names): (&str, [&str; 9]) = match row.engine.as_str() {
        "sglang" => (
            "python3 -m sglang.launch_server --model-path",
            [
                "tp-size",
                "pp-size",
                "mem-fraction-static",
                "context-length",
                "chunked-prefill-size",
                "max-running-requests",
                "page-size",
                "kv-cache-dtype",
                "disable-cuda-graph",
            ],
        ),
        "tensorrt-llm" => (
            "trtllm-serve",
            [
                "tp_size",
                "pp_size",
                "kv_cache_free_gpu_memory_fraction",
                "max_seq_len",
                "max_num_tokens",
                "max_batch_size",
                "tokens_per_block",
                "kv_cache_dtype",
                "disable_cuda_graphs",
            ],
        ),
        _ => (
            "vllm serve",
            [
                "tensor-parallel-size",
                "pipeline-parallel-size",
                "gpu-memory-utilization",
                "max-model-len",
                "max-num-batched-tokens",
                "max-num-seqs",
                "block-size",
                "kv-cache-dtype",
                "enforce-eager",
            ],
        ),
    };
    words.push(format!("{program} the-model"));
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("--{name} {value}"));
        }
    };
    let whole = |n: Option<u64>| n.map(|n| n.to_string());
    put(names[0], whole(row.tp));
    put(names[1], whole(row.pp));
    put(names[2], row.mem_util.map(|u| u.to_string()));
    put(names[3], whole(row.max_model_len));
    put(names[4], whole(row.max_num_batched_tokens));
    put(names[5], whole(row.max_num_seqs));
    put(names[6], whole(row.block_size));
    let own = ["auto", "bf16", "bfloat16", "fp16", "float16"];
    put(names[7], row.kv_cache_dtype.clone().filter(|d| !own.contains(&d.as_str())));
    put("kv-cache-memory-bytes", whole(row.kv_cache_memory_bytes).filter(|_| row.engine == "vllm"));
    put("decode-context-parallel-size", whole(row.dcp).filter(|_| row.engine == "vllm"));
    if row.dp.is_some_and(|dp| dp > 1) {
        put("data-parallel-size", whole(row.dp));
        if row.engine == "sglang" {
            words.push("--enable-dp-attention".to_owned());
        }
    }
    if row.enforce_eager == Some(true) {
        words.push(format!("--{}", names[8]));
    }
    if row.ep == Some(true) && row.engine == "vllm" {
        words.push("--enable-expert-parallel".to_owned());
    }
    if row.prefix_caching == Some(false) && row.engine == "vllm" {
        words.push("--no-enable-prefix-caching".to_owned());
    }
    words.join(" ")
}

/// What a check says of a record: it starts, and with how many tokens; `None` when nothing can be said.
fn checked(row: &MemoryRow, configs: &BTreeMap<String, Value>) -> Result<(bool, Option<u64>, bool), String> {
    let format = row.weight_dtype.as_deref().unwrap_or("");
    if ["int6", "int5", "int3", "int2", "gguf", "mixed"].iter().any(|unread| format.contains(unread)) {
        return Err(format!("weights stored as {format}: no rule for them"));
    }
    let gpu = find_gpu(catalogue(), &row.gpu).ok_or("no such GPU")?;
    let name = row.model_name();
    let mut model = match configs.get(name) {
        Some(config) => json!({"config": config, "name": name}),
        None => json!({"id": name}),
    };
    let text = format!("{} {}", row.weight_dtype.as_deref().unwrap_or(""), row.model).to_ascii_lowercase();
    let stored = configs.get(name).is_some_and(|c| c.get("quantization_config").is_none());
    let formats = [
        ("nvfp4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        ("fp4", "nvfp4"),
        ("int4", "int4"),
        ("awq", "int4"),
        ("gptq", "int4"),
        ("fp8", "fp8"),
        ("int8", "int8"),
    ];
    let named = formats.iter().find(|(word, _)| text.contains(word)).map(|(_, format)| *format);
    // a build in four bits of a checkpoint that is published in eight is another checkpoint
    let rebuilt = named == Some("int4") && name.starts_with("DeepSeek-R1");
    if let (true, Some(format)) = (stored || rebuilt, named) {
        model["weights"] = json!(format);
    }
    let ranks = row.tp.unwrap_or(1) * row.pp.unwrap_or(1);
    let dp = if row.engine == "sglang" { 1 } else { row.dp.unwrap_or(1) };
    let count = row.gpu_count.unwrap_or(1).max(ranks * dp);
    let mut question = json!({"command": command(row), "cluster": format!("{count} x {}", gpu.key), "model": model,
        "engine_version": version(row)});
    let printed = row.gpu_mem_gib_printed.map(|gib| gib * 1_073_741_824.0);
    let memory = printed.unwrap_or_else(|| gpu.memory_bytes.as_f64());
    question["assumptions"] = json!({"gpu_memory_bytes": memory});
    let answer =
        check_offline(&Document { value: question, duplicates: Vec::new() }).map_err(|e| e.to_string())?;
    let deployment = answer.deployments.first().ok_or("no deployment")?;
    let length = answer
        .checks
        .iter()
        .any(|c| c.code == "max_model_len" && c.status >= shardwise::service::checks::Status::Warn);
    Ok((deployment.will_start.ok_or("no rules")?, deployment.kv_tokens_per_replica, length))
}

#[test]
fn verdicts_agree_with_what_happened() {
    let configs = configs();
    let (mut started, mut refused) = ((0, 0), (0, 0));
    let mut errors: Vec<f64> = Vec::new();
    let mut silent = 0;
    for row in rows().iter().filter(|r| ["vllm", "sglang", "tensorrt-llm"].contains(&r.engine.as_str())) {
        match checked(row, &configs) {
            Ok((starts, tokens, warned)) => {
                let side = if row.failed() { &mut refused } else { &mut started };
                // a start that is told to be doubtful counts as told
                let agrees = if row.failed() { !starts || warned } else { starts };
                side.1 += 1;
                side.0 += u32::from(agrees);
                let seen = row.kv_tokens.filter(|_| row.uniform() && row.is_complete() && !row.failed());
                let error = match (tokens, seen) {
                    (Some(tokens), Some(seen)) => Some(tokens as f64 / seen - 1.0),
                    _ => None,
                };
                errors.extend(error);
                println!(
                    "{} {} {} {} agrees {agrees} starts {starts} tokens {tokens:?} seen {:?} {error:?}",
                    row.id, row.engine, row.model, row.outcome, row.kv_tokens
                );
            }
            Err(why) => {
                silent += 1;
                println!("{} {} {}: {why}", row.id, row.engine, row.model);
            }
        }
    }
    let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let within = |share: f64| sizes.iter().filter(|e| **e <= share).count();
    println!(
        "started {}/{}, refused {}/{}, nothing said of {silent}",
        started.0, started.1, refused.0, refused.1
    );
    println!(
        "tokens of {} uniform records: median {:.3}, within 5 % {}, within 10 % {}, within 20 % {}",
        sizes.len(),
        sizes[sizes.len() / 2],
        within(0.05),
        within(0.1),
        within(0.2)
    );
    assert!(started.0 * 100 >= started.1 * 95, "{started:?} of the starts");
    assert!(refused.0 * 2 >= refused.1, "{refused:?} of the refusals");
    assert!(sizes[sizes.len() / 2] < 0.05, "{}", sizes[sizes.len() / 2]);
}
