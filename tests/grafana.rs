//! The metrics that are recorded, listed and shown on boards are the same ones.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use api::Api;
use regex::Regex;
use serde_json::{Value, json};
use shardwise::telemetry::{Kind, METRICS};

fn names() -> BTreeSet<String> {
    METRICS.iter().map(|(_, name, _)| (*name).to_owned()).collect()
}

fn recorded_in(folder: &Path, found: &mut BTreeSet<String>) {
    let call = Regex::new(
        r#"(?:counter|gauge|histogram)!\(\s*"(shardwise_[a-z_]+)"|series\(\s*&mut out,\s*"(shardwise_[a-z_]+)""#,
    )
    .expect("a pattern");
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            recorded_in(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.extend(
                call.captures_iter(&text).filter_map(|c| Some(c.get(1).or(c.get(2))?.as_str().to_owned())),
            );
        }
    }
}

#[test]
fn every_recorded_metric_is_listed_and_every_listed_one_recorded() {
    let mut recorded = BTreeSet::new();
    recorded_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut recorded);
    assert_eq!(recorded, names());
}

#[test]
fn the_board_shows_metrics_that_exist() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/grafana/shardwise.json");
    let board: Value = serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON");
    assert!(board["schemaVersion"].as_u64().expect("a number") >= 36);
    for key in ["title", "uid", "time", "templating", "annotations"] {
        assert!(!board[key].is_null(), "{key}");
    }
    let histograms: Vec<&str> =
        METRICS.iter().filter(|(kind, ..)| *kind == Kind::Histogram).map(|(_, name, _)| *name).collect();
    let name = Regex::new("shardwise_[a-z_]+").expect("a pattern");
    let (mut ids, mut shown) = (BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "an id twice");
        let at = &panel["gridPos"];
        let end = at["x"].as_u64().expect("x") + at["w"].as_u64().expect("w");
        assert!(end <= 24 && at["h"].as_u64().expect("h") > 0, "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            assert_eq!(expression.matches('(').count(), expression.matches(')').count(), "{expression}");
            for found in name.find_iter(expression) {
                let part =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| found.as_str().strip_suffix(end));
                let whole = part.filter(|whole| histograms.contains(whole)).unwrap_or(found.as_str());
                assert!(names().contains(whole), "{whole} is no metric");
                shown.insert(whole.to_owned());
            }
        }
    }
    assert_eq!(shown, names(), "every metric has a place on the board");
}

/// Residuals are summed beside the requests: wait for what they become.
async fn residuals(api: &Api, expected: impl Fn(&[String]) -> bool) -> Vec<String> {
    for _ in 0..100 {
        let text = api.app.predictions().text();
        let lines = text.lines().filter(|line| line.starts_with("shardwise_prediction_residual_ratio{"));
        let found: Vec<String> = lines.map(str::to_owned).collect();
        if expected(&found) {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("in vain: {}", api.app.predictions().text())
}

#[tokio::test]
async fn residuals_follow_the_observations_that_are_kept() {
    let api = Api::start().await;
    api.ready().await;
    let mut ids = Vec::new();
    for (version, tokens) in [("0.11.0", "420,896"), ("0.11.0", "400,000"), ("0.20.0", "430,000")] {
        let log = format!(
            "Initializing a V1 LLM engine (v{version}) with config: model='meta-llama/Llama-3.1-8B-Instruct', \
             max_seq_len=32000, tensor_parallel_size=1, kv_cache_dtype=auto\nGPU KV cache size: {tokens} tokens\n"
        );
        let kept =
            api.call("POST", "/v1/observations", Some(&json!({"log": log, "cluster": "1 H100"}))).await;
        ids.push(kept.json()["id"].as_str().expect("an id").to_owned());
    }
    let accuracy = api.get("/v1/accuracy?version=0.11.0").await.json();
    let figures = accuracy["all"]["figures"].as_array().expect("figures");
    let median = &figures.iter().find(|f| f["name"] == "kv_tokens").expect("KV tokens")["median_ratio"];
    let found = residuals(&api, |found| found.len() == 2 && found[0].ends_with(&format!(" {median}"))).await;
    let expected = "shardwise_prediction_residual_ratio{engine=\"vllm\",version=\"0.11.0\"} ";
    assert!(found[0].starts_with(expected), "{found:?}");
    api.call("DELETE", &format!("/v1/observations/{}", ids[2]), None).await;
    residuals(&api, |found| found.len() == 1).await;
}

#[tokio::test]
async fn plans_on_saved_clusters_are_predictions() {
    let api = Api::start().await;
    let series = |name: &str| -> Vec<String> {
        let text = api.app.predictions().text();
        text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).map(str::to_owned).collect()
    };
    api.call("PUT", "/v1/clusters/prod", Some(&json!({"cluster": "16 H100"}))).await;
    let model = "meta-llama/Llama-3.1-70B-Instruct";
    let ask = async |model: Value, cluster: &str, tp: u64| {
        let body =
            json!({"model": model, "cluster": cluster, "search": {"tp": [tp], "dcp": [1]}, "limit": 1});
        api.call("POST", "/v1/plans", Some(&body)).await.json()
    };
    ask(json!(model), "16 H100", 8).await;
    ask(json!({"id": model, "weights": "fp8"}), "saved:prod", 8).await;
    assert!(series("shardwise_predicted_kv_tokens").is_empty(), "neither is a deployment");
    for (tp, factor) in [(8, 1), (16, 2)] {
        let plan = ask(json!(model), "saved:prod", tp).await;
        let tokens = series("shardwise_predicted_kv_tokens");
        assert_eq!(tokens.len(), 1, "the last plan stands for the deployment");
        assert!(tokens[0].starts_with(&format!(
            "shardwise_predicted_kv_tokens{{model=\"{model}\",cluster=\"prod\",layout=\"TP={tp}"
        )));
        assert!(
            tokens[0].ends_with(&format!(
                "engine=\"vllm\"}} {}",
                plan["layouts"][0]["capacity"]["kv_tokens_total"]
            ))
        );
        assert!(series("shardwise_replication_factor")[0].ends_with(&format!(" {factor}")));
    }
    api.call("DELETE", "/v1/clusters/prod", None).await;
    assert!(series("shardwise_predicted_kv_tokens").is_empty());
}
