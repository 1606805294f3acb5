use serde_json::{Value, json};

use super::*;
use crate::catalogue::hardware::catalogue;

/// The kind and request of a question.
fn read(text: &str) -> (&'static str, Value) {
    match parse(text, catalogue()).meaning {
        Meaning::Plan(request) => ("plan", request),
        Meaning::Fits(request) => ("fits", request),
        Meaning::Sizing(request) => ("sizing", request),
        Meaning::Sweep(request) => ("sweep", request),
        Meaning::Batch(request) => ("batch", request),
        Meaning::Model(request) => ("model", request),
        Meaning::Unclear(unclear) => ("unclear", Value::String(unclear.why)),
    }
}

/// Everything that `wanted` says holds in `found`.
fn holds(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|f| holds(value, f)))
        }
        (wanted, found) => wanted == found,
    }
}

const LLAMA: &str = "meta-llama/Llama-3.1-70B-Instruct";
const R1: &str = "deepseek-ai/DeepSeek-R1";

#[test]
fn usual_gpus_are_meant_where_none_are_named() {
    let known = Known { usual: Some("16 H100s"), saved: &[] };
    let on = |text: &str| match parse_on(text, known, catalogue()).meaning {
        Meaning::Plan(request) => ("plan", request["cluster"].clone()),
        Meaning::Fits(request) => ("fits", request["cluster"].clone()),
        Meaning::Sizing(request) => ("sizing", request["cluster"].clone()),
        Meaning::Sweep(request) => ("sweep", request["cluster"].clone()),
        Meaning::Batch(request) => ("batch", request["clusters"].clone()),
        Meaning::Model(_) => ("model", Value::Null),
        Meaning::Unclear(_) => ("unclear", Value::Null),
    };
    let usual = json!("16 H100s");
    assert_eq!(on("llama 3.1 70b at 32k"), ("plan", usual.clone()));
    assert_eq!(on("llama 3.1 70b with 50 users"), ("plan", usual.clone()));
    assert_eq!(on("what fits at 128k?"), ("fits", usual.clone()));
    assert_eq!(on("is TP=16 worth it for llama 3.1 70b"), ("sweep", usual));
    assert_eq!(on("llama 3.1 70b on 4 H200"), ("plan", json!("4 H200")));
    assert_eq!(on("how many H200 for llama 3.1 70b"), ("sizing", Value::Null));
    assert_eq!(on("how many GPUs for llama 3.1 70b"), ("sizing", Value::Null));
    assert_eq!(on("hello"), ("unclear", Value::Null));
    let assumed = parse_on("llama 3.1 70b", known, catalogue()).assumed;
    assert_eq!(assumed, ["16 H100s, the usual cluster here"]);
}

