//! What runs in a shell: the engine's own commands, SkyPilot tasks, the SGLang router.

use std::fmt::Write as _;

use serde_json::{Map, json};

use super::site::{Site, serving};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::start::Word;
use crate::launch::{Engine, commands, sglang, tensorrt_llm, vllm, yaml};

/// The commands as they are.
pub(super) fn command(site: &Site<'_>) -> Written {
    let text = commands::of(&site.wanted) + "\n";
    Written { files: vec![LaunchFile::shell("launch.sh", text)], notes: Vec::new() }
}

/// The commands of SGLang's replicas, and the router in front of them.
pub(super) fn sglang_router(site: &Site<'_>) -> Result<Written, Inexpressible> {
    if site.engine() != Engine::Sglang {
        return Err(Inexpressible::because(
            "router_sglang_only",
            "the router is written for replicas of SGLang",
        ));
    }
    let layout = &site.wanted.layout.layout;
    let mut written = command(site);
    let here = site.wanted.replicas_on_a_node();
    let mut text = String::from("# the first address of each replica, in WORKERS: http://HOST:PORT ...\n");
    text.push_str("python3 -m sglang_router.launch_router --worker-urls $WORKERS --policy cache_aware");
    if layout.attention_dp > 1 {
        text.push_str(" --dp-aware");
    }
    let seats = site.wanted.layout.capacity.sequences_total.max(1);
    let _ = writeln!(text, " --max-concurrent-requests {seats}");
    written.files.push(LaunchFile::shell("router.sh", text));
    written.notes.push(format!(
        "WORKERS holds {} addresses: {} a host from port 8000 on. More than {seats} requests at once wait in the router.",
        layout.dp, here
    ));
    Ok(written)
}

/// A SkyPilot task; as a service when there is something to balance.
pub(super) fn skypilot(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let spread = site.shares_of_processes()?;
    let layout = &site.wanted.layout.layout;
    let product = product(site);
    let mut run = String::from("set -e\n");
    if let Some(options) = site.start().options {
        let _ = writeln!(
            run,
            "cat > {} <<'OPTIONS'\n{}OPTIONS",
            tensorrt_llm::OPTIONS_FILE,
            yaml::document(&options)
        );
    }
    let start = site.wanted.start(tensorrt_llm::OPTIONS_FILE);
    if spread.pods == 1 {
        let start = match site.engine() {
            Engine::Vllm => vllm::together(start, &site.wanted),
            _ => start,
        };
        let _ = writeln!(run, "{}", serving(start).line());
    } else {
        run.push_str("HEAD_IP=$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)\n");
        let rank = || Word::Shell("$SKYPILOT_NODE_RANK".to_owned());
        match site.engine() {
            Engine::Vllm => {
                let on = |start, rank, worker| {
                    vllm::on_node(start, &site.wanted, spread, rank, "$HEAD_IP", worker)
                };
                let leader = serving(on(start.clone(), Word::Whole(0), false)).line();
                let worker = on(start, rank(), true).line();
                let _ = writeln!(
                    run,
                    "if [ \"$SKYPILOT_NODE_RANK\" = 0 ]; then\n  {leader}\nelse\n  {worker}\nfi"
                );
            }
            _ => {
                let start = serving(sglang::on_node(start, spread, rank(), "$HEAD_IP"));
                let _ = writeln!(run, "{}", start.line());
            }
        }
    }
    let mut task = Map::new();
    task.insert("name".to_owned(), json!(site.name));
    task.insert(
        "resources".to_owned(),
        json!({"accelerators": format!("{product}:{}", spread.gpus), "ports": 8000,
            "image_id": format!("docker:{}", site.image()?)}),
    );
    task.insert("num_nodes".to_owned(), json!(spread.pods));
    let rate = site.wanted.layout.throughput.requests_per_s / layout.dp.max(1) as f64;
    let mut policy = Map::new();
    policy.insert("min_replicas".to_owned(), json!(layout.dp));
    policy.insert("max_replicas".to_owned(), json!(layout.dp));
    if rate.is_finite() && rate > 0.0 {
        policy.insert("target_qps_per_replica".to_owned(), json!((rate * 100.0).floor().max(1.0) / 100.0));
    }
    task.insert(
        "service".to_owned(),
        json!({"readiness_probe": {"path": "/health", "initial_delay_seconds": site.start_seconds()},
            "replica_policy": policy, "load_balancing_policy": "least_load"}),
    );
    task.insert("run".to_owned(), json!(run));
    let text = yaml::file(&site.comment(), &[task.into()]);
    Ok(Written { files: vec![LaunchFile::yaml("task.yaml", text)], notes: Vec::new() })
}

/// A product as SkyPilot names it: its family, with the memory where a family has several.
fn product(site: &Site<'_>) -> String {
    let family = site.gpu.split('-').next().unwrap_or_default().to_ascii_uppercase();
    match site.gpu {
        gpu if gpu.starts_with("a100-") && gpu.contains("80gb") => "A100-80GB".to_owned(),
        gpu if gpu.starts_with("v100-") && gpu.contains("32gb") => "V100-32GB".to_owned(),
        gpu if gpu.starts_with("rtx-") => gpu.replace("rtx-", "RTX").to_ascii_uppercase(),
        _ => family,
    }
}
