//! The models that people deploy: real config.json files, found by id or by a plain name.
//!
//! `data/models/index.json` holds what a list needs; a model's own file is unpacked only when it is asked for.
//! Adding a model is one file in `data/models/configs` and one line in the index.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::ingest::config_json::{self, ConfigError, ReadModel, WhatIf};
use crate::ingest::fields::nearest;
use crate::planner::model::{LayerKind, ModelSpec};

/// The packed bodies.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/models.bin"));
/// What the index says of each model, in order of id.
static MODELS: &[CatalogueModel] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// One model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueModel {
    /// Hub id.
    pub id: &'static str,
    /// Plain names that mean this model.
    pub aliases: &'static [&'static str],
    /// The house or line it belongs to, e.g. `Llama`.
    pub family: &'static str,
    pub architecture: &'static str,
    /// Distinct parameters, vision towers included; as the reader counts them.
    pub parameters: u64,
    pub active_parameters: u64,
    pub context_length: u64,
    /// How its weights are stored, e.g. `bf16`, `fp8 block 128x128`.
    pub quantization: &'static str,
    /// Month of release, `2024-07`.
    pub released: Option<&'static str>,
    pub licence: Option<&'static str>,
    /// True when the hub asks for consent before a download.
    pub gated: bool,
    /// The model that this one is a quantised form of.
    pub base: Option<&'static str>,
    /// The model whose configuration stands for this one: every size is the same (but for [`CatalogueModel::note`]).
    pub same_shape_as: Option<&'static str>,
    /// Bytes of the checkpoint on disk, where published.
    pub checkpoint_bytes: Option<u64>,
    /// Where the configuration comes from.
    pub source: &'static str,
    /// Keys in which it differs from the shared file, as JSON.
    overrides: Option<&'static str>,
    body: (usize, usize),
    side: Option<(usize, usize)>,
    /// Long files without the formats of single experts that repeat the first one's, for reading.
    short_body: Option<(usize, usize)>,
    short_side: Option<(usize, usize)>,
}

/// No model of the catalogue goes by this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no model of the catalogue goes by `{query}`{}", did_you_mean(.suggestions))]
pub struct NotFound {
    /// What was asked for, shortened.
    pub query: String,
    /// Ids that may have been meant, best first.
    pub suggestions: Vec<&'static str>,
}

fn did_you_mean(suggestions: &[&str]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean {}?", suggestions.join(", ")) }
}

/// Every model, in order of id.
#[must_use]
pub fn all() -> &'static [CatalogueModel] {
    MODELS
}

/// Longest name that is looked up.
const MAX_QUERY: usize = 200;

/// Find a model by its id (in any case), by one of its plain names, or by the name part of its id with the
/// usual endings left out. A name that fits several models of different shape is not guessed.
///
/// # Errors
/// [`NotFound`] with the nearest ids.
pub fn find(query: &str) -> Result<&'static CatalogueModel, NotFound> {
    let asked = query.trim();
    known(asked).ok_or_else(|| {
        let shortened: String = asked.chars().take(MAX_QUERY).collect();
        let readable = !asked.is_empty() && asked.len() <= MAX_QUERY;
        let suggestions = if readable { suggestions(asked, &words(asked)) } else { Vec::new() };
        NotFound { query: shortened, suggestions }
    })
}

/// [`find`] for a caller who asks of many texts whether they name a model: nothing near is looked for.
#[must_use]
pub fn known(query: &str) -> Option<&'static CatalogueModel> {
    let asked = query.trim();
    if asked.is_empty() || asked.len() > MAX_QUERY {
        return None;
    }
    let by_id = MODELS.iter().find(|model| model.id.eq_ignore_ascii_case(asked));
    if by_id.is_some() || asked.contains('/') {
        return by_id;
    }
    let words = words(asked);
    let names = &*NAMES;
    let exact = names.aliases.get(&words).or_else(|| names.names.get(&words));
    exact.copied().or_else(|| preferred(names.stems.get(&stem(&words))?))
}

