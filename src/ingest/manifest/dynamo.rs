//! NVIDIA Dynamo `DynamoGraphDeployment`, v1alpha1 (`services`) and v1beta1 (`components`).

use super::super::command::{At, Finding, Severity};
use super::{Deployment, Manifest, pods};
use crate::ingest::yaml::Node;

pub(super) fn read(node: &Node, out: &mut Manifest) {
    out.platform = "dynamo";
    let Some(spec) = node.get("spec") else { return };
    let backend = spec.get("backendFramework").and_then(Node::text);
    for (name, service) in spec.get("services").map(Node::pairs).unwrap_or_default() {
        let main = service.at(&["extraPodSpec", "mainContainer"]);
        let role = service.get("subComponentType").and_then(Node::text);
        let gpus = service
            .at(&["resources", "limits", "gpu"])
            .and_then(|n| Some(At { value: n.whole()?, line: n.line }));
        part(name, service, main, role, gpus, backend, out);
    }
    for component in spec.get("components").map(Node::items).unwrap_or_default() {
        let name = component.get("name").and_then(Node::text).unwrap_or("component");
        let containers =
            component.at(&["podTemplate", "spec", "containers"]).map(Node::items).unwrap_or_default();
        let main = containers
            .iter()
            .find(|c| c.get("name").and_then(Node::text) == Some("main"))
            .or_else(|| containers.first());
        let role = component.get("type").and_then(Node::text);
        part(name, component, main, role, main.and_then(pods::gpus), backend, out);
    }
}

/// `DynamoGraphDeploymentRequest`: Dynamo chooses the layout, so only what it starts from can be judged.
pub(super) fn request(node: &Node, out: &mut Manifest) {
    out.platform = "dynamo-request";
    let Some(spec) = node.get("spec") else { return };
    let at = |path: &[&str]| spec.at(path);
    let mut fail = |node: &Node, code, message: String| {
        out.findings.push(Finding::at(node.line, Severity::Fail, code, message));
    };
    if spec.get("model").is_none() {
        fail(spec, "dgdr_model_missing", "a request needs spec.model".to_owned());
    }
    if let (Some(concurrency), Some(_)) = (at(&["workload", "concurrency"]), at(&["workload", "requestRate"]))
    {
        let message = "concurrency and requestRate exclude each other: a load is closed or open".to_owned();
        fail(concurrency, "dgdr_two_loads", message);
    }
    for limit in ["ttft", "itl", "e2eLatency"] {
        if let Some(given) = at(&["sla", limit])
            && given.text().and_then(|text| text.parse::<f64>().ok()).is_none_or(|ms| ms <= 0.0)
        {
            fail(
                given,
                "dgdr_limit_not_positive",
                format!("sla.{limit} must be a number of milliseconds above 0"),
            );
        }
    }
    let whole = |path: &[&str]| at(path).and_then(Node::whole);
    let (total, node_gpus) = (whole(&["hardware", "totalGpus"]), whole(&["hardware", "numGpusPerNode"]));
    if let (Some(total), Some(node_gpus), Some(given)) = (total, node_gpus, at(&["hardware", "totalGpus"]))
        && node_gpus > 0
        && total > node_gpus
        && !total.is_multiple_of(node_gpus)
    {
        let message = format!("{total} GPUs are no whole number of nodes of {node_gpus}");
        fail(given, "dgdr_gpus_per_node", message);
    }
    match at(&["overrides", "dgd"]) {
        Some(graph) => {
            read(graph, out);
            out.platform = "dynamo-request";
        }
        None => out.findings.push(Finding::at(
            spec.line,
            Severity::Note,
            "layout_chosen_by_dynamo",
            "Dynamo chooses the layout of this request: plan the same model and GPUs to know what to expect of it",
        )),
    }
}

fn part(
    name: &str,
    service: &Node,
    main: Option<&Node>,
    role: Option<&str>,
    gpus_per_pod: Option<At<u64>>,
    backend: Option<&str>,
    out: &mut Manifest,
) {
    let kind = service.get("componentType").and_then(Node::text).or(role);
    if matches!(kind, Some("frontend" | "planner")) {
        return;
    }
    let engine = match backend {
        Some("sglang") => "sglang",
        Some("trtllm") => "tensorrt-llm",
        _ => "vllm",
    };
    let Some(command) = main.and_then(|m| pods::engine(m, Some(engine), &mut out.findings)) else { return };
    let role = match role {
        Some(role @ ("prefill" | "decode")) => role.to_owned(),
        _ => pods::role_of(&command),
    };
    out.deployments.push(Deployment {
        name: name.to_owned(),
        role,
        command,
        replicas: service.get("replicas").and_then(Node::whole).unwrap_or(1),
        pods: service.at(&["multinode", "nodeCount"]).and_then(Node::whole).unwrap_or(1),
        gpus_per_pod,
        gpu: None,
    });
}
