//! Parameters, in all and those one token passes through, against exact counts (`tests/data/params`).

use std::io::Read;

use serde_json::Value;
use shardwise::catalogue::models;
use shardwise::ingest::config_json;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("test data is gzip");
    text.lines().map(|line| config_json::parse(line).expect("test data is JSON")).collect()
}

/// Compare one model; a sentence when it differs.
fn difference(id: &str, found: (u64, u64), totals: &[&Value], active: &Value) -> Option<String> {
    let (parameters, active_parameters) = found;
    if !totals.iter().any(|total| total.as_u64() == Some(parameters)) {
        return Some(format!("{id}: {parameters} parameters, counted {totals:?}"));
    }
    match active.as_u64() {
        Some(counted) if counted != active_parameters => {
            Some(format!("{id}: {active_parameters} active parameters, counted {counted}"))
        }
        _ => None,
    }
}

#[test]
fn catalogue_models_have_the_counted_parameters() {
    let (mut compared, mut active) = (0, 0);
    let mut faults = Vec::new();
    for row in lines(include_bytes!("data/params/param_counts.jsonl.gz")) {
        let id = row["model_id"].as_str().expect("an id");
        if row["status"] != "ok" || row["file"] == "partial.jsonl" {
            continue;
        }
        let Ok(model) = models::find(id) else { panic!("{id} is not in the catalogue") };
        // architectures refused by name are listed in tests/catalogue_models.rs
        let Ok(spec) = model.spec() else { continue };
        compared += 1;
        active += usize::from(row["active_text_params"].is_u64());
        let totals = [&row["total"], &row["total_with_router_bias_buffers"]];
        faults.extend(difference(
            id,
            (spec.parameters(), spec.active_parameters()),
            &totals,
            &row["active_text_params"],
        ));
    }
    println!("{compared} totals and {active} active counts compared");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(compared >= 150 && active >= 78, "{compared} totals, {active} active counts");
}

#[test]
fn other_configurations_have_the_counted_parameters() {
    let rows = lines(include_bytes!("data/params/configs.jsonl.gz"));
    assert!(rows.len() >= 60);
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let id = row["id"].as_str().expect("an id");
            match config_json::read(id, &row["config"], None) {
                Ok(read) => {
                    let found = (read.spec.parameters(), read.spec.active_parameters());
                    let totals = [&row["total"], &row["total_with_router_bias_buffers"]];
                    difference(id, found, &totals, &row["active"])
                }
                Err(error) => Some(format!("{id}: {error}")),
            }
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
