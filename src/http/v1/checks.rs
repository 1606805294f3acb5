//! `/v1/checks`.

use axum::Json;
use axum::extract::State as Shared;

use crate::http::State;
use crate::http::extract::JsonDocument;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::checks::CheckAnswer;

/// Check a deployment before it is made: an engine command line, or a manifest, against a cluster.
///
/// Body: `command` or `manifest` (or `text`, to be told apart), `cluster`, and optionally `model`, `engine_version`,
/// `workload`, `assumptions`, and `policy` (`deny` and `allow`: codes of checks). A deployment that does not start is an
/// answer too: the verdict is `fail`, with the reason and the line.
#[utoipa::path(
    post, path = "/v1/checks", operation_id = "check_deployment", tag = "checks",
    request_body = Object,
    responses(
        (status = 200, description = "The verdict", body = CheckAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn check_deployment(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<CheckAnswer>, Problem> {
    Ok(Json(state.app.check(&document).await?))
}
