//! Observations over HTTP: kept, listed, summed over, forgotten; and what happens without the database.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api::{Api, limits, settings};
use serde_json::{Value, json};
use shardwise::http;
use shardwise::service::App;
use shardwise::store::SqliteStore;

/// A start of Llama-3.1-8B on one H100 with this cache.
fn log(version: &str, tokens: &str) -> String {
    format!(
        "Initializing a V1 LLM engine (v{version}) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32000, \
         tensor_parallel_size=1, kv_cache_dtype=auto\nGPU KV cache size: {tokens} tokens\nApplication startup complete.\n"
    )
}

fn body(version: &str, tokens: &str) -> Value {
    json!({"log": log(version, tokens), "cluster": "1 H100"})
}

#[tokio::test]
async fn a_fleet_keeps_what_it_saw_and_sums_over_it() {
    let api = Api::start().await;
    let post = async |body: &Value| api.call("POST", "/v1/observations", Some(body)).await;
    let first = post(&body("0.11.0", "420,896")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let answer = first.json();
    let id = answer["id"].as_str().expect("an id").to_owned();
    assert_eq!(first.header("location"), format!("/v1/observations/{id}"));
    assert_eq!((&answer["stored"], &answer["not_stored"]), (&json!(true), &Value::Null));
    assert_eq!(answer["gpu"], "h100-sxm5-80gb");
    let predicted = answer["items"][0]["predicted"].as_f64().expect("a prediction");

    // the same start is the same observation, another one is not
    assert_eq!(post(&body("0.11.0", "420,896")).await.json()["id"], json!(id));
    for (version, tokens) in [("0.11.0", "400,000"), ("0.11.0", "440,000"), ("0.12.0", "410,000")] {
        assert_ne!(post(&body(version, tokens)).await.json()["id"], json!(id));
    }

    let rows = api.get("/v1/observations?page_size=3").await.json();
    assert_eq!(rows["items"].as_array().map(Vec::len), Some(3));
    let token = rows["next_page_token"].as_str().expect("another page");
    let rest = api.get(&format!("/v1/observations?page_token={token}&page_size=3")).await.json();
    assert_eq!((rest["items"].as_array().map(Vec::len), &rest["next_page_token"]), (Some(1), &Value::Null));
    let all = [&rows["items"], &rest["items"]].map(|page| page.as_array().expect("rows").clone()).concat();
    let row = all.iter().find(|row| row["id"] == json!(id)).expect("is listed");
    assert_eq!(row["kv_tokens_observed"], 420_896.0);
    assert_eq!(row["kv_tokens_predicted"], json!(predicted));
    assert_eq!(row["kv_tokens_ratio"], json!(predicted / 420_896.0));
    assert_eq!(
        (&row["engine"], &row["version"], &row["layout"]),
        (&json!("vllm"), &json!("0.11.0"), &json!("TP=1"))
    );

    // the sums are those of the rows
    let accuracy = api.get("/v1/accuracy").await.json();
    assert_eq!(
        (&accuracy["observations"], accuracy["groups"].as_array().map(Vec::len)),
        (&json!(4), Some(2))
    );
    let group = &accuracy["groups"][0];
    assert_eq!((&group["version"], &group["count"]), (&json!("0.11.0"), &json!(3)));
    let figure = &group["figures"][0];
    assert_eq!((&figure["name"], &figure["count"]), (&json!("kv_tokens"), &json!(3)));
    let errors: Vec<f64> =
        [420_896.0, 400_000.0, 440_000.0].iter().map(|seen| predicted / seen - 1.0).collect();
    let near = |field: &str, value: f64| {
        assert!((figure[field].as_f64().expect(field) - value).abs() < 1e-9, "{figure}");
    };
    near("bias", errors.iter().sum::<f64>() / 3.0);
    near("mean", errors.iter().map(|e| e.abs()).sum::<f64>() / 3.0);
    near("median_ratio", 1.0 + errors[0]);
    let narrow = api.get("/v1/accuracy?engine=vllm&version=0.12.0").await.json();
    assert_eq!(narrow["observations"], 1);
    assert_eq!(api.get("/v1/accuracy?gpu=h200").await.json()["groups"], json!([]));

    let kept = api.get(&format!("/v1/observations/{id}")).await.json();
    assert_eq!(kept["items"], answer["items"]);
    assert_eq!(api.call("DELETE", &format!("/v1/observations/{id}"), None).await.status, 204);
    for gone in [id.as_str(), "x", "..%2f..%2fetc"] {
        let reply = api.get(&format!("/v1/observations/{gone}")).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (404, &json!("observation_not_found")));
    }
    assert_eq!(api.get("/v1/observations?page_token=zz").await.status, 400);
    assert_eq!(api.get("/v1/accuracy?gpus=h200").await.status, 400);
}

