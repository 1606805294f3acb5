//! What each kind of line says. One word decides the kind; a line that turns out otherwise is dropped.

use super::{MAX_TOPOLOGY, Observed, Outcome, settings};

/// Kinds of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    VllmConfig,
    VllmArgs,
    VllmVersion,
    Weights,
    AvailableKv,
    KvTokens,
    Concurrency,
    Blocks,
    Profile,
    ProfileV0,
    Graphs,
    BatchTokens,
    BlockSize,
    RefusedLength,
    RefusedLengthV0,
    RefusedNoMemory,
    RefusedFree,
    OutOfMemory,
    RefusedHeads,
    Started,
    SglangArgs,
    SglangWeights,
    SglangPool,
    SglangTotals,
    SglangRefused,
    TensorrtVersion,
    TensorrtPool,
    TensorrtWeights,
    TensorrtAvailable,
    Topology,
    Nccl,
}

/// The word that decides, first wins on a line.
pub(super) const WORDS: &[(&str, Line)] = &[
    ("LLM engine (v", Line::VllmConfig),
    ("non-default args:", Line::VllmArgs),
    ("args: Namespace(", Line::VllmArgs),
    ("API server version ", Line::VllmVersion),
    ("Model loading took ", Line::Weights),
    ("Loading model weights took ", Line::Weights),
    ("Available KV cache memory:", Line::AvailableKv),
    ("GPU KV cache size:", Line::KvTokens),
    ("Maximum concurrency for ", Line::Concurrency),
    ("# GPU blocks:", Line::Blocks),
    ("model weights take ", Line::Profile),
    ("vLLM instance can use total_gpu_memory", Line::ProfileV0),
    ("Graph capturing finished", Line::Graphs),
    ("max_num_batched_tokens=", Line::BatchTokens),
    ("Setting attention block size to ", Line::BlockSize),
    ("To serve at least one request with", Line::RefusedLength),
    ("is larger than the maximum number of tokens that can be stored in KV cache", Line::RefusedLengthV0),
    ("No available memory for the cache blocks", Line::RefusedNoMemory),
    ("Free memory on device", Line::RefusedFree),
    ("CUDA out of memory", Line::OutOfMemory),
    ("must be divisible by tensor parallel size", Line::RefusedHeads),
    ("Application startup complete", Line::Started),
    ("server is fired up and ready to roll", Line::Started),
    ("server_args=ServerArgs(", Line::SglangArgs),
    ("Load weight end.", Line::SglangWeights),
    ("KV Cache is allocated.", Line::SglangPool),
    ("max_total_num_tokens=", Line::SglangTotals),
    ("try to increase --mem-fraction-static", Line::SglangRefused),
    ("TensorRT-LLM version: ", Line::TensorrtVersion),
    ("for max tokens in paged KV cache", Line::TensorrtPool),
    ("after loading model weights (inside torch)", Line::TensorrtWeights),
    ("available KV cache memory when calculating max tokens", Line::TensorrtAvailable),
    ("GPU0\t", Line::Topology),
    ("GPU1\t", Line::Topology),
    ("GPU2\t", Line::Topology),
    ("GPU3\t", Line::Topology),
    ("GPU4\t", Line::Topology),
    ("GPU5\t", Line::Topology),
    ("GPU6\t", Line::Topology),
    ("GPU7\t", Line::Topology),
    ("NCCL INFO ", Line::Nccl),
];

