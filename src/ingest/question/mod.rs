//! A question in plain words to one of the typed requests, with what was not understood.
//!
//! Words are taken by meaning, longest first: a cluster, a model, lengths, loads, limits, sizes. What is left and is no
//! filler is told back, so that nobody takes an answer for one to another question.

mod figures;
mod words;

use serde_json::{Map, Value, json};

use self::figures::Figures;
use self::words::Words;
use crate::catalogue::hardware::HardwareCatalogue;
use crate::catalogue::models;

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
}

/// The request that a question stands for: the JSON of the endpoint of that name.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    Plan(Value),
    Fits(Value),
    Sizing(Value),
    /// A curve: sizes against one another.
    Sweep(Value),
    /// Nothing that can be answered; what is missing.
    Unclear(String),
}

/// Read a question.
#[must_use]
pub fn parse(text: &str, hardware: &HardwareCatalogue) -> Parsed {
    parse_on(text, None, hardware)
}

/// Read a question of people who have `usual` GPUs: those are meant where GPUs are needed and none are named.
#[must_use]
pub fn parse_on(text: &str, usual: Option<&str>, hardware: &HardwareCatalogue) -> Parsed {
    let mut assumed = Vec::new();
    if text.chars().count() > MAX_CHARS {
        let why = format!("The question is longer than {MAX_CHARS} characters.");
        return Parsed { meaning: Meaning::Unclear(why), not_understood: Vec::new(), assumed };
    }
    let mut words = Words::of(text);
    // figures name what they count; the reader of clusters would take their numbers for nodes
    let sizes = figures::sizes(&mut words);
    let model = words.take_model();
    let figures = Figures::take(&mut words);
    let cluster = words.take_cluster(hardware);
    let products = words.take_products(hardware);
    let intent = words.take_intent();
    let mut asked = Asked { cluster, model, products, sizes, figures };
    asked.take_usual(usual, &intent, &mut assumed);
    let meaning = asked.meaning(&intent, &mut assumed);
    Parsed { meaning, not_understood: words.left(), assumed }
}

/// What a question asks for, by its verbs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Intent {
    how_many: bool,
    compare: bool,
    what_fits: bool,
}

/// The parts of a question.
struct Asked {
    cluster: Option<String>,
    model: Option<String>,
    /// Products named without a count.
    products: Vec<String>,
    sizes: figures::Sizes,
    figures: Figures,
}

impl Asked {
    /// The usual GPUs, unless the question names some or asks how many there must be.
    fn take_usual(&mut self, usual: Option<&str>, intent: &Intent, assumed: &mut Vec<String>) {
        let needed = self.model.is_some() || intent.what_fits;
        if let Some(usual) = usual
            && needed
            && !intent.how_many
            && self.cluster.is_none()
            && self.products.is_empty()
        {
            assumed.push(format!("{usual}, the usual cluster here"));
            self.cluster = Some(usual.to_owned());
        }
    }

    fn meaning(mut self, intent: &Intent, assumed: &mut Vec<String>) -> Meaning {
        let Some(model) = self.model.take() else {
            return self.without_model(intent);
        };
        let wants_count = intent.how_many || (self.cluster.is_none() && self.figures.has_load());
        if self.sizes.tp.len() > 1 || (!self.sizes.tp.is_empty() && intent.compare) {
            return self.comparison(&model, assumed);
        }
        if wants_count {
            return self.sizing(&model, assumed);
        }
        let cluster = match (self.cluster.take(), self.products.first()) {
            (Some(cluster), _) => cluster,
            (None, Some(product)) => {
                assumed.push(format!("one node of {product}"));
                format!("1 node {product}")
            }
            (None, None) => {
                return self.sizing(&model, assumed);
            }
        };
        let mut request = self.shared(&model, assumed);
        request.insert("cluster".to_owned(), Value::String(cluster));
        if let Some(search) = self.sizes.search() {
            request.insert("search".to_owned(), search);
        }
        Meaning::Plan(Value::Object(request))
    }

    fn without_model(self, intent: &Intent) -> Meaning {
        match self.cluster {
            Some(cluster) => {
                let mut request = Map::new();
                request.insert("cluster".to_owned(), Value::String(cluster));
                self.figures.workload_into(&mut request);
                self.figures.slo_into(&mut request);
                self.figures.engine_into(&mut request);
                request.insert("filter".to_owned(), json!({"fits": true}));
                Meaning::Fits(Value::Object(request))
            }
            None if intent.what_fits => {
                Meaning::Unclear("Which GPUs, and how many? For example: what fits on 16 H100s.".to_owned())
            }
            None => Meaning::Unclear("No model and no GPUs were found in the question.".to_owned()),
        }
    }

    /// Model, lengths, limits and settings: what every question about one model may have.
    fn shared(&mut self, model: &str, assumed: &mut Vec<String>) -> Map<String, Value> {
        let mut request = Map::new();
        self.figures.start_for_context(models::find(model).ok().map(|entry| entry.context_length), assumed);
        let model = match &self.figures.weights {
            Some(weights) => json!({"id": model, "weights": weights}),
            None => Value::String(model.to_owned()),
        };
        request.insert("model".to_owned(), model);
        self.figures.workload_into(&mut request);
        self.figures.slo_into(&mut request);
        self.figures.engine_into(&mut request);
        request
    }

    fn sizing(mut self, model: &str, assumed: &mut Vec<String>) -> Meaning {
        let load = self.figures.take_load().unwrap_or_else(|| {
            assumed.push("one sequence".to_owned());
            json!({"sequences": 1})
        });
        let mut request = self.shared(model, assumed);
        request.insert("load".to_owned(), load);
        match (self.cluster, self.products.is_empty()) {
            (Some(cluster), _) => _ = request.insert("cluster".to_owned(), Value::String(cluster)),
            (None, false) => _ = request.insert("gpus".to_owned(), json!(self.products)),
            (None, true) => assumed.push("every GPU of a known platform".to_owned()),
        }
        Meaning::Sizing(Value::Object(request))
    }

    /// Is this TP worth it: the curve over TP that ends there, with half of it beside.
    fn comparison(mut self, model: &str, assumed: &mut Vec<String>) -> Meaning {
        let largest = self.sizes.tp.iter().copied().max().unwrap_or(1);
        let mut values = self.sizes.tp.clone();
        if values.len() == 1 {
            values.push((largest / 2).max(1));
        }
        values.sort_unstable();
        values.dedup();
        let cluster = self.cluster.take().unwrap_or_else(|| {
            let product = self.products.first().cloned().unwrap_or_else(|| "H100".to_owned());
            let cluster = format!("{largest} {product}");
            assumed.push(cluster.clone());
            cluster
        });
        let mut request = self.shared(model, assumed);
        request.insert("cluster".to_owned(), Value::String(cluster));
        request.insert("over".to_owned(), json!({"axis": "tp", "values": values}));
        Meaning::Sweep(Value::Object(request))
    }
}

#[cfg(test)]
mod tests;
