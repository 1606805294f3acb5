//! Containers: what a pod runs.

use super::super::command::{
    At, EngineCommand, Finding, Severity, Word, admits_long, engine_of_image, partition, read, read_command,
};
use super::{Args, Deployment, Manifest};
use crate::ingest::command::Command;
use crate::ingest::yaml::Node;

/// Levels of a document that are searched for containers.
const DEPTH: usize = 12;

/// `LeaderWorkerSet`: groups of `size` pods, of which the leader runs the engine.
pub(super) fn leader_worker_set(node: &Node, out: &mut Manifest) {
    out.platform = "leader-worker-set";
    let Some(template) = node.at(&["spec", "leaderWorkerTemplate"]) else { return };
    let size = template.get("size").and_then(Node::whole).unwrap_or(1);
    let replicas = node.at(&["spec", "replicas"]).and_then(Node::whole).unwrap_or(1);
    let leader = template.get("leaderTemplate").or_else(|| template.get("workerTemplate"));
    let Some(containers) = leader.and_then(|l| l.at(&["spec", "containers"])) else { return };
    if template.get("workerTemplate").is_none() {
        out.findings.push(Finding::at(
            template.line,
            Severity::Fail,
            "worker_template_missing",
            "a LeaderWorkerSet needs a workerTemplate",
        ));
    }
    let name = name_of(node);
    for container in containers.items() {
        if let Some(command) = engine(container, None, &mut out.findings) {
            out.deployments.push(Deployment {
                name: name.clone(),
                role: role_of(&command),
                command,
                replicas,
                pods: size,
                gpus_per_pod: gpus(container),
                gpu: None,
            });
        }
    }
}

/// AIBrix `StormService`: roles of replicas, each of `podGroupSize` pods that run alike.
pub(super) fn storm_service(node: &Node, out: &mut Manifest) {
    out.platform = "aibrix";
    let sets = node.at(&["spec", "replicas"]).and_then(Node::whole).unwrap_or(1);
    let roles = node.at(&["spec", "template", "spec", "roles"]).map(Node::items).unwrap_or_default();
    for role in roles {
        let replicas = role.get("replicas").and_then(Node::whole).unwrap_or(1).saturating_mul(sets);
        let pods = role.get("podGroupSize").and_then(Node::whole).unwrap_or(1);
        grouped(role.at(&["template", "spec"]), &name_of(node), replicas, pods, out);
    }
}

/// `JobSet`: jobs of as many pods as a replica has nodes.
pub(super) fn job_set(node: &Node, out: &mut Manifest) {
    out.platform = "jobset";
    for job in node.at(&["spec", "replicatedJobs"]).map(Node::items).unwrap_or_default() {
        let replicas = job.get("replicas").and_then(Node::whole).unwrap_or(1);
        let pods = job.at(&["template", "spec", "parallelism"]).and_then(Node::whole).unwrap_or(1);
        grouped(job.at(&["template", "spec", "template", "spec"]), &name_of(node), replicas, pods, out);
    }
}

/// The engines of a pod that stands for all pods of its group.
fn grouped(pod: Option<&Node>, name: &str, replicas: u64, pods: u64, out: &mut Manifest) {
    for container in pod.and_then(|p| p.get("containers")).map(Node::items).unwrap_or_default() {
        if let Some(command) = engine(container, None, &mut out.findings) {
            out.deployments.push(Deployment {
                name: name.to_owned(),
                role: role_of(&command),
                command,
                replicas,
                pods,
                gpus_per_pod: gpus(container),
                gpu: None,
            });
        }
    }
}

/// Any object with pods in it: every container that runs an engine.
pub(super) fn any(node: &Node, out: &mut Manifest) {
    let name = name_of(node);
    walk(node, 1, &name, DEPTH, out);
}

fn walk(node: &Node, replicas: u64, name: &str, depth: usize, out: &mut Manifest) {
    if depth == 0 {
        return;
    }
    let replicas = node.get("replicas").and_then(Node::whole).unwrap_or(replicas);
    if let Some(containers) = node.get("containers") {
        for container in containers.items() {
            if let Some(command) = engine(container, None, &mut out.findings) {
                out.deployments.push(Deployment {
                    name: name.to_owned(),
                    role: role_of(&command),
                    command,
                    replicas,
                    pods: 1,
                    gpus_per_pod: gpus(container),
                    gpu: None,
                });
            }
        }
        return;
    }
    for (key, child) in node.pairs() {
        if key != "initContainers" {
            walk(child, replicas, name, depth - 1, out);
        }
    }
    for child in node.items() {
        let name = child.get("name").and_then(Node::text).unwrap_or(name);
        walk(child, replicas, name, depth - 1, out);
    }
}

