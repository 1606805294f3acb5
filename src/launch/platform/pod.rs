//! Pods of Kubernetes: containers, probes, shared memory, and the scripts of processes that find each other.

use serde_json::{Map, Value, json};

use super::site::{PORT, Site, serving};
use super::{Inexpressible, mpi};
use crate::launch::spread::Spread;
use crate::launch::start::{Start, Word};
use crate::launch::{Engine, Role, sglang, vllm, yaml};

/// How pods of a group learn their rank and where the first of them is: expressions of a shell.
pub(super) struct Ranks {
    pub rank: &'static str,
    pub head: &'static str,
}

/// What a container runs.
pub(super) struct Run {
    pub command: Value,
    pub args: Value,
    /// It answers requests.
    pub serves: bool,
}

/// A `$` that Kubernetes would read (`$(VAR)`), kept as it is.
fn kept(text: &str) -> String {
    text.replace('$', "$$")
}

/// A process by its words, without a shell.
pub(super) fn plain(start: &Start) -> Run {
    let arguments: Vec<String> = start.arguments().iter().map(|w| kept(&w.plain())).collect();
    Run { command: json!(start.program), args: json!(arguments), serves: true }
}

/// A process by a script, one argument a line.
fn script(start: &Start, serves: bool) -> Run {
    Run { command: json!(["sh", "-c"]), args: json!([lines(start)]), serves }
}

/// The same as text.
pub(super) fn lines(start: &Start) -> String {
    let mut text = String::from("exec");
    for word in start.words() {
        let shown = match &word {
            Word::Text(_) => kept(&word.in_shell()),
            other => other.in_shell(),
        };
        let flag = matches!(&word, Word::Text(t) if t.starts_with("--"));
        text.push_str(if flag { " \\\n  " } else { " " });
        text.push_str(&shown);
    }
    text.push('\n');
    text
}

/// The first pod's process, and that of the others.
pub(super) fn group(site: &Site<'_>, spread: Spread, ranks: &Ranks) -> (Run, Run) {
    let start = site.wanted.start(&site.options_path());
    let rank = || Word::Shell(ranks.rank.to_owned());
    match site.engine() {
        Engine::Vllm => {
            let on =
                |start, rank, worker| vllm::on_node(start, &site.wanted, spread, rank, ranks.head, worker);
            let leader = serving(on(start.clone(), Word::Whole(0), false));
            (script(&leader, true), script(&on(start, rank(), true), false))
        }
        _ => {
            let start = serving(sglang::on_node(start, spread, rank(), ranks.head));
            (script(&start, true), script(&start, false))
        }
    }
}

/// One script for every pod of a group: the first answers, the others help.
pub(super) fn alike(site: &Site<'_>, spread: Spread, ranks: &Ranks) -> Run {
    let (leader, worker) = group(site, spread, ranks);
    if site.engine() != Engine::Vllm {
        return leader;
    }
    let text = |run: &Run| run.args.get(0).and_then(Value::as_str).unwrap_or_default().to_owned();
    let both = format!("if [ \"{}\" = 0 ]; then\n{}fi\n{}", ranks.rank, text(&leader), text(&worker));
    Run { command: json!(["sh", "-c"]), args: json!([both]), serves: true }
}

