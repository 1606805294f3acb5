//! What advice in detail may look at beyond the question: the same model as it is published in fewer bits, and GPU products
//! that the cluster lacks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::checks::quantised_copy;
use super::question::{from_catalogue, read_config};
use crate::catalogue::hardware;
use crate::catalogue::models;
use crate::ingest::request::{ModelRequest, ModelSource, PlanRequest};
use crate::ingest::{Pointer, cluster};
use crate::planner::hardware::{Cluster, NodePool};
use crate::planner::input::Beyond;
use crate::planner::model::ModelSpec;

/// Products that are sold today for serving, by their catalogue keys, where each has its sources. A node holds eight.
const PRODUCTS: &[&str] = &[
    "h100-sxm5-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "b300-sxm-288gb",
    "mi300x",
    "mi325x",
    "mi355x",
    "rtx-pro-6000-server",
];
const GPUS_OF_A_NODE: u64 = 8;
/// A published checkpoint of up to this times the bytes of one in int4 is in four bits too: formats differ in their scales and in
/// what they leave whole.
const FOUR_BITS_AT_MOST: f64 = 1.3;
/// Published checkpoints that are planned, the smallest first.
const MOST_CHECKPOINTS: usize = 3;

/// Look it up. What cannot be read is left out.
pub(super) fn of(request: &PlanRequest, model: &ModelSpec, cluster: &Cluster) -> Beyond {
    let checkpoints = checkpoints(model);
    let near = |four: &Arc<ModelSpec>| {
        let least = four.weights_bytes().as_f64() * FOUR_BITS_AT_MOST;
        checkpoints.iter().any(|published| published.weights_bytes().as_f64() <= least)
    };
    let in_four_bits = in_four_bits(&request.model, model).filter(|four| !near(four));
    Beyond { checkpoints, in_four_bits, products: products(cluster) }
}

/// The model's quantised copies in the catalogue that weigh less than it does.
fn checkpoints(model: &ModelSpec) -> Vec<Arc<ModelSpec>> {
    let own = model.weights_bytes();
    let mut found: Vec<Arc<ModelSpec>> = models::all()
        .iter()
        .filter(|entry| quantised_copy(entry.id).is_some_and(|(base, _)| base == model.name))
        .filter_map(|entry| entry.spec().ok())
        .filter(|spec| spec.weights_bytes() < own)
        .map(Arc::new)
        .collect();
    found.sort_by_key(|spec| spec.weights_bytes());
    found.truncate(MOST_CHECKPOINTS);
    found
}

/// The same tensors in four bits, by the rules for such checkpoints.
fn in_four_bits(request: &ModelRequest, model: &ModelSpec) -> Option<Arc<ModelSpec>> {
    let request = ModelRequest {
        weights: Some("int4".to_owned()),
        quantized_on_load: None,
        weights_bytes: None,
        ..request.clone()
    };
    let read = match &request.source {
        ModelSource::Config { config, name } => read_config(name, config, None, &request),
        ModelSource::Id { id, .. } => from_catalogue(id, &request),
    };
    read.ok().map(|resolved| resolved.spec).filter(|spec| spec.weights_bytes() < model.weights_bytes())
}

fn products(cluster: &Cluster) -> Vec<NodePool> {
    let has = |key: &str| cluster.pools.iter().any(|pool| pool.gpu.key == key);
    PRODUCTS.iter().filter(|key| !has(key)).filter_map(|key| node_of(key)).collect()
}

/// A node of a product, with the links that the catalogue gives it.
fn node_of(key: &str) -> Option<NodePool> {
    let text: Value = json!(format!("{GPUS_OF_A_NODE}x {key}"));
    let read = cluster::from_json(&text, &Pointer::root(), hardware::catalogue()).ok()?;
    read.pools.into_iter().next()
}
