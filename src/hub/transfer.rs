//! One request: redirects followed by our own rules, the body read up to a bound.

use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use time::OffsetDateTime;

use super::address::Endpoint;
use super::name::{HubId, Revision};
use super::{HubError, hints};
use crate::config::Secret;

/// Redirects followed for one file.
const REDIRECTS: usize = 5;
const CONNECT: std::time::Duration = std::time::Duration::from_secs(3);

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) id: &'a HubId,
    pub(super) revision: &'a Revision,
    pub(super) file: &'static str,
    pub(super) etag: Option<&'a str>,
    pub(super) limit: usize,
}

/// A file with what its headers say.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) commit: Option<String>,
    pub(super) etag: Option<String>,
    /// The model's new id, where a redirect led to one.
    pub(super) id: Option<HubId>,
}

/// The client with its endpoint.
pub(super) struct Transfer {
    client: Client,
    endpoint: Endpoint,
    authorization: Option<HeaderValue>,
}

impl Transfer {
    pub(super) fn new(endpoint: Endpoint, token: Option<Secret>) -> Result<Self, String> {
        let authorization = match token.filter(|t| !t.expose().is_empty()) {
            None => None,
            Some(_) if !endpoint.keeps_secrets() => {
                return Err("a token is sent by https only: use an https endpoint, or no token".to_owned());
            }
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                    .map_err(|_| "the hub's token holds characters that no header may".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        // fails only where another provider was installed first, which serves as well
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("shardwise/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .referer(false);
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| format!("the hub client cannot be built: {error}"))?;
        Ok(Self { client, endpoint, authorization })
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Fetch a file. `None`: it is what the caller has.
    pub(super) async fn get(&self, url: &Url, asked: &Asked<'_>) -> Result<Option<Body>, HubError> {
        let mut url = url.clone();
        let mut commit = None;
        let mut id = None;
        for _ in 0..=REDIRECTS {
            let response = self.send(&url, asked.etag).await?;
            let headers = response.headers();
            commit = commit.or_else(|| text_of(headers, "x-repo-commit"));
            match response.status() {
                StatusCode::NOT_MODIFIED if asked.etag.is_some() => return Ok(None),
                StatusCode::OK => {
                    let etag = text_of(headers, "x-linked-etag").or_else(|| text_of(headers, ETAG.as_str()));
                    let bytes = read(response, asked).await?;
                    return Ok(Some(Body { bytes, commit, etag, id }));
                }
                status if status.is_redirection() => {
                    url = self.endpoint.follow(&url, headers.get(LOCATION))?;
                    if let Some(found) = self.endpoint.model_of(&url).filter(|found| found != asked.id) {
                        id = Some(found);
                    }
                }
                status => return Err(refusal(status, headers, asked)),
            }
        }
        Err(HubError::Unavailable { reason: "it redirects in circles".to_owned(), retry_after: None })
    }

    async fn send(&self, url: &Url, etag: Option<&str>) -> Result<Response, HubError> {
        let mut request = self.client.get(url.clone());
        if self.endpoint.is_home(url) {
            if let Some(token) = &self.authorization {
                request = request.header(AUTHORIZATION, token.clone());
            }
            if let Some(tag) = etag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
                request = request.header(IF_NONE_MATCH, tag);
            }
        }
        request.send().await.map_err(|error| failure(&error))
    }
}

async fn read(mut response: Response, asked: &Asked<'_>) -> Result<Vec<u8>, HubError> {
    let too_large = || HubError::TooLarge { file: asked.file, limit: asked.limit };
    if response.content_length().is_some_and(|length| length > asked.limit as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if bytes.len().saturating_add(chunk.len()) > asked.limit {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// What a transport error means. Its own text may hold an address with a signature and is not shown.
fn failure(error: &reqwest::Error) -> HubError {
    if error.is_timeout() {
        HubError::TimedOut
    } else if error.is_body() || error.is_decode() {
        HubError::Truncated
    } else {
        let reason = if error.is_connect() { "it cannot be reached" } else { "the connection broke" };
        HubError::Unavailable { reason: reason.to_owned(), retry_after: None }
    }
}

/// What a status means. The hub tells cases apart in `X-Error-Code`.
fn refusal(status: StatusCode, headers: &HeaderMap, asked: &Asked<'_>) -> HubError {
    let id = asked.id.to_string();
    let code = text_of(headers, "x-error-code").unwrap_or_default();
    let retry_after = hints::wait_of(headers, OffsetDateTime::now_utc());
    match (status, code.as_str()) {
        (_, "GatedRepo") => HubError::Gated(id),
        (_, "RepoNotFound") => HubError::NotFound(id),
        (_, "RevisionNotFound") => HubError::NoRevision { id, revision: asked.revision.to_string() },
        (_, "EntryNotFound") => HubError::NoConfig(id),
        (StatusCode::UNAUTHORIZED, _) => HubError::TokenRefused,
        (StatusCode::FORBIDDEN, _) => HubError::Gated(id),
        (StatusCode::NOT_FOUND | StatusCode::GONE, _) if asked.file == "config.json" => {
            HubError::NotFound(id)
        }
        (StatusCode::NOT_FOUND | StatusCode::GONE, _) => HubError::NoConfig(id),
        (StatusCode::TOO_MANY_REQUESTS, _) => HubError::RateLimited { retry_after },
        (StatusCode::REQUEST_TIMEOUT, _) => HubError::TimedOut,
        (status, _) if status.is_server_error() => {
            HubError::Unavailable { reason: format!("status {}", status.as_u16()), retry_after }
        }
        (status, _) => HubError::Internal(format!("the hub answered with status {}", status.as_u16())),
    }
}

/// A header of at most 256 plain characters.
fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (!text.is_empty() && text.len() <= 256).then(|| text.to_owned())
}
