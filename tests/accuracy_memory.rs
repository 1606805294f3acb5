//! Predicted cache sizes against what engines printed at start-up (`tests/data/truth`).

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::config_json::{self, WhatIf};
use shardwise::planner::hardware::Gpu;
use shardwise::planner::model::ModelSpec;
use shardwise::service::accuracy::{Finders, MemoryRow, Report, compare, find_gpu, find_model, memory};

fn configs() -> BTreeMap<String, Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("data/truth/memory_configs.jsonl.gz")[..])
        .read_to_string(&mut text)
        .expect("test data is gzip");
    text.lines()
        .map(|line| {
            let mut row: Value = serde_json::from_str(line).expect("test data is JSON");
            (row["model"].as_str().expect("named").to_owned(), row["config"].take())
        })
        .collect()
}

fn rows() -> Vec<MemoryRow> {
    include_str!("data/truth/memory.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("test data is a row"))
        .collect()
}

fn table() -> Report {
    let configs = configs();
    let model = |row: &MemoryRow, stored: Option<&str>| -> Option<ModelSpec> {
        let Some(config) = configs.get(row.model_name()) else { return find_model(row, stored) };
        let own = config.get("quantization_config").is_some();
        let what_if = WhatIf { weights: stored.filter(|_| !own), ..WhatIf::default() };
        config_json::read_as(row.model_name(), config, None, what_if).ok().map(|read| read.spec)
    };
    let gpu = |name: &str| -> Option<Gpu> { find_gpu(catalogue(), name) };
    compare(&rows(), &Finders { model: &model, gpu: &gpu })
}

#[test]
fn cache_sizes_are_near_what_engines_printed() {
    let report = table();
    for r in &report.rows {
        println!(
            "{} {} {} {} {} {} | {:?} {:?} seen {:?} ours {:?} err {:?} | W {:?} | {} {}",
            r.id,
            r.engine,
            r.version,
            r.model,
            r.gpu,
            if r.complete { "C" } else { "-" },
            r.starts,
            r.measure,
            r.observed,
            r.predicted,
            r.error.map(|e| (e * 1000.0).round() / 10.0),
            r.weights_gib,
            r.note,
            r.layout
        );
    }
    println!("{report}");
    let group = |name: &str| report.groups.iter().find(|g| g.name == name).expect("a group");
    let uniform = group("complete, uniform, vllm V1");
    assert!(uniform.median < 0.03, "{uniform:?}");
    assert!(report.failures.1 * 2 >= report.failures.0, "{:?}", report.failures);
}

#[test]
fn the_catalogue_alone_predicts_most_records() {
    let report = memory(include_str!("data/truth/memory.jsonl")).expect("rows");
    let predicted = report.rows.len() - report.unknown;
    assert!(predicted * 2 > report.rows.len(), "{predicted} of {}", report.rows.len());
}

#[test]
fn a_line_that_is_no_row_is_named() {
    let error = memory("# remark\n{\"engine\": \"vllm\"}\n{\"engine\": 5}\n").expect_err("line 3");
    assert_eq!(error.line, 3);
}