/// The engine that a container runs: by its command, else by its image (or by `fallback`, where the platform knows).
pub(super) fn engine(
    container: &Node,
    fallback: Option<&'static str>,
    findings: &mut Vec<Finding>,
) -> Option<EngineCommand> {
    let image = container.get("image").and_then(Node::text).unwrap_or_default();
    let of_image = engine_of_image(image);
    let mut found = script(container).or_else(|| {
        let mut words = Args::new();
        words.list(container.get("command"), findings);
        words.list(container.get("args"), findings);
        let command = Command { assignments: assignments(container), words: words.0, ..Command::default() };
        read_command(&command).or_else(|| {
            let engine = of_image.as_ref().map(|(engine, _)| *engine).or(fallback)?;
            // an image with its own entry point takes bare flags
            let bare = container.get("command").is_none() || fallback.is_some();
            let flags = command.words.iter().any(|w| w.text.starts_with('-'));
            (bare && flags).then(|| super::read_words(engine, &command.words, container.line))
        })
    })?;
    version_of_image(Some(container), &mut found);
    set_by_environment(container, &mut found);
    Some(found)
}

/// The release by the tag of the container's image, where the command does not say.
pub(super) fn version_of_image(container: Option<&Node>, command: &mut EngineCommand) {
    let image = container.and_then(|c| c.get("image")).and_then(Node::text).unwrap_or_default();
    if let Some((engine, Some(version))) = engine_of_image(image)
        && engine == command.settings.name
        && command.settings.version.is_empty()
    {
        command.settings.version = version;
    }
}

/// Layers of the stages, and a length beyond the model's own, where the environment gives them.
pub(super) fn set_by_environment(container: &Node, command: &mut EngineCommand) {
    let engine = command.settings.name.clone();
    let variable = match engine.as_str() {
        "vllm" => "VLLM_PP_LAYER_PARTITION",
        "sglang" => "SGLANG_PP_LAYER_PARTITION",
        _ => return,
    };
    for (name, value) in assignments(container) {
        command.settings.allow_long_max_model_len |= admits_long(&engine, &name, &value);
        if name == variable && command.settings.pp_layer_partition.is_none() {
            command.settings.pp_layer_partition = partition(&value);
        }
    }
}

/// The engine in a shell script: `sh -c "…"`.
fn script(container: &Node) -> Option<EngineCommand> {
    let words = || {
        let of = |key: &str| container.get(key).map(Node::items).unwrap_or_default().iter();
        of("command").chain(of("args"))
    };
    let shell = words().any(|w| matches!(w.text(), Some("-c" | "-lc" | "-ec" | "-xc")));
    let text = words().rfind(|w| shell && w.text().is_some_and(|t| t.contains(char::is_whitespace)))?;
    let found = read(&text.text()?.replace("$$", "$")).into_iter().next()?;
    Some(found.moved(text.line))
}

/// Environment variables that the engine's settings depend on.
pub(super) fn assignments(container: &Node) -> Vec<(String, String)> {
    let of =
        |item: &Node| Some((item.get("name")?.text()?.to_owned(), item.get("value")?.text()?.to_owned()));
    let listed = container.get("env").map(Node::items).unwrap_or_default().iter().filter_map(of);
    // a compose file has a map
    let mapped = container.get("environment").map(Node::pairs).unwrap_or_default().iter();
    listed.chain(mapped.filter_map(|(name, value)| Some((name.clone(), value.text()?.to_owned())))).collect()
}

/// The value of an environment variable, with its line.
pub(super) fn variable<'n>(container: &'n Node, name: &str) -> Option<&'n Node> {
    let env = container.get("env").map(Node::items).unwrap_or_default();
    env.iter().find(|item| item.get("name").and_then(Node::text) == Some(name))?.get("value")
}

/// GPUs that a container asks for.
pub(super) fn gpus(container: &Node) -> Option<At<u64>> {
    let resources = container.get("resources")?;
    ["limits", "requests"].into_iter().find_map(|side| {
        let (_, node) =
            resources.get(side)?.pairs().iter().find(|(key, _)| {
                key == "gpu" || key.ends_with("/gpu") || key.starts_with("nvidia.com/mig-")
            })?;
        Some(At { value: node.whole()?, line: node.line })
    })
}

pub(super) fn name_of(node: &Node) -> String {
    node.at(&["metadata", "name"]).and_then(Node::text).unwrap_or("deployment").to_owned()
}

/// The part that an engine plays in a split deployment.
pub(super) fn role_of(command: &EngineCommand) -> String {
    match command.role.as_deref() {
        Some(role @ ("prefill" | "decode" | "headless")) => role.to_owned(),
        _ => "both".to_owned(),
    }
}

/// Words of a text that stands in one field.
pub(super) fn words_of(node: &Node) -> Vec<Word> {
    let mut args = Args::new();
    if let Some(text) = node.text() {
        args.shell(&text.replace("$$", "$"), node.line);
    }
    args.0
}