/// A pod with one engine.
pub(super) fn pod(
    site: &Site<'_>,
    container: &str,
    run: &Run,
    spread: Spread,
) -> Result<Value, Inexpressible> {
    let start = site.wanted.start(&site.options_path());
    let mut limits = Map::new();
    limits.insert(site.gpu_resource()?, json!(spread.gpus.to_string()));
    // a cache that is handed over leaves its pod too
    let leaves = spread.pods > 1 || site.wanted.role != Role::Both;
    if let (true, Some(rdma)) = (leaves, &site.choices.rdma_resource) {
        limits.insert(rdma.clone(), json!("1"));
    }
    let mut env: Vec<Value> =
        start.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    env.extend(reachable(site));
    env.push(json!({"name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": true}}}));
    let mut mounts = vec![json!({"name": "shm", "mountPath": "/dev/shm"})];
    let mut volumes = vec![json!({"name": "shm", "emptyDir": {"medium": "Memory",
        "sizeLimit": format!("{}Gi", Site::shared_memory_gib(spread.gpus))}})];
    if start.options.is_some() {
        mounts.push(json!({"name": "options", "mountPath": "/etc/engine"}));
        volumes.push(json!({"name": "options", "configMap": {"name": options_name(site)}}));
    }
    if site.engine() == Engine::TensorRtLlm && spread.pods > 1 {
        let (volume, mount) = mpi::keys();
        volumes.push(volume);
        mounts.push(mount);
    }
    let mut parts = Map::new();
    parts.insert("name".to_owned(), json!(container));
    parts.insert("image".to_owned(), json!(site.image()?));
    parts.insert("command".to_owned(), run.command.clone());
    parts.insert("args".to_owned(), run.args.clone());
    parts.insert("env".to_owned(), json!(env));
    if run.serves {
        parts.insert("ports".to_owned(), json!([{"name": "http", "containerPort": PORT}]));
    }
    parts.insert("resources".to_owned(), json!({"limits": limits}));
    if site.choices.rdma_resource.is_some() && leaves {
        // registered memory of RDMA is locked
        parts.insert("securityContext".to_owned(), json!({"capabilities": {"add": ["IPC_LOCK"]}}));
    }
    if run.serves {
        parts.extend(probes(site));
    }
    parts.insert("volumeMounts".to_owned(), json!(mounts));
    Ok(json!({"containers": [parts], "volumes": volumes}))
}

/// Where decode workers shake hands with a prefill worker of vLLM: `localhost` unless it is said.
pub(super) fn reachable(site: &Site<'_>) -> Option<Value> {
    let asked = site.engine() == Engine::Vllm && site.wanted.role != Role::Both;
    asked.then(|| {
        json!({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    })
}

/// The pod waits for its start-up before anything else is asked of it.
fn probes(site: &Site<'_>) -> Map<String, Value> {
    let health = json!({"path": "/health", "port": PORT});
    let mut probes = Map::new();
    probes.insert(
        "startupProbe".to_owned(),
        json!({"httpGet": health, "periodSeconds": 10, "failureThreshold": site.start_seconds().div_ceil(10)}),
    );
    probes.insert(
        "readinessProbe".to_owned(),
        json!({"httpGet": health, "periodSeconds": 10, "failureThreshold": 3}),
    );
    probes.insert(
        "livenessProbe".to_owned(),
        json!({"httpGet": health, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 5}),
    );
    probes
}

fn options_name(site: &Site<'_>) -> String {
    format!("{}-options", site.name)
}

/// The file of options as an object of its own, where the engine takes one.
pub(super) fn options(site: &Site<'_>, value: Option<Value>) -> Option<Value> {
    let mut data = Map::new();
    data.insert(site.wanted.options_file().to_owned(), json!(yaml::document(&value?)));
    Some(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": options_name(site)}, "data": data}),
    )
}

/// Volume and mount of the file of options.
pub(super) fn options_mount(site: &Site<'_>) -> (Value, Value) {
    (
        json!({"name": "options", "configMap": {"name": options_name(site)}}),
        json!({"name": "options", "mountPath": "/etc/engine"}),
    )
}

/// Name, labels and what the plan expects.
pub(super) fn metadata(site: &Site<'_>, labels: Value) -> Value {
    json!({
        "name": site.name,
        "labels": labels,
        "annotations": {"planner/expected-kv-tokens": site.wanted.layout.capacity.kv_tokens_per_replica.to_string()},
    })
}

/// Where requests go.
pub(super) fn service(site: &Site<'_>, selector: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": site.name},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": PORT, "targetPort": PORT}]}})
}
