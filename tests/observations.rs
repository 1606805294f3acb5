//! Logs beside predictions.

use serde_json::{Map, json};
use shardwise::service::observations::{ObservationAnswer, compare_offline, read_log};

fn of(log: &str, cluster: &str) -> ObservationAnswer {
    let mut base = Map::new();
    base.insert("cluster".to_owned(), json!(cluster));
    compare_offline(&read_log(log.as_bytes()).expect("a text"), &base).expect("an answer")
}

#[test]
fn copied_heads_are_named_as_the_cause() {
    let answer = of(
        "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-70B-Instruct', max_seq_len=32768, tensor_parallel_size=16, kv_cache_dtype=auto\n\
         Available KV cache memory: 55.0 GiB\nGPU KV cache size: 1,441,792 tokens\n",
        "2 nodes x 8 H100",
    );
    assert_eq!((answer.outcome.as_str(), answer.outcome_agrees), ("started", Some(true)));
    assert!(
        answer.causes.iter().any(|c| c.contains("2 times") && c.contains("TP=16")),
        "{:?}",
        answer.causes
    );
    let bytes = answer.items.iter().find(|i| i.name == "bytes_per_token").expect("both are printed");
    assert!(bytes.ratio.is_some_and(|r| (r - 1.0).abs() < 0.01), "{bytes:?}");
}

#[test]
fn an_fp8_cache_that_nobody_named_shows_in_the_bytes_of_a_token() {
    let answer = of(
        "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32000, tensor_parallel_size=1, kv_cache_dtype=auto\n\
         Available KV cache memory: 50.00 GiB\nGPU KV cache size: 819,200 tokens\n",
        "1 H100",
    );
    assert!(
        answer.causes.iter().any(|c| c.contains("0.50 times") && c.contains("fp8")),
        "{:?}",
        answer.causes
    );
}

#[test]
fn a_refusal_is_predicted_too() {
    let answer = of(
        "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-70B-Instruct', max_seq_len=131072, tensor_parallel_size=2, kv_cache_dtype=auto\n\
         ValueError: To serve at least one request with the models's max seq len (131072), (20.00 GiB KV cache is needed, which is larger than the available KV cache memory (1.00 GiB). Based on the available memory, the estimated maximum model length is 6553. Try\n",
        "2 H100",
    );
    assert_eq!((answer.outcome.as_str(), answer.outcome_agrees), ("refused", Some(true)));
    assert!(answer.refusal.is_some_and(|r| r.line == 2 && r.code == "kv_cache_too_small"));
    assert!(answer.causes.iter().any(|c| c.contains("6553")));
}

#[test]
fn what_the_log_says_stands_without_a_prediction() {
    let log = "server_args=ServerArgs(model_path='/models/own', tp_size=4)\nKV Cache is allocated. #tokens: 100, KV size: 1.00 GB\n";
    let answer = of(log, "4 H100");
    assert_eq!((answer.engine.as_str(), answer.outcome.as_str()), ("sglang", "started"));
    assert!(answer.not_predicted.is_some() && answer.items.iter().all(|i| i.predicted.is_none()));
}

#[test]
fn a_checkpoint_quantised_while_it_loads_weighs_half() {
    let of_format = |quantization: &str| {
        let log = format!(
            "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32000, \
             tensor_parallel_size=1, quantization={quantization}, kv_cache_dtype=auto\nModel loading took 8.49 GiB and 3 seconds\n"
        );
        of(&log, "1 H100").items[0].ratio.expect("predicted")
    };
    assert!((of_format("fp8") - 1.0).abs() < 0.03, "{}", of_format("fp8"));
    assert!(of_format("None") > 1.7);
}

#[test]
fn the_first_engine_took_prompts_whole_and_printed_its_total() {
    let log = |length: u64| {
        format!(
            "Initializing an LLM engine (v0.6.4.post1) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len={length}, \
             tensor_parallel_size=1, kv_cache_dtype=auto\n\
             the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB\n\
             model weights take 14.99GiB; non_torch_memory takes 0.10GiB; PyTorch activation peak memory takes 2.64GiB; \
             the rest of the memory reserved for KV Cache is 3.49GiB.\n"
        )
    };
    let pool = |length: u64| {
        let answer = of(&log(length), "1 RTX 3090");
        answer.items.iter().find(|i| i.name == "activation").and_then(|i| i.predicted).expect("predicted")
    };
    assert!(pool(20_000) > 1.5 * pool(8_000), "{} {}", pool(20_000), pool(8_000));
    // 29k was refused on this machine: whole prompts of that length leave too little
    let refused = of(&log(29_000), "1 RTX 3090");
    assert!(refused.items.iter().all(|i| i.predicted.is_none()));
}
