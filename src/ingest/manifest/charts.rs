//! Files without a kind: values of Helm charts, SkyPilot tasks, compose files, an engine's own settings file.

use super::super::command::{
    At, Command, Finding, Meaning, Severity, Word, read, read_command, settings_words, table,
};
use super::{Args, Deployment, Manifest, model_of_uri, pods};
use crate::ingest::yaml::Node;

/// vLLM production-stack: `servingEngineSpec.modelSpec[]`.
pub(super) fn production_stack(node: &Node, out: &mut Manifest) {
    out.platform = "production-stack";
    let specs = node.at(&["servingEngineSpec", "modelSpec"]).map(Node::items).unwrap_or_default();
    for spec in specs {
        let config = spec.get("vllmConfig");
        let of = |key: &str| config.and_then(|c| c.get(key));
        let mut args = Args::new();
        for (key, flag) in [
            ("tensorParallelSize", "tensor-parallel-size"),
            ("pipelineParallelSize", "pipeline-parallel-size"),
            ("maxModelLen", "max-model-len"),
            ("maxNumSeqs", "max-num-seqs"),
            ("gpuMemoryUtilization", "gpu-memory-utilization"),
            ("dtype", "dtype"),
        ] {
            args.value(flag, of(key));
        }
        for (key, on, off) in
            [("enablePrefixCaching", "--enable-prefix-caching", "--no-enable-prefix-caching")]
        {
            if let Some((flag, line)) = of(key).and_then(|n| Some((n.flag()?, n.line))) {
                args.0.push(Word::new(if flag { on } else { off }, line));
            }
        }
        args.list(of("extraArgs"), &mut out.findings);
        let mut command = args.command("vllm", spec.line);
        command.model =
            spec.get("modelURL").and_then(|n| Some(At { value: n.text()?.to_owned(), line: n.line }));
        command.revision = spec.get("modelRevision").and_then(Node::text).map(str::to_owned);
        pods::set_by_environment(spec, &mut command);
        if let Some(version) = spec.get("tag").and_then(Node::text).map(|t| t.trim_start_matches('v'))
            && version.starts_with(|c: char| c.is_ascii_digit())
        {
            version.clone_into(&mut command.settings.version);
        }
        let ray = spec.at(&["raySpec", "enabled"]).and_then(Node::flag) == Some(true);
        let field = of("pipelineParallelSize").filter(|p| p.whole().is_some_and(|p| p > 1) && !ray);
        if let Some(field) = field {
            out.findings.push(Finding::at(
                field.line,
                Severity::Fail,
                "productionstack_pp_needs_ray",
                "pipelineParallelSize is read by the Ray template only: set raySpec.enabled: true, or it is ignored",
            ));
        }
        let replicas = spec.get("replicaCount").and_then(Node::whole).unwrap_or(1);
        // under Ray replicaCount counts workers beside the head
        let (replicas, pods) = if ray { (1, replicas.saturating_add(1)) } else { (replicas, 1) };
        out.deployments.push(Deployment {
            name: spec.get("name").and_then(Node::text).unwrap_or("model").to_owned(),
            role: "both".to_owned(),
            command,
            replicas,
            pods,
            gpus_per_pod: spec.get("requestGPU").and_then(|n| Some(At { value: n.whole()?, line: n.line })),
            gpu: None,
        });
    }
}

