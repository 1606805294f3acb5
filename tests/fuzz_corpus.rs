//! The fuzzer's corpus as ordinary tests, each file once.

#[path = "../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("a corpus").flatten().map(|e| e.path()).collect();
    files.sort();
    assert!(files.len() >= 3, "the corpus of {target} is empty");
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).expect("a corpus file"));
    }
}

#[test]
fn configurations() {
    replay("config_json", checks::config_json);
}

#[test]
fn cluster_texts() {
    replay("cluster_text", checks::cluster_text);
}

#[test]
fn topologies() {
    replay("topology", checks::topology);
}

#[test]
fn plan_requests() {
    replay("plan_request", checks::plan_request);
}
