//! A hub on this machine that speaks the protocol of the public one, faults included.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What the hub says for a path, one after another; the last for ever.
#[derive(Clone, Default)]
pub struct Says {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub after: Duration,
}

impl Says {
    /// A file with its tag and commit.
    pub fn file(body: &str) -> Self {
        Self {
            status: 200,
            headers: vec![
                ("content-type", "text/plain; charset=utf-8".to_owned()),
                ("etag", "\"e1\"".to_owned()),
                ("x-repo-commit", "c0ffee".to_owned()),
            ],
            body: body.as_bytes().to_vec(),
            after: Duration::ZERO,
        }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// What was asked, in order: path as sent and headers.
pub type Log = Arc<Mutex<Vec<(String, HeaderMap)>>>;

pub struct LocalHub {
    pub address: SocketAddr,
    pub log: Log,
}

struct Script {
    says: BTreeMap<String, (AtomicUsize, Vec<Says>)>,
    log: Log,
}

impl LocalHub {
    /// A hub with these answers by path; 404 with `RepoNotFound` for all others.
    pub async fn start(says: &[(&str, Vec<Says>)]) -> Self {
        let log = Log::default();
        let says = says
            .iter()
            .map(|(path, list)| ((*path).to_owned(), (AtomicUsize::new(0), list.clone())))
            .collect();
        let script = Arc::new(Script { says, log: Arc::clone(&log) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().fallback(answer).with_state(script);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, log }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> usize {
        self.log.lock().expect("no panic").len()
    }

    /// Paths asked for, in order.
    pub fn paths(&self) -> Vec<String> {
        self.log.lock().expect("no panic").iter().map(|(path, _)| path.clone()).collect()
    }

    /// A header of the request at `index`.
    pub fn header(&self, index: usize, name: &str) -> Option<String> {
        let log = self.log.lock().expect("no panic");
        Some(log.get(index)?.1.get(name)?.to_str().expect("text").to_owned())
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    script.log.lock().expect("no panic").push((path.clone(), request.headers().clone()));
    let Some((count, list)) = script.says.get(&path) else {
        return response(&Says::status(404).with("x-error-code", "RepoNotFound"));
    };
    let turn = count.fetch_add(1, Ordering::SeqCst).min(list.len() - 1);
    let says = &list[turn];
    tokio::time::sleep(says.after).await;
    let etag = says.headers.iter().find(|(name, _)| *name == "etag").map(|(_, value)| value.as_str());
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if says.status == 200 && known.is_some() && known == etag {
        return response(&Says::status(304));
    }
    response(says)
}

fn response(says: &Says) -> Response {
    let mut builder = Response::builder().status(StatusCode::from_u16(says.status).expect("a status"));
    for (name, value) in &says.headers {
        builder = builder.header(*name, value);
    }
    builder.body(Body::from(says.body.clone())).expect("a response")
}

/// A server that writes these bytes to every caller and closes; how many came.
pub async fn raw(bytes: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let came = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&came);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
    });
    (endpoint, came)
}
