//! Bodies that mean harm: each is answered at once, with a problem that names what is wrong.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Each answer within this time.
const LIMIT: Duration = Duration::from_millis(100);
/// A debug build on a machine that runs other tests beside this one.
const SLOWNESS: u32 = if cfg!(debug_assertions) { 50 } else { 1 };

const PLANS: &str = "/v1/plans";
const MODEL: &str = "/v1/models/acme/hostile";

/// A config.json of a plain model, with some keys replaced.
fn config(changes: &Value) -> Value {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// A question with one part replaced.
fn question(part: &str, value: &Value) -> String {
    let mut question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "16 H100s"});
    question[part] = value.clone();
    question.to_string()
}

fn with_config(changes: &Value) -> String {
    question("model", &json!({"config": config(changes)}))
}

fn with_pool(pool: &Value) -> String {
    let mut whole = json!({"nodes": 2, "gpus_per_node": 8, "gpu": "h100-sxm5-80gb"});
    for (key, value) in pool.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    question("cluster", &json!({"node_pools": [whole]}))
}

/// Texts that are not JSON, or too much of it.
fn not_json() -> Vec<(&'static str, String)> {
    vec![
        ("nothing", String::new()),
        ("blanks", "  \n ".to_owned()),
        ("half an object", "{\"model\": ".to_owned()),
        ("two values", "{} {}".to_owned()),
        ("a trailing comma", "{\"model\": \"m\",}".to_owned()),
        ("single quotes", "{'model': 'm'}".to_owned()),
        ("a comment", "{\"model\": \"m\" /* no */}".to_owned()),
        ("NaN", "{\"model\": \"m\", \"cluster\": \"8 H100\", \"limit\": NaN}".to_owned()),
        ("Infinity", "{\"model\": \"m\", \"slo\": {\"ttft_ms\": -Infinity}}".to_owned()),
        ("1e999", "{\"model\": \"m\", \"limit\": 1e999}".to_owned()),
        ("a leading zero", "{\"limit\": 007}".to_owned()),
        ("a plus sign", "{\"limit\": +7}".to_owned()),
        ("hexadecimal", "{\"limit\": 0x10}".to_owned()),
        ("a raw newline in a text", "{\"model\": \"a\nb\"}".to_owned()),
        ("a lone surrogate", "{\"model\": \"\\ud800\"}".to_owned()),
        ("a wrong escape", "{\"model\": \"\\q\"}".to_owned()),
        ("a byte order mark", "\u{feff}{}".to_owned()),
        ("deep arrays", "[".repeat(100_000)),
        ("deep objects", "{\"a\":".repeat(100_000)),
        ("deep and closed", format!("{}{}", "[".repeat(5_000), "]".repeat(5_000))),
        (
            "deep in a config",
            format!("{{\"model\":{{\"config\":{}1{}}}}}", "{\"a\":".repeat(500), "}".repeat(500)),
        ),
        ("a million values", format!("[{}0]", "0,".repeat(1_000_000))),
    ]
}

