//! vLLM.
//!
//! Sources, vLLM documentation of the 0.3x releases: "Parallelism and Scaling" (one instance over several
//! nodes by `--nnodes`, `--node-rank`, `--master-addr`, `--headless`, or by Ray), "Data Parallel Deployment"
//! (`--data-parallel-size-local`, `--data-parallel-start-rank`, `--data-parallel-address`,
//! `VLLM_RAY_DP_PACK_STRATEGY`), "Context Parallel Deployment" (`--decode-context-parallel-size`).

use super::spread::Spread;
use super::start::{Start, Word};
use super::{Wanted, pair};

/// The port on which data-parallel ranks of several nodes find each other.
const RPC_PORT: u64 = 13345;

/// What every process of a replica is started with, sizes of data parallelism left out.
pub(super) fn start(wanted: &Wanted<'_>) -> Start {
    let layout = &wanted.layout.layout;
    let (settings, echo) = (wanted.settings, wanted.echo);
    let mut start = Start {
        program: vec!["vllm", "serve"],
        positional: Some(wanted.model.to_owned()),
        ..Start::default()
    };
    if let Some(layers) = wanted.layer_partition() {
        start.env.push(("VLLM_PP_LAYER_PARTITION", layers));
    }
    if settings.allow_long_max_model_len {
        start.env.push(("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1".to_owned()));
    }
    start.whole("--tensor-parallel-size", layout.tp);
    if layout.pp > 1 {
        start.whole("--pipeline-parallel-size", layout.pp);
    }
    if layout.dcp > 1 {
        start.whole("--decode-context-parallel-size", layout.dcp);
    }
    if layout.ep > 1 {
        start.switch("--enable-expert-parallel");
    }
    start.whole("--max-model-len", wanted.max_model_len());
    match echo.kv_cache_memory_bytes {
        Some(bytes) => start.whole("--kv-cache-memory-bytes", bytes),
        None => start.real("--gpu-memory-utilization", wanted.gpu_memory_utilization()),
    }
    start.text("--kv-cache-dtype", &settings.kv_cache_dtype);
    start.whole("--max-num-seqs", echo.max_num_seqs);
    start.whole("--max-num-batched-tokens", echo.max_num_batched_tokens);
    if let Some(size) = settings.block_size {
        start.whole("--block-size", size);
    }
    if let Some(method) = &settings.quantization {
        start.text("--quantization", method);
    }
    if settings.allow_deprecated_quantization {
        start.switch("--allow-deprecated-quantization");
    }
    for (given, on, off) in [
        (settings.async_scheduling, "--async-scheduling", "--no-async-scheduling"),
        (settings.enable_prefix_caching, "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ] {
        if let Some(wanted) = given {
            start.switch(if wanted { on } else { off });
        }
    }
    for (set, flag) in [
        (settings.disable_hybrid_kv_cache_manager, "--disable-hybrid-kv-cache-manager"),
        (settings.language_model_only, "--language-model-only"),
        (settings.enforce_eager, "--enforce-eager"),
    ] {
        if set {
            start.switch(flag);
        }
    }
    pair::flags(&mut start, wanted);
    start
}

/// All attention groups in one process tree.
pub(super) fn together(mut start: Start, wanted: &Wanted<'_>) -> Start {
    if wanted.layout.layout.attention_dp > 1 {
        start.whole("--data-parallel-size", wanted.layout.layout.attention_dp);
    }
    start
}

/// One of several processes on nodes; `rank` counts them from 0, workers answer no requests.
pub(super) fn on_node(
    mut start: Start,
    wanted: &Wanted<'_>,
    spread: Spread,
    rank: Word,
    head: &str,
    worker: bool,
) -> Start {
    let groups = wanted.layout.layout.attention_dp;
    if let (true, Some(local)) = (groups > 1, spread.groups(wanted)) {
        start.whole("--data-parallel-size", groups);
        start.whole("--data-parallel-size-local", local);
        start.word("--data-parallel-address", Word::Shell(head.to_owned()));
        start.whole("--data-parallel-rpc-port", RPC_PORT);
        if worker {
            start.switch("--headless");
            let first = match rank {
                Word::Whole(rank) => Word::Whole(rank.saturating_mul(local)),
                rank => Word::Shell(format!("$(({} * {local}))", rank.plain().trim_start_matches('$'))),
            };
            start.word("--data-parallel-start-rank", first);
        }
        return start;
    }
    start.whole("--nnodes", spread.pods);
    start.word("--node-rank", rank);
    start.word("--master-addr", Word::Shell(head.to_owned()));
    if worker {
        start.switch("--headless");
    }
    start
}

/// On one node of a Ray cluster, which deals the ranks out as they fit.
pub(super) fn on_ray(mut start: Start, wanted: &Wanted<'_>) -> Start {
    if wanted.layout.layout.attention_dp > 1 {
        start = together(start, wanted);
        start.text("--data-parallel-backend", "ray");
        start.env.push(("VLLM_RAY_DP_PACK_STRATEGY", "span".to_owned()));
    } else {
        start.text("--distributed-executor-backend", "ray");
    }
    start
}
