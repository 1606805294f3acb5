//! The hub client against a hub on this machine: every fault that a real one has, and no way out to any other address.

#[path = "support/hub.rs"]
mod hub;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hub::{LocalHub, Says, raw};
use shardwise::config::Secret;
use shardwise::hub::{Answer, Fetched, Hub, HubError, HubSettings};

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}"#;
const PATH: &str = "/org/model/resolve/main/config.json";

fn settings(endpoint: &str) -> HubSettings {
    HubSettings {
        endpoint: endpoint.to_owned(),
        attempt_timeout: Duration::from_millis(400),
        total_timeout: Duration::from_secs(3),
        first_pause: Duration::from_millis(5),
        config_limit_bytes: 10_000,
        ..HubSettings::public()
    }
}

fn client(local: &LocalHub) -> Hub {
    Hub::new(settings(&local.endpoint())).expect("usable settings")
}

async fn ask(client: &Hub) -> Result<Answer, HubError> {
    client.config("org/model", "main", None).await
}

fn found(answer: Result<Answer, HubError>) -> Arc<Fetched> {
    match answer.expect("an answer") {
        Answer::Found(fetched) => fetched,
        Answer::NotModified => panic!("nothing was known before"),
    }
}

#[tokio::test]
async fn a_configuration_comes_with_tag_and_commit() {
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG)])]).await;
    let fetched = found(ask(&client(&local)).await);
    assert_eq!(fetched.config["num_hidden_layers"], 2);
    assert_eq!(fetched.etag.as_deref(), Some("\"e1\""));
    assert_eq!(fetched.commit.as_deref(), Some("c0ffee"));
    assert_eq!(fetched.id.to_string(), "org/model");
    assert_eq!(local.paths(), [PATH]);
    assert_eq!(local.header(0, "authorization"), None);
}

#[tokio::test]
async fn an_unchanged_tag_saves_the_body_and_a_moved_commit_brings_the_new_one() {
    let newer =
        Says::file(r#"{"num_hidden_layers": 3}"#).with("etag", "\"e2\"").with("x-repo-commit", "beef");
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG), newer])]).await;
    let client = client(&local);
    assert_eq!(client.config("org/model", "main", Some("\"e1\"")).await, Ok(Answer::NotModified));
    assert_eq!(local.header(0, "if-none-match").as_deref(), Some("\"e1\""));
    let fetched = found(client.config("org/model", "main", Some("\"e1\"")).await);
    assert_eq!((fetched.commit.as_deref(), fetched.etag.as_deref()), (Some("beef"), Some("\"e2\"")));
    assert_eq!(fetched.config["num_hidden_layers"], 3);
}

#[tokio::test]
async fn two_hundred_callers_of_one_cold_model_make_one_request() {
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG).after(Duration::from_millis(150))])]).await;
    let client = Arc::new(client(&local));
    let callers: Vec<_> = (0..200)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { ask(&client).await })
        })
        .collect();
    for caller in callers {
        found(caller.await.expect("no panic"));
    }
    assert_eq!(local.requests(), 1);
    found(ask(&client).await);
    assert_eq!(local.requests(), 2, "an answered request is not kept");
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_take_the_others_answer_along() {
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG).after(Duration::from_millis(100))])]).await;
    let client = Arc::new(client(&local));
    let first = tokio::spawn({
        let client = Arc::clone(&client);
        async move { ask(&client).await }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let second = tokio::spawn({
        let client = Arc::clone(&client);
        async move { ask(&client).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    first.abort();
    found(second.await.expect("no panic"));
}

#[tokio::test]
async fn a_full_hub_is_asked_again_when_it_says() {
    let full = Says::status(429).with("ratelimit", "\"resolvers\";r=0;t=1");
    let local = LocalHub::start(&[(PATH, vec![full, Says::file(CONFIG)])]).await;
    let start = Instant::now();
    found(ask(&client(&local)).await);
    assert!(start.elapsed() >= Duration::from_secs(1), "the hub said: in a second");
    assert_eq!(local.requests(), 2);
}

#[tokio::test]
async fn a_hub_that_is_full_for_long_is_left_alone_for_so_long() {
    let full = Says::status(429).with("retry-after", "120");
    let local = LocalHub::start(&[(PATH, vec![full])]).await;
    let now = Arc::new(Mutex::new(Instant::now()));
    let clock = Arc::clone(&now);
    let client =
        Hub::with_clock(settings(&local.endpoint()), Arc::new(move || *clock.lock().expect("no panic")))
            .expect("usable settings");
    let wait = Some(Duration::from_mins(2));
    assert_eq!(ask(&client).await, Err(HubError::RateLimited { retry_after: wait }));
    assert!(ask(&client).await.expect_err("held").retry_after() > Some(Duration::from_secs(100)));
    assert_eq!(local.requests(), 1, "nothing goes out while the hub wants a pause");
    *now.lock().expect("no panic") += Duration::from_secs(121);
    assert_eq!(ask(&client).await, Err(HubError::RateLimited { retry_after: wait }));
    assert_eq!(local.requests(), 2);
}

#[tokio::test]
async fn a_broken_hub_is_tried_again_and_then_left_alone() {
    let local =
        LocalHub::start(&[(PATH, vec![Says::status(503), Says::status(500), Says::file(CONFIG)])]).await;
    found(ask(&client(&local)).await);
    assert_eq!(local.requests(), 3);

    let local = LocalHub::start(&[(PATH, vec![Says::status(502)])]).await;
    let client = client(&local);
    for _ in 0..5 {
        assert!(matches!(ask(&client).await, Err(HubError::Unavailable { .. })));
    }
    assert_eq!(local.requests(), 5, "after five failures in a row no request goes out");
}

#[tokio::test]
async fn the_breaker_lets_one_request_through_after_its_rest() {
    let list = [vec![Says::status(502); 5], vec![Says::file(CONFIG)]].concat();
    let local = LocalHub::start(&[(PATH, list)]).await;
    let now = Arc::new(Mutex::new(Instant::now()));
    let clock = Arc::clone(&now);
    let client =
        Hub::with_clock(settings(&local.endpoint()), Arc::new(move || *clock.lock().expect("no panic")))
            .expect("usable settings");
    for _ in 0..4 {
        ask(&client).await.expect_err("broken");
    }
    assert_eq!(local.requests(), 5);
    *now.lock().expect("no panic") += Duration::from_secs(16);
    found(ask(&client).await);
    found(ask(&client).await);
}

#[tokio::test]
async fn a_slow_hub_is_not_waited_for() {
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG).after(Duration::from_mins(1))])]).await;
    let start = Instant::now();
    assert_eq!(ask(&client(&local)).await, Err(HubError::TimedOut));
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(local.requests(), 3);
}

