//! Words to an [`EngineCommand`].

use serde_json::Value;

use super::flags::{Kind, Meaning, table};
use super::settings::FileText;
use super::values::{partition, set_engine, size, tokens};
use super::words::{Command, Word, commands};
use super::{At, EngineCommand, Finding, Severity};
use crate::ingest::fields::nearest;
use crate::planner::input::EngineSettings;

/// Every engine command in a piece of shell, in order.
#[must_use]
pub fn read(text: &str) -> Vec<EngineCommand> {
    let all = commands(text);
    let files: Vec<FileText<'_>> = all
        .iter()
        .filter_map(Command::writes)
        .map(|(name, here)| FileText { name, text: &here.text, line: here.line })
        .collect();
    all.iter().filter_map(|command| read_with(command, &files)).collect()
}

/// The engine command that a command runs, if it runs one.
#[must_use]
pub fn read_command(command: &Command) -> Option<EngineCommand> {
    read_with(command, &[])
}

/// The same with the files that come with it: what a file of settings says counts as if it stood last on the line.
#[must_use]
pub fn read_with(command: &Command, files: &[FileText<'_>]) -> Option<EngineCommand> {
    let start = start(&command.words)?;
    let mut out = read_words(start.engine, command.words.get(start.rest..)?, start.line);
    let file = out.settings_file.as_ref().and_then(|path| files.iter().find(|f| f.is_at(&path.value)));
    if let Some(file) = file {
        out = out.with_file(file);
    }
    if let Some(version) = start.version {
        out.settings.version = version;
    }
    for (name, value) in &command.assignments {
        let of_engine = matches!(
            (name.as_str(), start.engine),
            ("VLLM_PP_LAYER_PARTITION", "vllm") | ("SGLANG_PP_LAYER_PARTITION", "sglang")
        );
        if of_engine {
            out.settings.pp_layer_partition = partition(value);
            if out.settings.pp_layer_partition.is_none() {
                out.findings.push(Finding::at(
                    start.line,
                    Severity::Fail,
                    "invalid_value",
                    format!("{name} takes layers by stage, e.g. 40,40"),
                ));
            }
        }
        if admits_long(&out.settings.name, name, value) {
            out.settings.allow_long_max_model_len = true;
        }
        if name == "CUDA_VISIBLE_DEVICES" {
            too_few_devices(&mut out, value, start.line);
        }
    }
    Some(out)
}

/// True for the variable by which an engine admits a length beyond the model's own.
#[must_use]
pub fn admits_long(engine: &str, name: &str, value: &str) -> bool {
    let variable = match engine {
        "vllm" => "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "sglang" => "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        _ => return false,
    };
    name == variable && matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes")
}

/// More ranks than the process sees GPUs.
fn too_few_devices(out: &mut EngineCommand, list: &str, line: u32) {
    let seen = list.split(',').filter(|device| !device.trim().is_empty()).count() as u64;
    let nodes = out.nodes.as_ref().map_or(1, |n| n.value).max(1);
    let needed = out.ranks().div_ceil(nodes);
    if !list.contains('$') && needed > seen {
        out.findings.push(Finding::at(
            line,
            Severity::Fail,
            "too_few_visible_devices",
            format!("CUDA_VISIBLE_DEVICES shows {seen} GPUs to a process of {needed} ranks"),
        ));
    }
}

struct Start {
    engine: &'static str,
    line: u32,
    /// Index of the first word after what starts the engine.
    rest: usize,
    version: Option<String>,
}

/// Where the engine's own words begin.
fn start(words: &[Word]) -> Option<Start> {
    let mut image: Option<(&'static str, String)> = None;
    for (i, word) in words.iter().enumerate() {
        let name = word.text.rsplit('/').next().unwrap_or_default();
        let next = words.get(i + 1).map(|w| w.text.as_str());
        let found = |engine, skip: usize| Start { engine, line: word.line, rest: i + skip, version: None };
        let start = match name {
            "vllm" if next == Some("serve") => Some(found("vllm", 2)),
            "sglang" if next == Some("serve") => Some(found("sglang", 2)),
            // the server before both halves of a pair runs no engine
            "trtllm-serve" if next == Some("disaggregated") => return None,
            "trtllm-serve" => Some(found("tensorrt-llm", if next == Some("serve") { 2 } else { 1 })),
            text if text.starts_with("vllm.entrypoints.") => Some(found("vllm", 1)),
            "sglang.launch_server" => Some(found("sglang", 1)),
            text if text.starts_with("dynamo.vllm") => Some(found("vllm", 1)),
            text if text.starts_with("dynamo.sglang") => Some(found("sglang", 1)),
            text if text.starts_with("dynamo.trtllm") => Some(found("tensorrt-llm", 1)),
            _ => None,
        };
        if let Some(start) = start {
            let version = image.filter(|(engine, _)| *engine == start.engine).map(|(_, v)| v);
            return Some(Start { version, ..start });
        }
        if let Some((engine, version)) = engine_of_image(&word.text) {
            // an image whose entry point is the engine: flags follow
            if engine == "vllm" && next.is_some_and(|n| n.starts_with('-')) {
                return Some(Start { engine, line: word.line, rest: i + 1, version });
            }
            image = version.map(|v| (engine, v));
        }
    }
    None
}

/// The engine and version of a container image, by its usual names.
#[must_use]
pub fn engine_of_image(image: &str) -> Option<(&'static str, Option<String>)> {
    let (path, tag) = image.rsplit_once(':').unwrap_or((image, ""));
    let engine = if path.ends_with("vllm-openai") || path.ends_with("vllm/vllm") {
        "vllm"
    } else if path.ends_with("lmsysorg/sglang") {
        "sglang"
    } else if path.contains("tensorrt-llm") && path.contains('/') {
        "tensorrt-llm"
    } else {
        return None;
    };
    let version = tag.trim_start_matches('v');
    let version = version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect::<String>());
    Some((engine, version))
}

/// The words after an engine's name: a model in front (where the engine takes one so), and flags.
#[must_use]
pub fn read_words(engine: &'static str, words: &[Word], line: u32) -> EngineCommand {
    let mut out = EngineCommand {
        settings: EngineSettings::defaults_of(engine, ""),
        line,
        model: None,
        revision: None,
        tp: None,
        pp: None,
        data_parallel: None,
        attention_dp: None,
        expert_parallel: None,
        experts_over: None,
        dcp: None,
        nodes: None,
        blocks: None,
        token_cap: None,
        settings_file: None,
        role: None,
        connector: None,
        words: words.to_vec(),
        lines: Vec::new(),
        findings: Vec::new(),
    };
    let mut all_attention = None;
    let mut dp_is_attention = None;
    let mut i = 0;
    while let Some(word) = words.get(i) {
        i += 1;
        let Some(written) = word.text.strip_prefix('-').map(|t| t.trim_start_matches('-')) else {
            positional(&mut out, word);
            continue;
        };
        let (name, inline) = match written.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (written, None),
        };
        let name = name.replace('_', "-");
        let Some(flag) = table(engine).iter().find(|f| f.names.contains(&name.as_str())) else {
            let next_is_value = inline.is_none() && words.get(i).is_some_and(|w| !looks_like_flag(&w.text));
            i += usize::from(next_is_value);
            unknown(&mut out, engine, word, &name);
            continue;
        };
        let switch_value =
            || words.get(i).filter(|w| matches!(w.text.to_ascii_lowercase().as_str(), "true" | "false"));
        let value = match (flag.kind, inline) {
            (_, Some(value)) => Some(Word { text: value, ..word.clone() }),
            (Kind::Value, None) => {
                let value = words.get(i).filter(|w| !looks_like_flag(&w.text)).cloned();
                i += usize::from(value.is_some());
                value
            }
            // Click options of trtllm-serve and YAML-born words may carry a truth value
            (Kind::Switch, None) => {
                let value = switch_value().cloned();
                i += usize::from(value.is_some());
                value
            }
        };
        out.lines.push((flag.meaning, word.line));
        match (flag.kind, value) {
            (Kind::Value, None) => out.findings.push(Finding::at(
                word.line,
                Severity::Fail,
                "missing_value",
                format!("{} needs a value", word.text),
            )),
            (Kind::Value, Some(value)) if value.expands => out.findings.push(Finding::at(
                word.line,
                Severity::Note,
                "value_not_known",
                format!("{} takes {} from the shell: it is left at its default here", word.text, value.text),
            )),
            (Kind::Value, Some(value)) => set(&mut out, flag.meaning, &word.text, &value),
            (Kind::Switch, value) => {
                let on = value.is_none_or(|v| !v.text.eq_ignore_ascii_case("false"));
                match flag.meaning {
                    Meaning::AllAttentionDp => all_attention = Some(At { value: on, line: word.line }),
                    Meaning::DpIsAttention => dp_is_attention = Some(At { value: on, line: word.line }),
                    meaning => switch(&mut out, meaning, word.line, on),
                }
            }
        }
    }
    if dp_is_attention.is_some_and(|d| d.value) {
        out.attention_dp = out.data_parallel.take().or(out.attention_dp);
    }
    if all_attention.is_some_and(|a| a.value) {
        out.attention_dp.clone_from(&out.tp);
    }
    if engine == "sglang"
        && let Some(groups) = out.attention_dp.as_ref().map(|a| a.value).filter(|n| *n > 1)
    {
        // the limit is dealt out over the attention groups
        out.settings.max_num_seqs = out.settings.max_num_seqs.map(|n| (n / groups).max(1));
    }
    out
}

