//! One start-up as somebody recorded it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// A start-up log in one line of JSON. Everything but `engine`, `model` and `gpu` may be missing; sizes are per GPU, in
/// GiB (2^30 B). Unknown keys are kept out of the way, so a record may say more.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct MemoryRow {
    pub id: String,
    /// Where it was read: records of one address stand or fall together.
    pub url: String,
    /// `YYYY`, `YYYY-MM` or `YYYY-MM-DD`: decides the rules where no version is given.
    pub date: String,
    pub engine: String,
    pub engine_version: Option<String>,
    /// A model id, or a name with remarks in brackets.
    pub model: String,
    /// A config.json, for models that the catalogue lacks.
    pub config: Option<Value>,
    pub gpu: String,
    /// The total that the engine printed.
    pub gpu_mem_gib_printed: Option<f64>,
    pub gpu_count: Option<u64>,
    pub tp: Option<u64>,
    pub pp: Option<u64>,
    pub dp: Option<u64>,
    pub dcp: Option<u64>,
    /// Expert parallelism; with `dp` above 1 the DP ranks are one instance.
    pub ep: Option<bool>,
    pub weight_dtype: Option<String>,
    pub kv_cache_dtype: Option<String>,
    /// The engine's own knob: `gpu_memory_utilization`, `mem_fraction_static`, free-memory fraction.
    pub mem_util: Option<f64>,
    pub max_model_len: Option<u64>,
    pub max_num_batched_tokens: Option<u64>,
    pub max_num_seqs: Option<u64>,
    pub block_size: Option<u64>,
    /// The cache of a GPU, given outright.
    pub kv_cache_memory_bytes: Option<u64>,
    pub enforce_eager: Option<bool>,
    pub prefix_caching: Option<bool>,
    /// `mtp k=3`: what drafts tokens, and how many.
    pub speculative: Option<String>,
    /// What the engine printed.
    pub weights_gib_per_gpu: Option<f64>,
    pub available_kv_gib: Option<f64>,
    pub kv_tokens: Option<f64>,
    pub max_concurrency: Option<f64>,
    /// `ok`, or `fail: …`.
    pub outcome: String,
    /// `uniform`, `MLA latent`, `sliding-window + full`, `hybrid (…)`.
    pub kv_layout: String,
    /// True when model, GPU, TP, knob and a cache figure are all there.
    pub complete: Option<bool>,
}

impl MemoryRow {
    /// The engine refused to start.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.outcome.starts_with("fail")
    }

    /// Every layer keeps every token: tokens can be compared. Else only the concurrency means the same in all releases.
    #[must_use]
    pub fn uniform(&self) -> bool {
        self.kv_layout.starts_with("uniform") || self.kv_layout.starts_with("MLA")
    }

    /// The model's name without remarks.
    #[must_use]
    pub fn model_name(&self) -> &str {
        self.model.split(" (").next().unwrap_or(&self.model).trim()
    }

    /// Embedding and reranking models are not run to generate.
    #[must_use]
    pub fn is_pooling(&self) -> bool {
        let name = self.model.to_ascii_lowercase();
        name.contains("embedding") || name.contains("rerank")
    }

    /// True when the figures that a prediction needs and is judged by are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.unwrap_or_else(|| {
            self.tp.is_some()
                && self.mem_util.is_some()
                && (self.kv_tokens.is_some() || self.available_kv_gib.is_some())
        })
    }
}

/// A line that is no row.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct NotARow {
    /// Counted from 1.
    pub line: usize,
    pub reason: String,
}

/// Rows of a JSONL text; empty lines and lines that start with `#` are left out.
///
/// # Errors
/// [`NotARow`] for the first line that is none, and for too many of them.
pub fn read_rows(text: &str) -> Result<Vec<MemoryRow>, NotARow> {
    let mut rows = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        let place = i.saturating_add(1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if rows.len() >= MAX_ROWS {
            return Err(NotARow { line: place, reason: format!("more than {MAX_ROWS} rows") });
        }
        let row =
            serde_json::from_str(line).map_err(|error| NotARow { line: place, reason: error.to_string() })?;
        rows.push(row);
    }
    Ok(rows)
}

/// Bound on the rows of one comparison.
const MAX_ROWS: usize = 100_000;
