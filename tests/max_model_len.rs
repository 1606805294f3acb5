//! Lengths beyond the model's own: refused as vLLM and SGLang refuse them, cut as TensorRT-LLM cuts them, admitted where the
//! engine's variable says so; in plans, checks and launch files.

use serde_json::{Value, json};
use shardwise::ingest::json::Document;
use shardwise::ingest::request::PlanRequest;
use shardwise::planner::plan::Plan;
use shardwise::service::checks::{CheckAnswer, Status, check_offline};
use shardwise::service::launches::launches_offline;
use shardwise::service::plan_offline;

/// 8,192 positions, nothing stretched.
const SHORT: &str = "meta-llama/Meta-Llama-3-8B-Instruct";

fn plan(model: &Value, engine: &Value) -> Plan {
    let question = json!({"model": model, "cluster": "1 H100", "engine": engine});
    plan_offline(&PlanRequest::read(&question).expect("valid")).expect("an answer").plan
}

fn check(command: &str) -> CheckAnswer {
    let question = json!({"command": command, "cluster": "1 H100"});
    check_offline(&Document { value: question, duplicates: Vec::new() }).expect("an answer")
}

#[test]
fn plans_refuse_or_cut_as_each_engine_does() {
    for (engine, variable) in
        [("vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"), ("sglang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")]
    {
        let refused = plan(&json!(SHORT), &json!({"name": engine, "max_model_len": 8193}));
        assert!(refused.layouts.is_empty() && !refused.feasible, "{engine}");
        assert_eq!(refused.refused[0].code, "max_model_len_exceeds_model", "{engine}");
        assert!(refused.refused[0].message.contains(variable), "{}", refused.refused[0].message);
        assert!(plan(&json!(SHORT), &json!({"name": engine, "max_model_len": 8192})).feasible);
        let admitted = plan(
            &json!(SHORT),
            &json!({"name": engine, "max_model_len": 16384, "allow_long_max_model_len": true}),
        );
        let warned = admitted.layouts[0].warnings.iter().any(|w| w.code == "max_model_len_exceeds_model");
        assert!(admitted.feasible && warned, "{engine}");
    }
    let cut = plan(&json!(SHORT), &json!({"name": "tensorrt-llm", "max_model_len": 16384}));
    assert_eq!(cut.request.engines[0].max_model_len, 8192);
    assert!(cut.layouts[0].warnings.iter().any(|w| w.code == "max_model_len_exceeds_model"));
}

#[test]
fn no_sequence_is_longer_than_the_engine_admits() {
    for engine in ["vllm", "sglang", "tensorrt-llm"] {
        let plan = plan(&json!(SHORT), &json!({"name": engine, "max_model_len": 4096}));
        assert_eq!(plan.layouts[0].capacity.max_sequence_tokens, 4096, "{engine}");
    }
}

#[test]
fn each_engine_shows_the_line_of_its_own_log_and_bytes_that_add_up() {
    for (engine, begins) in [
        ("vllm", "GPU KV cache size: "),
        ("sglang", "max_total_num_tokens="),
        ("tensorrt-llm", "[MemUsageChange] Allocated "),
    ] {
        let plan = plan(&json!(SHORT), &json!({"name": engine}));
        let row = &plan.layouts[0];
        assert!(row.capacity.engine_log_line.starts_with(begins), "{}", row.capacity.engine_log_line);
        let stage = &row.memory.stages[0];
        let items: u64 = stage.items.iter().map(|item| item.bytes).sum();
        let all = stage.weights_bytes + items + stage.kv_bytes + stage.left_free_bytes.unwrap_or(0);
        assert!(all.abs_diff(row.memory.budget_bytes) < 4, "{engine}: {all}");
        assert_eq!(stage.left_free_bytes.is_some(), engine == "tensorrt-llm");
        assert!(row.memory.largest_safe_utilization.is_some_and(|u| u > 0.5 && u < 1.0), "{engine}");
    }
}

#[test]
fn sglang_dies_on_the_table_of_ten_million_positions() {
    let scout = |engine: &Value| {
        let question = json!({"model": "meta-llama/Llama-4-Scout-17B-16E-Instruct", "cluster": "8 H100", "engine": engine});
        plan_offline(&PlanRequest::read(&question).expect("valid")).expect("an answer").plan
    };
    let whole = scout(&json!({"name": "sglang"}));
    assert!(!whole.feasible);
    assert!(whole.refused.iter().any(|r| r.message.contains("80.0 GiB")), "{:?}", whole.refused[0]);
    assert!(scout(&json!({"name": "sglang", "max_model_len": 131_072})).feasible);
}

