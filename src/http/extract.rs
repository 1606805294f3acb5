//! Bodies and query parameters, with problems instead of the framework's own rejections.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;

use super::State;
use super::problem::{Kind, Problem};
use crate::ingest::fields::hint;
use crate::ingest::json;

/// The bytes of a body that is announced as JSON and within the limit.
pub struct JsonBytes(pub Bytes);

impl FromRequest<State> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &State) -> Result<Self, Problem> {
        let announced = announced_as_json(request.headers());
        // the body is read in any case: a caller that is still sending would miss the answer
        let bytes = read(request.into_body(), state.body_limit).await?;
        announced.map(|()| Self(bytes))
    }
}

/// A JSON body as a value, with its duplicate keys.
pub struct JsonDocument(pub json::Document);

impl FromRequest<State> for JsonDocument {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &State) -> Result<Self, Problem> {
        let JsonBytes(bytes) = JsonBytes::from_request(request, state).await?;
        Ok(Self(json::read(&bytes)?))
    }
}

/// The named parts of a path.
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        #[expect(clippy::disallowed_types, reason = "this is the wrapper with a problem for its rejection")]
        let raw = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        raw.map(|path| Self(path.0))
            .map_err(|fault| Problem::parameter("path", "malformed", fault.body_text()))
    }
}

fn announced_as_json(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    let shown: String = essence.chars().take(80).collect();
    Err(Problem::new(Kind::UnsupportedMediaType, format!("expected application/json, got {shown}")))
}

/// How much of a body that is too large is read before it is refused, and for how long.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// The bytes of a body of at most `limit`.
pub(super) async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(Kind::BodyTooLarge, format!("the body has more than {limit} bytes"));
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        if announced <= DRAIN_BYTES as u64 {
            let _ = tokio::time::timeout(DRAIN_FOR, drain(body)).await;
        }
        return Err(too_large());
    }
    match axum::body::to_bytes(body, limit).await {
        Ok(bytes) => Ok(bytes),
        Err(error) => {
            let source = std::error::Error::source(&error);
            if source.is_some_and(|s| s.to_string().contains("length limit")) {
                Err(too_large())
            } else {
                Err(Problem::new(Kind::MalformedJson, "the body could not be read to its end"))
            }
        }
    }
}

/// Read and drop what comes.
async fn drain(body: Body) {
    let mut body = std::pin::pin!(body);
    let mut dropped = 0;
    while dropped < DRAIN_BYTES {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => dropped += frame.data_ref().map_or(0, Bytes::len),
            _ => return,
        }
    }
}

/// Query parameters, each of a known name.
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// The parameters of an address; only `known` ones are allowed, each once.
    ///
    /// # Errors
    /// `invalid_query` for an unknown name, a repeated one or text that does not decode.
    pub fn of(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut found = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                percent_decoded(text).ok_or_else(|| {
                    Problem::parameter("query", "malformed", "not valid percent-encoded UTF-8")
                })
            };
            let (name, value) = (decoded(name)?, decoded(value)?);
            if !known.contains(&name.as_str()) {
                let shown: String = name.chars().take(64).collect();
                let detail = format!("there is no parameter `{shown}` here{}", hint(&name, known));
                return Err(Problem::parameter(&shown, "unknown_parameter", detail));
            }
            if found.insert(name.clone(), value).is_some() {
                return Err(Problem::parameter(&name, "duplicate", "given more than once"));
            }
        }
        Ok(Self(found))
    }

    /// A parameter as it came.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A text of at most `most` characters without control characters; empty when it is not given.
    ///
    /// # Errors
    /// `invalid_query` otherwise.
    pub fn text(&self, name: &str, most: usize) -> Result<&str, Problem> {
        let text = self.get(name).unwrap_or_default();
        if text.chars().count() > most || text.chars().any(char::is_control) {
            let detail = format!("expected at most {most} characters, none of them a control character");
            return Err(Problem::parameter(name, "out_of_range", detail));
        }
        Ok(text)
    }

    /// A positive number; one above `most` counts as `most`.
    ///
    /// # Errors
    /// `invalid_query` when it is no positive integer.
    pub fn capped(&self, name: &str, default: u32, most: u32) -> Result<u32, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse::<u64>() {
            Ok(n) if n > 0 => Ok(u32::try_from(n).unwrap_or(most).min(most)),
            _ => Err(Problem::parameter(name, "out_of_range", format!("expected an integer of 1 to {most}"))),
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_strict() {
        let known = ["search", "page_size"];
        let query = Query::of(Some("search=a%20b+c%C3%BC&page_size=1000"), &known).expect("valid");
        assert_eq!(query.text("search", 9).expect("a text"), "a b cü");
        assert_eq!(query.capped("page_size", 50, 200).expect("a number"), 200);
        for (text, code) in [
            ("serach=a", "unknown_parameter"),
            ("search=a&search=b", "duplicate"),
            ("search=%zz", "malformed"),
            ("search=%ff", "malformed"),
        ] {
            let problem = Query::of(Some(text), &known).err().expect("refused");
            assert_eq!(problem.body().errors[0].code, code, "{text}");
        }
        for text in ["page_size=0", "page_size=-1", "page_size=x", "page_size=99999999999999999999"] {
            assert!(
                Query::of(Some(text), &known).expect("known").capped("page_size", 1, 9).is_err(),
                "{text}"
            );
        }
        assert!(Query::of(Some("search=%00"), &known).expect("known").text("search", 9).is_err());
    }
}
