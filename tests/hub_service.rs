//! Models that only the hub knows: fetched once, stored, and served from there while the hub is away.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;
#[path = "support/hub.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod hub;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api::{Api, limits, settings};
use hub::{LocalHub, Says};
use serde_json::{Value, json};
use shardwise::http;
use shardwise::hub::{Hub, HubSettings};
use shardwise::service::{App, HubAccess};
use shardwise::store::SqliteStore;

const PATH: &str = "/acme/tiny/resolve/main/config.json";

fn config(layers: u64) -> String {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    })
    .to_string()
}

async fn service(file: &std::path::Path, endpoint: &str, refresh_after: Duration) -> Api {
    let hub = Hub::new(HubSettings {
        endpoint: endpoint.to_owned(),
        attempt_timeout: Duration::from_secs(2),
        total_timeout: Duration::from_secs(3),
        first_pause: Duration::from_millis(5),
        ..HubSettings::public()
    })
    .expect("usable settings");
    let store = Arc::new(SqliteStore::at(file, 2, Duration::from_secs(2)));
    let (app, background) = App::with_hub(store, true, &limits(), Some(HubAccess::new(hub, refresh_after)));
    tokio::spawn(background.run());
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = http::router(Arc::clone(&app), &settings().server, Arc::clone(&stopping));
    let api = Api::of(routes, app, stopping);
    api.ready().await;
    api
}

fn question(cluster: &str) -> Value {
    json!({"model": "acme/tiny", "cluster": cluster, "limit": 1})
}

const LONG: Duration = Duration::from_hours(24);

#[tokio::test]
async fn many_callers_of_a_cold_model_make_one_request_and_it_is_stored() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("s.sqlite");
    let local =
        LocalHub::start(&[(PATH, vec![Says::file(&config(32)).after(Duration::from_millis(100))])]).await;
    let api = Arc::new(service(&file, &local.endpoint(), LONG).await);
    let callers: Vec<_> = (1..=200)
        .map(|gpus| {
            let api = Arc::clone(&api);
            let ask = question(&format!("{} H100", gpus % 8 + 1));
            tokio::spawn(async move { api.call("POST", "/v1/plans", Some(&ask)).await })
        })
        .collect();
    for caller in callers {
        let reply = caller.await.expect("no panic");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["model"]["layers"], 32);
    }
    assert_eq!(local.requests(), 1);
    // another process, and a hub that is gone
    let again = service(&file, "http://127.0.0.1:1", LONG).await;
    let reply = again.call("POST", "/v1/plans", Some(&question("8 H100"))).await;
    assert_eq!(reply.json()["model"]["source"], "stored", "{}", reply.text());
}

#[tokio::test]
async fn an_old_model_is_compared_with_the_hub_and_marked_while_it_is_away() {
    let folder = tempfile::tempdir().expect("folder");
    let newer = Says::file(&config(16)).with("etag", "\"e2\"");
    let local = LocalHub::start(&[(
        PATH,
        vec![Says::file(&config(32)), Says::file(&config(32)), newer, Says::status(503)],
    )])
    .await;
    let api = service(&folder.path().join("s.sqlite"), &local.endpoint(), Duration::ZERO).await;
    let mut gpus = 0;
    let mut ask = async || {
        gpus += 1;
        api.call("POST", "/v1/plans", Some(&question(&format!("{gpus} H100")))).await
    };
    assert_eq!(ask().await.json()["model"]["layers"], 32);
    assert_eq!(ask().await.json()["model"]["layers"], 32);
    assert_eq!(local.header(1, "if-none-match").as_deref(), Some("\"e1\""));
    assert_eq!(ask().await.json()["model"]["layers"], 16, "the commit moved");
    let stale = ask().await;
    assert_eq!(stale.json()["model"]["layers"], 16);
    assert_eq!(stale.header("shardwise-notice"), "hub_model_may_be_old");
}

