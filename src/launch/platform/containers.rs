//! A compose file: the replicas of one host, each on its own GPUs and port.

use serde_json::{Map, Value, json};

use super::site::{PORT, Site, serving};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::{tensorrt_llm, yaml};

/// GPUs of a host that are written out.
const MAX_GPUS: u64 = 128;

pub(super) fn compose(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let gpus = site.wanted.replica_gpus();
    if gpus > site.wanted.gpus_per_node || site.wanted.gpus_per_node > MAX_GPUS {
        return Err(Inexpressible::because(
            "compose_one_host",
            format!(
                "a replica needs {gpus} GPUs and a compose file starts containers on one host: use leader-worker-set"
            ),
        ));
    }
    let layout = &site.wanted.layout.layout;
    let here = site.wanted.replicas_on_a_node();
    let mut services = Map::new();
    let image = site.image()?;
    for replica in 0..here {
        let start = serving(site.start());
        let devices = site.wanted.pinned(replica).unwrap_or_else(|| (0..gpus).collect());
        let ids: Vec<String> = devices.iter().map(u64::to_string).collect();
        let words: Vec<String> = start.words().iter().map(|w| w.plain().replace('$', "$$")).collect();
        let mut environment: Map<String, Value> =
            start.env.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        environment.insert("HF_TOKEN".to_owned(), json!("${HF_TOKEN:-}"));
        let mut volumes = vec![json!("${HF_HOME:-~/.cache/huggingface}:/root/.cache/huggingface")];
        if start.options.is_some() {
            volumes.push(json!(format!("./{}:{}:ro", tensorrt_llm::OPTIONS_FILE, site.options_path())));
        }
        // the program stands first: an image with an entry point of its own would put it in front
        let (program, arguments) = words.split_at(start.program.len().min(words.len()));
        let service = json!({
            "image": image,
            "entrypoint": program,
            "command": arguments,
            "environment": environment,
            "ports": [format!("{}:{PORT}", PORT.saturating_add(replica))],
            "volumes": volumes,
            "shm_size": format!("{}gb", Site::shared_memory_gib(gpus)),
            "ulimits": {"memlock": -1},
            "healthcheck": {"test": ["CMD-SHELL", format!("curl -fs http://localhost:{PORT}/health")],
                "interval": "10s", "retries": 3, "start_period": format!("{}s", site.start_seconds())},
            "deploy": {"resources": {"reservations": {"devices": [
                {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}]}}},
            "restart": "unless-stopped",
        });
        let name = if here == 1 { site.name.clone() } else { format!("{}-{}", site.name, replica + 1) };
        services.insert(name, service);
    }
    let mut files =
        vec![LaunchFile::yaml("compose.yaml", yaml::file(&site.comment(), &[json!({"services": services})]))];
    if let Some(options) = site.start().options {
        files.push(LaunchFile::yaml(tensorrt_llm::OPTIONS_FILE, yaml::document(&options)));
    }
    let mut notes = Vec::new();
    let hosts = layout.dp.div_ceil(here.max(1));
    if hosts > 1 {
        notes.push(format!("Start it on each of {hosts} hosts; the last may need fewer services."));
    }
    Ok(Written { files, notes })
}
