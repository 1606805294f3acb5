//! A question in plain words to one of the typed requests, with what was not understood.
//!
//! Words are taken by meaning, longest first: layouts, models, settings, lengths, loads, limits, GPUs. What is left and is
//! no filler is told back, so that nobody takes an answer for one to another question. A name that is no model's, and GPUs
//! that the reader of clusters asks about, are asked about here too.

mod clusters;
mod figures;
mod fillers;
mod intent;
mod meaning;
mod models;
mod settings;
mod sizes;
mod words;

use serde_json::Value;

use self::clusters::Gpus;
use self::figures::Figures;
use self::intent::Intent;
use self::meaning::Asked;
use self::settings::Settings;
use self::sizes::Sizes;
use self::words::Words;
use crate::catalogue::hardware::HardwareCatalogue;

/// Characters of a question at most.
pub const MAX_CHARS: usize = 500;

/// What can be asked, as examples that a test asks.
pub const EXAMPLES: [&str; 5] = [
    "what fits on 16 H100s with 128k context",
    "llama 3.1 70b on 2x8 H100 at 32k",
    "how many H200 for deepseek r1 with 50 users at 32k",
    "is TP=16 worth it for llama 70b on 16 H100",
    "how many H100 for qwen3 32b at 5 requests per second, tpot under 40 ms",
];

/// A question as it was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub meaning: Meaning,
    /// Words that have no part in the request, in order.
    pub not_understood: Vec<String>,
    /// Defaults taken because nothing was said, for people.
    pub assumed: Vec<String>,
    /// The longest sequence is asked for, of all that a plan says.
    pub longest: bool,
}

/// The request that a question stands for: the JSON of the endpoint of that name.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    Plan(Value),
    Fits(Value),
    Sizing(Value),
    /// A curve: sizes against one another.
    Sweep(Value),
    /// Plans side by side.
    Batch(Value),
    /// What a model is, on any GPU: `{"model": id}`.
    Model(Value),
    /// Nothing that can be answered.
    Unclear(Unclear),
}

/// Why there is no answer, and what may be asked in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// What is missing or unknown, in a sentence or two.
    pub why: String,
    /// The question as it may have been meant; empty: nothing near it is known.
    pub instead: Vec<String>,
}

impl Unclear {
    fn because(why: impl Into<String>) -> Meaning {
        Meaning::Unclear(Self { why: why.into(), instead: Vec::new() })
    }
}

/// What those who ask have, beyond the catalogue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'k> {
    /// The GPUs that are meant where some are needed and none are named.
    pub usual: Option<&'k str>,
    /// Names under which clusters are saved.
    pub saved: &'k [String],
}

/// Read a question.
#[must_use]
pub fn parse(text: &str, hardware: &HardwareCatalogue) -> Parsed {
    parse_on(text, Known::default(), hardware)
}

/// Read a question of people who have GPUs of their own.
#[must_use]
pub fn parse_on(text: &str, known: Known<'_>, hardware: &HardwareCatalogue) -> Parsed {
    let mut assumed = Vec::new();
    if text.chars().count() > MAX_CHARS {
        let meaning = Unclear::because(format!("The question is longer than {MAX_CHARS} characters."));
        return Parsed { meaning, not_understood: Vec::new(), assumed, longest: false };
    }
    let mut words = Words::of(text);
    let intent = Intent::of(&words);
    // figures name what they count; the reader of clusters would take their numbers for nodes
    let mut sizes = Sizes::take(&mut words);
    if intent.compare || intent.either {
        sizes.against_attention_dp();
    }
    let models = models::take(&mut words);
    let settings = Settings::take(&mut words);
    let figures = Figures::take(&mut words, hardware);
    let gpus = Gpus::of(&mut words, known.saved, intent.compare, hardware);
    let unknown = models::unknown(&mut words, &models);
    intent.take_from(&mut words);
    let models = models.into_iter().map(|model| model.id).collect();
    let mut asked =
        Asked { text, intent, models, unknown, gpus, sizes, settings, figures, unused: Vec::new() };
    asked.take_usual(known.usual, &mut assumed);
    let longest = asked.intent.longest;
    let (meaning, unused) = asked.meaning(&mut assumed, hardware);
    let not_understood = words.left().into_iter().chain(unused).collect();
    Parsed { meaning, not_understood, assumed, longest }
}

#[cfg(test)]
mod tests;
