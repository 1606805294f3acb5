//! `/slack/…`: what Slack sends, handed to the face that answers it. Not part of the described API: only Slack calls it.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, http::request::Parts};

use super::State;
use super::extract::read;
use super::problem::{Kind, Problem};
use crate::slack::{MOST_BYTES, Refused, Reply, Signed, Slack};

/// The routes that Slack calls.
pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/slack/commands", post(commands))
        .route("/slack/events", post(events))
        .route("/slack/interactions", post(interactions))
}

async fn commands(state: Shared<State>, request: Request) -> Result<Response, Problem> {
    let taken = Taken::of(state, request).await?;
    answered("command", taken.slack.command(taken.signed()).await)
}

async fn events(state: Shared<State>, request: Request) -> Result<Response, Problem> {
    let taken = Taken::of(state, request).await?;
    answered("event", taken.slack.event(taken.signed()))
}

async fn interactions(state: Shared<State>, request: Request) -> Result<Response, Problem> {
    let taken = Taken::of(state, request).await?;
    answered("interaction", taken.slack.interaction(taken.signed()))
}

/// A request with its body read.
struct Taken {
    slack: Arc<Slack>,
    arrived: Instant,
    headers: HeaderMap,
    body: Bytes,
}

impl Taken {
    async fn of(Shared(state): Shared<State>, request: Request) -> Result<Self, Problem> {
        let arrived = Instant::now();
        let Some(slack) = state.slack else {
            return Err(Problem::new(
                Kind::NotFound,
                "Slack is not set up here: slack.signing_secret is empty",
            ));
        };
        let (Parts { headers, .. }, body): (Parts, Body) = request.into_parts();
        let body = read(body, MOST_BYTES.min(state.body_limit)).await?;
        Ok(Self { slack, arrived, headers, body })
    }

    fn signed(&self) -> Signed<'_> {
        let header = |name| self.headers.get(name).and_then(|value| value.to_str().ok());
        Signed {
            arrived: self.arrived,
            timestamp: header("x-slack-request-timestamp"),
            signature: header("x-slack-signature"),
            is_retry: self.headers.contains_key("x-slack-retry-num"),
            body: &self.body,
        }
    }
}

fn answered(kind: &'static str, reply: Result<Reply, Refused>) -> Result<Response, Problem> {
    let result = match &reply {
        Ok(_) => "answered",
        Err(Refused::Unsigned(_)) => "unsigned",
        Err(_) => "refused",
    };
    metrics::counter!("shardwise_slack_requests_total", "kind" => kind, "result" => result).increment(1);
    match reply {
        Ok(Reply::Received) => Ok(StatusCode::OK.into_response()),
        Ok(Reply::Challenge(text)) => {
            Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
        }
        Ok(Reply::Message(message)) => Ok(Json(message).into_response()),
        Err(Refused::Unsigned(why)) => Err(Problem::new(Kind::SignatureRefused, why.to_string())),
        Err(Refused::Malformed(why)) => Err(Problem::new(Kind::MalformedJson, why)),
        Err(Refused::Elsewhere(why)) => {
            Err(Problem::new(Kind::InvalidRequest, format!("response_url: {why}")))
        }
    }
}
