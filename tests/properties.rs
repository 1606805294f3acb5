//! Laws that hold for every plan, whatever the model and the cluster: sums, monotonicity, scale, determinism.

use proptest::prelude::*;
use serde_json::{Value, json};
use shardwise::ingest::request::PlanRequest;
use shardwise::service::plan_offline;

const MODELS: &[&str] = &[
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.1-70B-Instruct",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-30B-A3B",
    "mistralai/Mixtral-8x7B-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-120b",
    "google/gemma-3-27b-it",
];

const CLUSTERS: &[&str] =
    &["8xH100", "2x8xH200", "4 nodes x 8 H100", "8 MI300X", "4xL40S", "16 H100s", "72 GB200"];

fn model() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(MODELS)
}

fn cluster() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(CLUSTERS)
}

fn answer(request: &Value) -> Value {
    let read = PlanRequest::read(request).expect("the request is legal");
    serde_json::to_value(plan_offline(&read).expect("the planner answers")).expect("answers are JSON")
}

fn layouts(answer: &Value) -> &Vec<Value> {
    answer["layouts"].as_array().expect("layouts")
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is a number"))
}

fn whole(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is a whole number"))
}

/// One layout with TP and PP fixed.
fn only(model: &str, cluster: &str, tp: u64, pp: u64, engine: &Value) -> Option<Value> {
    let request = json!({
        "model": model, "cluster": cluster, "engine": engine,
        "search": {"tp": [tp], "pp": [pp], "ep": [1], "attention_dp": [1], "dcp": [1]},
    });
    layouts(&answer(&request)).first().cloned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Weights, overheads and cache of a stage are the whole budget, to the byte.
    #[test]
    fn a_stages_bytes_sum_to_its_budget(model in model(), cluster in cluster(), max_len in 2048_u64..32_768) {
        let answer = answer(&json!({"model": model, "cluster": cluster, "engine": {"name": "vllm", "max_model_len": max_len}}));
        for layout in layouts(&answer) {
            let budget = whole(layout, "/memory/budget_bytes");
            for stage in layout["memory"]["stages"].as_array().unwrap() {
                let sum: u64 = ["weights_bytes", "activation_bytes", "runtime_bytes", "cuda_graph_bytes", "state_bytes", "kv_bytes"]
                    .iter().map(|item| stage[*item].as_u64().unwrap()).sum();
                prop_assert_eq!(sum, budget, "{}", stage);
            }
        }
    }

    /// A smaller share of the GPU never holds more tokens.
    #[test]
    fn tokens_never_rise_when_the_budget_falls(model in model(), cluster in cluster(), low in 0.5_f64..0.9, more in 0.0_f64..0.08) {
        let tokens = |share: f64| {
            let engine = json!({"name": "vllm", "max_model_len": 4096, "gpu_memory_utilization": share});
            only(model, cluster, 4, 1, &engine).map_or(0, |l| whole(&l, "/capacity/kv_tokens_total"))
        };
        prop_assert!(tokens(low) <= tokens(low + more));
    }

    /// What the cluster spends on a token is one copy times the copies.
    #[test]
    fn copies_times_one_copy_is_what_the_cluster_spends(model in model(), cluster in cluster()) {
        let answer = answer(&json!({"model": model, "cluster": cluster, "engine": {"name": "vllm", "max_model_len": 4096}}));
        for layout in layouts(&answer) {
            let kv = &layout["kv"];
            let expected = number(kv, "/replication_factor") * number(kv, "/bytes_per_token_logical");
            prop_assert!((number(kv, "/bytes_per_token_cluster") - expected).abs() <= 1.0, "{}", kv);
            for stage in layout["memory"]["stages"].as_array().unwrap() {
                let all = number(stage, "/kv_distinct_bytes") * number(kv, "/replication_factor");
                let parts = number(stage, "/kv_distinct_bytes") + number(stage, "/kv_copied_bytes");
                prop_assert_eq!(parts, number(stage, "/kv_bytes"));
                prop_assert!((all - number(stage, "/kv_bytes")).abs() <= number(kv, "/replication_factor"), "{}", stage);
            }
        }
    }

    /// Two stages of equal depth hold half the cache of a token each.
    #[test]
    fn two_stages_halve_the_cache_of_a_token(tp in proptest::sample::select(vec![1_u64, 2, 4, 8])) {
        let engine = json!({"name": "vllm", "max_model_len": 4096});
        for model in ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"] {
            if let (Some(one), Some(two)) = (only(model, "2x8xH100", tp, 1, &engine), only(model, "2x8xH100", tp, 2, &engine)) {
                let bytes = |l: &Value| whole(l, "/kv/bytes_per_token_per_gpu");
                prop_assert_eq!(bytes(&one), 2 * bytes(&two));
            }
        }
    }

    /// Replicas add capacity, and leave the longest single sequence as it was.
    #[test]
    fn replicas_add_up_and_do_not_lengthen(model in model(), tp in proptest::sample::select(vec![4_u64, 8])) {
        let engine = json!({"name": "vllm", "max_model_len": 4096});
        let at = |cluster: &str| only(model, cluster, tp, 1, &engine);
        if let (Some(small), Some(large)) = (at("8xH100"), at("4 nodes x 8 H100")) {
            prop_assert_eq!(4 * whole(&small, "/capacity/kv_tokens_total"), whole(&large, "/capacity/kv_tokens_total"));
            prop_assert_eq!(whole(&small, "/capacity/max_sequence_tokens"), whole(&large, "/capacity/max_sequence_tokens"));
        }
    }

    /// The order of fields and the spelling of the cluster change nothing.
    #[test]
    fn spelling_and_order_change_nothing(model in model()) {
        let one = answer(&json!({"model": model, "cluster": "2 nodes x 8 H100", "objective": "capacity"}));
        let two = answer(&json!({"objective": "capacity", "cluster": "2x8xH100", "model": model}));
        prop_assert_eq!(&one["layouts"], &two["layouts"]);
        prop_assert_eq!(&one["refused"], &two["refused"]);
    }

    /// The same question gives the same bytes.
    #[test]
    fn the_same_question_gives_the_same_bytes(model in model(), cluster in cluster()) {
        let request = json!({"model": model, "cluster": cluster});
        prop_assert_eq!(answer(&request).to_string(), answer(&request).to_string());
    }

    /// Every figure of every layout is finite and in its range; ranks count up; GPUs add up.
    #[test]
    fn every_layout_is_sound(model in model(), cluster in cluster(), concurrency in 1_u64..5000, context in 1_u64..65_536) {
        let answer = answer(&json!({
            "model": model, "cluster": cluster, "engine": {"name": "vllm", "max_model_len": 65_536},
            "workload": {"concurrency": concurrency, "context_tokens": context, "input_tokens": 1000, "output_tokens": 100},
        }));
        let gpus = whole(&answer, "/cluster/gpus");
        for (i, layout) in layouts(&answer).iter().enumerate() {
            prop_assert_eq!(layout["rank"].as_u64(), Some(i as u64 + 1));
            let size = |name: &str| layout["layout"][name].as_u64().unwrap();
            prop_assert_eq!(size("gpus"), size("tp") * size("pp") * size("dp") * size("attention_dp"));
            prop_assert_eq!(size("gpus") + size("idle_gpus"), gpus);
            let tpot = &layout["latency"]["tpot_ms"];
            prop_assert!(number(tpot, "/low") <= number(tpot, "/value") && number(tpot, "/value") <= number(tpot, "/high"));
            prop_assert!(number(tpot, "/value") > 0.0 && number(layout, "/throughput/output_tokens_per_s") > 0.0);
            prop_assert!(number(layout, "/kv/replication_factor") >= 1.0 - 1e-9);
            let share = number(layout, "/latency/communication_share");
            prop_assert!((0.0..=1.0).contains(&share));
            for pass in ["decode", "prefill"] {
                let part = |name: &str| number(layout, &format!("/latency/{pass}_breakdown_ms/{name}"));
                let (inside, between) = (part("communication_inside_nodes"), part("communication_between_nodes"));
                prop_assert!(inside >= 0.0 && between >= 0.0);
                prop_assert!((inside + between - part("communication")).abs() <= 1e-9 * part("communication").max(1.0));
                if layout["placement"]["tp_crosses_nodes"].as_bool() == Some(true) {
                    prop_assert!(between > 0.0);
                }
            }
        }
    }
}

