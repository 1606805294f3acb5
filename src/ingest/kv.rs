//! The JSON of `POST /v1/kv/*`: a plan question about model, cluster and engine, and what is asked of its cache.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::json::Document;
use super::request::PlanRequest;
use super::{FieldError, Pointer, bounds};
use crate::planner::input::LatencyModel;
use crate::planner::kv::handover::Side;
use crate::planner::kv::paths::{Path, PathKind};
use crate::planner::kv::tiers::Tier;
use crate::planner::layout::Shape;
use crate::planner::units::Bytes;

/// Layouts, paths, tiers or lengths in a question, at most.
const MOST: usize = 64;

/// The cluster of a question that names none: one GPU that all figures per token are the same on.
const NO_CLUSTER: &str = "H100";

/// What every question about a cache has in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub question: PlanRequest,
    /// False: the cluster was made up to fit the layout, since none was named.
    pub cluster_given: bool,
    /// `None`: the best layout of the cluster.
    pub layout: Option<(Shape, u64)>,
}

/// How computing and fetching are counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    pub parameters: Option<f64>,
    pub achieved_flops: Option<f64>,
    pub with_attention: bool,
    pub broadcast: Option<bool>,
}

/// `POST /v1/kv/prefixes`.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixesAsk {
    pub subject: Subject,
    pub work: Work,
    pub prefix_tokens: u64,
    pub prefixes: u64,
    pub uses: f64,
    pub popularity: f64,
    pub store: Option<Path>,
}

/// `POST /v1/kv/moves`.
#[derive(Debug, Clone, PartialEq)]
pub struct MovesAsk {
    pub subject: Subject,
    pub work: Work,
    pub tokens: u64,
    /// Empty: those of the cluster.
    pub paths: Vec<Path>,
    pub tiers: Vec<Tier>,
}

/// `POST /v1/kv/handovers`.
#[derive(Debug, Clone, PartialEq)]
pub struct HandoversAsk {
    /// `None` when no model was named: only the sides are compared.
    pub subject: Option<Subject>,
    pub work: Work,
    pub producer: Side,
    pub consumer: Side,
    pub lengths: Vec<(u64, u64)>,
    pub hit_rate: f64,
    pub path: Option<Path>,
}

/// `POST /v1/kv/sequences`.
#[derive(Debug, Clone, PartialEq)]
pub struct SequencesAsk {
    pub subject: Subject,
    pub layouts: Vec<(Shape, u64)>,
}

type Faults = Vec<FieldError>;

impl PrefixesAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults.
    pub fn read(document: &Document) -> Result<Self, Faults> {
        read(document, |fields| {
            let work = read_work(fields);
            let tokens = tokens(fields)?;
            let replicas = fields.whole("replicas", bounds::PARALLEL);
            let attention_dp = fields.whole("attention_dp", bounds::PARALLEL);
            let layout = read_layout(fields, "layout");
            let own = Shape { attention_dp: attention_dp.unwrap_or(1), ..Shape::new(1, 1) };
            let layout = match (layout, replicas.is_some() || attention_dp.is_some()) {
                (Some((shape, dp)), _) => Some((
                    Shape { attention_dp: attention_dp.unwrap_or(shape.attention_dp), ..shape },
                    replicas.unwrap_or(dp),
                )),
                (None, true) => Some((own, replicas.unwrap_or(1))),
                (None, false) => None,
            };
            let prefixes = fields.whole("prefixes", 1..=1_000_000).unwrap_or(1);
            let uses = fields.number("uses", 1.0..=1e9);
            let popularity = fields.number("popularity", 0.0..=1.0).unwrap_or(0.1);
            let store = read_path(fields, "store");
            Some(move |subject: Subject| Self {
                subject: Subject { layout, ..subject },
                work,
                prefix_tokens: tokens,
                prefixes,
                uses: uses.unwrap_or(20.0),
                popularity,
                store,
            })
        })
    }
}

impl MovesAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults.
    pub fn read(document: &Document) -> Result<Self, Faults> {
        read(document, |fields| {
            let work = read_work(fields);
            let tokens = tokens(fields)?;
            let layout = read_layout(fields, "layout");
            let mut paths = read_list(fields, "paths", read_one_path);
            if let Some(rate) = fields.number("bandwidth_bytes_per_s", 1.0..=1e18) {
                let fixed_ms = fields.number("fixed_ms", 0.0..=1e6).unwrap_or(0.0);
                paths.push(given_path("given", rate, fixed_ms));
            }
            let tiers = read_list(fields, "tiers", |fields| {
                let level = fields.text("level", bounds::NAME_CHARS).unwrap_or("host").to_owned();
                let bytes_per_node = fields.whole("bytes_per_node", bounds::BYTES)?;
                let shared = fields.flag("shared").unwrap_or(false);
                Some(Tier { level, bytes_per_node: Bytes(bytes_per_node), shared })
            });
            Some(move |subject: Subject| Self {
                subject: Subject { layout, ..subject },
                work,
                tokens,
                paths,
                tiers,
            })
        })
    }
}

