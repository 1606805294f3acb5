//! Saved clusters over HTTP: planned on by name, replaced, away.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api::{Api, limits, settings};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use shardwise::http;
use shardwise::service::App;
use shardwise::store::SqliteStore;

const NAME: &str = "/v1/clusters/prod-east";

fn question(cluster: &Value) -> Value {
    json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": cluster, "limit": 1})
}

#[tokio::test]
async fn a_replaced_cluster_is_planned_on_at_once() {
    let api = Api::start().await;
    let (by_object, by_text) =
        (question(&json!({"saved": "prod-east"})), question(&json!("saved:prod-east")));
    let unknown = api.call("POST", "/v1/plans", Some(&by_object)).await;
    assert_eq!(unknown.status, 422);
    assert_eq!(unknown.json()["errors"][0]["code"], "unknown_cluster");
    assert_eq!(unknown.json()["errors"][0]["pointer"], "#/cluster");
    assert_eq!(api.get(NAME).await.status, 404);
    for (text, gpus) in [("4 H100", 4), ("2x8 H100", 16)] {
        let put = api.call("PUT", NAME, Some(&json!({ "cluster": text }))).await;
        assert!(put.status.is_success(), "{}", put.text());
        for body in [&by_object, &by_text] {
            let plan = api.call("POST", "/v1/plans", Some(body)).await.json();
            assert_eq!(plan["cluster"]["gpus"], gpus, "{plan}");
        }
        let sweep =
            json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "saved:prod-east", "over": "tp"});
        assert_ne!(api.call("POST", "/v1/sweeps", Some(&sweep)).await.status, 500);
    }
    let kept = api.get(NAME).await;
    assert_eq!(kept.json()["cluster"], "2x8 H100");
    assert!(kept.header("etag").len() > 10);
    let faulty = api.call("PUT", NAME, Some(&json!({"cluster": "8x H1000"}))).await;
    assert_eq!((faulty.status.as_u16(), &faulty.json()["errors"][0]["pointer"]), (422, &json!("#/cluster")));
    let named = api.call("PUT", NAME, Some(&json!({"cluster": {"saved": "other"}}))).await;
    assert_eq!(named.status, 422, "a name of a name is no cluster");
    assert_eq!(api.call("PUT", "/v1/clusters/-x", Some(&json!({"cluster": "8 H100"}))).await.status, 422);
    assert_eq!(api.call("DELETE", NAME, None).await.status, 204);
    assert_eq!(api.call("POST", "/v1/plans", Some(&by_text)).await.status, 422);
}

#[tokio::test]
async fn without_its_database_only_saved_clusters_are_away() {
    let folder = tempfile::tempdir().expect("folder");
    let store = SqliteStore::at(&folder.path().join("s.sqlite"), 1, Duration::from_secs(1));
    // its background work does not run, so the database is never found
    let (app, _background) = App::new(Arc::new(store), true, &limits());
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = http::router(Arc::clone(&app), &settings().server, Arc::clone(&stopping));
    let api = Api::of(routes, app, stopping);
    assert_eq!(api.call("PUT", NAME, Some(&json!({"cluster": "8 H100"}))).await.status, 503);
    assert_eq!(api.get(NAME).await.status, 503);
    assert_eq!(api.get("/v1/clusters").await.status, 503);
    assert_eq!(api.call("POST", "/v1/plans", Some(&question(&json!("saved:prod-east")))).await.status, 503);
    assert_eq!(api.call("POST", "/v1/plans", Some(&question(&json!("8 H100")))).await.status, 200);
    assert_eq!(api.call("POST", "/v1/plans", Some(&question(&json!("prod-east")))).await.status, 422);
    let batch =
        json!({"models": ["meta-llama/Llama-3.1-8B-Instruct"], "clusters": ["saved:prod-east", "8 H100"]});
    let items = api.call("POST", "/v1/batches", Some(&batch)).await.json()["items"].clone();
    assert_eq!((&items[0]["status"], &items[1]["status"]), (&json!(503), &json!(200)));
}

/// Each question that takes a cluster, with `cluster` in it.
fn every_question(cluster: &Value) -> Vec<(&'static str, Value)> {
    let model = "meta-llama/Llama-3.1-8B-Instruct";
    vec![
        ("/v1/plans", json!({"model": model, "cluster": cluster})),
        ("/v1/fits", json!({"cluster": cluster, "limit": 2})),
        ("/v1/sweeps", json!({"model": model, "cluster": cluster, "over": "tp"})),
        ("/v1/sizings", json!({"model": model, "cluster": cluster, "load": {"sequences": 10}})),
        ("/v1/checks", json!({"command": format!("vllm serve {model}"), "cluster": cluster})),
        ("/v1/kv/sequences", json!({"model": model, "cluster": cluster})),
        ("/v1/clusters:parse", json!({"cluster": cluster})),
        ("/v1/batches", json!({"models": [model], "clusters": [cluster]})),
    ]
}

