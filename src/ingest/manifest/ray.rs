//! Ray Serve LLM: `engine_kwargs` are the engine's own settings in snake case.

use super::super::command::{At, Finding, Severity, admits_long, keywords, partition};
use super::{Args, Deployment, Manifest, later};
use crate::ingest::yaml::{self, Node};

/// `RayService`: the configuration is a text inside the object.
pub(super) fn service(node: &Node, out: &mut Manifest) {
    let Some(inner) = node.at(&["spec", "serveConfigV2"]) else { return };
    let Some(text) = inner.text() else { return };
    match yaml::read(text) {
        Ok(documents) => {
            let mut nested =
                Manifest { platform: "ray-serve", deployments: Vec::new(), findings: Vec::new() };
            for document in &documents {
                config(document, &mut nested);
            }
            out.platform = "ray-serve";
            for mut deployment in nested.deployments {
                deployment.command = deployment.command.moved(inner.line);
                out.deployments.push(deployment);
            }
            out.findings.extend(
                nested.findings.into_iter().map(|f| Finding { line: later(f.line, inner.line), ..f }),
            );
        }
        Err(error) => out.findings.push(Finding::at(
            later(error.line, inner.line),
            Severity::Fail,
            "invalid_yaml",
            error.message,
        )),
    }
}

/// A Serve configuration file.
pub(super) fn config(node: &Node, out: &mut Manifest) {
    out.platform = "ray-serve";
    for application in node.get("applications").map(Node::items).unwrap_or_default() {
        let args = application.get("args");
        for entry in args.and_then(|a| a.get("llm_configs")).map(Node::items).unwrap_or_default() {
            llm(entry, "both", out);
        }
        for role in ["prefill", "decode"] {
            if let Some(entry) = args.and_then(|a| a.get(&format!("{role}_config"))) {
                llm(entry, role, out);
            }
        }
    }
}

fn llm(entry: &Node, role: &str, out: &mut Manifest) {
    let loading = entry.get("model_loading_config");
    let kwargs = entry.get("engine_kwargs");
    let mut args = Args::new();
    args.0.extend(keywords(kwargs));
    let mut command = args.command("vllm", entry.line);
    let source = loading.and_then(|l| l.get("model_source").or_else(|| l.get("model_id")));
    command.model = source.and_then(|n| Some(At { value: n.text()?.to_owned(), line: n.line }));
    for (name, value) in entry.at(&["runtime_env", "env_vars"]).map(Node::pairs).unwrap_or_default() {
        let Some(value) = value.text() else { continue };
        command.settings.allow_long_max_model_len |= admits_long("vllm", name, value);
        if name == "VLLM_PP_LAYER_PARTITION" {
            command.settings.pp_layer_partition = partition(value);
        }
    }
    let name = loading.and_then(|l| l.get("model_id")).and_then(Node::text).unwrap_or("model").to_owned();
    let bundles = entry.at(&["placement_group_config", "bundles"]);
    if let Some(bundles) = bundles {
        let given: u64 = bundles.items().iter().filter_map(|b| b.get("GPU").and_then(Node::whole)).sum();
        let needed = command.ranks();
        if given != needed {
            out.findings.push(Finding::at(
                bundles.line,
                Severity::Fail,
                "gpu_count_mismatch",
                format!("the placement group holds {given} GPUs, the engine is started for {needed} ranks"),
            ));
        }
    }
    out.deployments.push(Deployment {
        name,
        role: role.to_owned(),
        command,
        replicas: entry.at(&["deployment_config", "num_replicas"]).and_then(Node::whole).unwrap_or(1),
        pods: 1,
        gpus_per_pod: None,
        gpu: entry.get("accelerator_type").and_then(Node::text).map(str::to_owned),
    });
}
