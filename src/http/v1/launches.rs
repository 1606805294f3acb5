//! `/v1/launches`.

use axum::Json;
use axum::extract::State as Shared;

use crate::http::State;
use crate::http::extract::JsonDocument;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::launches::LaunchesAnswer;

/// Files that start a layout: the engine's command, or what a platform takes.
///
/// Body: a plan question (`model`, `cluster`, `engine`, `workload`, `search`, …), which of its layouts (`rank`, from 1, or
/// `layout` with `tp`, `pp`, `dp`, `attention_dp`, `ep`, `dcp`), `prefill` (sizes of prefill
/// workers beside the layout, and `connector`), `platforms` (`command` by default), and optionally
/// `name`, `image`, `gpu_resource`, `rdma_resource`, `queue`. Each file is read back and checked; a platform that cannot
/// express the layout says why.
#[utoipa::path(
    post, path = "/v1/launches", operation_id = "create_launches", tag = "checks",
    request_body = Object,
    responses(
        (status = 200, description = "The files", body = LaunchesAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults, or the layout does not fit", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn create_launches(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<LaunchesAnswer>, Problem> {
    Ok(Json(state.app.launches(&document).await?))
}
