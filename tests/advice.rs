//! Advice: what to change on a layout, with gains that are quotients of two real plans.

use proptest::prelude::*;
use serde_json::{Value, json};
use shardwise::ingest::request::PlanRequest;
use shardwise::planner::plan::{Advice, Plan, RankedLayout};
use shardwise::service::plan_offline;

const LLAMA_70B: &str = "meta-llama/Llama-3.1-70B-Instruct";

fn plan(question: &Value) -> Plan {
    let request = PlanRequest::read(question).unwrap_or_else(|faults| panic!("{faults:?}"));
    plan_offline(&request).expect("an answer").plan
}

fn pinned(mut question: Value, tp: u64, pp: u64, dp: u64) -> Value {
    question["search"] =
        json!({"tp": [tp], "pp": [pp], "dp": [dp], "ep": [1], "attention_dp": [1], "dcp": [1]});
    question
}

fn best(plan: &Plan) -> &RankedLayout {
    plan.layouts.first().expect("a layout")
}

fn named<'p>(plan: &'p Plan, change: &str) -> &'p Advice {
    let said = || plan.advice.iter().map(|a| (&a.change, &a.message)).collect::<Vec<_>>();
    plan.advice.iter().find(|a| a.change == change).unwrap_or_else(|| panic!("no {change} in {:#?}", said()))
}

/// The gains are those between two plans that were asked for by themselves.
fn is_quotient(advice: &Advice, before: &Plan, after: &Plan) {
    let (b, a) = (best(before), best(after));
    let near = |got: f64, expected: f64, what: &str| {
        assert!((got / expected - 1.0).abs() < 1e-9, "{what} of {}: {got} and not {expected}", advice.change);
    };
    near(
        advice.kv_tokens_gain,
        a.capacity.kv_tokens_total as f64 / b.capacity.kv_tokens_total as f64,
        "KV tokens",
    );
    near(advice.tpot_gain, b.latency.tpot_ms.value / a.latency.tpot_ms.value, "TPOT");
}

#[test]
fn tp_16_of_eight_kv_heads_is_told_what_replicas_and_stages_would_hold() {
    let question = json!({"model": LLAMA_70B, "cluster": "2 nodes x 8 H100",
        "engine": {"name": "vllm", "max_model_len": 32768}, "workload": {"concurrency": 16}});
    let own = plan(&pinned(question.clone(), 16, 1, 1));
    assert_eq!(best(&own).kv.replication_factor, 2.0);
    let replicas = named(&own, "tensor_parallel_size=8 data_parallel_size=2");
    is_quotient(replicas, &own, &plan(&pinned(question.clone(), 8, 1, 2)));
    assert!(replicas.kv_tokens_gain > 1.6, "{replicas:?}");
    assert_eq!((replicas.layout.as_str(), replicas.becomes.as_str()), ("TP=16", "TP=8 × DP=2"));
    assert!(replicas.message.contains("each of 8 KV heads 2 times"), "{}", replicas.message);
    let stages = named(&own, "tensor_parallel_size=8 pipeline_parallel_size=2");
    is_quotient(stages, &own, &plan(&pinned(question.clone(), 8, 2, 1)));
    assert!(stages.kv_tokens_gain > 1.9, "{stages:?}");
    let positions = named(&own, "decode_context_parallel_size=2");
    let mut with_dcp = pinned(question, 16, 1, 1);
    with_dcp["search"]["dcp"] = json!([2]);
    is_quotient(positions, &own, &plan(&with_dcp));
}

#[test]
fn a_replica_doubles_what_more_ranks_hardly_raise() {
    let question = json!({"model": LLAMA_70B, "cluster": "8 H100",
        "engine": {"name": "vllm", "max_model_len": 32768}, "workload": {"concurrency": 8}});
    let own = plan(&pinned(question, 8, 1, 1));
    let replica = named(&own, "data_parallel_size=2");
    assert!((replica.kv_tokens_gain - 2.0).abs() < 1e-9 && (replica.cost_factor - 2.0).abs() < 1e-9);
    let told = replica
        .message
        .split("GPUs holds ")
        .nth(1)
        .and_then(|told| told.split(", ").nth(1))
        .expect("the other way to use them");
    let gain: f64 = told.split(' ').next().expect("a factor").parse().expect("a number");
    assert!((1.05..1.25).contains(&gain), "{}", replica.message);
}

