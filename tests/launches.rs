//! What is written to start a layout: it is read back as the same layout, passes our own check, and admits no sequence that
//! the cache cannot hold.

#[path = "support/launches.rs"]
mod support;

use proptest::prelude::*;
use serde_json::{Value, json};
use shardwise::ingest::request::PlanRequest;
use shardwise::ingest::yaml::{self, Node};
use shardwise::service::checks::Status;
use shardwise::service::launches::{LaunchesAnswer, PlatformLaunch};
use shardwise::service::{ServiceError, plan_offline};
use support::{ask, platforms, read_back};

/// The faults of one launch, told in words.
fn faults(answer: &LaunchesAnswer, launch: &PlatformLaunch) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(check) = launch.check.as_ref().filter(|c| c.verdict == Status::Fail) {
        faults.push(format!("its check fails: {}", check.message));
    }
    let layout = &answer.layout;
    let found = read_back(launch);
    let vllm = answer.engine.name == "vllm";
    let mut gpus = 0;
    for described in &found {
        let (d, c) = (&described.deployment, &described.deployment.command);
        let size = |at: &Option<shardwise::ingest::command::At<u64>>| at.as_ref().map_or(1, |a| a.value);
        let tp = if vllm { layout.tp } else { layout.tp * layout.attention_dp };
        let groups = if vllm { size(&c.data_parallel) } else { size(&c.attention_dp) };
        let experts = c.expert_parallel.as_ref().is_some_and(|e| e.value);
        for (name, read, meant) in [
            ("TP", size(&c.tp), tp),
            ("PP", size(&c.pp), layout.pp),
            ("attention DP", groups, layout.attention_dp),
            ("DCP", size(&c.dcp), layout.dcp),
            ("EP", u64::from(experts), u64::from(layout.ep > 1)),
            ("length", c.settings.max_model_len.unwrap_or(0), answer.max_model_len),
        ] {
            if read != meant {
                faults.push(format!("{name} is read back as {read}, meant was {meant}"));
            }
        }
        if c.model.as_ref().map(|m| m.value.as_str()) != Some(&answer.model) {
            faults.push(format!("the model is read back as {:?}", c.model));
        }
        gpus += d.replicas * d.gpus().unwrap_or_else(|| c.ranks());
    }
    if found.is_empty() {
        faults.push("nothing is started".to_owned());
    }
    // these are written for one node of several, or for one group of nodes
    let partial = ["command", "compose", "sglang-router"].contains(&launch.platform.as_str());
    if !partial && gpus != layout.gpus {
        faults.push(format!("it takes {gpus} GPUs, the layout {}", layout.gpus));
    }
    faults
}

#[test]
fn what_is_written_passes_our_own_check_and_is_the_layout() {
    let models = [
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen3-235B-A22B",
        "deepseek-ai/DeepSeek-V3.1",
        "openai/gpt-oss-120b",
        "google/gemma-3-27b-it",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
    ];
    let clusters =
        ["1 H100", "8 H100", "2 nodes x 8 H100", "4x8 H200", "4x RTX 4090", "8 MI300X", "2 nodes x 8 L40S"];
    let mut told = Vec::new();
    let (mut files, mut refused) = (0, 0);
    for model in models {
        for cluster in clusters {
            for engine in ["vllm", "sglang", "tensorrt-llm"] {
                for objective in ["capacity", "latency"] {
                    let question = json!({"model": model, "cluster": cluster, "engine": {"name": engine},
                        "objective": objective, "platforms": platforms(), "image": "registry/engine:1"});
                    let answer = match ask(&question) {
                        Ok(answer) => answer,
                        Err(ServiceError::Invalid(f)) if f.iter().all(|f| f.code == "does_not_fit") => {
                            continue;
                        }
                        Err(other) => panic!("{model} on {cluster}: {other}"),
                    };
                    for launch in &answer.launches {
                        if launch.refused.is_some() {
                            assert!(launch.files.is_empty());
                            refused += 1;
                            continue;
                        }
                        files += launch.files.len();
                        let place = format!("{model} on {cluster}, {engine}, {}", launch.platform);
                        told.extend(faults(&answer, launch).into_iter().map(|f| format!("{place}: {f}")));
                    }
                }
            }
        }
    }
    assert!(told.is_empty(), "{} faults\n{}", told.len(), told[..told.len().min(40)].join("\n"));
    assert!(files > 500 && refused > 50, "{files} files, {refused} refusals");
}

