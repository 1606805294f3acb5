//! After a start: what the engine's log says beside what was predicted, item by item, with the likely cause.
//!
//! [`stored`] keeps what was compared, [`residuals`] sums over what is kept.

pub mod residuals;
pub mod stored;

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ServiceError;
use super::checks::quantised_copy;
use super::question::{self, Asked};
use crate::catalogue::calibration;
use crate::ingest::log::{self, Figure, Observed, Outcome};
use crate::ingest::request::{ModelRequest, ModelSource, PlanRequest};
use crate::planner::input::{OverrideValue, PlanInput};
use crate::planner::layout::Shape;
use crate::planner::layout::sizes;
use crate::planner::plan::{Plan, RankedLayout};
use crate::planner::units::Bytes;

const GIB: f64 = 1_073_741_824.0;

/// The longest prompts that vLLM's V0 took whole by default (`EngineArgs.create_engine_config`, 0.6).
const V0_WHOLE_PROMPTS: u64 = 32_768;

/// A ratio further from 1 than this is a difference worth a cause.
const AGREES: f64 = 0.05;

/// A start-up beside its prediction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ObservationAnswer {
    /// Where it is kept; null when it is not.
    pub id: Option<String>,
    /// True when it is in the database.
    pub stored: bool,
    /// Why it is not kept, when it is not.
    pub not_stored: Option<String>,
    /// When it was first kept, RFC 3339; null when it is not kept.
    pub observed_at: Option<String>,
    pub engine: String,
    pub version: String,
    /// vLLM: `V0` or `V1` lines.
    pub generation: Option<String>,
    pub model: Option<String>,
    /// Catalogue key of what it ran on; null when nothing said so.
    pub gpu: Option<String>,
    /// What it ran on, in the normal form of text; null when nothing said so.
    pub cluster: Option<String>,
    /// The sizes, e.g. "TP=8 × PP=2".
    pub layout: String,
    pub settings: RecoveredSettings,
    /// `started`, `refused`, `unknown`.
    pub outcome: String,
    /// The engine's refusal and its line, when it refused.
    pub refusal: Option<Refused>,
    /// What the log says beside what was predicted.
    pub items: Vec<Item>,
    /// What the rules alone predict of a GPU's memory, without a calibration of one's own; null without a prediction.
    pub memory: Option<PredictedMemory>,
    /// The likely causes of what differs, and what is worth knowing when nothing does.
    pub causes: Vec<String>,
    /// True when prediction and log agree on whether it starts; null when either says nothing.
    pub outcome_agrees: Option<bool>,
    /// Why there is no prediction, when there is none.
    pub not_predicted: Option<String>,
    /// Planner and fitted constants that predicted, e.g. "0.1.0, 2026-05-01-2301".
    pub predicted_by: Option<String>,
    pub nccl_links: Vec<String>,
    /// Rows of a topology matrix in the log, to be sent as a cluster. They are not kept.
    pub topology: Option<String>,
    pub lines: u64,
    pub lines_used: u64,
}

/// The settings that a log shows; null where it shows none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RecoveredSettings {
    pub tp: u64,
    pub pp: u64,
    pub dp: u64,
    pub attention_dp: u64,
    pub enable_expert_parallel: bool,
    pub dcp: u64,
    /// In the sense of the engine's own knob.
    pub gpu_memory_utilization: Option<f64>,
    pub kv_cache_dtype: String,
    pub max_model_len: Option<u64>,
    pub max_num_seqs: Option<u64>,
    pub max_num_batched_tokens: Option<u64>,
    pub block_size: Option<u64>,
    pub kv_cache_memory_bytes: Option<u64>,
    pub quantization: Option<String>,
    pub enable_prefix_caching: Option<bool>,
    pub enforce_eager: bool,
    pub num_speculative_tokens: u64,
}

impl RecoveredSettings {
    fn of(observed: &Observed) -> Self {
        let settings = &observed.settings;
        Self {
            tp: observed.tp,
            pp: observed.pp,
            dp: observed.dp,
            attention_dp: observed.attention_dp,
            enable_expert_parallel: observed.ep,
            dcp: observed.dcp,
            gpu_memory_utilization: settings.gpu_memory_utilization,
            kv_cache_dtype: settings.kv_cache_dtype.clone(),
            max_model_len: settings.max_model_len,
            max_num_seqs: settings.max_num_seqs,
            max_num_batched_tokens: settings.max_num_batched_tokens,
            block_size: settings.block_size,
            kv_cache_memory_bytes: settings.kv_cache_memory_bytes.map(Bytes::get),
            quantization: settings.quantization.clone(),
            enable_prefix_caching: settings.enable_prefix_caching,
            enforce_eager: settings.enforce_eager,
            num_speculative_tokens: settings.num_speculative_tokens,
        }
    }
}

