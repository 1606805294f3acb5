//! A configuration read for its own sake: nothing is stored.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::models::{ModelFacts, parts, read, view};
use super::{ConfigNote, ServiceError};
use crate::catalogue::models;
use crate::planner::model::ModelSpec;
use crate::planner::sizes::ModelSizes;

/// A configuration that was read and not stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Inspected {
    pub facts: ModelFacts,
    /// Weights by purpose, the cache of a token, and the TP sizes that vLLM takes.
    pub sizes: ModelSizes,
    /// Each kind of decoder layer, with the number of layers of that kind.
    pub layer_kinds: Vec<LayerKindCount>,
    /// The models of the catalogue that have exactly this shape: the same weights, cache and speed.
    pub same_shape: Vec<String>,
    /// What the reader did not use, or took by default.
    pub notes: Vec<ConfigNote>,
}

/// Decoder layers of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LayerKindCount {
    /// E.g. `full_attention+moe`.
    pub name: String,
    pub layers: u64,
    pub parameters_per_layer: u64,
}

/// Read a configuration without storing it.
///
/// # Errors
/// [`ServiceError::Invalid`] with pointers into the document that was sent.
pub fn inspect(body: &Value) -> Result<Inspected, ServiceError> {
    let (config, side, place) = parts(body).map_err(ServiceError::Invalid)?;
    let read = read("inspected", config, side).map_err(|faults| {
        ServiceError::Invalid(faults.into_iter().map(|fault| fault.within(&place)).collect())
    })?;
    let spec = &read.spec;
    let layer_kinds = spec.kinds.iter().enumerate().map(|(kind, shape)| LayerKindCount {
        name: shape.name.clone(),
        layers: spec.layers.iter().filter(|layer| **layer == kind).count() as u64,
        parameters_per_layer: shape.tensors.iter().fold(0, |sum, t| sum.saturating_add(t.parameters())),
    });
    let layer_kinds = layer_kinds.collect();
    let same_shape = alike(spec);
    let shown = view("inspected", "request", false, config, side, &read);
    Ok(Inspected { facts: shown.facts, sizes: shown.sizes, layer_kinds, same_shape, notes: shown.notes })
}

/// The models of the catalogue that are built alike.
fn alike(spec: &ModelSpec) -> Vec<String> {
    models::all()
        .iter()
        .filter(|entry| entry.architecture == spec.architecture && entry.parameters == spec.parameters())
        .filter(|entry| entry.spec().is_ok_and(|own| models::same_shape(&own, spec)))
        .map(|entry| entry.id.to_owned())
        .collect()
}
