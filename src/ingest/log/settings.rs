//! Settings as engines print them: `tensor_parallel_size=2`, `'max_model_len': 32000`, `tp_size=8`.

use super::Observed;
use crate::ingest::bounds;
use crate::planner::units::Bytes;

/// The value written for `key`: after it stand an optional quote, `=` or `:`, and the value up to a comma, bracket or quote.
pub(super) fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find(key) {
        let start = from + found;
        let end = start + key.len();
        from = end;
        let before = text.get(..start)?.chars().next_back();
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            continue;
        }
        let rest = text.get(end..)?.trim_start_matches(['\'', '"']).trim_start();
        let Some(rest) = rest.strip_prefix(['=', ':']) else { continue };
        let rest = rest.trim_start();
        return Some(match rest.strip_prefix(['\'', '"']) {
            Some(quoted) => quoted.split(['\'', '"']).next().unwrap_or_default(),
            None => rest.split([',', ')', '}', ']']).next().unwrap_or_default().trim(),
        });
    }
    None
}

fn whole(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.parse().ok().filter(|n| *n <= bounds::MAX_EXACT)
}

fn flag(text: &str, key: &str) -> Option<bool> {
    match value(text, key)? {
        "True" | "true" => Some(true),
        "False" | "false" => Some(false),
        _ => None,
    }
}

fn word(text: &str, key: &str) -> Option<String> {
    value(text, key).filter(|v| !matches!(*v, "None" | "null" | "")).map(|v| v.chars().take(200).collect())
}

/// A model's name as it may be shown and kept: an address (`s3://…`) without what may open it.
fn without_credentials(model: &str) -> String {
    let Some((scheme, rest)) = model.split_once("://") else { return model.to_owned() };
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let path = path.rsplit_once('@').map_or(path, |(_, path)| path);
    format!("{scheme}://{path}")
}

/// A version as printed, no longer than a version is.
pub(super) fn version(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || "._+-".contains(*c)).take(60).collect()
}

/// vLLM: the line with the engine's configuration, and the one with what the caller set.
pub(super) fn vllm(out: &mut Observed, text: &str) {
    if let Some(model) = word(text, "model").or_else(|| word(text, "model_tag")) {
        out.model = Some(without_credentials(&model));
    }
    let sizes = [
        ("tensor_parallel_size", &mut out.tp),
        ("pipeline_parallel_size", &mut out.pp),
        ("data_parallel_size", &mut out.dp),
        ("decode_context_parallel_size", &mut out.dcp),
    ];
    for (key, size) in sizes {
        if let Some(n) = whole(text, key).filter(|n| bounds::PARALLEL.contains(n)) {
            *size = n;
        }
    }
    if let Some(ep) = flag(text, "enable_expert_parallel") {
        out.ep = ep;
    }
    let settings = &mut out.settings;
    if let Some(share) = value(text, "gpu_memory_utilization").and_then(|v| v.parse().ok()) {
        settings.gpu_memory_utilization = Some(share).filter(|u: &f64| *u > 0.0 && *u <= 1.0);
    }
    let length = whole(text, "max_model_len").or_else(|| whole(text, "max_seq_len"));
    settings.max_model_len = length.filter(|n| bounds::TOKENS.contains(n)).or(settings.max_model_len);
    let set = |key: &str, slot: &mut Option<u64>, range: &std::ops::RangeInclusive<u64>| {
        if let Some(n) = whole(text, key).filter(|n| range.contains(n)) {
            *slot = Some(n);
        }
    };
    set("max_num_seqs", &mut settings.max_num_seqs, &bounds::SEQUENCES);
    set("max_num_batched_tokens", &mut settings.max_num_batched_tokens, &bounds::TOKENS);
    set("block_size", &mut settings.block_size, &bounds::BLOCK_SIZE);
    if let Some(bytes) = whole(text, "kv_cache_memory_bytes").filter(|n| bounds::BYTES.contains(n)) {
        settings.kv_cache_memory_bytes = Some(Bytes(bytes));
    }
    if let Some(dtype) = word(text, "kv_cache_dtype") {
        settings.kv_cache_dtype = dtype;
    }
    settings.quantization = word(text, "quantization").or_else(|| settings.quantization.take());
    if let Some(eager) = flag(text, "enforce_eager") {
        settings.enforce_eager = eager;
    }
    settings.enable_prefix_caching = flag(text, "enable_prefix_caching").or(settings.enable_prefix_caching);
    settings.async_scheduling = flag(text, "async_scheduling").or(settings.async_scheduling);
    if let Some(drafts) = whole(text, "num_speculative_tokens").filter(|n| bounds::DRAFT_TOKENS.contains(n)) {
        settings.num_speculative_tokens = drafts;
    }
}

/// SGLang: `ServerArgs(…)`.
pub(super) fn sglang(out: &mut Observed, text: &str) {
    if let Some(model) = word(text, "model_path") {
        out.model = Some(without_credentials(&model));
    }
    let size = |key: &str| whole(text, key).filter(|n| bounds::PARALLEL.contains(n));
    let tp = size("tp_size").unwrap_or(1);
    out.pp = size("pp_size").unwrap_or(1);
    let dp = size("dp_size").unwrap_or(1);
    out.ep = size("ep_size").is_some_and(|n| n > 1);
    out.dcp = size("dcp_size").unwrap_or(1);
    let groups = size("attn_dp_size").filter(|n| *n > 1);
    out.attention_dp = groups.unwrap_or(if flag(text, "enable_dp_attention") == Some(true) { dp } else { 1 });
    out.dp = if out.attention_dp > 1 { 1 } else { dp };
    out.tp = tp.checked_div(out.attention_dp).unwrap_or(1).max(1);
    let settings = &mut out.settings;
    settings.gpu_memory_utilization =
        value(text, "mem_fraction_static").and_then(|v| v.parse().ok()).filter(|u| *u > 0.0 && *u <= 1.0);
    let tokens = |key: &str| whole(text, key).filter(|n| bounds::TOKENS.contains(n));
    settings.max_model_len = tokens("context_length");
    settings.max_num_seqs = tokens("max_running_requests").filter(|n| bounds::SEQUENCES.contains(n));
    settings.max_num_batched_tokens = tokens("chunked_prefill_size");
    settings.block_size = tokens("page_size").filter(|n| bounds::BLOCK_SIZE.contains(n));
    if let Some(dtype) = word(text, "kv_cache_dtype") {
        settings.kv_cache_dtype = dtype;
    }
    settings.quantization = word(text, "quantization");
}
