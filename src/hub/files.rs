//! What stands in the files of a hub.

use serde::Deserialize;
use serde_json::Value;

use super::HubError;
use crate::ingest::json;
use crate::planner::units::Bytes;

#[derive(Deserialize)]
struct Index {
    metadata: Option<IndexMetadata>,
}

#[derive(Deserialize)]
struct IndexMetadata {
    #[serde(default, deserialize_with = "whole")]
    total_size: Option<u64>,
}

/// Some indexes write the size as a float.
fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.as_u64().or_else(|| value.as_f64().filter(|f| *f > 0.0).map(|f| Bytes::from_f64(f).get())))
}

/// Total bytes of the tensors that an index of safetensors lists, where it says so.
pub(super) fn total_size_of(bytes: &[u8], file: &'static str) -> Result<Option<u64>, HubError> {
    let index: Index = serde_json::from_slice(bytes)
        .map_err(|error| HubError::NotJson { file, reason: error.to_string() })?;
    Ok(index.metadata.and_then(|m| m.total_size))
}

/// A file that holds one JSON object.
pub(super) fn object_of(bytes: &[u8], file: &'static str) -> Result<Value, HubError> {
    let not_json = |reason: String| HubError::NotJson { file, reason };
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'<') {
        return Err(not_json("it looks like a web page".to_owned()));
    }
    let document = json::read_config(bytes).map_err(|error| not_json(error.to_string()))?;
    if document.value.is_object() { Ok(document.value) } else { Err(not_json("it is no object".to_owned())) }
}
