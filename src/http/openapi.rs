//! The OpenAPI document: what the routes declare, and the examples that a test replays.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa::openapi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "shardwise",
        description = "How should this model be laid over these GPUs, what will it hold, and how fast will it be?\n\n\
                       Every error is `application/problem+json` (RFC 9457) with a stable `code`. Every answer has \
                       `X-Request-Id`; a caller's own is kept when it is short and plain. Bytes are integers of bytes, \
                       and names carry units.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "The server that this document comes from")),
    tags(
        (name = "plans", description = "Layouts of a model over a cluster"),
        (name = "fleet", description = "Questions over many plans: what fits, how many GPUs, curves, batches"),
        (name = "models", description = "Model configurations: the catalogue's and the stored ones"),
        (name = "hardware", description = "The data that answers rest on, with their sources"),
        (name = "checks", description = "Commands and manifests before they are deployed, and engines after"),
        (name = "kv", description = "The cache over a fleet: prefixes, moves, hand-overs, sequences"),
        (name = "about", description = "The service itself"),
    )
)]
struct Frame;

/// The document without its operations.
pub(super) fn frame() -> openapi::OpenApi {
    Frame::openapi()
}

/// An example of an operation: what is sent and what comes back.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// One line: what it shows.
    pub summary: String,
    pub operation: String,
    pub method: String,
    /// Path with parameters filled in, and query.
    pub path: String,
    /// Body to send, when there is one.
    pub request: Option<Value>,
    pub status: u16,
    /// Body of the answer. Only what an example is about: objects may leave out keys, `"…"` stands for any value.
    pub response: Option<Value>,
}

macro_rules! examples {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../openapi/examples/", $name, ".json")))),*]
    };
}

/// The committed examples by name, in the order in which they can be replayed.
pub const EXAMPLES: &[(&str, &str)] = examples![
    "plan_by_id",
    "plan_from_config",
    "plan_compared_by_hand",
    "plan_that_does_not_fit",
    "plan_with_faults",
    "plan_unknown_id",
    "fits_of_a_family",
    "fits_by_link",
    "fits_with_a_wrong_parameter",
    "sizing_for_users",
    "sizing_with_two_loads",
    "sweep_over_tp",
    "batch_matrix",
    "question_in_words",
    "question_unclear",
    "models_search",
    "model_put",
    "model_get",
    "model_inspect",
    "model_refresh",
    "model_delete",
    "gpus_search",
    "nodes_search",
    "links_search",
    "engines",
    "cluster_parse",
    "cluster_unreadable",
    "check_command",
    "check_manifest",
    "launches",
    "launch_unknown_platform",
    "observation",
    "observations_list",
    "observation_get",
    "accuracy",
    "observation_delete",
    "cluster_parse_matrix",
    "cluster_put",
    "cluster_get",
    "clusters_list",
    "plan_on_a_saved_cluster",
    "cluster_delete",
    "kv_prefixes",
    "kv_moves",
    "kv_handovers",
    "kv_sequences",
    "livez",
    "readyz",
    "problem_page",
    "openapi",
];

/// The document as it is served, committed in `openapi/v1.json`: two blanks of indent, a newline at the end.
#[must_use]
pub fn openapi_json() -> String {
    let (_, document) = super::described().split_for_parts();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    add_examples(&mut document);
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// Put each example under the body and the answer that it shows.
fn add_examples(document: &mut Value) {
    let examples =
        EXAMPLES.iter().filter_map(|(name, text)| Some((*name, serde_json::from_str::<Example>(text).ok()?)));
    let by_operation = examples.fold(BTreeMap::<String, Vec<_>>::new(), |mut all, (name, example)| {
        all.entry(example.operation.clone()).or_default().push((name, example));
        all
    });
    let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) else { return };
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
        for (name, example) in by_operation.get(id).into_iter().flatten() {
            if let Some(request) = &example.request {
                show(operation.pointer_mut("/requestBody/content"), name, &example.summary, request);
            }
            if let Some(response) = &example.response {
                let content = operation.pointer_mut(&format!("/responses/{}/content", example.status));
                show(content, name, &example.summary, response);
            }
        }
    }
}

/// Add an example under every media type of a content object.
fn show(content: Option<&mut Value>, name: &str, summary: &str, value: &Value) {
    for media in content.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Some(media) = media.as_object_mut() {
            let examples = media.entry("examples").or_insert_with(|| json!({}));
            examples[name] = json!({ "summary": summary, "value": value });
        }
    }
}
