//! Clusters as people have them, all the way to a plan.

mod support;

use serde_json::{Value, json};
use support::{answer, run, run_with_input};

const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

fn plan(cluster: &Value, more: &Value) -> Value {
    let mut body =
        json!({"model": MODEL, "cluster": cluster, "engine": {"max_model_len": 8192}, "limit": 50});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    answer(&body)
}

fn layouts(plan: &Value) -> &[Value] {
    plan["layouts"].as_array().expect("layouts")
}

/// The first layout with these sizes.
fn layout(plan: &Value, tp: u64, pp: u64) -> &Value {
    layouts(plan)
        .iter()
        .find(|l| l["layout"]["tp"] == tp && l["layout"]["pp"] == pp)
        .unwrap_or_else(|| panic!("TP={tp} PP={pp} is there: {}", plan["refused"]))
}

fn refusal(plan: &Value, tp: u64) -> &Value {
    let refused = plan["refused"].as_array().expect("refused");
    refused
        .iter()
        .find(|r| r["layout"]["tp"] == tp)
        .unwrap_or_else(|| panic!("TP={tp} is refused: {refused:?}"))
}

fn matrix(name: &str) -> String {
    let path = format!("{}/tests/data/topo/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a matrix")
}

fn codes(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(|w| w["code"].as_str()).collect()
}

#[test]
fn two_kinds_of_gpu_are_a_fleet() {
    let plan = plan(&json!("2x8xH100 and 4xA100-80GB"), &json!({}));
    let pools = plan["fleet"]["pools"].as_array().expect("a fleet");
    let of: Vec<&str> = pools.iter().filter_map(|p| p["layout"]["gpu"].as_str()).collect();
    assert_eq!(of, ["h100-sxm5-80gb", "a100-sxm4-80gb"]);
    let sum: u64 = pools.iter().filter_map(|p| p["kv_tokens_total"].as_u64()).sum();
    assert_eq!(plan["fleet"]["kv_tokens_total"].as_u64(), Some(sum));
    assert_eq!(
        plan["fleet"]["gpus"].as_u64().zip(plan["fleet"]["idle_gpus"].as_u64()).map(|(a, b)| a + b),
        Some(20)
    );
    for layout in layouts(&plan) {
        let (gpu, gpus) = (&layout["layout"]["gpu"], layout["layout"]["gpus"].as_u64().expect("a number"));
        assert!(
            gpus <= if gpu == "a100-sxm4-80gb" { 4 } else { 16 },
            "a replica stays in its pool: {layout}"
        );
    }
}

#[test]
fn three_cards_take_stages_or_leave_one_idle() {
    let plan = plan(&json!("3x RTX 3090"), &json!({}));
    assert_eq!(layout(&plan, 1, 3)["layout"]["idle_gpus"], 0);
    let pair = layout(&plan, 2, 1);
    assert_eq!(pair["layout"]["idle_gpus"], 1);
    assert!(codes(&pair["warnings"]).contains(&"idle_gpus"));
    let three = refusal(&plan, 3);
    assert_eq!(three["code"], "query_heads_not_divisible");
    assert!(three["message"].as_str().is_some_and(|m| m.contains("32")), "{three}");
    assert!(three["nearest"]["tp"].as_u64().is_some_and(|tp| [2, 4].contains(&tp)), "{three}");
}

#[test]
fn links_decide_and_the_answer_says_so() {
    let of = |name: &str| {
        let cluster = json!({"topology": matrix(name), "gpu": "a100-sxm4-80gb"});
        plan(&cluster, &json!({"objective": "latency", "workload": {"concurrency": 32}}))
    };
    let (sys, switch) = (of("a100pcie_4x_sys_4numa"), of("a100_8x_nvswitch_compact"));
    let slow = layout(&sys, 4, 1);
    let fast = layout(&switch, 4, 1);
    assert_ne!(slow["placement"]["tp_link"], fast["placement"]["tp_link"]);
    let share = |l: &Value| l["latency"]["communication_share"].as_f64().expect("a share");
    assert!(share(slow) > share(fast), "{} {}", share(slow), share(fast));
    let tpot = |l: &Value| l["latency"]["tpot_ms"]["value"].as_f64().expect("a time");
    assert!(tpot(slow) > tpot(fast));
    let order = |plan: &Value| -> Vec<(u64, u64)> {
        let size = |l: &Value, name: &str| l["layout"][name].as_u64().expect("a size");
        let all = layouts(plan).iter().map(|l| (size(l, "tp"), size(l, "pp")));
        all.filter(|(tp, pp)| *tp <= 4 && *pp == 1).collect()
    };
    assert_ne!(order(&sys), order(&switch), "sys {:?}", order(&sys));
    assert!(codes(&sys["warnings"]).iter().any(|c| c.contains("sys")), "{}", sys["warnings"]);
}

