//! `/v1/sizings`, `/v1/sweeps`, `/v1/batches`: the questions over many plans.

use axum::Json;
use axum::extract::{RawQuery, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::fleet_schema::{BatchQuestion, QuestionBody, SizingQuestion, SweepQuestion};
use super::form::{Form, by_accept};
use super::plans::{NOTICE, notices};
use crate::http::State;
use crate::http::extract::{JsonDocument, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::ingest::batch::BatchRequest;
use crate::ingest::fields::Fields;
use crate::ingest::json::Document;
use crate::ingest::sizing::SizingRequest;
use crate::ingest::sweep::SweepRequest;
use crate::ingest::{FieldError, Pointer, question};
use crate::planner::sizing::Sizing;
use crate::service::batches::Batch;
use crate::service::questions::QuestionAnswer;
use crate::service::{Notice, ServiceError, SweepAnswer, sweep_csv};

/// The fewest GPUs of each product that carry a load.
///
/// The load is a number of sequences at a context, a rate of requests (one figure or a trace), or users with think time.
/// Without `gpus` and `cluster`, every product that a platform of the catalogue carries is sized.
#[utoipa::path(
    post, path = "/v1/sizings", operation_id = "create_sizing", tag = "fleet",
    request_body = SizingQuestion,
    responses(
        (status = 200, description = "The fewest GPUs, product by product", body = Sizing),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults: all of them", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_sizing(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let request = read(document, SizingRequest::read)?;
    let (sizing, told) = state.app.size(request).await?;
    Ok(answered(&sizing, &told))
}

/// Curves over one thing, one for each value of a second.
///
/// The curve over TP carries `kv_tokens_if_sharded` beside the real tokens: the two part where TP passes the KV heads.
/// `Accept: text/csv` or `?format=csv` gives a row for each point.
#[utoipa::path(
    post, path = "/v1/sweeps", operation_id = "create_sweep", tag = "fleet",
    params(("format" = Option<String>, Query, description = "`json` or `csv`; else by the Accept header")),
    request_body = SweepQuestion,
    responses(
        (status = 200, description = "The curves", content((SweepAnswer = "application/json"), (String = "text/csv"))),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults: all of them", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_sweep(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let form = Form::wanted(&Query::of(query.as_deref(), &["format"])?, &headers, &Form::PLAIN)?;
    let request = read(document, SweepRequest::read)?;
    let (sweep, told) = state.app.sweep(request).await?;
    if form == Form::Json {
        return Ok(by_accept(answered(&sweep, &told)));
    }
    let json = serde_json::to_value(&sweep).map_err(|e| ServiceError::Internal(e.to_string()))?;
    Ok(by_accept(noted(form.table(sweep_csv(&json)), &told)))
}

/// Many plans at once: a list of questions, or models times clusters.
///
/// A question with faults has its problem in its place and does not stop the others. `Accept: text/csv` or
/// `?format=csv` gives a row for each question.
#[utoipa::path(
    post, path = "/v1/batches", operation_id = "create_batch", tag = "fleet",
    params(("format" = Option<String>, Query, description = "`json` or `csv`; else by the Accept header")),
    request_body = BatchQuestion,
    responses(
        (status = 200, description = "An answer or a problem for each question", content((Batch = "application/json"), (String = "text/csv"))),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The batch itself has faults", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_batch(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let form = Form::wanted(&Query::of(query.as_deref(), &["format"])?, &headers, &Form::PLAIN)?;
    let request = read(document, BatchRequest::read)?;
    let (batch, told) = state.app.batch(request).await?;
    Ok(by_accept(match form {
        Form::Csv => noted(form.table(batch.csv()), &told),
        Form::Json | Form::Markdown => answered(&batch, &told),
    }))
}

/// A question in plain words: parsed into one of the typed requests, which is shown beside the answer.
///
/// Words that have no part in the request are listed in `not_understood`. A text in which nothing is understood gets
/// `kind` `unclear` and examples of what can be asked.
#[utoipa::path(
    post, path = "/v1/questions", operation_id = "create_question", tag = "fleet",
    request_body = QuestionBody,
    responses(
        (status = 200, description = "What was understood, and the answer", body = QuestionAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults; pointers are into the request that was understood", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_question(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let text = read(document, read_question)?;
    let (answer, told) = state.app.ask(&text).await?;
    Ok(answered(&answer, &told))
}

fn read_question(value: &Value) -> Result<String, Vec<FieldError>> {
    let mut faults = Vec::new();
    let text = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
        fields.required("question");
        let text = fields.text("question", question::MAX_CHARS).map(str::to_owned);
        fields.finish();
        text
    });
    match text {
        Some(text) if faults.is_empty() => Ok(text),
        _ => Err(faults),
    }
}

/// The request of a document; its duplicate keys are faults too.
pub(super) fn read<T>(
    document: Document,
    reader: impl FnOnce(&Value) -> Result<T, Vec<FieldError>>,
) -> Result<T, Problem> {
    let mut faults = document.duplicates;
    match reader(&document.value) {
        Ok(request) if faults.is_empty() => Ok(request),
        read => {
            faults.extend(read.err().unwrap_or_default());
            Err(Problem::invalid(faults))
        }
    }
}

/// An answer with its notices.
pub(super) fn answered<T: Serialize>(answer: &T, told: &[Notice]) -> Response {
    noted(Json(answer).into_response(), told)
}

/// A response that says what happened to the service on the way.
pub(super) fn noted(mut response: Response, told: &[Notice]) -> Response {
    if let Some(codes) = notices(told) {
        response.headers_mut().insert(NOTICE, codes);
    }
    response
}