impl SequencesAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults.
    pub fn read(document: &Document) -> Result<Self, Faults> {
        read(document, |fields| {
            let layouts = read_list(fields, "compare", |fields| Some(sizes(fields)));
            let layout = read_layout(fields, "layout");
            Some(move |subject: Subject| Self {
                layouts: layouts.into_iter().chain(layout).collect(),
                subject,
            })
        })
    }
}

impl HandoversAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults.
    pub fn read(document: &Document) -> Result<Self, Faults> {
        let has_model = document.value.get("model").is_some();
        let mut own = None;
        let outcome = read(document, |fields| {
            let work = read_work(fields);
            let engine = match fields.raw("engine") {
                Some(Value::Object(engine)) => engine.get("name").and_then(Value::as_str).unwrap_or("vllm"),
                Some(Value::String(name)) => name,
                _ => "vllm",
            };
            let producer = read_side(fields, "producer", engine)?;
            let consumer = read_side(fields, "consumer", engine)?;
            let input = fields
                .whole("input_tokens", bounds::TOKENS)
                .or(fields.whole("prefix_tokens", bounds::TOKENS));
            let output = fields.whole("output_tokens", bounds::TOKENS);
            let mut lengths = read_list(fields, "lengths", |fields| {
                Some((
                    fields.whole("input_tokens", bounds::TOKENS)?,
                    fields.whole("output_tokens", bounds::TOKENS)?,
                ))
            });
            if let Some(input) = input {
                lengths.insert(0, (input, output.unwrap_or(super::request::DEFAULT_OUTPUT_TOKENS)));
            }
            let hit_rate = fields.number("hit_rate", 0.0..=1.0).unwrap_or(0.0);
            let mut path = read_path(fields, "path");
            if let Some(rate) = fields.number("bandwidth_bytes_per_s", 1.0..=1e18) {
                path = Some(given_path("given", rate, fields.number("fixed_ms", 0.0..=1e6).unwrap_or(0.0)));
            }
            let ask = Self { subject: None, work, producer, consumer, lengths, hit_rate, path };
            own = Some(ask.clone());
            Some(move |subject: Subject| Self { subject: Some(subject), ..ask })
        });
        match (outcome, own) {
            (Ok(ask), _) => Ok(ask),
            // without a model the sides alone can be compared: the missing model is no fault then
            (Err(faults), Some(ask)) if !has_model => {
                let left: Faults = faults.into_iter().filter(|f| f.pointer != "#/model").collect();
                if left.is_empty() { Ok(ask) } else { Err(left) }
            }
            (Err(faults), _) => Err(faults),
        }
    }
}

/// Read our own fields, and hand the others on as a plan question.
fn read<T, F>(document: &Document, own: impl FnOnce(&mut Fields<'_, '_>) -> Option<F>) -> Result<T, Faults>
where
    F: FnOnce(Subject) -> T,
{
    let mut faults = document.duplicates.clone();
    let mut rest = Value::Null;
    let mut build = None;
    let mut cluster_given = false;
    if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
        build = own(&mut fields);
        let taken: Vec<&'static str> = fields.known().to_vec();
        let object = document.value.as_object().cloned().unwrap_or_default();
        let layout_gpus = gpus_of(&document.value);
        let mut question: Map<String, Value> = object
            .into_iter()
            .filter(|(key, _)| !taken.contains(&key.as_str()) || SHARED.contains(&key.as_str()))
            .collect();
        if let Some(Value::String(name)) = question.get("engine").cloned() {
            question.insert("engine".to_owned(), json!({ "name": name }));
        }
        cluster_given = question.contains_key("cluster");
        if !cluster_given {
            let text =
                if layout_gpus > 1 { format!("{layout_gpus}x {NO_CLUSTER}") } else { NO_CLUSTER.to_owned() };
            question.insert("cluster".to_owned(), Value::String(text));
        }
        rest = Value::Object(question);
    }
    let question = match rest {
        Value::Null => None,
        rest => PlanRequest::read(&rest).map_err(|found| faults.extend(found)).ok(),
    };
    match (build, question) {
        (Some(build), Some(question)) if faults.is_empty() => {
            Ok(build(Subject { question, cluster_given, layout: None }))
        }
        _ => Err(faults),
    }
}

/// Fields that are ours and the plan question's.
const SHARED: &[&str] = &["engine", "latency_model", "assumptions"];

/// GPUs that the layouts of a question need, for a cluster that nobody named.
fn gpus_of(value: &Value) -> u64 {
    let of = |layout: &Value| {
        ["tp", "pp", "dp", "attention_dp"]
            .iter()
            .fold(1_u64, |all, key| all.saturating_mul(layout.get(key).and_then(Value::as_u64).unwrap_or(1)))
    };
    let layout = value.get("layout").map_or(1, of);
    let listed =
        value.get("compare").and_then(Value::as_array).map_or(1, |l| l.iter().map(of).max().unwrap_or(1));
    let sides = ["producer", "consumer"].iter().filter_map(|s| value.get(*s)).map(of).max().unwrap_or(1);
    layout.max(listed).max(sides).clamp(1, 4096)
}

