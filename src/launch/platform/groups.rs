//! Objects of Kubernetes that hold groups of pods: Deployment, LeaderWorkerSet, AIBrix StormService, JobSet.

use serde_json::{Map, Value, json};

use super::mpi;
use super::pod::{self, Ranks};
use super::site::{Site, serving};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::spread::Spread;
use crate::launch::{Engine, yaml};

/// One file of some objects, with the file of options in front.
fn file(site: &Site<'_>, name: &str, objects: Vec<Value>) -> Written {
    let options = pod::options(site, site.start().options);
    let all: Vec<Value> = options.into_iter().chain(objects).collect();
    Written { files: vec![LaunchFile::yaml(name, yaml::file(&site.comment(), &all))], notes: Vec::new() }
}

/// `Deployment` and `Service`.
pub(super) fn deployment(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let gpus = site.on_one_node("kubernetes_one_node")?;
    let labels = json!({"app": site.name});
    let run = pod::plain(&serving(site.start()));
    let spec = pod::pod(site, "engine", &run, Spread { pods: 1, gpus })?;
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": pod::metadata(site, labels.clone()),
        "spec": {
            "replicas": site.wanted.layout.layout.dp,
            // a new pod must not wait for GPUs that the old one holds
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    Ok(file(site, "deployment.yaml", vec![object, pod::service(site, labels)]))
}

/// `LeaderWorkerSet`: replicas are groups, the leader answers.
pub(super) fn leader_worker_set(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let spread = site.shares_of_a_group()?;
    let leader_labels = json!({"app": site.name, "role": "leader"});
    let (leader, worker) = if spread.pods == 1 {
        let run = pod::plain(&serving(site.start()));
        (pod::pod(site, "leader", &run, spread)?, pod::pod(site, "worker", &run, spread)?)
    } else {
        let ranks = Ranks { rank: "$LWS_WORKER_INDEX", head: "$LWS_LEADER_ADDRESS" };
        let (leader, worker) = match site.engine() {
            Engine::TensorRtLlm => mpi::group(site, spread),
            _ => pod::group(site, spread, &ranks),
        };
        (pod::pod(site, "leader", &leader, spread)?, pod::pod(site, "worker", &worker, spread)?)
    };
    let object = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": pod::metadata(site, json!({"app": site.name})),
        "spec": {
            "replicas": site.wanted.layout.layout.dp,
            "leaderWorkerTemplate": {
                "size": spread.pods,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {"metadata": {"labels": leader_labels}, "spec": leader},
                "workerTemplate": {"spec": worker},
            },
        },
    });
    let mut written = file(site, "leaderworkerset.yaml", vec![object, pod::service(site, leader_labels)]);
    if site.engine() == Engine::TensorRtLlm && spread.pods > 1 {
        written.notes.push(mpi::NEEDS.to_owned());
    }
    if site.wanted.layout.placement.tp_crosses_nodes || spread.pods > 1 {
        written.notes.push(
            "To keep a group in one rack or NVLink domain, annotate it with leaderworkerset.sigs.k8s.io/exclusive-topology \
             and the label of that domain."
                .to_owned(),
        );
    }
    Ok(written)
}

/// AIBrix `StormService`: a role for each part, `podGroupSize` pods a replica.
pub(super) fn aibrix(site: &Site<'_>) -> Result<Written, Inexpressible> {
    Ok(file(site, "stormservice.yaml", vec![storm_service(site, &[role(site, "engine")?])]))
}

