//! A measured row, as `shardwise accuracy latency` reads it: one JSON object a line.
//! `docs/ACCURACY.md` describes the keys; all but a few may be missing, others are ignored.

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;

/// Largest file that is read, unpacked: well above anybody's own runs.
const MAX_BYTES: u64 = 256 << 20;

/// One measurement of a served model. Times are in ms.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    pub id: String,
    /// What is held out together: rows of one source and kind.
    pub source_unit: String,
    pub source_family: Option<String>,
    pub measured_date: Option<String>,
    pub engine: String,
    pub engine_version: Option<String>,
    pub model_id: Option<String>,
    pub model_key: Option<String>,
    pub gpu: String,
    pub num_gpus: Option<f64>,
    pub num_nodes: Option<f64>,
    pub gpus_per_node: Option<f64>,
    pub tp: Option<f64>,
    pub pp: Option<f64>,
    pub dp: Option<f64>,
    pub ep: Option<f64>,
    pub dp_attention: Option<bool>,
    pub disaggregated: Option<bool>,
    pub decode_workers: Option<f64>,
    pub decode_tp: Option<f64>,
    pub decode_ep: Option<f64>,
    pub decode_dp_attention: Option<bool>,
    pub decode_gpus: Option<f64>,
    pub weight_dtype: Option<String>,
    pub kv_dtype: Option<String>,
    pub spec_decode: Option<String>,
    pub num_speculative_tokens: Option<f64>,
    pub acceptance_rate: Option<f64>,
    pub prefix_cache_hit_rate: Option<f64>,
    pub load_kind: Option<String>,
    pub concurrency: Option<f64>,
    pub request_per_s: Option<f64>,
    pub batch_size: Option<f64>,
    pub input_len_tokens: Option<f64>,
    pub output_len_tokens: Option<f64>,
    pub length_note: Option<String>,
    pub interconnect_intra_node: Option<String>,
    pub ttft_ms_mean: Option<f64>,
    pub ttft_ms_median: Option<f64>,
    pub tpot_ms_mean: Option<f64>,
    pub tpot_ms_median: Option<f64>,
}

/// A file of rows that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}, line {line}: {source}")]
    Json { path: String, line: usize, source: serde_json::Error },
}

/// Rows of a JSONL file, packed with gzip when its name ends in `.gz`.
///
/// # Errors
/// When the file cannot be read, or a line is no row.
pub fn read(path: &Path) -> Result<Vec<Row>, RowsError> {
    let name = path.display().to_string();
    let io = |source| RowsError::Io { path: name.clone(), source };
    let mut text = String::new();
    if name == "-" {
        std::io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
        return parse(&text, "standard input");
    }
    let file = std::fs::File::open(path).map_err(io)?;
    if path.extension().is_some_and(|e| e == "gz") {
        GzDecoder::new(file).take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
    } else {
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
    }
    parse(&text, &name)
}

/// Rows of a text.
///
/// # Errors
/// When a line is no row.
pub fn parse(text: &str, name: &str) -> Result<Vec<Row>, RowsError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| {
            serde_json::from_str(line).map_err(|source| RowsError::Json {
                path: name.to_owned(),
                line: i + 1,
                source,
            })
        })
        .collect()
}
