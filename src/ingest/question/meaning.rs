//! From the parts of a question to the request that it stands for.

use serde_json::{Map, Value, json};

use super::clusters::{Gpus, Group};
use super::figures::Figures;
use super::intent::Intent;
use super::models::Unknown;
use super::settings::Settings;
use super::sizes::{Axis, Sizes};
use super::{Meaning, Unclear};
use crate::catalogue::hardware::HardwareCatalogue;
use crate::catalogue::models;
use crate::ingest::cluster::parse_text;

/// The length for which an engine is started where the longest sequence is asked for: layouts that hold less than all the
/// model takes start too, and say what they hold.
const START_FOR_LONGEST: u64 = 8_192;

/// The parts of a question.
pub(super) struct Asked<'q> {
    pub(super) text: &'q str,
    pub(super) intent: Intent,
    pub(super) models: Vec<String>,
    pub(super) unknown: Option<Unknown>,
    pub(super) gpus: Gpus,
    pub(super) sizes: Sizes,
    pub(super) settings: Settings,
    pub(super) figures: Figures,
    /// Parts that were read and have no place in the request.
    pub(super) unused: Vec<String>,
}

impl Asked<'_> {
    /// The usual GPUs, unless the question names some or asks how many there must be.
    pub(super) fn take_usual(&mut self, usual: Option<&str>, assumed: &mut Vec<String>) {
        let needed = !self.models.is_empty() || self.intent.what_fits;
        if let Some(usual) = usual
            && needed
            && !self.intent.how_many_gpus
            && self.gpus.clusters.is_empty()
            && self.gpus.products.is_empty()
            && self.gpus.asked.is_none()
        {
            assumed.push(format!("{usual}, the usual cluster here"));
            self.gpus.clusters.push(Group { text: usual.to_owned(), run: 0..0 });
        }
    }

    /// The request, and the parts that have no place in it.
    pub(super) fn meaning(
        mut self,
        assumed: &mut Vec<String>,
        hardware: &HardwareCatalogue,
    ) -> (Meaning, Vec<String>) {
        let meaning = self.request(assumed, hardware);
        (meaning, self.unused)
    }

    fn request(&mut self, assumed: &mut Vec<String>, hardware: &HardwareCatalogue) -> Meaning {
        if let Some(unknown) = self.unknown.take() {
            return self.no_such_model(unknown);
        }
        if let Some((text, error)) = self.gpus.asked.take() {
            let instead = error.candidates.iter().map(|other| self.text.replacen(&text, other, 1));
            return Meaning::Unclear(Unclear {
                instead: instead.filter(|question| question != self.text).collect(),
                why: sentence(&error.message),
            });
        }
        if self.intent.apart && !self.models.is_empty() {
            return Unclear::because(
                "Prefill and decode on GPUs of their own are planned by `shardwise kv handover` and \
                 POST /v1/kv/handovers, with the layout of each side.",
            );
        }
        let Some(model) = self.models.first().cloned() else {
            return self.without_model();
        };
        let no_gpus = self.gpus.clusters.is_empty() && self.gpus.products.is_empty();
        if no_gpus && self.models.len() > 1 {
            return Unclear::because("On which GPUs? For example: llama 3.1 70b or qwen3 32b on 8 H100.");
        }
        if self.intent.of_model && no_gpus {
            return Meaning::Model(json!({"model": model}));
        }
        if self.compares_sizes() {
            return self.comparison(&model, assumed);
        }
        let wants_count = self.intent.how_many_gpus && !self.intent.how_much;
        let of_load = self.figures.has_load() && !self.intent.how_much && !self.intent.compare;
        if wants_count || (of_load && self.gpus.clusters.is_empty()) {
            return self.sizing(&model, assumed);
        }
        if no_gpus && (self.intent.how_much || self.intent.longest) {
            return Unclear::because("On which GPUs, and how many? For example: llama 3.1 70b on 8 H100.");
        }
        if no_gpus && !self.intent.compare && !self.settings.several_engines() {
            return self.sizing(&model, assumed);
        }
        let mut clusters = self.clusters(assumed, hardware);
        if self.models.len() > 1 || clusters.len() > 1 {
            return self.side_by_side(clusters, assumed);
        }
        match clusters.pop() {
            Some(cluster) => self.plan(&model, cluster, assumed),
            None => self.sizing(&model, assumed),
        }
    }

    fn no_such_model(&self, unknown: Unknown) -> Meaning {
        let Unknown { asked, near } = unknown;
        let hint = match near.as_slice() {
            [] => "; `shardwise models list` and GET /v1/models list what is known".to_owned(),
            near => format!("; did you mean {}?", near.join(", ")),
        };
        let instead = near.iter().map(|id| self.text.replacen(&asked, id, 1));
        Meaning::Unclear(Unclear {
            instead: instead.filter(|question| question != self.text).collect(),
            why: sentence(&format!("No model of the catalogue goes by `{asked}`{hint}")),
        })
    }

    fn without_model(&mut self) -> Meaning {
        let mut clusters = std::mem::take(&mut self.gpus.clusters).into_iter();
        let Some(cluster) = clusters.next() else {
            return match self.gpus.products.first() {
                Some(product) => Meaning::Unclear(Unclear {
                    why: format!("How many {}?", product.text),
                    instead: [1, 8, 16].map(|n| format!("what fits on {n} {}", product.text)).to_vec(),
                }),
                None if self.intent.what_fits => {
                    Unclear::because("Which GPUs, and how many? For example: what fits on 16 H100s.")
                }
                None => Unclear::because("No model and no GPUs were found in the question."),
            };
        };
        self.unused.extend(clusters.chain(std::mem::take(&mut self.gpus.products)).map(|group| group.text));
        let engines = self.settings.only_first_engine();
        self.unused.extend(engines);
        if !self.sizes.layouts.is_empty() {
            self.unused.extend(self.sizes.in_words());
        }
        let mut request = Map::new();
        request.insert("cluster".to_owned(), Value::String(cluster.text));
        self.figures.workload_into(&mut request, self.settings.hit_rate);
        self.figures.slo_into(&mut request);
        let engine = self.settings.engines(&self.figures.engine_fields(), &mut Vec::new());
        request.extend(engine.map(|engine| ("engine".to_owned(), engine)));
        request.insert("filter".to_owned(), Value::Object(self.figures.filter()));
        Meaning::Fits(Value::Object(request))
    }

    /// The clusters of the question: those with a count, and one node of each product without.
    fn clusters(&mut self, assumed: &mut Vec<String>, hardware: &HardwareCatalogue) -> Vec<String> {
        let mut clusters: Vec<String> =
            std::mem::take(&mut self.gpus.clusters).into_iter().map(|group| group.text).collect();
        let products = std::mem::take(&mut self.gpus.products);
        let alternatives = self.intent.compare || self.intent.either;
        let gpus = clusters.first().and_then(|text| Some(parse_text(text, hardware).ok()?.gpus()));
        for product in products {
            match gpus {
                // "8 H100 or H200"
                Some(n) if alternatives => {
                    assumed.push(format!("{n} {}", product.text));
                    clusters.push(format!("{n} {}", product.text));
                }
                Some(_) => self.unused.push(product.text),
                None => {
                    assumed.push(format!("one node of {}", product.text));
                    clusters.push(format!("1 node {}", product.text));
                }
            }
        }
        if !alternatives && clusters.len() > 1 {
            if gpus.is_none() {
                // "A100 together with H20"
                return vec![clusters.join(" + ")];
            }
            self.unused.extend(clusters.split_off(1));
        }
        clusters
    }

    /// Model, lengths, limits and settings: what every question about models may have.
    fn shared(&mut self, assumed: &mut Vec<String>) -> Map<String, Value> {
        let mut request = Map::new();
        let longest = self.models.iter().filter_map(|id| Some(models::find(id).ok()?.context_length)).min();
        self.figures.start_for_context(longest, assumed);
        self.figures.workload_into(&mut request, self.settings.hit_rate);
        self.figures.slo_into(&mut request);
        let engine = self.settings.engines(&self.figures.engine_fields(), assumed);
        request.extend(engine.map(|engine| ("engine".to_owned(), engine)));
        request
    }

    fn of_model(&self, id: &str) -> Value {
        match &self.figures.weights {
            Some(weights) => json!({"id": id, "weights": weights}),
            None => Value::String(id.to_owned()),
        }
    }

    fn about(&mut self, model: &str, assumed: &mut Vec<String>) -> Map<String, Value> {
        let mut request = Map::from_iter([("model".to_owned(), self.of_model(model))]);
        request.extend(self.shared(assumed));
        request
    }

    fn plan(&mut self, model: &str, cluster: String, assumed: &mut Vec<String>) -> Meaning {
        if self.intent.longest && self.figures.context().is_none() {
            self.figures.start_for(START_FOR_LONGEST);
        }
        let mut request = self.about(model, assumed);
        request.insert("cluster".to_owned(), Value::String(cluster));
        let mut search = self.sizes_to_search();
        if self.intent.longest {
            request.insert("objective".to_owned(), json!("capacity"));
            // more replicas hold more sequences, and no longer ones
            let sizes = search.get_or_insert_with(|| json!({}));
            if let Some(sizes) = sizes.as_object_mut().filter(|sizes| !sizes.contains_key("dp")) {
                sizes.insert("dp".to_owned(), json!([1]));
                assumed.push("one replica".to_owned());
            }
        }
        request.extend(search.map(|search| ("search".to_owned(), search)));
        Meaning::Plan(Value::Object(request))
    }

    /// The sizes of a plan; one that is asked to be worth it stands beside none of it.
    fn sizes_to_search(&self) -> Option<Value> {
        let mut search = self.sizes.search()?;
        if self.intent.compare
            && let Some(sizes) = search.as_object_mut()
        {
            for (axis, values) in sizes {
                if let (Some(values), false) = (values.as_array_mut(), matches!(axis.as_str(), "tp" | "pp"))
                    && values.len() == 1
                    && values.first() != Some(&json!(1))
                {
                    values.insert(0, json!(1));
                }
            }
        }
        Some(search)
    }

    fn side_by_side(&mut self, clusters: Vec<String>, assumed: &mut Vec<String>) -> Meaning {
        let models = self.models.iter().map(|id| self.of_model(id)).collect();
        let mut request =
            Map::from_iter([("models".to_owned(), models), ("clusters".to_owned(), json!(clusters))]);
        request.extend(self.shared(assumed));
        request.extend(self.sizes.search().map(|search| ("search".to_owned(), search)));
        Meaning::Batch(Value::Object(request))
    }

    fn sizing(&mut self, model: &str, assumed: &mut Vec<String>) -> Meaning {
        self.unused.extend(self.models.iter().skip(1).cloned());
        let load = self.figures.take_load().unwrap_or_else(|| {
            assumed.push("one sequence".to_owned());
            json!({"sequences": 1})
        });
        let mut request = self.about(model, assumed);
        request.insert("load".to_owned(), load);
        request.extend(self.sizes.search().map(|search| ("search".to_owned(), search)));
        let products: Vec<String> = self.gpus.products.iter().map(|product| product.text.clone()).collect();
        let mut clusters = std::mem::take(&mut self.gpus.clusters).into_iter().map(|group| group.text);
        match (clusters.next(), products.is_empty()) {
            (Some(cluster), _) => {
                request.insert("cluster".to_owned(), Value::String(cluster));
                self.unused.extend(clusters.chain(products));
            }
            (None, false) => _ = request.insert("gpus".to_owned(), json!(products)),
            (None, true) => assumed.push("every GPU of a known platform".to_owned()),
        }
        Meaning::Sizing(Value::Object(request))
    }

    /// Whether layouts are put one against the other.
    fn compares_sizes(&self) -> bool {
        match self.sizes.one_axis() {
            Some((Axis::Tp | Axis::Pp, values)) => values.len() > 1 || self.intent.compare,
            // a search shows both of an axis that has no curve of its own
            Some(_) => false,
            None => self.sizes.layouts.len() > 1,
        }
    }

    /// Is this size worth it: the curve over TP or PP that ends there, with half of it beside; or the layouts by name.
    fn comparison(&mut self, model: &str, assumed: &mut Vec<String>) -> Meaning {
        self.unused.extend(self.models.iter().skip(1).cloned());
        let over = match self.sizes.one_axis() {
            Some((axis, mut values)) => {
                if let [one] = values.as_slice() {
                    values.insert(0, (one / 2).max(1));
                    values.dedup();
                }
                json!({"axis": axis.name(), "values": values})
            }
            None => json!({"axis": "layout", "values": self.sizes.in_words()}),
        };
        let mut clusters = std::mem::take(&mut self.gpus.clusters).into_iter().map(|group| group.text);
        let cluster = clusters.next().unwrap_or_else(|| {
            let product = self.gpus.products.first().map_or("H100", |product| &product.text);
            let cluster = format!("{} {product}", self.sizes.most_gpus());
            assumed.push(cluster.clone());
            cluster
        });
        self.unused.extend(clusters);
        let mut request = self.about(model, assumed);
        request.insert("cluster".to_owned(), Value::String(cluster));
        request.insert("over".to_owned(), over);
        Meaning::Sweep(Value::Object(request))
    }
}

/// With a capital letter and an end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}
