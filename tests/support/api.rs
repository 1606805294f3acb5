//! A service in this process, on a SQLite file of its own, and requests to it without a network.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use shardwise::config::{Settings, Sources};
use shardwise::http;
use shardwise::service::{App, Health, Limits};
use shardwise::store::plans::Stored;
use shardwise::store::{SqliteStore, Store};
use tempfile::TempDir;
use tower::ServiceExt;

/// A running service.
pub struct Api {
    pub routes: Router,
    pub app: Arc<App>,
    pub stopping: Arc<AtomicBool>,
    _folder: Option<TempDir>,
}

/// An answer with its body read.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap_or_default())
    }
}

pub fn settings() -> Settings {
    Settings::read(&Sources::defaults().expect("defaults")).expect("valid")
}

pub fn limits() -> Limits {
    Limits {
        answers_bytes: 8 << 20,
        plans_bytes: 8 << 20,
        models_fresh: Duration::from_secs(30),
        stored: Stored { per_s: 1000, bytes_per_s: 64 << 20, plan_bytes: 4 << 20 },
        keep_days: 0,
    }
}

impl Api {
    /// A service whose database is ready.
    pub async fn start() -> Self {
        Self::with(&settings()).await
    }

    pub async fn with(settings: &Settings) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let store = SqliteStore::at(&folder.path().join("s.sqlite"), 2, Duration::from_secs(2));
        let api = Self::over(Arc::new(store), settings, &limits()).await;
        Self { _folder: Some(folder), ..api }
    }

    /// A service over a given store, once its database is ready.
    pub async fn over(store: Arc<dyn Store>, settings: &Settings, limits: &Limits) -> Self {
        let (app, background) = App::new(store, true, limits);
        tokio::spawn(background.run());
        let stopping = Arc::new(AtomicBool::new(false));
        let routes = http::router(Arc::clone(&app), &settings.server, Arc::clone(&stopping));
        let api = Self::of(routes, app, stopping);
        api.ready().await;
        api
    }

    /// A service that is there already.
    pub fn of(routes: Router, app: Arc<App>, stopping: Arc<AtomicBool>) -> Self {
        Self { routes, app, stopping, _folder: None }
    }

    /// Wait until the database is ready.
    pub async fn ready(&self) {
        let ready = async {
            while self.app.database().1 != Health::Ready {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready).await.expect("the database becomes ready");
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.routes.clone().oneshot(request).await.expect("answers");
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a whole body").to_vec();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let mut request =
            Request::builder().method(Method::from_bytes(method.as_bytes()).expect("method")).uri(path);
        let body = match body {
            Some(value) => {
                request = request.header("content-type", "application/json");
                Body::from(value.to_string())
            }
            None => Body::empty(),
        };
        self.send(request.body(body).expect("a request")).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    /// The text as a JSON body.
    pub async fn post_text(&self, path: &str, text: impl Into<Body>) -> Reply {
        let request = Request::post(path).header("content-type", "application/json").body(text.into());
        self.send(request.expect("a request")).await
    }
}