#[tokio::test]
async fn nothing_is_kept_of_the_log_but_settings_and_figures() {
    let api = Api::start().await;
    let secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz";
    let log = format!(
        "Initializing a V1 LLM engine (v0.11.0) with config: model='s3://KEY:{secret}@bucket/llama?token={secret}', max_seq_len=131072, \
         tensor_parallel_size=2, hf_token='{secret}'\nGPU0\tGPU1\t{secret}\nGPU0\t X \tNV18\t{secret}\n\
         ValueError: To serve at least one request with {secret}, (20.00 GiB KV cache is needed, which is larger than the \
         available KV cache memory (1.00 GiB). Based on the available memory, the estimated maximum model length is 6553.\n"
    );
    let answer = api
        .call(
            "POST",
            "/v1/observations",
            Some(&json!({"log": log, "cluster": "2 H100", "model": "llama-3.1-70b"})),
        )
        .await
        .json();
    assert_eq!(answer["refusal"]["code"], "kv_cache_too_small");
    let id = answer["id"].as_str().expect("kept");
    let kept = api.get(&format!("/v1/observations/{id}")).await;
    assert_eq!(kept.json()["refusal"], json!({"code": "kv_cache_too_small", "message": null, "line": 4}));
    assert_eq!(kept.json()["model"], "s3://bucket/llama");
    let listed = api.get("/v1/observations").await;
    for text in [kept.text(), listed.text()] {
        assert!(!text.contains("hf_") && !text.contains("KEY"), "{text}");
    }
}

#[tokio::test]
async fn who_does_not_want_it_kept_says_so() {
    let api = Api::start().await;
    let mut body = body("0.11.0", "420,896");
    body["store"] = json!(false);
    let answer = api.call("POST", "/v1/observations", Some(&body)).await.json();
    assert_eq!((&answer["id"], &answer["stored"]), (&Value::Null, &json!(false)));
    body["store"] = json!("no");
    assert_eq!(api.call("POST", "/v1/observations", Some(&body)).await.status, 422);
    let answer = api.call("POST", "/v1/observations", Some(&json!({"log": "hello"}))).await.json();
    assert_eq!(answer["stored"], false, "nothing was recognised");
    assert_eq!(api.get("/v1/observations").await.json()["items"], json!([]));
}

#[tokio::test]
async fn without_its_database_a_log_is_still_compared() {
    let folder = tempfile::tempdir().expect("folder");
    let store = SqliteStore::at(&folder.path().join("s.sqlite"), 1, Duration::from_secs(1));
    // its background work does not run, so the database is never found
    let (app, _background) = App::new(Arc::new(store), true, &limits());
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = http::router(Arc::clone(&app), &settings().server, Arc::clone(&stopping));
    let api = Api::of(routes, app, stopping);
    let mut body = body("0.11.0", "420,896");
    let compared = api.call("POST", "/v1/observations", Some(&body)).await;
    assert_eq!(compared.status, 200, "{}", compared.text());
    assert_eq!((&compared.json()["stored"], &compared.json()["id"]), (&json!(false), &Value::Null));
    assert!(compared.json()["items"][0]["predicted"].is_number());
    body["store"] = json!(true);
    let insisted = api.call("POST", "/v1/observations", Some(&body)).await;
    assert_eq!((insisted.status.as_u16(), insisted.header("retry-after")), (503, "1"));
    let id = "0".repeat(32);
    for (method, path) in [
        ("GET", "/v1/observations".to_owned()),
        ("GET", "/v1/accuracy".to_owned()),
        ("GET", format!("/v1/observations/{id}")),
        ("DELETE", format!("/v1/observations/{id}")),
    ] {
        let reply = api.call(method, &path, None).await;
        assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, "1"), "{method} {path}");
    }
}
