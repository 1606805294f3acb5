//! NVIDIA Dynamo `DynamoGraphDeployment`, v1alpha1 (`services`) and v1beta1 (`components`).

use super::super::command::At;
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