/// Models by the words of their names; of two with one name the first.
struct Names {
    aliases: BTreeMap<Vec<String>, &'static CatalogueModel>,
    names: BTreeMap<Vec<String>, &'static CatalogueModel>,
    stems: BTreeMap<Vec<String>, Vec<&'static CatalogueModel>>,
    /// Every word of a name or alias; true where a name begins with it as its family does.
    words: BTreeMap<String, bool>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut all = Names {
        aliases: BTreeMap::new(),
        names: BTreeMap::new(),
        stems: BTreeMap::new(),
        words: BTreeMap::new(),
    };
    for model in MODELS {
        for alias in model.aliases {
            let alias = words(alias);
            all.note(&alias, model.family);
            all.aliases.entry(alias).or_insert(model);
        }
        let name = words(name_of(model.id));
        all.note(&stem(&name), model.family);
        all.stems.entry(stem(&name)).or_default().push(model);
        all.names.entry(name).or_insert(model);
    }
    all
});

impl Names {
    /// Words in letters tell models apart; sizes and versions are read as numbers.
    fn note(&mut self, name: &[String], family: &str) {
        let lettered = |word: &str| word.chars().filter(|c| c.is_alphabetic()).count() > 2;
        let family = words(family);
        for (i, word) in name.iter().enumerate().filter(|(_, word)| lettered(word)) {
            let line = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            *self.words.entry(word.clone()).or_default() |=
                i == 0 && family.first().is_some_and(|f| f == line);
        }
    }
}

/// Whether a word in lower case stands in the names of models: "coder", "vision", "llama".
#[must_use]
pub fn is_in_names(word: &str) -> bool {
    stem(&words(word)).iter().any(|part| NAMES.words.contains_key(part))
}

/// Whether names of models begin with a word in lower case: "llama", "qwen3".
#[must_use]
pub fn begins_name(word: &str) -> bool {
    stem(&words(word)).first().is_some_and(|part| NAMES.words.get(part) == Some(&true))
}

/// Whether a word in lower case changes nothing of what a model is made of: "instruct", "chat".
#[must_use]
pub fn is_ending(word: &str) -> bool {
    ENDINGS.contains(&word)
}

