//! What the API promises beside its answers: headers, caching, problems, conditions, limits.

#[path = "support/api.rs"]
mod api;

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Api, Reply};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn question() -> Value {
    json!({"model": {"config": config(), "name": "acme/tiny"}, "cluster": "16 H100s", "limit": 2})
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    })
}

async fn with_header(api: &Api, method: &str, path: &str, header: (&str, &str), body: &str) -> Reply {
    let request = Request::builder().method(method).uri(path).header(header.0, header.1);
    api.send(request.body(Body::from(body.to_owned())).expect("a request")).await
}

#[tokio::test]
async fn a_plan_is_kept_under_its_hash() {
    let api = Api::start().await;
    let made = api.call("POST", "/v1/plans", Some(&question())).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let id = made.json()["plan_id"].as_str().expect("an id").to_owned();
    assert_eq!(made.header("etag"), format!("\"{id}\""));
    assert_eq!(made.header("content-location"), format!("/v1/plans/{id}"));
    assert_eq!(made.header("cache-control"), "no-store");
    assert!(made.header("server-timing").contains("plan;dur="), "{}", made.header("server-timing"));
    assert_eq!(made.header("shardwise-notice"), "");
    let kept = api.get(&format!("/v1/plans/{id}")).await;
    assert_eq!(kept.body, made.body, "byte for byte");
    assert_eq!(kept.header("cache-control"), "public, max-age=31536000, immutable");
    let again =
        with_header(&api, "GET", &format!("/v1/plans/{id}"), ("if-none-match", &format!("\"{id}\"")), "")
            .await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), format!("\"{id}\""));
    for unknown in ["0".repeat(32), "x".to_owned(), id.to_uppercase()] {
        assert_eq!(api.get(&format!("/v1/plans/{unknown}")).await.status, 404, "{unknown}");
    }
}

#[tokio::test]
async fn the_same_question_gives_the_same_bytes() {
    let api = Api::start().await;
    let first = api.call("POST", "/v1/plans", Some(&question())).await;
    let remembered = api.call("POST", "/v1/plans", Some(&question())).await;
    assert!(
        remembered.header("server-timing").starts_with("memory"),
        "{}",
        remembered.header("server-timing")
    );
    assert_eq!(first.body, remembered.body);
    // other blanks and another order of fields: another question to the memory, the same to the planner
    let text = format!(
        "{{ \"limit\":2,\n\"cluster\": \"16 H100s\", \"model\": {{\"name\": \"acme/tiny\", \"config\": {}}} }}",
        config()
    );
    let other = api.post_text("/v1/plans", text).await;
    assert!(other.header("server-timing").contains("plan;dur="));
    assert_eq!(first.body, other.body);
    assert_eq!(first.header("etag"), other.header("etag"));
}

#[tokio::test]
async fn a_stored_model_replaces_what_was_remembered() {
    let api = Api::start().await;
    let ask = json!({"model": "acme/tiny", "cluster": "16 H100s", "limit": 1});
    let unknown = api.call("POST", "/v1/plans", Some(&ask)).await;
    assert_eq!(unknown.status, 422);
    assert_eq!(unknown.json()["errors"][0]["code"], "unknown_model");
    let layers = async |n: u64| {
        let mut changed = config();
        changed["num_hidden_layers"] = json!(n);
        assert!(api.call("PUT", "/v1/models/acme/tiny", Some(&changed)).await.status.is_success());
        let plan = api.call("POST", "/v1/plans", Some(&ask)).await.json();
        assert_eq!(plan["model"]["source"], "stored");
        plan["model"]["layers"].as_u64()
    };
    assert_eq!(layers(32).await, Some(32));
    assert_eq!(layers(16).await, Some(16));
    assert_eq!(api.call("DELETE", "/v1/models/acme/tiny", None).await.status, 204);
    assert_eq!(api.call("POST", "/v1/plans", Some(&ask)).await.status, 422);
}

