//! An engine's command line to what it asks of a cluster, with the line of every flag.
//!
//! `vllm serve …` (also through `python -m vllm.entrypoints…` or a container image), `python -m sglang.launch_server …`,
//! `trtllm-serve …`. Manifests are read into the same words first, so a flag means the same wherever it stands.

mod flags;
mod read;
mod settings;
mod values;
mod words;

pub use flags::{Flag, Kind, Meaning, table};
pub use read::{admits_long, engine_of_image, read, read_command, read_with, read_words};
pub use settings::{FileText, keywords, settings_words};
pub use values::partition;
pub use words::{Command, Here, Word, commands};

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
    /// Ranks that share the experts, where the command counts them.
    pub experts_over: Option<u64>,
    pub dcp: Option<At<u64>>,
    pub nodes: Option<At<u64>>,
    /// Blocks of the cache, given outright (vLLM).
    pub blocks: Option<At<u64>>,
    /// Tokens of the cache, at most.
    pub token_cap: Option<At<u64>>,
    /// The file of further settings that it names.
    pub settings_file: Option<At<String>>,
    /// The role in a split deployment.
    pub role: Option<String>,
    /// What carries the cache to or from the other half: `nixl`, `mooncake`, `lmcache`, …
    pub connector: Option<String>,
    /// The words it was read from, without what starts the engine.
    pub words: Vec<Word>,
    /// Every flag that was understood, by the meaning's name, with its line.
    pub lines: Vec<(Meaning, u32)>,
    pub findings: Vec<Finding>,
}

impl EngineCommand {
    /// The same with a file of settings, which counts as if it stood last on the line.
    #[must_use]
    pub fn with_file(self, file: &FileText<'_>) -> Self {
        let Some(engine) = flags::known_engine(&self.settings.name) else { return self };
        let words: Vec<Word> = self.words.iter().cloned().chain(file.words()).collect();
        let mut all = read_words(engine, &words, self.line);
        all.settings.version = self.settings.version;
        all.settings.allow_long_max_model_len |= self.settings.allow_long_max_model_len;
        all.settings.pp_layer_partition =
            all.settings.pp_layer_partition.or(self.settings.pp_layer_partition);
        all.model = all.model.or(self.model);
        all.revision = all.revision.or(self.revision);
        all.findings.extend(self.findings);
        all.findings.retain(|finding| finding.code != "settings_file_not_read");
        let mut seen: Vec<Finding> = Vec::new();
        all.findings.retain(|finding| {
            let new = !seen.contains(finding);
            seen.push(finding.clone());
            new
        });
        all
    }

    /// The same where the text that it was read from begins on line `first` of a larger one.
    #[must_use]
    pub fn moved(mut self, first: u32) -> Self {
        let shift = |line: &mut u32| *line = first.saturating_add(line.saturating_sub(1));
        shift(&mut self.line);
        for at in [
            &mut self.tp,
            &mut self.pp,
            &mut self.data_parallel,
            &mut self.attention_dp,
            &mut self.dcp,
            &mut self.nodes,
            &mut self.blocks,
            &mut self.token_cap,
        ]
        .into_iter()
        .flatten()
        {
            shift(&mut at.line);
        }
        for at in [&mut self.model, &mut self.settings_file].into_iter().flatten() {
            shift(&mut at.line);
        }
        if let Some(at) = &mut self.expert_parallel {
            shift(&mut at.line);
        }
        self.words.iter_mut().for_each(|word| shift(&mut word.line));
        self.lines.iter_mut().for_each(|(_, line)| shift(line));
        self.findings.iter_mut().for_each(|finding| shift(&mut finding.line));
        self
    }

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
