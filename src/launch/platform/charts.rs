//! Values of Helm charts and bodies of forms: vLLM production-stack, llm-d, GPUStack.

use serde_json::{Map, Value, json};

use super::pod;
use super::site::{Site, serving};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::start::{Arg, Start};
use crate::launch::{Engine, yaml};

/// Replicas of a Ray cluster each that are written out.
const MAX_ENTRIES: u64 = 64;

fn one(site: &Site<'_>, name: &str, value: &Value) -> Written {
    let text = yaml::file(&site.comment(), std::slice::from_ref(value));
    Written { files: vec![LaunchFile::yaml(name, text)], notes: Vec::new() }
}

/// Flags as a list, each word an item.
fn flags(start: &Start) -> Vec<String> {
    start.args.iter().flat_map(items).collect()
}

fn items(arg: &Arg) -> Vec<String> {
    let mut words = vec![arg.name.to_owned()];
    words.extend(arg.value.as_ref().map(crate::launch::start::Word::plain));
    words
}

/// Values of the production stack. A pipeline inside one pod goes by `extraArgs`, since the chart reads
/// `pipelineParallelSize` under Ray only; over several nodes Ray is switched on, where `replicaCount` counts workers.
pub(super) fn production_stack(site: &Site<'_>) -> Result<Written, Inexpressible> {
    site.only_vllm("productionstack_vllm_only")?;
    let layout = &site.wanted.layout.layout;
    let spread = site.shares()?;
    let ray = spread.pods > 1;
    if ray && layout.attention_dp > 1 {
        return Err(Inexpressible::because(
            "productionstack_dp_over_nodes",
            "the Ray template starts one engine with TP and PP; data-parallel ranks over nodes have no place in it: use \
             llm-d or leader-worker-set",
        ));
    }
    if ray && layout.dp > MAX_ENTRIES {
        return Err(Inexpressible::because(
            "productionstack_ray_replicas",
            format!(
                "under Ray each replica is an entry of its own, and {} are too many for one file",
                layout.dp
            ),
        ));
    }
    let start = site.start();
    let mut config = Map::new();
    config.insert("tensorParallelSize".to_owned(), json!(layout.tp));
    if ray && layout.pp > 1 {
        config.insert("pipelineParallelSize".to_owned(), json!(layout.pp));
    }
    config.insert("maxModelLen".to_owned(), json!(site.wanted.max_model_len()));
    config.insert("maxNumSeqs".to_owned(), json!(site.wanted.echo.max_num_seqs));
    let mut fields = vec!["--tensor-parallel-size", "--max-model-len", "--max-num-seqs"];
    if site.wanted.echo.kv_cache_memory_bytes.is_none() {
        config.insert("gpuMemoryUtilization".to_owned(), json!(site.wanted.gpu_memory_utilization()));
        fields.push("--gpu-memory-utilization");
    }
    if let Some(on) = site.wanted.settings.enable_prefix_caching {
        config.insert("enablePrefixCaching".to_owned(), json!(on));
        fields.extend(["--enable-prefix-caching", "--no-enable-prefix-caching"]);
    }
    if ray {
        fields.push("--pipeline-parallel-size");
    }
    let image = site.image()?;
    let (repository, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
    config.insert("extraArgs".to_owned(), json!(flags(&start.clone().without(&fields))));
    let entry = |name: String| {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(name));
        entry.insert("repository".to_owned(), json!(repository));
        entry.insert("tag".to_owned(), json!(tag));
        entry.insert("modelURL".to_owned(), json!(site.wanted.model));
        entry.insert(
            "replicaCount".to_owned(),
            json!(if ray { spread.pods.saturating_sub(1) } else { layout.dp }),
        );
        entry.insert("requestCPU".to_owned(), json!(spread.gpus.saturating_mul(4)));
        entry.insert("requestMemory".to_owned(), json!(memory(site, spread.pods)));
        entry.insert("requestGPU".to_owned(), json!(spread.gpus));
        entry.insert("shmSize".to_owned(), json!(format!("{}Gi", Site::shared_memory_gib(spread.gpus))));
        if !start.env.is_empty() {
            let env: Vec<Value> = start.env.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
            entry.insert("env".to_owned(), json!(env));
        }
        if ray {
            entry.insert(
                "raySpec".to_owned(),
                json!({"enabled": true, "headNode": {"requestCPU": spread.gpus.saturating_mul(4),
                    "requestMemory": memory(site, spread.pods), "requestGPU": spread.gpus}}),
            );
        }
        entry.insert("vllmConfig".to_owned(), Value::Object(config.clone()));
        entry
    };
    let resource = site.gpu_resource()?;
    let entries: Vec<Value> = (1..=if ray { layout.dp } else { 1 })
        .map(|i| {
            let name = if ray && layout.dp > 1 { format!("{}-{i}", site.name) } else { site.name.clone() };
            let mut entry = entry(name);
            entry.insert("requestGPUType".to_owned(), json!(resource));
            Value::Object(entry)
        })
        .collect();
    let mut written = one(site, "values.yaml", &json!({"servingEngineSpec": {"modelSpec": entries}}));
    if ray {
        written.notes.push(
            "Under Ray the chart's replicaCount counts workers beside the head node, not replicas of the model.".to_owned(),
        );
    }
    Ok(written)
}

