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
fn a_quantisation_group_lies_on_one_rank() {
    let starts = |model: &str, tp: u64, cluster: &str| {
        let answer = command(&format!("vllm serve {model} -tp {tp} --max-model-len 4096"), cluster);
        let deployment = answer.deployments.into_iter().next().expect("one deployment");
        deployment.refused.map(|refused| (refused.code, refused.message))
    };
    // 13824 inputs of down_proj over 8 ranks are 1728, 13.5 groups of 128; over 4 they are 27
    let (code, message) = starts("Qwen/Qwen2.5-14B-Instruct-AWQ", 8, "8 H100").expect("refused");
    assert_eq!(code, "quantization_block_not_divisible", "{message}");
    assert!(message.contains("1728 a rank"), "{message}");
    assert_eq!(starts("Qwen/Qwen2.5-14B-Instruct-AWQ", 4, "8 H100"), None);
    // 29568 inputs are 231 groups, which two ranks cannot share either
    let (code, message) = starts("Qwen/Qwen2.5-72B-Instruct-AWQ", 2, "8 H100").expect("refused");
    assert_eq!(code, "quantization_block_not_divisible", "{message}");
    // plain weights have no groups
    assert_eq!(starts("Qwen/Qwen2.5-14B-Instruct", 8, "8 H100"), None);
}

#[test]
fn a_cache_given_in_bytes_must_fit_the_gpu() {
    let with = |bytes: u64| {
        let model = "meta-llama/Llama-3.1-8B-Instruct";
        command(&format!("vllm serve {model} --max-model-len 4096 --kv-cache-memory-bytes {bytes}"), "1 H100")
    };
    let refused = with(1_000_000_000_000);
    let why = refused.deployments[0].refused.as_ref().expect("no GPU has so much");
    assert_eq!(why.code, "weights_do_not_fit");
    assert!(why.message.contains("given cache of 931.32 GiB"), "{}", why.message);
    assert!(why.short_by_bytes.is_some_and(|b| b > 900_000_000_000));
    let held = with(40_000_000_000);
    let layout = held.deployments[0].layout.as_ref().expect("fits");
    assert_eq!(layout.memory.stages[0].kv_bytes, 40_000_000_000);
}

/// `buffers` of the first stage, bytes.
fn buffers(answer: &CheckAnswer) -> u64 {
    let layout = answer.deployments[0].layout.as_ref().expect("it starts");
    layout.memory.stages[0].items.iter().find(|i| i.name == "buffers").map_or(0, |i| i.bytes)
}

#[test]
fn absorbed_attention_keeps_copies_of_its_up_projection() {
    let sglang = |dp: &str, cluster: &str| {
        let model = "deepseek-ai/DeepSeek-V3.1";
        buffers(&command(&format!("python -m sglang.launch_server --model-path {model} --tp 8{dp}"), cluster))
    };
    // 61 layers x 128 heads x 512 x (128 + 128) elements of two bytes: w_kc and w_vc
    let copies = 61 * 128 * 512 * 256 * 2;
    let (one, eighth) = (sglang(" --dp 8 --enable-dp-attention --ep 8", "8 H200"), sglang("", "8 H200"));
    // dealt-out experts add a map of 256 entries to each of 58 layers
    assert_eq!(one - eighth - 58 * 256 * 4, copies - copies / 8);
    // TensorRT-LLM: the keys' half alone, in the fp8 of the checkpoint
    let trt = buffers(&command("trtllm-serve deepseek-ai/DeepSeek-V3.1 --tp_size 8", "8 H200"));
    assert_eq!(eighth - trt, copies / 8 - copies / 4 / 8);
}

