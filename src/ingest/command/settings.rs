//! Settings in a file or in keywords to the words of the command line that mean the same.

use serde_json::Value;

use super::Word;
use crate::ingest::yaml::{self, Node, Yaml};

/// A file that comes with a command, and the line of the whole text on which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub line: u32,
}

impl FileText<'_> {
    /// True when a path leads to it: the same, or the same last part.
    #[must_use]
    pub fn is_at(&self, path: &str) -> bool {
        let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
        self.name == path || (!last(path).is_empty() && last(self.name) == last(path))
    }

    /// Its settings as words; nothing when it is no YAML.
    #[must_use]
    pub fn words(&self) -> Vec<Word> {
        let Ok(documents) = yaml::read(self.text) else { return Vec::new() };
        let mut words = documents.first().map(settings_words).unwrap_or_default();
        for word in &mut words {
            word.line = self.line.saturating_add(word.line.saturating_sub(1));
        }
        words
    }
}

/// The words of a file of settings; maps of TensorRT-LLM within it are settings too.
#[must_use]
pub fn settings_words(node: &Node) -> Vec<Word> {
    let mut words = Vec::new();
    for (key, value) in node.pairs() {
        match (key.replace('-', "_").as_str(), &value.value) {
            ("kv_cache_config", Yaml::Map(_)) => {
                for (key, value) in value.pairs() {
                    let key = if key == "dtype" { "kv-cache-dtype" } else { key };
                    keyword(key, value, &mut words);
                }
            }
            // graphs are switched off by an empty configuration
            ("cuda_graph_config", _) if value.text().is_none() && value.pairs().is_empty() => {
                words.push(Word::new("--disable-cuda-graphs", value.line));
            }
            _ => keyword(key, value, &mut words),
        }
    }
    words
}

/// Keywords of an engine's constructor to words: a truth value stays beside its name, a map is its JSON.
#[must_use]
pub fn keywords(node: Option<&Node>) -> Vec<Word> {
    let mut words = Vec::new();
    for (key, value) in node.map(Node::pairs).unwrap_or_default() {
        keyword(key, value, &mut words);
    }
    words
}

fn keyword(key: &str, value: &Node, words: &mut Vec<Word>) {
    let flag = format!("--{}", key.replace('_', "-"));
    let line = value.line;
    match (&value.value, value.flag()) {
        (Yaml::Scalar { plain: true, .. }, Some(on)) => words.push(Word::new(format!("{flag}={on}"), line)),
        (Yaml::Map(_), _) => {
            words.push(Word::new(flag, line));
            words.push(Word::new(json(value).to_string(), line));
        }
        (Yaml::List(items), _) => {
            let all: Vec<&str> = items.iter().filter_map(Node::text).collect();
            words.push(Word::new(flag, line));
            words.push(Word::new(all.join(","), line));
        }
        _ => {
            if let Some(text) = value.text() {
                words.push(Word::new(flag, line));
                words.push(Word::new(text, line));
            }
        }
    }
}

fn json(node: &Node) -> Value {
    match &node.value {
        Yaml::Map(pairs) => {
            pairs.iter().map(|(k, v)| (k.clone(), json(v))).collect::<serde_json::Map<_, _>>().into()
        }
        Yaml::List(items) => items.iter().map(json).collect::<Vec<_>>().into(),
        Yaml::Scalar { text, plain } => match (plain, node.whole(), node.flag()) {
            (true, Some(n), _) => n.into(),
            (true, None, Some(flag)) => flag.into(),
            _ => text.clone().into(),
        },
    }
}
