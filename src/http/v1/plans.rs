//! `/v1/plans`.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::State;
use crate::http::conditional::{etag, has_already};
use crate::http::extract::{JsonBytes, Path};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::PlanQuestion;
use crate::service::{AnswerBytes, Notice, PlanAnswer, Rendered, ServiceError};

/// Things about the service that the caller should know, as codes.
pub(super) const NOTICE: HeaderName = HeaderName::from_static("shardwise-notice");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Lay a model over a cluster: ranked layouts with capacity, latency and reasons.
///
/// The answer is a pure function of the question and the versions in it. Nothing fitting is an answer too:
/// `feasible` is false and `refused` says why. The header `Shardwise-Notice` holds codes: `plan_not_stored`
/// (the plan is in memory only), `stored_model_may_be_old` and `stored_models_not_asked` (the database is away).
#[utoipa::path(
    post, path = "/v1/plans", operation_id = "create_plan", tag = "plans",
    request_body = PlanQuestion,
    responses(
        (status = 200, description = "The plan", body = PlanAnswer,
            headers(("ETag" = String, description = "The plan id"), ("Content-Location" = String, description = "Where the plan is kept"))),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults: all of them", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_plan(
    Shared(state): Shared<State>,
    JsonBytes(question): JsonBytes,
) -> Result<Response, Problem> {
    let answer = state.app.plan_text(&question).await?;
    let mut response = json_response(answer.json.clone());
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(&answer.plan_id));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/plans/{}", answer.plan_id)) {
        headers.insert(header::CONTENT_LOCATION, location);
    }
    headers.insert(SERVER_TIMING, timing(&answer));
    if let Some(codes) = notices(&answer.notices) {
        headers.insert(NOTICE, codes);
    }
    Ok(response)
}

/// A plan that was made before, byte for byte.
///
/// An id never changes its meaning, so the answer may be cached for ever.
#[utoipa::path(
    get, path = "/v1/plans/{plan_id}", operation_id = "get_plan", tag = "plans",
    params(("plan_id" = String, Path, description = "The `plan_id` of an answer")),
    responses(
        (status = 200, description = "The plan", body = PlanAnswer, headers(("ETag" = String, description = "The plan id"))),
        (status = 304, description = "The caller has it already"),
        (status = 404, description = "No such plan", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away and the plan is not in memory", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_plan(
    Shared(state): Shared<State>,
    Path(plan_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = has_already(&headers, &plan_id);
    let mut response = match state.app.kept_plan(&plan_id).await {
        // the id is the hash of the content: who has it has the content, wherever it is kept now
        Ok(_) | Err(ServiceError::Unavailable(_)) if known => StatusCode::NOT_MODIFIED.into_response(),
        kept => json_response(kept?),
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(&plan_id));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    Ok(response)
}

/// Bytes that are JSON already, without a copy.
pub(super) fn json_response(json: AnswerBytes) -> Response {
    let body = Body::from(json);
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

fn timing(answer: &Rendered) -> HeaderValue {
    if answer.planned.is_zero() {
        return HeaderValue::from_static("memory;desc=\"the same question was answered before\"");
    }
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let text = format!("read;dur={:.3}, plan;dur={:.3}", ms(answer.read), ms(answer.planned));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("total"))
}

/// The codes of a header.
pub(super) fn notices(notices: &[Notice]) -> Option<HeaderValue> {
    if notices.is_empty() {
        return None;
    }
    let codes: Vec<&str> = notices.iter().map(|n| n.code()).collect();
    HeaderValue::from_str(&codes.join(", ")).ok()
}
