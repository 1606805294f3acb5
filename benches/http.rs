//! How much of a bare route's rate the plan route keeps, both measured in one run against one load generator
//! on this machine: `cargo bench --bench http`.
//!
//! The bare route is axum alone, returning the bytes of a plan. The plan route is the whole service. Clients are
//! plain sockets that keep their connection, in the same process, so all cores are shared with the load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::serve::ListenerExt as _;
use shardwise::config::{Settings, Sources};
use shardwise::ingest::request::PlanRequest;
use shardwise::service::{App, Limits, plan_offline};
use shardwise::store::SqliteStore;
use shardwise::store::plans::Stored;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Connections that ask at once.
const CLIENTS: u64 = 32;
/// How long each route is asked.
const PERIOD: Duration = Duration::from_secs(5);

/// The body of the `n`th request.
type Body = dyn Fn(u64) -> String + Send + Sync;

/// Requests answered with 200 in a second.
async fn rate(address: SocketAddr, path: &'static str, body: Arc<Body>) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stop, next, body) = (stop.clone(), next.clone(), body.clone());
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("the server listens");
                stream.set_nodelay(true).expect("a socket option");
                let mut buffer = Vec::with_capacity(1 << 16);
                let mut answered = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let body = body(next.fetch_add(1, Ordering::Relaxed));
                    let request = format!(
                        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                         content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(request.as_bytes()).await.expect("asked");
                    read_answer(&mut stream, &mut buffer).await;
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    tokio::time::sleep(PERIOD).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.expect("a client ends");
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of seconds' worth of requests")]
    let answered = answered as f64;
    answered / started.elapsed().as_secs_f64()
}

/// Read one answer of a kept connection; anything but 200 ends the run.
async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) {
    buffer.clear();
    let head_ends = loop {
        let read = stream.read_buf(buffer).await.expect("an answer");
        assert!(read > 0, "the server closed: {}", String::from_utf8_lossy(buffer));
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_ends]).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{}", String::from_utf8_lossy(buffer));
    let length: usize = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length:"))
        .and_then(|l| l.trim().parse().ok())
        .expect("a content-length");
    while buffer.len() < head_ends + length {
        assert!(stream.read_buf(buffer).await.expect("the rest") > 0, "the server closed in an answer");
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(compare());
}

/// The service on an empty SQLite store, on a port of its own.
async fn service() -> SocketAddr {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let sources = Sources::defaults().expect("the defaults");
    let settings = Settings::read(&sources).expect("the defaults");
    let store = Arc::new(SqliteStore::at(&folder.join("bench.sqlite"), 4, Duration::from_secs(2)));
    let limits = Limits {
        answers_bytes: settings.cache.answers_bytes,
        plans_bytes: settings.cache.plans_bytes,
        models_fresh: Duration::from_millis(settings.cache.models_fresh_ms),
        stored: Stored {
            per_s: settings.plans.stored_per_s,
            bytes_per_s: settings.plans.stored_bytes_per_s,
            plan_bytes: settings.plans.stored_plan_bytes,
        },
        keep_days: settings.plans.keep_days,
    };
    let (app, background) = App::new(store, true, &limits);
    tokio::spawn(background.run());
    listen(shardwise::http::router(app, &settings.server, Arc::new(AtomicBool::new(false)))).await
}

/// axum alone: reads the body, returns these bytes.
async fn bare(answer: Vec<u8>) -> SocketAddr {
    let answer = axum::body::Bytes::from(answer);
    let reply = move |_question: axum::body::Bytes| {
        let answer = answer.clone();
        async move { ([(axum::http::header::CONTENT_TYPE, "application/json")], answer) }
    };
    listen(axum::Router::new().route("/v1/plans", axum::routing::post(reply))).await
}

async fn listen(router: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        axum::serve(listener.tap_io(|stream| _ = stream.set_nodelay(true)), router).await.expect("served");
    });
    address
}

async fn compare() {
    let question = r#"{"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "16 H100s"}"#;
    let answer = shardwise::ingest::json::read(question.as_bytes())
        .map_err(|e| e.to_string())
        .and_then(|d| PlanRequest::read_document(&d).map_err(|e| format!("{e:?}")))
        .and_then(|r| plan_offline(&r).map_err(|e| e.to_string()))
        .expect("an answer");
    let answer = serde_json::to_vec(&answer).expect("JSON");
    println!("an answer has {} bytes; {CLIENTS} connections, {} s each", answer.len(), PERIOD.as_secs());
    let (bare, service) = (bare(answer).await, service().await);
    let same: Arc<Body> = Arc::new(move |_| question.to_owned());
    // no two alike: the context moves with the number of the request
    let different: Arc<Body> = Arc::new(|n| {
        format!(
            r#"{{"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "16 H100s", "workload": {{"context_tokens": {}}}}}"#,
            1_000 + n
        )
    });
    let floor = rate(bare, "/v1/plans", Arc::clone(&same)).await;
    let repeated = rate(service, "/v1/plans", same).await;
    let fresh = rate(service, "/v1/plans", different).await;
    println!("bare axum route:        {floor:>8.0} requests/s");
    println!("plans, repeated:        {repeated:>8.0} requests/s, {:.0} % of it", 100.0 * repeated / floor);
    println!("plans, all different:   {fresh:>8.0} requests/s");
}
