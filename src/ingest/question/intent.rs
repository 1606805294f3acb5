//! What the verbs of a question ask for.

use super::words::Words;

/// What a question asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Intent {
    /// How many GPUs there must be.
    pub(super) how_many_gpus: bool,
    /// How much a deployment holds or gives.
    pub(super) how_much: bool,
    /// The longest sequence.
    pub(super) longest: bool,
    /// What the model itself is: its weights, its cache a token.
    pub(super) of_model: bool,
    /// One thing against another.
    pub(super) compare: bool,
    /// This or that.
    pub(super) either: bool,
    pub(super) what_fits: bool,
    /// Prompts and answers on GPUs of their own.
    pub(super) apart: bool,
}

/// Words that compare.
const COMPARING: [&str; 14] = [
    "worth",
    "better",
    "worse",
    "vs",
    "versus",
    "instead",
    "compare",
    "compared",
    "comparison",
    "difference",
    "faster",
    "slower",
    "against",
    "outperform",
];

/// What is counted where the question is not after GPUs.
const LOADS: [&str; 22] = [
    "users",
    "user",
    "people",
    "developers",
    "customers",
    "clients",
    "sessions",
    "agents",
    "seats",
    "chats",
    "requests",
    "queries",
    "sequences",
    "seqs",
    "streams",
    "tokens",
    "tok/s",
    "tokens/s",
    "rps",
    "qps",
    "copies",
    "replicas",
];

/// Words between "how many" and what is counted.
const BETWEEN: [&str; 9] =
    ["more", "simultaneous", "concurrent", "parallel", "active", "output", "kv", "max", "maximum"];

impl Intent {
    pub(super) fn of(words: &Words) -> Self {
        let counted = counted(words);
        let of_load = counted.as_deref().is_some_and(|noun| LOADS.contains(&noun));
        let how_much = of_load || words.says(&["how much throughput", "what throughput", "max concurrency"]);
        Self {
            how_many_gpus: (counted.is_some() && !of_load)
                || words.says(&[
                    "fewest",
                    "smallest",
                    "minimum",
                    "cheapest",
                    "what do i need",
                    "what do we need",
                    "which gpu",
                    "which gpus",
                    "what gpu",
                    "what gpus",
                    "min gpus",
                    "which box",
                ]),
            how_much,
            longest: words.says(&[
                "max context",
                "maximum context",
                "longest context",
                "largest context",
                "biggest context",
                "max ctx",
                "how much context",
                "how long a context",
                "how long context",
                "max context length",
                "longest sequence",
                "max sequence length",
                "longest prompt",
            ]),
            of_model: of_model(words),
            compare: words.says(&COMPARING),
            either: words.says(&["or"]),
            what_fits: words.says(&[
                "what fits",
                "which models",
                "what can i",
                "what models",
                "what can we",
                "what will fit",
                "what runs",
            ]),
            apart: words.says(&["prefill"]) && words.says(&["decode"]),
        }
    }

    /// Take the words that were understood by it.
    pub(super) fn take_from(&self, words: &mut Words) {
        for i in 0..words.len() {
            let of_intent = words.at(i).is_some_and(|word| {
                COMPARING.contains(&word)
                    || matches!(word, "fewest" | "smallest" | "cheapest" | "box" | "comparison")
                    || (self.how_much && (LOADS.contains(&word) || BETWEEN.contains(&word)))
                    || (self.of_model && matches!(word, "bytes" | "byte" | "ram" | "gb" | "big"))
            });
            if of_intent {
                words.take(i);
            }
        }
    }
}

/// What "how many" counts.
fn counted(words: &Words) -> Option<String> {
    let many = words.phrase("how many")?;
    let noun = (many.end..words.len()).map(|i| words.said(i)).find(|word| !BETWEEN.contains(word));
    Some(noun.unwrap_or_default().to_owned())
}

/// "kv bytes per token", "how much memory does it need", "how big is it".
fn of_model(words: &Words) -> bool {
    let per_token = words.says(&["per token", "a token", "bytes/token", "each token"]);
    let of_cache = words.says(&["kv", "cache", "memory", "bytes"]);
    (per_token && of_cache)
        || words.says(&[
            "how much memory",
            "how much vram",
            "how much ram",
            "how big is",
            "how large is",
            "size of",
        ])
}
