//! What a question says of the engine: its name, its share of memory, its drafts, what it finds in its prefix cache.

use serde_json::{Map, Value, json};

use super::figures::split;
use super::words::Words;
use crate::ingest::bounds;
use crate::planner::engine;

/// Other names of engines.
const ENGINES: [(&str, &str); 3] =
    [("trt-llm", "tensorrt-llm"), ("trtllm", "tensorrt-llm"), ("tensorrt", "tensorrt-llm")];

/// Names of the share of memory that an engine may use.
const UTILIZATION: [&str; 8] = [
    "utilisation",
    "utilization",
    "util",
    "gpu_memory_utilization",
    "gpu-memory-utilization",
    "mem_fraction_static",
    "mem-fraction-static",
    "mem-fraction",
];

/// Drafts of a step where only the method is said: DeepSeek-V3 and its kin predict one token more
/// (`num_nextn_predict_layers` of their config.json); the others as in vLLM's own examples
/// (https://docs.vllm.ai/en/latest/features/speculative_decoding/eagle/ and .../n_gram/).
const USUAL_DRAFTS: [(&str, u64); 4] = [("mtp", 1), ("eagle", 2), ("eagle3", 2), ("ngram", 5)];

/// Settings that a question names.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings {
    /// Names of engines with their versions.
    engines: Vec<(String, Option<String>)>,
    utilization: Option<f64>,
    speculation: Option<(&'static str, Option<u64>)>,
    pub(super) hit_rate: Option<f64>,
}

impl Settings {
    pub(super) fn take(words: &mut Words) -> Self {
        let mut settings = Self::default();
        for i in 0..words.len() {
            let Some(word) = words.at(i).map(str::to_owned) else { continue };
            let word = word.trim_start_matches('-');
            let _ = settings.take_engine(words, i, word)
                || settings.take_utilization(words, i, word)
                || settings.take_hit_rate(words, i, word)
                || settings.take_speculation(words, i, word);
        }
        settings
    }

    fn take_engine(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let named = ENGINES.iter().find(|(other, _)| *other == word).map(|(_, name)| *name);
        let Some(name) = named.or_else(|| engine::known().map(|(name, _)| name).find(|name| *name == word))
        else {
            return false;
        };
        words.take(i);
        let version = words.at(i + 1).map(|next| next.trim_start_matches('v').to_owned());
        let is_version = |text: &String| {
            text.contains('.')
                && text.split('.').all(|part| part.parse::<u32>().is_ok())
                && share(text).is_none_or(|_| {
                    // "vllm 0.95 utilisation"
                    !(2..5).any(|n| words.at(i + n).is_some_and(|w| UTILIZATION.contains(&w)))
                })
        };
        let version = version.filter(is_version);
        if version.is_some() {
            words.take(i + 1);
        }
        if !self.engines.iter().any(|(known, _)| known == name) {
            self.engines.push((name.to_owned(), version));
        }
        true
    }

    /// "at 0.95 utilisation", "95% gpu memory utilisation", "gpu_memory_utilization=0.9".
    fn take_utilization(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let (name, joined) =
            word.split_once('=').map_or((word, None), |(name, rest)| (name, Some(rest.to_owned())));
        if !UTILIZATION.contains(&name) {
            return false;
        }
        let Some(found) =
            joined.and_then(|text| share(&text)).map(|n| (n, i..i + 1)).or_else(|| near_share(words, i))
        else {
            return false;
        };
        let (share, run) = found;
        if !bounds::UTILIZATION.contains(&share) {
            return false;
        }
        self.utilization = Some(share);
        words.take_all(run);
        words.take(i);
        true
    }

    /// "80 % hit rate", "hit rate of 0.8", "80% cached", "prefix_cache_hit_rate=0.8".
    fn take_hit_rate(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let (name, joined) =
            word.split_once('=').map_or((word, None), |(name, rest)| (name, Some(rest.to_owned())));
        if !matches!(
            name,
            "hit" | "hits" | "hit-rate" | "hitrate" | "cached" | "reused" | "reuse" | "prefix_cache_hit_rate"
        ) {
            return false;
        }
        let end = i + 1 + usize::from(words.at(i + 1) == Some("rate"));
        let behind =
            || near_share(words, end - 1).map(|(share, run)| (share, i.min(run.start)..run.end.max(end)));
        let Some((share, run)) = joined.and_then(|text| share(&text)).map(|n| (n, i..end)).or_else(behind)
        else {
            return false;
        };
        self.hit_rate = Some(share);
        words.take_all(run);
        words.take_all(i..end);
        true
    }

