//! What starts one engine process, as words with their types: a shell line, a list of arguments or keywords are all
//! written from it, so that a setting is decided once.

use serde_json::{Value, json};

use super::shell::quoted;

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Whole(u64),
    Real(f64),
    Text(String),
    /// An expression of ours that a shell expands, e.g. `$HEAD_IP`; never text from outside.
    Shell(String),
}

impl Word {
    /// As a word of a shell command.
    pub(super) fn in_shell(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            other => other.plain(),
        }
    }

    /// As it reaches the engine.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Whole(n) => n.to_string(),
            Self::Real(x) => x.to_string(),
            Self::Text(text) | Self::Shell(text) => text.clone(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Whole(n) => json!(n),
            Self::Real(x) => json!(x),
            Self::Text(text) | Self::Shell(text) => json!(text),
        }
    }
}

/// One argument: `--name value`, or `--name`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arg {
    pub name: &'static str,
    pub value: Option<Word>,
}

/// What starts one process of an engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Start {
    pub env: Vec<(&'static str, String)>,
    pub program: Vec<&'static str>,
    /// The model, where it stands in front of the flags.
    pub positional: Option<String>,
    pub args: Vec<Arg>,
    /// Settings that only a file carries (TensorRT-LLM).
    pub options: Option<Value>,
}

impl Start {
    pub(super) fn whole(&mut self, name: &'static str, value: u64) {
        self.args.push(Arg { name, value: Some(Word::Whole(value)) });
    }

    pub(super) fn real(&mut self, name: &'static str, value: f64) {
        self.args.push(Arg { name, value: Some(Word::Real(value)) });
    }

    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.args.push(Arg { name, value: Some(Word::Text(value.to_owned())) });
    }

    pub(super) fn word(&mut self, name: &'static str, value: Word) {
        self.args.push(Arg { name, value: Some(value) });
    }

    pub(super) fn switch(&mut self, name: &'static str) {
        self.args.push(Arg { name, value: None });
    }

    /// The same without some arguments.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.args.retain(|arg| !names.contains(&arg.name));
        self
    }

    /// One line of shell, with the environment in front.
    pub(super) fn line(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words().into_iter().map(|word| word.in_shell());
        env.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Program and arguments.
    pub(super) fn words(&self) -> Vec<Word> {
        let program = self.program.iter().map(|word| Word::Text((*word).to_owned()));
        program.chain(self.arguments()).collect()
    }

    /// The arguments alone, the model first.
    pub(super) fn arguments(&self) -> Vec<Word> {
        let mut words: Vec<Word> = self.positional.iter().map(|model| Word::Text(model.clone())).collect();
        for arg in &self.args {
            words.push(Word::Text(arg.name.to_owned()));
            words.extend(arg.value.clone());
        }
        words
    }

    /// The arguments as keywords of the engine's constructor: `tensor_parallel_size: 8`.
    pub(super) fn keywords(&self) -> Value {
        let pairs = self.args.iter().map(|arg| {
            let name = arg.name.trim_start_matches('-');
            let (name, value) = match (&arg.value, name.strip_prefix("no-")) {
                (Some(value), _) => (name, value.json()),
                (None, Some(positive)) => (positive, json!(false)),
                (None, None) => (name, json!(true)),
            };
            (name.replace('-', "_"), value)
        });
        Value::Object(pairs.collect())
    }
}
