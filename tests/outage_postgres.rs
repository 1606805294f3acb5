//! Postgres dies and comes back, again and again, under a loop of requests: no plan fails, nothing acknowledged
//! is lost, and the service says how it is.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;
#[path = "support/postgres.rs"]
mod postgres;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{Api, limits, settings};
use serde_json::{Value, json};
use shardwise::service::Limits;
use shardwise::store::{PostgresStore, Store};

/// Times that the server is killed.
const KILLS: usize = 3;

fn config(layers: u64) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    })
}

fn store(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::at(url, 4, Duration::from_secs(1)).expect("an address"))
}

/// What the loops saw.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    plans: AtomicU64,
    degraded: AtomicU64,
    refused_writes: AtomicU64,
}

/// Plan by config, by the catalogue and by a stored model; fetch each plan again.
async fn plan_loop(api: Arc<Api>, seen: Arc<Seen>, lane: u64) {
    let mut n = lane;
    while !seen.stop.load(Ordering::Acquire) {
        n += 10;
        let model = match n % 3 {
            0 => json!({"config": config(32), "name": format!("acme/m{n}")}),
            1 => json!("acme/stored"),
            _ => json!("meta-llama/Llama-3.1-8B-Instruct"),
        };
        let question =
            json!({"model": model, "cluster": "8 H100", "workload": {"concurrency": n + 1}, "limit": 1});
        let reply = api.call("POST", "/v1/plans", Some(&question)).await;
        assert_eq!(reply.status, 200, "a plan failed: {}", reply.text());
        if n % 3 == 1 {
            assert_eq!(reply.json()["model"]["source"], "stored", "the stored model was forgotten");
        }
        if !reply.header("shardwise-notice").is_empty() {
            seen.degraded.fetch_add(1, Ordering::Relaxed);
        }
        let kept = api.get(reply.header("content-location")).await;
        assert_eq!(kept.status, 200, "a plan that was just made: {}", kept.text());
        assert_eq!(kept.body, reply.body);
        seen.plans.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Store one model after another; the ids that were acknowledged.
async fn put_loop(api: Arc<Api>, seen: Arc<Seen>, lane: u64) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    let mut n = 0;
    while !seen.stop.load(Ordering::Acquire) {
        n += 1;
        let (path, layers) = (format!("/v1/models/lane{lane}/m{n}"), 1 + n % 60);
        let reply = api.call("PUT", &path, Some(&config(layers))).await;
        match reply.status.as_u16() {
            200 | 201 => acknowledged.push((path, layers)),
            503 => {
                assert_eq!(reply.json()["code"], "database_unavailable");
                assert_eq!(reply.header("retry-after"), "1");
                seen.refused_writes.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("PUT answered {other}: {}", reply.text()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_killed_and_restarted_under_load() {
    let Some(server) = postgres::TestPostgres::start() else { return };
    // a stored model is hardly ever fresh, so that the database is asked again and again
    let limits = Limits { models_fresh: Duration::from_millis(20), ..limits() };
    let api = Arc::new(Api::over(store(&server.url()), &settings(), &limits).await);
    assert_eq!(api.call("PUT", "/v1/models/acme/stored", Some(&config(16))).await.status, 201);
    let known =
        api.call("POST", "/v1/plans", Some(&json!({"model": "acme/stored", "cluster": "8 H100"}))).await;
    assert_eq!(known.status, 200);

    let seen = Arc::new(Seen::default());
    let planning: Vec<_> =
        (0..3).map(|lane| tokio::spawn(plan_loop(Arc::clone(&api), Arc::clone(&seen), lane))).collect();
    let writing: Vec<_> =
        (0..2).map(|lane| tokio::spawn(put_loop(Arc::clone(&api), Arc::clone(&seen), lane))).collect();
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(|| server.kill());
        tokio::time::sleep(Duration::from_millis(700)).await;
        let probe = api.get("/readyz?verbose").await;
        assert_eq!(probe.status, 503, "{}", probe.text());
        assert_eq!(probe.json()["checks"][0]["status"], "failing");
        assert_eq!(api.get("/livez").await.status, 200);
        tokio::task::block_in_place(|| server.up());
        api.ready().await;
        assert_eq!(api.get("/readyz").await.status, 200);
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    seen.stop.store(true, Ordering::Release);
    for lane in planning {
        lane.await.expect("no plan fails");
    }
    let mut acknowledged = Vec::new();
    for lane in writing {
        acknowledged.extend(lane.await.expect("no write is answered wrongly"));
    }

    // the test saw what it is about
    assert!(seen.plans.load(Ordering::Relaxed) > 50, "too few plans");
    assert!(seen.degraded.load(Ordering::Relaxed) > 0, "no plan was made without the database");
    assert!(seen.refused_writes.load(Ordering::Relaxed) > 0, "no write met the outage");
    assert!(acknowledged.len() > 20, "too few writes");
    // another service with an empty memory finds all of it in the database
    let fresh = Api::over(store(&server.url()), &settings(), &limits).await;
    for (path, layers) in &acknowledged {
        let reply = fresh.get(path).await;
        assert_eq!(reply.status, 200, "{path} was acknowledged and is gone");
        assert_eq!(reply.json()["facts"]["layers"], *layers, "{path}");
    }
}

#[tokio::test]
async fn a_database_that_is_down_at_start_is_not_needed_to_plan() {
    let Some(server) = postgres::TestPostgres::start() else { return };
    server.kill();
    let (app, background) = shardwise::service::App::new(store(&server.url()), true, &limits());
    tokio::spawn(background.run());
    let stopping = Arc::new(AtomicBool::new(false));
    let routes = shardwise::http::router(Arc::clone(&app), &settings().server, Arc::clone(&stopping));
    let api = Api::of(routes, app, stopping);
    let question = json!({"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "8 H100"});
    let reply = api.call("POST", "/v1/plans", Some(&question)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("shardwise-notice"), "stored_models_not_asked, plan_not_stored");
    assert_eq!(api.get("/readyz").await.status, 503);
    assert_eq!(api.call("PUT", "/v1/models/acme/m", Some(&config(4))).await.status, 503);
    assert_eq!(api.get("/v1/models/acme/unknown").await.status, 503, "only the database could know");
    assert_eq!(api.get("/v1/models/meta-llama/Llama-3.1-8B-Instruct").await.json()["may_be_old"], true);
    assert_eq!(api.get("/v1/models").await.json()["catalogue_only"], true);
    server.up();
    api.ready().await;
    assert_eq!(api.call("PUT", "/v1/models/acme/m", Some(&config(4))).await.status, 201);
    let again = api.call("POST", "/v1/plans", Some(&question)).await;
    assert_eq!((again.header("shardwise-notice"), &again.body), ("", &reply.body));
}
