//! An engine's command line to what it asks of a cluster, with the line of every flag.
//!
//! `vllm serve …` (also through `python -m vllm.entrypoints…` or a container image), `python -m sglang.launch_server …`,
//! `trtllm-serve …`. Manifests are read into the same words first, so a flag means the same wherever it stands.

mod flags;
mod read;
mod words;

pub use flags::{Flag, Kind, Meaning, table};
pub use read::{engine_of_image, read, read_command, read_words};
pub use words::{Command, Word, commands};

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::input::EngineSettings;

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It starts, but not as it should.
    Warn,
    /// It does not start, or not as it says.
    Fail,
}

/// Something about a text, at a line of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Finding {
    /// Stable code, e.g. `unknown_flag`.
    pub code: &'static str,
    pub severity: Severity,
    /// Line of the text, from 1.
    pub line: u32,
    pub message: String,
}

impl Finding {
    /// A finding at a line.
    #[must_use]
    pub fn at(line: u32, severity: Severity, code: &'static str, message: impl Into<String>) -> Self {
        Self { code, severity, line, message: message.into() }
    }
}

/// A value and the line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    pub line: u32,
}

/// What a command asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineCommand {
    /// `vllm`, `sglang`, `tensorrt-llm`, in [`EngineSettings::name`].
    pub settings: EngineSettings,
    pub line: u32,
    pub model: Option<At<String>>,
    pub revision: Option<String>,
    pub tp: Option<At<u64>>,
    pub pp: Option<At<u64>>,
    /// vLLM: ranks that share experts, or plain replicas of a dense model. SGLang: replicas.
    pub data_parallel: Option<At<u64>>,
    /// Attention groups inside TP (SGLang, TensorRT-LLM).
    pub attention_dp: Option<At<u64>>,
    pub expert_parallel: Option<At<bool>>,
    pub dcp: Option<At<u64>>,
    pub nodes: Option<At<u64>>,
    /// The role in a split deployment.
    pub role: Option<String>,
    /// Every flag that was understood, by the meaning's name, with its line.
    pub lines: Vec<(Meaning, u32)>,
    pub findings: Vec<Finding>,
}

impl EngineCommand {
    /// The line of a flag, else of the command.
    #[must_use]
    pub fn line_of(&self, meaning: Meaning) -> u32 {
        self.lines.iter().rev().find(|(known, _)| *known == meaning).map_or(self.line, |(_, line)| *line)
    }

    /// True when the command names the setting.
    #[must_use]
    pub fn names(&self, meaning: Meaning) -> bool {
        self.lines.iter().any(|(known, _)| *known == meaning)
    }
}
