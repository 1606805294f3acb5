//! Weights, buffers and caches of model classes against what vLLM 0.33's own classes register (`tests/data/classes`).

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use shardwise::ingest::config_json;
use shardwise::planner::engine::{self, EngineRules};
use shardwise::planner::hardware::{Gpu, PeakFlops};
use shardwise::planner::input::EngineSettings;
use shardwise::planner::layout::Shape;
use shardwise::planner::model::ModelSpec;
use shardwise::planner::units::Bytes;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("test data is gzip");
    text.lines().map(|line| config_json::parse(line).expect("test data is JSON")).collect()
}

/// Configurations whose buffers are not counted to the byte: rotary tables of defaults that no published file has, the
/// correction of Dots1's router, which its transformers class keeps as a buffer, views of Mamba's convolutions, which take no
/// memory, and scalars of MiniMax M3's mixed formats.
const OTHER_BUFFERS: &[&str] = &[
    "dots1.json",
    "nvidia__MiniMax-M3-NVFP4.json",
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4.json",
    "nvidia__NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4.json",
    "tfdefault-glm4v.json",
    "tfdefault-nemotron_h.json",
    "tfdefault-olmo3.json",
];

/// The GPU that the cases were made for.
fn h100() -> Gpu {
    Gpu {
        key: "h100".to_owned(),
        name: "NVIDIA H100".to_owned(),
        short_name: "H100".to_owned(),
        vendor: "nvidia".to_owned(),
        architecture: "Hopper".to_owned(),
        compute_capability: Some((9, 0)),
        memory_bytes: Bytes::from_gib(79.18),
        driver_reserved_bytes: Bytes(0),
        memory_assumed: false,
        slice_of: None,
        hbm_bytes_per_s: 3.35e12,
        peak_flops: PeakFlops::default(),
        sources: Vec::new(),
        data_quality: "ok".to_owned(),
    }
}

/// Tokens of a block, blocks and tokens of 40 GiB of cache.
fn cache(spec: &ModelSpec, tp: u64, max_model_len: Option<u64>) -> (u64, u64, u64) {
    let rules: &dyn EngineRules = engine::rules("vllm", "0.33").expect("known");
    let mut asked = EngineSettings::defaults_of("vllm", "0.33");
    asked.max_model_len = max_model_len;
    let (gpu, shape) = (h100(), Shape::new(tp, 1));
    let settings = rules.resolve(&asked, spec, &gpu).expect("settings");
    let stages = rules.pipeline_split(spec.layers.len(), 1, &settings).expect("one stage");
    let layout = rules.cache_layout(spec, &shape, &gpu, &settings, &stages).expect("a layout");
    let capacity = layout.capacity(&[Bytes::from_gib(40.0)], &settings).expect("room for one request");
    (layout.block_size, capacity.blocks, capacity.tokens.get())
}

#[test]
fn weights_buffers_and_caches_equal_those_of_the_engines_classes() {
    let configs: BTreeMap<String, Value> = lines(include_bytes!("data/classes/configs.jsonl.gz"))
        .into_iter()
        .map(|mut row| (row["file"].as_str().expect("named").to_owned(), row["config"].take()))
        .collect();
    let (mut compared, mut caches) = (0, 0);
    for case in lines(include_bytes!("data/classes/cases.jsonl.gz")) {
        let file = case["config"].as_str().expect("a file");
        let tp = case["tp"].as_u64().expect("a size");
        let side = case["side"].as_str().map(|side| &configs[side]);
        let spec = match config_json::read(file, &configs[file], side) {
            Ok(read) => read.spec,
            Err(error) => panic!("{file}: {error}"),
        };
        let shape = Shape { pp: case["pp"].as_u64().unwrap_or(1), ..Shape::new(tp, 1) };
        let rank = case["pp_rank"].as_u64().unwrap_or(0);
        let rules: &dyn EngineRules = engine::rules("vllm", "0.33").expect("known");
        let asked = EngineSettings::defaults_of("vllm", "0.33");
        let settings = rules.resolve(&asked, &spec, &h100()).expect("settings");
        let stages = rules.pipeline_split(spec.layers.len(), shape.pp, &settings).expect("stages");
        let range = stages[usize::try_from(rank).expect("small")].clone();
        let stage = spec.sharded(&shape).stage(range.start, range.end, rank == 0, rank + 1 == shape.pp);
        assert_eq!(Some(stage.bytes.get()), case["weight_bytes"].as_u64(), "{file} TP={tp}");
        if !OTHER_BUFFERS.contains(&file) {
            assert_eq!(Some(stage.buffer_bytes.get()), case["buffer_bytes"].as_u64(), "{file} TP={tp}");
        }
        if let Some(tokens) = case["kv_tokens"].as_u64() {
            let figure = |key: &str| case[key].as_u64().expect("a figure");
            let expected = (figure("block_size"), figure("blocks"), tokens);
            assert_eq!(cache(&spec, tp, case["max_model_len"].as_u64()), expected, "{file} TP={tp}");
            caches += 1;
        }
        compared += 1;
    }
    assert!(compared >= 150 && caches >= 25, "{compared} cases, {caches} caches");
}