#[tokio::test]
async fn nobody_at_home_is_an_outage() {
    let (endpoint, _) = raw(b"").await;
    let client = Hub::new(settings(&endpoint)).expect("usable settings");
    assert!(matches!(ask(&client).await, Err(HubError::Unavailable { .. })));
    let client = Hub::new(settings("http://127.0.0.1:1")).expect("usable settings");
    assert!(matches!(ask(&client).await, Err(HubError::Unavailable { .. })));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_tried_again() {
    let (endpoint, came) =
        raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5000\r\n\r\n{\"a\": 1").await;
    let client = Hub::new(settings(&endpoint)).expect("usable settings");
    assert_eq!(ask(&client).await, Err(HubError::Truncated));
    assert_eq!(came.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn too_large_an_answer_is_not_read() {
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(20_000));
    let local = LocalHub::start(&[(PATH, vec![Says::file(&large)])]).await;
    let too_large = Err(HubError::TooLarge { file: "config.json", limit: 10_000 });
    assert_eq!(ask(&client(&local)).await, too_large);
    // without a length the body is cut off while it comes
    let (endpoint, _) =
        raw(Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{large}").into_bytes().into_boxed_slice())).await;
    assert_eq!(ask(&Hub::new(settings(&endpoint)).expect("usable settings")).await, too_large);
}

#[tokio::test]
async fn a_small_packet_that_unpacks_large_is_not_read() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![b' '; 1_000_000]).expect("in memory");
    let says = Says { body: packer.finish().expect("in memory"), ..Says::file("") };
    assert!(says.body.len() < 2_000);
    let local = LocalHub::start(&[(PATH, vec![says.with("content-encoding", "gzip")])]).await;
    assert!(matches!(ask(&client(&local)).await, Err(HubError::TooLarge { .. })));
}

#[tokio::test]
async fn a_page_instead_of_json_is_told() {
    for body in ["<!doctype html><title>Log in</title>", "{\"a\": ", "[1]", ""] {
        let local = LocalHub::start(&[(PATH, vec![Says::file(body)])]).await;
        let got = ask(&client(&local)).await;
        assert!(matches!(got, Err(HubError::NotJson { file: "config.json", .. })), "{body:?}: {got:?}");
        assert_eq!(local.requests(), 1, "the same would come again");
    }
}

#[tokio::test]
async fn each_refusal_of_the_hub_has_its_own_name() {
    let id = || "org/model".to_owned();
    for (status, code, expected) in [
        (401, "RepoNotFound", HubError::NotFound(id())),
        (401, "GatedRepo", HubError::Gated(id())),
        (403, "GatedRepo", HubError::Gated(id())),
        (403, "", HubError::Gated(id())),
        (401, "", HubError::TokenRefused),
        (404, "RepoNotFound", HubError::NotFound(id())),
        (404, "EntryNotFound", HubError::NoConfig(id())),
        (404, "RevisionNotFound", HubError::NoRevision { id: id(), revision: "main".to_owned() }),
        (404, "", HubError::NotFound(id())),
    ] {
        let local = LocalHub::start(&[(PATH, vec![Says::status(status).with("x-error-code", code)])]).await;
        assert_eq!(ask(&client(&local)).await, Err(expected), "{status} {code}");
        assert_eq!(local.requests(), 1, "{status} {code} is final");
    }
}

#[tokio::test]
async fn a_renamed_model_is_found_under_its_new_name() {
    let moved = Says::status(307).with("location", "/new/name/resolve/main/config.json");
    let local = LocalHub::start(&[
        (PATH, vec![moved]),
        ("/new/name/resolve/main/config.json", vec![Says::file(CONFIG)]),
    ])
    .await;
    assert_eq!(found(ask(&client(&local)).await).id.to_string(), "new/name");
}

#[tokio::test]
async fn redirects_do_not_lead_away_or_in_circles() {
    let other = LocalHub::start(&[("/x", vec![Says::file(CONFIG)])]).await;
    let other_port = format!("{}/x", other.endpoint());
    for to in [
        other_port.as_str(),
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:5432/",
        "https://user:pass@huggingface.co/x",
        "//evil.example/x",
        "file:///etc/passwd",
    ] {
        let local = LocalHub::start(&[(PATH, vec![Says::status(302).with("location", to)])]).await;
        let got = ask(&client(&local)).await;
        assert!(matches!(got, Err(HubError::RedirectRefused(_))), "{to}: {got:?}");
    }
    assert_eq!(other.requests(), 0);
    let local = LocalHub::start(&[(PATH, vec![Says::status(302).with("location", PATH)])]).await;
    assert!(ask(&client(&local)).await.is_err());
    assert!(local.requests() <= 3 * 6, "at most six hops in each of three attempts");
}

#[tokio::test]
async fn hostile_names_send_nothing() {
    let local = LocalHub::start(&[]).await;
    let client = client(&local);
    for id in [
        "../../etc/passwd",
        "a/b/../c",
        "a%2f..%2fb/c",
        "http://evil.example/a",
        "a/b?x",
        "a@evil.example/b",
        "a",
    ] {
        assert_eq!(client.config(id, "main", None).await, Err(HubError::BadName), "{id}");
    }
    for revision in ["../..", "a/b", "main?download=true", "%2e%2e"] {
        assert_eq!(client.config("a/b", revision, None).await, Err(HubError::BadRevision), "{revision}");
    }
    assert_eq!(local.requests(), 0);
}

#[tokio::test]
async fn the_token_goes_to_the_endpoint_alone_and_never_in_clear() {
    let local = LocalHub::start(&[(PATH, vec![Says::file(CONFIG)])]).await;
    let with_token =
        |endpoint: &str| HubSettings { token: Some(Secret::from("hf_secret")), ..settings(endpoint) };
    let client = Hub::new(with_token(&local.endpoint())).expect("usable settings");
    found(ask(&client).await);
    assert_eq!(local.header(0, "authorization").as_deref(), Some("Bearer hf_secret"));
    assert!(Hub::new(with_token("http://mirror.example")).is_err());
    assert!(!format!("{:?}", with_token("http://x")).contains("hf_secret"));
}

#[tokio::test]
async fn a_quantisation_block_beside_the_configuration_is_fetched_where_the_name_tells_of_one() {
    let side = Says::file(r#"{"quantization": {"quant_algo": "NVFP4"}}"#);
    let local = LocalHub::start(&[
        ("/nvidia/Llama-FP4/resolve/main/config.json", vec![Says::file(CONFIG)]),
        ("/nvidia/Llama-FP4/resolve/main/hf_quant_config.json", vec![side]),
    ])
    .await;
    let fetched = found(client(&local).config("nvidia/Llama-FP4", "main", None).await);
    assert_eq!(
        fetched.quantization_config.as_ref().expect("the block")["quantization"]["quant_algo"],
        "NVFP4"
    );
}

#[tokio::test]
async fn exact_bytes_come_from_the_index() {
    let path = "/org/model/resolve/main/model.safetensors.index.json";
    for (body, bytes) in [
        (r#"{"metadata": {"total_size": 141107412992}, "weight_map": {"a": "b"}}"#, Some(141_107_412_992)),
        (r#"{"metadata": {"total_size": 1000.0}}"#, Some(1000)),
        (r#"{"metadata": {}}"#, None),
    ] {
        let local = LocalHub::start(&[(path, vec![Says::file(body)])]).await;
        assert_eq!(client(&local).checkpoint_bytes("org/model", "main").await, Ok(bytes), "{body}");
    }
    let none = Says::status(404).with("x-error-code", "EntryNotFound");
    let local = LocalHub::start(&[(path, vec![none])]).await;
    assert_eq!(client(&local).checkpoint_bytes("org/model", "main").await, Ok(None));
}
