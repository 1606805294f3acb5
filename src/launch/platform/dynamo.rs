//! NVIDIA Dynamo `DynamoGraphDeployment` v1alpha1. Its operator tells the processes of several nodes of each other, so no
//! flag of ours does.

use serde_json::{Map, Value, json};

use super::pod;
use super::site::Site;
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::{Engine, Role, tensorrt_llm, yaml};

/// Dynamo's own release, whose runtime images hold the engines.
const RELEASE: &str = "1.6.1";

pub(super) fn graph(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let (object, options) = deployment(site, &[("Worker", site)])?;
    let objects: Vec<Value> = options.into_iter().chain([object]).collect();
    Ok(Written {
        files: vec![LaunchFile::yaml("dynamographdeployment.yaml", yaml::file(&site.comment(), &objects))],
        notes: vec![release_note(site)],
    })
}

pub(super) fn release_note(site: &Site<'_>) -> String {
    format!(
        "The runtime image of Dynamo {RELEASE} brings its own release of the engine; the figures are for {} {}.",
        site.wanted.layout.engine.name,
        site.release()
    )
}

/// The deployment of some workers behind one frontend, and the files of options that they mount.
pub(super) fn deployment(
    whole: &Site<'_>,
    workers: &[(&str, &Site<'_>)],
) -> Result<(Value, Vec<Value>), Inexpressible> {
    let mut services = Map::new();
    services.insert(
        "Frontend".to_owned(),
        json!({"componentType": "frontend", "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": image(whole)}}}),
    );
    let mut files = Vec::new();
    for (name, site) in workers {
        let (worker, options) = worker(site)?;
        services.insert((*name).to_owned(), worker);
        files.extend(pod::options(site, options));
    }
    let object = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "metadata": pod::metadata(whole, json!({"app": whole.name})),
        "spec": {"backendFramework": runtime(whole.engine()).0, "services": services},
    });
    Ok((object, files))
}

/// Dynamo's name of an engine, its image and its module.
pub(super) fn runtime(engine: Engine) -> (&'static str, &'static str, &'static str) {
    match engine {
        Engine::Vllm => ("vllm", "vllm-runtime", "dynamo.vllm"),
        Engine::Sglang => ("sglang", "sglang-runtime", "dynamo.sglang"),
        Engine::TensorRtLlm => ("trtllm", "tensorrtllm-runtime", "dynamo.trtllm"),
    }
}

pub(super) fn image(site: &Site<'_>) -> String {
    match &site.choices.image {
        Some(image) => image.clone(),
        None => format!("nvcr.io/nvidia/ai-dynamo/{}:{RELEASE}", runtime(site.engine()).1),
    }
}

fn worker(site: &Site<'_>) -> Result<(Value, Option<Value>), Inexpressible> {
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
    let (_, _, module) = runtime(site.engine());
    let image = image(site);
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
            args.extend(["--extra-engine-args".to_owned(), site.options_path()]);
            start.positional = None;
            start.args.clear();
            options = Some(tensorrt_llm::all_options(&site.wanted));
        }
    }
    if site.wanted.role != Role::Both && site.engine() != Engine::Sglang {
        args.extend(["--disaggregation-mode".to_owned(), site.wanted.role.word().to_owned()]);
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
    if site.wanted.role != Role::Both {
        worker.insert("subComponentType".to_owned(), json!(site.wanted.role.word()));
    }
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
    Ok((Value::Object(worker), options))
}
