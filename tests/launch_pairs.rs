//! What is written to start prefill and decode workers apart: both halves are read back, pass our own check, and share neither
//! GPUs nor ports.

#[path = "support/launches.rs"]
mod support;

use serde_json::{Value, json};
use shardwise::ingest::check::Described;
use shardwise::service::ServiceError;
use shardwise::service::checks::Status;
use support::{ask, platforms, read_back};

#[test]
fn pairs_are_read_back_as_both_halves() {
    let pairs = [
        ("meta-llama/Llama-3.1-70B-Instruct", "4x8 H100", json!({"tp": 8}), json!({"tp": 4, "dp": 2})),
        ("meta-llama/Llama-3.1-70B-Instruct", "8 H200", json!({"tp": 4}), json!({"tp": 2, "dp": 2})),
        (
            "deepseek-ai/DeepSeek-V3.1",
            "6x8 H200",
            json!({"attention_dp": 16, "ep": 16}),
            json!({"tp": 8, "dp": 2}),
        ),
        (
            "meta-llama/Llama-3.1-405B-Instruct",
            "4x8 H100",
            json!({"tp": 8, "pp": 2}),
            json!({"tp": 8, "pp": 2}),
        ),
    ];
    let mut told = Vec::new();
    let (mut written, mut codes) = (0, Vec::new());
    for (model, cluster, decode, prefill) in &pairs {
        for engine in ["vllm", "sglang", "tensorrt-llm"] {
            let question = json!({"model": model, "cluster": cluster, "layout": decode, "prefill": prefill,
                "engine": {"name": engine, "max_model_len": 16384}, "platforms": platforms()});
            let answer = match ask(&question) {
                Ok(answer) => answer,
                Err(ServiceError::Invalid(f)) if f.iter().all(|f| f.code == "handover_refused") => continue,
                Err(other) => panic!("{model} {engine}: {other}"),
            };
            let half = answer.prefill.as_ref().expect("both halves");
            for launch in &answer.launches {
                let place = format!("{model} {engine} {}", launch.platform);
                if let Some(why) = &launch.refused {
                    codes.push(why.code);
                    continue;
                }
                written += 1;
                if let Some(check) = launch.check.as_ref().filter(|c| c.verdict == Status::Fail) {
                    told.push(format!("{place}: {}", check.message));
                }
                let found = read_back(launch);
                let one_engine = launch
                    .check
                    .as_ref()
                    .map_or(0, |c| c.checks.iter().filter(|c| c.code == "handover").count());
                if engine != "tensorrt-llm" && one_engine == 0 {
                    told.push(format!("{place}: the hand-over is not checked"));
                }
                for (role, layout, length) in [
                    ("prefill", &half.layout, half.max_model_len),
                    ("decode", &answer.layout, answer.max_model_len),
                ] {
                    // TensorRT-LLM's own command does not say which half it starts
                    let named = |d: &&Described| d.deployment.role == role || d.deployment.role == "both";
                    let ranks = layout.tp * layout.pp * layout.attention_dp;
                    let same = found.iter().filter(named).any(|d| {
                        let command = &d.deployment.command;
                        command.ranks() == ranks && command.settings.max_model_len == Some(length)
                    });
                    if !same {
                        told.push(format!("{place}: no {role} of {ranks} ranks is read back"));
                    }
                }
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(written > 60, "{written} files");
    for code in ["pair_not_expressible", "rayserve_pair_with_dp", "modelservice_no_pp_field"] {
        assert!(codes.contains(&code), "{code} is never told: {codes:?}");
    }
}

#[test]
fn halves_of_a_node_share_neither_gpus_nor_ports() {
    let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "8 H100", "layout": {"tp": 2},
        "prefill": {"tp": 1, "dp": 3}, "platforms": ["command"]});
    let answer = ask(&question).expect("an answer");
    let text = &answer.launches[0].files[0].text;
    let mut gpus: Vec<&str> = Vec::new();
    let mut ports: Vec<&str> = Vec::new();
    for line in text.lines().filter(|l| l.contains("vllm serve")) {
        let words: Vec<&str> = line.split(' ').collect();
        let after = |flag: &str| words.iter().skip_while(|w| **w != flag).nth(1).copied().unwrap_or("none");
        gpus.extend(words[0].trim_start_matches("CUDA_VISIBLE_DEVICES=").split(','));
        ports.push(after("--port"));
        ports.push(
            words
                .iter()
                .find_map(|w| w.strip_prefix("VLLM_NIXL_SIDE_CHANNEL_PORT="))
                .expect("a side channel"),
        );
    }
    assert_eq!(gpus, ["0", "1", "2", "3", "4"], "{text}");
    let mut distinct = ports.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((ports.len(), distinct.len()), (8, 8), "{ports:?}");
}

#[test]
fn pairs_that_cannot_work_are_told_before_anything_is_written() {
    let faults = |question: Value| match ask(&question) {
        Err(ServiceError::Invalid(faults)) => {
            faults.into_iter().map(|f| (f.pointer, f.code)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let with = |layout: Value, prefill: Value| json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "2x8 H100", "layout": layout, "prefill": prefill});
    let told = |pointer: &str, code| vec![(pointer.to_owned(), code)];
    assert_eq!(
        faults(with(json!({"tp": 2, "pp": 2}), json!({"tp": 2}))),
        told("#/prefill", "handover_refused")
    );
    assert_eq!(faults(with(json!({"tp": 8, "dp": 2}), json!({"tp": 8}))), told("#/prefill", "does_not_fit"));
    assert_eq!(faults(with(json!({"tp": 8}), json!({"tp": 3}))), told("#/prefill", "does_not_fit"));
    assert_eq!(
        faults(with(json!({"tp": 8}), json!({"tp": 8, "connector": "pigeon"}))),
        told("#/prefill/connector", "not_allowed")
    );
    assert_eq!(
        faults(with(json!({"tp": 8}), json!({"tp": 8, "rank": 2}))),
        told("#/prefill/rank", "unknown_field")
    );
    let mut ranked = with(json!(null), json!({"tp": 8}));
    ranked["rank"] = json!(1);
    assert_eq!(faults(ranked), told("#/layout", "missing"));
}