#[test]
fn shapes_over_nodes_are_written_whole_or_refused_by_name() {
    let shapes = [
        json!({"tp": 8, "pp": 2}),
        json!({"tp": 16}),
        json!({"tp": 4, "pp": 3}),
        json!({"tp": 8, "pp": 2, "dp": 2}),
        json!({"tp": 4, "pp": 2, "dp": 4}),
        json!({"tp": 1, "pp": 1, "attention_dp": 16, "ep": 16}),
        json!({"tp": 2, "attention_dp": 8, "ep": 16}),
        json!({"tp": 8, "attention_dp": 4, "ep": 32}),
    ];
    let mut told = Vec::new();
    let mut codes: Vec<&'static str> = Vec::new();
    for shape in &shapes {
        for engine in ["vllm", "sglang", "tensorrt-llm"] {
            let question = json!({"model": "deepseek-ai/DeepSeek-V3.1", "cluster": "4x8 H200", "layout": shape,
                "engine": {"name": engine, "max_model_len": 16384}, "platforms": platforms()});
            let Ok(answer) = ask(&question) else { continue };
            for launch in &answer.launches {
                if let Some(why) = &launch.refused {
                    codes.push(why.code);
                } else {
                    let place = format!("{shape} {engine} {}", launch.platform);
                    told.extend(faults(&answer, launch).into_iter().map(|f| format!("{place}: {f}")));
                }
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    for code in [
        "kserve_tp_over_nodes",
        "modelservice_no_pp_field",
        "productionstack_dp_over_nodes",
        "trtllm_needs_mpi",
        "inferenceservice_one_node",
        "kubernetes_one_node",
        "rayserve_vllm_only",
        "router_sglang_only",
    ] {
        assert!(codes.contains(&code), "{code} is never told: {codes:?}");
    }
}

fn documents(launch: &PlatformLaunch) -> Vec<Node> {
    yaml::read(&launch.files[0].text).expect("YAML")
}

#[test]
fn tensorrt_brings_its_file_of_options_everywhere() {
    let question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "8 H100",
        "engine": {"name": "tensorrt-llm", "max_model_len": 32768, "kv_cache_dtype": "fp8", "free_gpu_memory_fraction": 0.8,
            "tokens_per_block": 64},
        "layout": {"tp": 4, "dp": 2}, "platforms": ["command", "kubernetes", "dynamo", "skypilot", "compose"]});
    let answer = ask(&question).expect("an answer");
    for launch in &answer.launches {
        let found = read_back(launch);
        assert!(!found.is_empty(), "{}", launch.platform);
        for described in found {
            let settings = &described.deployment.command.settings;
            assert_eq!(
                (settings.kv_cache_dtype.as_str(), settings.gpu_memory_utilization, settings.block_size),
                ("fp8", Some(0.8), Some(64)),
                "{}\n{}",
                launch.platform,
                launch.files[0].text
            );
        }
        let check = launch.check.as_ref().expect("checked");
        assert!(check.checks.iter().all(|c| c.code != "settings_file_not_read"), "{}", launch.platform);
    }
}

#[test]
fn uneven_free_memory_pins_the_gpus_that_the_plan_chose() {
    let smi = "index, name, memory.total [MiB], memory.free [MiB]\n\
               0, NVIDIA H100 80GB HBM3, 81559 MiB, 20000 MiB\n1, NVIDIA H100 80GB HBM3, 81559 MiB, 80900 MiB\n\
               2, NVIDIA H100 80GB HBM3, 81559 MiB, 80900 MiB\n3, NVIDIA H100 80GB HBM3, 81559 MiB, 21000 MiB\n";
    let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": smi, "layout": {"tp": 2, "dp": 1},
        "engine": {"max_model_len": 8192}, "platforms": ["command", "compose", "kubernetes"]});
    let answer = ask(&question).expect("an answer");
    let text = &answer.launches[0].files[0].text;
    assert!(text.contains("CUDA_VISIBLE_DEVICES=1,2 vllm serve"), "{text}");
    let compose = documents(&answer.launches[1]);
    let path = ["services", "llama-3-1-8b-instruct", "deploy", "resources", "reservations", "devices"];
    let device = compose[0].at(&path).and_then(|devices| devices.items()[0].get("device_ids"));
    let ids: Vec<&str> = device.map(Node::items).unwrap_or_default().iter().filter_map(Node::text).collect();
    assert_eq!(ids, ["1", "2"]);
    assert_eq!(answer.launches[2].refused.as_ref().map(|r| r.code), Some("cannot_pin_gpus"));
}