fn looks_like_flag(text: &str) -> bool {
    // a negative number is a value
    text.starts_with('-') && !text[1..].starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

fn positional(out: &mut EngineCommand, word: &Word) {
    if out.model.is_none() && !word.expands {
        out.model = Some(At { value: word.text.clone(), line: word.line });
    } else if word.expands {
        out.findings.push(Finding::at(
            word.line,
            Severity::Note,
            "value_not_known",
            format!("{} comes from the shell", word.text),
        ));
    } else {
        out.findings.push(Finding::at(
            word.line,
            Severity::Fail,
            "unexpected_word",
            format!("\"{}\" belongs to no flag", cut(&word.text)),
        ));
    }
}

fn unknown(out: &mut EngineCommand, engine: &str, word: &Word, name: &str) {
    let known: Vec<&str> =
        table(engine).iter().flat_map(|f| f.names).copied().filter(|n| n.len() > 3).collect();
    let finding = match nearest(name, &known) {
        Some(close) => Finding::at(
            word.line,
            Severity::Fail,
            "unknown_flag",
            format!("{engine} has no {}; did you mean --{close}?", cut(&word.text)),
        ),
        None => Finding::at(
            word.line,
            Severity::Note,
            "flag_not_read",
            format!("{} is not looked at: no figure of the plan rests on it", cut(&word.text)),
        ),
    };
    out.findings.push(finding);
}

fn switch(out: &mut EngineCommand, meaning: Meaning, line: u32, on: bool) {
    let settings = &mut out.settings;
    match meaning {
        Meaning::ExpertParallel => out.expert_parallel = Some(At { value: on, line }),
        Meaning::Eager => settings.enforce_eager = on,
        Meaning::DeprecatedQuantization => settings.allow_deprecated_quantization = on,
        Meaning::PrefixCaching => settings.enable_prefix_caching = Some(on),
        Meaning::NoPrefixCaching => settings.enable_prefix_caching = Some(!on),
        Meaning::AsyncScheduling => settings.async_scheduling = Some(on),
        Meaning::NoAsyncScheduling => settings.async_scheduling = Some(!on),
        Meaning::HybridManagerOff => settings.disable_hybrid_kv_cache_manager = on,
        Meaning::LanguageModelOnly => settings.language_model_only = on,
        Meaning::PrefillWorker if on => out.role = Some("prefill".to_owned()),
        Meaning::Headless => out.role = Some("headless".to_owned()),
        _ => {}
    }
}

fn set(out: &mut EngineCommand, meaning: Meaning, flag: &str, value: &Word) {
    let line = value.line;
    let text = value.text.trim();
    let result = match meaning {
        Meaning::Model => {
            out.model = Some(At { value: text.to_owned(), line });
            Ok(())
        }
        Meaning::Revision => {
            out.revision = Some(text.to_owned());
            Ok(())
        }
        Meaning::Role => {
            // workers of a leader stay what they are
            if out.role.as_deref() != Some("headless") {
                out.role = Some(text.to_owned());
            }
            Ok(())
        }
        Meaning::Connector => {
            out.connector = Some(text.to_ascii_lowercase());
            Ok(())
        }
        Meaning::KvTransfer => {
            serde_json::from_str::<Value>(text).map_err(|_| "a JSON object").map(|config| {
                let role = match config.get("kv_role").and_then(Value::as_str) {
                    Some("kv_producer") => Some("prefill"),
                    Some("kv_consumer") => Some("decode"),
                    // both: the router decides, or another flag says
                    _ => None,
                };
                out.role = out.role.take().or(role.map(str::to_owned));
                out.connector = config.get("kv_connector").and_then(Value::as_str).map(connector);
            })
        }
        Meaning::Tp => size(text).map(|value| out.tp = Some(At { value, line })),
        Meaning::Pp => size(text).map(|value| out.pp = Some(At { value, line })),
        Meaning::DataParallel => size(text).map(|value| out.data_parallel = Some(At { value, line })),
        Meaning::AttentionDp => size(text).map(|value| out.attention_dp = Some(At { value, line })),
        Meaning::Dcp => size(text).map(|value| out.dcp = Some(At { value, line })),
        Meaning::Nodes => size(text).map(|value| out.nodes = Some(At { value, line })),
        Meaning::ExpertParallelSize => size(text).map(|n| {
            out.expert_parallel = Some(At { value: n > 1, line });
            out.experts_over = Some(n);
        }),
        Meaning::KvBlocks => tokens(text).map(|value| out.blocks = Some(At { value, line })),
        Meaning::TokenCap => tokens(text).map(|value| out.token_cap = Some(At { value, line })),
        Meaning::NodeRank => text.parse::<u64>().map_err(|_| "a whole number").map(|rank| {
            if rank > 0 {
                out.role = Some("headless".to_owned());
            }
        }),
        Meaning::SettingsFile => {
            out.settings_file = Some(At { value: text.to_owned(), line });
            Ok(())
        }
        _ => set_engine(&mut out.settings, meaning, text),
    };
    match result {
        Ok(()) if meaning == Meaning::SettingsFile => out.findings.push(Finding::at(
            line,
            Severity::Note,
            "settings_file_not_read",
            format!(
                "{flag} {}: settings in that file are not seen here; check them by sending the file",
                cut(text)
            ),
        )),
        Ok(()) => {}
        Err(expected) => out.findings.push(Finding::at(
            line,
            Severity::Fail,
            "invalid_value",
            format!("{flag} {}: expected {expected}", cut(text)),
        )),
    }
}

/// `NixlConnector` is `nixl`, `LMCacheConnectorV1` is `lmcache`.
fn connector(class: &str) -> String {
    class.split("Connector").next().unwrap_or(class).to_ascii_lowercase()
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::super::values::human;
    use super::*;

    fn one(text: &str) -> EngineCommand {
        let mut found = read(text);
        assert_eq!(found.len(), 1, "{text}");
        found.remove(0)
    }

    fn value<T: Copy>(at: Option<&At<T>>) -> Option<T> {
        at.map(|a| a.value)
    }

    #[test]
    fn vllm_in_every_dress() {
        for text in [
            "vllm serve org/m -tp 8 --pipeline-parallel-size=2 --max-model-len 32k",
            "VLLM_USE_V1=1 python3 -m vllm.entrypoints.openai.api_server --model org/m --tensor_parallel_size 8 -pp 2 --max-model-len 32000",
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model org/m -tp=8 -pp 2 --max_model_len 32000",
        ] {
            let c = one(text);
            assert_eq!(c.model.as_ref().map(|m| m.value.as_str()), Some("org/m"), "{text}");
            assert_eq!(
                (value(c.tp.as_ref()), value(c.pp.as_ref()), c.settings.max_model_len),
                (Some(8), Some(2), Some(32000)),
                "{text}"
            );
            assert!(c.findings.iter().all(|f| f.severity == Severity::Note), "{:?}", c.findings);
        }
        assert_eq!(one("docker run vllm/vllm-openai:v0.11.0 --model m").settings.version, "0.11.0");
    }

    #[test]
    fn sglang_and_tensorrt_have_their_own_words() {
        let c = one(
            "python -m sglang.launch_server --model-path org/m --tp 16 --dp 16 --enable-dp-attention --mem-fraction-static 0.8",
        );
        assert_eq!(c.settings.name, "sglang");
        assert_eq!(
            (value(c.tp.as_ref()), value(c.attention_dp.as_ref()), value(c.data_parallel.as_ref())),
            (Some(16), Some(16), None)
        );
        assert_eq!(c.settings.gpu_memory_utilization, Some(0.8));
        let c = one(
            "trtllm-serve org/m --tp_size 8 --ep_size 8 --kv_cache_free_gpu_memory_fraction 0.9 --max_seq_len 8192",
        );
        assert_eq!(c.settings.name, "tensorrt-llm");
        assert_eq!(
            (value(c.tp.as_ref()), value(c.expert_parallel.as_ref()), c.settings.max_model_len),
            (Some(8), Some(true), Some(8192))
        );
    }

    #[test]
    fn wrong_flags_are_told_with_their_line() {
        let c = one(
            "vllm serve m \\\n  --tensor-paralel-size 8 \\\n  --max-model-len banana \\\n  --gpu-memory-utilization 90 \\\n --something-else 3 -q",
        );
        let found: Vec<(u32, &str)> = c.findings.iter().map(|f| (f.line, f.code)).collect();
        assert_eq!(
            found,
            [
                (2, "unknown_flag"),
                (3, "invalid_value"),
                (4, "invalid_value"),
                (5, "flag_not_read"),
                (5, "missing_value")
            ]
        );
    }

    #[test]
    fn numbers_as_the_engine_reads_them() {
        for (text, number) in [
            ("32k", Some(32_000)),
            ("32K", Some(32_768)),
            ("1.5m", Some(1_500_000)),
            ("40G", Some(40 << 30)),
            ("1.5", None),
            ("-1", None),
            ("x", None),
            ("99999999999999999999T", None),
        ] {
            assert_eq!(human(text), number, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_command_is_none() {
        for text in ["", "ls -l", "vllm bench", "é --tp", "vllm", "-"] {
            assert!(read(text).is_empty(), "{text}");
        }
        let _ = read("vllm serve -é --=x --tp= -- - -tp é");
    }
}