/// JSON that is no question.
fn no_question() -> Vec<(&'static str, String)> {
    let mut cases: Vec<(&str, String)> = vec![
        ("null", "null".to_owned()),
        ("a number", "42".to_owned()),
        ("a text", "\"16 H100s\"".to_owned()),
        ("a list", "[]".to_owned()),
        ("an empty object", "{}".to_owned()),
        ("only a model", "{\"model\": \"m\"}".to_owned()),
        ("a duplicate key", "{\"model\": \"a\", \"model\": \"b\", \"cluster\": \"16 H100s\"}".to_owned()),
        ("a duplicate inside", "{\"model\": \"llama-3.1-70b\", \"cluster\": \"16 H100s\", \"engine\": {\"block_size\": 16, \"block_size\": 32}}".to_owned()),
        ("a duplicate in a config", format!("{{\"model\": {{\"config\": {{\"hidden_size\": 1, \"hidden_size\": 2}}}}, \"cluster\": \"{}\"}}", "16 H100s")),
        ("many unknown keys", Value::Object((0..2000).map(|i| (format!("key{i}"), json!(i))).collect()).to_string()),
        ("a long unknown key", json!({"x".repeat(500_000): 1}).to_string()),
        ("a prototype", "{\"__proto__\": {\"model\": \"m\"}, \"cluster\": \"8 H100\"}".to_owned()),
    ];
    for (name, part, value) in [
        ("a typo", "modle", json!("m")),
        ("a model that is a number", "model", json!(7)),
        ("a model that is a list", "model", json!(["m"])),
        ("a model of nothing", "model", json!({})),
        ("an empty model", "model", json!("")),
        ("a blank model", "model", json!("   ")),
        ("a model given twice", "model", json!({"id": "a/b", "config": {}})),
        ("an unknown model", "model", json!("nobody/nothing")),
        ("a path as a model", "model", json!("../../etc/passwd")),
        ("an address as a model", "model", json!("http://169.254.169.254/latest/meta-data")),
        ("a long model", "model", json!("m".repeat(100_000))),
        ("a model with a zero byte", "model", json!("a\u{0}b")),
        ("an id that is a number", "model", json!({"id": 1e308})),
        ("unknown weights", "model", json!({"id": "meta-llama/Llama-3.1-70B-Instruct", "weights": "fp3"})),
        (
            "weights of -1 bytes",
            "model",
            json!({"id": "meta-llama/Llama-3.1-70B-Instruct", "weights_bytes": -1}),
        ),
        (
            "weights of 2^63 bytes",
            "model",
            json!({"id": "meta-llama/Llama-3.1-70B-Instruct", "weights_bytes": 1_u64 << 63}),
        ),
        ("a config that is a text", "model", json!({"config": "{}"})),
        ("an empty config", "model", json!({"config": {}})),
        (
            "overrides that are a list",
            "model",
            json!({"id": "meta-llama/Llama-3.1-70B-Instruct", "overrides": []}),
        ),
        ("a cluster that is a number", "cluster", json!(16)),
        ("a cluster that is a list", "cluster", json!(["16 H100s"])),
        ("an empty cluster", "cluster", json!("")),
        ("an empty cluster object", "cluster", json!({})),
        ("no GPUs", "cluster", json!("0 H100s")),
        ("minus eight GPUs", "cluster", json!("-8 H100s")),
        ("10^18 GPUs", "cluster", json!("1000000000000000000 H100s")),
        ("10^40 GPUs", "cluster", json!(format!("1{} H100s", "0".repeat(40)))),
        ("nodes that overflow", "cluster", json!("4294967296 x 4294967296 x 8 H100")),
        ("an unknown GPU", "cluster", json!("16 Z9000s")),
        ("a long cluster", "cluster", json!("8xH100 + ".repeat(50_000))),
        ("words as a cluster", "cluster", json!("as many as you have, please")),
        ("no pools", "cluster", json!({"node_pools": []})),
        ("pools that are a text", "cluster", json!({"node_pools": "2x8"})),
        (
            "a hundred thousand pools",
            "cluster",
            json!({"node_pools": vec![json!({"nodes": 1, "gpus_per_node": 8, "gpu": "h100-sxm5-80gb"}); 50_000]}),
        ),
        ("an engine that is a number", "engine", json!(33)),
        ("no engines", "engine", json!([])),
        ("nine engines", "engine", json!(vec![json!({}); 9])),
        ("an unknown engine", "engine", json!({"name": "ollama"})),
        ("a version that is a number", "engine", json!({"version": 0.33})),
        ("a version that is none", "engine", json!({"version": "banana"})),
        ("a quantization that is none", "engine", json!({"quantization": "banana"})),
        ("a quantization of SGLang", "engine", json!({"quantization": "w8a8_int8"})),
        ("a format that only confirms", "engine", json!({"quantization": "awq_marlin"})),
        ("a cache format that is none", "engine", json!({"kv_cache_dtype": "banana"})),
        ("one engine of two that quantises", "engine", json!([{"quantization": "fp8"}, {"name": "sglang"}])),
        ("utilization above 1", "engine", json!({"gpu_memory_utilization": 1.01})),
        ("utilization of 0", "engine", json!({"gpu_memory_utilization": 0})),
        ("utilization as a text", "engine", json!({"gpu_memory_utilization": "0.9"})),
        ("utilization of 1e308", "engine", json!({"gpu_memory_utilization": 1e308})),
        ("utilization NaN as a text", "engine", json!({"gpu_memory_utilization": "NaN"})),
        ("a sequence of 0 tokens", "engine", json!({"max_model_len": 0})),
        ("a sequence of -1 tokens", "engine", json!({"max_model_len": -1})),
        ("a sequence of 2^63 tokens", "engine", json!({"max_model_len": 1_u64 << 63})),
        ("a sequence of 1e308 tokens", "engine", json!({"max_model_len": 1e308})),
        ("a sequence of 1.5 tokens", "engine", json!({"max_model_len": 1.5})),
        ("a block of 2^64-1", "engine", json!({"block_size": u64::MAX})),
        ("a flag that is a text", "engine", json!({"enforce_eager": "yes"})),
        ("stages without end", "engine", json!({"pp_layer_partition": vec![1; 100_000]})),
        ("a setting under two names", "engine", json!({"block_size": 16, "page_size": 16})),
        ("prompts of 2^53 tokens", "workload", json!({"input_tokens": 1_u64 << 53})),
        ("prompts of -1 tokens", "workload", json!({"input_tokens": -1})),
        ("a concurrency of 1e308", "workload", json!({"concurrency": 1e308})),
        ("a workload that is a list", "workload", json!([1, 2])),
        ("a limit of -1 ms", "slo", json!({"ttft_ms": -1})),
        ("a limit of 0 ms", "slo", json!({"tpot_ms": 0})),
        ("a limit of 1e308 ms", "slo", json!({"tpot_ms": 1e308})),
        ("an objective of mine", "objective", json!("world peace")),
        ("an objective that is a list", "objective", json!(["cost"])),
        ("a search of 0", "search", json!({"tp": [0]})),
        ("a search of texts", "search", json!({"tp": ["8"]})),
        ("a search without a list", "search", json!({"tp": 8})),
        ("an empty search", "search", json!({"tp": []})),
        ("a search of a million values", "search", json!({"tp": vec![1; 100_000]})),
        ("a search of 10^12", "search", json!({"pp": [1_000_000_000_000_u64]})),
        ("an assumption of mine", "assumptions", json!({"pi": 4})),
        ("a share of 2", "assumptions", json!({"hbm_efficiency": 2})),
        ("a share of 0", "assumptions", json!({"link_efficiency": 0})),
        ("a negative rate", "assumptions", json!({"hbm_bytes_per_s": -1})),
        ("a rate of 1e308", "assumptions", json!({"peak_flops": 1e308})),
        (
            "links without end",
            "assumptions",
            json!({"link_bytes_per_s": Value::Object((0..5000).map(|i| (format!("l{i}"), json!(1))).collect())}),
        ),
        ("a link rate of 0", "assumptions", json!({"link_bytes_per_s": {"nvlink4": 0}})),
        ("a latency model of mine", "latency_model", json!("crystal ball")),
        ("a limit of 0 layouts", "limit", json!(0)),
        ("a limit of 10^9 layouts", "limit", json!(1_000_000_000)),
    ] {
        cases.push((name, question(part, &value)));
    }
    cases
}