#[test]
fn one_latent_for_all_ranks_asks_for_attention_groups_or_positions() {
    let question = json!({"model": "deepseek-ai/DeepSeek-V3", "cluster": "8 H200",
        "engine": {"name": "vllm", "max_model_len": 32768}, "workload": {"concurrency": 8}});
    let own = plan(&pinned(question, 8, 1, 1));
    assert_eq!(best(&own).kv.replication_factor, 8.0);
    let changes: Vec<&str> = own.advice.iter().map(|a| a.change.as_str()).collect();
    assert!(changes.iter().any(|c| c.starts_with("attention_dp=")), "{changes:?}");
    assert!(changes.iter().any(|c| c.starts_with("decode_context_parallel_size=")), "{changes:?}");
    let positions = named(&own, "decode_context_parallel_size=8");
    assert!((7.5..8.5).contains(&positions.kv_tokens_gain), "{positions:?}");
}

#[test]
fn fp8_weights_are_those_of_a_plan_with_them() {
    for model in ["meta-llama/Llama-3.1-8B-Instruct", LLAMA_70B, "Qwen/Qwen3-30B-A3B"] {
        let question = json!({"model": model, "cluster": "8 H100",
            "engine": {"name": "vllm", "max_model_len": 8192}, "workload": {"concurrency": 4}});
        let own = plan(&pinned(question.clone(), 4, 1, 1));
        let mut changed = pinned(question, 4, 1, 1);
        changed["engine"]["quantization"] = json!("fp8");
        is_quotient(named(&own, "quantization=fp8"), &own, &plan(&changed));
    }
}

#[test]
fn memory_that_does_not_bind_needs_nothing() {
    let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "1 H100",
        "engine": {"name": "vllm", "max_model_len": 4096, "max_num_seqs": 8}, "workload": {"concurrency": 8}});
    let own = plan(&question);
    let first = own.advice.first().expect("advice");
    assert_eq!(first.change, "none");
    assert!(first.message.contains("max_num_seqs lets 8 run"), "{}", first.message);
    let mut free = question;
    free["engine"]["max_num_seqs"] = json!(4096);
    assert!(plan(&free).advice.iter().all(|a| a.change != "none"));
}

#[test]
fn one_user_on_one_nvlink_domain_keeps_its_wide_tp() {
    let question = json!({"model": LLAMA_70B, "cluster": "72 GB200", "objective": "latency",
        "engine": {"name": "vllm", "max_model_len": 8192},
        "workload": {"input_tokens": 512, "output_tokens": 256, "context_tokens": 2048, "concurrency": 1}});
    let own = plan(&pinned(question.clone(), 16, 1, 1));
    assert_eq!(best(&own).kv.replication_factor, 2.0);
    let first = own.advice.first().expect("advice");
    assert_eq!(first.change, "keep_tensor_parallel_size", "{:#?}", own.advice);
    assert!(first.message.contains("TP=16 is right here"), "{}", first.message);
    // the narrower one is told that the wider one is faster
    let narrow = plan(&pinned(question, 8, 1, 2));
    assert!(named(&narrow, "tensor_parallel_size=16").tpot_gain > 1.02);
    // over the network between nodes nothing of the kind is said
    let apart = json!({"model": LLAMA_70B, "cluster": "2 nodes x 8 H100",
        "engine": {"name": "vllm", "max_model_len": 8192}, "workload": {"context_tokens": 2048, "concurrency": 1}});
    assert!(plan(&pinned(apart, 16, 1, 1)).advice.iter().all(|a| a.change != "keep_tensor_parallel_size"));
}

#[test]
fn each_other_kind_of_gpu_in_the_cluster_is_tried() {
    let question = json!({"model": LLAMA_70B, "cluster": {"node_pools": [
        {"nodes": 1, "gpus_per_node": 8, "gpu": "h100-sxm5-80gb"}, {"nodes": 1, "gpus_per_node": 8, "gpu": "h200"}]},
        "engine": {"name": "vllm", "max_model_len": 32768}, "workload": {"concurrency": 8}});
    let own = plan(&question);
    let other =
        own.advice.iter().find(|a| a.change.starts_with("replica on ")).expect("the other pool's kind");
    assert!(other.kv_tokens_gain > 1.2 && other.cost_factor > 1.2, "{other:?}");
}

