//! Checks before a deployment: what public reports got wrong gets the right answer from one call.

use serde_json::{Value, json};
use shardwise::ingest::json::Document;
use shardwise::service::ServiceError;
use shardwise::service::checks::{CheckAnswer, Status, check_offline};
use shardwise::service::kv;

fn check(question: Value) -> CheckAnswer {
    check_offline(&Document { value: question, duplicates: Vec::new() }).expect("an answer")
}

fn command(command: &str, cluster: &str) -> CheckAnswer {
    check(json!({"command": command, "cluster": cluster}))
}

fn status(answer: &CheckAnswer, code: &str) -> Option<Status> {
    answer.checks.iter().find(|c| c.code == code).map(|c| c.status)
}

#[test]
fn copied_heads_are_told_with_their_line_and_denied_by_policy() {
    let text = "vllm serve meta-llama/Llama-3.1-70B-Instruct \\\n --max-model-len 32768 \\\n --tensor-parallel-size 16";
    let plain = command(text, "2 nodes x 8 H100");
    assert_eq!(plain.verdict, Status::Warn, "{}", plain.message);
    let copied = plain.checks.iter().find(|c| c.code == "kv_replicated").expect("told");
    assert_eq!((copied.status, copied.line), (Status::Warn, Some(3)));
    assert_eq!(status(&plain, "tp_crosses_nodes"), Some(Status::Warn));
    let denied =
        check(json!({"command": text, "cluster": "2 nodes x 8 H100", "policy": {"deny": "kv_replicated"}}));
    assert_eq!(denied.verdict, Status::Fail);
    assert!(denied.checks[0].denied);
    let stages =
        text.replace("--tensor-parallel-size 16", "--tensor-parallel-size 8 --pipeline-parallel-size 2");
    assert_eq!(status(&command(&stages, "2 nodes x 8 H100"), "kv_replicated"), None);
}

#[test]
fn flags_and_sizes_that_cannot_be_are_told_at_their_line() {
    let answer = command(
        "vllm serve meta-llama/Llama-3.1-70B-Instruct \\\n -tp 12 \\\n --max-modle-len 8192",
        "2 nodes x 8 H100",
    );
    assert_eq!(answer.verdict, Status::Fail);
    let at = |code: &str| answer.checks.iter().find(|c| c.code == code).and_then(|c| c.line);
    assert_eq!((at("starts"), at("unknown_flag")), (Some(2), Some(3)));
    assert_eq!(answer.deployments[0].will_start, Some(false));
    let many = command("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 8 -pp 8", "2 nodes x 8 H100");
    assert_eq!(status(&many, "starts"), Some(Status::Fail), "{}", many.message);
}

#[test]
fn a_cache_is_split_over_two_cards_and_both_figures_are_shown() {
    // thought: two cards of 24 GB give twice the cache of one; each card holds its half of every token
    let answer = command(
        "vllm serve Qwen/Qwen2.5-14B-Instruct -tp 2 --max-model-len 8192 --gpu-memory-utilization 0.9",
        "2x RTX 4090",
    );
    let layout = answer.deployments[0].layout.as_ref().expect("it starts");
    assert_eq!(layout.kv.bytes_per_token_per_gpu * 2, layout.kv.bytes_per_token_logical);
    let by_hand = layout.memory.stages[0].kv_bytes / layout.kv.bytes_per_token_per_gpu;
    assert!(layout.capacity.kv_tokens_per_replica.abs_diff(by_hand) <= 16, "{by_hand}");
}

#[test]
fn one_latent_on_eight_ranks_is_eight_copies() {
    // thought: TP=8 for an MLA model; attention DP holds eight times as much
    let tp = command("vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8 --max-model-len 65536", "8 B200");
    let dp = command(
        "vllm serve deepseek-ai/DeepSeek-V3.1 --data-parallel-size 8 --enable-expert-parallel --max-model-len 65536",
        "8 B200",
    );
    let factor = |a: &CheckAnswer| a.deployments[0].layout.as_ref().map(|l| l.kv.replication_factor);
    assert_eq!((factor(&tp), factor(&dp)), (Some(8.0), Some(1.0)));
    let total = |a: &CheckAnswer| a.deployments[0].layout.as_ref().map_or(0, |l| l.capacity.kv_tokens_total);
    assert!(total(&dp) > 4 * total(&tp), "{} against {}", total(&dp), total(&tp));
    assert_eq!(status(&tp, "kv_replicated"), Some(Status::Warn));
}

