//! `/v1/fits`: which models of the catalogue fit on a cluster.

use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::fleet_schema::FitsQuestion;
use super::form::{Form, by_accept};
use super::plans::json_response;
use crate::http::State;
use crate::http::extract::{JsonDocument, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::ingest::FieldError;
use crate::ingest::fits::{FitsRequest, PARAMETERS};
use crate::service::App;
use crate::service::fits::{Fits, FitsAnswer};

/// Which models fit on a cluster: a row for every model of the catalogue.
///
/// Each row has the best layout, what it holds at three lengths, its speed, and the fewest GPUs that hold the model at all;
/// a model that does not fit has the reason, the bytes that are missing, and the narrower weights in which it would.
/// `Accept: text/csv` and `text/markdown`, or `?format=csv` and `markdown`, give the rows as a table.
#[utoipa::path(
    post, path = "/v1/fits", operation_id = "create_fits", tag = "fleet",
    params(("format" = Option<String>, Query, description = "`json`, `csv` or `markdown`; else by the Accept header")),
    request_body = FitsQuestion,
    responses(
        (status = 200, description = "A row for each model", content((Fits = "application/json"), (String = "text/csv"), (String = "text/markdown"))),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults: all of them", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_fits(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let form = Form::wanted(&Query::of(query.as_deref(), &["format"])?, &headers, &Form::ALL)?;
    let request = match (FitsRequest::read(&document.value), document.duplicates) {
        (Ok(request), duplicates) if duplicates.is_empty() => request,
        (read, mut faults) => {
            faults.extend(read.err().unwrap_or_default());
            return Err(Problem::invalid(faults));
        }
    };
    let answer = state.app.fits(request).await?;
    Ok(written(&answer, form))
}

/// The same by query parameters, for a link or a spreadsheet.
#[utoipa::path(
    get, path = "/v1/fits", operation_id = "get_fits", tag = "fleet",
    params(
        ("cluster" = String, Query, description = "A cluster as people write it, e.g. `16xH100`", max_length = 2000),
        ("context" = Option<u64>, Query, description = "A model fits when it holds one sequence of this length", minimum = 1, maximum = 1_073_741_824),
        ("input_tokens" = Option<u64>, Query, description = "Prompt length", minimum = 1),
        ("output_tokens" = Option<u64>, Query, description = "Generated length", minimum = 1),
        ("concurrency" = Option<u64>, Query, description = "Requests in flight", minimum = 1),
        ("ttft_ms" = Option<f64>, Query, description = "Limit on the time to the first token"),
        ("tpot_ms" = Option<f64>, Query, description = "Limit on the time for each further token"),
        ("kv_cache_dtype" = Option<String>, Query, description = "Format of the cache, e.g. `fp8`"),
        ("objective" = Option<String>, Query, description = "`balanced`, `throughput`, `latency`, `capacity` or `cost`"),
        ("search" = Option<String>, Query, description = "Only models with this text in id, family or an alias"),
        ("family" = Option<String>, Query, description = "Only this family"),
        ("licence" = Option<String>, Query, description = "Only this licence"),
        ("min_parameters" = Option<u64>, Query, description = "At least so many parameters"),
        ("max_parameters" = Option<u64>, Query, description = "At most so many parameters"),
        ("min_context_tokens" = Option<u64>, Query, description = "Only models that take sequences of this length"),
        ("fits" = Option<bool>, Query, description = "Only rows that fit, or only those that do not"),
        ("meets_slo" = Option<bool>, Query, description = "Only rows that meet the limits, or only those that do not"),
        ("sort" = Option<String>, Query, description = "`parameters`, `name`, `released`, `kv_tokens`, `sequences`, `tpot`, `throughput` or `smallest_gpus`"),
        ("limit" = Option<u64>, Query, description = "Rows at most", minimum = 1, maximum = 1000),
        ("format" = Option<String>, Query, description = "`json`, `csv` or `markdown`; else by the Accept header"),
    ),
    responses(
        (status = 200, description = "A row for each model", content((Fits = "application/json"), (String = "text/csv"), (String = "text/markdown"))),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Too many requests in work", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_fits(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let known: Vec<&str> = PARAMETERS.iter().map(|(name, ..)| *name).chain(["format"]).collect();
    let query = Query::of(query.as_deref(), &known)?;
    let form = Form::wanted(&query, &headers, &Form::ALL)?;
    let given =
        known.iter().filter(|name| **name != "format").filter_map(|name| Some((*name, query.get(name)?)));
    let request = FitsRequest::read(&FitsRequest::json_of(given)).map_err(by_parameter)?;
    let on_saved = App::names_saved_cluster(&request.cluster);
    let answer = state.app.fits(request).await.map_err(|error| match error {
        crate::service::ServiceError::Invalid(faults) => by_parameter(faults),
        other => other.into(),
    })?;
    let mut response = written(&answer, form);
    // what a saved name means may change at any time
    let policy = if on_saved { "no-cache" } else { "public, max-age=3600" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(policy));
    Ok(response)
}

/// The faults of the question as faults of the parameters that it was made of.
fn by_parameter(faults: Vec<FieldError>) -> Problem {
    Problem::parameters(faults.into_iter().map(|fault| {
        let name = FitsRequest::parameter_of(&fault.pointer).unwrap_or("cluster");
        (name, fault)
    }))
}

fn written(answer: &FitsAnswer, form: Form) -> Response {
    by_accept(match form {
        Form::Json => json_response(answer.json.clone()),
        Form::Csv => form.table(answer.fits.csv()),
        Form::Markdown => form.table(answer.fits.markdown()),
    })
}
