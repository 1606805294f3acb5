//! An engine's start-up log to the settings it ran with and the figures it printed.
//!
//! Read as a stream in bounded memory: lines are cut at [`MAX_LINE`] bytes, one pass over each line looks for the few
//! words that matter, and everything else is dropped. vLLM (both generations of lines), SGLang, TensorRT-LLM;
//! `nvidia-smi topo -m` and NCCL lines are recognised too. SGLang prints "GB" and means GiB.

mod figures;
mod settings;

use std::io::{self, BufRead, Read as _};

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

use crate::planner::input::EngineSettings;

/// Bytes of a line that are looked at.
pub const MAX_LINE: usize = 64 << 10;
/// Values of one figure that are kept, one for each rank.
const MAX_RANKS: usize = 1024;
/// Bytes of a topology matrix that are kept.
const MAX_TOPOLOGY: usize = 64 << 10;

/// A printed figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// As printed, in order; ranks print their own.
    pub values: Vec<f64>,
    /// Line of the first.
    pub line: u64,
}

impl Figure {
    fn add(&mut self, value: f64, line: u64) {
        if self.values.is_empty() {
            self.line = line;
        }
        if self.values.len() < MAX_RANKS && value.is_finite() {
            self.values.push(value);
        }
    }

    /// The smallest: the tightest rank rules.
    #[must_use]
    pub fn least(&self) -> Option<f64> {
        self.values.iter().copied().min_by(f64::total_cmp)
    }

    /// The largest.
    #[must_use]
    pub fn most(&self) -> Option<f64> {
        self.values.iter().copied().max_by(f64::total_cmp)
    }
}

/// How the start went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The log ends before either.
    #[default]
    Unknown,
    Started,
    /// The engine's own words.
    Refused {
        code: &'static str,
        message: String,
        line: u64,
    },
}

/// Everything read from a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Name, version and settings of the engine; empty name when no line said which.
    pub settings: EngineSettings,
    /// vLLM: `V0` or `V1` lines.
    pub generation: Option<&'static str>,
    pub model: Option<String>,
    pub tp: u64,
    pub pp: u64,
    pub dp: u64,
    pub attention_dp: u64,
    pub ep: bool,
    pub dcp: u64,
    pub gpu_total_gib: Figure,
    pub weights_gib: Figure,
    pub activation_gib: Figure,
    pub non_torch_gib: Figure,
    pub cuda_graph_gib: Figure,
    pub available_kv_gib: Figure,
    pub kv_tokens: Figure,
    pub kv_blocks: Figure,
    /// Maximum concurrency, and the length it is counted at.
    pub concurrency: Figure,
    pub concurrency_length: Option<u64>,
    /// What one request of `max_model_len` would have needed, where the engine refused.
    pub needed_kv_gib: Figure,
    /// The longest that would have fitted, by the engine.
    pub longest_fitting: Option<u64>,
    pub outcome: Outcome,
    /// The rows of a topology matrix found in the text, or empty.
    pub topology: String,
    /// What NCCL said of its links: `NVLS`, `P2P`, `SHM`, `NET/IB`, `NET/Socket`.
    pub nccl_links: Vec<String>,
    pub lines: u64,
    /// Lines that something was read from.
    pub lines_used: u64,
}

impl Default for Observed {
    fn default() -> Self {
        let figure = Figure::default;
        Self {
            settings: EngineSettings::defaults_of("", ""),
            generation: None,
            model: None,
            tp: 1,
            pp: 1,
            dp: 1,
            attention_dp: 1,
            ep: false,
            dcp: 1,
            gpu_total_gib: figure(),
            weights_gib: figure(),
            activation_gib: figure(),
            non_torch_gib: figure(),
            cuda_graph_gib: figure(),
            available_kv_gib: figure(),
            kv_tokens: figure(),
            kv_blocks: figure(),
            concurrency: figure(),
            concurrency_length: None,
            needed_kv_gib: figure(),
            longest_fitting: None,
            outcome: Outcome::Unknown,
            topology: String::new(),
            nccl_links: Vec::new(),
            lines: 0,
            lines_used: 0,
        }
    }
}

/// Read a log to its end.
///
/// # Errors
/// Only those of `source` itself: no text is refused.
pub fn read(mut source: impl BufRead) -> io::Result<Observed> {
    let words = words().map_err(io::Error::other)?;
    let mut out = Observed::default();
    let mut line = Vec::with_capacity(512);
    loop {
        line.clear();
        let read = (&mut source).take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if line.last() != Some(&b'\n') && read == MAX_LINE {
            skip_line(&mut source)?;
        }
        out.lines += 1;
        if let Some(found) = words.find(&line) {
            let text = String::from_utf8_lossy(&line);
            if figures::take(&mut out, found.pattern().as_usize(), text.trim_end()) {
                out.lines_used += 1;
            }
        }
    }
    Ok(out)
}

/// Drop the rest of a line that is longer than anybody needs.
fn skip_line(source: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = source.fill_buf()?;
        let (used, done) = match buffer.iter().position(|b| *b == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        source.consume(used);
        if done {
            return Ok(());
        }
    }
}

/// What finds the word that decides what a line is.
fn words() -> Result<AhoCorasick, BuildError> {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .build(figures::WORDS.iter().map(|(word, _)| word))
}

#[cfg(test)]
mod tests;
