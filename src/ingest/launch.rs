//! The JSON of `POST /v1/launches`: a plan question, which of its layouts, and the platforms to write it for.

use serde_json::Value;

use super::fields::{Fields, short_text, wrong_type};
use super::json::Document;
use super::request::{PlanRequest, read_request};
use super::{FieldError, Pointer, bounds};
use crate::planner::input::Search;

/// Platforms in one question, at most.
pub const MOST_PLATFORMS: usize = 32;

/// The question.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchAsk {
    pub request: PlanRequest,
    /// Place of the layout in the answer to the request, from 1.
    pub rank: u64,
    /// True when a layout is given by its sizes.
    pub layout_given: bool,
    /// A pool of prefill workers; the layout is then that of the decode workers.
    pub prefill: Option<PrefillAsk>,
    /// Names of platforms, as they came.
    pub platforms: Vec<String>,
    /// What the caller chooses about the files.
    pub name: Option<String>,
    pub image: Option<String>,
    pub gpu_resource: Option<String>,
    pub rdma_resource: Option<String>,
    pub queue: Option<String>,
}

/// Prefill workers beside the layout.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefillAsk {
    /// Their sizes, as a search that finds no other.
    pub search: Search,
    /// What carries the cache, e.g. `nixl`; the engine's usual one otherwise.
    pub connector: Option<String>,
}

impl LaunchAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults.
    pub fn read(document: &Document) -> Result<Self, Vec<FieldError>> {
        let mut faults = document.duplicates.clone();
        let mut ask = None;
        if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
            ask = read_ask(&mut fields);
            fields.finish();
        }
        match ask {
            Some(ask) if faults.is_empty() => Ok(ask),
            _ => Err(faults),
        }
    }
}

fn read_ask(fields: &mut Fields<'_, '_>) -> Option<LaunchAsk> {
    let request = read_request(fields);
    let prefill = read_prefill(fields);
    let sizes = read_layout(fields, prefill.is_some());
    if prefill.is_some() && sizes.is_none() {
        fields.refuse(
            "layout",
            "missing",
            "`prefill` needs `layout`, the sizes of the decode workers beside it",
        );
    }
    let rank = fields.whole("rank", bounds::LIMIT);
    if rank.is_some() && sizes.is_some() {
        fields.refuse("rank", "conflict", "`rank` and `layout` both choose a layout; give one");
    }
    let platforms = read_platforms(fields);
    let mut text = |name| fields.text(name, bounds::NAME_CHARS).map(str::to_owned);
    let (name, image) = (text("name"), text("image"));
    let (gpu_resource, rdma_resource, queue) = (text("gpu_resource"), text("rdma_resource"), text("queue"));
    let mut request = request?;
    let layout_given = sizes.is_some();
    if let Some(sizes) = sizes {
        request.search = sizes;
    }
    let rank = rank.unwrap_or(1);
    request.limit = usize::try_from(rank).ok()?;
    Some(LaunchAsk {
        request,
        rank,
        layout_given,
        prefill,
        platforms,
        name,
        image,
        gpu_resource,
        rdma_resource,
        queue,
    })
}

/// A layout by its sizes, as a search that finds no other. Sizes that are left out are 1, replicas any number; of a pair
/// replicas are 1 too, since two numbers that fill a cluster have no best.
fn read_layout(fields: &mut Fields<'_, '_>, of_a_pair: bool) -> Option<Search> {
    let mut given = fields.object("layout")?;
    let mut search = read_sizes(&mut given);
    given.finish();
    if of_a_pair {
        search.dp = search.dp.or(Some(vec![1]));
    }
    Some(search)
}

fn read_prefill(fields: &mut Fields<'_, '_>) -> Option<PrefillAsk> {
    let mut given = fields.object("prefill")?;
    let mut search = read_sizes(&mut given);
    search.dp = search.dp.or(Some(vec![1]));
    let connector = given.text("connector", bounds::NAME_CHARS).map(str::to_ascii_lowercase);
    given.finish();
    Some(PrefillAsk { search, connector })
}

fn read_sizes(given: &mut Fields<'_, '_>) -> Search {
    let mut size = |name| given.whole(name, bounds::PARALLEL);
    let (tp, pp, attention_dp, dcp) = (size("tp"), size("pp"), size("attention_dp"), size("dcp"));
    let (dp, ep) = (size("dp"), size("ep"));
    let one = |size: Option<u64>| Some(vec![size.unwrap_or(1)]);
    Search {
        tp: one(tp),
        pp: one(pp),
        dp: dp.map(|dp| vec![dp]),
        ep: one(ep),
        attention_dp: one(attention_dp),
        dcp: one(dcp),
        allow_idle_gpus: true,
    }
}

fn read_platforms(fields: &mut Fields<'_, '_>) -> Vec<String> {
    let place = fields.place_of("platforms");
    match fields.raw("platforms") {
        None => vec!["command".to_owned()],
        Some(Value::Array(items)) if !items.is_empty() && items.len() <= MOST_PLATFORMS => {
            let mut names = Vec::new();
            for (i, item) in items.iter().enumerate() {
                match short_text(item, &place.index(i), bounds::NAME_CHARS) {
                    Ok(name) => names.push(name.trim().to_owned()),
                    Err(fault) => fields.push(fault),
                }
            }
            names
        }
        Some(Value::Array(items)) => {
            let detail = format!("expected 1 to {MOST_PLATFORMS} platforms, got {}", items.len());
            fields.push(FieldError::at(&place, "out_of_range", detail));
            Vec::new()
        }
        Some(other) => {
            fields.push(wrong_type(&place, other, "a list of platforms, e.g. [\"leader-worker-set\"]"));
            Vec::new()
        }
    }
}
