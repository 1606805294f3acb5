//! A Slack on this machine, and a service whose Slack face talks to it: requests signed as Slack signs them, a clock that
//! stands still, and what the face posted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use shardwise::http;
use shardwise::service::App;
use shardwise::service::questions::QuestionAnswer;
use shardwise::slack::post::Outlet;
use shardwise::slack::signature::Verifier;
use shardwise::slack::{Answers, Asked, Later, Parts, Slack};
use shardwise::store::SqliteStore;
use tempfile::TempDir;

use super::api::{Api, Reply, limits, settings};

pub const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
pub const NOW: u64 = 1_780_000_000;

/// What a face posted: path, headers, body.
pub type Posts = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// The service with a face.
pub struct Bot {
    pub api: Api,
    pub posts: Posts,
    /// Where the Slack on this machine is.
    pub origin: String,
    pub now: Arc<AtomicU64>,
    /// How long every answer takes, in milliseconds.
    pub delay: Arc<AtomicU64>,
    /// What the Slack on this machine answers to posts, in order; 200 after that.
    pub says: Arc<Mutex<Vec<u16>>>,
    _folder: TempDir,
}

/// The service, slower.
struct Slow {
    app: Arc<App>,
    delay: Arc<AtomicU64>,
}

impl Answers for Slow {
    fn answer(&self, asked: Asked) -> Later<'_, QuestionAnswer> {
        Box::pin(async move {
            let answer = Answers::answer(self.app.as_ref(), asked).await;
            // a computation that nothing can interrupt
            std::thread::sleep(Duration::from_millis(self.delay.load(Ordering::Relaxed)));
            answer
        })
    }

    fn usual<'a>(&'a self, workspace: &'a str) -> Later<'a, Option<String>> {
        Answers::usual(self.app.as_ref(), workspace)
    }

    fn put_usual<'a>(&'a self, workspace: &'a str, cluster: &'a str) -> Later<'a, String> {
        Answers::put_usual(self.app.as_ref(), workspace, cluster)
    }

    fn forget_usual<'a>(&'a self, workspace: &'a str) -> Later<'a, bool> {
        Answers::forget_usual(self.app.as_ref(), workspace)
    }
}

impl Bot {
    /// A bot with a token, whose answers may take `budget`.
    pub async fn start(budget: Duration) -> Self {
        let (posts, says) = (Posts::default(), Arc::new(Mutex::new(Vec::new())));
        let origin = local_slack(Arc::clone(&posts), Arc::clone(&says)).await;
        let folder = tempfile::tempdir().expect("folder");
        let store = SqliteStore::at(&folder.path().join("s.sqlite"), 2, Duration::from_secs(2));
        let (app, background) = App::new(Arc::new(store), true, &limits());
        tokio::spawn(background.run());
        let (now, delay) = (Arc::new(AtomicU64::new(NOW)), Arc::new(AtomicU64::new(0)));
        let clock = Arc::clone(&now);
        let slack = Slack::of(Parts {
            verifier: Verifier::of(vec![SECRET.into()]),
            outlet: Outlet::new(&"xoxb-secret".into(), Some(&origin)).expect("an outlet"),
            answers: Arc::new(Slow { app: Arc::clone(&app), delay: Arc::clone(&delay) }),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            budget,
            dashboard: Some("https://shardwise.example".to_owned()),
        });
        let stopping = Arc::new(AtomicBool::new(false));
        let routes =
            http::router_with(Arc::clone(&app), &settings().server, Arc::clone(&stopping), Some(slack));
        let api = Api::of(routes, app, stopping);
        api.ready().await;
        Self { api, posts, origin, now, delay, says, _folder: folder }
    }

    /// Send a body signed now, with a signature that differs each time as Slack's do: the clock moves on.
    pub async fn send(&self, path: &str, body: &str) -> Reply {
        let at = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.send_signed(path, body, &at.to_string(), &signature(SECRET, at, body), &[]).await
    }

    pub async fn send_signed(
        &self,
        path: &str,
        body: &str,
        at: &str,
        signature: &str,
        more: &[(&str, &str)],
    ) -> Reply {
        let json = body.starts_with('{');
        let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
        let mut request = Request::post(path).header("content-type", kind);
        for (name, value) in [("x-slack-request-timestamp", at), ("x-slack-signature", signature)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        self.api.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    /// The body of a slash command with a text.
    pub fn command(&self, text: &str) -> String {
        command(text, &format!("{}/commands/T0001/2/abc", self.origin))
    }

    /// Ask by a slash command; the message that comes back at once.
    pub async fn ask(&self, text: &str) -> Value {
        let reply = self.send("/slack/commands", &self.command(text)).await;
        assert_eq!(reply.status, StatusCode::OK, "{text}: {}", reply.text());
        reply.json()
    }

    /// The first `count` posts, once they are there.
    pub async fn posted(&self, count: usize) -> Vec<(String, HeaderMap, Value)> {
        let there = async {
            while self.posts.lock().expect("posts").len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), there).await.expect("the posts come");
        self.posts.lock().expect("posts").clone()
    }
}

/// A slash command in the form of Slack's documentation.
pub fn command(text: &str, response_url: &str) -> String {
    let fields = [
        ("token", "gIkuvaNzQIHg97ATvDxqgjtO"),
        ("team_id", "T0001"),
        ("team_domain", "example"),
        ("enterprise_id", "E0001"),
        ("enterprise_name", "Globular Construct Inc"),
        ("channel_id", "C2147483705"),
        ("channel_name", "test"),
        ("user_id", "U2147483697"),
        ("user_name", "Steve"),
        ("command", "/shardwise"),
        ("text", text),
        ("response_url", response_url),
        ("trigger_id", "13345224609.738474920.8088930838d88f008e0"),
        ("api_app_id", "A123456"),
    ];
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

pub fn signature(secret: &str, at: u64, body: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(format!("v0:{at}:{body}").as_bytes());
    format!("v0={}", hex::encode(mac.finalize().into_bytes()))
}

async fn local_slack(posts: Posts, says: Arc<Mutex<Vec<u16>>>) -> String {
    type Shared = (Posts, Arc<Mutex<Vec<u16>>>);
    async fn take(State((posts, says)): State<Shared>, request: Request<Body>) -> (StatusCode, String) {
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        posts.lock().expect("posts").push((parts.uri.path().to_owned(), parts.headers, body));
        let mut says = says.lock().expect("says");
        let status = if says.is_empty() { 200 } else { says.remove(0) };
        (StatusCode::from_u16(status).expect("a status"), r#"{"ok":true}"#.to_owned())
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let routes = Router::new().fallback(take).with_state((posts, says));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    origin
}
