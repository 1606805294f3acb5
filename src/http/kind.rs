//! The kinds of problem, with what their pages say.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// A kind of problem: what a program decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MalformedJson,
    InvalidQuery,
    SignatureRefused,
    NotFound,
    PlanNotFound,
    ModelNotFound,
    ClusterNotFound,
    ObservationNotFound,
    MethodNotAllowed,
    PreconditionFailed,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidRequest,
    Internal,
    Overloaded,
    TimedOut,
    DatabaseUnavailable,
    ModelGated,
    HubUnavailable,
    HubTimedOut,
}

/// What stands on the page of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct KindPage {
    /// Stable code; the `code` of the problem.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    pub title: &'static str,
    /// When it happens.
    pub meaning: &'static str,
    /// What to do on seeing it.
    pub remedy: &'static str,
}

impl Kind {
    /// Every kind, in order of status.
    pub const ALL: [Self; 20] = [
        Self::MalformedJson,
        Self::InvalidQuery,
        Self::SignatureRefused,
        Self::NotFound,
        Self::PlanNotFound,
        Self::ModelNotFound,
        Self::ClusterNotFound,
        Self::ObservationNotFound,
        Self::MethodNotAllowed,
        Self::PreconditionFailed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidRequest,
        Self::Internal,
        Self::Overloaded,
        Self::TimedOut,
        Self::DatabaseUnavailable,
        Self::ModelGated,
        Self::HubUnavailable,
        Self::HubTimedOut,
    ];

    /// The page of this kind.
    #[must_use]
    pub const fn page(self) -> KindPage {
        let (code, status, title, meaning, remedy) = match self {
            Self::MalformedJson => (
                "malformed_json",
                400,
                "The body is not JSON",
                "The body cannot be read as JSON, or is nested too deep. The detail names line and column.",
                "Correct the body. NaN and Infinity are not JSON.",
            ),
            Self::InvalidQuery => (
                "invalid_query",
                400,
                "A query parameter is not valid",
                "A parameter of the address has a wrong value, or there is no such parameter.",
                "Correct the parameters named in `errors`.",
            ),
            Self::SignatureRefused => (
                "signature_refused",
                401,
                "The request is not signed by Slack",
                "The signature is missing, wrong, older than five minutes, or came before.",
                "Check slack.signing_secret and the clock of this machine.",
            ),
            Self::NotFound => (
                "not_found",
                404,
                "There is nothing here",
                "No resource has this address.",
                "See /docs for every address.",
            ),
            Self::PlanNotFound => (
                "plan_not_found",
                404,
                "No such plan",
                "No plan is kept under this id: it was never made here, or was not stored, or is too old.",
                "Send the question to POST /v1/plans again: the same question gives the same plan and id.",
            ),
            Self::ModelNotFound => (
                "model_not_found",
                404,
                "No such model",
                "Neither the catalogue nor the database has a model with this id.",
                "Look in GET /v1/models, or store its config.json with PUT.",
            ),
            Self::ClusterNotFound => (
                "cluster_not_found",
                404,
                "No such cluster",
                "No cluster is saved under this name.",
                "Look in GET /v1/clusters, or save it with PUT.",
            ),
            Self::ObservationNotFound => (
                "observation_not_found",
                404,
                "No such observation",
                "No start-up is kept under this id: it was never sent here, was not stored, or was deleted.",
                "Look in GET /v1/observations, or send the log to POST /v1/observations again.",
            ),
            Self::MethodNotAllowed => (
                "method_not_allowed",
                405,
                "This method is not offered here",
                "The address exists, the method does not.",
                "The Allow header lists the methods.",
            ),
            Self::PreconditionFailed => (
                "precondition_failed",
                412,
                "The stored model is not the expected one",
                "If-Match or If-None-Match did not hold for what is stored.",
                "GET the model, look at what changed, and send the new ETag.",
            ),
            Self::BodyTooLarge => (
                "body_too_large",
                413,
                "The body is too large",
                "The body has more bytes than the server takes.",
                "Send less. The detail names the limit.",
            ),
            Self::UnsupportedMediaType => (
                "unsupported_media_type",
                415,
                "The body is not announced as JSON",
                "The Content-Type is neither application/json nor a +json type.",
                "Send Content-Type: application/json.",
            ),
            Self::InvalidRequest => (
                "invalid_request",
                422,
                "The request has faults",
                "The body is JSON, but some of it is unknown, of the wrong type, out of range or not supported.",
                "Correct every item of `errors`; each has a JSON pointer, a code and, where it can be listed, what is allowed.",
            ),
            Self::Internal => (
                "internal",
                500,
                "Something went wrong here",
                "A fault of the service.",
                "Report it with the request id.",
            ),
            Self::Overloaded => (
                "overloaded",
                503,
                "Too many requests are in work",
                "The server is at its limit of requests in work.",
                "Wait for Retry-After, then send the request again.",
            ),
            Self::TimedOut => (
                "timed_out",
                503,
                "The request took too long",
                "The body came too slowly, or the answer took longer than the server allows.",
                "Send the request again.",
            ),
            Self::DatabaseUnavailable => (
                "database_unavailable",
                503,
                "The database is away",
                "Nothing can be stored or looked up in the database now. Planning goes on without it.",
                "Wait for Retry-After, then send the request again. Nothing was stored.",
            ),
            Self::ModelGated => (
                "model_gated",
                403,
                "The hub does not give this model out",
                "The model is gated or private on the hub, and the service has no token that may read it.",
                "Accept the model's terms on the hub and configure HF_TOKEN, or send its config.json in the question.",
            ),
            Self::HubUnavailable => (
                "hub_unavailable",
                502,
                "The hub gave no usable answer",
                "The model is known only to the hub, and the hub is away, is full, or sent something else than a configuration.",
                "Send the question again later, or with the model's config.json in it.",
            ),
            Self::HubTimedOut => (
                "hub_timed_out",
                504,
                "The hub did not answer in time",
                "The model is known only to the hub, and the hub was too slow.",
                "Send the question again, or with the model's config.json in it.",
            ),
        };
        KindPage { code, status, title, meaning, remedy }
    }

    pub(super) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.page().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
