//! SGLang.
//!
//! Sources: SGLang 0.5.23 `server_args.py` and documentation ("Server Arguments", "Multi-Node Deployment"). Its TP counts
//! all ranks of a stage, so attention groups divide it; `--max-running-requests` is divided by them. The newer spelling of
//! attention DP is `--attn-dp-size`; the pair written here works in every 0.5 release.

use super::spread::Spread;
use super::start::{Start, Word};
use super::{Wanted, pair};

/// The port on which processes of several nodes find each other.
const INIT_PORT: u64 = 20000;

/// What every process of a replica is started with.
pub(super) fn start(wanted: &Wanted<'_>) -> Start {
    let layout = &wanted.layout.layout;
    let (settings, echo) = (wanted.settings, wanted.echo);
    let mut start = Start { program: vec!["python3", "-m", "sglang.launch_server"], ..Start::default() };
    if let Some(layers) = wanted.layer_partition() {
        start.env.push(("SGLANG_PP_LAYER_PARTITION", layers));
    }
    if settings.allow_long_max_model_len {
        start.env.push(("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1".to_owned()));
    }
    start.text("--model-path", wanted.model);
    start.whole("--tp-size", layout.tp.saturating_mul(layout.attention_dp));
    if layout.pp > 1 {
        start.whole("--pp-size", layout.pp);
    }
    if layout.attention_dp > 1 {
        start.whole("--dp-size", layout.attention_dp);
        start.switch("--enable-dp-attention");
    }
    if layout.ep > 1 {
        start.whole("--ep-size", layout.ep);
    }
    if layout.dcp > 1 {
        start.whole("--dcp-size", layout.dcp);
    }
    start.whole("--context-length", wanted.max_model_len());
    start.real("--mem-fraction-static", wanted.layout.memory.utilization);
    if echo.kv_cache_memory_bytes.is_some() {
        // a cache given in bytes has no flag of its own: the tokens it holds have one
        start.whole("--max-total-tokens", wanted.layout.capacity.kv_tokens_per_replica);
    }
    let dtype = match settings.kv_cache_dtype.as_str() {
        "fp8" => "fp8_e4m3",
        other => other,
    };
    start.text("--kv-cache-dtype", dtype);
    start.whole("--max-running-requests", echo.max_num_seqs.saturating_mul(layout.attention_dp.max(1)));
    start.whole("--chunked-prefill-size", echo.max_num_batched_tokens);
    start.whole("--page-size", wanted.layout.capacity.block_size);
    if let Some(method) = &settings.quantization {
        start.text("--quantization", method);
    }
    if let Some(ratio) = settings.swa_full_tokens_ratio {
        start.real("--swa-full-tokens-ratio", ratio);
    }
    if let Some(ratio) = settings.mamba_full_memory_ratio {
        start.real("--mamba-full-memory-ratio", ratio);
    }
    for (set, flag) in [
        (settings.enable_prefix_caching == Some(false), "--disable-radix-cache"),
        (settings.async_scheduling == Some(false), "--disable-overlap-schedule"),
        (settings.enforce_eager, "--disable-cuda-graph"),
    ] {
        if set {
            start.switch(flag);
        }
    }
    pair::flags(&mut start, wanted);
    start
}

/// One of several processes on nodes: all are started alike but for their rank.
pub(super) fn on_node(mut start: Start, spread: Spread, rank: Word, head: &str) -> Start {
    start.whole("--nnodes", spread.pods);
    start.word("--node-rank", rank);
    start.word("--dist-init-addr", Word::Shell(format!("{head}:{INIT_PORT}")));
    start
}
