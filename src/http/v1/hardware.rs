//! `/v1/gpus`, `/v1/nodes`, `/v1/links`, `/v1/engines`: the data that answers rest on, with their sources.

use axum::Json;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::catalogue::{self, hardware};
use crate::http::conditional::{etag, has_already};
use crate::http::extract::Query;
use crate::http::problem::{Problem, ProblemBody};
use crate::planner::engine;
use crate::planner::hardware::LinkScope;

/// A list of data.
#[derive(Debug, Serialize, ToSchema)]
pub struct Items<T> {
    pub items: Vec<T>,
}

/// A GPU of the catalogue. Rates are dense, per GPU.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuItem {
    pub key: String,
    pub name: String,
    pub vendor: String,
    pub architecture: String,
    pub compute_capability: Option<String>,
    /// What the driver gives to a process.
    pub memory_bytes: u64,
    /// True when `memory_bytes` is derived from the size in the product's name.
    pub memory_assumed: bool,
    pub hbm_bytes_per_s: f64,
    pub peak_flops: PeakItem,
    pub aliases: Vec<String>,
    pub data_quality: String,
    pub sources: Vec<String>,
    pub notes: Vec<String>,
}

/// Dense tensor rates, FLOP/s (OP/s for int8); null where unknown or not offered.
#[derive(Debug, Serialize, ToSchema)]
pub struct PeakItem {
    pub fp16: Option<f64>,
    pub bf16: Option<f64>,
    pub fp8: Option<f64>,
    pub fp4: Option<f64>,
    pub int8: Option<f64>,
}

/// A kind of node that can be bought or rented.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodeItem {
    pub key: String,
    /// Null for a platform that is not a cloud's.
    pub cloud: Option<String>,
    pub gpu: String,
    pub gpus_per_node: u64,
    pub intra_link: Option<String>,
    pub inter_link: Option<String>,
    pub nics_per_node: Option<u64>,
    pub usd_per_gpu_hour: Option<f64>,
    pub price_source: Option<String>,
    pub aliases: Vec<String>,
    pub sources: Vec<String>,
    pub notes: Vec<String>,
}

/// A kind of link. Rates are per GPU, or per port between nodes.
#[derive(Debug, Serialize, ToSchema)]
pub struct LinkItem {
    pub key: String,
    pub name: String,
    /// `pair`, `node`, `rack`, `fabric`.
    pub scope: String,
    /// One direction, bytes/s.
    pub per_direction_bytes_per_s: f64,
    /// Both directions together, bytes/s: the figure vendors quote.
    pub bidirectional_bytes_per_s: f64,
    pub aliases: Vec<String>,
    pub sources: Vec<String>,
}

/// An engine whose rules are known, at a release. A request's version takes the newest rules that are not newer.
#[derive(Debug, Serialize, ToSchema)]
pub struct EngineItem {
    pub name: String,
    pub rules_version: String,
}

