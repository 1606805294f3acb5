//! The page at `/` and its files: packed, named by their content, under a policy that lets nothing in from outside.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::State;
use super::conditional::{etag, has_already};
use super::extract::Path;
use super::problem::{Kind, Problem};
use crate::dashboard::{self, BUILD, CHART_LIBRARY, File};

/// Nothing but the page's own files and the API of the same host; no script and no style inside the page.
///
/// The hash is that of the empty text: the chart library makes an empty style element and fills it rule by rule, which
/// a policy allows; an element that arrives with rules in it is refused.
const POLICY: &str = "default-src 'none'; script-src 'self'; \
                      style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// For a file whose address changes with its content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// For a file whose address stays.
const ASK_FIRST: &str = "no-cache";

/// The routes of the page, which the API's document does not describe.
pub fn routes() -> Router<State> {
    Router::new().route("/", get(index)).route("/assets/{*name}", get(asset))
}

async fn index(headers: HeaderMap) -> Result<Response, Problem> {
    let page = dashboard::file("index.html").ok_or_else(no_such_file)?;
    let mut response = give(page, &headers, ASK_FIRST)?;
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// `/assets/<build>/<file>`, or the chart library under its own hash.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    if name == CHART_LIBRARY {
        return give(dashboard::file(CHART_LIBRARY).ok_or_else(no_such_file)?, &headers, FOR_EVER);
    }
    let (build, name) = name.split_once('/').ok_or_else(no_such_file)?;
    let file = dashboard::file(name).filter(|f| f.name != "index.html").ok_or_else(no_such_file)?;
    // while a fleet is updated, a page of the other version may ask here: it gets the file, but does not keep it
    give(file, &headers, if build == BUILD { FOR_EVER } else { ASK_FIRST })
}

fn no_such_file() -> Problem {
    Problem::new(Kind::NotFound, "there is no such file of the page")
}

/// The file in the smallest form that the caller takes.
fn give(file: &File, asked: &HeaderMap, caching: &'static str) -> Result<Response, Problem> {
    let mut response = if has_already(asked, file.hash) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if takes(asked, "br") {
        ([(header::CONTENT_ENCODING, "br")], file.brotli).into_response()
    } else if takes(asked, "gzip") {
        ([(header::CONTENT_ENCODING, "gzip")], file.gzip).into_response()
    } else {
        let plain = file
            .plain()
            .map_err(|error| Problem::new(Kind::Internal, format!("the file cannot be unpacked: {error}")))?;
        plain.into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(header::ETAG, etag(file.hash));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(response)
}

/// True when `Accept-Encoding` names the encoding with a weight above zero (RFC 9110 §12.5.3).
fn takes(headers: &HeaderMap, encoding: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).unwrap_or(1.0);
        name.trim().eq_ignore_ascii_case(encoding) && weight > 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_taken_as_asked() {
        for (text, taken) in [
            ("br", true),
            ("gzip, deflate, br;q=1.0", true),
            ("GZIP;q=0.5, BR", true),
            ("br;q=0, gzip", false),
            ("gzip", false),
            ("brotli", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))]);
            assert_eq!(takes(&headers, "br"), taken, "{text}");
        }
        assert!(!takes(&HeaderMap::new(), "br"));
    }
}