/// llm-d modelservice: blocks `decode` and `prefill`; GPUs of a pod are tensor × dataLocal.
pub(super) fn llm_d(node: &Node, out: &mut Manifest) {
    out.platform = "llm-d";
    let artifacts = node.get("modelArtifacts");
    let split = node.at(&["prefill", "create"]).and_then(Node::flag) == Some(true);
    for role in ["decode", "prefill"] {
        let Some(block) = node.get(role).filter(|b| b.get("create").and_then(Node::flag) != Some(false))
        else {
            continue;
        };
        let parallelism = block.get("parallelism");
        let size = |key: &str| parallelism.and_then(|p| p.get(key));
        let Some(container) = block.get("containers").and_then(|c| c.items().first()) else { continue };
        let adds_flags = container.get("modelCommand").and_then(Node::text) == Some("vllmServe");
        let mut args = Args::new();
        if adds_flags {
            args.value("tensor-parallel-size", size("tensor"));
            args.value("data-parallel-size", size("data"));
            args.list(container.get("args"), &mut out.findings);
        }
        let command = if adds_flags {
            Some(args.command("vllm", container.line))
        } else {
            pods::engine(container, Some("vllm"), &mut out.findings)
        };
        let Some(mut command) = command else { continue };
        pods::version_of_image(Some(container), &mut command);
        pods::set_by_environment(container, &mut command);
        if command.model.is_none() {
            let model = artifacts.and_then(|a| a.get("name").or_else(|| a.get("uri")));
            command.model = model.and_then(|n| Some(At { value: model_of_uri(n.text()?), line: n.line }));
        }
        let whole = |key: &str| size(key).and_then(Node::whole);
        let (data, local, workers) = (whole("data"), whole("dataLocal"), whole("workers"));
        if let (Some(data), Some(local), Some(at)) = (data, local, size("data"))
            && local.saturating_mul(workers.unwrap_or(1)) != data
        {
            out.findings.push(Finding::at(
                at.line,
                Severity::Fail,
                "modelservice_data_split",
                format!("data ({data}) must be dataLocal ({local}) × workers ({})", workers.unwrap_or(1)),
            ));
        }
        let local = local.or(data).unwrap_or(1);
        let computed = whole("tensor").unwrap_or(1).saturating_mul(local);
        let given = pods::gpus(container);
        if given.is_none() && command.pp.as_ref().is_some_and(|p| p.value > 1) {
            out.findings.push(Finding::at(
                command.line_of(Meaning::Pp),
                Severity::Fail,
                "modelservice_no_pp_field",
                "the chart counts GPUs as tensor × dataLocal and knows no pipeline: set the container's GPU resource",
            ));
        }
        let line = size("tensor").map_or(block.line, |n| n.line);
        out.deployments.push(Deployment {
            name: role.to_owned(),
            role: if split { role.to_owned() } else { "both".to_owned() },
            command,
            replicas: block.get("replicas").and_then(Node::whole).unwrap_or(1),
            pods: workers.unwrap_or(1),
            gpus_per_pod: given.or(Some(At { value: computed, line })),
            gpu: node.at(&["accelerator", "type"]).and_then(Node::text).map(str::to_owned),
        });
    }
}

/// SkyPilot: the engine stands in `run`, the GPUs in `resources.accelerators`.
pub(super) fn skypilot(node: &Node, out: &mut Manifest) {
    out.platform = "skypilot";
    let Some(run) = node.get("run") else { return };
    let accelerators = node.at(&["resources", "accelerators"]);
    let (gpu, gpus) = match accelerators.and_then(Node::text).map(|t| t.split_once(':').unwrap_or((t, "1"))) {
        Some((gpu, count)) => (Some(gpu.to_owned()), count.trim().parse().ok()),
        None => (None, None),
    };
    let service = node.get("service");
    let replicas = service.and_then(|s| {
        s.get("replicas").or_else(|| s.at(&["replica_policy", "min_replicas"])).and_then(Node::whole)
    });
    for command in read(run.text().unwrap_or_default()) {
        let command = command.moved(run.line);
        out.deployments.push(Deployment {
            name: node.get("name").and_then(Node::text).unwrap_or("service").to_owned(),
            role: pods::role_of(&command),
            command,
            replicas: replicas.unwrap_or(1),
            pods: node.get("num_nodes").and_then(Node::whole).unwrap_or(1),
            gpus_per_pod: gpus.map(|value| At { value, line: accelerators.map_or(1, |a| a.line) }),
            gpu: gpu.clone(),
        });
    }
}

