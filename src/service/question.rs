//! A question to an answer: look up model, cluster and engines, plan, and say under which id the plan is kept.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{AnswerBytes, ServiceError, beyond};
use crate::catalogue::models::{self, NotFound};
use crate::catalogue::{self, calibration, hardware};
use crate::ingest::config_json::{self, ReadModel, WhatIf};
use crate::ingest::fields::hint;
use crate::ingest::request::{ModelRequest, ModelSource, PlanRequest};
use crate::ingest::{FieldError, Pointer, cluster};
use crate::launch;
use crate::planner;
use crate::planner::engine::formats::{self, NoMethod};
use crate::planner::engine::{self, EngineRules};
use crate::planner::hardware::Cluster;
use crate::planner::input::{Beyond, EngineSettings, PlanInput};
use crate::planner::model::ModelSpec;
use crate::planner::plan::{ClusterSummary, Plan, Warning};

/// What the figures of an answer rest on. A change of figures changes one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Versions {
    /// Version of the planner: its formulas and rules.
    pub planner: String,
    /// Version of the embedded data on hardware and models.
    pub catalogue: String,
    /// The engines whose rules were used, with the release they were read from.
    pub engine_rules: String,
    /// Version of the fitted constants.
    pub calibration: String,
}

/// A plan with the id that it is kept under.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PlanAnswer {
    /// Hash of everything else in this answer: equal answers have equal ids, and an id never changes its meaning.
    pub plan_id: String,
    pub versions: Versions,
    #[serde(flatten)]
    pub plan: Plan,
}

/// What the id of an answer is the hash of.
#[derive(Serialize)]
struct Content<'a> {
    versions: &'a Versions,
    #[serde(flatten)]
    plan: &'a Plan,
}

impl PlanAnswer {
    /// Give a plan its id; its JSON comes with it, since the id is the hash of the JSON.
    ///
    /// # Errors
    /// [`ServiceError::Internal`] when the plan cannot be written as JSON.
    pub fn of(plan: Plan) -> Result<(Self, AnswerBytes), ServiceError> {
        let versions = Versions::current(&plan);
        let expected = ROOM + plan.layouts.len() * ROOM_OF_LAYOUT;
        let mut json = Vec::with_capacity(expected);
        json.extend_from_slice(ID_OPENS);
        let id_at = json.len();
        json.extend_from_slice(&[b'0'; PLAN_ID_DIGITS]);
        json.push(b'"');
        let content_at = json.len();
        serde_json::to_writer(&mut json, &Content { versions: &versions, plan: &plan })
            .map_err(|e| ServiceError::Internal(format!("a plan cannot be written: {e}")))?;
        let mut plan_id = hex::encode(Sha256::digest(&json[content_at..]));
        plan_id.truncate(PLAN_ID_DIGITS);
        // the content becomes the rest of an object that begins with the id
        json[content_at] = b',';
        json[id_at..id_at + PLAN_ID_DIGITS].copy_from_slice(plan_id.as_bytes());
        Ok((Self { plan_id, versions, plan }, json.into_boxed_slice().into()))
    }
}

/// How an answer begins.
const ID_OPENS: &[u8] = b"{\"plan_id\":\"";
/// Bytes that an answer usually takes beside its layouts, and for each of them.
const ROOM: usize = 64 << 10;
const ROOM_OF_LAYOUT: usize = 8 << 10;

/// Hexadecimal digits of a plan id: 128 bits of SHA-256.
pub const PLAN_ID_DIGITS: usize = 32;

impl Versions {
    fn current(plan: &Plan) -> Self {
        Self::with(plan.request.engines.iter().map(|e| format!("{} {}", e.name, e.version)))
    }

    /// What the answer to a question that was looked up rests on.
    pub(super) fn of(input: &PlanInput) -> Self {
        let rules = input.engines.iter().filter_map(|e| engine::rules(&e.name, &e.version).ok());
        Self::with(rules.map(|rules| format!("{} {}", rules.name(), rules.version())))
    }

    fn with(engines: impl Iterator<Item = String>) -> Self {
        let mut engines: Vec<String> = engines.collect();
        engines.dedup();
        Self {
            planner: env!("CARGO_PKG_VERSION").to_owned(),
            catalogue: catalogue::VERSION.to_owned(),
            engine_rules: engines.join(", "),
            calibration: calibration::calibration().version.clone(),
        }
    }
}