/// The part of an id after the organisation.
fn name_of(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// A name as lower-case words: letters and digits, with the points of versions.
fn words(text: &str) -> Vec<String> {
    text.to_lowercase()
        .split(|c: char| !(c.is_alphanumeric() || c == '.'))
        .filter(|word| !word.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

/// Words that do not change what a model is made of.
const ENDINGS: [&str; 9] = ["instruct", "it", "chat", "hf", "meta", "base", "thinking", "pt", "v0.1"];

/// The words without endings, and with a joined version split: `llama3.1` is `llama 3.1`.
fn stem(words: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len());
    for word in words.iter().filter(|word| !ENDINGS.contains(&word.as_str())) {
        let letters = word.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        let (name, version) = word.split_at(letters);
        // sizes like `a3b` and `e2b` stay whole
        if name.len() > 2 && !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || c == '.') {
            out.push(name.to_owned());
            out.push(version.to_owned());
        } else {
            out.push(word.clone());
        }
    }
    out
}

/// The one that people mean among models of one shape: tuned for instructions rather than not, the later one; `None` when
/// their sizes differ.
fn preferred(fitting: &[&'static CatalogueModel]) -> Option<&'static CatalogueModel> {
    let first = fitting.first()?;
    if fitting.iter().any(|m| m.parameters != first.parameters || m.quantization != first.quantization) {
        return None;
    }
    let tuned = |model: &CatalogueModel| {
        words(name_of(model.id)).iter().any(|word| matches!(word.as_str(), "instruct" | "it" | "chat"))
    };
    fitting.iter().copied().max_by_key(|model| (tuned(model), model.released))
}

/// Ids that may have been meant: those that share the most words, then the nearest by spelling.
fn suggestions(asked: &str, words: &[String]) -> Vec<&'static str> {
    let asked_stem = stem(words);
    let mut scored: Vec<(usize, &'static CatalogueModel)> = Vec::new();
    for (own, models) in &NAMES.stems {
        let shared = asked_stem.iter().filter(|word| own.contains(word)).count();
        if shared > 0 && shared * 2 >= asked_stem.len() {
            scored.extend(models.iter().map(|model| (shared, *model)));
        }
    }
    scored.sort_by_key(|(shared, model)| (usize::MAX - shared, model.id.len(), model.id));
    let mut out: Vec<&'static str> = scored.into_iter().map(|(_, model)| model.id).take(5).collect();
    if out.is_empty() {
        let names: Vec<&'static str> = MODELS.iter().map(|model| name_of(model.id)).collect();
        if let Some(name) = nearest(name_of(asked), &names) {
            out.extend(MODELS.iter().filter(|model| name_of(model.id) == name).map(|model| model.id));
        }
    }
    out
}

impl CatalogueModel {
    /// The config.json, with the keys in which this model differs from the file it shares.
    #[must_use]
    pub fn config(&self) -> Value {
        self.with_overrides(unpack(self.body))
    }

    /// What a reader needs of [`CatalogueModel::config`] and [`CatalogueModel::side_quantization`]: the same but for
    /// formats of single experts, of which files name thousands.
    #[must_use]
    pub fn to_read(&self) -> (Value, Option<Value>) {
        let config = self.with_overrides(unpack(self.short_body.unwrap_or(self.body)));
        (config, self.short_side.or(self.side).map(unpack))
    }

    fn with_overrides(&self, mut config: Value) -> Value {
        let overrides = self.overrides.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        if let (Value::Object(config), Some(overrides)) = (&mut config, overrides) {
            config.extend(overrides);
        }
        config
    }

    /// The model whose configuration is this one's to the last key, so that every figure is the same.
    #[must_use]
    pub fn twin_of(&self) -> Option<&'static Self> {
        let shared = self.same_shape_as.filter(|_| self.overrides.is_none())?;
        MODELS.iter().find(|model| model.id == shared && model.body == self.body && model.side == self.side)
    }

    /// The other models that have exactly this one's shape: every tensor, every cache and every layer are the same, so that weights,
    /// cache and speed are. Context lengths may differ.
    #[must_use]
    pub fn of_same_shape(&self) -> Vec<&'static Self> {
        let alike = |other: &&Self| {
            other.id != self.id
                && other.architecture == self.architecture
                && other.parameters == self.parameters
                && other.quantization == self.quantization
        };
        let candidates: Vec<&'static Self> = MODELS.iter().filter(alike).collect();
        let Some(own) = self.spec().ok().filter(|_| !candidates.is_empty()) else { return Vec::new() };
        candidates
            .into_iter()
            .filter(|other| {
                (other.body == self.body && other.overrides == self.overrides)
                    || other.spec().is_ok_and(|spec| same_shape(&spec, &own))
            })
            .collect()
    }

    /// The content of ModelOpt's side file, for checkpoints that have one.
    #[must_use]
    pub fn side_quantization(&self) -> Option<Value> {
        self.side.map(unpack)
    }

    /// The model as read from its configuration.
    ///
    /// # Errors
    /// What the reader does not know of it.
    pub fn read(&self) -> Result<ReadModel, ConfigError> {
        self.read_as(WhatIf::default())
    }

    /// The model, changed as the caller asks.
    ///
    /// # Errors
    /// As [`CatalogueModel::read`], and for names that are not known.
    pub fn read_as(&self, what_if: WhatIf<'_>) -> Result<ReadModel, ConfigError> {
        let (config, side) = self.to_read();
        let mut read = config_json::read_as(self.id, &config, side.as_ref(), what_if)?;
        read.spec.notes.extend(self.note());
        Ok(read)
    }

    /// The core's view of the model.
    ///
    /// # Errors
    /// As [`CatalogueModel::read`].
    pub fn spec(&self) -> Result<ModelSpec, ConfigError> {
        self.read().map(|read| read.spec)
    }

    /// What a reader should know when another model's file stands for this one.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let shared = self.same_shape_as?;
        let differing = self.overrides.map_or_else(String::new, |keys| format!(", except {keys}"));
        Some(format!("read from the configuration of {shared}, which has the same shape{differing}"))
    }
}