/// Every GPU that can be planned for.
#[utoipa::path(
    get, path = "/v1/gpus", operation_id = "list_gpus", tag = "hardware",
    params(("search" = Option<String>, Query, description = "Only GPUs with this text in key, name or an alias, in any case", max_length = 200)),
    responses(
        (status = 200, description = "GPUs with their figures and sources", body = Items<GpuItem>),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_gpus(RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    listed(query.as_deref(), &headers, |wanted| {
        hardware::catalogue()
            .gpus()
            .filter(|e| wanted.names([&e.gpu.key, &e.gpu.name], &e.aliases))
            .map(|e| GpuItem {
                key: e.gpu.key.clone(),
                name: e.gpu.name.clone(),
                vendor: e.gpu.vendor.clone(),
                architecture: e.gpu.architecture.clone(),
                compute_capability: e.gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
                memory_bytes: e.gpu.memory_bytes.get(),
                memory_assumed: e.gpu.memory_assumed,
                hbm_bytes_per_s: e.gpu.hbm_bytes_per_s,
                peak_flops: PeakItem {
                    fp16: e.gpu.peak_flops.fp16,
                    bf16: e.gpu.peak_flops.bf16,
                    fp8: e.gpu.peak_flops.fp8,
                    fp4: e.gpu.peak_flops.fp4,
                    int8: e.gpu.peak_flops.int8,
                },
                aliases: e.aliases.clone(),
                data_quality: e.gpu.data_quality.clone(),
                sources: e.gpu.sources.clone(),
                notes: e.notes.clone(),
            })
            .collect()
    })
}

/// Every kind of node: platforms and cloud instances.
#[utoipa::path(
    get, path = "/v1/nodes", operation_id = "list_nodes", tag = "hardware",
    params(("search" = Option<String>, Query, description = "Only nodes with this text in key, GPU or an alias, in any case", max_length = 200)),
    responses(
        (status = 200, description = "Nodes with their links and prices", body = Items<NodeItem>),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_nodes(RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    listed(query.as_deref(), &headers, |wanted| {
        hardware::catalogue()
            .nodes()
            .filter(|n| wanted.names([&n.key, &n.gpu], &n.aliases))
            .map(|n| NodeItem {
                key: n.key.clone(),
                cloud: n.cloud.clone(),
                gpu: n.gpu.clone(),
                gpus_per_node: n.gpus_per_node,
                intra_link: n.intra_link.clone(),
                inter_link: n.inter_link.as_ref().map(|link| link.key.clone()),
                nics_per_node: n.nics_per_node,
                usd_per_gpu_hour: n.usd_per_gpu_hour,
                price_source: n.price_source.clone(),
                aliases: n.aliases.clone(),
                sources: n.sources.clone(),
                notes: n.notes.clone(),
            })
            .collect()
    })
}

/// Every kind of link.
#[utoipa::path(
    get, path = "/v1/links", operation_id = "list_links", tag = "hardware",
    params(("search" = Option<String>, Query, description = "Only links with this text in key, name or an alias, in any case", max_length = 200)),
    responses(
        (status = 200, description = "Links with their rates", body = Items<LinkItem>),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_links(RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    listed(query.as_deref(), &headers, |wanted| {
        hardware::catalogue()
            .links()
            .filter(|e| wanted.names([&e.link.key, &e.link.name], &e.aliases))
            .map(|e| LinkItem {
                key: e.link.key.clone(),
                name: e.link.name.clone(),
                scope: reach(e.link.scope).to_owned(),
                per_direction_bytes_per_s: e.link.per_direction_bytes_per_s,
                bidirectional_bytes_per_s: e.link.bidirectional_bytes_per_s,
                aliases: e.aliases.clone(),
                sources: e.link.sources.clone(),
            })
            .collect()
    })
}

const fn reach(scope: LinkScope) -> &'static str {
    match scope {
        LinkScope::Pair => "pair",
        LinkScope::Node => "node",
        LinkScope::Rack => "rack",
        LinkScope::Fabric => "fabric",
    }
}

/// Every engine whose rules are known.
#[utoipa::path(
    get, path = "/v1/engines", operation_id = "list_engines", tag = "hardware",
    params(("search" = Option<String>, Query, description = "Only engines with this text in their name, in any case", max_length = 200)),
    responses(
        (status = 200, description = "Engines, newest rules first", body = Items<EngineItem>),
        (status = 304, description = "The caller has it already"),
        (status = 400, description = "A parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub async fn list_engines(RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    listed(query.as_deref(), &headers, |wanted| {
        engine::known()
            .filter(|(name, _)| wanted.names([name], &[]))
            .map(|(name, version)| EngineItem { name: name.to_owned(), rules_version: version.to_owned() })
            .collect()
    })
}

/// What `search` asks for, in lower case.
struct Wanted(String);

impl Wanted {
    fn names<T: AsRef<str>, const N: usize>(&self, names: [T; N], aliases: &[String]) -> bool {
        let holds = |text: &str| text.to_lowercase().contains(&self.0);
        names.iter().any(|name| holds(name.as_ref())) || aliases.iter().any(|alias| holds(alias))
    }
}

/// A list that changes only with the program.
fn listed<T: Serialize>(
    query: Option<&str>,
    headers: &HeaderMap,
    items: impl FnOnce(&Wanted) -> Vec<T>,
) -> Result<Response, Problem> {
    let query = Query::of(query, &["search"])?;
    let wanted = Wanted(query.text("search", 200)?.to_lowercase());
    let version = format!("{}-{}", env!("CARGO_PKG_VERSION"), catalogue::VERSION);
    let mut response = if has_already(headers, &version) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(Items { items: items(&wanted) }).into_response()
    };
    response.headers_mut().insert(header::ETAG, etag(&version));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}
