//! Ray Serve LLM: `engine_kwargs` are the engine's own settings in snake case.

use super::super::command::{At, Finding, Severity, Word};
use super::{Args, Deployment, Manifest, later};
use crate::ingest::yaml::{self, Node, Yaml};

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
                for (_, line) in &mut deployment.command.lines {
                    *line = later(*line, inner.line);
                }
                for finding in &mut deployment.command.findings {
                    finding.line = later(finding.line, inner.line);
                }
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
    keywords(kwargs, &mut args);
    let mut command = args.command("vllm", entry.line);
    let source = loading.and_then(|l| l.get("model_source").or_else(|| l.get("model_id")));
    command.model = source.and_then(|n| Some(At { value: n.text()?.to_owned(), line: n.line }));
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

/// Settings by keyword to flags: true is a switch, a map is its JSON.
pub(super) fn keywords(node: Option<&Node>, args: &mut Args) {
    for (key, value) in node.map(Node::pairs).unwrap_or_default() {
        let flag = format!("--{}", key.replace('_', "-"));
        match (&value.value, value.flag()) {
            (Yaml::Scalar { plain: true, .. }, Some(true)) => args.0.push(Word::new(flag, value.line)),
            (Yaml::Scalar { plain: true, .. }, Some(false)) => {
                args.0.push(Word::new(format!("--no-{}", key.replace('_', "-")), value.line));
            }
            (Yaml::Map(_), _) => {
                args.0.push(Word::new(flag, value.line));
                args.0.push(Word::new(json(value).to_string(), value.line));
            }
            _ => args.value(&key.replace('_', "-"), Some(value)),
        }
    }
}

fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Yaml::Map(pairs) => {
            pairs.iter().map(|(k, v)| (k.clone(), json(v))).collect::<serde_json::Map<_, _>>().into()
        }
        Yaml::List(items) => items.iter().map(json).collect::<Vec<_>>().into(),
        Yaml::Scalar { text, plain } => match (plain, node.whole(), node.flag()) {
            (true, Some(n), _) => n.into(),
            (true, None, Some(flag)) => flag.into(),
            _ => text.clone().into(),
        },
    }
}
