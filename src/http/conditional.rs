//! Entity tags and the conditions that callers set on them (RFC 9110 §13).

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Kind, Problem};
use crate::service::{Expect, Put};

/// A strong entity tag.
#[must_use]
pub fn etag(hash: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// True when the caller has this version already: `If-None-Match` names it, weak or strong, or any.
#[must_use]
pub fn has_already(headers: &HeaderMap, hash: &str) -> bool {
    tags(headers, &header::IF_NONE_MATCH).is_some_and(|tags| tags.iter().any(|tag| tag == "*" || tag == hash))
}

/// The answer to a read: what is stored under this hash, or that the caller has it already.
pub fn stored<T: Serialize>(headers: &HeaderMap, hash: &str, body: T) -> Response {
    let mut response = if has_already(headers, hash) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(body).into_response()
    };
    response.headers_mut().insert(header::ETAG, etag(hash));
    response
}

/// The answer to a write: what is stored now under this hash, and where, when it is new.
pub fn written<T: Serialize>(put: Put, place: &str, hash: &str, body: T) -> Response {
    let status = match put {
        Put::Created => StatusCode::CREATED,
        Put::Replaced => StatusCode::OK,
    };
    let mut response = (status, [(header::ETAG, etag(hash))], Json(body)).into_response();
    if let (Put::Created, Ok(location)) = (put, HeaderValue::from_str(place)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// What a caller expects to be stored before it writes.
///
/// # Errors
/// `invalid_query` when the conditions cannot be read: ignoring one could overwrite somebody's work.
pub fn expected(headers: &HeaderMap) -> Result<Expect, Problem> {
    let unclear = |name: &str| {
        Problem::parameter(name, "malformed", "expected `*` or one strong entity tag, e.g. \"abc\"")
    };
    match (tags(headers, &header::IF_MATCH), tags(headers, &header::IF_NONE_MATCH)) {
        (None, None) => Ok(Expect::Anything),
        (Some(tags), None) => match tags.as_slice() {
            [tag] if tag != "*" => Ok(Expect::Hash(tag.clone())),
            [_] => Err(Problem::new(
                Kind::InvalidQuery,
                "If-Match: * is not offered; send the ETag that GET answered with",
            )),
            _ => Err(unclear("If-Match")),
        },
        (None, Some(tags)) => match tags.as_slice() {
            [tag] if tag == "*" => Ok(Expect::Nothing),
            _ => Err(unclear("If-None-Match")),
        },
        (Some(_), Some(_)) => Err(unclear("If-Match with If-None-Match")),
    }
}

/// The tags of a header, without quotes and weakness marks. `None` without the header.
fn tags(headers: &HeaderMap, name: &header::HeaderName) -> Option<Vec<String>> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let texts = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    Some(texts.map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_known_version_is_recognised() {
        for (value, known) in
            [("\"a\"", true), ("W/\"a\"", true), ("\"b\", \"a\"", true), ("*", true), ("\"b\"", false)]
        {
            assert_eq!(has_already(&headers(&[(header::IF_NONE_MATCH, value)]), "a"), known, "{value}");
        }
        assert!(!has_already(&HeaderMap::new(), "a"));
    }

    #[test]
    fn conditions_on_writes_are_never_ignored() {
        let of = |pairs: &[(header::HeaderName, &'static str)]| expected(&headers(pairs)).ok();
        assert_eq!(of(&[]), Some(Expect::Anything));
        assert_eq!(of(&[(header::IF_MATCH, "\"a\"")]), Some(Expect::Hash("a".to_owned())));
        assert_eq!(of(&[(header::IF_NONE_MATCH, "*")]), Some(Expect::Nothing));
        assert_eq!(of(&[(header::IF_NONE_MATCH, "\"a\"")]), None);
        assert_eq!(of(&[(header::IF_MATCH, "\"a\", \"b\"")]), None);
        assert_eq!(of(&[(header::IF_MATCH, "*")]), None);
    }
}