/// The body that creates a model in GPUStack.
pub(super) fn gpustack(node: &Node, out: &mut Manifest) {
    out.platform = "gpustack";
    let engine = match node.get("backend").and_then(Node::text).map(str::to_ascii_lowercase).as_deref() {
        None | Some("vllm") => "vllm",
        Some("sglang") => "sglang",
        Some(_) => return,
    };
    let mut args = Args::new();
    args.list(node.get("backend_parameters"), &mut out.findings);
    let mut command = args.command(engine, node.line);
    let model = node.get("huggingface_repo_id");
    command.model =
        model.and_then(|n| Some(At { value: n.text()?.to_owned(), line: n.line })).or(command.model);
    if let Some(version) = node.get("backend_version").and_then(Node::text) {
        version.trim_start_matches('v').clone_into(&mut command.settings.version);
    }
    let gpus = node.at(&["gpu_selector", "gpus_per_replica"]);
    out.deployments.push(Deployment {
        name: node.get("name").and_then(Node::text).unwrap_or("model").to_owned(),
        role: pods::role_of(&command),
        command,
        replicas: node.get("replicas").and_then(Node::whole).unwrap_or(1),
        pods: 1,
        gpus_per_pod: gpus.and_then(|n| Some(At { value: n.whole()?, line: n.line })),
        gpu: None,
    });
}

/// A compose file.
pub(super) fn compose(node: &Node, out: &mut Manifest) {
    out.platform = "compose";
    for (name, service) in node.get("services").map(Node::pairs).unwrap_or_default() {
        let image = service.get("image").and_then(Node::text).unwrap_or_default();
        let mut args = Args::new();
        args.0.push(Word::new(image, service.line));
        for part in ["entrypoint", "command"].into_iter().filter_map(|key| service.get(key)) {
            match part.text() {
                // a text is split as by a shell
                Some(text) => args.shell(&text.replace('\n', " ").replace("$$", "$"), part.line),
                None => args.list(Some(part), &mut out.findings),
            }
        }
        let command =
            Command { words: args.0, assignments: pods::assignments(service), ..Command::default() };
        let Some(command) = read_command(&command) else { continue };
        let devices = service.at(&["deploy", "resources", "reservations", "devices"]);
        out.deployments.push(Deployment {
            name: name.clone(),
            role: pods::role_of(&command),
            command,
            replicas: service.at(&["deploy", "replicas"]).and_then(Node::whole).unwrap_or(1),
            pods: 1,
            gpus_per_pod: devices.and_then(reserved),
            gpu: None,
        });
    }
}

/// GPUs that a service reserves.
fn reserved(devices: &Node) -> Option<At<u64>> {
    let device = devices.items().first()?;
    let named = device.get("device_ids").map(|ids| (ids.items().len() as u64, ids.line));
    let counted = device.get("count").and_then(|n| Some((n.whole()?, n.line)));
    named.or(counted).map(|(value, line)| At { value, line })
}

/// An engine's own settings file: vLLM's `--config`, SGLang's, TensorRT-LLM's extra options.
pub(super) fn settings_file(node: &Node, out: &mut Manifest) {
    let names = |engine: &str| {
        let known: Vec<&str> = table(engine).iter().flat_map(|f| f.names).copied().collect();
        node.pairs().iter().filter(|(key, _)| known.contains(&key.replace('_', "-").as_str())).count()
    };
    let tensorrt = node.get("kv_cache_config").is_some() || node.get("enable_attention_dp").is_some();
    let sglang = node.get("mem-fraction-static").is_some() || node.get("tp-size").is_some();
    let engine = match (tensorrt, sglang) {
        (true, _) => "tensorrt-llm",
        (_, true) => "sglang",
        _ => "vllm",
    };
    if names(engine) == 0 && !tensorrt {
        return;
    }
    out.platform = "engine-settings";
    let mut args = Args::new();
    args.0.extend(settings_words(node));
    let command = args.command(engine, node.line);
    out.deployments.push(Deployment {
        name: "settings".to_owned(),
        role: pods::role_of(&command),
        command,
        replicas: 1,
        pods: 1,
        gpus_per_pod: None,
        gpu: None,
    });
}
