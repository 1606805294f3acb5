//! How an answer of many rows is written: by `?format=`, else by the Accept header.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::extract::Query;
use crate::http::problem::Problem;

/// How the rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Csv,
    Markdown,
}

impl Form {
    /// JSON and CSV: what most answers of many rows come in.
    pub(super) const PLAIN: [Self; 2] = [Self::Json, Self::Csv];
    pub(super) const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Markdown];

    const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Markdown => "markdown",
        }
    }

    const fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Markdown => "text/markdown",
        }
    }

    /// The form that the caller wants, one of `offered`. An Accept header that names none of them gets JSON.
    ///
    /// # Errors
    /// `invalid_query` for another `format`.
    pub(super) fn wanted(query: &Query, headers: &HeaderMap, offered: &[Self]) -> Result<Self, Problem> {
        if let Some(name) = query.get("format") {
            let names: Vec<&str> = offered.iter().map(|form| form.name()).collect();
            return offered.iter().copied().find(|form| form.name() == name).ok_or_else(|| {
                Problem::parameter("format", "not_allowed", format!("expected one of {}", names.join(", ")))
            });
        }
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let first = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
        let found = first.into_iter().find_map(|media| match media {
            "*/*" => Some(Self::Json),
            media => offered.iter().copied().find(|form| form.media() == media),
        });
        Ok(found.unwrap_or(Self::Json))
    }

    /// An answer as a text of this form. What comes depends on the Accept header.
    pub(super) fn table(self, text: String) -> Response {
        let media = HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Markdown => "text/markdown; charset=utf-8",
        });
        ([(header::CONTENT_TYPE, media)], Body::from(text)).into_response()
    }
}

/// Say that the form of this answer depends on the Accept header.
pub(super) fn by_accept(mut response: Response) -> Response {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}