#[test]
fn states_of_sglang_are_fp32_and_tracked() {
    let command = command(
        "python -m sglang.launch_server --model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp 4",
        "4 H100",
    );
    let layout = command.deployments[0].layout.as_ref().expect("it starts");
    // 36 layers of a bf16 convolution and an fp32 state, 5 slots a request
    let slot = 36 * (3 * 2048 * 2 + 8 * 128 * 128 * 4);
    assert_eq!(layout.memory.stages[0].state_bytes_per_sequence, Some(5 * slot));
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
    // (as published in July 2024, each KV head twice; it leaves its attention in 16 bit: 57.75 GiB a card)
    let answer = check(
        json!({"command": "vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 8", "cluster": "8 H100", "engine_version": "0.6",
        "model": {"id": "meta-llama/Llama-3.1-405B-Instruct", "weights_bytes": 496_087_580_000_u64,
            "overrides": {"num_key_value_heads": 16}}}),
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
fn every_data_parallel_rank_copies_attention_so_the_mixed_layout_holds_most() {
    // thought: eight data-parallel ranks are best for an MLA model; each carries all dense weights, and two ranks that
    // share them leave more for the cache of each
    let of = |sizes: &str| {
        let text = format!(
            "vllm serve deepseek-ai/DeepSeek-V3.2 {sizes} --enable-expert-parallel --max-model-len 65536"
        );
        command(&text, "8 H200").deployments[0].layout.clone().expect("it starts")
    };
    let (tp, dp, mixed) = (of("-tp 8"), of("--data-parallel-size 8"), of("-tp 2 --data-parallel-size 4"));
    let weights = |l: &shardwise::planner::plan::RankedLayout| l.memory.stages[0].weights_bytes;
    assert!(weights(&tp) < weights(&mixed) && weights(&mixed) < weights(&dp));
    assert!(mixed.capacity.kv_tokens_per_replica > dp.capacity.kv_tokens_per_replica);
    assert!(mixed.capacity.kv_tokens_total > 3 * tp.capacity.kv_tokens_total);
}

#[test]
fn a_model_that_fills_its_card_starts_only_with_small_steps() {
    // thought: 120B in four bits fits one card of 80 GB as it comes; weights leave room only when little else is taken
    let of = |flags: &str| {
        check(json!({"command": format!("vllm serve openai/gpt-oss-120b {flags}"), "cluster": "1 H100",
            "engine_version": "0.10.1"}))
    };
    let plain = of("--gpu-memory-utilization 0.9");
    assert_eq!(plain.deployments[0].will_start, Some(false), "{}", plain.message);
    assert!(plain.message.contains("too much"), "{}", plain.message);
    let small = of("--gpu-memory-utilization 0.95 --max-num-batched-tokens 1024 --max-num-seqs 64");
    assert_eq!(small.deployments[0].will_start, Some(true), "{}", small.message);
    let starts = small.checks.iter().find(|c| c.code == "starts").expect("told");
    assert!(starts.message.contains("are left for the cache"), "{}", starts.message);
}

#[test]
fn cards_of_two_sizes_take_stages_by_what_each_holds() {
    // thought: a stage needs the cache of all layers; each needs that of its own, on the memory of its own card
    let smi = "index, name, memory.total [MiB], memory.free [MiB]\n0, NVIDIA GeForce RTX 5090, 32607 MiB, 16000 MiB\n\
               1, NVIDIA GeForce RTX 5090, 32607 MiB, 32000 MiB\n";
    let answer = command(
        "VLLM_PP_LAYER_PARTITION=16,32 vllm serve Qwen/Qwen3-Coder-30B-A3B-Instruct -pp 2 --max-model-len 16384 \
         --quantization fp8",
        smi,
    );
    let layout = answer.deployments[0].layout.as_ref().unwrap_or_else(|| panic!("{}", answer.message));
    let stages = &layout.memory.stages;
    assert_eq!((stages[0].last_layer, stages[1].first_layer), (15, 16));
    assert_eq!(stages[0].kv_bytes_per_token * 2, stages[1].kv_bytes_per_token);
    let by_hand = stages.iter().map(|s| s.kv_bytes / s.kv_bytes_per_token).min().expect("two stages");
    assert!(layout.capacity.kv_tokens_per_replica.abs_diff(by_hand) <= 16, "{by_hand}");
}

#[test]
fn all_three_engines_are_judged_by_their_own_rules() {
    let model = "meta-llama/Llama-3.1-70B-Instruct";
    for (text, engine) in [
        (format!("vllm serve {model} -tp 16 --max-model-len 32768"), "vllm"),
        (
            format!("python -m sglang.launch_server --model-path {model} --tp 16 --context-length 32768"),
            "sglang",
        ),
        (format!("trtllm-serve {model} --tp_size 16 --max_seq_len 32768"), "tensorrt-llm"),
    ] {
        let answer = command(&text, "2 nodes x 8 H100");
        assert!(answer.deployments[0].engine.starts_with(engine));
        assert_eq!(answer.deployments[0].will_start, Some(true), "{engine}: {}", answer.message);
        assert!(answer.deployments[0].kv_tokens_per_replica.is_some_and(|t| t > 500_000), "{engine}");
        for code in ["kv_replicated", "tp_crosses_nodes"] {
            assert_eq!(status(&answer, code), Some(Status::Warn), "{engine} {code}");
        }
        let wrong = command(&text.replace("16 ", "12 "), "2 nodes x 8 H100");
        assert_eq!(wrong.deployments[0].will_start, Some(false), "{engine}");
    }
    let wide = command(
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.1 \\\n --tp 8 \\\n --enable-dp-attention --dp 8 \\\n --context-lenght 4096",
        "8 H200",
    );
    let unknown = wide.checks.iter().find(|c| c.code == "unknown_flag").expect("told");
    assert_eq!((unknown.status, unknown.line), (Status::Fail, Some(4)));
    assert_eq!(wide.deployments[0].layout.as_ref().map(|l| l.kv.replication_factor), Some(1.0));
}

#[test]
fn engines_that_start_with_a_pool_below_the_length_are_said_to() {
    // vLLM refuses; SGLang starts and turns away requests that are too long
    let vllm = command("vllm serve Qwen/Qwen2.5-32B-Instruct --max-model-len 131072", "1 H100");
    let sglang = command(
        "python -m sglang.launch_server --model-path Qwen/Qwen2.5-32B-Instruct --context-length 131072",
        "1 H100",
    );
    assert_eq!(vllm.deployments[0].will_start, Some(false));
    assert_eq!(sglang.deployments[0].will_start, Some(true), "{}", sglang.message);
    assert_eq!(status(&sglang, "max_model_len"), Some(Status::Warn));
}

#[test]
fn a_cache_given_in_blocks_or_tokens_is_the_pool() {
    let tokens =
        |text: &str| command(text, "8 H100").deployments[0].kv_tokens_per_replica.expect("it starts");
    let model = "meta-llama/Llama-3.1-70B-Instruct";
    let blocks =
        tokens(&format!("vllm serve {model} -tp 8 --max-model-len 8192 --num-gpu-blocks-override 10000"));
    assert_eq!(blocks, 160_000);
    let capped = tokens(&format!(
        "python -m sglang.launch_server --model-path {model} --tp 8 --context-length 8192 --max-total-tokens 100000"
    ));
    assert_eq!(capped, 100_000);
    let many = command(&format!("vllm serve {model} -tp 8 --num-gpu-blocks-override 10000000"), "8 H100");
    assert_eq!(status(&many, "cache_larger_than_memory"), Some(Status::Fail));
}

#[test]
fn options_in_a_script_or_a_config_map_are_read_with_their_lines() {
    let script = "cat > o.yaml <<'EOF'\nkv_cache_config:\n  dtype: fp9\nEOF\n\
                  trtllm-serve meta-llama/Llama-3.1-8B-Instruct --extra_llm_api_options o.yaml";
    let answer = command(script, "1 H100");
    assert_eq!(answer.deployments[0].will_start, Some(false), "{}", answer.message);
    let at = answer.checks.iter().find(|c| c.code == "starts").and_then(|c| c.line);
    assert_eq!(at, Some(3), "{:?}", answer.checks);
    let manifest = "kind: Deployment
spec:
  template:
    spec:
      containers:
        - image: vllm/vllm-openai:v0.33.0
          command: [sh, -c]
          args:
            - |
              export A=1
              exec vllm serve meta-llama/Llama-3.1-8B-Instruct \\
                --max-modle-len 4096
          resources: {limits: {nvidia.com/gpu: 1}}
";
    let answer = check(json!({"manifest": manifest, "cluster": "1 H100"}));
    let unknown = answer.checks.iter().find(|c| c.code == "unknown_flag").expect("told");
    assert_eq!(unknown.line, Some(12), "{:?}", answer.checks);
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

#[test]
fn a_policy_that_cannot_be_read_is_refused() {
    let request =
        json!({"command": "vllm serve m", "cluster": "8 H100", "policy": {"deny": ["kv_replicated", 1]}});
    let asked = check_offline(&Document { value: request, duplicates: Vec::new() });
    let Err(ServiceError::Invalid(faults)) = asked else { panic!("{asked:?}") };
    assert_eq!(faults.first().map(|fault| fault.pointer.as_str()), Some("#/policy/deny/1"));
}
