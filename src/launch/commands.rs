//! The commands that start one deployment, as text: comments say on which nodes each line runs.

use std::fmt::Write as _;

use super::spread::Spread;
use super::start::{Start, Word};
use super::{Engine, Role, Wanted, pair, sglang, vllm, yaml};
use crate::planner::units::grouped;

/// The port of the first replica on a node; further ones count up.
const FIRST_PORT: u64 = 8000;
/// GPUs of a node up to which its replicas are written out one by one; beyond, one stands for all.
const MAX_WRITTEN_GPUS: u64 = 128;
/// Where the commands expect the first node.
const HEAD: &str = "$HEAD_IP";

/// All lines of a deployment.
pub(super) fn of(wanted: &Wanted<'_>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}", expected(wanted));
    let start = wanted.start(wanted.options_file());
    if let Some(options) = &start.options {
        let _ =
            writeln!(out, "cat > {} <<'OPTIONS'\n{}OPTIONS", wanted.options_file(), yaml::document(options));
    }
    if wanted.replica_gpus() <= wanted.gpus_per_node {
        on_one_node(wanted, start, &mut out);
    } else {
        over_nodes(wanted, start, &mut out);
    }
    out.trim_end().to_owned()
}

/// What its log should say.
pub(super) fn expected(wanted: &Wanted<'_>) -> String {
    let tokens = grouped(wanted.layout.capacity.kv_tokens_per_replica);
    match (wanted.settings.num_speculative_tokens, wanted.engine) {
        (0, Engine::Vllm) => format!("expected at start-up: GPU KV cache size of {tokens} tokens"),
        (0, Engine::Sglang) => format!("expected at start-up: max_total_num_tokens={tokens}"),
        (0, Engine::TensorRtLlm) => format!("expected at start-up: a KV cache of {tokens} tokens"),
        (drafts, _) => {
            format!("planned with {drafts} draft tokens: add the settings of your draft model")
        }
    }
}

/// Replicas that fit into a node: one line each, on their own GPUs and port.
fn on_one_node(wanted: &Wanted<'_>, start: Start, out: &mut String) {
    let layout = &wanted.layout.layout;
    let replica_gpus = wanted.replica_gpus();
    let start = match wanted.engine {
        Engine::Vllm => vllm::together(start, wanted),
        _ => start,
    };
    let per_node = wanted.replicas_on_a_node();
    let nodes = layout.dp.div_ceil(per_node.max(1));
    if layout.dp > 1 && nodes > 1 {
        let _ = writeln!(out, "# {} replicas: on each of {nodes} nodes", layout.dp);
    } else if layout.dp > 1 {
        let _ = writeln!(out, "# {} replicas", layout.dp);
    }
    if per_node <= 1 {
        let own = on_its_port(wanted, start, 0);
        let _ = writeln!(out, "{}{}{}", pinned(wanted.pinned(0)), wanted.reachable(0), own.line());
        return;
    }
    if nodes > 1 && !layout.dp.is_multiple_of(per_node) {
        let _ = writeln!(out, "# (on the last node only {} of them)", layout.dp % per_node);
    }
    if per_node.saturating_mul(replica_gpus) > MAX_WRITTEN_GPUS {
        let _ = writeln!(out, "# {per_node} on a node, each with its own CUDA_VISIBLE_DEVICES and --port");
        let _ = writeln!(out, "{}{}", wanted.reachable(0), start.line());
        return;
    }
    for replica in 0..per_node {
        let mut own = on_its_port(wanted, start.clone(), replica);
        if wanted.role == Role::Both {
            own.whole("--port", FIRST_PORT.saturating_add(replica));
        }
        let before = pinned(wanted.pinned(replica)) + &wanted.reachable(replica);
        let _ = writeln!(out, "{before}{}", own.line());
    }
}