/// Host memory of a pod: its share of the weights passes through it, and 16 GiB for the rest.
fn memory(site: &Site<'_>, pods: u64) -> String {
    let share = site.weights_bytes.checked_div(pods.max(1)).unwrap_or(0) >> 30;
    format!("{}Gi", share.saturating_add(16))
}

/// Values of the llm-d modelservice chart. It counts GPUs as tensor × dataLocal, so with a pipeline the container says.
pub(super) fn llm_d(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let (decode, several) = llm_d_block(site)?;
    let values = json!({
        "multinode": several,
        "modelArtifacts": llm_d_model(site),
        "decode": decode,
        "prefill": {"create": false},
    });
    Ok(one(site, "values.yaml", &values))
}

/// The same with both halves of a pair; the chart's proxy hands requests from one to the other.
pub(super) fn llm_d_pair(prefill: &Site<'_>, decode: &Site<'_>) -> Result<Value, Inexpressible> {
    let (prefill_block, prefill_several) = llm_d_block(prefill)?;
    let (decode_block, several) = llm_d_block(decode)?;
    if several != prefill_several {
        return Err(Inexpressible::because(
            "modelservice_one_multinode",
            "the chart has one switch for several nodes, and only one half of the pair needs them: use leader-worker-set",
        ));
    }
    Ok(json!({
        "multinode": several,
        "modelArtifacts": llm_d_model(decode),
        "routing": {"proxy": {"connector": "nixlv2"}},
        "decode": decode_block,
        "prefill": prefill_block,
    }))
}

fn llm_d_model(site: &Site<'_>) -> Value {
    json!({"name": site.wanted.model, "uri": format!("hf://{}", site.wanted.model),
        "size": format!("{}Gi", (site.weights_bytes >> 30).saturating_add(20))})
}

