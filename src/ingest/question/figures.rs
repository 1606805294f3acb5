//! The figures of a question: lengths, loads, limits, sizes, formats.

use serde_json::{Map, Value, json};

use super::words::Words;
use crate::ingest::bounds;
use crate::planner::answer::short_context;

/// Parallel sizes that are named.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) tp: Vec<u64>,
    pub(super) pp: Vec<u64>,
}

impl Sizes {
    /// The `search` of a plan, when a size is named.
    pub(super) fn search(&self) -> Option<Value> {
        let mut search = Map::new();
        for (name, sizes) in [("tp", &self.tp), ("pp", &self.pp)] {
            if !sizes.is_empty() {
                search.insert(name.to_owned(), json!(sizes));
            }
        }
        (!search.is_empty()).then_some(Value::Object(search))
    }
}

/// Take "tp=16", "TP16", "tp 16", "tensor parallel 16", and the same of pp.
pub(super) fn sizes(words: &mut Words) -> Sizes {
    let mut sizes = Sizes::default();
    for i in 0..words.len() {
        let Some(word) = words.at(i).map(str::to_owned) else { continue };
        // "tp8pp2" and "tp8xpp2" are two sizes in a word
        let mut found = false;
        for (name, list) in [("tp", &mut sizes.tp), ("pp", &mut sizes.pp)] {
            if let Some(at) = word.find(name) {
                let rest =
                    word.get(at + name.len()..).unwrap_or_default().trim_start_matches(['=', '-', ':']);
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let starts = at == 0 || word.starts_with("tp") || word.starts_with("pp");
                if let Some(size) = digits.parse().ok().filter(|n| starts && bounds::PARALLEL.contains(n)) {
                    list.push(size);
                    found = true;
                } else if word == name
                    && let Some(size) =
                        words.at(i + 1).and_then(|next| next.trim_start_matches('=').parse().ok())
                {
                    list.push(size);
                    words.take(i + 1);
                    found = true;
                }
            }
        }
        if found {
            words.take(i);
        }
    }
    sizes
}

/// Everything else that is a figure.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Figures {
    context: Option<u64>,
    /// What the engine is said to be started for.
    max_model_len: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    users: Option<u64>,
    rate: Option<f64>,
    think_s: Option<f64>,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    kv_dtype: Option<String>,
    pub(super) weights: Option<String>,
}

impl Figures {
    pub(super) fn take(words: &mut Words) -> Self {
        let mut figures = Self::default();
        for i in 0..words.len() {
            let Some(word) = words.at(i).map(str::to_owned) else { continue };
            if figures.take_format(words, i, &word)
                || figures.take_limit(words, i, &word)
                || figures.take_length(words, i, &word)
            {
                continue;
            }
            let Some((number, unit)) = split(&word) else { continue };
            figures.take_number(words, i, number, &unit);
        }
        figures
    }