/// "TP=8 × PP=2 × DP=2" as a pinned search.
fn sizes_of(layout: &str) -> Value {
    let size = |name: &str| -> u64 {
        layout
            .split(" × ")
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            .map_or(1, |n| n.parse().expect("a number"))
    };
    json!({"tp": [size("TP")], "pp": [size("PP")], "dp": [size("DP")], "ep": [size("EP")],
        "attention_dp": [size("attention DP")], "dcp": [size("DCP")]})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gains_are_quotients_of_two_plans(
        model in prop::sample::select(vec![
            "meta-llama/Llama-3.1-8B-Instruct", LLAMA_70B, "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3",
            "Qwen/Qwen2.5-72B-Instruct",
        ]),
        cluster in prop::sample::select(vec!["8 H100", "2 nodes x 8 H100", "2 nodes x 8 H200", "72 GB200", "4 L40S"]),
        tp in prop::sample::select(vec![1_u64, 2, 4, 8, 16]),
        concurrency in 1_u64..6,
        length in prop::sample::select(vec![4096_u64, 32768]),
    ) {
        let question = json!({"model": model, "cluster": cluster,
            "engine": {"name": "vllm", "max_model_len": length},
            "workload": {"concurrency": concurrency, "input_tokens": 1024, "output_tokens": 128},
            "search": {"tp": [tp], "pp": [1], "dp": [1], "ep": [1], "attention_dp": [1], "dcp": [1]}});
        let own = plan(&question);
        let Some(layout) = own.layouts.first() else { return Ok(()) };
        // a load that does not fit is another load on a roomier layout
        prop_assume!(layout.throughput.concurrency == concurrency);
        for advice in &own.advice {
            prop_assert!(!advice.message.is_empty() && advice.message.ends_with('.'));
            prop_assert!(advice.kv_tokens_gain.is_finite() && advice.tpot_gain.is_finite());
            let same_gpus = advice.cost_factor == 1.0 && advice.becomes != advice.layout;
            if advice.change == "kv_cache_dtype=fp8" {
                let mut changed = question.clone();
                changed["engine"]["kv_cache_dtype"] = json!("fp8");
                is_quotient(advice, &own, &plan(&changed));
            } else if same_gpus {
                let mut changed = question.clone();
                changed["search"] = sizes_of(&advice.becomes);
                is_quotient(advice, &own, &plan(&changed));
            }
        }
        // best gain for its cost first, among those that change something
        let worth: Vec<f64> = own.advice.iter()
            .filter(|a| a.kv_tokens_gain != 1.0 || a.tpot_gain != 1.0)
            .map(|a| a.sequences_gain.max(a.tpot_gain) / a.cost_factor)
            .collect();
        prop_assert!(worth.windows(2).all(|w| w[0] >= w[1]), "{worth:?}");
    }
}

/// Asked for in detail, advice plans the published checkpoints in fewer bits by their own files, and replicas on GPUs that the
/// cluster lacks; each gain is the quotient of two plans that were asked for by themselves.
#[test]
fn in_detail_other_checkpoints_and_products_are_planned() {
    let question = json!({"model": "Qwen/Qwen3-235B-A22B", "cluster": "8 H200",
        "engine": {"name": "vllm", "max_model_len": 32768}, "workload": {"concurrency": 32}});
    let detailed = |mut question: Value| {
        question["advice"] = json!("detailed");
        question
    };
    let own = pinned(question, 8, 1, 1);
    let brief = plan(&own);
    let whole = plan(&detailed(own.clone()));
    let changes = |plan: &Plan| plan.advice.iter().map(|a| a.change.clone()).collect::<Vec<_>>();
    assert!(changes(&brief).iter().all(|c| !c.starts_with("model=") && !c.starts_with("replica on")));
    assert!(changes(&brief).iter().all(|change| changes(&whole).contains(change)));
    let published = named(&whole, "model=nvidia/Qwen3-235B-A22B-NVFP4");
    let mut other = own.clone();
    other["model"] = json!("nvidia/Qwen3-235B-A22B-NVFP4");
    is_quotient(published, &whole, &plan(&other));
    assert!(published.kv_tokens_gain > 1.2, "{published:?}");
    assert!(published.message.contains("nvfp4"), "{}", published.message);
    assert!(!changes(&whole).contains(&"weights=int4".to_owned()), "there is a published one");
    let replica = named(&whole, "replica on b200-sxm-180gb");
    assert!(replica.sequences_gain > 1.0 && replica.cost_factor > 1.0, "{replica:?}");
    assert!(!changes(&whole).contains(&"replica on h200-sxm-141gb".to_owned()), "that is what there is");
    let worth: Vec<f64> = whole
        .advice
        .iter()
        .filter(|a| a.becomes != a.layout)
        .map(|a| a.sequences_gain.max(a.tpot_gain) / a.cost_factor)
        .collect();
    assert!(worth.windows(2).all(|pair| pair[0] >= pair[1]), "best gain for its cost first: {worth:?}");
}

#[test]
fn without_a_published_checkpoint_four_bits_are_told_as_what_would_have_to_be_made() {
    let question = json!({"model": LLAMA_70B, "cluster": "4 H100", "advice": "detailed", "workload": {"concurrency": 8},
        "engine": {"name": "vllm", "max_model_len": 16384}});
    let own = plan(&pinned(question.clone(), 4, 1, 1));
    let made = named(&own, "weights=int4");
    let mut four_bits = pinned(question, 4, 1, 1);
    four_bits["model"] = json!({"id": LLAMA_70B, "weights": "int4"});
    is_quotient(made, &own, &plan(&four_bits));
    assert!(made.message.contains("has to be made"), "{}", made.message);
}
