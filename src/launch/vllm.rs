//! `vllm serve` for a layout.
//!
//! Sources, vLLM documentation of the 0.3x releases: "Parallelism and Scaling" (one instance over several
//! nodes by `--nnodes`, `--node-rank`, `--master-addr`, `--headless`, or by Ray), "Data Parallel Deployment"
//! (`--data-parallel-size-local`, `--data-parallel-start-rank`, `--data-parallel-address`,
//! `VLLM_RAY_DP_PACK_STRATEGY`), "Context Parallel Deployment" (`--decode-context-parallel-size`).

use std::fmt::Write as _;

use super::Wanted;
use super::shell::quoted;
use crate::planner::units::grouped;

/// The port of the first replica on a node; further ones count up.
const FIRST_PORT: u64 = 8000;
/// The port on which data-parallel ranks of several nodes find each other.
const RPC_PORT: u64 = 13345;
/// GPUs of a node up to which its replicas are written out one by one; beyond, one stands for all.
const MAX_WRITTEN_GPUS: u64 = 128;

/// The commands that start one deployment: comments say on which nodes each line runs.
pub(super) fn serve(wanted: &Wanted<'_>) -> String {
    let layout = &wanted.layout.layout;
    let replica_gpus = layout.tp.saturating_mul(layout.pp).saturating_mul(layout.attention_dp);
    let mut out = String::new();
    if let (0, tokens) =
        (wanted.settings.num_speculative_tokens, wanted.layout.capacity.kv_tokens_per_replica)
    {
        let _ = writeln!(out, "# expected at start-up: GPU KV cache size of {} tokens", grouped(tokens));
    } else {
        let _ = writeln!(
            out,
            "# planned with {} draft tokens: add the --speculative-config of your draft model",
            wanted.settings.num_speculative_tokens
        );
    }
    if replica_gpus <= wanted.gpus_per_node {
        on_one_node(wanted, replica_gpus, &mut out);
    } else {
        over_nodes(wanted, replica_gpus, &mut out);
    }
    out.trim_end().to_owned()
}

/// Replicas that fit into a node: one line each, on their own GPUs and port.
fn on_one_node(wanted: &Wanted<'_>, replica_gpus: u64, out: &mut String) {
    let layout = &wanted.layout.layout;
    let mut command = base(wanted);
    data_parallel(layout.attention_dp, &mut command);
    if layout.dp <= 1 {
        let _ = writeln!(out, "{}", command.join());
        return;
    }
    let per_node = (wanted.gpus_per_node / replica_gpus.max(1)).clamp(1, layout.dp);
    let nodes = layout.dp.div_ceil(per_node);
    if nodes > 1 {
        let _ = writeln!(out, "# {} replicas: on each of {nodes} nodes", layout.dp);
    } else {
        let _ = writeln!(out, "# {} replicas", layout.dp);
    }
    if per_node == 1 {
        let _ = writeln!(out, "{}", command.join());
        return;
    }
    if nodes > 1 && !layout.dp.is_multiple_of(per_node) {
        let _ = writeln!(out, "# (on the last node only {} of them)", layout.dp % per_node);
    }
    if per_node.saturating_mul(replica_gpus) > MAX_WRITTEN_GPUS {
        let _ = writeln!(out, "# {per_node} on a node, each with its own CUDA_VISIBLE_DEVICES and --port");
        let _ = writeln!(out, "{}", command.join());
        return;
    }
    for replica in 0..per_node {
        let first = replica.saturating_mul(replica_gpus);
        let gpus: Vec<String> = (first..first.saturating_add(replica_gpus)).map(|g| g.to_string()).collect();
        let mut own = command.clone();
        own.flag("--port", FIRST_PORT.saturating_add(replica));
        let _ = writeln!(out, "CUDA_VISIBLE_DEVICES={} {}", gpus.join(","), own.join());
    }
}

