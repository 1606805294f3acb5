//! TensorRT-LLM: `trtllm-serve`, with the settings that have no flag in a file of options.
//!
//! Sources: the command's own options (`tensorrt_llm/commands/serve.py`) and `docs/source` of 1.2. A `kv_cache_config` in
//! the file takes the place of the one that flags build, so all of it stands in the file.

use serde_json::{Map, Value, json};

use super::start::Start;
use super::{Wanted, pair};

/// The name of the file of options.
pub(super) const OPTIONS_FILE: &str = "trtllm-options.yaml";

/// What starts a replica; `trtllm-llmapi-launch` in front of it where its ranks lie on several nodes.
pub(super) fn start(wanted: &Wanted<'_>, options_path: &str) -> Start {
    let layout = &wanted.layout.layout;
    let echo = wanted.echo;
    let mut start = Start {
        program: vec!["trtllm-serve"],
        positional: Some(wanted.model.to_owned()),
        options: Some(options(wanted)),
        ..Start::default()
    };
    start.text("--backend", "pytorch");
    start.whole("--tp_size", layout.tp.saturating_mul(layout.attention_dp));
    start.whole("--pp_size", layout.pp);
    start.whole("--ep_size", layout.ep);
    start.whole("--max_seq_len", wanted.max_model_len());
    start.whole("--max_batch_size", echo.max_num_seqs);
    start.whole("--max_num_tokens", echo.max_num_batched_tokens);
    start.text("--extra_llm_api_options", options_path);
    start
}

/// The file of options.
pub(super) fn options(wanted: &Wanted<'_>) -> Value {
    let (settings, echo) = (wanted.settings, wanted.echo);
    let mut cache = Map::new();
    let dtype = match settings.kv_cache_dtype.as_str() {
        "fp8_e4m3" => "fp8",
        other => other,
    };
    cache.insert("dtype".to_owned(), json!(dtype));
    cache.insert("free_gpu_memory_fraction".to_owned(), json!(wanted.layout.memory.utilization));
    cache.insert("tokens_per_block".to_owned(), json!(wanted.layout.capacity.block_size));
    cache.insert("enable_block_reuse".to_owned(), json!(settings.enable_prefix_caching.unwrap_or(true)));
    if let Some(bytes) = echo.kv_cache_memory_bytes {
        cache.insert("max_gpu_total_bytes".to_owned(), json!(bytes));
    }
    let mut options = Map::new();
    options.insert("enable_attention_dp".to_owned(), json!(wanted.layout.layout.attention_dp > 1));
    options.insert("kv_cache_config".to_owned(), Value::Object(cache));
    if settings.async_scheduling == Some(false) {
        options.insert("disable_overlap_scheduler".to_owned(), json!(true));
    }
    if settings.enforce_eager {
        options.insert("cuda_graph_config".to_owned(), Value::Null);
    }
    if let Some(layers) = wanted.layers() {
        options.insert("pp_partition".to_owned(), json!(layers));
    }
    options.extend(pair::options(wanted).into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(options)
}

/// All settings as options, for a launcher that takes nothing but the file.
pub(super) fn all_options(wanted: &Wanted<'_>) -> Value {
    let layout = &wanted.layout.layout;
    let mut all = Map::new();
    for (name, value) in [
        ("tensor_parallel_size", layout.tp.saturating_mul(layout.attention_dp)),
        ("pipeline_parallel_size", layout.pp),
        ("moe_expert_parallel_size", layout.ep),
        ("max_seq_len", wanted.max_model_len()),
        ("max_batch_size", wanted.echo.max_num_seqs),
        ("max_num_tokens", wanted.echo.max_num_batched_tokens),
    ] {
        all.insert(name.to_owned(), json!(value));
    }
    if let Value::Object(options) = options(wanted) {
        all.extend(options);
    }
    Value::Object(all)
}