/// Memory of the tightest GPU as the rules predict it: what a fleet's own calibration is learnt against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredictedMemory {
    /// The release whose rules predict.
    pub rules: String,
    pub weights_bytes: u64,
    /// Activation, runtime memory and CUDA graphs.
    pub estimated_bytes: u64,
    /// What those cannot be less than.
    pub floor_bytes: u64,
    pub kv_bytes: u64,
    pub kv_tokens: u64,
    /// The part of what is left that becomes cache.
    pub share_of_rest: f64,
}

impl PredictedMemory {
    fn of(plan: &Plan) -> Option<Self> {
        let layout = plan.layouts.first()?;
        let stage = layout.memory.stages.get(usize::try_from(layout.memory.binding_stage).ok()?)?;
        let corrected = ["activation", "runtime", "cuda_graph"];
        let estimated =
            stage.items.iter().filter(|item| corrected.contains(&item.name)).map(|item| item.bytes);
        let tokens = plan.request.engines.first()?.max_num_batched_tokens;
        Some(Self {
            rules: layout.engine.version.clone(),
            weights_bytes: stage.weights_bytes,
            estimated_bytes: estimated.fold(0, u64::saturating_add),
            floor_bytes: tokens.saturating_mul(plan.model.hidden_size).saturating_mul(2),
            kv_bytes: stage.kv_bytes,
            kv_tokens: layout.capacity.kv_tokens_per_replica,
            share_of_rest: if layout.engine.name == "tensorrt-llm" { layout.memory.utilization } else { 1.0 },
        })
    }
}

/// An engine's refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    pub code: String,
    /// The engine's own words; null in what is kept, for words of a log may hold more than they should.
    pub message: Option<String>,
    pub line: u64,
}

/// One figure, both ways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    /// `weights`, `activation`, `cuda_graph`, `kv_pool`, `kv_tokens`, `concurrency`, `bytes_per_token`.
    pub name: String,
    pub unit: String,
    pub observed: f64,
    /// Line of the log.
    pub line: u64,
    pub predicted: Option<f64>,
    /// Predicted over observed.
    pub ratio: Option<f64>,
}

/// Read a log as a stream.
///
/// # Errors
/// Those of the source.
pub fn read_log(source: impl BufRead) -> io::Result<Observed> {
    log::read(source)
}

/// Compare a log that was read with the prediction for it, from the catalogue alone. `cluster` is what it ran on.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of `base`.
pub fn compare_offline(
    observed: &Observed,
    base: &Map<String, Value>,
) -> Result<ObservationAnswer, ServiceError> {
    let asked = match request(observed, base) {
        Ok(Some(request)) => Some(match question::asked_offline(&request) {
            Err(error) => copy_of(&request, &error).map_or(Err(error), |r| question::asked_offline(&r)),
            asked => asked,
        }),
        Ok(None) => None,
        Err(error) => return Err(error),
    };
    answer(observed, asked)
}

/// The plan question behind a log; `None` when model or cluster are not known.
fn request(observed: &Observed, base: &Map<String, Value>) -> Result<Option<PlanRequest>, ServiceError> {
    let mut base = base.clone();
    if let Some(model) = observed.model.as_ref().filter(|_| !base.contains_key("model")) {
        base.insert("model".to_owned(), Value::String(model.clone()));
    }
    if !base.contains_key("model") || !base.contains_key("cluster") || observed.settings.name.is_empty() {
        return Ok(None);
    }
    let mut request = PlanRequest::read(&Value::Object(base)).map_err(ServiceError::Invalid)?;
    let mut settings = observed.settings.clone();
    // vLLM's V0 took prompts of up to 32k whole where it did not say that it cuts them
    if observed.generation == Some("V0") && settings.max_num_batched_tokens.is_none() {
        settings.max_num_batched_tokens = settings.max_model_len.filter(|n| *n <= V0_WHOLE_PROMPTS);
    }
    // a length in a log was admitted, or refused for its own reason
    settings.allow_long_max_model_len = true;
    // a log names the format of any checkpoint; only what is made of it while it loads is a setting
    request.model.quantized_on_load = settings.made_on_load();
    settings.quantization = settings.quantization.filter(|_| request.model.quantized_on_load.is_some());
    // a total that was printed is what the engine shared out
    if let Some(gib) = observed.gpu_total_gib.least().filter(|gib| *gib > 0.0)
        && !request.overrides.has("gpu_memory_bytes")
    {
        request.overrides.set("gpu_memory_bytes", OverrideValue::Number(gib * GIB));
    }
    request.engines = vec![settings];
    request.of_a_command = true;
    request.limit = 1;
    Ok(Some(request))
}