    fn take_number(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) {
        let around = |words: &Words, offset: usize| words.at(i + offset).unwrap_or_default().to_owned();
        let (next, after) = (around(words, 1), around(words, 2));
        let before = i.checked_sub(1).and_then(|b| words.at(b)).unwrap_or_default().to_owned();
        let is_rate = |word: &str| {
            matches!(word, "rps" | "qps" | "req/s" | "requests/s" | "requests/sec" | "req/sec" | "r/s")
        };
        if is_rate(unit)
            || is_rate(&next)
            || (matches!(next.as_str(), "requests" | "req" | "queries")
                && matches!(after.as_str(), "per" | "a" | "/" | "each"))
        {
            self.rate = Some(number);
            words.take(i);
            // "per second" goes with it
            (1..=3).filter(|_| unit.is_empty()).for_each(|n| {
                if words.at(i + n).is_some_and(|w| {
                    is_rate(w)
                        || matches!(
                            w,
                            "requests" | "req" | "queries" | "per" | "a" | "second" | "sec" | "s" | "each"
                        )
                }) {
                    words.take(i + n);
                }
            });
            return;
        }
        let people = [
            "users",
            "user",
            "people",
            "seats",
            "concurrent",
            "requests",
            "sequences",
            "seqs",
            "simultaneous",
            "clients",
            "sessions",
            "agents",
            "developers",
        ];
        if unit.is_empty()
            && (people.contains(&next.as_str()) || matches!(before.as_str(), "concurrency" | "users"))
        {
            self.users = whole(number);
            words.take(i);
            if people.contains(&next.as_str()) {
                words.take(i + 1);
            }
            return;
        }
        if matches!(unit, "s" | "sec")
            || (unit.is_empty() && matches!(next.as_str(), "s" | "sec" | "seconds"))
        {
            let thinks = |word: &str| matches!(word, "think" | "thinking" | "thinks" | "pause");
            let near = (1..=3).find(|n| i.checked_sub(*n).and_then(|b| words.at(b)).is_some_and(thinks));
            let behind = (1..=3).find(|n| words.at(i + n).is_some_and(thinks));
            if near.is_some() || behind.is_some() {
                self.think_s = Some(number);
                words.take(i);
                if let Some(n) = near {
                    words.take(i - n);
                }
                if let Some(n) = behind {
                    words.take(i + n);
                }
            }
            return;
        }
        let factor = match unit {
            "k" | "k-token" | "k-context" | "ki" => 1024.0,
            "m" => 1_048_576.0,
            "" if matches!(next.as_str(), "tokens" | "context" | "ctx" | "token") || before == "context" => {
                1.0
            }
            _ => return,
        };
        let Some(tokens) = whole(number * factor).filter(|t| bounds::TOKENS.contains(t)) else { return };
        words.take(i);
        match (next.as_str(), after.as_str()) {
            ("in" | "input" | "prompt" | "prompts", _) | ("tokens", "in" | "input" | "prompt") => {
                self.input = Some(tokens);
            }
            ("out" | "output", _) | ("tokens", "out" | "output") => self.output = Some(tokens),
            _ => self.context = Some(tokens),
        }
        if matches!(next.as_str(), "in" | "out") {
            words.take(i + 1);
        }
    }

    /// "fp8", "int4", "4 bit", "fp8 kv".
    fn take_format(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let bits = |word: &str| match word {
            "4-bit" | "4bit" | "q4" | "awq" | "gptq" => Some("int4"),
            "8-bit" | "8bit" => Some("fp8"),
            _ => None,
        };
        let next_is_bit = words.at(i + 1) == Some("bit");
        let name = match word {
            "fp8" | "int8" | "int4" | "nvfp4" | "mxfp4" | "bf16" | "fp16" => Some(word),
            "4" if next_is_bit => Some("int4"),
            "8" if next_is_bit => Some("fp8"),
            other => bits(other),
        };
        let Some(name) = name else { return false };
        let of_cache = words.at(i + 1) == Some("kv")
            || words.at(i + 1) == Some("cache")
            || (i > 0 && matches!(words.at(i - 1), Some("kv" | "cache")));
        words.take(i);
        if next_is_bit {
            words.take(i + 1);
        }
        if of_cache {
            self.kv_dtype = Some(name.to_owned());
        } else {
            self.weights = Some(name.to_owned());
        }
        true
    }

    /// "tpot under 40 ms", "ttft < 1 s", "tpot=40ms".
    fn take_limit(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let (name, rest) = match word.split_once(['=', ':']) {
            Some((name, rest)) => (name, Some(rest.to_owned())),
            None => (word, None),
        };
        let of_first = matches!(name, "ttft");
        if !of_first && !matches!(name, "tpot" | "itl") {
            return false;
        }
        let places: Vec<usize> = (i + 1..words.len().min(i + 5)).collect();
        let found = match rest {
            Some(rest) => split(&rest).map(|(n, unit)| (n, unit, None)),
            None => places.into_iter().find_map(|j| split(words.at(j)?).map(|(n, unit)| (n, unit, Some(j)))),
        };
        let Some((number, unit, place)) = found else { return false };
        let following = place.map_or(i + 1, |j| j + 1);
        let seconds = matches!(unit.as_str(), "s" | "sec")
            || (unit.is_empty() && matches!(words.at(following), Some("s" | "sec" | "seconds" | "second")));
        let ms = if seconds { number * 1000.0 } else { number };
        if !bounds::MILLISECONDS.contains(&ms) {
            return false;
        }
        if of_first {
            self.ttft_ms = Some(ms);
        } else {
            self.tpot_ms = Some(ms);
        }
        words.take(i);
        if let Some(j) = place {
            words.take(j);
        }
        true
    }

