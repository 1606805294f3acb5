//! `/v1/kv/*`.

use axum::Json;
use axum::extract::State as Shared;

use crate::http::State;
use crate::http::extract::JsonDocument;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::kv::{HandoversAnswer, MovesAnswer, PrefixesAnswer, SequencesAnswer};

/// What a prefix that many requests share costs over replicas, and how to serve it.
///
/// Routing by prefix, a shared store and computing again are compared with numbers. Body: `model`, `prefix_tokens`,
/// and optionally `replicas`, `layout`, `cluster`, `engine`, `uses`, `popularity`, `store`.
#[utoipa::path(
    post, path = "/v1/kv/prefixes", operation_id = "compare_prefixes", tag = "kv",
    request_body = Object,
    responses(
        (status = 200, description = "The comparison", body = PrefixesAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn compare_prefixes(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<PrefixesAnswer>, Problem> {
    Ok(Json(state.app.kv_prefixes(&document).await?))
}

/// Fetch a prefix over a path, or compute it again: times, crossover and break-even, and how large tiers must be.
///
/// Body: `model`, `prefix_tokens`, and optionally `layout`, `cluster`, `paths` (`name`, `bandwidth_bytes_per_s`,
/// `fixed_ms`), `tiers` (`level`, `bytes_per_node`), `achieved_flops`, `parameters`, `attention`, `broadcast`.
#[utoipa::path(
    post, path = "/v1/kv/moves", operation_id = "compare_moves", tag = "kv",
    request_body = Object,
    responses(
        (status = 200, description = "The comparison", body = MovesAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn compare_moves(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<MovesAnswer>, Problem> {
    Ok(Json(state.app.kv_moves(&document).await?))
}

/// Can this prefill worker's cache be used by that decode worker, and how many of each?
///
/// Body: `producer` and `consumer` (`tp`, `pp`, `dcp`, `engine`, `version`, `connector`, `page_size`,
/// `kv_cache_dtype`), and optionally `model`, `cluster`, `input_tokens`, `output_tokens`, `lengths`, `path`.
#[utoipa::path(
    post, path = "/v1/kv/handovers", operation_id = "check_handover", tag = "kv",
    request_body = Object,
    responses(
        (status = 200, description = "The verdict", body = HandoversAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn check_handover(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<HandoversAnswer>, Problem> {
    Ok(Json(state.app.kv_handovers(&document).await?))
}

/// Where the cache of layouts lies, and the longest single sequence of each.
///
/// Body: `model`, `cluster`, and optionally `compare`: a list of layouts (`tp`, `pp`, `dp`, `attention_dp`, `ep`, `dcp`).
#[utoipa::path(
    post, path = "/v1/kv/sequences", operation_id = "compare_sequences", tag = "kv",
    request_body = Object,
    responses(
        (status = 200, description = "The comparison", body = SequencesAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The question has faults", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn compare_sequences(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<SequencesAnswer>, Problem> {
    Ok(Json(state.app.kv_sequences(&document).await?))
}
