//! `/v1/plans`.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::form::{Form, by_accept};
use crate::http::State;
use crate::http::conditional::{etag, has_already};
use crate::http::extract::{JsonBytes, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::PlanQuestion;
use crate::service::{AnswerBytes, Notice, PlanAnswer, Rendered, ServiceError, plan_csv};

/// Things about the service that the caller should know, as codes.
pub(super) const NOTICE: HeaderName = HeaderName::from_static("shardwise-notice");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Lay a model over a cluster: ranked layouts with capacity, latency and reasons.
///
/// The answer is a pure function of the question and the versions in it. Nothing fitting is an answer too:
/// `feasible` is false and `refused` says why. The header `Shardwise-Notice` holds codes: `plan_not_stored`
/// (the plan is in memory only), `stored_model_may_be_old` and `stored_models_not_asked` (the database is away).
/// `Accept: text/csv` or `?format=csv` gives a row for each layout; `Content-Location` has the whole answer.
#[utoipa::path(
    post, path = "/v1/plans", operation_id = "create_plan", tag = "plans",
    params(("format" = Option<String>, Query, description = "`json` or `csv`; else by the Accept header")),
    request_body = PlanQuestion,
    responses(
        (status = 200, description = "The plan", content((PlanAnswer = "application/json"), (String = "text/csv")),
            headers(("ETag" = String, description = "The plan id"), ("Content-Location" = String, description = "Where the plan is kept"))),
        (status = 400, description = "The body is not JSON, or a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults: all of them", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_plan(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    JsonBytes(question): JsonBytes,
) -> Result<Response, Problem> {
    let form = Form::wanted(&Query::of(query.as_deref(), &["format"])?, &headers, &Form::PLAIN)?;
    let answer = state.app.plan_text(&question).await?;
    let mut response = written(answer.json.clone(), form)?;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(&tag(&answer.plan_id, form)));
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
/// An id never changes its meaning, so the answer may be cached for ever. `Accept: text/csv` or `?format=csv` gives a row for
/// each layout.
#[utoipa::path(
    get, path = "/v1/plans/{plan_id}", operation_id = "get_plan", tag = "plans",
    params(
        ("plan_id" = String, Path, description = "The `plan_id` of an answer"),
        ("format" = Option<String>, Query, description = "`json` or `csv`; else by the Accept header"),
    ),
    responses(
        (status = 200, description = "The plan", content((PlanAnswer = "application/json"), (String = "text/csv")), headers(("ETag" = String, description = "The plan id"))),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such plan", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away and the plan is not in memory", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_plan(
    Shared(state): Shared<State>,
    Path(plan_id): Path<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let form = Form::wanted(&Query::of(query.as_deref(), &["format"])?, &headers, &Form::PLAIN)?;
    let known = has_already(&headers, &tag(&plan_id, form));
    let mut response = match state.app.kept_plan(&plan_id).await {
        // the id is the hash of the content: who has it has the content, wherever it is kept now
        Ok(_) | Err(ServiceError::Unavailable(_)) if known => {
            by_accept(StatusCode::NOT_MODIFIED.into_response())
        }
        kept => written(kept?, form)?,
    };
    // the columns of a table may become more with a release
    let policy = match form {
        Form::Json => "public, max-age=31536000, immutable",
        Form::Csv | Form::Markdown => "public, max-age=3600",
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(&tag(&plan_id, form)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(policy));
    Ok(response)
}

/// An answer in a form.
fn written(json: AnswerBytes, form: Form) -> Result<Response, Problem> {
    if form == Form::Json {
        return Ok(by_accept(json_response(json)));
    }
    let answer = serde_json::from_slice(json.as_ref())
        .map_err(|e| ServiceError::Internal(format!("a plan cannot be read again: {e}")))?;
    Ok(by_accept(form.table(plan_csv(&answer))))
}

/// The tag of an answer in a form: the plan id, for the answer itself.
fn tag(plan_id: &str, form: Form) -> Cow<'_, str> {
    match form {
        Form::Json => Cow::Borrowed(plan_id),
        Form::Csv | Form::Markdown => Cow::Owned(format!("{plan_id}-csv")),
    }
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