fn copy_of(request: &PlanRequest, error: &ServiceError) -> Option<PlanRequest> {
    let ServiceError::Invalid(faults) = error else { return None };
    let ModelSource::Id { id, .. } = &request.model.source else { return None };
    let (known, weights) = quantised_copy(id).filter(|_| faults.iter().all(|f| f.code == "unknown_model"))?;
    let mut model = ModelRequest::by_id(known);
    model.weights = Some(weights.to_owned());
    Some(PlanRequest { model, ..request.clone() })
}

fn answer(
    observed: &Observed,
    asked: Option<Result<Asked, ServiceError>>,
) -> Result<ObservationAnswer, ServiceError> {
    let mut not_predicted = None;
    let mut memory = None;
    let plan = match asked {
        Some(Ok(asked)) => {
            let by_rules = PlanInput { memory_corrections: [].into(), ..asked.input.clone() };
            let by_rules = Asked { input: by_rules, source: asked.source, notes: asked.notes.clone() };
            memory = PredictedMemory::of(&plan(observed, by_rules));
            Some(plan(observed, asked))
        }
        // what the log alone says stands, also where no model or rules are known
        Some(Err(ServiceError::Invalid(faults)))
            if faults.iter().all(|f| matches!(f.code, "unknown_engine" | "unknown_model")) =>
        {
            not_predicted = faults.first().map(|f| f.detail.clone());
            None
        }
        Some(Err(error)) => return Err(error),
        None => {
            not_predicted =
                Some("name the cluster (and the model, where the log has none) for a prediction".to_owned());
            None
        }
    };
    let layout = plan.as_ref().and_then(|p| p.layouts.first());
    let items = items(observed, layout);
    let refusal = match &observed.outcome {
        Outcome::Refused { code, message, line } => {
            Some(Refused { code: (*code).to_owned(), message: Some(message.clone()), line: *line })
        }
        _ => None,
    };
    // a pool that was printed was made, also where the log ends before the last line
    let started = match &observed.outcome {
        Outcome::Refused { .. } => Some(false),
        Outcome::Started => Some(true),
        Outcome::Unknown => (!observed.kv_tokens.values.is_empty()).then_some(true),
    };
    let first_pool = plan.as_ref().and_then(|p| p.cluster.node_pools.first());
    let gpu = layout.map(|l| &l.layout.gpu).or(first_pool.map(|pool| &pool.gpu));
    Ok(ObservationAnswer {
        id: None,
        stored: false,
        not_stored: None,
        observed_at: None,
        gpu: gpu.cloned(),
        cluster: plan.as_ref().map(|p| p.cluster.text.clone()),
        layout: layout_of(observed),
        settings: RecoveredSettings::of(observed),
        predicted_by: plan
            .as_ref()
            .map(|_| format!("{}, {}", env!("CARGO_PKG_VERSION"), calibration::calibration().version)),
        engine: observed.settings.name.clone(),
        version: observed.settings.version.clone(),
        generation: observed.generation.map(str::to_owned),
        model: observed.model.clone(),
        outcome: match started {
            Some(true) => "started",
            Some(false) => "refused",
            None => "unknown",
        }
        .to_owned(),
        refusal,
        causes: causes(observed, layout, &items),
        outcome_agrees: plan.as_ref().and_then(|p| Some(p.layouts.is_empty() != started?)),
        not_predicted,
        memory,
        items,
        nccl_links: observed.nccl_links.clone(),
        topology: (!observed.topology.is_empty()).then(|| observed.topology.clone()),
        lines: observed.lines,
        lines_used: observed.lines_used,
    })
}

/// The sizes of what ran, as text.
fn layout_of(observed: &Observed) -> String {
    let mut shape = Shape::new(observed.tp, observed.pp);
    shape.attention_dp = observed.attention_dp;
    shape.dcp = observed.dcp;
    let mut text = sizes(&shape);
    if observed.dp > 1 {
        text.push_str(&format!(" × DP={}", observed.dp));
    }
    if observed.ep {
        text.push_str(", experts shared");
    }
    text
}

