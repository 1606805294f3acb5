//! What must hold for any bytes whatever. Each target of the fuzzer is one function here,
//! and `tests/fuzz_corpus.rs` runs the same functions over the corpus.

use serde_json::{Value, json};
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::request::PlanRequest;
use shardwise::ingest::{FieldError, Pointer, cluster, config_json, json as document};
use shardwise::service::plan_offline;

/// Every fault has a place, a code and a sentence.
fn complete(faults: &[FieldError]) {
    assert!(!faults.is_empty(), "refused without a reason");
    for fault in faults {
        assert!(fault.pointer.starts_with('#'), "{fault:?}");
        assert!(!fault.code.is_empty() && !fault.detail.is_empty(), "{fault:?}");
    }
}

/// A configuration is read or refused; what is read can be summed up.
pub fn config_json(data: &[u8]) {
    let Ok(read) = document::read(data) else { return };
    match config_json::read("fuzzed", &read.value, None) {
        Ok(model) => {
            let spec = model.spec;
            assert!(!spec.layers.is_empty(), "a model without layers");
            assert!(spec.layers.iter().all(|kind| *kind < spec.kinds.len()));
        }
        Err(error) => complete(&error.faults),
    }
}

/// A text of a cluster is read or refused; what is read has GPUs.
pub fn cluster_text(data: &[u8]) {
    cluster_value(&json!(String::from_utf8_lossy(data)));
}

/// The same for a topology matrix.
pub fn topology(data: &[u8]) {
    cluster_value(&json!({"topology": String::from_utf8_lossy(data), "gpu": "h100-sxm5-80gb"}));
}

fn cluster_value(value: &Value) {
    match cluster::from_json(value, &Pointer::root(), catalogue()) {
        Ok(cluster) => assert!(cluster.gpus() > 0, "a cluster without GPUs from {value}"),
        Err(faults) => complete(&faults),
    }
}

/// A request is refused with reasons or answered; the answer is JSON that holds together.
pub fn plan_request(data: &[u8]) {
    let Ok(read) = document::read(data) else { return };
    let request = match PlanRequest::read_document(&read) {
        Ok(request) => request,
        Err(faults) => return complete(&faults),
    };
    let Ok(answer) = plan_offline(&request) else { return };
    let plan = serde_json::to_value(&answer).expect("an answer is JSON");
    assert!(plan["feasible"] == false || plan["layouts"].as_array().is_some_and(|l| !l.is_empty()));
    for row in plan["layouts"].as_array().into_iter().flatten() {
        assert!(
            row["layout"]["gpus"].as_u64() <= plan["cluster"]["gpus"].as_u64(),
            "more GPUs than there are: {row}"
        );
        assert!(row["kv"]["replication_factor"].as_f64().is_some_and(|f| f > 0.0), "{row}");
    }
}