/// Configurations and pools with impossible numbers.
fn impossible() -> Vec<(&'static str, String)> {
    let mut cases = Vec::new();
    for (name, changes) in [
        ("10^9 layers", json!({"num_hidden_layers": 1_000_000_000})),
        ("0 layers", json!({"num_hidden_layers": 0})),
        ("-1 layers", json!({"num_hidden_layers": -1})),
        ("1e308 layers", json!({"num_hidden_layers": 1e308})),
        ("layers as a text", json!({"num_hidden_layers": "32"})),
        ("2^63 hidden", json!({"hidden_size": 1_u64 << 63})),
        ("10^12 words", json!({"vocab_size": 1_000_000_000_000_u64})),
        ("0 heads", json!({"num_attention_heads": 0})),
        ("10^18 KV heads", json!({"num_key_value_heads": 1_000_000_000_000_000_000_u64})),
        ("a negative head size", json!({"head_dim": -128})),
        (
            "10^18 experts",
            json!({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 1_000_000_000_000_000_000_u64, "num_experts_per_tok": 2}),
        ),
        ("an unknown architecture", json!({"architectures": ["NobodyForCausalLM"], "model_type": "nobody"})),
        ("architectures as a text", json!({"architectures": "LlamaForCausalLM", "model_type": 7})),
    ] {
        cases.push((name, with_config(&changes)));
    }
    for (name, pool) in [
        ("10^18 nodes", json!({"nodes": 1_000_000_000_000_000_000_u64})),
        ("0 nodes", json!({"nodes": 0})),
        ("-2 nodes", json!({"nodes": -2})),
        ("half a node", json!({"nodes": 0.5})),
        ("2^63 GPUs a node", json!({"gpus_per_node": 1_u64 << 63})),
        ("a GPU that is a number", json!({"gpu": 100})),
        ("an unknown link", json!({"intra_link": "wet-string"})),
        ("an unknown field", json!({"gpus": 8})),
    ] {
        cases.push((name, with_pool(&pool)));
    }
    cases
}

