//! Curves over one or two things, with the usual values where none are given.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::question::{Asked, ResolvedModel, asked};
use super::{ServiceError, Versions};
use crate::catalogue::hardware;
use crate::ingest::sweep::{self, AxisName, AxisRequest, MAX_POINTS, SweepRequest, Values};
use crate::ingest::{FieldError, Pointer, cluster};
use crate::planner::hardware::Link;
use crate::planner::input::PlanInput;
use crate::planner::input::Search;
use crate::planner::sweep::{Axis, Sweep, only, sweep, usual_layouts};

/// The answer of `POST /v1/sweeps`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SweepAnswer {
    pub versions: Versions,
    #[serde(flatten)]
    pub sweep: Sweep,
}

/// Draw the curves of a model that was looked up.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub(super) fn swept(
    request: &SweepRequest,
    model: Result<ResolvedModel, Vec<FieldError>>,
) -> Result<SweepAnswer, ServiceError> {
    let Asked { input, .. } = asked(&request.plan, model)?;
    let over = axis(&request.over, "over", &input);
    let by = request.by.as_ref().map(|by| axis(by, "by", &input)).transpose();
    let (over, by) = match (over, by) {
        (Ok(over), Ok(by)) => (over, by),
        (over, by) => {
            let faults = [over.err(), by.err()].into_iter().flatten().flatten();
            return Err(ServiceError::Invalid(faults.collect()));
        }
    };
    let points = over.len().saturating_mul(by.as_ref().map_or(1, Axis::len));
    if points > MAX_POINTS {
        let detail = format!("at most {MAX_POINTS} points in all, got {points}");
        return Err(ServiceError::Invalid(vec![FieldError::at(
            &Pointer::root().key("by"),
            "out_of_range",
            detail,
        )]));
    }
    Ok(SweepAnswer { versions: Versions::of(&input), sweep: sweep(&input, &over, by.as_ref()) })
}

fn axis(request: &AxisRequest, field: &str, input: &PlanInput) -> Result<Axis, Vec<FieldError>> {
    let place = Pointer::root().key(field).key("values");
    let numbers = |usual: Vec<u64>| match &request.values {
        Values::Numbers(given) => given.clone(),
        _ => usual,
    };
    let texts = |usual: &[&str]| match &request.values {
        Values::Texts(given) => given.clone(),
        _ => usual.iter().map(|text| (*text).to_owned()).collect(),
    };
    Ok(match request.name {
        AxisName::Tp => Axis::Tp(numbers(usual_tp(input))),
        AxisName::Pp => {
            Axis::Pp(numbers(doubling(1, input.cluster.gpus().min(input.model.layers.len() as u64))))
        }
        AxisName::Context => Axis::Context(numbers(doubling(1024, input.model.context_length))),
        AxisName::Concurrency => Axis::Concurrency(numbers(doubling(1, 1024))),
        AxisName::KvCacheDtype => Axis::KvCacheDtype(texts(&["auto", "fp8"])),
        AxisName::InterLink => Axis::InterLink(links(
            &texts(&["infiniband-ndr", "infiniband-hdr", "ethernet-100", "ethernet-25"]),
            &place,
        )?),
        AxisName::IntraLink => {
            Axis::IntraLink(links(&texts(&["nvlink5", "nvlink4", "nvlink3", "pcie5", "pcie4"]), &place)?)
        }
        AxisName::Layout => Axis::Layout(match &request.values {
            Values::Texts(given) => layouts(given, &place)?,
            _ => usual_layouts(input, USUAL_LAYOUTS),
        }),
        AxisName::Gpu => Axis::Gpu(products(&texts(&["A100", "H100", "H200", "B200"]), input, &place)?),
    })
}

/// Powers of two, the KV heads and the query heads, as far as the cluster goes: where the curve bends.
fn usual_tp(input: &PlanInput) -> Vec<u64> {
    let most = input.cluster.gpus().min(input.model.query_heads.max(1));
    let mut sizes = doubling(1, most);
    sizes.extend(
        [input.model.kv_heads, input.model.query_heads].into_iter().filter(|n| (1..=most).contains(n)),
    );
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// `first`, twice that, and so on up to `last`.
fn doubling(first: u64, last: u64) -> Vec<u64> {
    std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|n| *n <= last.max(first)).collect()
}

fn links(names: &[String], place: &Pointer) -> Result<Vec<Link>, Vec<FieldError>> {
    let catalogue = hardware::catalogue();
    let mut faults = Vec::new();
    let mut links = Vec::new();
    for (i, name) in names.iter().enumerate() {
        match catalogue.link(name) {
            Some(link) => links.push(link),
            None => faults.push(
                FieldError::at(&place.index(i), "unknown_link", format!("no link is known as `{name}`"))
                    .allowed(catalogue.link_suggestions(name))
                    .got(&Value::String(name.clone())),
            ),
        }
    }
    if faults.is_empty() { Ok(links) } else { Err(faults) }
}

/// Layouts that a sweep draws when none are named.
const USUAL_LAYOUTS: usize = 6;

fn layouts(names: &[String], place: &Pointer) -> Result<Vec<(String, Search)>, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut layouts = Vec::new();
    for (i, name) in names.iter().enumerate() {
        match sweep::layout(name) {
            Some((shape, dp)) => layouts.push((name.clone(), only(shape, dp))),
            None => faults.push(
                FieldError::at(
                    &place.index(i),
                    "unknown_layout",
                    format!("`{name}` is no layout; write the sizes, e.g. `tp=8 pp=2`"),
                )
                .got(&Value::String(name.clone())),
            ),
        }
    }
    if faults.is_empty() { Ok(layouts) } else { Err(faults) }
}

/// As many GPUs of each product as the cluster has.
fn products(
    names: &[String],
    input: &PlanInput,
    place: &Pointer,
) -> Result<Vec<(String, crate::planner::hardware::Cluster)>, Vec<FieldError>> {
    let gpus = input.cluster.gpus();
    let mut faults = Vec::new();
    let mut clusters = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let text = Value::String(format!("{gpus} x {name}"));
        match cluster::from_json(&text, &place.index(i), hardware::catalogue()) {
            Ok(cluster) => clusters.push((name.clone(), cluster)),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(clusters) } else { Err(faults) }
}