    /// "MTP", "mtp 2", "eagle with 3 tokens", "3 draft tokens".
    fn take_speculation(&mut self, words: &mut Words, i: usize, word: &str) -> bool {
        let drafts = |words: &Words, at: usize| {
            let said = words
                .at(at)
                .and_then(|w| w.parse::<u64>().ok())
                .filter(|n| bounds::DRAFT_TOKENS.contains(n))?;
            let unit = words.at(at + 1).unwrap_or_default();
            let units = usize::from(matches!(
                unit,
                "tokens" | "token" | "draft" | "drafts" | "steps" | "speculative"
            ));
            Some((said, units))
        };
        if let Some(number) = word.strip_prefix("num_speculative_tokens=").and_then(|n| n.parse().ok()) {
            let method = self.speculation.map_or("mtp", |(method, _)| method);
            self.speculation = Some((method, Some(number)));
            words.take(i);
            return true;
        }
        let (name, joined) =
            word.split_once('=').map_or((word, None), |(name, rest)| (name, rest.parse::<u64>().ok()));
        let method = match name {
            "mtp" | "nextn" => "mtp",
            "eagle" => "eagle",
            "eagle3" | "eagle-3" => "eagle3",
            "ngram" | "n-gram" => "ngram",
            _ => return false,
        };
        words.take(i);
        let start = i + 1 + usize::from(matches!(words.at(i + 1), Some("with" | "at" | "of" | "and")));
        let behind = drafts(words, start);
        let before = i.checked_sub(2).and_then(|at| drafts(words, at).filter(|(_, units)| *units > 0));
        if let Some((_, units)) = behind {
            words.take_all(start..start + 1 + units);
            if units > 0 && matches!(words.at(start + 2), Some("tokens" | "token")) {
                words.take(start + 2);
            }
        }
        for n in [1, 2] {
            if matches!(words.at(i + n), Some("speculative" | "speculation" | "decoding" | "spec")) {
                words.take(i + n);
            }
        }
        let said = joined.or(behind.map(|(n, _)| n)).or(before.map(|(n, _)| n));
        self.speculation = Some((method, said));
        true
    }

    /// Each engine that is named, or the usual one with what is set; `more`: what other parts of the question set.
    pub(super) fn engines(&self, more: &Map<String, Value>, assumed: &mut Vec<String>) -> Option<Value> {
        let mut set = more.clone();
        if let Some(share) = self.utilization {
            set.insert("gpu_memory_utilization".to_owned(), json!(share));
        }
        if let Some((method, said)) = self.speculation {
            let usual = || USUAL_DRAFTS.iter().find(|(name, _)| *name == method).map_or(1, |(_, n)| *n);
            let tokens = said.unwrap_or_else(|| {
                let tokens = usual();
                let s = if tokens == 1 { "" } else { "s" };
                assumed.push(format!("{tokens} draft token{s} a step"));
                tokens
            });
            set.insert(
                "speculative_config".to_owned(),
                json!({"method": method, "num_speculative_tokens": tokens}),
            );
        }
        let one = |(name, version): &(String, Option<String>)| {
            let mut engine = Map::from_iter([("name".to_owned(), json!(name))]);
            engine.extend(version.iter().map(|version| ("version".to_owned(), json!(version))));
            engine.extend(set.clone());
            Value::Object(engine)
        };
        match self.engines.as_slice() {
            [] => (!set.is_empty()).then_some(Value::Object(set)),
            [engine] => Some(one(engine)),
            several => Some(several.iter().map(one).collect()),
        }
    }

    /// Names of the engines, where there are several.
    pub(super) fn several_engines(&self) -> bool {
        self.engines.len() > 1
    }

    /// Keep the first engine: what a question about many models is asked with. The others' names.
    pub(super) fn only_first_engine(&mut self) -> Vec<String> {
        let rest = self.engines.split_off(self.engines.len().min(1));
        rest.into_iter().map(|(name, _)| name).collect()
    }
}

/// A share at one side of the word at `i`, with the words between: "95% gpu memory |", "| of 0.95".
fn near_share(words: &Words, i: usize) -> Option<(f64, std::ops::Range<usize>)> {
    let joins = |word: &str| {
        matches!(
            word,
            "of" | "at"
                | "="
                | "is"
                | "gpu"
                | "memory"
                | "prefix"
                | "cache"
                | "kv"
                | "%"
                | "percent"
                | "hit"
                | "rate"
        )
    };
    let at = |j: usize| {
        let word = words.at(j)?;
        let percent = matches!(words.at(j + 1), Some("%" | "percent"));
        let n = if percent { word.parse::<f64>().ok().map(|n| n / 100.0) } else { share(word) };
        n.filter(|n| (0.0..=1.0).contains(n)).map(|n| (n, if percent { j + 2 } else { j + 1 }))
    };
    let back = (1..=5).map_while(|n| i.checked_sub(n)).find_map(|j| {
        let (n, end) = at(j)?;
        (end..i).all(|k| words.at(k).is_some_and(joins)).then_some((n, j..i + 1))
    });
    back.or_else(|| {
        (i + 1..i + 4).find_map(|j| {
            let (n, end) = at(j)?;
            (i + 1..j).all(|k| words.at(k).is_some_and(joins)).then_some((n, i..end))
        })
    })
}

/// "0.95", "95%".
fn share(word: &str) -> Option<f64> {
    let (number, unit) = split(word)?;
    match unit.as_str() {
        "%" => Some(number / 100.0),
        "" if number <= 1.0 => Some(number),
        _ => None,
    }
}