#[test]
fn questions_of_people_become_requests() {
    let context = |n: u64| json!({"context_tokens": n});
    let started = |n: u64| json!({"max_model_len": n});
    let table: Vec<(&str, &str, Value)> = vec![
        ("what fits on 16 H100s", "fits", json!({"cluster": "16 H100s"})),
        (
            "what fits on 16 H100s with 128k context",
            "fits",
            json!({"cluster": "16 H100s", "workload": context(131_072)}),
        ),
        ("which models can I run on 8 H200", "fits", json!({"cluster": "8 H200"})),
        (
            "What can I serve on 2x8 H100 at 32k?",
            "fits",
            json!({"cluster": "2x8 H100", "workload": context(32_768)}),
        ),
        (
            "what will fit on 4 A100 with fp8 kv",
            "fits",
            json!({"cluster": "4 A100", "engine": {"kv_cache_dtype": "fp8"}}),
        ),
        ("8 L40S", "fits", json!({"cluster": "8 L40S"})),
        ("anything for 1 RTX 4090?", "fits", json!({"cluster": "1 RTX 4090"})),
        (
            "what fits on 4 T4 with tpot under 50 ms",
            "fits",
            json!({"cluster": "4 T4", "slo": {"tpot_ms": 50.0}}),
        ),
        (
            "how many H200 for deepseek r1 with 50 users at 32k",
            "sizing",
            json!({"model": R1, "gpus": ["H200"], "load": {"sequences": 50}, "workload": context(32_768),
                "engine": started(32_768)}),
        ),
        (
            "how many H100 do I need for llama 3.1 70b",
            "sizing",
            json!({"model": LLAMA, "gpus": ["H100"], "load": {"sequences": 1}}),
        ),
        (
            "how many GPUs for llama 3.1 70b with 20 users at 8k",
            "sizing",
            json!({"model": LLAMA, "load": {"sequences": 20}}),
        ),
        (
            "which GPUs for llama 3.1 70b at 8 bit with 5 users of 128k each",
            "sizing",
            json!({"model": {"id": LLAMA, "weights": "fp8"}, "load": {"sequences": 5}, "workload": context(131_072)}),
        ),
        (
            "how many H100 for qwen3 32b at 5 requests per second",
            "sizing",
            json!({"model": "Qwen/Qwen3-32B", "gpus": ["H100"], "load": {"requests_per_s": 5.0}}),
        ),
        (
            "how many H100 for qwen3 32b at 5 rps, tpot under 40 ms",
            "sizing",
            json!({"load": {"requests_per_s": 5.0}, "slo": {"tpot_ms": 40.0}}),
        ),
        (
            "qwen3 32b 20 req/s ttft < 1 s",
            "sizing",
            json!({"load": {"requests_per_s": 20.0}, "slo": {"ttft_ms": 1000.0}}),
        ),
        (
            "llama 3.1 70b for 200 users who think 30 s",
            "sizing",
            json!({"model": LLAMA, "load": {"users": 200, "think_time_s": 30.0}}),
        ),
        ("fewest H200 for deepseek r1", "sizing", json!({"model": R1, "gpus": ["H200"]})),
        ("cheapest GPU for llama 3.1 8b", "sizing", json!({"model": "meta-llama/Llama-3.1-8B-Instruct"})),
        ("H100 or H200 for deepseek r1: how many?", "sizing", json!({"model": R1, "gpus": ["H100", "H200"]})),
        (
            "how many MI300X for deepseek-ai/DeepSeek-R1 at 64k",
            "sizing",
            json!({"model": R1, "gpus": ["MI300X"], "workload": context(65_536)}),
        ),
        (
            "minimum GPUs for qwen3 32b with 10 concurrent requests",
            "sizing",
            json!({"load": {"sequences": 10}}),
        ),
        (
            "sizing llama 3.1 70b for 100 people",
            "sizing",
            json!({"model": LLAMA, "load": {"sequences": 100}}),
        ),
        ("smallest box for gpt-oss-120b", "sizing", json!({"model": "openai/gpt-oss-120b"})),
        (
            "is TP=16 worth it for llama 3.1 70b",
            "sweep",
            json!({"model": LLAMA, "cluster": "16 H100", "over": {"axis": "tp", "values": [8, 16]}}),
        ),
        (
            "is TP=16 worth it for llama 3.1 70b on 16 H100s",
            "sweep",
            json!({"cluster": "16 H100s", "over": {"axis": "tp", "values": [8, 16]}}),
        ),
        ("llama 3.1 70b TP8 vs TP16 on 16 H100", "sweep", json!({"over": {"values": [8, 16]}})),
        (
            "is tp 4 better than tp 2 for qwen3 32b on 4 A100",
            "sweep",
            json!({"cluster": "4 A100", "over": {"values": [2, 4]}}),
        ),
        ("TP4 or TP8 for llama 3.1 70b on 8 H100?", "sweep", json!({"over": {"values": [4, 8]}})),
        (
            "compare tp=8 and tp=16 for deepseek r1 on 16 H200",
            "sweep",
            json!({"model": R1, "over": {"values": [8, 16]}}),
        ),
        (
            "is tp16 faster for llama 3.1 70b at 32k on 16 H200",
            "sweep",
            json!({"workload": context(32_768), "engine": started(32_768)}),
        ),
        ("llama 3.1 70b on 16 H100s", "plan", json!({"model": LLAMA, "cluster": "16 H100s"})),
        (
            "llama 3.1 70b on 2x8 H100 at 32k",
            "plan",
            json!({"cluster": "2x8 H100", "workload": context(32_768), "engine": started(32_768)}),
        ),
        ("llama 3.1 8b on 1 L4 at 8k", "plan", json!({"workload": context(8192), "engine": started(8192)})),
        (
            "llama 3.1 8b on 1 L4 at 8k with max_model_len 16k",
            "plan",
            json!({"workload": context(8192), "engine": started(16_384)}),
        ),
        (
            "llama 3.1 70b on 4 H100 --max-model-len=32768 fp8 kv",
            "plan",
            json!({"engine": {"max_model_len": 32_768, "kv_cache_dtype": "fp8"}}),
        ),
        ("acme/private-7b on 2 A100 at 64k", "plan", json!({"engine": started(65_536)})),
        ("does deepseek r1 fit on 8 H200?", "plan", json!({"model": R1, "cluster": "8 H200"})),
        (
            "does Kimi K2 run at 128k on 8 H200",
            "plan",
            json!({"cluster": "8 H200", "workload": context(131_072)}),
        ),
        ("can I run qwen3 32b on 2 A100", "plan", json!({"model": "Qwen/Qwen3-32B", "cluster": "2 A100"})),
        ("qwen3 32b fp8 on 1 H100", "plan", json!({"model": "Qwen/Qwen3-32B-FP8", "cluster": "1 H100"})),
        ("llama 3.1 70b fp8 on 2 H100", "plan", json!({"cluster": "2 H100"})),
        ("llama 3.1 70b int4 on 1 A100", "plan", json!({"model": {"id": LLAMA, "weights": "int4"}})),
        (
            "llama 3.1 70b at 4 bit on 2 L40S",
            "plan",
            json!({"model": {"id": LLAMA, "weights": "int4"}, "cluster": "2 L40S"}),
        ),
        ("llama 3.1 70b on 8 H100 with fp8 kv cache", "plan", json!({"engine": {"kv_cache_dtype": "fp8"}})),
        ("llama 3.1 70b on 8 H100 with tp=4", "plan", json!({"search": {"tp": [4]}})),
        ("llama 3.1 70b on 16 H100 with tp=8 pp=2", "plan", json!({"search": {"tp": [8], "pp": [2]}})),
        ("llama 3.1 70b on 16 H100 tp8pp2", "plan", json!({"search": {"tp": [8], "pp": [2]}})),
        ("llama 3.1 70b on 16 H100 with 64 users", "plan", json!({"workload": {"concurrency": 64}})),
        (
            "llama 3.1 70b, 16 H100, 64 concurrent requests at 16k",
            "plan",
            json!({"workload": {"concurrency": 64, "context_tokens": 16_384}}),
        ),
        (
            "llama 3.1 70b on 8 H100, 4k in 1k out",
            "plan",
            json!({"workload": {"input_tokens": 4096, "output_tokens": 1024}}),
        ),
        ("llama 3.1 70b on 8 H100 with context 20000", "plan", json!({"workload": context(20_000)})),
        ("llama 3.1 70b on 8 H100 tpot under 30 ms", "plan", json!({"slo": {"tpot_ms": 30.0}})),
        (
            "llama 3.1 70b on 8 H100 ttft=500ms tpot=25ms",
            "plan",
            json!({"slo": {"ttft_ms": 500.0, "tpot_ms": 25.0}}),
        ),
        ("best layout for deepseek r1 on 2x8 H200", "plan", json!({"model": R1, "cluster": "2x8 H200"})),
        ("DeepSeek R1 on 16 H800", "plan", json!({"model": R1, "cluster": "16 H800"})),
        ("gpt-oss-120b on 1 H100", "plan", json!({"model": "openai/gpt-oss-120b"})),
        (
            "run meta-llama/Llama-3.1-70B-Instruct on 4 H200",
            "plan",
            json!({"model": LLAMA, "cluster": "4 H200"}),
        ),
        ("acme/private-7b on 2 A100", "plan", json!({"model": "acme/private-7b", "cluster": "2 A100"})),
        (
            "how much context can llama 3.1 70b have on 4 H100",
            "plan",
            json!({"model": LLAMA, "cluster": "4 H100"}),
        ),
        ("hello", "unclear", Value::Null),
        ("what is the weather in Paris", "unclear", Value::Null),
        ("", "unclear", Value::Null),
        ("asdf qwer zxcv", "unclear", Value::Null),
        ("what fits", "unclear", Value::Null),
        ("how many users", "unclear", Value::Null),
    ];
    assert!(table.len() >= 60, "{} questions", table.len());
    let mut faults = String::new();
    for (text, kind, wanted) in &table {
        let (found_kind, found) = read(text);
        if found_kind != *kind || (*kind != "unclear" && !holds(wanted, &found)) {
            faults.push_str(&format!("{text:?}: {found_kind} {found}, expected {kind} {wanted}\n"));
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn questions_about_several_things_become_requests() {
    let batch = |models: &[&str], clusters: &[&str]| json!({"models": models, "clusters": clusters});
    let llama = "meta-llama/Llama-3.3-70B-Instruct";
    let table: Vec<(&str, &str, Value)> = vec![
        ("compare 8 H100 vs 8 H200 for llama 70b", "batch", batch(&[llama], &["8 H100", "8 H200"])),
        ("compare H100 and H200 for llama 70b", "batch", batch(&[llama], &["1 node H100", "1 node H200"])),
        ("H200 or B200 for deepseek r1", "batch", batch(&[R1], &["1 node H200", "1 node B200"])),
        ("llama 2 7b on 8 L40 vs 4 L40", "batch", batch(&["meta-llama/Llama-2-7b-hf"], &["8 L40", "4 L40"])),
        (
            "kimi k2.5 on 8 B300 or 16 B200?",
            "batch",
            batch(&["moonshotai/Kimi-K2.5"], &["8 B300", "16 B200"]),
        ),
        ("deepseek r1: 8 H200 or B200", "batch", batch(&[R1], &["8 H200", "8 B200"])),
        (
            "llama 3.1 70b or qwen3 32b on 8 H100 at 32k",
            "batch",
            json!({"models": [LLAMA, "Qwen/Qwen3-32B"], "clusters": ["8 H100"], "workload": {"context_tokens": 32_768}}),
        ),
        (
            "qwen3 235b fp8 on 4 H100 vllm vs sglang",
            "plan",
            json!({"engine": [{"name": "vllm"}, {"name": "sglang"}], "cluster": "4 H100"}),
        ),
        ("glm-4.6 on 8 H200 with sglang", "plan", json!({"engine": {"name": "sglang"}})),
        ("llama 3.1 70b on 8 H100 on trt-llm", "plan", json!({"engine": {"name": "tensorrt-llm"}})),
        (
            "llama 3.1 70b on 8 H100 vllm 0.11.0 at 0.95 utilisation",
            "plan",
            json!({"engine": {"name": "vllm", "version": "0.11.0", "gpu_memory_utilization": 0.95}}),
        ),
        (
            "llama 3.1 70b on 8 H100, 95% gpu memory utilization",
            "plan",
            json!({"engine": {"gpu_memory_utilization": 0.95}}),
        ),
        ("deepseek r1 on 8 H200 with dcp 2", "plan", json!({"search": {"dcp": [2]}})),
        ("is DCP 8 worth it for deepseek r1 on 8 H200", "plan", json!({"search": {"dcp": [1, 8]}})),
        ("llama 3.1 70b on 16 H100 pp 2 or 4", "sweep", json!({"over": {"axis": "pp", "values": [2, 4]}})),
        ("llama 3.1 70b on 16 H100 tensor parallel 8", "plan", json!({"search": {"tp": [8]}})),
        ("llama 3.1 70b on 16 H100 --tensor-parallel-size=8", "plan", json!({"search": {"tp": [8]}})),
        (
            "TP2PP2, PP4 or TP4 for llama 70b on 4 A6000",
            "sweep",
            json!({"over": {"axis": "layout", "values": ["tp=2 pp=2", "tp=1 pp=4", "tp=4"]}}),
        ),
        (
            "deepseek v3 DP attention vs TP8 on 8 H200",
            "sweep",
            json!({"over": {"axis": "layout", "values": ["tp=8", "tp=1 attention_dp=8"]}}),
        ),
        (
            "qwen2.5 72b on 8 A100 80GB: TP4 or TP8",
            "sweep",
            json!({"cluster": "8 A100 80GB", "over": {"values": [4, 8]}}),
        ),
        (
            "how many users can llama 3.1 70b serve on 8 H100 at 8k",
            "plan",
            json!({"model": LLAMA, "cluster": "8 H100", "workload": {"context_tokens": 8_192}}),
        ),
        (
            "how many simultaneous requests of 8k can llama 3.1 8b serve on 8 V100-32GB",
            "plan",
            json!({"cluster": "8 V100-32GB", "workload": {"context_tokens": 8_192}}),
        ),
        (
            "how many requests per second can 4 RTX 6000 Ada do with qwen2.5 7b",
            "plan",
            json!({"cluster": "4 RTX 6000 Ada"}),
        ),
        (
            "TTFT < 500ms for llama 3.1 70b on 8 H100, how many users",
            "plan",
            json!({"slo": {"ttft_ms": 500.0}, "cluster": "8 H100"}),
        ),
        (
            "max context for llama 3.1 8b on a single L4",
            "plan",
            json!({"cluster": "a single L4", "objective": "capacity", "search": {"dp": [1]}, "engine": {"max_model_len": 8_192}}),
        ),
        ("kv bytes per token of llama 3.1 70b", "model", json!({"model": LLAMA})),
        ("how much kv cache per token for llama 3.1 70b", "model", json!({"model": LLAMA})),
        ("how much memory does deepseek r1 need", "model", json!({"model": R1})),
        (
            "how many H100 for 5 requests/s of llama 70b 3000 in 300 out",
            "sizing",
            json!({"load": {"requests_per_s": 5.0}, "workload": {"input_tokens": 3000, "output_tokens": 300}}),
        ),
        (
            "llama 3.1 70b on 8 H100 input 3000 output 300",
            "plan",
            json!({"workload": {"input_tokens": 3000, "output_tokens": 300}}),
        ),
        ("llama 3.1 70b for 300 requests a minute", "sizing", json!({"load": {"requests_per_s": 5.0}})),
        ("how many H200 for deepseek r1 with 1k users", "sizing", json!({"load": {"sequences": 1000}})),
        ("sizing for 10000 users with llama 3.1 70b on H100", "sizing", json!({"gpus": ["H100"]})),
        ("llama 3.1 70b on 8 H100 with five users", "plan", json!({"workload": {"concurrency": 5}})),
        (
            "llama 3.1 70b on 8 H100 at 30 tokens/s per user",
            "plan",
            json!({"slo": {"tpot_ms": 1000.0 / 30.0}}),
        ),
        (
            "which models under 100B fit on 8 A100 80GB at 32k",
            "fits",
            json!({"cluster": "8 A100 80GB", "filter": {"max_parameters": 100_000_000_000_u64}}),
        ),
        (
            "what fits on 8 H200, at least 70b",
            "fits",
            json!({"filter": {"min_parameters": 70_000_000_000_u64, "fits": true}}),
        ),
        ("what fits on 1k H100s", "fits", json!({"cluster": "1k H100s"})),
        ("awq llama 3.3 70b on one A100 80", "plan", json!({"cluster": "one A100 80"})),
        ("what about kimi k2 on GB200 NVL72", "plan", json!({"cluster": "GB200 NVL72"})),
        ("llama 3.1 70b on two DGX H100", "plan", json!({"cluster": "two DGX H100"})),
        ("<@U123> what fits on 16 H100s?", "fits", json!({"cluster": "16 H100s"})),
        ("A100 together with H20 for llama 70b", "plan", json!({"cluster": "1 node A100 + 1 node H20"})),
        (
            "llama 3.1 70b on 8 H100 with 80 % hit rate",
            "plan",
            json!({"workload": {"prefix_cache_hit_rate": 0.8}}),
        ),
        (
            "deepseek r1 on 8 H200 with MTP",
            "plan",
            json!({"engine": {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}}),
        ),
        (
            "llama 70b on 8 H100, eagle with 3 tokens",
            "plan",
            json!({"engine": {"speculative_config": {"method": "eagle", "num_speculative_tokens": 3}}}),
        ),
        ("llama 3.1 70b on saved:prod-east", "plan", json!({"cluster": "saved:prod-east"})),
        // what the reader of clusters asks about, and names that are no model's
        ("llama 70b on 12 H100s", "unclear", Value::Null),
        ("llama 70b on some H100s", "unclear", Value::Null),
        ("llama 70b on 8 GPUs", "unclear", Value::Null),
        ("llama 70b on 8 R100", "unclear", Value::Null),
        ("llama 70b on 0 H100", "unclear", Value::Null),
        ("llama 70b on a quarter of a DGX H100", "unclear", Value::Null),
        ("deepseek coder 33b on 3 V100", "unclear", Value::Null),
        ("llama 13b on 3 RTX 3090", "unclear", Value::Null),
        ("which GPUs for a 70B at 8 bit with five users of 128k each", "unclear", Value::Null),
        ("prefill 4 H100 decode 8 H100 for llama 70b", "unclear", Value::Null),
    ];
    let mut faults = String::new();
    for (text, kind, wanted) in &table {
        let (found_kind, found) = read(text);
        if found_kind != *kind || (*kind != "unclear" && !holds(wanted, &found)) {
            faults.push_str(&format!("{text:?}: {found_kind} {found}, expected {kind} {wanted}\n"));
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn what_cannot_be_answered_says_what_may_be_asked_instead() {
    let unclear = |text: &str| match parse(text, catalogue()).meaning {
        Meaning::Unclear(unclear) => unclear,
        other => panic!("{text}: {other:?}"),
    };
    let nodes = unclear("llama 70b on 12 H100s");
    assert!(nodes.why.starts_with("12 H100 do not fill nodes of 8"), "{nodes:?}");
    assert!(nodes.instead.contains(&"llama 70b on 2x6 H100".to_owned()), "{nodes:?}");
    let coder = unclear("deepseek coder 33b on 3 V100");
    assert!(coder.why.contains("`deepseek coder 33b`"), "{coder:?}");
    let size = unclear("which GPUs for a 70B at 8 bit");
    assert!(size.why.contains("`70B`") && size.instead.iter().any(|q| q.contains("70B")), "{size:?}");
    let product = unclear("llama 70b on 8 R100");
    assert!(product.why.contains("\"R100\" is not a GPU"), "{product:?}");
}

#[test]
fn a_saved_cluster_is_meant_by_its_name() {
    let saved = ["prod-east".to_owned()];
    let known = Known { usual: None, saved: &saved };
    let parsed = parse_on("llama 3.1 70b on prod-east at 32k", known, catalogue());
    assert!(matches!(&parsed.meaning, Meaning::Plan(request) if request["cluster"] == "saved:prod-east"));
    assert_eq!(parsed.not_understood, Vec::<String>::new());
    // nobody asked whether it is saved
    let parsed = parse("llama 3.1 70b on prod-east", catalogue());
    assert_eq!(parsed.not_understood, ["prod-east"]);
}

#[test]
fn parts_without_a_place_are_told() {
    let left = |text: &str| parse(text, catalogue()).not_understood;
    assert_eq!(left("lora with 16 adapters on llama 8b on an L40S"), ["lora", "16", "adapters"]);
    assert_eq!(left("qwen2.5 72b on 8 A100 80GB: two copies of TP4 or one TP8"), ["two", "copies"]);
    assert_eq!(left("what fits on 8 H100 vllm vs sglang"), ["sglang"]);
    assert_eq!(left("llama 3.1 70b on 8 A100 80GB with 20 concurrent users"), Vec::<String>::new());
}

#[test]
fn the_engine_is_started_for_the_context_unless_something_else_is_said() {
    let parsed = |text: &str| match parse(text, catalogue()) {
        Parsed {
            meaning: Meaning::Plan(request) | Meaning::Fits(request), assumed, not_understood, ..
        } => {
            assert_eq!(not_understood, Vec::<String>::new(), "{text}");
            (request["engine"]["max_model_len"].as_u64(), assumed)
        }
        other => panic!("{other:?}"),
    };
    let said = "max_model_len of 8k, as the context".to_owned();
    assert_eq!(parsed("llama 3.1 8b on 1 L4 at 8k"), (Some(8192), vec![said]));
    assert_eq!(parsed("llama 3.1 8b on 1 L4 at 8k max_model_len = 16k"), (Some(16_384), Vec::new()));
    // nothing is said of the context
    assert_eq!(parsed("llama 3.1 8b on 1 L4, 4k in 1k out"), (None, Vec::new()));
    // the model takes 131,072: an engine cannot be started for more
    assert_eq!(parsed("llama 3.1 8b on 1 H100 at 256k"), (None, Vec::new()));
    // each model is started for what it takes of it
    assert_eq!(parsed("what fits on 8 H200 at 8k"), (None, Vec::new()));
}

#[test]
fn what_was_not_understood_is_said() {
    let parsed = parse("what fits on 16 H100s with purple elephants", catalogue());
    assert_eq!(parsed.not_understood, ["purple", "elephants"]);
    assert_eq!(parse("llama 3.1 70b on 16 H100s at 32k", catalogue()).not_understood, Vec::<String>::new());
}

#[test]
fn the_examples_are_understood_and_hostile_texts_end_at_once() {
    for example in EXAMPLES {
        let parsed = parse(example, catalogue());
        assert!(!matches!(parsed.meaning, Meaning::Unclear(_)), "{example}");
        assert_eq!(parsed.not_understood, Vec::<String>::new(), "{example}");
    }
    let long = "16 H100 ".repeat(62);
    for text in [
        long.as_str(),
        "999999999999999999999 H100",
        "tp=99999999999999999999",
        "1e999 users",
        "\0\u{202e}🙂",
        "tp tp tp",
        "k m k",
    ] {
        let _ = parse(text, catalogue());
    }
    assert!(matches!(parse(&"x".repeat(10_000), catalogue()).meaning, Meaning::Unclear(_)));
}