/// Take what the line says; false when it says nothing.
pub(super) fn take(out: &mut Observed, pattern: usize, text: &str) -> bool {
    let Some((word, kind)) = WORDS.get(pattern) else { return false };
    let after = text.split_once(word).map_or("", |(_, rest)| rest);
    let n = out.lines;
    match kind {
        Line::VllmConfig => {
            engine(out, "vllm");
            out.settings.version = settings::version(after);
            out.generation = Some(if text.contains("a V1 LLM engine") { "V1" } else { "V0" });
            settings::vllm(out, text);
        }
        Line::VllmArgs => {
            engine(out, "vllm");
            settings::vllm(out, text);
        }
        Line::VllmVersion => {
            engine(out, "vllm");
            if out.settings.version.is_empty() {
                out.settings.version = settings::version(after);
            }
        }
        Line::Weights => return gib(after).map(|v| out.weights_gib.add(v, n)).is_some(),
        Line::AvailableKv => {
            engine(out, "vllm");
            out.generation = out.generation.or(Some("V1"));
            return gib(after).map(|v| out.available_kv_gib.add(v, n)).is_some();
        }
        Line::KvTokens => {
            engine(out, "vllm");
            // later releases put the concurrency on the same line
            if let Some((_, rest)) = after.split_once("Maximum concurrency for ") {
                concurrency(out, rest, n);
            }
            return number(after).map(|v| out.kv_tokens.add(v, n)).is_some();
        }
        Line::Concurrency => return concurrency(out, after, n),
        Line::Blocks => {
            engine(out, "vllm");
            return number(after).map(|v| out.kv_blocks.add(v, n)).is_some();
        }
        Line::Profile => return profile(out, text, n),
        Line::ProfileV0 => {
            engine(out, "vllm");
            out.generation = out.generation.or(Some("V0"));
            if let Some(total) = gib(after) {
                out.gpu_total_gib.add(total, n);
            }
            let knob = after.split_once("gpu_memory_utilization").and_then(|(_, rest)| number(rest));
            out.settings.gpu_memory_utilization = knob.filter(|u| *u > 0.0 && *u <= 1.0);
            profile(out, text, n);
        }
        Line::Graphs => {
            let took = after.split_once("took").and_then(|(_, rest)| gib(rest));
            return took.map(|v| out.cuda_graph_gib.add(v, n)).is_some();
        }
        Line::BatchTokens => {
            if text.contains("Chunked prefill is enabled") {
                out.settings.max_num_batched_tokens = number(after).and_then(tokens);
            }
        }
        Line::BlockSize => out.settings.block_size = number(after).and_then(tokens),
        Line::Started => {
            if out.outcome == Outcome::Unknown {
                out.outcome = Outcome::Started;
            }
        }
        Line::RefusedLength => {
            engine(out, "vllm");
            let (needed, rest) = after.split_once("KV cache is needed").unwrap_or((after, after));
            if let Some(v) = needed.rsplit_once('(').and_then(|(_, t)| gib(t)) {
                out.needed_kv_gib.add(v, n);
            }
            if let Some(v) = rest.split_once("available KV cache memory").and_then(|(_, t)| gib(t)) {
                out.available_kv_gib.add(v, n);
            }
            let longest = rest.split_once("estimated maximum model length is").and_then(|(_, t)| number(t));
            out.longest_fitting = longest.and_then(tokens);
            refuse(out, "kv_cache_too_small", text);
        }
        Line::RefusedLengthV0 => {
            engine(out, "vllm");
            if let Some(v) = number(after) {
                out.kv_tokens.add(v, n);
                out.longest_fitting = tokens(v);
            }
            refuse(out, "kv_cache_too_small", text);
        }
        Line::RefusedNoMemory => refuse(out, "weights_do_not_fit", text),
        Line::RefusedFree => refuse(out, "gpu_memory_in_use", text),
        Line::OutOfMemory => refuse(out, "out_of_memory", text),
        Line::RefusedHeads => refuse(out, "query_heads_not_divisible", text),
        Line::SglangArgs => {
            engine(out, "sglang");
            settings::sglang(out, after);
        }
        Line::SglangWeights => {
            engine(out, "sglang");
            let used = after.split_once("mem usage=").and_then(|(_, rest)| gib(rest));
            return used.map(|v| out.weights_gib.add(v, n)).is_some();
        }
        Line::SglangPool => {
            engine(out, "sglang");
            if let Some(v) = after.split_once("#tokens:").and_then(|(_, rest)| number(rest)) {
                out.kv_tokens.add(v, n);
            }
            let of = |key: &str| after.split_once(key).and_then(|(_, rest)| gib(rest));
            let pool = of("KV size:").or_else(|| Some(of("K size:")? + of("V size:")?));
            if let Some(v) = pool {
                out.available_kv_gib.add(v, n);
            }
        }
        Line::SglangTotals => {
            engine(out, "sglang");
            if out.kv_tokens.values.is_empty()
                && let Some(v) = number(after)
            {
                out.kv_tokens.add(v, n);
            }
        }
        Line::SglangRefused => {
            engine(out, "sglang");
            refuse(out, "weights_do_not_fit", text);
        }
        Line::TensorrtVersion => {
            engine(out, "tensorrt-llm");
            out.settings.version = settings::version(after);
        }
        Line::TensorrtPool => {
            engine(out, "tensorrt-llm");
            let allocated = text.split_once("Allocated").and_then(|(_, rest)| gib(rest));
            if let Some(v) = allocated {
                out.available_kv_gib.add(v, n);
            }
            if let Some(v) = after.split_once('(').and_then(|(_, rest)| number(rest)) {
                out.kv_tokens.add(v, n);
            }
        }
        Line::TensorrtWeights => {
            engine(out, "tensorrt-llm");
            let used = after.rsplit_once(':').and_then(|(_, rest)| gib(rest));
            return used.map(|v| out.weights_gib.add(v, n)).is_some();
        }
        Line::TensorrtAvailable => {
            engine(out, "tensorrt-llm");
            if let Some(v) = after.split_once("fraction is set").and_then(|(_, rest)| number(rest)) {
                out.settings.gpu_memory_utilization = Some(v).filter(|u| *u > 0.0 && *u <= 1.0);
            }
            if let Some(v) = after.split_once("device total memory").and_then(|(_, rest)| gib(rest)) {
                out.gpu_total_gib.add(v, n);
            }
        }
        Line::Topology => return topology(out, text),
        Line::Nccl => return nccl(out, after),
    }
    true
}