#[tokio::test]
async fn hostile_questions_get_a_clear_answer_at_once() {
    let api = api::Api::start().await;
    // the catalogue is read once, by whoever comes first
    api.post_text(PLANS, question("limit", &json!(1))).await;
    let cases: Vec<_> = not_json().into_iter().chain(no_question()).chain(impossible()).collect();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let mut faults = Vec::new();
    for (name, body) in cases {
        let started = Instant::now();
        let reply = api.post_text(PLANS, body).await;
        let took = started.elapsed();
        if let Err(fault) = check(&reply, took) {
            faults.push(format!("{name}: {fault}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn hostile_models_are_not_stored() {
    let api = api::Api::start().await;
    let changes = [
        json!({"num_hidden_layers": 1_000_000_000}),
        json!({"hidden_size": -1}),
        json!({"architectures": ["NobodyForCausalLM"], "model_type": "nobody"}),
    ];
    let bodies = changes.iter().map(|change| config(change).to_string());
    for body in
        bodies.chain(["[]".to_owned(), "{}".to_owned(), "{\"config\": {}}".to_owned(), "nope".to_owned()])
    {
        let request = axum::http::Request::put(MODEL).header("content-type", "application/json");
        let reply = api.send(request.body(body.clone().into()).expect("a request")).await;
        assert!(check(&reply, Duration::ZERO).is_ok(), "{body}: {}", reply.text());
        assert_eq!(api.get(MODEL).await.status, 404, "{body}");
    }
}

#[tokio::test]
async fn a_large_body_is_refused_without_being_kept() {
    let api = api::Api::start().await;
    let body = question("model", &json!("m".repeat(5 << 20)));
    let started = Instant::now();
    let reply = api.post_text(PLANS, body).await;
    assert_eq!(reply.status, 413);
    assert_eq!(check(&reply, started.elapsed()), Ok(()));
}

/// A problem with a code, a status of 4xx, and every item with a pointer; in time, and small.
fn check(reply: &api::Reply, took: Duration) -> Result<(), String> {
    let text: String = reply.text().chars().take(300).collect();
    if !reply.status.is_client_error() {
        return Err(format!("status {}: {text}", reply.status));
    }
    if reply.header("content-type") != "application/problem+json" {
        return Err(format!("{}: {text}", reply.header("content-type")));
    }
    if took > LIMIT * SLOWNESS {
        return Err(format!("took {took:?}: {text}"));
    }
    if reply.body.len() > 1 << 20 {
        return Err(format!("an answer of {} bytes", reply.body.len()));
    }
    let problem = reply.json();
    let items = problem["errors"].as_array().cloned().unwrap_or_default();
    let told = problem["detail"].as_str().is_some_and(|d| !d.is_empty())
        && problem["status"] == reply.status.as_u16()
        && (reply.status != 422 || !items.is_empty())
        && items
            .iter()
            .all(|i| i["pointer"].as_str().is_some_and(|p| p.starts_with('#')) && i["code"].is_string());
    if told { Ok(()) } else { Err(format!("not told: {text}")) }
}