#[test]
fn data_parallel_ranks_hold_all_heads_so_one_request_must_fit_one_gpu() {
    // thought: eight ranks of data parallelism hold one long request together; each holds 62 GiB of it alone
    let of = |sizes: &str| {
        command(
            &format!(
                "vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 {sizes} --enable-expert-parallel --max-model-len 262144 --gpu-memory-utilization 0.9"
            ),
            "8x H20 141GB",
        )
    };
    let dp = of("--data-parallel-size 8");
    assert_eq!(dp.deployments[0].will_start, Some(false));
    let refused = dp.deployments[0].refused.as_ref().expect("why");
    assert!(refused.message.contains("62.0"), "{}", refused.message);
    let tp = of("--tensor-parallel-size 8");
    assert_eq!(tp.deployments[0].will_start, Some(true), "{}", tp.message);
}

#[test]
fn the_longest_length_is_returned_before_launch() {
    // thought: the default length of 131,072 fits a 405B model in fp8 on eight 80 GB cards
    // (the published checkpoint leaves its attention in 16 bit: 57.75 GiB a card)
    let answer = check(
        json!({"command": "vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 8", "cluster": "8 H100", "engine_version": "0.6",
        "model": {"id": "meta-llama/Llama-3.1-405B-Instruct", "weights_bytes": 496_087_580_000_u64}}),
    );
    let refused = answer.deployments[0].refused.as_ref().expect("it does not start");
    assert_eq!(refused.code, "kv_cache_too_small");
    assert!(refused.message.contains("the longest that fits is"), "{}", refused.message);
    assert_eq!(status(&answer, "max_model_len"), Some(Status::Fail));
}

#[test]
fn a_stage_holds_cache_for_its_own_layers_only() {
    // thought: PP wastes cache, or one stage needs the cache of all layers; each needs that of its own
    let answer = command(
        "VLLM_PP_LAYER_PARTITION=16,32 vllm serve Qwen/Qwen3-30B-A3B-Instruct-2507 -pp 2 --max-model-len 32768",
        "2x A100 80GB",
    );
    let layout = answer.deployments[0].layout.as_ref().expect("it starts");
    let per_token: Vec<u64> = layout.memory.stages.iter().map(|s| s.kv_bytes_per_token).collect();
    assert_eq!(
        (per_token[0] * 2, per_token[0] + per_token[1]),
        (per_token[1], layout.kv.bytes_per_token_logical)
    );
    assert_eq!(layout.memory.binding_stage, 1);
}

#[test]
fn uneven_stages_lock_the_pool_at_the_smallest() {
    let tokens = |partition: &str| {
        let text = format!(
            "VLLM_PP_LAYER_PARTITION={partition} vllm serve Qwen/Qwen2.5-32B-Instruct -pp 2 --max-model-len 8192"
        );
        command(&text, "2x A100 80GB").deployments[0].kv_tokens_per_replica.expect("it starts")
    };
    assert!(tokens("32,32") > 2 * tokens("52,12"));
}

#[test]
fn replicas_never_lengthen_a_sequence_and_copies_of_weights_are_counted() {
    let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "8 H100",
        "compare": [{"tp": 1, "dp": 8}, {"tp": 2, "dp": 4}, {"tp": 8}]});
    let answer =
        kv::sequences_offline(&Document { value: question, duplicates: Vec::new() }).expect("an answer");
    let layouts = answer.residences.layouts;
    assert!(
        layouts[0].max_sequence_tokens < layouts[1].max_sequence_tokens
            && layouts[1].max_sequence_tokens < layouts[2].max_sequence_tokens
    );
    assert_eq!(answer.residences.does_not_raise, ["dp"]);
    // eight copies of the weights leave less cache in all than one copy cut in eight
    assert!(layouts[0].kv_tokens_total < layouts[2].kv_tokens_total);
}

#[test]
fn the_figure_of_a_hybrid_cache_is_told_as_requests() {
    let answer =
        command("vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct -tp 4 --max-model-len 262144", "4x H100");
    let pool = answer.checks.iter().find(|c| c.code == "kv_pool").expect("a pool");
    assert!(pool.message.contains("requests of 262,144 tokens at once"), "{}", pool.message);
}

#[test]
fn what_cannot_be_read_is_refused_by_place() {
    let faults = |question: Value| match check_offline(&Document { value: question, duplicates: Vec::new() })
    {
        Err(ServiceError::Invalid(faults)) => {
            faults.into_iter().map(|f| (f.pointer, f.code)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(faults(json!({"cluster": "8 H100"})), [("#/command".to_owned(), "missing")]);
    assert_eq!(
        faults(json!({"command": "ls", "cluster": "8 H100"})),
        [("#/command".to_owned(), "no_engine")]
    );
    assert_eq!(
        faults(json!({"manifest": "a: [", "cluster": "8 H100"})),
        [("#/manifest".to_owned(), "invalid_yaml")]
    );
    assert_eq!(
        faults(json!({"command": "vllm serve no/such-model", "cluster": "8 H100"})),
        [("#/model".to_owned(), "unknown_model")]
    );
}