#[test]
fn the_share_that_sglang_takes_itself_is_that_of_its_release() {
    // (81,559 - 512 - 1.5 x 8192 - 1024 - 2 x 512 - 8 x 58) / 81,559 MiB; without prefill graphs before; a table of its own before 0.5
    for (version, share) in [("0.5.23", 0.812), ("0.5.3", 0.818), ("0.4.6", 0.81)] {
        let question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "8 H100",
            "engine": {"name": "sglang", "version": version}, "search": {"tp": [8]}});
        let plan = plan_offline(&PlanRequest::read(&question).expect("valid")).expect("an answer").plan;
        assert!(
            (plan.layouts[0].memory.utilization - share).abs() < 1e-9,
            "{version}: {}",
            plan.layouts[0].memory.utilization
        );
    }
}

#[test]
fn a_format_about_to_be_dropped_needs_its_flag() {
    let question = |engine: Value| {
        let question = json!({"model": "meta-llama/Llama-3.1-405B-Instruct-FP8", "cluster": "16 H200", "engine": engine});
        plan_offline(&PlanRequest::read(&question).expect("valid")).expect("an answer").plan
    };
    let refused = question(json!({"version": "0.33"}));
    assert_eq!(refused.refused[0].code, "quantization_not_supported");
    assert!(question(json!({"version": "0.33", "allow_deprecated_quantization": true})).feasible);
    assert!(question(json!({"version": "0.12"})).feasible);
}

#[test]
fn stretched_positions_count_as_the_engine_counts_them() {
    let yarn = json!({"id": "Qwen/Qwen2.5-7B-Instruct", "overrides": {
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}});
    assert!(plan(&yarn, &json!({"name": "vllm", "max_model_len": 131_072})).feasible);
    assert!(!plan(&yarn, &json!({"name": "vllm", "max_model_len": 131_073})).feasible);
    // SGLang takes the declared positions where the section names the original ones
    assert!(!plan(&yarn, &json!({"name": "sglang", "max_model_len": 131_072})).feasible);
    assert!(plan(&yarn, &json!({"name": "sglang", "max_model_len": 32_768})).feasible);
    let llama3 = json!("meta-llama/Llama-3.1-8B-Instruct");
    assert!(plan(&llama3, &json!({"name": "vllm", "max_model_len": 131_072})).feasible);
    assert!(!plan(&llama3, &json!({"name": "vllm", "max_model_len": 262_144})).feasible);
}

#[test]
fn checks_fail_with_the_line_unless_the_variable_is_set() {
    let fails = |answer: &CheckAnswer| {
        answer.checks.iter().find(|c| c.status == Status::Fail && c.code == "starts").and_then(|c| c.line)
    };
    let long = format!("vllm serve {SHORT} \\\n  --max-model-len 16384");
    let answer = check(&long);
    assert_eq!((answer.verdict, fails(&answer)), (Status::Fail, Some(2)), "{}", answer.message);
    assert!(answer.message.contains("VLLM_ALLOW_LONG_MAX_MODEL_LEN"), "{}", answer.message);
    let admitted = check(&format!("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {long}"));
    assert_eq!(fails(&admitted), None, "{}", admitted.message);
    let cut = check(&format!("trtllm-serve {SHORT} --max_seq_len 16384"));
    let warned =
        cut.checks.iter().any(|c| c.code == "max_model_len_exceeds_model" && c.status == Status::Warn);
    assert!(warned && cut.verdict == Status::Warn, "{}", cut.message);
    let pod = format!(
        "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n        - image: vllm/vllm-openai:v0.33.0\n          \
         args: [--model, {SHORT}, --max-model-len, \"16384\"]\n          env: [{{name: VLLM_ALLOW_LONG_MAX_MODEL_LEN, value: \"1\"}}]\n          \
         resources: {{limits: {{nvidia.com/gpu: 1}}}}\n"
    );
    for (text, starts) in [(pod.clone(), true), (pod.replace("\"1\"}", "\"0\"}"), false)] {
        let question = json!({"manifest": text, "cluster": "1 H100"});
        let answer = check_offline(&Document { value: question, duplicates: Vec::new() }).expect("an answer");
        assert_eq!(answer.deployments[0].will_start, Some(starts), "{}", answer.message);
    }
}

#[test]
fn launch_files_carry_the_variable_and_pass_their_check() {
    let question = |engine: Value| {
        json!({"model": SHORT, "cluster": "8 H100", "layout": {"tp": 1, "dp": 1}, "engine": engine,
            "platforms": ["command", "kubernetes", "production-stack", "llm-d", "kserve", "dynamo", "ray-serve", "compose"]})
    };
    let ask = |value| launches_offline(&Document { value, duplicates: Vec::new() });
    assert!(ask(question(json!({"max_model_len": 16384}))).is_err());
    let engine = json!({"max_model_len": 16384, "allow_long_max_model_len": true});
    let answer = ask(question(engine)).expect("an answer");
    assert_eq!(answer.max_model_len, 16384);
    for launch in &answer.launches {
        let text = &launch.files[0].text;
        assert!(text.contains("VLLM_ALLOW_LONG_MAX_MODEL_LEN"), "{}\n{text}", launch.platform);
        let check = launch.check.as_ref().expect("checked");
        assert_ne!(check.verdict, Status::Fail, "{}: {}", launch.platform, check.message);
    }
}
