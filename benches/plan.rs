//! How long one answer takes, by size of the cluster, and what reading a question costs: `cargo bench --bench plan`.

use std::fs;

use divan::Bencher;
use serde_json::{Value, json};
use shardwise::catalogue;
use shardwise::ingest::request::PlanRequest;
use shardwise::ingest::{FieldError, Pointer, cluster, config_json, json as document};
use shardwise::planner::engine;
use shardwise::planner::hardware::Cluster;
use shardwise::planner::input::{
    EngineSettings, LatencyModel, Objective, Overrides, PlanInput, Search, Slo, Workload,
};
use shardwise::service::plan_offline;

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
        model: read.spec,
        cluster,
        engines: vec![EngineSettings::defaults_of(rules.name(), rules.version())],
        workload: Workload {
            input_tokens: 4096,
            output_tokens: 512,
            context_tokens: Some(32_768),
            concurrency: 64,
        },
        slo: Slo::default(),
        objective: Objective::Balanced,
        search: Search { allow_idle_gpus: true, ..Search::default() },
        overrides: Overrides::default(),
        calibration: catalogue::calibration::calibration(),
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
