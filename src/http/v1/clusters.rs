//! `/v1/clusters:parse` and the saved clusters.

use axum::Json;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::models::page_start;
use crate::http::State;
use crate::http::conditional::{expected, stored, written};
use crate::http::extract::{JsonDocument, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::{ClusterBody, SavedClusterBody};
use crate::ingest::cluster::MAX_GPUS;
use crate::ingest::fields::Fields;
use crate::ingest::{FieldError, Pointer};
use crate::service::{SavedCluster, SavedClusterPage, Understood};

/// Read a cluster and say what was understood, without planning.
#[utoipa::path(
    post, path = "/v1/clusters:parse", operation_id = "parse_cluster", tag = "hardware",
    request_body = ClusterBody,
    responses(
        (status = 200, description = "The cluster as understood", body = Understood),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be read as a cluster", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "It is a saved name, and the database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn parse_cluster(
    Shared(state): Shared<State>,
    JsonDocument(document): JsonDocument,
) -> Result<Json<Understood>, Problem> {
    let mut faults: Vec<FieldError> = document.duplicates;
    let (mut cluster, mut gpu, mut nodes) = (None, None, None);
    if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
        cluster = fields.required("cluster");
        gpu = fields.text("gpu", 120);
        nodes = fields.whole("nodes", 1..=MAX_GPUS);
        fields.finish();
    }
    match cluster {
        Some(cluster) if faults.is_empty() => {
            Ok(Json(state.app.parse_cluster(cluster, gpu, nodes, &Pointer::root().key("cluster")).await?))
        }
        _ => Err(Problem::invalid(faults)),
    }
}

const PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;

/// Clusters that are saved here, in order of name.
#[utoipa::path(
    get, path = "/v1/clusters", operation_id = "list_clusters", tag = "hardware",
    params(
        ("page_size" = Option<u32>, Query, description = "Clusters in the answer, at most; 50 when not given, never more than 200", minimum = 1),
        ("page_token" = Option<String>, Query, description = "`next_page_token` of the page before"),
    ),
    responses(
        (status = 200, description = "Saved clusters", body = SavedClusterPage),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_clusters(
    Shared(state): Shared<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<SavedClusterPage>, Problem> {
    let query = Query::of(query.as_deref(), &["page_size", "page_token"])?;
    let limit = query.capped("page_size", PAGE_SIZE, MAX_PAGE_SIZE)?;
    let after = match query.get("page_token") {
        Some(token) => page_start(token)?,
        None => String::new(),
    };
    Ok(Json(state.app.list_clusters(&after, limit).await?))
}

/// A saved cluster, and what it means.
#[utoipa::path(
    get, path = "/v1/clusters/{name}", operation_id = "get_cluster", tag = "hardware",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The cluster", body = SavedCluster, headers(("ETag" = String, description = "Hash of the cluster"))),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "The name cannot be read", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "Nothing is saved under this name", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_cluster(
    Shared(state): Shared<State>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let saved = state.app.cluster(&name).await?;
    let hash = saved.hash.clone();
    Ok(stored(&headers, &hash, saved))
}

/// Save a cluster under a name, in place of what is there: plan on it as `{"saved": "name"}`, `saved:name`, or `name`
/// alone where that does not read as a cluster.
///
/// Send `If-None-Match: *` to save only a new one, or `If-Match` with an ETag to replace only what you have seen.
#[utoipa::path(
    put, path = "/v1/clusters/{name}", operation_id = "put_cluster", tag = "hardware",
    params(
        ("name" = String, Path, description = "Letters, digits, dots, dashes and underscores"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is saved"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: nothing is saved yet"),
    ),
    request_body = SavedClusterBody,
    responses(
        (status = 200, description = "Replaced", body = SavedCluster, headers(("ETag" = String, description = "Hash of the cluster"))),
        (status = 201, description = "Saved", body = SavedCluster, headers(("ETag" = String, description = "Hash of the cluster"), ("Location" = String, description = "Where it is"))),
        (status = 400, description = "The body is not JSON, or a condition cannot be read", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "What is saved is not the expected one", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be read as a cluster", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away; nothing was saved", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn put_cluster(
    Shared(state): Shared<State>,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let expect = expected(&headers)?;
    if !document.duplicates.is_empty() {
        return Err(Problem::invalid(document.duplicates));
    }
    let (put, saved) = state.app.put_cluster(&name, &document.value, &expect).await?;
    let hash = saved.hash.clone();
    Ok(written(put, &format!("/v1/clusters/{name}"), &hash, saved))
}

/// Forget a saved cluster.
#[utoipa::path(
    delete, path = "/v1/clusters/{name}", operation_id = "delete_cluster", tag = "hardware",
    params(
        ("name" = String, Path, description = "Its name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is saved"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "A condition cannot be read", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "Nothing is saved under this name", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "What is saved is not the expected one", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away; nothing was deleted", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn delete_cluster(
    Shared(state): Shared<State>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    state.app.delete_cluster(&name, &expected(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