/// Answer a question from the catalogue and the question itself: no database, no network, no clock.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub fn plan_offline(request: &PlanRequest) -> Result<PlanAnswer, ServiceError> {
    Ok(PlanAnswer::of(asked_offline(request)?.plan())?.0)
}

/// The question of [`plan_offline`] with everything looked up.
pub(super) fn asked_offline(request: &PlanRequest) -> Result<Asked, ServiceError> {
    let model = match &request.model.source {
        ModelSource::Config { config, name } => read_config(name, config, None, &request.model),
        ModelSource::Id { id, .. } => from_catalogue(id, &request.model),
    };
    asked(request, model)
}

/// A model as a question means it; cheap to clone.
#[derive(Clone)]
pub(super) struct ResolvedModel {
    pub spec: Arc<ModelSpec>,
    /// What its reader did not use.
    pub unread: Arc<[String]>,
    /// `catalogue`, `request`, `stored`.
    pub source: &'static str,
}

impl ResolvedModel {
    pub fn of(read: ReadModel, source: &'static str) -> Self {
        let unread = read.diagnostics.into_iter().map(|d| d.message).collect();
        Self { spec: Arc::new(read.spec), unread, source }
    }
}

/// A question with everything looked up.
pub(super) struct Asked {
    pub input: PlanInput,
    /// Where the model's configuration came from.
    pub source: &'static str,
    /// What its reader did not use.
    pub notes: Arc<[String]>,
}

impl Asked {
    /// The plan, with the model's source and the commands that start its layouts.
    pub fn plan(&self) -> Plan {
        let mut plan = planner::plan(&self.input);
        self.source.clone_into(&mut plan.model.source);
        plan.model.notes.extend(self.notes.iter().cloned());
        launch::attach(&self.input, &mut plan);
        plan
    }
}

/// Look up cluster and engines for a model that was looked up. All faults are told together.
pub(super) fn asked(
    request: &PlanRequest,
    model: Result<ResolvedModel, Vec<FieldError>>,
) -> Result<Asked, ServiceError> {
    let place = Pointer::root().key("cluster");
    let cluster = cluster::from_json(&request.cluster, &place, hardware::catalogue());
    let engines = known_engines(&request.engines, request.engines_listed).and_then(|engines| {
        let faults =
            if request.of_a_command { Vec::new() } else { unknown_words(&engines, request.engines_listed) };
        if faults.is_empty() { Ok(engines) } else { Err(faults) }
    });
    let (model, cluster, engines) = match (model, cluster, engines) {
        (Ok(model), Ok(cluster), Ok(engines)) => (model, cluster, engines),
        (model, cluster, engines) => {
            let faults = [model.err(), cluster.err(), engines.err()].into_iter().flatten().flatten();
            return Err(ServiceError::Invalid(faults.collect()));
        }
    };
    let faults = quantisation_faults(request, &engines, &model.spec);
    if !faults.is_empty() {
        return Err(ServiceError::Invalid(faults));
    }
    let beyond =
        if request.advice_in_detail { beyond::of(request, &model.spec, &cluster) } else { Beyond::default() };
    let input = PlanInput {
        beyond: Arc::new(beyond),
        model: model.spec,
        cluster,
        engines,
        workload: request.workload.clone(),
        slo: request.slo,
        objective: request.objective,
        search: request.search.clone(),
        overrides: request.overrides.clone(),
        latency_model: request.latency_model,
        calibration: calibration::calibration(),
        memory_corrections: calibration::memory_corrections(),
        limit: request.limit,
    };
    Ok(Asked { input, source: model.source, notes: model.unread })
}

/// Plan for a model that was looked up.
pub(super) fn answer(
    request: &PlanRequest,
    model: Result<ResolvedModel, Vec<FieldError>>,
) -> Result<(PlanAnswer, AnswerBytes), ServiceError> {
    PlanAnswer::of(asked(request, model)?.plan())
}