    /// "max_model_len 32k", "--max-model-len=32768", and the other engines' names for it.
    fn take_length(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let (name, rest) = match word.split_once(['=', ':']) {
            Some((name, rest)) => (name, Some(rest.to_owned())),
            None => (word, None),
        };
        let name = name.trim_start_matches('-').replace('-', "_");
        if !matches!(name.as_str(), "max_model_len" | "max_seq_len" | "context_length") {
            return false;
        }
        let places = i + 1..i + 3;
        let found = match rest.filter(|rest| !rest.is_empty()) {
            Some(rest) => tokens(&rest).map(|n| (n, None)),
            None => places.into_iter().find_map(|j| Some((tokens(words.at(j)?)?, Some(j)))),
        };
        let Some((length, place)) = found else { return false };
        self.max_model_len = Some(length);
        (i..=place.unwrap_or(i)).for_each(|j| words.take(j));
        true
    }

    /// Who names a context means an engine that is started for it: the engine's own default, the model's longest, takes
    /// memory for one sequence of that length before it starts. Not where `most`, what the model takes, is passed.
    pub(super) fn start_for_context(&mut self, most: Option<u64>, assumed: &mut Vec<String>) {
        let Some(context) = self.context.filter(|c| most.is_none_or(|most| *c <= most)) else { return };
        if self.max_model_len.is_none() {
            self.max_model_len = Some(context);
            assumed.push(format!("max_model_len of {}, as the context", short_context(context)));
        }
    }

    pub(super) const fn has_load(&self) -> bool {
        self.users.is_some() || self.rate.is_some()
    }

    /// The load of a sizing. Users without a think time are sequences at the asked context.
    pub(super) fn take_load(&mut self) -> Option<Value> {
        if let Some(rate) = self.rate.take() {
            return Some(json!({"requests_per_s": rate}));
        }
        let users = self.users.take()?;
        Some(match self.think_s {
            Some(think) => json!({"users": users, "think_time_s": think}),
            None => json!({"sequences": users}),
        })
    }

    pub(super) fn workload_into(&self, request: &mut Map<String, Value>) {
        let figures = [
            ("context_tokens", self.context),
            ("input_tokens", self.input),
            ("output_tokens", self.output),
            ("concurrency", self.users),
        ];
        into(request, "workload", figures.into_iter().filter_map(|(name, n)| Some((name, json!(n?)))));
    }

    pub(super) fn slo_into(&self, request: &mut Map<String, Value>) {
        let limits = [("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms)];
        into(request, "slo", limits.into_iter().filter_map(|(name, ms)| Some((name, json!(ms?)))));
    }

    pub(super) fn engine_into(&self, request: &mut Map<String, Value>) {
        let dtype = self.kv_dtype.iter().map(|dtype| ("kv_cache_dtype", json!(dtype)));
        into(request, "engine", dtype.chain(self.max_model_len.map(|n| ("max_model_len", json!(n)))));
    }
}

fn into(
    request: &mut Map<String, Value>,
    section: &str,
    fields: impl Iterator<Item = (&'static str, Value)>,
) {
    let object: Map<String, Value> = fields.map(|(name, value)| (name.to_owned(), value)).collect();
    if !object.is_empty() {
        request.insert(section.to_owned(), Value::Object(object));
    }
}

/// A length as people write it: "32768", "32k".
fn tokens(word: &str) -> Option<u64> {
    let (number, unit) = split(word)?;
    let factor = match unit.as_str() {
        "" => 1.0,
        "k" | "ki" => 1024.0,
        "m" => 1_048_576.0,
        _ => return None,
    };
    whole(number * factor).filter(|n| bounds::TOKENS.contains(n))
}

/// "128k" as 128 and "k"; "5" as 5 and nothing.
fn split(word: &str) -> Option<(f64, String)> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    Some((number.parse().ok().filter(|n: &f64| n.is_finite())?, unit.trim_start_matches('-').to_owned()))
}

fn whole(number: f64) -> Option<u64> {
    let n = crate::planner::units::Bytes::from_f64(number).get();
    (n > 0 && number.fract() == 0.0 && bounds::CONCURRENCY.contains(&n))
        .then_some(n)
        .or_else(|| (number >= 1.0 && n <= *bounds::TOKENS.end()).then_some(n))
}
