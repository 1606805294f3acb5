//! What a load may say beside its lengths: prompts that are in the cache already, drafted tokens, more requests than have room.
//! Through the command, as people ask.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn shardwise(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shardwise")).args(args).output().expect("runs")
}

/// The plan of one layout of a model on a cluster.
fn plan(model: &str, cluster: &str, tp: &str, more: &[&str]) -> Value {
    let base = ["plan", "--model", model, "--cluster", cluster, "--tp", tp, "--pp", "1", "--dp", "1"];
    let fixed = ["--ep", "1", "--attention-dp", "1", "--dcp", "1", "--format", "json"];
    let out = shardwise(&[&base[..], &fixed, more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

const LLAMA: &str = "meta-llama/Llama-3.1-70B-Instruct";
const DEEPSEEK: &str = "deepseek-ai/DeepSeek-R1";

fn figure(plan: &Value, pointer: &str) -> f64 {
    plan.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {plan}"))
}

fn first(plan: &Value, pointer: &str) -> f64 {
    figure(plan, &format!("/layouts/0{pointer}"))
}

fn says(plan: &Value, list: &str, words: &str) -> bool {
    plan["layouts"][0][list].to_string().contains(words)
}

#[test]
fn prompts_in_the_cache_already_cost_less_and_hold_as_much() {
    for model in ["calibrated", "roofline"] {
        let ask = |hit: &str| {
            let load = ["--input-tokens", "16k", "--context-tokens", "20k", "--prefix-cache-hit-rate", hit];
            plan(LLAMA, "8 H100", "8", &[&load[..], &["--latency-model", model]].concat())
        };
        let (cold, warm, hot) = (ask("0"), ask("0.5"), ask("0.95"));
        for (a, b) in [(&cold, &warm), (&warm, &hot)] {
            assert!(first(b, "/latency/ttft_ms/value") < 0.8 * first(a, "/latency/ttft_ms/value"), "{model}");
            assert!(
                first(b, "/throughput/output_tokens_per_s") >= first(a, "/throughput/output_tokens_per_s")
            );
            assert!(first(b, "/throughput/requests_per_s") > first(a, "/throughput/requests_per_s"));
            for held in ["/capacity/sequences_at_context", "/capacity/kv_tokens_total"] {
                assert_eq!(first(a, held), first(b, held));
            }
        }
        assert_eq!(figure(&hot, "/request/workload/prefix_cache_hit_rate"), 0.95);
        assert!(says(&hot, "reasons", "15,200 of 16,000 prompt tokens are in the cache already"), "{hot}");
        let off = plan(
            LLAMA,
            "8 H100",
            "8",
            &["--no-enable-prefix-caching", "--prefix-cache-hit-rate", "0.9", "--latency-model", model],
        );
        let same = plan(LLAMA, "8 H100", "8", &["--no-enable-prefix-caching", "--latency-model", model]);
        assert_eq!(off["layouts"][0]["latency"], same["layouts"][0]["latency"]);
        assert!(says(&off, "warnings", "prefix_caching_off"));
    }
}

#[test]
fn drafts_cost_memory_and_time_and_give_the_sum_of_the_powers() {
    let ask = |more: &[&str]| plan(DEEPSEEK, "8 H200", "8", &[&["--concurrency", "4"], more].concat());
    let mtp = |acceptance: &str| {
        ask(&[
            "--num-speculative-tokens",
            "3",
            "--speculative-method",
            "mtp",
            "--acceptance-rate",
            acceptance,
        ])
    };
    let (plain, never, half, often) = (ask(&[]), mtp("0"), mtp("0.5"), mtp("0.8"));
    let tpot = |plan: &Value| first(plan, "/latency/tpot_ms/value");
    assert!(tpot(&never) > tpot(&plain) && tpot(&never) > tpot(&half) && tpot(&half) > tpot(&often));
    assert!(tpot(&often) < 0.7 * tpot(&plain));
    assert_eq!(first(&half, "/latency/tokens_per_step"), 1.875);
    assert_eq!(first(&plain, "/latency/tokens_per_step"), 1.0);
    // a layer of 61 and a projection: 11.5 GB over 8 GPUs in DeepSeek's own figure of 14e9 parameters with its tables
    let items = half["layouts"][0]["memory"]["stages"][0]["items"].as_array().expect("items");
    let drafter = items.iter().find(|item| item["name"] == "drafter").expect("a drafter");
    let bytes = drafter["bytes"].as_f64().expect("bytes");
    assert!((1.2e9..2.2e9).contains(&bytes), "{bytes}");
    // and its layer caches beside the 61
    let blocks = |plan: &Value| first(plan, "/capacity/kv_blocks");
    assert!(blocks(&half) < blocks(&plain) * 61.0 / 62.0);
    assert!(says(&half, "reasons", "3 draft tokens from mtp"), "{half}");
    assert_eq!(
        half["request"]["engines"][0]["speculative_config"],
        json!({"method": "mtp", "num_speculative_tokens": 3, "acceptance_rate": 0.5, "acceptance_rate_given": true})
    );
    // not said: the calibration's own rate, as an assumption
    let unsaid = ask(&["--num-speculative-tokens", "3", "--speculative-method", "mtp"]);
    let named = unsaid["assumptions"].as_array().expect("assumptions").iter();
    assert!(named.filter(|a| a["name"] == "acceptance_rate" && a["given"] == false).count() == 1);
}

#[test]
fn more_requests_than_have_room_are_flagged() {
    // 8B on one H100 of 80 GB: some 58 GB of cache, 128 KiB a token
    let ask = |engine: &str, concurrency: &str| {
        let load = ["--input-tokens", "8000", "--output-tokens", "2000", "--context-tokens", "9000"];
        let more = ["--engine", engine, "--concurrency", concurrency];
        plan("meta-llama/Llama-3.1-8B-Instruct", "1 H100", "1", &[&load[..], &more].concat())
    };
    let few = ask("vllm", "16");
    assert_eq!(few["layouts"][0]["capacity"]["admission"]["preemption"], false);
    assert!(!says(&few, "warnings", "\"preemption\""));
    for (engine, preempts, when_full) in
        [("vllm", true, "recompute"), ("sglang", true, "recompute"), ("tensorrt-llm", false, "wait")]
    {
        let many = ask(engine, "200");
        let admission = &many["layouts"][0]["capacity"]["admission"];
        assert_eq!(admission["preemption"], preempts, "{engine}: {admission}");
        assert_eq!(admission["when_full"], when_full);
        assert_eq!(says(&many, "warnings", "\"preemption\""), preempts);
        assert_eq!(admission["bound"], "kv_cache");
        let of = |name: &str| admission[name].as_u64().expect("a count");
        assert_eq!(of("request_tokens"), 10_000);
        assert_eq!(of("asked"), of("admitted") + of("waiting"));
        assert!(
            of("admitted") * 10_000
                <= many["layouts"][0]["capacity"]["kv_tokens_total"].as_u64().expect("tokens")
        );
        assert!(first(&many, "/latency/ttft_ms/value") > first(&few, "/latency/ttft_ms/value"));
        assert!(admission["slot_wait_ms"].as_f64().expect("ms") > 0.0);
    }
    // a batch that is full is no preemption
    let seats = plan(
        "meta-llama/Llama-3.1-8B-Instruct",
        "1 H100",
        "1",
        &["--max-num-seqs", "8", "--concurrency", "64", "--input-tokens", "1000", "--output-tokens", "100"],
    );
    let admission = &seats["layouts"][0]["capacity"]["admission"];
    assert_eq!(
        (admission["bound"].as_str(), &admission["preemption"]),
        (Some("max_num_seqs"), &json!(false))
    );
}

#[test]
fn faults_of_a_load_name_their_flag() {
    for (flags, words) in [
        (&["--prefix-cache-hit-rate", "1.5"][..], "--prefix-cache-hit-rate"),
        (&["--acceptance-rate", "0.5"], "--num-speculative-tokens"),
        (&["--num-speculative-tokens", "2", "--acceptance-rate", "-1"], "--acceptance-rate"),
        (&["--num-speculative-tokens", "2", "--speculative-method", "medusa"], "--speculative-method"),
        (&["--num-speculative-tokens", "2", "--speculative-method", "draft_model"], "--draft-weights-bytes"),
    ] {
        let out = shardwise(&[&["plan", "--model", LLAMA, "--cluster", "8 H100"], flags].concat());
        assert_eq!(out.status.code(), Some(2), "{flags:?}");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains(words), "{flags:?}: {text}");
    }
}