/// The same with a role for each half of a pair.
pub(super) fn aibrix_pair(
    whole: &Site<'_>,
    halves: [&Site<'_>; 2],
) -> Result<(Value, Vec<Value>), Inexpressible> {
    let roles = [role(halves[0], "prefill")?, role(halves[1], "decode")?];
    let options = halves.into_iter().filter_map(|site| pod::options(site, site.start().options));
    Ok((storm_service(whole, &roles), options.collect()))
}

fn role(site: &Site<'_>, name: &str) -> Result<Value, Inexpressible> {
    let spread = site.shares_of_processes()?;
    let run = if spread.pods == 1 {
        pod::plain(&serving(site.start()))
    } else {
        let ranks = Ranks { rank: "$POD_GROUP_INDEX", head: "${PODSET_NAME}-0.${STORM_SERVICE_NAME}" };
        pod::alike(site, spread, &ranks)
    };
    let labels = json!({"app": site.name, "model.aibrix.ai/name": site.name, "model.aibrix.ai/port": "8000",
        "model.aibrix.ai/engine": site.wanted.layout.engine.name});
    let mut role = Map::new();
    role.insert("name".to_owned(), json!(name));
    role.insert("replicas".to_owned(), json!(site.wanted.layout.layout.dp));
    if spread.pods > 1 {
        role.insert("podGroupSize".to_owned(), json!(spread.pods));
    }
    role.insert("stateful".to_owned(), json!(spread.pods > 1));
    role.insert(
        "template".to_owned(),
        json!({"metadata": {"labels": labels}, "spec": pod::pod(site, "engine", &run, spread)?}),
    );
    Ok(Value::Object(role))
}

fn storm_service(site: &Site<'_>, roles: &[Value]) -> Value {
    let stateful = roles.iter().any(|role| role["stateful"] == json!(true));
    json!({
        "apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "StormService",
        "metadata": pod::metadata(site, json!({"app": site.name})),
        "spec": {
            "replicas": 1,
            "stateful": stateful,
            "selector": {"matchLabels": {"app": site.name}},
            "template": {"metadata": {"labels": {"app": site.name}}, "spec": {"roles": roles}},
        },
    })
}

/// `JobSet`: a job of N pods for each replica; with a queue, admitted by Kueue.
pub(super) fn jobset(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let spread = site.shares_of_processes()?;
    let head = "${JOBSET_NAME}-engine-${JOB_INDEX}-0.${JOBSET_NAME}";
    let run = if spread.pods == 1 {
        pod::plain(&serving(site.start()))
    } else {
        pod::alike(site, spread, &Ranks { rank: "$JOB_COMPLETION_INDEX", head })
    };
    let mut spec = pod::pod(site, "engine", &run, spread)?;
    let of_annotation = |name: &str, key: &str| {
        json!({"name": name, "valueFrom": {"fieldRef":
            {"fieldPath": format!("metadata.annotations['jobset.sigs.k8s.io/{key}']")}}})
    };
    if let (true, Some(env)) =
        (spread.pods > 1, spec.pointer_mut("/containers/0/env").and_then(Value::as_array_mut))
    {
        env.push(of_annotation("JOBSET_NAME", "jobset-name"));
        env.push(of_annotation("JOB_INDEX", "job-index"));
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("restartPolicy".to_owned(), json!("Never"));
    }
    let mut labels = json!({"app": site.name});
    if let Some(queue) = &site.choices.queue {
        labels["kueue.x-k8s.io/queue-name"] = json!(queue);
    }
    let object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": pod::metadata(site, labels),
        "spec": {
            "network": {"enableDNSHostnames": true, "subdomain": site.name},
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{
                "name": "engine",
                "replicas": site.wanted.layout.layout.dp,
                "template": {"spec": {
                    "parallelism": spread.pods, "completions": spread.pods, "completionMode": "Indexed",
                    "backoffLimit": 0,
                    "template": {"metadata": {"labels": {"app": site.name}}, "spec": spec},
                }},
            }],
        },
    });
    let mut written = file(site, "jobset.yaml", vec![object]);
    if site.choices.queue.is_some() {
        written.notes.push(format!(
            "Kueue must admit {} pods of {} GPUs of one flavour together.",
            site.wanted.layout.layout.dp.saturating_mul(spread.pods),
            spread.gpus
        ));
    }
    Ok(written)
}