fn tokens(fields: &mut Fields<'_, '_>) -> Option<u64> {
    let prefix = fields.whole("prefix_tokens", bounds::TOKENS);
    let plain = fields.whole("tokens", bounds::TOKENS);
    if prefix.is_none()
        && plain.is_none()
        && fields.raw("prefix_tokens").is_none()
        && fields.raw("tokens").is_none()
    {
        fields.refuse("prefix_tokens", "missing", "`prefix_tokens` is required");
    }
    prefix.or(plain)
}

fn read_work(fields: &mut Fields<'_, '_>) -> Work {
    let parameters = fields.number("parameters", 1.0..=1e15);
    let plain = fields.choice(
        "latency_model",
        &[("roofline", LatencyModel::Roofline), ("calibrated", LatencyModel::Calibrated)],
    ) == Some(LatencyModel::Roofline);
    Work {
        // 2 operations a parameter is a plain count: attention is left out of it unless it is asked for
        with_attention: fields.flag("attention").unwrap_or(parameters.is_none() && !plain),
        parameters,
        achieved_flops: fields.number("achieved_flops", 1.0..=1e24),
        broadcast: fields.flag("broadcast"),
    }
}

fn read_layout(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<(Shape, u64)> {
    let mut layout = fields.object(name)?;
    let read = sizes(&mut layout);
    layout.finish();
    Some(read)
}

fn sizes(fields: &mut Fields<'_, '_>) -> (Shape, u64) {
    let mut size = |name| fields.whole(name, bounds::PARALLEL).unwrap_or(1);
    let (tp, pp, dp) = (size("tp"), size("pp"), size("dp"));
    (Shape { tp, pp, ep: size("ep"), attention_dp: size("attention_dp"), dcp: size("dcp") }, dp)
}

fn read_list<T>(
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    one: impl Fn(&mut Fields<'_, '_>) -> Option<T>,
) -> Vec<T> {
    let Some(value) = fields.raw(name) else { return Vec::new() };
    let place = fields.place_of(name);
    let items: &[Value] = match value {
        Value::Array(items) if items.len() <= MOST => items,
        _ => {
            fields.refuse(name, "wrong_type", format!("expected an array of at most {MOST} objects"));
            return Vec::new();
        }
    };
    let mut read = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if let Some(mut fields) = fields.nested(item, place.index(i)) {
            read.extend(one(&mut fields));
            fields.finish();
        }
    }
    read
}

fn read_path(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<Path> {
    let mut path = fields.object(name)?;
    let read = read_one_path(&mut path);
    path.finish();
    read
}

fn read_one_path(fields: &mut Fields<'_, '_>) -> Option<Path> {
    let name = fields.text("name", bounds::NAME_CHARS).unwrap_or("given").to_owned();
    let fixed_ms = fields.number("fixed_ms", 0.0..=1e6).unwrap_or(0.0);
    let rate = fields.number("bandwidth_bytes_per_s", 1.0..=1e18);
    if rate.is_none() && !fields.has("bandwidth_bytes_per_s") {
        fields.refuse("bandwidth_bytes_per_s", "missing", "`bandwidth_bytes_per_s` is required");
    }
    Some(given_path(&name, rate?, fixed_ms))
}

fn given_path(name: &str, bytes_per_s: f64, fixed_ms: f64) -> Path {
    Path {
        kind: PathKind::Given,
        name: name.to_owned(),
        bytes_per_s,
        fixed_s: fixed_ms * 1e-3,
        range: (1.0, 1.0),
        source: "given in the request".to_owned(),
    }
}

fn read_side(fields: &mut Fields<'_, '_>, name: &'static str, engine: &str) -> Option<Side> {
    fields.required(name)?;
    let mut side = fields.object(name)?;
    let mut text = |key| side.text(key, bounds::NAME_CHARS).unwrap_or_default().trim().to_ascii_lowercase();
    let (own, version, connector, kv_dtype) =
        (text("engine"), text("version"), text("connector"), text("kv_cache_dtype"));
    let kv_dtype = if kv_dtype.is_empty() { text("kv_dtype") } else { kv_dtype };
    let mut size = |key| side.whole(key, bounds::PARALLEL).unwrap_or(1);
    let (tp, pp, attention_dp, dcp) = (size("tp"), size("pp"), size("attention_dp"), size("dcp"));
    let page_size =
        side.whole("page_size", bounds::BLOCK_SIZE).or(side.whole("block_size", bounds::BLOCK_SIZE));
    side.finish();
    let engine = if own.is_empty() { engine.to_ascii_lowercase() } else { own };
    let engine = match engine.as_str() {
        "trtllm" | "trt-llm" | "tensorrt_llm" => "tensorrt-llm".to_owned(),
        _ => engine,
    };
    Some(Side { engine, version, connector, tp, pp, attention_dp, dcp, page_size, kv_dtype })
}