/// A replica that needs several nodes.
fn over_nodes(wanted: &Wanted<'_>, replica_gpus: u64, out: &mut String) {
    let layout = &wanted.layout.layout;
    let nodes = replica_gpus.div_ceil(wanted.gpus_per_node.max(1));
    if layout.dp > 1 {
        let _ = writeln!(out, "# {} replicas: once for each group of {nodes} nodes", layout.dp);
    }
    let rank_gpus = layout.tp.saturating_mul(layout.pp);
    let mut command = base(wanted);
    if layout.attention_dp > 1
        && rank_gpus <= wanted.gpus_per_node
        && layout.attention_dp.is_multiple_of(nodes)
    {
        let local = layout.attention_dp / nodes;
        data_parallel(layout.attention_dp, &mut command);
        command.flag("--data-parallel-size-local", local);
        command.words("--data-parallel-address $HEAD_IP");
        command.flag("--data-parallel-rpc-port", RPC_PORT);
        let _ = writeln!(out, "# on the first node\n{}", command.join());
        let mut worker = command.clone();
        worker.words("--headless");
        if nodes == 2 {
            worker.flag("--data-parallel-start-rank", local);
            let _ = writeln!(out, "# on the second node\n{}", worker.join());
        } else {
            worker.words(&format!("--data-parallel-start-rank $((NODE_RANK * {local}))"));
            let _ =
                writeln!(out, "# on the others, NODE_RANK=1..{}\n{}", nodes.saturating_sub(1), worker.join());
        }
    } else if layout.attention_dp > 1 {
        data_parallel(layout.attention_dp, &mut command);
        command.words("--data-parallel-backend ray");
        let _ = writeln!(
            out,
            "# on one node of a Ray cluster of {nodes} nodes\nVLLM_RAY_DP_PACK_STRATEGY=span {}",
            command.join()
        );
    } else if replica_gpus.is_multiple_of(nodes) {
        command.flag("--nnodes", nodes);
        let mut head = command.clone();
        head.words("--node-rank 0 --master-addr $HEAD_IP");
        let _ = writeln!(out, "# on the first node\n{}", head.join());
        if nodes == 2 {
            command.words("--node-rank 1 --master-addr $HEAD_IP --headless");
            let _ = writeln!(out, "# on the second node\n{}", command.join());
        } else {
            command.words("--node-rank $NODE_RANK --master-addr $HEAD_IP --headless");
            let _ = writeln!(
                out,
                "# on the others, NODE_RANK=1..{}\n{}",
                nodes.saturating_sub(1),
                command.join()
            );
        }
    } else {
        // ranks cannot be dealt out evenly over the nodes: only Ray places them so
        command.words("--distributed-executor-backend ray");
        let _ = writeln!(out, "# on one node of a Ray cluster of {nodes} nodes\n{}", command.join());
    }
}

/// What every process of a replica is started with.
fn base(wanted: &Wanted<'_>) -> Command {
    let layout = &wanted.layout.layout;
    let (settings, echo) = (wanted.settings, wanted.echo);
    let mut command = Command::default();
    if let Some(partition) =
        settings.pp_layer_partition.as_ref().or(wanted.layout.memory.layer_partition.as_ref())
    {
        let layers: Vec<String> = partition.iter().map(u64::to_string).collect();
        command.words(&format!("VLLM_PP_LAYER_PARTITION={}", layers.join(",")));
    }
    command.words("vllm serve");
    command.words(&quoted(wanted.model));
    command.flag("--tensor-parallel-size", layout.tp);
    if layout.pp > 1 {
        command.flag("--pipeline-parallel-size", layout.pp);
    }
    if layout.dcp > 1 {
        command.flag("--decode-context-parallel-size", layout.dcp);
    }
    if layout.ep > 1 {
        command.words("--enable-expert-parallel");
    }
    command.flag("--max-model-len", wanted.max_model_len());
    match echo.kv_cache_memory_bytes {
        Some(bytes) => command.flag("--kv-cache-memory-bytes", bytes),
        None => command.words(&format!("--gpu-memory-utilization {}", wanted.gpu_memory_utilization())),
    }
    command.words(&format!("--kv-cache-dtype {}", quoted(&settings.kv_cache_dtype)));
    command.flag("--max-num-seqs", echo.max_num_seqs);
    command.flag("--max-num-batched-tokens", echo.max_num_batched_tokens);
    if let Some(size) = settings.block_size {
        command.flag("--block-size", size);
    }
    if let Some(method) = &settings.quantization {
        command.words(&format!("--quantization {}", quoted(method)));
    }
    for (given, on, off) in [
        (settings.async_scheduling, "--async-scheduling", "--no-async-scheduling"),
        (settings.enable_prefix_caching, "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ] {
        if let Some(wanted) = given {
            command.words(if wanted { on } else { off });
        }
    }
    for (set, flag) in [
        (settings.disable_hybrid_kv_cache_manager, "--disable-hybrid-kv-cache-manager"),
        (settings.language_model_only, "--language-model-only"),
        (settings.enforce_eager, "--enforce-eager"),
    ] {
        if set {
            command.words(flag);
        }
    }
    command
}

fn data_parallel(groups: u64, command: &mut Command) {
    if groups > 1 {
        command.flag("--data-parallel-size", groups);
    }
}

/// Words of one command line, in order.
#[derive(Clone, Default)]
struct Command(Vec<String>);

impl Command {
    fn words(&mut self, words: &str) {
        self.0.push(words.to_owned());
    }

    fn flag(&mut self, name: &str, value: u64) {
        self.0.push(format!("{name} {value}"));
    }

    fn join(&self) -> String {
        self.0.join(" ")
    }
}

#[cfg(test)]
mod tests;
