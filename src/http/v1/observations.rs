//! `/v1/observations`.

use axum::Json;
use axum::extract::State as Shared;

use crate::http::State;
use crate::http::extract::JsonDocument;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::observations::ObservationAnswer;

/// Read an engine's start-up log and compare it with the prediction, item by item.
///
/// Body: `log` (the text), and for a prediction `cluster` (what it ran on); `model` where the log's own name is a path.
#[utoipa::path(
    post, path = "/v1/observations", operation_id = "compare_log", tag = "checks",
    request_body = Object,
    responses(
        (status = 200, description = "The comparison", body = ObservationAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn compare_log(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<ObservationAnswer>, Problem> {
    Ok(Json(state.app.observe(&document).await?))
}
