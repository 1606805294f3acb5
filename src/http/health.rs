//! Probes and metrics.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::extract::Query;
use super::problem::{Problem, ProblemBody};
use crate::service::Health;

/// The state of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Probe {
    /// `ok` or `failing`.
    pub status: String,
    /// What was looked at; only with `?verbose`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ProbeCheck)]
pub struct Check {
    pub name: String,
    /// `ok` or `failing`.
    pub status: String,
    /// Why it is failing, or what it is.
    pub detail: String,
}

/// Whether the process works at all: restart it when this fails.
#[utoipa::path(
    get, path = "/livez", operation_id = "get_livez", tag = "about",
    responses((status = 200, description = "It works", body = Probe))
)]
pub async fn livez() -> Json<Probe> {
    Json(Probe { status: "ok".to_owned(), checks: Vec::new() })
}

/// Whether to send traffic here: the database answers, and the server is not stopping.
///
/// Planning goes on without the database; what fails then is writing models and looking up old plans.
#[utoipa::path(
    get, path = "/readyz", operation_id = "get_readyz", tag = "about",
    params(("verbose" = Option<String>, Query, description = "Say what was looked at")),
    responses(
        (status = 200, description = "Send traffic", body = Probe),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Send traffic elsewhere, when there is an elsewhere", body = Probe),
    )
)]
pub async fn readyz(Shared(state): Shared<State>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let query = Query::of(query.as_deref(), &["verbose"])?;
    let (kind, health) = state.app.database();
    let stopping = state.stopping.load(Ordering::Acquire);
    let ready = health == Health::Ready && !stopping;
    let word = |ok| if ok { "ok" } else { "failing" }.to_owned();
    let mut checks = Vec::new();
    if query.get("verbose").is_some() {
        let why = match &health {
            Health::Ready => kind.to_owned(),
            Health::Away(_) => format!("{kind} is away; planning goes on without it"),
        };
        checks.push(Check {
            name: "database".to_owned(),
            status: word(health == Health::Ready),
            detail: why,
        });
        let detail = if stopping { "the server is stopping" } else { "taking requests" };
        checks.push(Check { name: "server".to_owned(), status: word(!stopping), detail: detail.to_owned() });
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, [(header::CACHE_CONTROL, "no-store")], Json(Probe { status: word(ready), checks }))
        .into_response())
}
