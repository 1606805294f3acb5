//! The words of a question, and which of them were taken.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Intent;
use crate::catalogue::hardware::HardwareCatalogue;
use crate::catalogue::models;
use crate::ingest::cluster::parse_text;

/// Different runs of words that are read as a cluster, at most; a question of people needs some dozens.
const MOST_ATTEMPTS: usize = 96;
/// Products without a count that are looked for, repetitions included.
const MOST_PRODUCTS: usize = 12;
/// Words of a cluster, or of a model's name, at most.
const LONGEST: usize = 8;

/// Words that carry no meaning of their own here.
const FILLERS: &[&str] = &[
    "a",
    "an",
    "the",
    "i",
    "we",
    "my",
    "our",
    "me",
    "it",
    "is",
    "are",
    "be",
    "do",
    "does",
    "did",
    "can",
    "could",
    "will",
    "would",
    "should",
    "shall",
    "have",
    "has",
    "had",
    "get",
    "got",
    "on",
    "in",
    "at",
    "for",
    "to",
    "of",
    "with",
    "and",
    "or",
    "per",
    "each",
    "by",
    "from",
    "as",
    "if",
    "then",
    "than",
    "that",
    "this",
    "these",
    "those",
    "there",
    "here",
    "please",
    "pls",
    "hi",
    "hello",
    "hey",
    "run",
    "runs",
    "running",
    "serve",
    "serving",
    "serves",
    "host",
    "hosting",
    "deploy",
    "deploying",
    "use",
    "using",
    "need",
    "needed",
    "needs",
    "want",
    "like",
    "give",
    "tell",
    "show",
    "find",
    "plan",
    "size",
    "sizing",
    "layout",
    "layouts",
    "best",
    "good",
    "tp",
    "pp",
    "gpu",
    "gpus",
    "card",
    "cards",
    "node",
    "nodes",
    "machine",
    "model",
    "models",
    "llm",
    "llms",
    "context",
    "ctx",
    "tokens",
    "token",
    "length",
    "long",
    "window",
    "what",
    "which",
    "how",
    "many",
    "much",
    "when",
    "where",
    "why",
    "who",
    "you",
    "your",
    "us",
    "fit",
    "fits",
    "fitting",
    "work",
    "works",
    "enough",
    "possible",
    "concurrent",
    "concurrency",
    "parallel",
    "simultaneous",
    "simultaneously",
    "users",
    "user",
    "requests",
    "request",
    "sequences",
    "seqs",
    "kv",
    "cache",
    "ms",
    "s",
    "sec",
    "seconds",
    "second",
    "under",
    "below",
    "most",
    "least",
    "within",
    "latency",
    "throughput",
    "vllm",
    "engine",
    "memory",
    "vram",
    "inside",
    "into",
    "across",
    "over",
    "between",
    "so",
    "just",
    "only",
    "all",
    "any",
    "some",
    "about",
    "up",
    "one",
    "go",
    "going",
    "let",
    "lets",
    "time",
    "output",
    "input",
    "inference",
    "prompt",
    "prompts",
    "make",
    "makes",
    "sense",
    "take",
    "takes",
    "hold",
    "holds",
    "capacity",
    "max",
    "maximum",
    "minimum",
    "min",
    "number",
    "count",
    "x",
    "vs",
    "versus",
    "people",
    "seats",
    "still",
    "more",
    "less",
    "weights",
    "precision",
    "quantized",
    "quantised",
];

/// A question word by word.
pub(super) struct Words {
    /// As written, without the marks around them.
    shown: Vec<String>,
    /// In lower case.
    words: Vec<String>,
    taken: Vec<bool>,
}