/// The engines with the version whose rules apply.
pub(super) fn known_engines(
    asked: &[EngineSettings],
    listed: bool,
) -> Result<Vec<EngineSettings>, Vec<FieldError>> {
    let place = Pointer::root().key("engine");
    let mut faults = Vec::new();
    let mut engines = Vec::with_capacity(asked.len());
    for (i, settings) in asked.iter().enumerate() {
        let place = if listed { place.index(i) } else { place.clone() };
        match engine::rules(&settings.name, &settings.version) {
            Ok(rules) => {
                engines.push(EngineSettings {
                    name: rules.name().to_owned(),
                    version: rules.version().to_owned(),
                    ..settings.clone()
                });
            }
            Err(unknown) => {
                let names: Vec<&str> = engine::known().map(|(name, _)| name).collect();
                let known_name = engine::rules(&settings.name, "").is_ok();
                let (field, got) =
                    if known_name { ("version", &settings.version) } else { ("name", &settings.name) };
                let hint = if known_name { String::new() } else { hint(&settings.name, &names) };
                let fault = FieldError::at(&place.key(field), "unknown_engine", format!("{unknown}{hint}"))
                    .allowed(unknown.known.clone())
                    .got(&Value::String(got.clone()));
                faults.push(fault);
            }
        }
    }
    if faults.is_empty() { Ok(engines) } else { Err(faults) }
}

/// Words of the settings that their engines refuse whatever the model is.
pub(super) fn unknown_words(engines: &[EngineSettings], listed: bool) -> Vec<FieldError> {
    let place = Pointer::root().key("engine");
    let of = |(i, settings): (usize, &EngineSettings)| {
        let place = if listed { place.index(i) } else { place.clone() };
        let rules = engine::rules(&settings.name, &settings.version).ok()?;
        Some(unknown_words_of(rules, settings, &place))
    };
    engines.iter().enumerate().filter_map(of).flatten().collect()
}

fn unknown_words_of(rules: &dyn EngineRules, settings: &EngineSettings, place: &Pointer) -> Vec<FieldError> {
    let (name, version) = (rules.name(), rules.version());
    let mut faults = Vec::new();
    let cache = &settings.kv_cache_dtype;
    if let Some(known) = formats::unknown_cache(name, version, cache) {
        let detail = format!("{name} {version} has no such kv_cache_dtype{}", hint(cache, &known));
        faults.push(
            FieldError::at(&place.key("kv_cache_dtype"), "not_allowed", detail)
                .allowed(known)
                .got(&Value::String(cache.clone())),
        );
    }
    let quantization = settings.quantization.as_deref();
    if let Some((text, NoMethod::Unknown { known, .. })) =
        quantization.and_then(|text| Some((text, formats::check(name, version, text, text).err()?)))
    {
        let detail = format!("{name} {version} has no such quantization{}", hint(text, &known));
        faults.push(
            FieldError::at(&place.key("quantization"), "not_allowed", detail)
                .allowed(known)
                .got(&Value::String(text.to_owned())),
        );
    }
    faults
}

/// Faults of `quantization` that depend on how the checkpoint is stored. Weights asked for as if they were stored otherwise
/// are no checkpoint that an engine could refuse.
fn quantisation_faults(
    request: &PlanRequest,
    engines: &[EngineSettings],
    model: &ModelSpec,
) -> Vec<FieldError> {
    if request.model.weights.is_some() || request.of_a_command {
        return Vec::new();
    }
    let engine = Pointer::root().key("engine");
    let stored = &model.quantization_method;
    let mut faults = Vec::new();
    for (i, settings) in engines.iter().enumerate() {
        let place = if request.engines_listed { engine.index(i) } else { engine.clone() };
        let made = settings.made_on_load();
        let text = settings.quantization.as_deref();
        let judged = text.map_or(Ok(()), |text| {
            let rules = engine::rules(&settings.name, &settings.version);
            rules.map_or(Ok(()), |rules| formats::check(rules.name(), rules.version(), text, stored))
        });
        let fault = match judged {
            Err(no) => Some((no.code(), no.to_string())),
            Ok(()) if stored.is_empty() && made != request.model.quantized_on_load => Some((
                "conflict",
                "one question loads its checkpoint in one way: give every engine a quantization that makes the same of it, \
                 or ask for each engine apart"
                    .to_owned(),
            )),
            Ok(()) => None,
        };
        if let Some((code, detail)) = fault {
            let fault = FieldError::at(&place.key("quantization"), code, detail);
            faults.push(match text {
                Some(text) => fault.got(&Value::String(text.to_owned())),
                None => fault,
            });
        }
    }
    faults
}