fn engine(out: &mut Observed, name: &str) {
    if out.settings.name.is_empty() {
        name.clone_into(&mut out.settings.name);
    }
}

fn refuse(out: &mut Observed, code: &'static str, text: &str) {
    if !matches!(out.outcome, Outcome::Refused { .. }) {
        let message = text.chars().take(500).collect();
        out.outcome = Outcome::Refused { code, message, line: out.lines };
    }
}

/// "32,000 tokens per request: 1.22x"
fn concurrency(out: &mut Observed, text: &str, line: u64) -> bool {
    let Some((length, rest)) = text.split_once("tokens per request:") else { return false };
    let Some(value) = number(rest) else { return false };
    out.concurrency_length = number(length).and_then(tokens);
    out.concurrency.add(value, line);
    true
}

/// The profile of one worker: "model weights take 14.99GiB; non_torch_memory takes 0.35GiB; PyTorch activation peak memory
/// takes 1.72GiB; the rest of the memory reserved for KV Cache is 3.81GiB".
fn profile(out: &mut Observed, text: &str, line: u64) -> bool {
    let of = |key: &str| text.split_once(key).and_then(|(_, rest)| gib(rest));
    let found = [
        (of("model weights take"), &mut out.weights_gib),
        (of("non_torch_memory takes"), &mut out.non_torch_gib),
        (of("activation peak memory takes"), &mut out.activation_gib),
        (of("reserved for KV Cache is"), &mut out.available_kv_gib),
    ];
    let mut any = false;
    for (value, figure) in found {
        if let Some(value) = value {
            // the same start prints weights twice
            if figure.values.last() != Some(&value) {
                figure.add(value, line);
            }
            any = true;
        }
    }
    any
}

fn topology(out: &mut Observed, text: &str) -> bool {
    let row = text.trim_start();
    let is_row = row.starts_with("GPU")
        && ["NV", "PIX", "PXB", "PHB", "NODE", "SYS", "GPU1"].iter().any(|w| row.contains(w));
    if !is_row || out.topology.len().saturating_add(text.len()) > MAX_TOPOLOGY {
        return false;
    }
    out.topology.push_str(text);
    out.topology.push('\n');
    true
}

fn nccl(out: &mut Observed, text: &str) -> bool {
    let found = ["NVLS", "P2P", "SHM", "NET/IB", "NET/Socket", "Using network IB", "Using network Socket"]
        .into_iter()
        .find(|word| text.contains(word));
    let Some(found) = found else { return false };
    let name = found.replace("Using network ", "NET/");
    if !out.nccl_links.contains(&name) {
        out.nccl_links.push(name);
    }
    true
}

/// The first number in a text: "1,234.5" is 1234.5, "-0.97" keeps its sign.
fn number(text: &str) -> Option<f64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = text.get(start..)?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.')).unwrap_or(rest.len());
    let digits: String = rest.get(..end)?.chars().filter(|c| *c != ',').take(32).collect();
    let value: f64 = digits.trim_end_matches('.').parse().ok()?;
    let negative = text.get(..start)?.ends_with('-');
    Some(if negative { -value } else { value })
}

/// A quantity of memory in GiB, whatever its unit is called; SGLang's and early vLLM's "GB" are GiB.
fn gib(text: &str) -> Option<f64> {
    let value = number(text)?;
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let unit = text.get(start..)?.trim_start_matches(|c: char| c.is_ascii_digit() || ",. ".contains(c));
    let factor = if unit.starts_with("MiB") || unit.starts_with("MB") {
        1.0 / 1024.0
    } else if unit.starts_with("KiB") || unit.starts_with("KB") {
        1.0 / 1_048_576.0
    } else {
        1.0
    };
    Some(value * factor)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to lie within u64 just before"
)]
fn tokens(value: f64) -> Option<u64> {
    (1.0..9e15).contains(&value).then_some(value as u64)
}