#[tokio::test]
async fn each_refusal_of_the_hub_has_its_own_problem() {
    for (says, status, code) in [
        (Says::status(401).with("x-error-code", "GatedRepo"), 403, "model_gated"),
        (Says::status(404).with("x-error-code", "RepoNotFound"), 422, "invalid_request"),
        (Says::status(404).with("x-error-code", "EntryNotFound"), 404, "model_not_found"),
        (Says::status(500), 502, "hub_unavailable"),
        (Says::file("<html>"), 502, "hub_unavailable"),
        (Says::status(302).with("location", "http://169.254.169.254/"), 502, "hub_unavailable"),
        (Says::file("{}").after(Duration::from_mins(1)), 504, "hub_timed_out"),
        (Says::file(r#"{"architectures": ["Unheard"]}"#), 422, "invalid_request"),
    ] {
        let folder = tempfile::tempdir().expect("folder");
        let local = LocalHub::start(&[(PATH, vec![says])]).await;
        let api = service(&folder.path().join("s.sqlite"), &local.endpoint(), LONG).await;
        let reply = api.call("POST", "/v1/plans", Some(&question("8 H100"))).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["code"].as_str()),
            (status, Some(code)),
            "{}",
            reply.text()
        );
    }
}

#[tokio::test]
async fn no_input_reaches_another_address() {
    let folder = tempfile::tempdir().expect("folder");
    let local = LocalHub::start(&[]).await;
    let api = service(&folder.path().join("s.sqlite"), &local.endpoint(), LONG).await;
    for id in
        ["../../etc/passwd", "http://169.254.169.254/x", "a@b/c", "a/b/../c", "a%2fb/c", "[::1]/x", "x/y?z"]
    {
        let reply = api.call("POST", "/v1/plans", Some(&json!({"model": id, "cluster": "8 H100"}))).await;
        assert_eq!(reply.status, 422, "{id}: {}", reply.text());
    }
    let revision = json!({"model": {"id": "a/b", "revision": "../../x"}, "cluster": "8 H100"});
    assert_eq!(api.call("POST", "/v1/plans", Some(&revision)).await.status, 422);
    assert_eq!(local.requests(), 0);
}

#[tokio::test]
async fn a_refresh_sends_the_tag_and_says_what_came_of_it() {
    let folder = tempfile::tempdir().expect("folder");
    let newer = Says::file(&config(16)).with("etag", "\"e2\"");
    let local = LocalHub::start(&[(
        PATH,
        vec![Says::file(&config(32)), Says::file(&config(32)), newer, Says::status(503)],
    )])
    .await;
    let api = service(&folder.path().join("s.sqlite"), &local.endpoint(), LONG).await;
    let refresh = async || api.call("POST", "/v1/models/acme/tiny/refresh", None).await;
    let first = refresh().await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(first.json()["outcome"], "fetched");
    assert_eq!(first.json()["model"]["hub"]["etag"], "\"e1\"");
    let again = refresh().await.json();
    assert_eq!(
        (again["outcome"].as_str(), again["model"]["facts"]["layers"].as_u64()),
        (Some("unchanged"), Some(32))
    );
    assert_eq!(local.header(1, "if-none-match").as_deref(), Some("\"e1\""));
    let moved = refresh().await.json();
    assert_eq!(
        (moved["outcome"].as_str(), moved["model"]["facts"]["layers"].as_u64()),
        (Some("changed"), Some(16))
    );
    assert_eq!(moved["model"]["hub"]["etag"], "\"e2\"");
    // the hub is away: what is stored stays
    let away = refresh().await;
    assert_eq!((away.status.as_u16(), away.json()["code"].as_str()), (502, Some("hub_unavailable")));
    assert_eq!(api.get("/v1/models/acme/tiny").await.json()["facts"]["layers"], 16);
    // one that was put here has no other source
    let own: Value = serde_json::from_str(&config(8)).expect("JSON");
    assert_eq!(api.call("PUT", "/v1/models/acme/own", Some(&own)).await.status, 201);
    assert_eq!(api.call("POST", "/v1/models/acme/own/refresh", None).await.status, 412);
}
