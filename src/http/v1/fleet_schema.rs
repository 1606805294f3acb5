//! What the OpenAPI document says about the bodies of fits, sizings, sweeps and batches; `ingest` reads them by hand.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use crate::http::schema::{
    AssumptionsBody, ClusterChoice, EngineBody, EngineChoice, LatencyModelWord, ModelChoice, ObjectiveWord,
    SearchBody, SloBody, WorkloadBody,
};

/// The question of `POST /v1/fits`. Everything but `cluster` has a default, which the answer shows.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FitsQuestion {
    pub cluster: ClusterChoice,
    pub engine: Option<EngineBody>,
    /// A model fits when it holds one sequence of `context_tokens` (32,768 when not given).
    pub workload: Option<WorkloadBody>,
    /// Lengths at which sequences are counted; 8,192, 32,768 and 131,072 when not given.
    #[schema(min_items = 1, max_items = 8)]
    pub contexts: Option<Vec<u64>>,
    pub slo: Option<SloBody>,
    /// What "best" means.
    #[schema(inline, required = false)]
    pub objective: Option<ObjectiveWord>,
    pub assumptions: Option<AssumptionsBody>,
    #[schema(inline, required = false)]
    pub latency_model: Option<LatencyModelWord>,
    pub filter: Option<FilterBody>,
    /// The order of rows, after those that fit.
    #[schema(inline, required = false)]
    pub sort: Option<SortWord>,
    /// Rows at most.
    #[schema(minimum = 1, maximum = 1000, default = 1000)]
    pub limit: Option<u64>,
}

/// Which rows are wanted.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterBody {
    /// A part of an id, an alias or a family, in any case.
    #[schema(min_length = 1, max_length = 200)]
    pub search: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    pub family: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    pub licence: Option<String>,
    #[schema(minimum = 1)]
    pub min_parameters: Option<u64>,
    #[schema(minimum = 1)]
    pub max_parameters: Option<u64>,
    /// Only models that take sequences of this length.
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub min_context_tokens: Option<u64>,
    pub fits: Option<bool>,
    pub meets_slo: Option<bool>,
}

/// The order of rows.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SortWord {
    Parameters,
    Name,
    Released,
    KvTokens,
    Sequences,
    Tpot,
    Throughput,
    SmallestGpus,
}

/// The question of `POST /v1/sizings`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizingQuestion {
    pub model: ModelChoice,
    /// Products to size, by name; not together with `cluster`.
    #[schema(min_items = 1, max_items = 64)]
    pub gpus: Option<Vec<String>>,
    /// Nodes to size: each pool is a product, how many it has does not matter.
    #[schema(required = false)]
    pub cluster: ClusterChoice,
    pub load: LoadBody,
    #[schema(required = false)]
    pub engine: EngineChoice,
    pub workload: Option<WorkloadBody>,
    pub slo: Option<SloBody>,
    #[schema(inline, required = false)]
    pub objective: Option<ObjectiveWord>,
    pub search: Option<SearchBody>,
    pub assumptions: Option<AssumptionsBody>,
    #[schema(inline, required = false)]
    pub latency_model: Option<LatencyModelWord>,
    /// Has no effect here: one layout is shown for each product.
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
}

/// The load: exactly one of `sequences`, `requests_per_s` and `users`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadBody {
    /// Sequences of `workload.context_tokens` in the cache at once.
    #[schema(minimum = 1, maximum = 100_000_000)]
    pub sequences: Option<u64>,
    /// Requests per second of the workload's lengths: one figure, or one for each interval of a trace.
    #[schema(required = false)]
    pub requests_per_s: RateBody,
    /// People who each send a request, wait for its end, think, and send the next.
    #[schema(minimum = 1, maximum = 100_000_000)]
    pub users: Option<u64>,
    /// How long they think, seconds; 0: each always has a request in flight.
    #[schema(minimum = 0.0, maximum = 1e6, default = 0)]
    pub think_time_s: Option<f64>,
}

/// One rate, or a trace of rates.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum RateBody {
    One(f64),
    Trace(Vec<f64>),
}

/// The question of `POST /v1/sweeps`: a plan's question with what runs.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepQuestion {
    pub model: ModelChoice,
    pub cluster: ClusterChoice,
    pub over: AxisChoice,
    /// One curve for each value.
    #[schema(required = false)]
    pub by: AxisChoice,
    #[schema(required = false)]
    pub engine: EngineChoice,
    pub workload: Option<WorkloadBody>,
    pub slo: Option<SloBody>,
    #[schema(inline, required = false)]
    pub objective: Option<ObjectiveWord>,
    pub search: Option<SearchBody>,
    pub assumptions: Option<AssumptionsBody>,
    #[schema(inline, required = false)]
    pub latency_model: Option<LatencyModelWord>,
    /// Has no effect here: each point is the best layout.
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
}

/// An axis by name with its usual values, or with values.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum AxisChoice {
    Name(AxisWord),
    Values(AxisBody),
}

/// An axis with its values: numbers, or names for `kv_cache_dtype`, links, `gpu` and `layout`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisBody {
    pub axis: AxisWord,
    #[schema(min_items = 1, max_items = 200)]
    pub values: Option<Vec<AxisItem>>,
}

/// What runs.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AxisWord {
    Tp,
    Pp,
    Context,
    Concurrency,
    KvCacheDtype,
    InterLink,
    IntraLink,
    Gpu,
    /// Layouts held as they are, written `tp=8 pp=2`; the best ones of a plan when none are given.
    Layout,
}

/// A value of an axis.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum AxisItem {
    Number(u64),
    Name(String),
}

/// The question of `POST /v1/batches`.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum BatchQuestion {
    List(BatchList),
    Matrix(BatchMatrix),
}

/// Questions one by one.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchList {
    /// Each as the body of `POST /v1/plans`; `limit` is 1 when not given.
    #[schema(min_items = 1, max_items = 100)]
    pub items: Vec<BTreeMap<String, Value>>,
}

/// Every model on every cluster, at most 1,000 together; the other fields of `POST /v1/plans` hold for each.
#[derive(Debug, ToSchema)]
pub struct BatchMatrix {
    #[schema(min_items = 1, max_items = 100)]
    pub models: Vec<ModelChoice>,
    #[schema(min_items = 1, max_items = 100)]
    pub clusters: Vec<ClusterChoice>,
}

/// The body of `POST /v1/questions`.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionBody {
    /// E.g. "what fits on 16 H100s with 128k context".
    #[schema(min_length = 1, max_length = 500)]
    pub question: String,
}
