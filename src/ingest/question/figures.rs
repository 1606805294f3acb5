//! The figures of a question: lengths, loads, limits, formats.

mod loads;

use serde_json::{Map, Value, json};

use super::models::parameters;
use super::words::Words;
use crate::catalogue::hardware::HardwareCatalogue;
use crate::ingest::bounds;
use crate::ingest::cluster::spelled_number;
use crate::planner::answer::short_context;

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
    /// Bounds on the sizes of models, for "what fits".
    least_parameters: Option<u64>,
    most_parameters: Option<u64>,
}

impl Figures {
    pub(super) fn take(words: &mut Words, hardware: &HardwareCatalogue) -> Self {
        let mut figures = Self::default();
        for i in 0..words.len() {
            let Some(word) = words.at(i).map(str::to_owned) else { continue };
            if figures.take_format(words, i, &word)
                || figures.take_limit(words, i, &word)
                || figures.take_length(words, i, &word)
                || figures.take_model_size(words, i, &word)
            {
                continue;
            }
            // "1k H100s" counts GPUs
            if words.at(i + 1).is_some_and(|next| hardware.gpu_entry(next.trim_end_matches('s')).is_some()) {
                continue;
            }
            match (split(&word), spelled_number(&word)) {
                (Some((number, unit)), _) => figures.take_number(words, i, number, &unit),
                (None, Some(number)) => _ = figures.take_people(words, i, number as f64),
                (None, None) => {}
            }
        }
        figures
    }

    fn take_number(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) {
        if self.take_rate(words, i, number, unit)
            || self.take_speed(words, i, number, unit)
            || self.take_think_time(words, i, number, unit)
        {
            return;
        }
        // "1k users" are a thousand
        let thousands = if unit == "k" { Some(number * 1000.0) } else { None };
        let people = if unit.is_empty() { Some(number) } else { thousands };
        if people.is_some_and(|number| self.take_people(words, i, number)) {
            return;
        }
        self.take_tokens(words, i, number, unit);
    }

    /// "at 32k", "3000 in", "512 output tokens", "context of 20000".
    fn take_tokens(&mut self, words: &mut Words, i: usize, number: f64, unit: &str) {
        let (next, after) = (words.at(i + 1).unwrap_or_default(), words.at(i + 2).unwrap_or_default());
        let is_context = |word: Option<&str>| matches!(word, Some("context" | "ctx" | "contexts" | "seqlen"));
        let behind_context = is_context(words.before(i, 1))
            || (matches!(words.before(i, 1), Some("of" | "length" | "len" | "="))
                && is_context(words.before(i, 2)));
        let way = |word: &str| match word {
            "in" | "input" | "prompt" | "prompts" | "isl" => Some(true),
            "out" | "output" | "outputs" | "generated" | "osl" => Some(false),
            _ => None,
        };
        let of_tokens = matches!(next, "tokens" | "token" | "tok");
        let behind = way(if of_tokens { after } else { next });
        // "3000 in", but not "2 in one box"
        let behind =
            behind.filter(|_| of_tokens || !unit.is_empty() || number >= SHORTEST_PROMPT || next != "in");
        let before =
            words.before(i, 1).and_then(way).filter(|_| !matches!(words.before(i, 1), Some("in" | "out")));
        // "input 3000 output 300": the word behind begins the next figure
        let next_is_set = !of_tokens && words.at(i + 2).and_then(split).is_some();
        let behind = behind.filter(|_| !(before.is_some() && next_is_set));
        let factor = match unit {
            "k" | "k-token" | "k-context" | "ki" => 1024.0,
            "m" => 1_048_576.0,
            "" if of_tokens
                || is_context(Some(next))
                || behind_context
                || behind.is_some()
                || before.is_some() =>
            {
                1.0
            }
            _ => return,
        };
        let Some(tokens) = whole(number * factor).filter(|t| bounds::TOKENS.contains(t)) else { return };
        words.take(i);
        match behind.or(before) {
            Some(true) => self.input = Some(tokens),
            Some(false) => self.output = Some(tokens),
            None => self.context = Some(tokens),
        }
        if behind.is_some() {
            words.take(i + 1);
            if of_tokens {
                words.take(i + 2);
            }
        } else if before.is_some() {
            words.take(i - 1);
        }
    }

