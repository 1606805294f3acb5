//! Weights and buffers of model classes against what vLLM 0.33's own classes register (`tests/data/classes`).

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use shardwise::ingest::config_json;
use shardwise::planner::layout::Shape;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("test data is gzip");
    text.lines().map(|line| config_json::parse(line).expect("test data is JSON")).collect()
}

/// Configurations whose buffers are not counted to the byte: rotary tables of defaults that no published file has, and the
/// correction of Dots1's router, which its transformers class keeps as a buffer.
const OTHER_BUFFERS: &[&str] = &[
    "dots1.json",
    "tfdefault-glm4v.json",
    "tfdefault-gpt_oss.json",
    "tfdefault-nemotron_h.json",
    "tfdefault-olmo3.json",
];

#[test]
fn weights_and_buffers_equal_those_of_the_engines_classes() {
    let configs: BTreeMap<String, Value> = lines(include_bytes!("data/classes/configs.jsonl.gz"))
        .into_iter()
        .map(|mut row| (row["file"].as_str().expect("named").to_owned(), row["config"].take()))
        .collect();
    let mut compared = 0;
    for case in lines(include_bytes!("data/classes/cases.jsonl.gz")) {
        let file = case["config"].as_str().expect("a file");
        let tp = case["tp"].as_u64().expect("a size");
        let spec = match config_json::read(file, &configs[file], None) {
            Ok(read) => read.spec,
            Err(error) => panic!("{file}: {error}"),
        };
        let stage = spec.sharded(&Shape::new(tp, 1)).stage(0, spec.layers.len(), true, true);
        assert_eq!(Some(stage.bytes.get()), case["weight_bytes"].as_u64(), "{file} TP={tp}");
        if !OTHER_BUFFERS.contains(&file) {
            assert_eq!(Some(stage.buffer_bytes.get()), case["buffer_bytes"].as_u64(), "{file} TP={tp}");
        }
        compared += 1;
    }
    assert!(compared >= 100, "{compared} cases");
}
