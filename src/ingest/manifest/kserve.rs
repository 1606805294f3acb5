//! KServe `LLMInferenceService`. Its presets put TP, data parallelism and expert parallelism into the command line,
//! but no pipeline size.

use super::super::command::{At, Finding, Meaning, Severity};
use super::{Args, Deployment, Manifest, model_of_uri, pods};
use crate::ingest::yaml::Node;

pub(super) fn read(node: &Node, out: &mut Manifest) {
    out.platform = "kserve";
    let Some(spec) = node.get("spec") else { return };
    let model = spec.get("model");
    part(spec, "both", &pods::name_of(node), model, out);
    if let Some(prefill) = spec.get("prefill") {
        if let Some(first) = out.deployments.first_mut() {
            "decode".clone_into(&mut first.role);
        }
        part(prefill, "prefill", &pods::name_of(node), model, out);
    }
}

fn part(spec: &Node, role: &str, name: &str, model: Option<&Node>, out: &mut Manifest) {
    let parallelism = spec.get("parallelism");
    let size = |key: &str| parallelism.and_then(|p| p.get(key));
    rules(spec, parallelism, &mut out.findings);
    let main = main_container(spec, &mut out.findings);
    let own = main.and_then(|m| pods::engine(m, None, &mut out.findings)).filter(|_| {
        // a preset runs the engine unless the container brings its own command
        main.is_some_and(|m| m.get("command").is_some() || m.get("args").is_some())
    });
    let additional = main.and_then(|m| pods::variable(m, "VLLM_ADDITIONAL_ARGS"));
    let has_own = own.is_some();
    let mut command = own.unwrap_or_else(|| {
        let mut args = Args::new();
        args.value("tensor-parallel-size", size("tensor"));
        args.value("data-parallel-size", size("data"));
        args.switch("enable-expert-parallel", size("expert"));
        if let Some(additional) = additional {
            args.0.extend(pods::words_of(additional));
        }
        let mut command = args.command("vllm", spec.line);
        pods::version_of_image(main, &mut command);
        if let Some(main) = main {
            pods::set_by_environment(main, &mut command);
        }
        command
    });
    if let Some(stages) = size("pipeline").and_then(|p| Some(At { value: p.whole()?, line: p.line }))
        && stages.value > 1
        && !command.names(Meaning::Pp)
    {
        if !has_own {
            out.findings.push(Finding::at(
                stages.line,
                Severity::Fail,
                "kserve_pp_not_in_preset",
                "the shipped presets do not pass parallelism.pipeline on: put --pipeline-parallel-size into \
                 VLLM_ADDITIONAL_ARGS or bring the whole command",
            ));
        }
        command.pp = Some(stages);
    }
    if command.model.is_none() {
        let uri = model.and_then(|m| m.get("name").or_else(|| m.get("uri")));
        command.model = uri.and_then(|n| Some(At { value: model_of_uri(n.text()?), line: n.line }));
    }
    let gpus_per_pod = main.and_then(pods::gpus);
    let ranks = command.ranks();
    let pods = match (
        spec.get("worker"),
        size("data").and_then(Node::whole),
        size("dataLocal").and_then(Node::whole),
    ) {
        (None, ..) => 1,
        (Some(_), Some(data), Some(local)) => data.checked_div(local).unwrap_or(1).max(1),
        (Some(_), ..) => gpus_per_pod.as_ref().and_then(|g| ranks.checked_div(g.value)).unwrap_or(1).max(1),
    };
    out.deployments.push(Deployment {
        name: name.to_owned(),
        role: role.to_owned(),
        command,
        replicas: spec.get("replicas").and_then(Node::whole).unwrap_or(1),
        pods,
        gpus_per_pod,
        gpu: None,
    });
}

/// What the webhook refuses.
fn rules(spec: &Node, parallelism: Option<&Node>, findings: &mut Vec<Finding>) {
    let size = |key: &str| parallelism.and_then(|p| p.get(key));
    let mut fail = |node: &Node, code, message: &str| {
        findings.push(Finding::at(node.line, Severity::Fail, code, message));
    };
    if let (Some(pipeline), Some(_)) = (size("pipeline"), size("data")) {
        fail(pipeline, "kserve_pp_with_dp", "pipeline and data parallelism cannot stand together");
    }
    match (size("data"), size("dataLocal")) {
        (Some(data), None) => fail(data, "kserve_data_without_local", "data needs dataLocal beside it"),
        (None, Some(local)) => fail(local, "kserve_data_without_local", "dataLocal needs data beside it"),
        _ => {}
    }
    if let Some(worker) = spec.get("worker")
        && size("data").is_none()
        && size("pipeline").is_none()
    {
        fail(worker, "kserve_worker_without_parallelism", "worker needs data or pipeline parallelism");
    }
    if let (Some(replicas), Some(_)) = (spec.get("replicas"), spec.get("scaling")) {
        fail(replicas, "kserve_replicas_with_scaling", "replicas and scaling exclude each other");
    }
}

fn main_container<'n>(spec: &'n Node, findings: &mut Vec<Finding>) -> Option<&'n Node> {
    let containers = spec.at(&["template", "containers"])?;
    let main = containers.items().iter().find(|c| c.get("name").and_then(Node::text) == Some("main"));
    if main.is_none() {
        findings.push(Finding::at(
            containers.line,
            Severity::Fail,
            "kserve_container_not_main",
            "the engine's container must be called main",
        ));
    }
    main
}
