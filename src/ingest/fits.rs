//! The JSON of `POST /v1/fits`: which models of the catalogue fit on a cluster.

use serde_json::{Map, Number, Value};

use super::fields::{Fields, wrong_type};
use super::request::{
    LATENCY_MODELS, OBJECTIVES, read_assumptions, read_cluster, read_engines, read_slo, read_workload,
};
use super::{FieldError, Pointer, bounds};
use crate::planner::input::{EngineSettings, LatencyModel, Objective, Overrides, Slo, Workload};

/// Length at which "fits" is asked when the request names none.
pub const DEFAULT_CONTEXT_TOKENS: u64 = 32_768;
/// Lengths at which sequences are counted when the request names none.
pub const DEFAULT_CONTEXTS: [u64; 3] = [8_192, 32_768, 131_072];
/// Most lengths at which sequences are counted.
const MAX_CONTEXTS: usize = 8;

/// A question over the whole catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct FitsRequest {
    /// A text, or an object of the cluster contract.
    pub cluster: Value,
    pub engine: EngineSettings,
    /// Its context is always given.
    pub workload: Workload,
    pub slo: Slo,
    pub objective: Objective,
    pub overrides: Overrides,
    pub latency_model: LatencyModel,
    /// Lengths at which sequences are counted.
    pub contexts: Vec<u64>,
    pub filter: Filter,
    pub sort: Sort,
    pub limit: usize,
}

/// Which rows are wanted; `None` = any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// A part of an id, an alias or a family, in any case.
    pub search: Option<String>,
    pub family: Option<String>,
    pub licence: Option<String>,
    pub min_parameters: Option<u64>,
    pub max_parameters: Option<u64>,
    /// The model's own longest context is at least this.
    pub min_context_tokens: Option<u64>,
    /// Only rows that fit, or only those that do not.
    pub fits: Option<bool>,
    /// Only rows that meet the limits, or only those that do not.
    pub meets_slo: Option<bool>,
}

/// The order of rows: those that fit first, then by this, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Largest first.
    #[default]
    Parameters,
    Name,
    /// Newest first.
    Released,
    /// Most first.
    KvTokens,
    /// Most first, at the first of `contexts` that is at least the asked context.
    Sequences,
    /// Shortest first.
    Tpot,
    /// Most output tokens per second first.
    Throughput,
    /// Fewest first.
    SmallestGpus,
}

const SORTS: &[(&str, Sort)] = &[
    ("parameters", Sort::Parameters),
    ("name", Sort::Name),
    ("released", Sort::Released),
    ("kv_tokens", Sort::KvTokens),
    ("sequences", Sort::Sequences),
    ("tpot", Sort::Tpot),
    ("throughput", Sort::Throughput),
    ("smallest_gpus", Sort::SmallestGpus),
];

/// Query parameters of `GET /v1/fits`, each with its place in the JSON of the POST.
pub const PARAMETERS: &[(&str, &[&str], Kind)] = &[
    ("cluster", &["cluster"], Kind::Text),
    ("context", &["workload", "context_tokens"], Kind::Number),
    ("input_tokens", &["workload", "input_tokens"], Kind::Number),
    ("output_tokens", &["workload", "output_tokens"], Kind::Number),
    ("decode_context_tokens", &["workload", "decode_context_tokens"], Kind::Number),
    ("concurrency", &["workload", "concurrency"], Kind::Number),
    ("prefix_cache_hit_rate", &["workload", "prefix_cache_hit_rate"], Kind::Number),
    ("ttft_ms", &["slo", "ttft_ms"], Kind::Number),
    ("tpot_ms", &["slo", "tpot_ms"], Kind::Number),
    ("kv_cache_dtype", &["engine", "kv_cache_dtype"], Kind::Text),
    ("objective", &["objective"], Kind::Text),
    ("search", &["filter", "search"], Kind::Text),
    ("family", &["filter", "family"], Kind::Text),
    ("licence", &["filter", "licence"], Kind::Text),
    ("min_parameters", &["filter", "min_parameters"], Kind::Number),
    ("max_parameters", &["filter", "max_parameters"], Kind::Number),
    ("min_context_tokens", &["filter", "min_context_tokens"], Kind::Number),
    ("fits", &["filter", "fits"], Kind::Flag),
    ("meets_slo", &["filter", "meets_slo"], Kind::Flag),
    ("sort", &["sort"], Kind::Text),
    ("limit", &["limit"], Kind::Number),
];

/// How the text of a parameter reads as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Flag,
}

impl FitsRequest {
    /// A question about a cluster with everything else left to defaults.
    #[must_use]
    pub fn about(cluster: Value) -> Self {
        Self {
            cluster,
            engine: EngineSettings::defaults_of(super::request::DEFAULT_ENGINE, ""),
            workload: Workload {
                input_tokens: super::request::DEFAULT_INPUT_TOKENS,
                output_tokens: super::request::DEFAULT_OUTPUT_TOKENS,
                context_tokens: Some(DEFAULT_CONTEXT_TOKENS),
                decode_context_tokens: None,
                concurrency: super::request::DEFAULT_CONCURRENCY,
                prefix_cache_hit_rate: 0.0,
            },
            slo: Slo::default(),
            objective: Objective::default(),
            overrides: Overrides::default(),
            latency_model: LatencyModel::default(),
            contexts: DEFAULT_CONTEXTS.to_vec(),
            filter: Filter::default(),
            sort: Sort::default(),
            limit: 1000,
        }
    }

