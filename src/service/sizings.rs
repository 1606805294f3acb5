//! The fewest GPUs for a load, over products that the caller names or that are usual.

use serde_json::Value;

use super::ServiceError;
use super::question::{Asked, ResolvedModel, asked};
use crate::catalogue::hardware::{self, HardwareCatalogue};
use crate::ingest::sizing::SizingRequest;
use crate::ingest::{FieldError, Pointer, cluster};
use crate::planner::hardware::{Cluster, NodePool};
use crate::planner::sizing::{Sizing, SizingInput, size};

/// Size a model that was looked up.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub(super) fn sized(
    request: &SizingRequest,
    model: Result<ResolvedModel, Vec<FieldError>>,
) -> Result<Sizing, ServiceError> {
    let mut plan = request.plan.clone();
    let products = match &plan.cluster {
        Value::Null => {
            // the shared road reads a cluster; the products take its place below
            plan.cluster = Value::String("1 H100".to_owned());
            Some(products(&request.gpus))
        }
        _ => None,
    };
    let asked = asked(&plan, model);
    let Asked { mut input, .. } = match (asked, products) {
        (Ok(asked), None) => asked,
        (Ok(mut asked), Some(Ok(pools))) => {
            asked.input.cluster = Cluster { pools, assumed: Vec::new(), warnings: Vec::new() };
            asked
        }
        (Ok(_), Some(Err(faults))) => return Err(ServiceError::Invalid(faults)),
        (Err(ServiceError::Invalid(mut faults)), Some(Err(more))) => {
            faults.extend(more);
            return Err(ServiceError::Invalid(faults));
        }
        (Err(error), _) => return Err(error),
    };
    input.limit = 1;
    Ok(size(&SizingInput { plan: input, load: request.load.clone() }))
}

/// One usual node of each product: of those named, or of every product that is sold in a known platform.
fn products(names: &[String]) -> Result<Vec<NodePool>, Vec<FieldError>> {
    let catalogue = hardware::catalogue();
    if names.is_empty() {
        return Ok(usual(catalogue));
    }
    let mut faults = Vec::new();
    let mut pools = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let place = Pointer::root().key("gpus").index(i);
        match cluster::from_json(&Value::String(node_of(name)), &place, catalogue) {
            Ok(cluster) => pools.extend(cluster.pools.into_iter().map(|pool| NodePool { nodes: 1, ..pool })),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(pools) } else { Err(faults) }
}

/// A name as a cluster of one usual node: the reader fills in its size. A text that has a count keeps it.
fn node_of(name: &str) -> String {
    let catalogue = hardware::catalogue();
    match catalogue.gpu_entry(name) {
        Some(entry) => format!("{} x {}", catalogue.usual_node_size(entry).0, entry.gpu.key),
        None => name.to_owned(),
    }
}

/// One pool for each GPU that a platform of the catalogue carries, newest figures first come first.
fn usual(catalogue: &HardwareCatalogue) -> Vec<NodePool> {
    let mut pools: Vec<NodePool> = Vec::new();
    for node in catalogue.nodes().filter(|node| node.cloud.is_none()) {
        if let Some(pool) = catalogue.pool_of_node(node, 1)
            && !pools.iter().any(|known| known.gpu.key == pool.gpu.key)
        {
            pools.push(pool);
        }
    }
    pools
}