/// A half answers on a port of its own, since a router has to find it.
fn on_its_port(wanted: &Wanted<'_>, mut start: Start, replica: u64) -> Start {
    if wanted.role == Role::Both {
        return start;
    }
    start.text("--host", "0.0.0.0");
    start.whole("--port", FIRST_PORT.saturating_add(wanted.ports_from()).saturating_add(replica));
    if (wanted.engine, wanted.role) == (Engine::Sglang, Role::Prefill) {
        start.whole("--disaggregation-bootstrap-port", pair::BOOTSTRAP_PORT.saturating_add(replica));
    }
    start
}

fn pinned(devices: Option<Vec<u64>>) -> String {
    let Some(devices) = devices else { return String::new() };
    let list: Vec<String> = devices.iter().map(u64::to_string).collect();
    format!("CUDA_VISIBLE_DEVICES={} ", list.join(","))
}

/// A replica that needs several nodes.
fn over_nodes(wanted: &Wanted<'_>, start: Start, out: &mut String) {
    let layout = &wanted.layout.layout;
    let start = on_its_port(wanted, start, 0);
    let reachable = wanted.reachable(0);
    let nodes = wanted.replica_gpus().div_ceil(wanted.gpus_per_node.max(1));
    if layout.dp > 1 {
        let _ = writeln!(out, "# {} replicas: once for each group of {nodes} nodes", layout.dp);
    }
    let even = Spread::of(wanted).filter(|spread| spread.pods == nodes);
    match (wanted.engine, even) {
        (Engine::Vllm, Some(spread)) if layout.attention_dp <= 1 || spread.groups(wanted).is_some() => {
            vllm_on_nodes(wanted, &start, spread, out);
        }
        // ranks cannot be dealt out evenly over the nodes: only Ray places them so
        (Engine::Vllm, _) => {
            let start = vllm::on_ray(start, wanted);
            let _ =
                writeln!(out, "# on one node of a Ray cluster of {nodes} nodes\n{reachable}{}", start.line());
        }
        (Engine::Sglang, _) => {
            let spread = even.or_else(|| Spread::of(wanted)).unwrap_or(Spread { pods: nodes, gpus: 1 });
            if spread.pods > nodes {
                let _ = writeln!(
                    out,
                    "# {} processes of {} GPUs: where two share a node, give each its own CUDA_VISIBLE_DEVICES",
                    spread.pods, spread.gpus
                );
            }
            let start = sglang::on_node(start, spread, Word::Shell("$NODE_RANK".to_owned()), HEAD);
            let _ = writeln!(
                out,
                "# on each of the {} nodes, NODE_RANK=0..{}\n{}",
                spread.pods,
                spread.pods.saturating_sub(1),
                start.line()
            );
        }
        (Engine::TensorRtLlm, even) => {
            let ranks = wanted.replica_gpus();
            let tasks = even.map_or_else(String::new, |s| format!(" --ntasks-per-node={}", s.gpus));
            let _ = writeln!(
                out,
                "# in a Slurm allocation of {nodes} nodes that all see the file of options\nsrun --nodes={nodes} \
                 --ntasks={ranks}{tasks} --mpi=pmix trtllm-llmapi-launch {}",
                start.line()
            );
        }
    }
}

fn vllm_on_nodes(wanted: &Wanted<'_>, start: &Start, spread: Spread, out: &mut String) {
    let on = |rank, worker| {
        wanted.reachable(0) + &vllm::on_node(start.clone(), wanted, spread, rank, HEAD, worker).line()
    };
    let _ = writeln!(out, "# on the first node\n{}", on(Word::Whole(0), false));
    if spread.pods == 2 {
        let _ = writeln!(out, "# on the second node\n{}", on(Word::Whole(1), true));
    } else {
        let _ = writeln!(
            out,
            "# on the others, NODE_RANK=1..{}\n{}",
            spread.pods.saturating_sub(1),
            on(Word::Shell("$NODE_RANK".to_owned()), true)
        );
    }
}
