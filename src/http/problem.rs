//! Every error answer: RFC 9457 `application/problem+json`, from one table of kinds.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::extract::Path;
pub use super::kind::{Kind, KindPage};

use crate::ingest::json::Malformed;
use crate::ingest::{FieldError, Pointer};
use crate::service::{HubError, ServiceError};

/// The media type of problems.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A fault of one part of a request.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ProblemItem {
    /// JSON pointer into the body as a URI fragment (RFC 6901 §6), e.g. `#/engine/version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Name of the query parameter or part of the path, when the fault is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Stable code in snake case.
    pub code: String,
    /// One sentence.
    pub detail: String,
    /// What would have been accepted, when it can be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub allowed: Vec<String>,
    /// What came, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<Value>,
}

/// The body of an error answer (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ProblemBody {
    /// Address of the page about this kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    /// The HTTP status again.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// This request: `/requests/` and its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Stable code: the last part of `type`.
    pub code: String,
    /// Every fault of the request, when there are faults in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<ProblemItem>,
}

/// Faults told in one answer: a hostile body must not get an answer of its own size.
const MOST_ITEMS: usize = 100;

/// An error answer in the making.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<ProblemItem>,
    /// Value of the ETag header.
    etag: Option<String>,
}

impl Problem {
    /// A problem of a kind, with what happened this time.
    #[must_use]
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), etag: None }
    }

    /// A request whose body has faults.
    #[must_use]
    pub fn invalid(faults: Vec<FieldError>) -> Self {
        let detail = match faults.as_slice() {
            [one] => one.to_string(),
            many if many.len() <= MOST_ITEMS => format!("{} faults; each is in `errors`", many.len()),
            many => format!("{} faults; the first {MOST_ITEMS} are in `errors`", many.len()),
        };
        let errors = faults
            .into_iter()
            .take(MOST_ITEMS)
            .map(|f| ProblemItem {
                pointer: Some(f.pointer),
                parameter: None,
                code: f.code.to_owned(),
                detail: f.detail,
                allowed: f.allowed,
                got: f.got,
            })
            .collect();
        Self { errors, ..Self::new(Kind::InvalidRequest, detail) }
    }

    /// A query parameter, or a part of the path, with a fault.
    #[must_use]
    pub fn parameter(name: &str, code: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let item = ProblemItem {
            pointer: None,
            parameter: Some(name.to_owned()),
            code: code.to_owned(),
            detail: detail.clone(),
            allowed: Vec::new(),
            got: None,
        };
        Self { errors: vec![item], ..Self::new(Kind::InvalidQuery, format!("{name}: {detail}")) }
    }

    fn of_hub(error: &HubError) -> Self {
        let kind = match error {
            HubError::Gated(_) | HubError::TokenRefused => Kind::ModelGated,
            HubError::NotFound(_) | HubError::NoConfig(_) | HubError::NoRevision { .. } => {
                Kind::ModelNotFound
            }
            HubError::TimedOut => Kind::HubTimedOut,
            HubError::BadName | HubError::BadRevision => {
                return Self::invalid(vec![FieldError::at(
                    &Pointer::root().key("model"),
                    "not_allowed",
                    error.to_string(),
                )]);
            }
            _ => Kind::HubUnavailable,
        };
        Self::new(kind, error.to_string())
    }

    /// Query parameters with the faults that a reader found in them.
    #[must_use]
    pub fn parameters<'n>(faults: impl IntoIterator<Item = (&'n str, FieldError)>) -> Self {
        let errors: Vec<ProblemItem> = faults
            .into_iter()
            .map(|(name, fault)| ProblemItem {
                pointer: None,
                parameter: Some(name.to_owned()),
                code: fault.code.to_owned(),
                detail: fault.detail,
                allowed: fault.allowed,
                got: fault.got,
            })
            .collect();
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.parameter.as_deref().unwrap_or_default(), one.detail),
            many => format!("{} faults; each is in `errors`", many.len()),
        };
        Self { errors, ..Self::new(Kind::InvalidQuery, detail) }
    }

    /// Its body, without the request's id.
    #[must_use]
    pub fn body(&self) -> ProblemBody {
        let page = self.kind.page();
        ProblemBody {
            kind: format!("/problems/{}", page.code),
            title: page.title.to_owned(),
            status: page.status,
            detail: self.detail.clone(),
            instance: None,
            code: page.code.to_owned(),
            errors: self.errors.clone(),
        }
    }
}

impl From<Malformed> for Problem {
    fn from(fault: Malformed) -> Self {
        Self::new(Kind::MalformedJson, fault.to_string())
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Malformed(fault) => fault.into(),
            ServiceError::Invalid(faults) => Self::invalid(faults),
            ServiceError::NoPlan(id) => Self::new(Kind::PlanNotFound, format!("no plan is kept under {id}")),
            ServiceError::NoModel(id) => {
                Self::new(Kind::ModelNotFound, format!("no model is kept under {id}"))
            }
            ServiceError::NoCluster(name) => {
                Self::new(Kind::ClusterNotFound, format!("no cluster is saved under {name}"))
            }
            ServiceError::NoObservation(id) => {
                Self::new(Kind::ObservationNotFound, format!("no observation is kept under {id}"))
            }
            ServiceError::Unexpected { current } => {
                let detail = match &current {
                    Some(_) => "what is stored has another ETag",
                    None => "nothing is stored under this id",
                };
                Self {
                    etag: current.map(|hash| format!("\"{hash}\"")),
                    ..Self::new(Kind::PreconditionFailed, detail)
                }
            }
            ServiceError::Hub(error) => Self::of_hub(&error),
            ServiceError::Unavailable(why) => {
                tracing::debug!(why, "a request needed the database");
                Self::new(
                    Kind::DatabaseUnavailable,
                    "the database cannot be reached; planning goes on without it",
                )
            }
            ServiceError::Internal(why) => {
                tracing::error!(why, "a request failed");
                Self::new(Kind::Internal, "the request could not be answered")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.body();
        let mut response = (self.kind.status(), Json(&body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.kind.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(etag) = self.etag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
            headers.insert(header::ETAG, etag);
        }
        // the front adds the request's id, which only it knows
        response.extensions_mut().insert(body);
        response
    }
}

/// The page about a kind of problem.
#[utoipa::path(
    get, path = "/problems/{code}", operation_id = "get_problem", tag = "about",
    params(("code" = String, Path, description = "The `code` of a problem")),
    responses((status = 200, description = "What it means and what to do", body = KindPage),
              (status = 404, description = "No such kind", body = ProblemBody, content_type = "application/problem+json"))
)]
pub async fn get_problem(Path(code): Path<String>) -> Result<Json<KindPage>, Problem> {
    Kind::ALL
        .iter()
        .map(|kind| kind.page())
        .find(|page| page.code == code)
        .map(Json)
        .ok_or_else(|| Problem::new(Kind::NotFound, "there is no problem of this code"))
}