#[tokio::test]
async fn models_are_written_on_conditions() {
    let api = Api::start().await;
    let path = "/v1/models/acme/tiny";
    let mut other = config();
    other["num_hidden_layers"] = json!(8);
    let (one, two) = (config().to_string(), other.to_string());
    let put = async |header: (&str, &str), body: &str| with_header(&api, "PUT", path, header, body).await;
    let made = put(("if-none-match", "*"), &one).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("location"), path);
    let tag = made.header("etag").to_owned();
    let refused = put(("if-none-match", "*"), &two).await;
    assert_eq!((refused.status.as_u16(), refused.header("etag")), (412, tag.as_str()));
    assert_eq!(put(("if-match", "\"other\""), &two).await.status, 412);
    let replaced = put(("if-match", &tag), &two).await;
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), tag);
    assert_eq!(put(("if-match", "*"), &one).await.status, 400, "a condition is never ignored");
    let seen = api.get(path).await;
    assert_eq!(seen.json()["facts"]["layers"], 8);
    assert_eq!(seen.json()["config"], other);
    assert_eq!(seen.header("cache-control"), "private, max-age=60");
    let same = with_header(&api, "GET", path, ("if-none-match", seen.header("etag")), "").await;
    assert_eq!(same.status, 304);
    assert_eq!(with_header(&api, "DELETE", path, ("if-match", &tag), "").await.status, 412);
    assert_eq!(with_header(&api, "DELETE", path, ("if-match", seen.header("etag")), "").await.status, 204);
    assert_eq!(api.call("DELETE", path, None).await.status, 404);
    assert_eq!(put(("if-match", &tag), &one).await.status, 412, "nothing is there");
}

#[tokio::test]
async fn models_are_listed_in_pages() {
    let api = Api::start().await;
    for name in ["b", "a", "c"] {
        let path = format!("/v1/models/acme-pages/{name}");
        assert_eq!(api.call("PUT", &path, Some(&config())).await.status, 201);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/models?search=ACME-pages&page_size=2".to_owned();
    loop {
        let page = api.get(&path).await.json();
        seen.extend(
            page["items"].as_array().expect("items").iter().map(|m| m["id"].as_str().expect("id").to_owned()),
        );
        match page["next_page_token"].as_str() {
            Some(token) => path = format!("/v1/models?search=ACME-pages&page_size=2&page_token={token}"),
            None => break,
        }
    }
    assert_eq!(seen, ["acme-pages/a", "acme-pages/b", "acme-pages/c"]);
    assert!(
        !api.get("/v1/models?page_size=100000").await.json()["items"].as_array().expect("items").is_empty()
    );
    for query in
        ["page_size=0", "page_size=x", "page_token=zz", "serach=a", "search=%00", "search=a&search=b"]
    {
        let reply = api.get(&format!("/v1/models?{query}")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["code"].as_str()),
            (400, Some("invalid_query")),
            "{query}"
        );
    }
}

#[tokio::test]
async fn every_error_is_a_problem() {
    let api = Api::start().await;
    let text = |t: &str| t.to_owned();
    let cases = [
        ("GET", "/nowhere", text(""), text("application/json"), 404, "not_found"),
        ("GET", "/v1/plans", text(""), text("application/json"), 405, "method_not_allowed"),
        ("BREW", "/v1/plans", text(""), text("application/json"), 405, "method_not_allowed"),
        ("POST", "/v1/plans", text("{"), text("application/json"), 400, "malformed_json"),
        (
            "POST",
            "/v1/plans",
            text("a=b"),
            text("application/x-www-form-urlencoded"),
            415,
            "unsupported_media_type",
        ),
        ("POST", "/v1/plans", text("{}"), text("text/plain"), 415, "unsupported_media_type"),
        ("POST", "/v1/plans", text("{}"), text("application/json; charset=utf-8"), 422, "invalid_request"),
        ("POST", "/v1/plans", text("{}"), text("application/vnd.acme+json"), 422, "invalid_request"),
        ("POST", "/v1/plans", " ".repeat(5 << 20), text("application/json"), 413, "body_too_large"),
        ("GET", "/v1/models/acme/none", text(""), text("application/json"), 404, "model_not_found"),
        ("PUT", "/v1/models/acme/..", text("{}"), text("application/json"), 422, "invalid_request"),
        ("GET", "/v1/models/a%00b/c", text(""), text("application/json"), 404, "model_not_found"),
        ("GET", "/v1/models/a%FFb/c", text(""), text("application/json"), 400, "invalid_query"),
        ("GET", "/v1/gpus?serach=h100", text(""), text("application/json"), 400, "invalid_query"),
        ("GET", "/problems/none", text(""), text("application/json"), 404, "not_found"),
        ("GET", "/docs/none.js", text(""), text("application/json"), 404, "not_found"),
    ];
    for (method, path, body, kind, status, code) in cases {
        let reply = with_header(&api, method, path, ("content-type", &kind), &body).await;
        let name = format!("{method} {path} {kind}: {}", reply.text());
        assert_eq!(reply.status, status, "{name}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{name}");
        assert_eq!(reply.header("cache-control"), "no-store", "{name}");
        let problem = reply.json();
        assert_eq!(problem["code"], code, "{name}");
        assert_eq!(problem["type"], format!("/problems/{code}"), "{name}");
        assert_eq!(problem["status"], status, "{name}");
        assert_eq!(problem["instance"], format!("/requests/{}", reply.header("x-request-id")), "{name}");
        let page = api.get(&format!("/problems/{code}")).await;
        assert_eq!(page.json()["status"], status, "{name}");
    }
    assert!(
        with_header(&api, "PATCH", "/v1/plans", ("accept", "*/*"), "").await.header("allow").contains("POST")
    );
}

