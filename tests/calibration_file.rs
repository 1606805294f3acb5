//! A caller's own calibration: chosen at start, by flag or environment; it changes the estimates and is named by them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn shardwise(args: &[&str], calibration: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwise"));
    command.args(args).env_remove("SHARDWISE_PLANNER_CALIBRATION");
    if let Some(file) = calibration {
        command.env("SHARDWISE_PLANNER_CALIBRATION", file);
    }
    command.output().expect("runs")
}

const PLAN: &[&str] =
    &["plan", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--cluster", "1 H100", "--format", "json"];

fn plan(args: &[&str], calibration: Option<&Path>) -> Value {
    let out = shardwise(&[PLAN, args].concat(), calibration);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The calibration of the program with each constant half as large again, under a name of its own.
fn own(folder: &Path) -> PathBuf {
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/calibration/latency.json");
    let mut file: Value =
        serde_json::from_str(&std::fs::read_to_string(embedded).expect("reads")).expect("JSON");
    file["version"] = "our fleet, week 48".into();
    file["source"] = "our own runs".into();
    for constant in file["constants"].as_array_mut().expect("constants") {
        constant["value"] = (constant["value"].as_f64().expect("a number") * 1.5).into();
    }
    let path = folder.join("own.json");
    std::fs::write(&path, file.to_string()).expect("writes");
    path
}

#[test]
fn a_file_changes_the_estimates_and_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let own = own(folder.path());
    let before = plan(&[], None);
    let after = plan(&["--calibration", own.to_str().expect("a path")], None);
    let tpot = |plan: &Value| plan["layouts"][0]["latency"]["tpot_ms"].clone();
    assert_ne!(tpot(&before)["value"], tpot(&after)["value"]);
    assert_eq!(tpot(&after)["basis"], "calibrated");
    assert_eq!(after["versions"]["calibration"], "our fleet, week 48");
    assert_ne!(before["plan_id"], after["plan_id"]);
    let assumed = after["assumptions"].as_array().expect("assumptions");
    let named = assumed.iter().find(|a| a["name"] == "latency_calibration").expect("is told");
    assert_eq!(
        (named["value"].as_str(), named["source"].as_str()),
        (Some("our fleet, week 48"), Some("our own runs"))
    );
    // what the GPU holds does not rest on it
    assert_eq!(before["layouts"][0]["capacity"], after["layouts"][0]["capacity"]);
    assert_eq!(tpot(&plan(&[], Some(&own))), tpot(&after), "by the environment too");
}

#[test]
fn a_file_that_cannot_be_used_ends_the_start_with_its_name() {
    let folder = tempfile::tempdir().expect("folder");
    let bad = folder.path().join("bad.json");
    for (text, told) in [
        ("not JSON", "not a calibration file"),
        (
            "{\"version\": \"x\", \"source\": \"\", \"constants\": [{\"name\": \"no_such\", \"value\": 1}], \"collectives\": [], \"ranges\": {\"tpot\": {\"seen\": [], \"unseen\": []}, \"ttft\": {\"seen\": [], \"unseen\": []}, \"measured\": []}}",
            "no_such",
        ),
    ] {
        std::fs::write(&bad, text).expect("writes");
        let path = bad.to_str().expect("a path");
        let database = format!("sqlite:{}", folder.path().join("s.sqlite").display());
        let serve = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "",
            "--database-url",
            &database,
            "--calibration",
            path,
        ];
        for args in [&[PLAN, &["--calibration", path]].concat()[..], &serve] {
            let out = shardwise(args, None);
            let error = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(2), "{error}");
            assert!(error.contains("bad.json") && error.contains(told), "{error}");
        }
    }
    let none = shardwise(&[PLAN, &["--calibration", "/nowhere/at/all.json"]].concat(), None);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/nowhere/at/all.json"));
}