/// One role of the chart, and whether it lies on several nodes.
fn llm_d_block(site: &Site<'_>) -> Result<(Value, bool), Inexpressible> {
    site.only_vllm("modelservice_vllm_only")?;
    let layout = &site.wanted.layout.layout;
    let spread = site.shares_of_processes()?;
    let several = spread.pods > 1;
    let groups = spread.groups(&site.wanted);
    if several && (layout.attention_dp <= 1 || groups.is_none()) {
        return Err(Inexpressible::because(
            "modelservice_no_pp_field",
            "the chart spreads data-parallel ranks over nodes, and has no field for a TP group or a pipeline that leaves its \
             node: use leader-worker-set",
        ));
    }
    let mut parallelism = Map::new();
    parallelism.insert("tensor".to_owned(), json!(layout.tp));
    if layout.attention_dp > 1 {
        parallelism.insert("data".to_owned(), json!(layout.attention_dp));
        parallelism.insert("dataLocal".to_owned(), json!(groups.unwrap_or(layout.attention_dp)));
        parallelism.insert("workers".to_owned(), json!(spread.pods));
    }
    let start = site.start();
    let args = flags(&start.clone().without(&["--tensor-parallel-size", "--data-parallel-size"]));
    let mut container =
        json!({"name": "vllm", "image": site.image()?, "modelCommand": "vllmServe", "args": args});
    if let (Some(container), Some(limits)) = (container.as_object_mut(), site.gpu_resource().ok()) {
        if layout.pp > 1 {
            container.insert("resources".to_owned(), json!({"limits": {limits: spread.gpus.to_string()}}));
        }
        let mut env: Vec<Value> = start.env.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
        env.extend(pod::reachable(site));
        if !env.is_empty() {
            container.insert("env".to_owned(), json!(env));
        }
        container.insert("mountModelVolume".to_owned(), json!(true));
        container.insert(
            "startupProbe".to_owned(),
            json!({"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10,
                "failureThreshold": site.start_seconds().div_ceil(10)}),
        );
    }
    let block =
        json!({"create": true, "replicas": layout.dp, "parallelism": parallelism, "containers": [container]});
    Ok((block, several))
}

/// A kustomize patch for the model server of the llm-d guides.
pub(super) fn llm_d_kustomize(site: &Site<'_>) -> Result<Written, Inexpressible> {
    site.only_vllm("modelservice_vllm_only")?;
    let gpus = site.on_one_node("llmd_kustomize_one_node")?;
    let start = serving(site.start());
    let words: Vec<String> = start.arguments().iter().map(|w| w.plain().replace('$', "$$")).collect();
    let mut limits = Map::new();
    limits.insert(site.gpu_resource()?, json!(gpus.to_string()));
    let mut container = json!({"name": "modelserver", "image": site.image()?, "command": start.program, "args": words,
        "resources": {"limits": limits}});
    if !start.env.is_empty() {
        container["env"] = start.env.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
    }
    let patch = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": site.name},
        "spec": {"replicas": site.wanted.layout.layout.dp, "template": {"spec": {"containers": [container]}}},
    });
    let mut written = one(site, "patch-modelserver.yaml", &patch);
    written.notes.push(
        "A patch over a base of the llm-d guides, e.g. guides/optimized-baseline/modelserver/gpu/vllm/base: give it the name \
         of that base's Deployment, or a target in the kustomization."
            .to_owned(),
    );
    Ok(written)
}

/// The body that creates a model in GPUStack.
pub(super) fn gpustack(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let backend = match site.engine() {
        Engine::Vllm => "vLLM",
        Engine::Sglang => "SGLang",
        Engine::TensorRtLlm => {
            return Err(Inexpressible::because(
                "gpustack_no_trtllm",
                "GPUStack has backends for vLLM and SGLang; TensorRT-LLM would be a Custom one",
            ));
        }
    };
    let layout = &site.wanted.layout.layout;
    let spread = site.shares()?;
    let start = site.start().without(&["--model-path"]);
    if !start.env.is_empty() {
        return Err(Inexpressible::because(
            "gpustack_no_environment",
            "uneven pipeline stages and lengths beyond the model's own are set by environment variables, which this form of \
             the body has no place for",
        ));
    }
    let parameters: Vec<String> = start.args.iter().map(|arg| items(arg).join("=")).collect();
    let body = json!({
        "name": site.name,
        "source": "huggingface",
        "huggingface_repo_id": site.wanted.model,
        "backend": backend,
        "backend_version": site.release(),
        "backend_parameters": parameters,
        "replicas": layout.dp,
        "gpu_selector": {"gpus_per_replica": site.wanted.replica_gpus()},
        "distributed_inference_across_workers": spread.pods > 1,
        "placement_strategy": "binpack",
    });
    let text = serde_json::to_string_pretty(&body).unwrap_or_default() + "\n";
    let file = LaunchFile { name: "model.json".to_owned(), media_type: "application/json", text };
    Ok(Written { files: vec![file], notes: Vec::new() })
}