#[tokio::test]
async fn every_answer_has_an_id_and_safe_headers() {
    let api = Api::start().await;
    for path in ["/", "/docs", "/v1/gpus", "/nowhere", "/livez"] {
        let reply = api.get(path).await;
        assert!(!reply.header("x-request-id").is_empty(), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert!(!reply.header("cache-control").is_empty(), "{path}");
    }
    let id = |sent: &'static str| {
        let api = &api;
        async move {
            with_header(api, "GET", "/livez", ("x-request-id", sent), "")
                .await
                .header("x-request-id")
                .to_owned()
        }
    };
    assert_eq!(id("deploy-42.a_b").await, "deploy-42.a_b");
    assert_ne!(id("not a plain id").await, "not a plain id");
    assert_ne!(id("a").await, id("").await);
}

#[tokio::test]
async fn pages_load_nothing_from_elsewhere() {
    let api = Api::start().await;
    for path in ["/", "/docs", "/docs/"] {
        let page = api.get(path).await;
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").starts_with("text/html"));
        for word in ["src=\"http", "href=\"http", "src=\"//", "href=\"//", "@import"] {
            assert!(!page.text().contains(word), "{path} has {word}");
        }
    }
    let page = api.get("/docs").await.text();
    for part in page.split(['"', '\'']).filter(|p| p.starts_with("./")) {
        let file = api.get(&format!("/docs/{}", part.trim_start_matches("./"))).await;
        assert_eq!(file.status, 200, "{part}");
    }
    assert!(api.get("/docs/swagger-initializer.js").await.text().contains("/openapi.json"));
}

#[tokio::test]
async fn answers_are_compressed_on_request() {
    let api = Api::start().await;
    for (accepted, encoding) in [("gzip", "gzip"), ("br", "br"), ("identity", "")] {
        let reply = with_header(&api, "GET", "/v1/gpus", ("accept-encoding", accepted), "").await;
        assert_eq!(reply.header("content-encoding"), encoding);
        assert_eq!(reply.header("vary"), "accept-encoding");
    }
}

#[tokio::test]
async fn lists_are_cacheable() {
    let api = Api::start().await;
    for path in ["/v1/gpus", "/v1/nodes", "/v1/links", "/v1/engines"] {
        let reply = api.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.json()["items"].as_array().expect("items").is_empty(), "{path}");
        assert_eq!(reply.header("cache-control"), "public, max-age=3600", "{path}");
        let again = with_header(&api, "GET", path, ("if-none-match", reply.header("etag")), "").await;
        assert_eq!(again.status, 304, "{path}");
    }
    let found = api.get("/v1/gpus?search=H200").await.json();
    assert!(
        found["items"]
            .as_array()
            .expect("items")
            .iter()
            .any(|g| g["key"].as_str().is_some_and(|k| k.contains("h200")))
    );
    assert_eq!(api.get("/v1/gpus?search=nothing-like-it").await.json()["items"], json!([]));
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let api = Api::start().await;
    assert_eq!(api.get("/readyz").await.status, 200);
    api.stopping.store(true, Ordering::Release);
    let reply = api.get("/readyz?verbose").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["checks"][1]["detail"], "the server is stopping");
    assert_eq!(api.get("/livez").await.status, 200, "it still works");
    assert_eq!(api.call("POST", "/v1/plans", Some(&question())).await.status, 200, "and still answers");
}