    /// Read a request.
    ///
    /// # Errors
    /// All faults, in the order of the fields.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let request = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
            let request = read_fits(&mut fields);
            fields.finish();
            request
        });
        match request {
            Some(request) if faults.is_empty() => Ok(request),
            _ => Err(faults),
        }
    }

    /// Query parameters as the JSON of the same question. A text that is no number stays a text, so that the reader
    /// says what is wrong with it.
    #[must_use]
    pub fn json_of<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)>) -> Value {
        let mut whole = Map::new();
        for (name, text) in parameters {
            let Some((_, path, kind)) = PARAMETERS.iter().find(|(known, ..)| *known == name) else {
                continue;
            };
            let value = match kind {
                Kind::Number => {
                    text.parse::<Number>().map_or_else(|_| Value::String(text.to_owned()), Value::Number)
                }
                Kind::Flag => text.parse().map_or_else(|_| Value::String(text.to_owned()), Value::Bool),
                Kind::Text => Value::String(text.to_owned()),
            };
            match path {
                [section, key] => {
                    let section = whole.entry(*section).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(section) = section {
                        section.insert((*key).to_owned(), value);
                    }
                }
                [key] => _ = whole.insert((*key).to_owned(), value),
                _ => {}
            }
        }
        Value::Object(whole)
    }

    /// The parameter whose value stands at a pointer of [`Self::json_of`].
    #[must_use]
    pub fn parameter_of(pointer: &str) -> Option<&'static str> {
        let found = PARAMETERS.iter().find(|(_, path, _)| {
            let place = path.iter().fold(Pointer::root(), |place, key| place.key(key));
            place.fragment() == pointer
        });
        found.map(|(name, ..)| *name)
    }
}

fn read_fits(fields: &mut Fields<'_, '_>) -> Option<FitsRequest> {
    let cluster = read_cluster(fields);
    let one_engine = match fields.raw("engine") {
        Some(list @ Value::Array(_)) => {
            let fault = wrong_type(&fields.place_of("engine"), list, "one engine: an object");
            fields.push(fault);
            None
        }
        _ => read_engines(fields).into_iter().next(),
    };
    let mut workload = read_workload(fields);
    workload.context_tokens = workload.context_tokens.or(Some(DEFAULT_CONTEXT_TOKENS));
    let contexts =
        fields.wholes("contexts", bounds::TOKENS, MAX_CONTEXTS).unwrap_or(DEFAULT_CONTEXTS.to_vec());
    let slo = read_slo(fields);
    let objective = fields.choice("objective", OBJECTIVES).unwrap_or_default();
    let overrides = read_assumptions(fields);
    let latency_model = fields.choice("latency_model", LATENCY_MODELS).unwrap_or_default();
    let filter = read_filter(fields);
    let sort = fields.choice("sort", SORTS).unwrap_or_default();
    let limit = fields.whole("limit", bounds::LIMIT).unwrap_or(*bounds::LIMIT.end());
    Some(FitsRequest {
        cluster: cluster?,
        engine: one_engine?,
        workload,
        slo,
        objective,
        overrides,
        latency_model,
        contexts,
        filter,
        sort,
        limit: usize::try_from(limit).ok()?,
    })
}

fn read_filter(fields: &mut Fields<'_, '_>) -> Filter {
    let Some(mut given) = fields.object("filter") else { return Filter::default() };
    let parameters = 1..=bounds::MAX_EXACT;
    let filter = Filter {
        search: given.text("search", bounds::NAME_CHARS).map(str::to_lowercase),
        family: given.text("family", bounds::NAME_CHARS).map(str::to_lowercase),
        licence: given.text("licence", bounds::NAME_CHARS).map(str::to_lowercase),
        min_parameters: given.whole("min_parameters", parameters.clone()),
        max_parameters: given.whole("max_parameters", parameters),
        min_context_tokens: given.whole("min_context_tokens", bounds::TOKENS),
        fits: given.flag("fits"),
        meets_slo: given.flag("meets_slo"),
    };
    given.finish();
    filter
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn query_parameters_and_json_are_one_question() {
        let from_query = FitsRequest::json_of([
            ("cluster", "16xH100"),
            ("context", "65536"),
            ("fits", "true"),
            ("sort", "tpot"),
            ("tpot_ms", "30.5"),
        ]);
        let json = json!({
            "cluster": "16xH100", "workload": {"context_tokens": 65536}, "filter": {"fits": true}, "sort": "tpot",
            "slo": {"tpot_ms": 30.5},
        });
        assert_eq!(from_query, json);
        let request = FitsRequest::read(&json).expect("valid");
        assert_eq!(request.workload.context_tokens, Some(65_536));
        assert_eq!((request.filter.fits, request.sort), (Some(true), Sort::Tpot));
        assert_eq!(
            FitsRequest::read(&json!({"cluster": "16xH100"})),
            Ok(FitsRequest::about(json!("16xH100")))
        );
    }

    #[test]
    fn faults_are_told_by_parameter() {
        let json = FitsRequest::json_of([
            ("context", "many"),
            ("sort", "best"),
            ("fits", "perhaps"),
            ("limit", "0"),
        ]);
        let faults = FitsRequest::read(&json).expect_err("faulty");
        let parameters: Vec<_> = faults.iter().map(|f| FitsRequest::parameter_of(&f.pointer)).collect();
        assert_eq!(parameters, [Some("cluster"), Some("context"), Some("fits"), Some("sort"), Some("limit")]);
    }

    #[test]
    fn unknown_fields_are_refused() {
        let faults =
            FitsRequest::read(&json!({"cluster": "8 H100", "filter": {"famly": "x"}, "contxts": []}));
        let pointers: Vec<_> = faults.expect_err("faulty").into_iter().map(|f| f.pointer).collect();
        assert_eq!(pointers, ["#/filter/famly", "#/contxts"]);
    }
}