    /// "under 100B", "at least 30b parameters": which models are meant.
    fn take_model_size(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let Some(size) = parameters(word).and_then(whole_count) else { return false };
        let (one, two) = (words.before(i, 1).unwrap_or_default(), words.before(i, 2).unwrap_or_default());
        let (most, length) = match (two, one) {
            ("less" | "smaller" | "fewer", "than") | ("up", "to") | ("at", "most") | ("no", "more") => {
                (true, 2)
            }
            ("more" | "larger" | "bigger", "than") | ("at", "least") => (false, 2),
            (_, "under" | "below" | "<" | "≤" | "max") => (true, 1),
            (_, "over" | "above" | ">" | "≥") => (false, 1),
            _ => return false,
        };
        *(if most { &mut self.most_parameters } else { &mut self.least_parameters }) = Some(size);
        words.take_all(i - length..i + 1);
        if matches!(words.at(i + 1), Some("parameters" | "params")) {
            words.take(i + 1);
        }
        true
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
        let timed = |j: usize| {
            let (n, unit) = split(words.at(j)?)?;
            matches!(unit.as_str(), "" | "ms" | "s" | "sec").then_some((n, unit, Some(j)))
        };
        // "200 ms ttft": the time stands before
        let before = || {
            let back = if matches!(words.before(i, 1), Some("ms" | "s" | "sec" | "seconds")) { 2 } else { 1 };
            timed(i.checked_sub(back)?).filter(|(_, unit, _)| back == 2 || !unit.is_empty())
        };
        let found = match rest {
            Some(rest) => split(&rest).map(|(n, unit)| (n, unit, None)),
            None => places.into_iter().find_map(timed).or_else(before),
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

    /// What is asked of the context, if anything.
    pub(super) const fn context(&self) -> Option<u64> {
        self.context
    }

    /// Start the engine for a length that many layouts hold, to see what each would.
    pub(super) const fn start_for(&mut self, tokens: u64) {
        if self.max_model_len.is_none() {
            self.max_model_len = Some(tokens);
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

    pub(super) fn workload_into(&self, request: &mut Map<String, Value>, hit_rate: Option<f64>) {
        let figures = [
            ("context_tokens", self.context),
            ("input_tokens", self.input),
            ("output_tokens", self.output),
            ("concurrency", self.users),
        ];
        let figures = figures.into_iter().filter_map(|(name, n)| Some((name, json!(n?))));
        let hits = hit_rate.map(|share| ("prefix_cache_hit_rate", json!(share)));
        into(request, "workload", figures.chain(hits));
    }

    pub(super) fn slo_into(&self, request: &mut Map<String, Value>) {
        let limits = [("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms)];
        into(request, "slo", limits.into_iter().filter_map(|(name, ms)| Some((name, json!(ms?)))));
    }

    /// Settings of every engine of the question.
    pub(super) fn engine_fields(&self) -> Map<String, Value> {
        let dtype = self.kv_dtype.iter().map(|dtype| ("kv_cache_dtype".to_owned(), json!(dtype)));
        dtype.chain(self.max_model_len.map(|n| ("max_model_len".to_owned(), json!(n)))).collect()
    }

    /// Which models are meant, of all.
    pub(super) fn filter(&self) -> Map<String, Value> {
        let sizes = [("min_parameters", self.least_parameters), ("max_parameters", self.most_parameters)];
        let sizes = sizes.into_iter().filter_map(|(name, size)| Some((name.to_owned(), json!(size?))));
        std::iter::once(("fits".to_owned(), json!(true))).chain(sizes).collect()
    }
}

/// A bare number before "in" is a prompt from here on, and a count of something below.
const SHORTEST_PROMPT: f64 = 32.0;

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
pub(super) fn split(word: &str) -> Option<(f64, String)> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    Some((number.parse().ok().filter(|n: &f64| n.is_finite())?, unit.trim_start_matches('-').to_owned()))
}

fn whole_count(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && number < bounds::MAX_EXACT as f64)
        .then(|| crate::planner::units::Bytes::from_f64(number).get())
}

fn whole(number: f64) -> Option<u64> {
    let n = crate::planner::units::Bytes::from_f64(number).get();
    (n > 0 && number.fract() == 0.0 && bounds::CONCURRENCY.contains(&n))
        .then_some(n)
        .or_else(|| (number >= 1.0 && n <= *bounds::TOKENS.end()).then_some(n))
}
