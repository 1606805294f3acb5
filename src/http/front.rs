//! What every request passes: an id, a limit on requests in work, a deadline, a net for panics, metrics, headers.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::problem::{Kind, Problem, ProblemBody};

/// The header of request ids.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Longest id that is taken from a caller.
const MAX_ID: usize = 128;

/// What the front needs to know.
pub struct Front {
    room: Semaphore,
    deadline: Duration,
    /// Differs between processes, so that ids do not meet in one log.
    process: u64,
    count: AtomicU64,
}

impl Front {
    /// A front that takes `max_in_flight` requests at once, each for at most `deadline`.
    #[must_use]
    pub fn new(max_in_flight: usize, deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            room: Semaphore::new(max_in_flight.min(Semaphore::MAX_PERMITS)),
            deadline,
            process: RandomState::new().hash_one(std::process::id()),
            count: AtomicU64::new(0),
        })
    }

    fn new_id(&self) -> HeaderValue {
        let id = format!("{:016x}-{:x}", self.process, self.count.fetch_add(1, Ordering::Relaxed));
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("none"))
    }
}

/// The caller's id when it is short and plain, else `None`.
fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    ((1..=MAX_ID).contains(&id.len()) && id.as_bytes().iter().all(plain)).then(|| id.clone())
}

/// The trace id of a valid W3C `traceparent`.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let valid = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    (valid && trace.bytes().any(|b| b != b'0')).then_some(trace)
}

/// The middleware itself.
pub async fn pass(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = given_id(request.headers()).unwrap_or_else(|| front.new_id());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let method = request.method().clone();
    let trace = trace_id(request.headers()).map(str::to_owned);
    let mut response = admit(&front, request, next).await;
    name_instance(&mut response, &id);
    let status = response.status();
    let headers = response.headers_mut();
    secure(headers);
    headers.insert(REQUEST_ID, id.clone());
    let took = started.elapsed();
    metrics::counter!("shardwise_http_requests_total", "route" => route.to_owned(), "method" => method_name(&method), "status" => status_name(status))
        .increment(1);
    metrics::histogram!("shardwise_http_request_seconds", "route" => route.to_owned())
        .record(took.as_secs_f64());
    let id = id.to_str().unwrap_or_default();
    if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
        tracing::error!(request_id = id, trace_id = trace, %method, route, status = status.as_u16(), "request failed");
    } else {
        tracing::debug!(request_id = id, trace_id = trace, %method, route, status = status.as_u16(), took_us = took.as_micros(), "request answered");
    }
    response
}

/// Metric labels are a closed set, whatever callers send.
fn method_name(method: &axum::http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

fn status_name(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        204 => "204",
        304 => "304",
        400 => "400",
        401 => "401",
        404 => "404",
        405 => "405",
        412 => "412",
        413 => "413",
        415 => "415",
        422 => "422",
        500 => "500",
        503 => "503",
        _ => "other",
    }
}

/// One request in work; it is counted out also when its caller goes away.
struct InWork;

impl InWork {
    fn begin() -> Self {
        metrics::gauge!("shardwise_http_in_flight").increment(1.0);
        Self
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        metrics::gauge!("shardwise_http_in_flight").decrement(1.0);
    }
}

/// Let a request in when there is room, and answer for it when it takes too long.
async fn admit(front: &Front, request: Request, next: Next) -> Response {
    // probes are answered even when nothing else is
    let probe = matches!(request.uri().path(), "/livez" | "/readyz");
    let permit = front.room.try_acquire();
    if permit.is_err() && !probe {
        metrics::counter!("shardwise_http_shed_total").increment(1);
        return Problem::new(Kind::Overloaded, "too many requests are in work").into_response();
    }
    let _counted = InWork::begin();
    match tokio::time::timeout(front.deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            Problem::new(Kind::TimedOut, "the request took longer than the server allows").into_response()
        }
    }
}

/// A problem says which request it is about.
fn name_instance(response: &mut Response, id: &HeaderValue) {
    if let Some(mut body) = response.extensions_mut().remove::<ProblemBody>()
        && let Ok(id) = id.to_str()
    {
        body.instance = Some(format!("/requests/{id}"));
        if let Ok(bytes) = serde_json::to_vec(&body) {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = Body::from(bytes);
        }
    }
}

/// Headers that keep a browser from guessing, framing and leaking.
fn secure(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::X_FRAME_OPTIONS).or_insert(HeaderValue::from_static("DENY"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// A handler that panicked.
#[must_use]
pub fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let why = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(why, "a handler panicked");
    Problem::new(Kind::Internal, "the request could not be answered").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a header value"))])
    }

    #[test]
    fn only_plain_ids_are_taken() {
        for (id, taken) in
            [("a-B.3_", true), ("", false), ("a b", false), ("a\"b", false), (&"x".repeat(129), false)]
        {
            assert_eq!(given_id(&headers(REQUEST_ID, id)).is_some(), taken, "{id}");
        }
    }

    #[test]
    fn only_valid_traces_are_taken() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (text, taken) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), Some(trace)),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            ("00-xyz".to_owned(), None),
        ] {
            assert_eq!(trace_id(&headers(TRACEPARENT, &text)), taken, "{text}");
        }
    }
}