#[test]
fn a_name_from_outside_stays_a_name() {
    let config = json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
        "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096,
        "vocab_size": 32000, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"});
    let names = [
        "x; rm -rf / #",
        "$(touch /tmp/owned)",
        "`id`",
        "a' && b \"c\" || d",
        "${HOME} $HOME $(HOME)",
        "x- a: [b, {c}]",
        "null",
        "{{ .Values.x }}",
        "OPTIONS",
        "a\\nb\\",
        "ünï/日本 ✓",
        "$$",
    ];
    let mut told = Vec::new();
    for name in names {
        for engine in ["vllm", "sglang", "tensorrt-llm"] {
            for layout in [json!({"tp": 2, "dp": 1}), json!({"tp": 8, "pp": 2, "dp": 1})] {
                let question = json!({"model": {"config": config, "name": name}, "cluster": "2x8 H100", "layout": layout,
                    "engine": {"name": engine}, "platforms": platforms(), "name": name});
                let answer = ask(&question).unwrap_or_else(|e| panic!("{name} {layout}: {e}"));
                for launch in &answer.launches {
                    if launch.refused.is_some() {
                        continue;
                    }
                    let place = format!("{name:?} {engine} {}", launch.platform);
                    told.extend(faults(&answer, launch).into_iter().map(|f| format!("{place}: {f}")));
                }
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn a_name_that_is_a_flag_starts_nothing() {
    let config = json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
        "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096,
        "vocab_size": 32000, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"});
    let question =
        json!({"model": {"config": config, "name": "--help"}, "cluster": "8 H100", "platforms": platforms()});
    let answer = ask(&question).expect("an answer");
    assert!(answer.launches.iter().all(|l| l.refused.as_ref().is_some_and(|r| r.code == "nothing_to_start")));
}

#[test]
fn absurd_clusters_make_short_files() {
    for (nodes, gpus) in [(12_500, 8), (1, 10_000), (1_000_000, 3), (7, 128)] {
        let cluster =
            json!({"node_pools": [{"nodes": nodes, "gpus_per_node": gpus, "gpu": "h100-sxm5-80gb"}]});
        for layout in [json!({"tp": 1}), json!({"tp": 8, "pp": 4}), json!({"tp": 2, "pp": 7})] {
            let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": cluster, "layout": layout,
                "platforms": platforms()});
            let Ok(answer) = ask(&question) else { continue };
            let files = answer.launches.iter().flat_map(|l| &l.files);
            let longest = files.map(|f| f.text.len()).max().unwrap_or(0);
            assert!(longest < 300_000, "{nodes} x {gpus} {layout}: {longest} bytes");
        }
    }
}

#[test]
fn faults_of_the_question_are_told_by_place() {
    let faults = |question: Value| match ask(&question) {
        Err(ServiceError::Invalid(faults)) => {
            faults.into_iter().map(|f| (f.pointer, f.code)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let with = |key: &str, value: Value| {
        let mut question = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "8 H100"});
        question[key] = value;
        question
    };
    let told = |pointer: &str, code| vec![(pointer.to_owned(), code)];
    assert_eq!(faults(with("platforms", json!(["kserv"]))), told("#/platforms/0", "not_allowed"));
    assert_eq!(faults(with("platforms", json!([]))), told("#/platforms", "out_of_range"));
    assert_eq!(faults(with("platforms", json!("kserve"))), told("#/platforms", "wrong_type"));
    assert_eq!(faults(with("rank", json!(0))), told("#/rank", "out_of_range"));
    assert_eq!(faults(with("rank", json!(999))), told("#/rank", "does_not_fit"));
    assert_eq!(faults(with("layout", json!({"tp": 3}))), told("#/layout", "does_not_fit"));
    assert_eq!(faults(with("layout", json!({"tpp": 3}))), told("#/layout/tpp", "unknown_field"));
    assert_eq!(faults(with("image", json!("a\nb"))), told("#/image", "not_allowed"));
    assert_eq!(faults(with("platform", json!("x"))), told("#/platform", "unknown_field"));
    let hint = ask(&with("platforms", json!(["kserv"]))).expect_err("unknown").to_string();
    assert!(hint.contains("kserve"), "{hint}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_command_admits_more_than_the_pool_of_its_layout_holds(
        model in prop::sample::select(vec!["meta-llama/Llama-3.1-70B-Instruct", "google/gemma-3-27b-it",
            "deepseek-ai/DeepSeek-V3.1", "Qwen/Qwen3-Next-80B-A3B-Instruct", "openai/gpt-oss-120b"]),
        cluster in prop::sample::select(vec!["8 H100", "2x8 H100", "8 A100 40GB", "4 L40S", "8 H200"]),
        engine in prop::sample::select(vec!["vllm", "sglang", "tensorrt-llm"]),
        length in prop::option::of(1_u64..2_000_000),
        utilization in 0.5_f64..0.98,
        rank in 1_usize..6,
    ) {
        let mut settings = json!({"name": engine, "gpu_memory_utilization": utilization});
        if let Some(length) = length {
            settings["max_model_len"] = json!(length);
        }
        let plan = json!({"model": model, "cluster": cluster, "engine": settings, "limit": rank});
        let planned = plan_offline(&PlanRequest::read(&plan).expect("valid")).expect("an answer").plan;
        let mut question = plan.clone();
        question["rank"] = json!(rank);
        if let (Ok(answer), Some(layout)) = (ask(&question), planned.layouts.get(rank - 1)) {
            for described in read_back(&answer.launches[0]) {
                let admitted = described.deployment.command.settings.max_model_len.expect("written out");
                prop_assert!(admitted <= layout.capacity.max_sequence_tokens, "{admitted} in {:?}", layout.layout);
            }
        }
    }
}
