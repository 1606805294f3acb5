//! `/v1/models`.

use axum::Json;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::State;
use crate::http::conditional::{expected, stored, written};
use crate::http::extract::{JsonDocument, Path, Query};
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::ModelBody;
use crate::service::{self, Inspected, ModelPage, ModelView, Refresh};

const PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;
const PRIVATE: HeaderValue = HeaderValue::from_static("private, max-age=60");

/// Models that can be planned for by id: the catalogue's and the stored ones.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "list_models", tag = "models",
    params(
        ("search" = Option<String>, Query, description = "Only models whose id, plain name or family contains this text, in any case", max_length = 200),
        ("page_size" = Option<u32>, Query, description = "Models in the answer, at most; 50 when not given, never more than 200", minimum = 1),
        ("page_token" = Option<String>, Query, description = "`next_page_token` of the page before"),
    ),
    responses(
        (status = 200, description = "Models in order of id", body = ModelPage),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_models(
    Shared(state): Shared<State>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::of(query.as_deref(), &["search", "page_size", "page_token"])?;
    let limit = query.capped("page_size", PAGE_SIZE, MAX_PAGE_SIZE)?;
    let after = match query.get("page_token") {
        Some(token) => page_start(token)?,
        None => String::new(),
    };
    let page = state.app.list_models(query.text("search", 200)?, &after, limit).await?;
    Ok(([(header::CACHE_CONTROL, PRIVATE)], Json(page)).into_response())
}

/// The id after which a page starts.
pub(super) fn page_start(token: &str) -> Result<String, Problem> {
    hex::decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .filter(|id| id.len() <= 200 && !id.chars().any(char::is_control))
        .ok_or_else(|| {
            Problem::parameter("page_token", "malformed", "send a `next_page_token` as it was answered")
        })
}

/// A model: its configuration, and what was read from it.
#[utoipa::path(
    get, path = "/v1/models/{org}/{name}", operation_id = "get_model", tag = "models",
    params(
        ("org" = String, Path, description = "The part of the id before the slash"),
        ("name" = String, Path, description = "The part of the id after the slash"),
    ),
    responses(
        (status = 200, description = "The model", body = ModelView, headers(("ETag" = String, description = "Hash of the configuration"))),
        (status = 304, description = "The caller has it already"),
        (status = 404, description = "No such model", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away and the catalogue has no such model", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn get_model(
    Shared(state): Shared<State>,
    Path((org, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let model = state.app.model(&format!("{org}/{name}")).await?;
    let hash = model.hash.clone();
    let mut response = stored(&headers, &hash, model);
    response.headers_mut().insert(header::CACHE_CONTROL, PRIVATE);
    Ok(response)
}

/// Read a configuration without storing it: what it says, its ledger, its cache, the TP sizes, and what was not used of it.
#[utoipa::path(
    post, path = "/v1/models:inspect", operation_id = "inspect_model", tag = "models",
    request_body = ModelBody,
    responses(
        (status = 200, description = "What was read", body = Inspected),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The configuration cannot be planned for", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn inspect_model(JsonDocument(document): JsonDocument) -> Result<Json<Inspected>, Problem> {
    if !document.duplicates.is_empty() {
        return Err(Problem::invalid(document.duplicates));
    }
    Ok(Json(service::inspect(&document.value)?))
}

/// A model after the hub was asked again.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefreshedModel {
    pub outcome: Refresh,
    pub model: ModelView,
}

/// Ask the hub again for a model that was fetched from there, or for one that is not stored yet.
///
/// The stored entity tag is sent along, so that an unchanged model costs no body. A model that was put here has no other
/// source: 412.
#[utoipa::path(
    post, path = "/v1/models/{org}/{name}/refresh", operation_id = "refresh_model", tag = "models",
    params(
        ("org" = String, Path, description = "The part of the id before the slash"),
        ("name" = String, Path, description = "The part of the id after the slash"),
    ),
    responses(
        (status = 200, description = "Compared", body = RefreshedModel),
        (status = 403, description = "The hub asks for a token or for consent", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "The hub has no such model, or there is no hub", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "The model was put here and has no other source", body = ProblemBody, content_type = "application/problem+json"),
        (status = 502, description = "The hub is away or answered with something else", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "The hub did not answer in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The hub asks for a pause, or the database is away", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn refresh_model(
    Shared(state): Shared<State>,
    Path((org, name)): Path<(String, String)>,
) -> Result<Json<RefreshedModel>, Problem> {
    let (outcome, model) = state.app.refresh_model(&format!("{org}/{name}")).await?;
    Ok(Json(RefreshedModel { outcome, model }))
}

/// Store a model's config.json under an id, in place of what is there.
///
/// Send `If-None-Match: *` to store only a new one, or `If-Match` with an ETag to replace only what you have seen.
/// An answer of 200 or 201 means that it is in the database. Stored models go before those of the catalogue.
#[utoipa::path(
    put, path = "/v1/models/{org}/{name}", operation_id = "put_model", tag = "models",
    params(
        ("org" = String, Path, description = "The part of the id before the slash"),
        ("name" = String, Path, description = "The part of the id after the slash"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is stored"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: nothing is stored yet"),
    ),
    request_body = ModelBody,
    responses(
        (status = 200, description = "Replaced", body = ModelView, headers(("ETag" = String, description = "Hash of the configuration"))),
        (status = 201, description = "Stored", body = ModelView, headers(("ETag" = String, description = "Hash of the configuration"))),
        (status = 400, description = "The body is not JSON, or a condition cannot be read", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "What is stored is not the expected one", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The configuration cannot be planned for", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away; nothing was stored", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn put_model(
    Shared(state): Shared<State>,
    Path((org, name)): Path<(String, String)>,
    headers: HeaderMap,
    JsonDocument(document): JsonDocument,
) -> Result<Response, Problem> {
    let expect = expected(&headers)?;
    if !document.duplicates.is_empty() {
        return Err(Problem::invalid(document.duplicates));
    }
    let id = format!("{org}/{name}");
    let (put, model) = state.app.put_model(&id, &document.value, &expect).await?;
    let hash = model.hash.clone();
    Ok(written(put, &format!("/v1/models/{id}"), &hash, model))
}

/// Forget a stored model. One of the catalogue cannot be deleted; it shows again when it was replaced.
#[utoipa::path(
    delete, path = "/v1/models/{org}/{name}", operation_id = "delete_model", tag = "models",
    params(
        ("org" = String, Path, description = "The part of the id before the slash"),
        ("name" = String, Path, description = "The part of the id after the slash"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is stored"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "A condition cannot be read", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such model is stored", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "What is stored is not the expected one", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "The database is away; nothing was deleted", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn delete_model(
    Shared(state): Shared<State>,
    Path((org, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    state.app.delete_model(&format!("{org}/{name}"), &expected(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
