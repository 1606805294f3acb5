//! NVIDIA Dynamo `DynamoGraphDeploymentRequest` v1beta1: the plan's question in Dynamo's words. Dynamo then searches for
//! itself; our layout stands in `overrides.dgd` as what it starts from, and nothing is applied before somebody looked.
//!
//! Source: `dgdr_v1beta1_types.py` of ai-dynamo/dynamo (007640b), GPU identifiers of its operator's `InferHardwareSystem`.

use serde_json::{Map, Value, json};

use super::site::Site;
use super::{Inexpressible, LaunchFile, Written, dynamo, pod};
use crate::launch::yaml;
use crate::planner::input::Objective;
use crate::planner::plan::Plan;

/// GPUs that Dynamo's search has data for: the catalogue's family, and its identifier.
const SYSTEMS: &[(&str, &str)] = &[
    ("gb200", "gb200_sxm"),
    ("b200-sxm", "b200_sxm"),
    ("h200-sxm", "h200_sxm"),
    ("h100-sxm5", "h100_sxm"),
    ("a100-sxm4", "a100_sxm"),
    ("l40s", "l40s"),
];

pub(super) fn request(site: &Site<'_>, plan: &Plan) -> Result<Written, Inexpressible> {
    let system =
        SYSTEMS.iter().find(|(family, _)| site.gpu.starts_with(family) && !site.gpu.contains("-mig-"));
    let Some((_, system)) = system else {
        return Err(Inexpressible::because(
            "dgdr_gpu_unknown",
            format!("Dynamo's search knows no {}: use dynamo, which states the layout", site.gpu),
        ));
    };
    let pool = plan.cluster.node_pools.iter().find(|pool| pool.gpu == site.gpu);
    let (per_node, nodes) = pool.map_or((site.wanted.gpus_per_node, 1), |p| (p.gpus_per_node, p.nodes));
    let memory_mib = pool.map_or(0, |p| p.gpu_memory_bytes >> 20);
    let echo = &plan.request;
    let mut sla = Map::new();
    for (name, limit) in [("ttft", echo.slo.ttft_ms), ("itl", echo.slo.tpot_ms)] {
        if let Some(limit) = limit {
            sla.insert(name.to_owned(), json!(limit));
        }
    }
    if sla.is_empty() {
        let wanted = if echo.objective == Objective::Latency { "latency" } else { "throughput" };
        sla.insert("optimizationType".to_owned(), json!(wanted));
    }
    let (mut graph, options) = dynamo::deployment(site, &[("Worker", site)])?;
    graph["metadata"]["name"] = json!(format!("{}-graph", site.name));
    let object = json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": pod::metadata(site, json!({"app": site.name})),
        "spec": {
            "model": site.wanted.model,
            "backend": dynamo::runtime(site.engine()).0,
            "hardware": {"gpuSku": system, "vramMb": memory_mib, "numGpusPerNode": per_node,
                "totalGpus": per_node.saturating_mul(nodes)},
            "workload": {"isl": echo.workload.input_tokens, "osl": echo.workload.output_tokens,
                "concurrency": echo.workload.concurrency},
            "sla": sla,
            "searchStrategy": "rapid",
            "autoApply": false,
            "overrides": {"dgd": graph},
        },
    });
    let objects: Vec<Value> = options.into_iter().chain([object]).collect();
    Ok(Written {
        files: vec![LaunchFile::yaml("dynamographdeploymentrequest.yaml", yaml::file(&site.comment(), &objects))],
        notes: vec![
            dynamo::release_note(site),
            "Dynamo chooses a layout of its own for this request and merges it over overrides.dgd: compare the result in its \
             status with this layout before it is applied (autoApply: false)."
                .to_owned(),
        ],
    })
}
