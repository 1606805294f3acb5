//! `/v1/clusters:parse`.

use axum::Json;

use crate::http::extract::JsonDocument;
use crate::http::problem::{Problem, ProblemBody};
use crate::http::schema::ClusterBody;
use crate::ingest::fields::Fields;
use crate::ingest::{FieldError, Pointer};
use crate::service::{self, Understood};

/// Read a cluster and say what was understood, without planning.
#[utoipa::path(
    post, path = "/v1/clusters:parse", operation_id = "parse_cluster", tag = "hardware",
    request_body = ClusterBody,
    responses(
        (status = 200, description = "The cluster as understood", body = Understood),
        (status = 400, description = "The body is not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not announced as JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be read as a cluster", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn parse_cluster(JsonDocument(document): JsonDocument) -> Result<Json<Understood>, Problem> {
    let mut faults: Vec<FieldError> = document.duplicates;
    let mut cluster = None;
    if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
        cluster = fields.required("cluster");
        fields.finish();
    }
    match cluster {
        Some(cluster) if faults.is_empty() => {
            Ok(Json(service::parse_cluster(cluster, &Pointer::root().key("cluster"))?))
        }
        _ => Err(Problem::invalid(faults)),
    }
}