/// True when two models are built of the same tensors and leave the same bytes in the cache, layer by layer.
#[must_use]
pub fn same_shape(a: &ModelSpec, b: &ModelSpec) -> bool {
    let alike = |a: &LayerKind, b: &LayerKind| {
        (a.query_heads, &a.caches, &a.tensors) == (b.query_heads, &b.caches, &b.tensors)
    };
    a.layers == b.layers
        && a.kinds.len() == b.kinds.len()
        && a.kinds.iter().zip(&b.kinds).all(|(a, b)| alike(a, b))
        && (&a.head, &a.tail) == (&b.head, &b.tail)
}

/// One packed JSON text. The archive is made by the build from files that a test reads, so a failure is a null value.
fn unpack((offset, length): (usize, usize)) -> Value {
    let Some(packed) = offset.checked_add(length).and_then(|end| ARCHIVE.get(offset..end)) else {
        return Value::Null;
    };
    let mut text = String::new();
    let read = flate2::read::DeflateDecoder::new(packed).read_to_string(&mut text);
    read.ok().and_then(|_| config_json::parse(&text).ok()).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_find_models() {
        for (query, id) in [
            ("meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
            ("META-LLAMA/llama-3.1-70b-INSTRUCT", "meta-llama/Llama-3.1-70B-Instruct"),
            ("llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct"),
            ("llama 70b", "meta-llama/Llama-3.3-70B-Instruct"),
            ("llama3.1 8b", "meta-llama/Llama-3.1-8B-Instruct"),
            ("Llama 3 8B", "meta-llama/Meta-Llama-3-8B"),
            ("r1", "deepseek-ai/DeepSeek-R1"),
            ("DeepSeek R1", "deepseek-ai/DeepSeek-R1"),
            ("qwen3-32b", "Qwen/Qwen3-32B"),
            ("qwen3 32b fp8", "Qwen/Qwen3-32B-FP8"),
            ("gpt-oss-120b", "openai/gpt-oss-120b"),
            ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
            ("meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-405B"),
            ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
            ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
            ("meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B"),
            ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ] {
            assert_eq!(find(query).map(|model| model.id), Ok(id), "{query}");
        }
    }

    #[test]
    fn a_shortened_file_reads_as_the_whole_one() {
        let shortened: Vec<_> = all().iter().filter(|m| m.short_body.or(m.short_side).is_some()).collect();
        assert!(!shortened.is_empty());
        for model in shortened {
            let whole = config_json::read(model.id, &model.config(), model.side_quantization().as_ref());
            let (config, side) = model.to_read();
            let short = config_json::read(model.id, &config, side.as_ref());
            let (whole, short) = (whole.expect("read"), short.expect("read"));
            assert_eq!(whole.spec, short.spec, "{}", model.id);
            assert_eq!(whole.diagnostics, short.diagnostics, "{}", model.id);
        }
    }

    #[test]
    fn a_typo_gets_suggestions() {
        for (query, meant) in [
            ("Qwen/Qwen3-23B", "Qwen/Qwen3-32B"),
            ("deepsek-r1", "deepseek-ai/DeepSeek-R1"),
            ("meta-llama/Llama-3.1-70B-Instuct", "meta-llama/Llama-3.1-70B-Instruct"),
        ] {
            let suggestions = find(query).map_or_else(|error| error.suggestions, |model| vec![model.id]);
            assert!(suggestions.contains(&meant), "{query}: {suggestions:?}");
        }
        assert!(find("").is_err());
        assert!(find("¬¤´ Ï¢ ïé9").is_err(), "names are cut between characters, not bytes");
        assert!(find(&"x".repeat(100_000)).is_err());
    }
}
