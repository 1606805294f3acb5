//! The OpenAPI document and a page to read it with. Nothing is loaded from another host.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa_swagger_ui::Config;

use super::State;
use super::conditional::{etag, has_already};
use super::extract::Path;
use super::openapi::openapi_json;
use super::problem::{Kind, Problem};

/// Scripts and styles from here only; the page sets styles on its elements.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                           connect-src 'self'; base-uri 'self'; frame-ancestors 'none'";

/// The routes of the page, which the document does not describe.
pub fn routes() -> Router<State> {
    Router::new()
        .route("/docs", get(docs_index))
        .route("/docs/", get(docs_index))
        .route("/docs/{*file}", get(docs_file))
}

/// The description of this API, OpenAPI 3.1.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "get_openapi", tag = "about",
    responses(
        (status = 200, description = "The document", body = Object, content_type = "application/json"),
        (status = 304, description = "The caller has it already"),
    )
)]
pub async fn get_openapi(headers: HeaderMap) -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| openapi_json().into()).clone();
    let version = env!("CARGO_PKG_VERSION");
    let mut response = if has_already(&headers, version) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, "application/json")], document).into_response()
    };
    response.headers_mut().insert(header::ETAG, etag(version));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn docs_index() -> Result<Response, Problem> {
    docs_page("index.html")
}

async fn docs_file(Path(file): Path<String>) -> Result<Response, Problem> {
    docs_page(&file)
}

fn docs_page(file: &str) -> Result<Response, Problem> {
    let config = Arc::new(Config::from("/openapi.json").validator_url("none").try_it_out_enabled(true));
    let found = utoipa_swagger_ui::serve(file, config)
        .map_err(|error| Problem::new(Kind::Internal, format!("the page cannot be shown: {error}")))?
        .ok_or_else(|| Problem::new(Kind::NotFound, "there is no such file of the page"))?;
    let mut bytes = found.bytes.into_owned();
    if file == "index.html" {
        // its links are relative: the page is the same with and without the closing slash
        let page = String::from_utf8_lossy(&bytes).replacen("<head>", "<head><base href=\"/docs/\">", 1);
        bytes = page.into_bytes();
    }
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(&found.content_type) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if found.gzpipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(DOCS_POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
