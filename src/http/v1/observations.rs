//! `/v1/observations` and `/v1/accuracy`.

use axum::Json;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use time::OffsetDateTime;

use crate::http::State;
use crate::http::extract::{JsonDocument, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::ObservationBody;
use crate::service::observations::ObservationAnswer;
use crate::service::observations::residuals::FleetAccuracy;
use crate::service::observations::stored::{ObservationFilter, ObservationRows, page_start};

const PAGE_SIZE: u32 = 100;
const MAX_PAGE_SIZE: u32 = 1000;

/// Read an engine's start-up log, compare it with the prediction item by item, and keep what was compared.
///
/// Kept are the recovered settings and figures, never the log. The same start sent again is the same observation, with the
/// newer prediction. Where the database is away the comparison is answered all the same, with `stored: false`; a caller
/// who sends `store: true` gets 503 instead, and `store: false` keeps nothing.
#[utoipa::path(
    post, path = "/v1/observations", operation_id = "compare_log", tag = "checks",
    request_body = ObservationBody,
    responses(
        (status = 200, description = "The comparison", body = ObservationAnswer, headers(("Location" = String, description = "Where it is kept, when it is"))),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away and the request insists on keeping it", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn compare_log(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let answer = state.app.observe(&document, OffsetDateTime::now_utc()).await?;
    let place =
        answer.id.as_ref().and_then(|id| HeaderValue::from_str(&format!("/v1/observations/{id}")).ok());
    let mut response = Json(answer).into_response();
    if let Some(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Start-ups that are kept, newest first: predicted and observed KV tokens of each.
#[utoipa::path(
    get, path = "/v1/observations", operation_id = "list_observations", tag = "checks",
    params(
        ("engine" = Option<String>, Query, description = "Only those of this engine", max_length = 200),
        ("version" = Option<String>, Query, description = "Only those of this version, as the log prints it", max_length = 200),
        ("gpu" = Option<String>, Query, description = "Only those on this GPU, by its catalogue key", max_length = 200),
        ("model" = Option<String>, Query, description = "Only those of this model, as the log names it", max_length = 200),
        ("page_size" = Option<u32>, Query, description = "Observations in the answer, at most; 100 when not given, never more than 1000", minimum = 1),
        ("page_token" = Option<String>, Query, description = "`next_page_token` of the page before"),
    ),
    responses(
        (status = 200, description = "Kept start-ups", body = ObservationRows),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_observations(
    Shared(state): Shared<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<ObservationRows>, Problem> {
    let known = ["engine", "version", "gpu", "model", "page_size", "page_token"];
    let query = Query::of(query.as_deref(), &known)?;
    let limit = query.capped("page_size", PAGE_SIZE, MAX_PAGE_SIZE)?;
    let before = query
        .get("page_token")
        .map(|token| {
            page_start(token).ok_or_else(|| {
                Problem::parameter("page_token", "malformed", "send a `next_page_token` as it was answered")
            })
        })
        .transpose()?;
    Ok(Json(state.app.observations(&filter(&query)?, before, limit).await?))
}

/// A start-up that is kept, with every figure.
#[utoipa::path(
    get, path = "/v1/observations/{id}", operation_id = "get_observation", tag = "checks",
    params(("id" = String, Path, description = "The `id` of an observation")),
    responses(
        (status = 200, description = "The comparison", body = ObservationAnswer),
        (status = 404, description = "Nothing is kept under this id", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_observation(
    Shared(state): Shared<State>,
    Path(id): Path<String>,
) -> Result<Json<ObservationAnswer>, Problem> {
    Ok(Json(state.app.observation(&id).await?))
}

/// Forget a start-up that is kept.
#[utoipa::path(
    delete, path = "/v1/observations/{id}", operation_id = "delete_observation", tag = "checks",
    params(("id" = String, Path, description = "The `id` of an observation")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Nothing is kept under this id", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away; nothing was deleted", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn delete_observation(
    Shared(state): Shared<State>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    state.app.delete_observation(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How far predictions lie from what the kept start-ups printed: by engine, version and GPU.
#[utoipa::path(
    get, path = "/v1/accuracy", operation_id = "get_accuracy", tag = "checks",
    params(
        ("engine" = Option<String>, Query, description = "Only those of this engine", max_length = 200),
        ("version" = Option<String>, Query, description = "Only those of this version, as the log prints it", max_length = 200),
        ("gpu" = Option<String>, Query, description = "Only those on this GPU, by its catalogue key", max_length = 200),
        ("model" = Option<String>, Query, description = "Only those of this model, as the log names it", max_length = 200),
    ),
    responses(
        (status = 200, description = "Residuals", body = FleetAccuracy),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_accuracy(
    Shared(state): Shared<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<FleetAccuracy>, Problem> {
    let query = Query::of(query.as_deref(), &["engine", "version", "gpu", "model"])?;
    Ok(Json(state.app.accuracy(&filter(&query)?).await?))
}

fn filter(query: &Query) -> Result<ObservationFilter, Problem> {
    let given = |name| query.text(name, 200).map(|t| Some(t.to_owned()).filter(|t| !t.is_empty()));
    Ok(ObservationFilter {
        engine: given("engine")?,
        version: given("version")?,
        gpu: given("gpu")?,
        model: given("model")?,
    })
}