#[tokio::test]
async fn a_saved_name_works_wherever_a_cluster_does() {
    let api = Api::start().await;
    let ways = [json!("prod-east"), json!("saved:prod-east"), json!({"saved": "prod-east"})];
    for way in &ways {
        for (path, body) in every_question(way) {
            let unknown = api.call("POST", path, Some(&body)).await;
            if path == "/v1/batches" {
                let item = &unknown.json()["items"][0];
                assert_eq!(
                    (&item["status"], &item["problem"]["errors"][0]["pointer"]),
                    (&json!(422), &json!("#/cluster"))
                );
            } else {
                assert_eq!(unknown.status, 422, "{path} {way}: {}", unknown.text());
            }
        }
    }
    let put = api.call("PUT", NAME, Some(&json!({"cluster": "2x8 H100"}))).await;
    assert_eq!(put.status, 201);
    let written_out = every_question(&json!("2x8 H100"));
    for way in &ways {
        for ((path, body), (_, plain)) in every_question(way).into_iter().zip(&written_out) {
            let (mut named, mut plain) = (
                api.call("POST", path, Some(&body)).await.json(),
                api.call("POST", path, Some(plain)).await.json(),
            );
            if path == "/v1/batches" {
                assert_eq!((&named["items"][0]["status"], &named["items"][0]["cluster"]), (&json!(200), way));
                for answer in [&mut named, &mut plain] {
                    answer["items"][0]["cluster"] = Value::Null;
                    answer["by_cluster"][0]["cluster"] = Value::Null;
                }
            }
            assert_eq!(named, plain, "{path} {way}");
        }
    }
    let by_link = api.get("/v1/fits?cluster=prod-east&limit=1").await;
    assert_eq!(by_link.json()["cluster"]["gpus"], 16, "{}", by_link.text());
}

#[tokio::test]
async fn what_reads_as_a_cluster_is_never_a_name() {
    let api = Api::start().await;
    let put = api.call("PUT", "/v1/clusters/8xH100", Some(&json!({"cluster": "4 A100"}))).await;
    assert_eq!(put.status, 201);
    for (cluster, gpus) in [("8xH100", 8), ("saved:8xH100", 4)] {
        let plan = api.call("POST", "/v1/plans", Some(&question(&json!(cluster)))).await.json();
        assert_eq!(plan["cluster"]["gpus"], gpus, "{cluster}");
    }
}

#[tokio::test]
async fn a_matrix_has_its_totals_and_narrower_weights() {
    let api = Api::start().await;
    for (name, cluster) in [("one-node", "8 H100"), ("workstation", "1 RTX 4090")] {
        assert_eq!(
            api.call("PUT", &format!("/v1/clusters/{name}"), Some(&json!({"cluster": cluster}))).await.status,
            201
        );
    }
    let matrix = json!({
        "models": ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-405B-Instruct"],
        "clusters": ["one-node", "workstation", "no-such-one"], "engine": {"max_model_len": 8192}
    });
    let batch = api.call("POST", "/v1/batches", Some(&matrix)).await.json();
    let item = |i: usize| &batch["items"][i];
    assert_eq!(batch["items"].as_array().map(Vec::len), Some(6));
    let best = &item(0)["plan"]["layouts"][0];
    let per_gpu = item(0)["plan"]["sequences_per_gpu"].as_f64().expect("a figure");
    assert!((per_gpu * 8.0 - best["capacity"]["sequences_total"].as_f64().expect("a count")).abs() < 1e-6);
    // 405B: 812 GB of bf16 weights on 640 GB; half of that in fp8
    let big = &item(3)["plan"];
    assert_eq!((&big["feasible"], &big["sequences_per_gpu"]), (&json!(false), &Value::Null));
    assert!(big["why_not"]["short_by_bytes"].as_u64() > Some(0), "{big}");
    assert_eq!(big["fits_only_as"]["weights"], "fp8");
    assert!(big["fits_only_as"]["sequences_per_gpu"].as_f64() > Some(0.0));
    assert_eq!(item(4)["plan"]["fits_only_as"], Value::Null, "no width brings 405B onto one card");
    assert_eq!(item(5)["status"], 422);
    let totals: Vec<_> = batch["by_cluster"]
        .as_array()
        .expect("totals")
        .iter()
        .map(|t| {
            (
                t["cluster"].clone(),
                t["gpus"].clone(),
                t["answered"].clone(),
                t["feasible"].clone(),
                t["feasible_narrower"].clone(),
            )
        })
        .collect();
    let row = |name: &str, gpus: Value, n: u64, fit: u64, narrow: u64| {
        (json!(name), gpus, json!(n), json!(fit), json!(narrow))
    };
    assert_eq!(
        totals,
        [
            row("one-node", json!(8), 2, 1, 1),
            row("workstation", json!(1), 2, 1, 0),
            row("no-such-one", Value::Null, 0, 0, 0),
        ]
    );

    let request = Request::post("/v1/batches")
        .header("content-type", "application/json")
        .header("accept", "text/csv")
        .body(Body::from(matrix.to_string()))
        .expect("a request");
    let csv = api.send(request).await;
    assert!(csv.header("content-type").starts_with("text/csv"));
    let text = csv.text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 7);
    assert!(rows[0].starts_with(&["model", "cluster", "status", "fits"]));
    assert_eq!(&rows[4][..4], ["meta-llama/Llama-3.1-405B-Instruct", "one-node", "200", "false"]);
    assert!(rows[4].contains(&"fp8"));
}
