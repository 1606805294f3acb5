//! KServe `InferenceService`: a container of one's own, or a model format that KServe's Hugging Face runtime serves by vLLM.

use super::super::command::{At, EngineCommand, Finding, Severity, Word};
use super::{Args, Deployment, Manifest, model_of_uri, pods};
use crate::ingest::yaml::Node;

/// Arguments of the Hugging Face runtime itself; the others are vLLM's.
const OF_THE_RUNTIME: &[&str] = &["model-name", "model-dir", "backend", "task", "http-port", "max-length"];

pub(super) fn read(node: &Node, out: &mut Manifest) {
    out.platform = "kserve-inference-service";
    let Some(predictor) = node.at(&["spec", "predictor"]) else { return };
    let replicas = predictor.get("minReplicas").and_then(Node::whole).unwrap_or(1).max(1);
    let name = pods::name_of(node);
    for container in predictor.get("containers").map(Node::items).unwrap_or_default() {
        if let Some(command) = pods::engine(container, None, &mut out.findings) {
            out.deployments.push(Deployment {
                name: name.clone(),
                role: pods::role_of(&command),
                command,
                replicas,
                pods: 1,
                gpus_per_pod: pods::gpus(container),
                gpu: None,
            });
        }
    }
    let Some(model) = predictor.get("model") else { return };
    let format = model.at(&["modelFormat", "name"]).and_then(Node::text).unwrap_or_default();
    if !format.eq_ignore_ascii_case("huggingface") {
        return;
    }
    let gpus_per_pod = pods::gpus(model);
    let Some(command) = of_runtime(model, predictor.get("workerSpec"), out) else { return };
    let ranks = command.ranks();
    let pods = match (predictor.get("workerSpec"), &gpus_per_pod) {
        (Some(_), Some(gpus)) => ranks.checked_div(gpus.value).unwrap_or(1).max(1),
        _ => 1,
    };
    out.deployments.push(Deployment {
        name,
        role: pods::role_of(&command),
        command,
        replicas,
        pods,
        gpus_per_pod,
        gpu: None,
    });
}

/// The command that the Hugging Face runtime builds.
fn of_runtime(model: &Node, workers: Option<&Node>, out: &mut Manifest) -> Option<EngineCommand> {
    let mut given = Args::new();
    given.list(model.get("args"), &mut out.findings);
    let mut args = Args::new();
    let mut id = None;
    let mut words = given.0.into_iter().peekable();
    while let Some(word) = words.next() {
        let (flag, inline) = match word.text.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(Word::new(value, word.line))),
            None => (word.text.clone(), None),
        };
        let name = flag.trim_start_matches('-').replace('_', "-");
        let own = name == "model-id" || OF_THE_RUNTIME.contains(&name.as_str());
        if !own {
            args.0.push(word);
            continue;
        }
        let value = inline.or_else(|| words.next_if(|next| !next.text.starts_with("--")));
        match (name.as_str(), value) {
            ("model-id", Some(value)) => id = Some(At { value: value.text, line: value.line }),
            // without vLLM there are no figures
            ("backend", Some(value)) if value.text.eq_ignore_ascii_case("huggingface") => return None,
            _ => {}
        }
    }
    if let Some(workers) = workers {
        args.value("tensor-parallel-size", workers.get("tensorParallelSize"));
        args.value("pipeline-parallel-size", workers.get("pipelineParallelSize"));
    }
    for name in ["TENSOR_PARALLEL_SIZE", "PIPELINE_PARALLEL_SIZE"] {
        if let (Some(variable), true) = (pods::variable(model, name), workers.is_some()) {
            out.findings.push(Finding::at(
                variable.line,
                Severity::Fail,
                "kserve_size_by_environment",
                format!(
                    "{name} is refused beside workerSpec: set its tensorParallelSize and pipelineParallelSize"
                ),
            ));
        }
    }
    let mut command = args.command("vllm", model.line);
    let uri = model.get("storageUri").and_then(|n| Some(At { value: model_of_uri(n.text()?), line: n.line }));
    command.model = id.or(uri).or(command.model);
    pods::set_by_environment(model, &mut command);
    Some(command)
}
