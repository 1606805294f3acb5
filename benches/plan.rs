//! How long one answer takes, by size of the cluster, and what reading a question costs: `cargo bench --bench plan`.

use std::fs;

use divan::Bencher;
use serde_json::{Value, json};
use shardwise::catalogue;
use shardwise::ingest::batch::BatchRequest;
use shardwise::ingest::fits::FitsRequest;
use shardwise::ingest::request::PlanRequest;
use shardwise::ingest::{FieldError, Pointer, cluster, config_json, json as document};
use shardwise::planner::engine;
use shardwise::planner::hardware::Cluster;
use shardwise::planner::input::{
    EngineSettings, LatencyModel, Objective, Overrides, PlanInput, Search, Slo, Workload,
};
use shardwise::service::{batch_offline, fits, plan_offline};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DENSE: &str = "meta-llama/Llama-3.1-70B-Instruct";
const EXPERTS: &str = "deepseek-ai/DeepSeek-V3";

fn main() {
    divan::main();
}

fn read_cluster_of(value: &Value) -> Result<Cluster, Vec<FieldError>> {
    cluster::from_json(value, &Pointer::root(), catalogue::hardware::catalogue())
}

/// A question as the planner gets it: everything looked up, every layout allowed.
fn input(model: &str, gpus: u64) -> PlanInput {
    let entry = catalogue::models::find(model).expect("a model of the catalogue");
    let read =
        config_json::read(entry.id, &entry.config(), entry.side_quantization().as_ref()).expect("a model");
    let cluster = read_cluster_of(&json!(format!("{gpus} H100"))).expect("a cluster");
    let rules = engine::rules("vllm", "").expect("an engine");
    PlanInput {
        model: read.spec.into(),
        cluster,
        engines: vec![EngineSettings::defaults_of(rules.name(), rules.version())],
        workload: Workload {
            input_tokens: 4096,
            output_tokens: 512,
            context_tokens: Some(32_768),
            decode_context_tokens: None,
            concurrency: 64,
            prefix_cache_hit_rate: 0.0,
        },
        slo: Slo::default(),
        objective: Objective::Balanced,
        search: Search { allow_idle_gpus: true, ..Search::default() },
        overrides: Overrides::default(),
        calibration: catalogue::calibration::calibration(),
        memory_corrections: [].into(),
        beyond: std::sync::Arc::default(),
        latency_model: LatencyModel::Calibrated,
        limit: 20,
    }
}

#[divan::bench(args = [16, 512, 4096, 100_000])]
fn dense_model(bencher: Bencher<'_, '_>, gpus: u64) {
    let input = input(DENSE, gpus);
    bencher.bench(|| shardwise::planner::plan(divan::black_box(&input)));
}

#[divan::bench(args = [16, 512, 4096, 100_000])]
fn expert_model(bencher: Bencher<'_, '_>, gpus: u64) {
    let input = input(EXPERTS, gpus);
    bencher.bench(|| shardwise::planner::plan(divan::black_box(&input)));
}

fn body(gpus: u64) -> Value {
    json!({"model": DENSE, "cluster": format!("{gpus} H100")})
}

/// From the parsed request to the answer with its id: what a call costs inside the service.
#[divan::bench(args = [16, 512])]
fn question_to_answer(bencher: Bencher<'_, '_>, gpus: u64) {
    let request = PlanRequest::read(&body(gpus)).expect("a request");
    bencher.bench(|| plan_offline(divan::black_box(&request)));
}

/// Text of a cluster to an answer, the reading of both included.
#[divan::bench]
fn hundred_thousand_gpus_in_text(bencher: Bencher<'_, '_>) {
    let text = body(100_000).to_string();
    bencher.bench(|| answer(divan::black_box(&text)));
}

/// What `kubectl get nodes -o json` says of a thousand nodes, to an answer.
#[divan::bench]
fn thousand_kubernetes_nodes(bencher: Bencher<'_, '_>) {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": "8", "nvidia.com/gpu.family": "hopper", "topology.kubernetes.io/zone": "us-east-1a",
        "node.kubernetes.io/instance-type": "p5.48xlarge"});
    let devices = json!({"nvidia.com/gpu": "8", "cpu": "192", "memory": "2097152000Ki"});
    let node = |i| {
        json!({"kind": "Node", "metadata": {"name": format!("node-{i}"), "labels": labels}, "spec": {},
            "status": {"capacity": devices, "allocatable": devices,
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]}})
    };
    let nodes = json!({"kind": "List", "items": (0..1000).map(node).collect::<Vec<_>>()}).to_string();
    let text = json!({"model": DENSE, "cluster": nodes}).to_string();
    bencher.bench(|| answer(divan::black_box(&text)));
}

fn answer(text: &str) -> usize {
    let document = document::read(text.as_bytes()).expect("JSON");
    let request = PlanRequest::read_document(&document).expect("a request");
    plan_offline(&request).expect("an answer").plan.layouts.len()
}

/// The whole catalogue, once its models are read.
#[divan::bench]
fn what_fits(bencher: Bencher<'_, '_>) {
    let request = FitsRequest::read(&json!({"cluster": "16 H100s"})).expect("a request");
    fits::fits(&request).expect("an answer");
    bencher.bench(|| fits::fits(divan::black_box(&request)));
}

/// Twenty models on ten clusters in one call.
#[divan::bench]
fn batch_of_200(bencher: Bencher<'_, '_>) {
    let models: Vec<&str> = catalogue::models::all().iter().step_by(10).map(|m| m.id).take(20).collect();
    let clusters: Vec<String> = [1, 2, 4, 8, 16, 24, 32, 64, 128, 256].map(|n| format!("{n} H100")).into();
    let request = BatchRequest::read(&json!({"models": models, "clusters": clusters})).expect("a request");
    bencher.bench(|| batch_offline(divan::black_box(&request)));
}

#[divan::bench]
fn read_request(bencher: Bencher<'_, '_>) {
    let text = body(16).to_string();
    bencher.bench(|| {
        let document = document::read(divan::black_box(text.as_bytes())).expect("JSON");
        PlanRequest::read_document(&document)
    });
}

#[divan::bench(args = ["16 H100s", "2 nodes x 8 H100", "4x p5.48xlarge"])]
fn read_cluster(bencher: Bencher<'_, '_>, text: &str) {
    let text = json!(text);
    bencher.bench(|| read_cluster_of(divan::black_box(&text)));
}

#[divan::bench(args = [DENSE, EXPERTS])]
fn read_config(bencher: Bencher<'_, '_>, model: &str) {
    let entry = catalogue::models::find(model).expect("a model of the catalogue");
    let (config, side) = (entry.config(), entry.side_quantization());
    bencher.bench(|| config_json::read(entry.id, divan::black_box(&config), side.as_ref()));
}

/// The largest body that is read often: a config.json as text.
#[divan::bench]
fn parse_json(bencher: Bencher<'_, '_>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/v1.json");
    let text = fs::read(path).expect("openapi/v1.json");
    bencher.bench(|| document::read(divan::black_box(&text)));
}