/// The plan of exactly what ran.
fn plan(observed: &Observed, mut asked: Asked) -> Plan {
    let shares_experts = observed.settings.name == "vllm" && asked.input.model.experts.is_some();
    let groups = if shares_experts { observed.dp } else { observed.attention_dp };
    let search = &mut asked.input.search;
    search.tp = Some(vec![observed.tp]);
    search.pp = Some(vec![observed.pp]);
    search.dp = Some(vec![if shares_experts { 1 } else { observed.dp }]);
    search.attention_dp = Some(vec![groups]);
    search.ep = Some(vec![if observed.ep { observed.tp.saturating_mul(groups) } else { 1 }]);
    search.dcp = Some(vec![observed.dcp]);
    asked.plan()
}

fn items(observed: &Observed, layout: Option<&RankedLayout>) -> Vec<Item> {
    let stage = layout.and_then(|l| l.memory.stages.get(usize::try_from(l.memory.binding_stage).ok()?));
    let gib = |bytes: u64| bytes as f64 / GIB;
    let mut list = Vec::new();
    let mut add = |name: &str, unit: &str, figure: &Figure, value: Option<f64>, predicted: Option<f64>| {
        let Some(observed) = value else { return };
        list.push(Item {
            name: name.to_owned(),
            unit: unit.to_owned(),
            observed,
            line: figure.line,
            predicted,
            ratio: predicted.filter(|_| observed > 0.0).map(|p| p / observed),
        });
    };
    let o = observed;
    add("weights", "GiB", &o.weights_gib, o.weights_gib.most(), stage.map(|s| gib(s.weights_bytes)));
    add(
        "activation",
        "GiB",
        &o.activation_gib,
        o.activation_gib.most(),
        stage.map(|s| gib(s.activation_bytes)),
    );
    add(
        "cuda_graph",
        "GiB",
        &o.cuda_graph_gib,
        o.cuda_graph_gib.most(),
        stage.map(|s| gib(s.cuda_graph_bytes)),
    );
    add("kv_pool", "GiB", &o.available_kv_gib, o.available_kv_gib.least(), stage.map(|s| gib(s.kv_bytes)));
    let tokens = layout.map(|l| l.capacity.kv_tokens_per_replica as f64);
    add("kv_tokens", "tokens", &o.kv_tokens, o.kv_tokens.least(), tokens);
    let at_once = layout.map(|l| l.capacity.engine_max_concurrency);
    add("concurrency", "requests", &o.concurrency, o.concurrency.least(), at_once);
    if let (Some(pool), Some(tokens)) = (o.available_kv_gib.least(), o.kv_tokens.least().filter(|t| *t > 0.0))
    {
        let per_token = layout.map(|l| l.kv.bytes_per_token_per_gpu as f64);
        add("bytes_per_token", "B", &o.kv_tokens, Some(pool * GIB / tokens), per_token);
    }
    list
}

/// What explains the differences, one sentence each.
fn causes(observed: &Observed, layout: Option<&RankedLayout>, items: &[Item]) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(layout) = layout.filter(|l| l.kv.replication_factor > 1.0) {
        list.push(format!(
            "TP={} holds every KV head {} times: doubling TP beyond the heads hardly adds tokens, more stages or replicas do.",
            layout.layout.tp, layout.kv.replication_factor
        ));
    }
    let off = |name: &str| {
        items.iter().find(|i| i.name == name).and_then(|i| i.ratio).filter(|r| (r - 1.0).abs() > AGREES)
    };
    if let Some(ratio) = off("weights") {
        list.push(format!(
            "Weights are predicted {ratio:.2} times what was loaded: the checkpoint is stored in another format, or holds parts \
             (a tower, a draft model) that the configuration does not show."
        ));
    }
    match (off("bytes_per_token"), off("kv_pool")) {
        (Some(ratio), _) => list.push(format!(
            "A token takes {:.2} times the predicted bytes: another cache format (fp8 halves it), copied heads, or a hybrid \
             cache, whose token figure is derived from requests.",
            1.0 / ratio
        )),
        (None, Some(ratio)) if off("weights").is_none() => list.push(format!(
            "The pool is predicted {ratio:.2} times what was left: activations, graphs or other processes took another share; \
             give what was printed as `assumptions` to calibrate."
        )),
        _ => {}
    }
    if let (Outcome::Refused { .. }, Some(longest)) = (&observed.outcome, observed.longest_fitting) {
        list.push(format!("The engine's own advice: max_model_len {longest}."));
    }
    let spread = observed.available_kv_gib.most().zip(observed.available_kv_gib.least());
    if let Some((most, least)) = spread.filter(|(most, least)| *least > 0.0 && most / least > 1.0 + AGREES) {
        list.push(format!("Ranks have {least:.2} to {most:.2} GiB: the tightest rules, the rest lies idle."));
    }
    list
}
