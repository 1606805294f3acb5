//! NVIDIA Dynamo `DynamoGraphDeployment` v1alpha1. Its operator tells the processes of several nodes of each other, so no
//! flag of ours does.

use serde_json::{Map, Value, json};

use super::pod;
use super::site::{OPTIONS_PATH, Site};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::{Engine, tensorrt_llm, yaml};

/// Dynamo's own release, whose runtime images hold the engines.
const RELEASE: &str = "1.6.1";

pub(super) fn graph(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let spread = site.shares()?;
    let layout = &site.wanted.layout.layout;
    if site.engine() == Engine::Vllm
        && spread.pods > 1
        && layout.attention_dp > 1
        && spread.groups(&site.wanted).is_none()
    {
        return Err(Inexpressible::because(
            "vllm_dp_rank_over_nodes",
            "a data-parallel rank of vLLM that lies on several nodes needs Ray: use ray-serve",
        ));
    }
    let (backend, runtime, module) = match site.engine() {
        Engine::Vllm => ("vllm", "vllm-runtime", "dynamo.vllm"),
        Engine::Sglang => ("sglang", "sglang-runtime", "dynamo.sglang"),
        Engine::TensorRtLlm => ("trtllm", "tensorrtllm-runtime", "dynamo.trtllm"),
    };
    let image = match &site.choices.image {
        Some(image) => image.clone(),
        None => format!("nvcr.io/nvidia/ai-dynamo/{runtime}:{RELEASE}"),
    };
    let mut start = site.start();
    let mut args: Vec<String> = Vec::new();
    let mut options = None;
    match site.engine() {
        Engine::Vllm => {
            args.extend(["--model".to_owned(), site.wanted.model.to_owned()]);
            start.positional = None;
            if spread.pods > 1 && layout.attention_dp > 1 {
                start.switch("--data-parallel-hybrid-lb");
            }
        }
        Engine::Sglang => {}
        Engine::TensorRtLlm => {
            args.extend(["--model-path".to_owned(), site.wanted.model.to_owned()]);
            args.extend(["--extra-engine-args".to_owned(), OPTIONS_PATH.to_owned()]);
            start.positional = None;
            start.args.clear();
            options = Some(tensorrt_llm::all_options(&site.wanted));
        }
    }
    args.extend(start.arguments().iter().map(crate::launch::start::Word::plain));
    let args: Vec<String> = args.iter().map(|arg| arg.replace('$', "$$")).collect();
    let mut container = json!({"image": image, "command": ["python3", "-m", module], "args": args});
    if !start.env.is_empty() {
        container["env"] = start.env.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
    }
    container["startupProbe"] = json!({"httpGet": {"path": "/health", "port": 9090}, "periodSeconds": 10,
        "failureThreshold": site.start_seconds().div_ceil(10)});
    let mut extra = Map::new();
    if options.is_some() {
        let (volume, mount) = pod::options_mount(site);
        container["volumeMounts"] = json!([mount]);
        extra.insert("volumes".to_owned(), json!([volume]));
    }
    extra.insert("mainContainer".to_owned(), container);
    let mut worker = Map::new();
    worker.insert("componentType".to_owned(), json!("worker"));
    worker.insert("replicas".to_owned(), json!(layout.dp));
    if spread.pods > 1 {
        worker.insert("multinode".to_owned(), json!({"nodeCount": spread.pods}));
    }
    worker.insert("resources".to_owned(), json!({"limits": {"gpu": spread.gpus.to_string()}}));
    worker.insert(
        "sharedMemory".to_owned(),
        json!({"size": format!("{}Gi", Site::shared_memory_gib(spread.gpus))}),
    );
    worker.insert("extraPodSpec".to_owned(), Value::Object(extra));
    let object = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "metadata": pod::metadata(site, json!({"app": site.name})),
        "spec": {"backendFramework": backend, "services": {
            "Frontend": {"componentType": "frontend", "replicas": 1,
                "extraPodSpec": {"mainContainer": {"image": image}}},
            "Worker": worker,
        }},
    });
    let objects: Vec<Value> = pod::options(site, options).into_iter().chain([object]).collect();
    Ok(Written {
        files: vec![LaunchFile::yaml("dynamographdeployment.yaml", yaml::file(&site.comment(), &objects))],
        notes: vec![format!(
            "The runtime image of Dynamo {RELEASE} brings its own release of the engine; the figures are for {} {}.",
            site.wanted.layout.engine.name,
            site.release()
        )],
    })
}
