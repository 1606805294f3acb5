//! KServe `LLMInferenceService`. The presets pass TP, data and expert parallelism on, but no pipeline size, and append
//! `VLLM_ADDITIONAL_ARGS`; a replica whose TP or stages lie on several nodes brings its own command.

use serde_json::{Map, Value, json};

use super::pod::{self, Ranks};
use super::site::Site;
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::yaml;

pub(super) fn inference_service(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let object = object(site, site, None)?;
    Ok(Written {
        files: vec![LaunchFile::yaml("llminferenceservice.yaml", yaml::file(&site.comment(), &[object]))],
        notes: vec![TOTAL_STAYS.to_owned()],
    })
}

pub(super) const TOTAL_STAYS: &str = "The total parallelism of an existing LLMInferenceService cannot be changed: another layout is another object.";

/// The object; with a pool of prefill workers its own part is the decode workers.
pub(super) fn object(
    whole: &Site<'_>,
    site: &Site<'_>,
    prefill: Option<&Site<'_>>,
) -> Result<Value, Inexpressible> {
    let mut spec =
        json!({"model": {"uri": format!("hf://{}", site.wanted.model), "name": site.wanted.model}});
    let mut part = part(site)?;
    if let Some(parts) = spec.as_object_mut() {
        parts.append(&mut part);
    }
    if let Some(prefill) = prefill {
        spec["prefill"] = Value::Object(self::part(prefill)?);
    }
    spec["router"] = json!({"route": {}, "gateway": {}, "scheduler": {}});
    Ok(json!({
        "apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService",
        "metadata": pod::metadata(whole, json!({"app": whole.name})),
        "spec": spec,
    }))
}

/// Replicas, parallelism and pods of one pool.
fn part(site: &Site<'_>) -> Result<Map<String, Value>, Inexpressible> {
    site.only_vllm("kserve_vllm_only")?;
    let layout = &site.wanted.layout.layout;
    let spread = site.shares_of_processes()?;
    let several = spread.pods > 1;
    if layout.pp > 1 && layout.attention_dp > 1 {
        return Err(Inexpressible::because(
            "kserve_pp_with_dp",
            "KServe refuses pipeline and data parallelism together: use leader-worker-set",
        ));
    }
    if several && layout.pp <= 1 && layout.attention_dp <= 1 {
        return Err(Inexpressible::because(
            "kserve_tp_over_nodes",
            "a worker needs data or pipeline parallelism beside it: a TP group over several nodes has no place, use \
             leader-worker-set",
        ));
    }
    let mut parallelism = Map::new();
    parallelism.insert("tensor".to_owned(), json!(layout.tp));
    if layout.pp > 1 {
        parallelism.insert("pipeline".to_owned(), json!(layout.pp));
    }
    if layout.attention_dp > 1 {
        parallelism.insert("data".to_owned(), json!(layout.attention_dp));
        let local = spread.groups(&site.wanted).unwrap_or(layout.attention_dp);
        parallelism.insert("dataLocal".to_owned(), json!(local));
    }
    if layout.ep > 1 {
        parallelism.insert("expert".to_owned(), json!(true));
    }
    let (template, worker) = if several && layout.pp > 1 {
        let ranks = Ranks { rank: "$LWS_WORKER_INDEX", head: "$LWS_LEADER_ADDRESS" };
        let (leader, worker) = pod::group(site, spread, &ranks);
        (pod::pod(site, "main", &leader, spread)?, Some(pod::pod(site, "main", &worker, spread)?))
    } else {
        let by_preset = preset(site, spread.gpus)?;
        (by_preset.clone(), several.then_some(by_preset))
    };
    let mut part = Map::new();
    part.insert("replicas".to_owned(), json!(layout.dp));
    part.insert("parallelism".to_owned(), Value::Object(parallelism));
    part.insert("template".to_owned(), template);
    if let Some(worker) = worker {
        part.insert("worker".to_owned(), worker);
    }
    Ok(part)
}

/// A pod whose command is the preset's: everything that has no field goes by `VLLM_ADDITIONAL_ARGS`, where a shell reads it.
fn preset(site: &Site<'_>, gpus: u64) -> Result<Value, Inexpressible> {
    let start = site.start();
    let env = start.env.clone();
    let mut rest =
        start.without(&["--tensor-parallel-size", "--data-parallel-size", "--enable-expert-parallel"]);
    rest.program.clear();
    rest.positional = None;
    rest.env.clear();
    let mut variables: Vec<Value> = env.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
    variables.extend(pod::reachable(site));
    variables.push(json!({"name": "VLLM_ADDITIONAL_ARGS", "value": rest.line().replace('$', "$$")}));
    let mut limits = Map::new();
    limits.insert(site.gpu_resource()?, json!(gpus.to_string()));
    Ok(json!({
        "containers": [{"name": "main", "image": site.image()?, "env": variables, "resources": {"limits": limits},
            "startupProbe": {"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTPS"}, "periodSeconds": 10,
                "failureThreshold": site.start_seconds().div_ceil(10)},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory",
            "sizeLimit": format!("{}Gi", Site::shared_memory_gib(gpus))}}],
    }))
}