impl Words {
    pub(super) fn of(text: &str) -> Self {
        let shown: Vec<String> = text
            .split(|c: char| {
                c.is_whitespace() || matches!(c, ',' | ';' | '?' | '!' | '(' | ')' | '"' | '`' | '<' | '>')
            })
            .map(|word| word.trim_matches(['.', ':', '\'']).to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        let words = shown.iter().map(|word| word.to_lowercase()).collect();
        let taken = vec![false; shown.len()];
        Self { shown, words, taken }
    }

    pub(super) const fn len(&self) -> usize {
        self.words.len()
    }

    /// The word at `i` in lower case, unless it was taken.
    pub(super) fn at(&self, i: usize) -> Option<&str> {
        let free = !self.taken.get(i).copied().unwrap_or(true);
        self.words.get(i).map(String::as_str).filter(|_| free)
    }

    pub(super) fn take(&mut self, i: usize) {
        if let Some(taken) = self.taken.get_mut(i) {
            *taken = true;
        }
    }

    /// The longest run of free words that `means` something, the first of several.
    fn longest<T>(&self, means: impl Fn(&str) -> Option<T>) -> Option<(usize, usize, T)> {
        (1..=LONGEST.min(self.len())).rev().find_map(|length| {
            (0..=self.len() - length).find_map(|start| {
                let run = start..start + length;
                if run.clone().any(|i| self.at(i).is_none()) {
                    return None;
                }
                let text = self.shown.get(run)?.join(" ");
                means(&text).map(|found| (start, length, found))
            })
        })
    }

    fn take_run(&mut self, start: usize, length: usize) {
        (start..start + length).for_each(|i| self.take(i));
    }

    /// GPUs with a count.
    pub(super) fn take_cluster(&mut self, hardware: &HardwareCatalogue) -> Option<String> {
        // what each run was read as: a run that comes again costs nothing
        let known = RefCell::new(BTreeMap::new());
        let reads = |text: &str| {
            let first = text.split(' ').next().unwrap_or_default().to_lowercase();
            let last = text.rsplit(' ').next().unwrap_or_default().to_lowercase();
            // a run that begins or ends with other words would take what belongs to something else
            let edge = |word: &str| {
                FILLERS.contains(&word)
                    && !matches!(
                        word,
                        "a" | "an" | "one" | "node" | "nodes" | "gpu" | "gpus" | "card" | "cards"
                    )
            };
            let counted = text.chars().any(|c| c.is_ascii_digit())
                && (first.chars().next().is_some_and(|c| c.is_ascii_digit())
                    || matches!(first.as_str(), "one" | "two" | "four" | "eight" | "a" | "an")
                    || first.starts_with("dgx")
                    || first.contains('.'));
            if !counted || edge(&first) || edge(&last) {
                return None;
            }
            if hardware.gpu_entry(text).is_some() && !first.chars().all(|c| c.is_ascii_digit()) {
                return None;
            }
            // a text of nothing but numbers and products must not cost a reading for each of its runs
            let mut known = known.borrow_mut();
            if let Some(read) = known.get(text) {
                return Option::clone(read);
            }
            if known.len() >= MOST_ATTEMPTS {
                return None;
            }
            let read = parse_text(text, hardware).ok().map(|cluster| cluster.pools);
            known.insert(text.to_owned(), read.clone());
            read
        };
        let (first, most, pools) = self.longest(reads)?;
        // the reader of clusters passes over words that are not about GPUs: leave those to the rest of the question
        let text_of =
            |start: usize, length: usize| self.shown.get(start..start + length).map(|run| run.join(" "));
        let means_the_same = |start: usize, length: usize| {
            text_of(start, length).and_then(|text| reads(&text)).is_some_and(|found| found == pools)
        };
        let (mut start, mut length) = (1..=most).find_map(|length| {
            (first..=first + most - length)
                .find(|&start| means_the_same(start, length))
                .map(|start| (start, length))
        })?;
        // a bare product, "4090", belongs with the maker's name and the count before it
        while start > first && text_of(start, length).is_some_and(|text| hardware.gpu_entry(&text).is_some())
        {
            start -= 1;
            length += 1;
        }
        let text = text_of(start, length)?;
        self.take_run(start, length);
        Some(text)
    }

    /// Products without a count.
    pub(super) fn take_products(&mut self, hardware: &HardwareCatalogue) -> Vec<String> {
        let mut found = Vec::new();
        for _ in 0..MOST_PRODUCTS {
            let named = self.longest(|text| {
                let name = text.trim_end_matches(['s', 'S']);
                hardware
                    .gpu_entry(text)
                    .or_else(|| hardware.gpu_entry(name))
                    .map(|entry| entry.gpu.short_name.clone())
            });
            let Some((start, length, key)) = named else { break };
            self.take_run(start, length);
            if !found.contains(&key) {
                found.push(key);
            }
        }
        found
    }

    /// A model of the catalogue, or an id of a hub.
    pub(super) fn take_model(&mut self) -> Option<String> {
        let known = |text: &str| {
            let words = text.split(' ').count();
            let filler = words == 1 && FILLERS.contains(&text.to_lowercase().as_str());
            let number = text.chars().all(|c| !c.is_alphabetic());
            if filler || number { None } else { models::known(text).map(|model| model.id.to_owned()) }
        };
        let of_hub = |text: &str| {
            let parts: Vec<&str> = text.split('/').collect();
            let is_id = matches!(parts.as_slice(), [org, name] if org.chars().any(char::is_alphabetic) && name.chars().count() > 2)
                && !text.contains(' ')
                && !matches!(parts.as_slice(), [_, "s" | "sec" | "second"])
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            is_id.then(|| text.to_owned())
        };
        let (start, length, id) = self.longest(known).or_else(|| self.longest(of_hub))?;
        self.take_run(start, length);
        Some(id)
    }

    /// What the verbs ask for.
    pub(super) fn take_intent(&mut self) -> Intent {
        let mut intent = Intent::default();
        let text = self.words.join(" ");
        let has = |phrases: &[&str]| {
            phrases.iter().any(|phrase| format!(" {text} ").contains(&format!(" {phrase} ")))
        };
        intent.how_many = has(&[
            "how many",
            "fewest",
            "smallest",
            "minimum",
            "cheapest",
            "what do i need",
            "which gpu",
            "which gpus",
            "what gpu",
            "what gpus",
            "min gpus",
            "which box",
        ]);
        intent.compare = has(&[
            "worth",
            "better",
            "worse",
            "vs",
            "versus",
            "instead",
            "compare",
            "compared",
            "difference",
            "faster",
            "against",
        ]);
        intent.what_fits =
            has(&["what fits", "which models", "what can i", "what models", "what can we", "what will fit"]);
        for i in 0..self.len() {
            let verb = self.at(i).is_some_and(|word| {
                matches!(
                    word,
                    "worth"
                        | "better"
                        | "worse"
                        | "instead"
                        | "compare"
                        | "compared"
                        | "difference"
                        | "faster"
                        | "against"
                        | "fewest"
                        | "smallest"
                        | "cheapest"
                        | "box"
                )
            });
            if verb {
                self.take(i);
            }
        }
        intent
    }

    /// Words that were neither taken nor are fillers.
    pub(super) fn left(&self) -> Vec<String> {
        (0..self.len())
            .filter(|i| self.at(*i).is_some_and(|word| !FILLERS.contains(&word)))
            .filter_map(|i| self.shown.get(i).cloned())
            .collect()
    }
}