#[tokio::test]
async fn a_full_server_refuses_at_once_and_a_slow_body_is_cut() {
    let mut settings = api::settings();
    settings.server.max_in_flight = 1;
    settings.server.request_timeout_ms = 300;
    let api = Api::with(&settings).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, api.routes.clone()).into_future());
    // a body that never ends takes the only place
    let mut slow = TcpStream::connect(address).await.expect("connects");
    let head =
        "POST /v1/plans HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.expect("writes");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused = api.call("POST", "/v1/plans", Some(&question())).await;
    let probe = api.get("/livez").await;
    let mut held = vec![0; 4096];
    let read = slow.read(&mut held).await.expect("reads");
    let held = String::from_utf8_lossy(&held[..read]).into_owned();
    assert_eq!((refused.status.as_u16(), refused.json()["code"].as_str()), (503, Some("overloaded")));
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(probe.status, 200, "probes have a place of their own");
    assert!(held.starts_with("HTTP/1.1 503") && held.contains("timed_out"), "{held}");
    assert_eq!(api.call("POST", "/v1/plans", Some(&question())).await.status, 200, "the place is free again");
}

#[tokio::test]
async fn a_model_shows_its_ledger_its_cache_and_its_tp_sizes() {
    let api = Api::start().await;
    let shown = api.get("/v1/models/meta-llama/Llama-3.3-70B-Instruct").await.json();
    let sizes = &shown["sizes"];
    let bytes: u64 =
        sizes["ledger"].as_array().expect("groups").iter().map(|g| g["bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(Some(bytes), shown["facts"]["weights_bytes"].as_u64());
    assert_eq!(sizes["kv_bytes_per_token"], 327_680);
    assert_eq!(sizes["kv_formula"], "2 × 80 layers × 8 heads × 128 × 2 B = 327,680 B");
    let tp = |n: u64| {
        sizes["tp_sizes"].as_array().expect("sizes").iter().find(|t| t["tp"] == n).expect("judged").clone()
    };
    assert_eq!(
        (tp(8)["allowed"].as_bool(), tp(8)["replication_thousandths"].as_u64()),
        (Some(true), Some(1000))
    );
    assert_eq!(
        (tp(16)["code"].as_str(), tp(16)["replication_thousandths"].as_u64()),
        (Some("kv_replicated"), Some(2000))
    );
    assert_eq!(
        (tp(12)["allowed"].as_bool(), tp(12)["code"].as_str()),
        (Some(false), Some("query_heads_not_divisible"))
    );
    assert!(tp(12)["reason"].as_str().is_some_and(|reason| reason.contains("64 query heads")));
    let alike = shown["same_shape"].as_array().expect("ids");
    assert!(alike.contains(&"meta-llama/Llama-3.1-70B".into()), "{alike:?}");
}

#[tokio::test]
async fn a_configuration_is_inspected_without_being_stored() {
    let api = Api::start().await;
    let mut sent = config();
    sent["colour"] = "blue".into();
    let read = api.call("POST", "/v1/models:inspect", Some(&sent)).await;
    assert_eq!(read.status, 200, "{}", read.text());
    let read = read.json();
    assert_eq!(read["layer_kinds"].as_array().map(Vec::len), Some(1));
    assert!(
        read["notes"]
            .as_array()
            .expect("notes")
            .iter()
            .any(|n| n["pointer"].as_str().is_some_and(|p| p.ends_with("colour")))
    );
    sent["num_attention_heads"] = 0.into();
    let refused = api.call("POST", "/v1/models:inspect", Some(&sent)).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["errors"][0]["pointer"], "#/num_attention_heads");
    let llama = shardwise::catalogue::models::find("meta-llama/Llama-3.1-8B").expect("listed").config();
    let twin = api.call("POST", "/v1/models:inspect", Some(&llama)).await.json();
    let alike = twin["same_shape"].as_array().expect("ids");
    assert!(alike.contains(&"meta-llama/Llama-3.1-8B".into()), "{alike:?}");
}