/// What an all-reduce does inside a node and what it does over the network are figures of their own, in both models.
#[test]
fn collectives_between_nodes_are_told_apart() {
    for model in ["calibrated", "roofline"] {
        let plan = plan(&json!("2x8 H100"), &json!({"latency_model": model, "search": {"dp": [1]}}));
        let parts = |tp: u64, pp: u64| {
            let part = &layout(&plan, tp, pp)["latency"]["decode_breakdown_ms"];
            let of = |name: &str| part[name].as_f64().expect("a time");
            (of("communication_inside_nodes"), of("communication_between_nodes"), of("communication"))
        };
        let (inside, between, all) = parts(8, 2);
        assert!(inside > 0.0 && between == 0.0 && inside == all, "{model}: {inside} {between} {all}");
        let (inside, between, all) = parts(16, 1);
        assert!(between > 0.0 && (inside + between - all).abs() < 1e-9, "{model}: {inside} {between} {all}");
        // the calibrated one does a part of it inside each node; the plain ring waits for its slowest link alone
        assert_eq!(inside > 0.0, model == "calibrated");
    }
}

#[test]
fn the_command_takes_a_matrix_and_a_gpu() {
    let file = format!("@{}/tests/data/topo/a100pcie_4x_sys_4numa.txt", env!("CARGO_MANIFEST_DIR"));
    let output =
        run(&["plan", "--model", MODEL, "--cluster", &file, "--gpu", "a100-sxm4-80gb", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", support::transcript(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["cluster"]["gpus"], 4);
    let output = run(&["plan", "--model", MODEL, "--cluster", &file]);
    assert_eq!(output.status.code(), Some(2), "a matrix does not name its GPU");
}

#[test]
fn bridge_pairs_take_tp_2() {
    let cluster = json!({"topology": matrix("pairs_4x_nv1_sys_nonstandard_legend"), "gpu": "rtx-3090"});
    let plan = plan(&cluster, &json!({}));
    let pool = &plan["cluster"]["node_pools"][0];
    assert_eq!(pool["island_gpus"], 2);
    let pair = layout(&plan, 2, 1);
    assert_eq!(pair["layout"]["dp"], 2);
    assert_eq!(pair["placement"]["tp_link"], pool["intra_link"]);
    assert_eq!(layout(&plan, 4, 1)["placement"]["tp_link"], pool["host_link"]);
}

#[test]
fn slices_run_replicas_and_nothing_wider() {
    let plan = plan(&json!("7x A100 MIG 3g.40gb"), &json!({}));
    for wide in layouts(&plan) {
        assert_eq!((&wide["layout"]["tp"], &wide["layout"]["pp"]), (&json!(1), &json!(1)), "{wide}");
    }
    assert_eq!(layout(&plan, 1, 1)["layout"]["dp"].as_u64(), plan["cluster"]["gpus"].as_u64());
    let two = refusal(&plan, 2);
    assert_eq!(two["code"], "slices_not_linked");
    assert_eq!(two["nearest"], json!({"tp": 1, "pp": 1}));
    let refused = plan["refused"].as_array().expect("refused");
    assert!(refused.iter().any(|r| r["layout"]["pp"] == 2 && r["code"] == "slices_not_linked"));
}

/// Two cards of 32 GB with this much free, in GB.
fn free(gb: &[u64], more: &Value) -> Value {
    let free: Vec<u64> = gb.iter().map(|gb| gb * 1_000_000_000).collect();
    let pool =
        json!({"nodes": 1, "gpus_per_node": gb.len(), "gpu": "a100-sxm4-80gb", "free_memory_bytes": free});
    plan(&json!({ "node_pools": [pool] }), more)
}

#[test]
fn stages_follow_the_bytes_of_their_gpus() {
    let plan = free(&[16, 32], &json!({}));
    let split = layout(&plan, 1, 2);
    let memory = &split["memory"];
    let layers = memory["layer_partition"].as_array().expect("a split by bytes");
    assert!(layers[0].as_u64() < layers[1].as_u64(), "{layers:?}");
    assert_eq!(layers.iter().filter_map(Value::as_u64).sum::<u64>(), 32);
    let stages = memory["stages"].as_array().expect("stages");
    assert!(stages[0]["free_bytes"].as_u64() < Some(16_000_000_000));
    for stage in stages {
        let sum: u64 = ["weights_bytes", "activation_bytes", "runtime_bytes", "cuda_graph_bytes", "kv_bytes"]
            .iter()
            .filter_map(|name| stage[name].as_u64())
            .sum();
        assert_eq!(Some(sum), stage["free_bytes"].as_u64(), "the items of a stage sum to what it may use");
    }
    let binding = memory["binding_stage"].as_u64().expect("a stage");
    let warning = split["warnings"].as_array().and_then(|w| w.iter().find(|w| w["code"] == "free_memory"));
    let words = warning.and_then(|w| w["message"].as_str()).expect("a warning");
    assert!(words.contains(&format!("Stage {binding} binds")), "{words}");
    let command = split["launch"]["command"].as_str().expect("a command");
    assert!(command.contains("VLLM_PP_LAYER_PARTITION="), "{command}");
    // the engine's own split holds less, and every other one no more
    let own = |layers: &[u64]| {
        let plan = free(&[16, 32], &json!({"engine": {"max_model_len": 8192, "pp_layer_partition": layers}}));
        let held = layouts(&plan).iter().find(|l| l["layout"]["pp"] == 2);
        held.map_or(0, |l| l["capacity"]["kv_tokens_per_replica"].as_u64().expect("tokens"))
    };
    let held = split["capacity"]["kv_tokens_per_replica"].as_u64().expect("tokens");
    assert!(held > own(&[16, 16]));
    for first in 6..16 {
        assert!(held >= own(&[first, 32 - first]), "{first} layers first");
    }
}

#[test]
fn each_gpu_has_its_own_free_bytes() {
    let plan = free(&[30, 50], &json!({}));
    let two = layout(&plan, 1, 1);
    assert_eq!(two["layout"]["dp"], 2);
    assert_eq!(two["memory"]["budget_bytes"], two["memory"]["stages"][0]["free_bytes"]);
    let even = free(&[30, 30], &json!({}));
    assert_eq!(
        layout(&even, 1, 1)["memory"]["budget_bytes"],
        two["memory"]["budget_bytes"],
        "the tighter counts"
    );
    assert!(layout(&even, 1, 2)["memory"]["layer_partition"].is_null(), "equal GPUs keep the engine's split");
    // too little on one GPU: the other is used alone
    let one = free(&[10, 50], &json!({}));
    let alone = layout(&one, 1, 1);
    assert_eq!((&alone["layout"]["dp"], &alone["layout"]["idle_gpus"]), (&json!(1), &json!(1)));
    // more than the engine takes changes nothing
    let all = free(&[80, 80], &json!({}));
    let whole = layout(&all, 1, 1);
    assert!(whole["memory"]["budget_bytes"].as_u64() > two["memory"]["budget_bytes"].as_u64());
}

#[test]
fn a_huge_cluster_costs_no_more_than_a_rack() {
    let considered =
        |cluster: &str| plan(&json!(cluster), &json!({}))["total_considered"].as_u64().expect("a count");
    let (rack, huge) = (considered("64 nodes x 8 H100"), considered("100000 H100"));
    assert!(huge <= 3 * rack && huge < 5_000, "{huge} against {rack}");
}

#[test]
fn topology_recognises_the_format() {
    let file = format!("{}/tests/data/topo/a100_8x_nvswitch_compact.txt", env!("CARGO_MANIFEST_DIR"));
    let output = run(&["topology", &file, "--gpu", "a100-sxm4-80gb", "--nodes", "2", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", support::transcript(&output));
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["format"], "nvidia_smi_topology");
    assert_eq!(read["cluster"]["gpus"], 16);
    let output = run_with_input(&["topology", "-"], "2 nodes x 8 H100\n");
    let shown = support::transcript(&output);
    assert!(shown.starts_with("exit 0") && shown.contains("Read as      text"), "{shown}");
    let output = run_with_input(&["topology", "-"], "8x H1000\n");
    assert_eq!(output.status.code(), Some(2), "{}", support::transcript(&output));
}
