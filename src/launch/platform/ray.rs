//! Ray Serve LLM: settings of the engine by keyword, GPUs by placement group.

use serde_json::{Map, Value, json};

use super::site::Site;
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::yaml;

/// Products that Ray names, and how it does (`ray.util.accelerators`).
const PRODUCTS: &[(&str, &str)] = &[
    ("v100", "V100"),
    ("t4", "T4"),
    ("a10g", "A10G"),
    ("l40s", "L40S"),
    ("l4", "L4"),
    ("a100", "A100"),
    ("h100", "H100"),
    ("h200", "H200"),
    ("h20", "H20"),
    ("b200", "B200"),
];

pub(super) fn serve(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let (config, mut notes) = config(site)?;
    let path = if site.wanted.layout.layout.attention_dp > 1 {
        notes
            .push("With data-parallel attention the builder takes replicas × data × tensor GPUs.".to_owned());
        "ray.serve.llm:build_dp_openai_app"
    } else {
        "ray.serve.llm:build_openai_app"
    };
    let file = json!({"applications": [{"name": site.name, "route_prefix": "/", "import_path": path,
        "args": {"llm_configs": [config]}}]});
    Ok(Written { files: vec![LaunchFile::yaml("serve.yaml", yaml::file(&site.comment(), &[file]))], notes })
}

/// The configuration of one engine, and what to know about it.
pub(super) fn config(site: &Site<'_>) -> Result<(Value, Vec<String>), Inexpressible> {
    site.only_vllm("rayserve_vllm_only")?;
    site.any_gpus()?;
    let layout = &site.wanted.layout.layout;
    let start = site.start();
    let one_node = site.wanted.replica_gpus() <= site.wanted.gpus_per_node;
    let family = site.gpu.split('-').next().unwrap_or_default();
    let product =
        PRODUCTS.iter().find(|(key, _)| *key == family && !site.gpu.contains("-mig-")).map(|(_, name)| *name);
    let mut config = Map::new();
    config.insert(
        "model_loading_config".to_owned(),
        json!({"model_id": site.name, "model_source": site.wanted.model}),
    );
    if let Some(product) = product {
        config.insert("accelerator_type".to_owned(), json!(product));
    }
    let mut keywords = start.keywords();
    let transfer = keywords.get("kv_transfer_config").and_then(Value::as_str).map(serde_json::from_str);
    if let Some(Ok::<Value, _>(transfer)) = transfer {
        keywords["kv_transfer_config"] = transfer;
    }
    config.insert("engine_kwargs".to_owned(), keywords);
    if !start.env.is_empty() {
        let variables: Map<String, Value> =
            start.env.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        config.insert("runtime_env".to_owned(), json!({"env_vars": variables}));
    }
    config.insert("deployment_config".to_owned(), json!({"num_replicas": layout.dp}));
    config.insert(
        "placement_group_config".to_owned(),
        json!({"bundle_per_worker": {"GPU": 1}, "strategy": if one_node { "STRICT_PACK" } else { "PACK" }}),
    );
    let mut notes = Vec::new();
    if product.is_none() {
        notes.push(format!("Ray has no name for {}: accelerator_type is left out.", site.gpu));
    }
    Ok((Value::Object(config), notes))
}