/// Past the KV heads, more TP ranks copy: sixteen H100 as TP=16 hold about a sixth more than eight, as two stages more than twice.
#[test]
fn the_trap_is_reported() {
    let engine = json!({"name": "vllm", "max_model_len": 32_768});
    let of =
        |tp, pp, cluster| only("meta-llama/Llama-3.1-70B-Instruct", cluster, tp, pp, &engine).expect("fits");
    let (eight, sixteen, two_stages) = (of(8, 1, "8xH100"), of(16, 1, "16 H100s"), of(8, 2, "16 H100s"));
    let tokens = |l: &Value| number(l, "/capacity/kv_tokens_total");
    assert_eq!(number(&sixteen, "/kv/replication_factor"), 2.0);
    assert!(
        (1.1..1.25).contains(&(tokens(&sixteen) / tokens(&eight))),
        "{}",
        tokens(&sixteen) / tokens(&eight)
    );
    assert!(
        (2.2..2.5).contains(&(tokens(&two_stages) / tokens(&eight))),
        "{}",
        tokens(&two_stages) / tokens(&eight)
    );
    let warning = &sixteen["warnings"][0];
    assert_eq!(warning["code"], "kv_replicated");
    assert!(
        warning["message"].as_str().is_some_and(|m| m.contains("2 times") && m.contains("lost")),
        "{warning}"
    );
}

/// Nothing fits is an answer, with the near misses.
#[test]
fn nothing_fits_is_an_answer() {
    let answer = answer(&json!({"model": "meta-llama/Meta-Llama-3.1-405B", "cluster": "1xH100"}));
    assert_eq!(answer["feasible"], false);
    assert!(layouts(&answer).is_empty());
    assert_eq!(answer["refused"][0]["code"], "weights_do_not_fit");
    assert!(answer["refused"][0]["short_by_bytes"].as_u64().is_some_and(|b| b > 700_000_000_000));
}