/// A model of the catalogue, by id or alias.
pub(super) fn from_catalogue(id: &str, request: &ModelRequest) -> Result<ResolvedModel, Vec<FieldError>> {
    let entry = models::find(id).map_err(|unknown| vec![unknown_model(&unknown)])?;
    let (config, side) = entry.to_read();
    let mut read = read_with(entry.id, &config, side.as_ref(), request)?;
    read.spec.notes.extend(entry.note());
    Ok(ResolvedModel::of(read, "catalogue"))
}

/// A configuration that the caller sent.
pub(super) fn read_config(
    name: &str,
    config: &Value,
    side: Option<&Value>,
    request: &ModelRequest,
) -> Result<ResolvedModel, Vec<FieldError>> {
    let read = read_with(name, config, side, request)?;
    Ok(ResolvedModel::of(read, "request"))
}

/// Read a configuration, changed as the request asks.
pub(super) fn read_with(
    name: &str,
    config: &Value,
    side: Option<&Value>,
    request: &ModelRequest,
) -> Result<ReadModel, Vec<FieldError>> {
    let side = request.quantization_config.as_ref().or(side);
    let on_load = request.quantized_on_load.filter(|_| side.is_none() && !declares_quantization(config));
    let what_if = WhatIf {
        weights: request.weights.as_deref().or(on_load),
        overrides: Some(&request.overrides),
        weights_bytes: request.weights_bytes,
    };
    let place = request.config_place();
    config_json::read_as(name, config, side, what_if)
        .map_err(|error| error.faults.into_iter().map(|f| f.within(&place)).collect())
}

/// True when the checkpoint is stored quantised already: the engine's setting then only confirms it.
fn declares_quantization(config: &Value) -> bool {
    let declares = |part: &Value| part.get("quantization_config").is_some_and(|block| !block.is_null());
    declares(config) || config.get("text_config").is_some_and(declares)
}

/// The fault of an id that nobody knows.
fn unknown_model(unknown: &NotFound) -> FieldError {
    let place = Pointer::root().key("model");
    let mut detail = unknown.to_string();
    if unknown.suggestions.is_empty() {
        detail.push_str("; GET /v1/models lists what is known, or give its config.json as `config`");
    }
    FieldError::at(&place, "unknown_model", detail)
        .allowed(unknown.suggestions.iter().copied())
        .got(&Value::String(unknown.query.clone()))
}

/// A cluster as it was understood.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Understood {
    /// What it was recognised as: `text`, `nvidia_smi_topology`, `amd_smi_topology`, `nvidia_smi_csv`, `nvidia_smi_xml`, `kubernetes_nodes`,
    /// `slurm`, `ray_resources`, `instance_list`, `node_pools`.
    pub format: String,
    pub cluster: ClusterSummary,
    /// What was assumed to read it.
    pub assumptions: Vec<ClusterAssumption>,
    pub warnings: Vec<Warning>,
}

/// A default taken while reading a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClusterAssumption {
    pub name: String,
    pub value: String,
    pub source: String,
}

/// Read a cluster and say what was understood. Beside a text, `gpu` names the product where its format does not, and
/// `nodes` says how many such nodes there are where it shows one.
///
/// # Errors
/// [`ServiceError::Invalid`] with pointers into the document in which the value stands at `place`.
pub fn parse_cluster(
    value: &Value,
    gpu: Option<&str>,
    nodes: Option<u64>,
    place: &Pointer,
) -> Result<Understood, ServiceError> {
    let (format, cluster) =
        cluster::read(value, gpu, nodes, place, hardware::catalogue()).map_err(ServiceError::Invalid)?;
    Ok(understood(format, &cluster))
}

/// What was assumed to read a cluster.
pub(super) fn assumptions_of(cluster: &Cluster) -> Vec<ClusterAssumption> {
    cluster
        .assumed
        .iter()
        .map(|a| ClusterAssumption { name: a.name.clone(), value: a.value.clone(), source: a.source.clone() })
        .collect()
}

fn understood(format: &str, cluster: &Cluster) -> Understood {
    Understood {
        format: format.to_owned(),
        cluster: planner::show::cluster(cluster),
        assumptions: assumptions_of(cluster),
        warnings: cluster
            .warnings
            .iter()
            .map(|w| Warning { code: w.code.clone(), message: w.message.clone() })
            .collect(),
    }
}
