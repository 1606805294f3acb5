//! What fits: every model of the catalogue on one cluster, in one call.

mod specs;
mod table;

use std::cmp::Ordering;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

pub(super) use self::specs::LOWER;
use self::specs::Specs;
use super::fleet::apart;
use super::parallel::{Stop, in_parallel};
use super::question::{known_engines, unknown_words};
use super::{AnswerBytes, App, ServiceError};
use crate::catalogue::hardware;
use crate::catalogue::models::CatalogueModel;
use crate::ingest::fits::{Filter, FitsRequest, Sort};
use crate::ingest::{FieldError, Pointer, cluster};
use crate::planner::engine::rules;
use crate::planner::fit::{BestFit, Fit, WhyNotFit, fit};
use crate::planner::hardware::Cluster;
use crate::planner::input::{EngineSettings, PlanInput, Search};
use crate::planner::model::ModelSpec;
use crate::planner::plan::ClusterSummary;
use crate::planner::show;
use crate::service::{ClusterAssumption, question};

/// Every model on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Fits {
    /// The answer in one or two sentences.
    pub answer: String,
    pub cluster: ClusterSummary,
    /// What was assumed to read the cluster.
    pub assumptions: Vec<ClusterAssumption>,
    pub engine: String,
    /// A model fits when it holds one sequence of this length.
    pub context_tokens: u64,
    /// Lengths at which sequences are counted.
    pub contexts: Vec<u64>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Requests in flight for the times.
    pub concurrency: u64,
    /// Models that passed the filter.
    pub models: u64,
    /// Of those, how many fit.
    pub models_fitting: u64,
    /// Rows in the asked order, at most `limit`.
    pub items: Vec<FitRow>,
    /// Models of the catalogue that cannot be read yet, each with its reason.
    pub unread: Vec<Unread>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FitRow {
    /// Hub id.
    pub model: String,
    pub family: String,
    pub parameters: u64,
    pub active_parameters: u64,
    /// The longest sequence that the model takes.
    pub context_length: u64,
    /// How its weights are stored.
    pub quantization: String,
    pub licence: Option<String>,
    /// Month or day of release.
    pub released: Option<String>,
    /// The model that this one is a quantised form of.
    pub base: Option<String>,
    /// The model with exactly the same shape, whose configuration stands for this one.
    pub same_shape_as: Option<String>,
    #[serde(flatten)]
    pub fit: Fit,
    /// Where it does not fit as published: the widest weights in which it does.
    pub fits_only_as: Option<LowerPrecision>,
}

/// The same model with its weights stored in fewer bits.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LowerPrecision {
    /// As `weights` of a plan's model, e.g. `fp8`.
    pub weights: String,
    pub best: BestFit,
    pub smallest_gpus: Option<u64>,
}

/// A model without a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Unread {
    pub model: String,
    pub reason: String,
}

/// Answer for the whole catalogue. It looks at embedded data only.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of cluster and engine.
pub fn fits(request: &FitsRequest) -> Result<Fits, ServiceError> {
    let ground = Ground::of(request)?;
    let wanted: Vec<&'static CatalogueModel> =
        Specs::models().iter().filter(|model| passes(&request.filter, model)).collect();
    let (mut items, unread) = rows(&ground, &wanted);
    // how many of all: the filter on what fits would make it "all of those that fit"
    let answer = table::answer(&ground.cluster, ground.context(), &items);
    items.retain(|row| {
        let is = |wanted: Option<bool>, actual: bool| wanted.is_none_or(|wanted| wanted == actual);
        let meets = row.fit.fits && row.fit.best.as_ref().is_some_and(|b| b.meets_slo);
        is(request.filter.fits, row.fit.fits) && is(request.filter.meets_slo, meets)
    });
    items.sort_by(|a, b| order(request.sort, ground.context(), a, b));
    let models = items.len();
    let models_fitting = items.iter().filter(|row| row.fit.fits).count();
    items.truncate(request.limit);
    Ok(Fits {
        answer,
        cluster: show::cluster(&ground.cluster),
        assumptions: question::assumptions_of(&ground.cluster),
        engine: format!("{} {}", ground.engine.name, ground.engine.version),
        context_tokens: ground.context(),
        contexts: request.contexts.clone(),
        input_tokens: request.workload.input_tokens,
        output_tokens: request.workload.output_tokens,
        concurrency: request.workload.concurrency,
        models: models as u64,
        models_fitting: models_fitting as u64,
        items,
        unread,
    })
}

/// An answer with its JSON.
#[derive(Debug, Clone)]
pub struct FitsAnswer {
    pub fits: Fits,
    pub json: AnswerBytes,
}

impl App {
    /// What fits. The same question again is answered from memory: the catalogue does not change.
    ///
    /// # Errors
    /// As [`fits`]; [`ServiceError::Unavailable`] for a saved cluster without the database.
    pub async fn fits(&self, mut request: FitsRequest) -> Result<Arc<FitsAnswer>, ServiceError> {
        request.cluster = self.with_saved(&request.cluster).await?.into_owned();
        let key = format!("{request:?}");
        if let Some(known) = self.fits.get(&key).await {
            metrics::counter!("shardwise_cache_lookups_total", "kind" => "fits", "result" => "hit")
                .increment(1);
            return Ok(known);
        }
        metrics::counter!("shardwise_cache_lookups_total", "kind" => "fits", "result" => "miss").increment(1);
        let fits = apart(move || fits(&request)).await??;
        let json = serde_json::to_vec(&fits).map_err(|error| ServiceError::Internal(error.to_string()))?;
        let answer = Arc::new(FitsAnswer { fits, json: json.into() });
        self.fits.insert(key, Arc::clone(&answer)).await;
        Ok(answer)
    }
}

/// What every row shares.
struct Ground<'r> {
    request: &'r FitsRequest,
    cluster: Cluster,
    engine: EngineSettings,
}

impl<'r> Ground<'r> {
    fn of(request: &'r FitsRequest) -> Result<Self, ServiceError> {
        let place = Pointer::root().key("cluster");
        let cluster = cluster::from_json(&request.cluster, &place, hardware::catalogue());
        let engines = known_engines(std::slice::from_ref(&request.engine), false).and_then(|engines| {
            let faults = unknown_words(&engines, false);
            if faults.is_empty() { Ok(engines) } else { Err(faults) }
        });
        if let (Ok(_), Some(text)) = (&engines, &request.engine.quantization) {
            let place = Pointer::root().key("engine").key("quantization");
            let detail =
                "every model is taken as it is published here; POST /v1/plans quantises while loading";
            let fault = FieldError::at(&place, "not_allowed", detail).got(&Value::String(text.clone()));
            return Err(ServiceError::Invalid(vec![fault]));
        }
        match (cluster, engines) {
            (Ok(cluster), Ok(engines)) => {
                let engine = engines.into_iter().next().unwrap_or_else(|| request.engine.clone());
                Ok(Self { request, cluster, engine })
            }
            (cluster, engines) => {
                let faults = [cluster.err(), engines.err()].into_iter().flatten().flatten();
                Err(ServiceError::Invalid(faults.collect()))
            }
        }
    }

    fn context(&self) -> u64 {
        self.request.workload.context_tokens.unwrap_or(crate::ingest::fits::DEFAULT_CONTEXT_TOKENS)
    }

    /// The engine is started for the asked context, or for all the model takes where that is less.
    fn input(&self, spec: &Arc<ModelSpec>) -> PlanInput {
        // a length for the whole catalogue is no longer than each model takes
        let longest = rules(&self.engine.name, &self.engine.version)
            .map_or(spec.context_length, |engine| engine.longest(spec))
            .max(1);
        let context = self.context().min(longest);
        let mut workload = self.request.workload.clone();
        workload.context_tokens = Some(context);
        let max_model_len = self.engine.max_model_len.map(|asked| asked.min(longest)).or(Some(context));
        PlanInput {
            model: Arc::clone(spec),
            cluster: self.cluster.clone(),
            engines: vec![EngineSettings { max_model_len, ..self.engine.clone() }],
            workload,
            slo: self.request.slo,
            objective: self.request.objective,
            search: Search { allow_idle_gpus: true, ..Search::default() },
            overrides: self.request.overrides.clone(),
            latency_model: self.request.latency_model,
            calibration: crate::catalogue::calibration::calibration(),
            beyond: Arc::default(),
            memory_corrections: crate::catalogue::calibration::memory_corrections(),
            limit: 1,
        }
    }

    fn row(&self, spec: &Arc<ModelSpec>) -> Fit {
        let mut row = fit(&self.input(spec), &self.request.contexts);
        if spec.context_length < self.context() {
            row.fits = false;
            row.why_not = Some(WhyNotFit {
                code: "context_longer_than_model".to_owned(),
                message: format!("The model takes {} tokens at most.", spec.context_length),
                short_by_bytes: None,
            });
        }
        row
    }
}

fn passes(filter: &Filter, model: &CatalogueModel) -> bool {
    let holds = |text: &str, part: &str| text.to_lowercase().contains(part);
    let found = |part: &String| {
        holds(model.id, part)
            || holds(model.family, part)
            || model.aliases.iter().any(|alias| holds(alias, part))
    };
    filter.search.as_ref().is_none_or(found)
        && filter.family.as_ref().is_none_or(|family| model.family.to_lowercase() == *family)
        && filter
            .licence
            .as_ref()
            .is_none_or(|wanted| model.licence.is_some_and(|l| l.to_lowercase() == *wanted))
        && filter.min_parameters.is_none_or(|least| model.parameters >= least)
        && filter.max_parameters.is_none_or(|most| model.parameters <= most)
        && filter.min_context_tokens.is_none_or(|least| model.context_length >= least)
}

/// The rows of the wanted models. A model whose configuration is another's takes the other's figures.
fn rows(ground: &Ground<'_>, wanted: &[&'static CatalogueModel]) -> (Vec<FitRow>, Vec<Unread>) {
    let mut own: Vec<&'static CatalogueModel> = wanted.iter().map(|m| specs::original(m)).collect();
    own.sort_by_key(|model| model.id);
    own.dedup_by_key(|model| model.id);
    let computed = in_parallel(&own, &Stop::default(), |model| {
        Specs::of(model).map(|spec| {
            let row = ground.row(&spec);
            let lower = lower_precision(ground, model, &row);
            (row, lower)
        })
    });
    let mut items = Vec::with_capacity(wanted.len());
    let mut unread = Vec::new();
    for model in wanted {
        let original = specs::original(model).id;
        let Ok(index) = own.binary_search_by_key(&original, |m| m.id) else { continue };
        match computed.get(index) {
            Some(Ok((row, lower))) => items.push(described(model, row.clone(), lower.clone())),
            Some(Err(reason)) => unread.push(Unread { model: model.id.to_owned(), reason: reason.clone() }),
            None => {}
        }
    }
    (items, unread)
}

/// The widest weights in which a model fits that does not fit as published for want of memory.
fn lower_precision(ground: &Ground<'_>, model: &'static CatalogueModel, row: &Fit) -> Option<LowerPrecision> {
    row.why_not.as_ref().filter(|why| !row.fits && why.short_by_bytes.is_some())?;
    LOWER.iter().enumerate().find_map(|(i, weights)| {
        let row = ground.row(&Specs::lower(model, i)?);
        let best = row.best.filter(|_| row.fits)?;
        Some(LowerPrecision { weights: (*weights).to_owned(), best, smallest_gpus: row.smallest_gpus })
    })
}

fn described(model: &CatalogueModel, fit: Fit, fits_only_as: Option<LowerPrecision>) -> FitRow {
    FitRow {
        model: model.id.to_owned(),
        family: model.family.to_owned(),
        parameters: model.parameters,
        active_parameters: model.active_parameters,
        context_length: model.context_length,
        quantization: model.quantization.to_owned(),
        licence: model.licence.map(str::to_owned),
        released: model.released.map(str::to_owned),
        base: model.base.map(str::to_owned),
        same_shape_as: model.same_shape_as.map(str::to_owned),
        fit,
        fits_only_as,
    }
}

fn order(sort: Sort, context: u64, a: &FitRow, b: &FitRow) -> Ordering {
    let best =
        |row: &FitRow, figure: fn(&BestFit) -> f64, none: f64| row.fit.best.as_ref().map_or(none, figure);
    let most = |figure: fn(&BestFit) -> f64| best(b, figure, -1.0).total_cmp(&best(a, figure, -1.0));
    let by = match sort {
        Sort::Parameters => b.parameters.cmp(&a.parameters),
        Sort::Name => Ordering::Equal,
        Sort::Released => b.released.cmp(&a.released),
        Sort::KvTokens => most(|best| best.kv_tokens_total as f64),
        Sort::Sequences => {
            let at = |row: &FitRow| {
                let counts = row.fit.best.as_ref().map(|best| best.sequences.as_slice()).unwrap_or_default();
                counts
                    .iter()
                    .find(|s| s.context_tokens >= context)
                    .or(counts.last())
                    .and_then(|s| s.sequences)
            };
            at(b).cmp(&at(a))
        }
        Sort::Tpot => {
            let of = |row| best(row, |best| best.tpot_ms, f64::INFINITY);
            of(a).total_cmp(&of(b))
        }
        Sort::Throughput => most(|best| best.output_tokens_per_s),
        Sort::SmallestGpus => {
            let of = |row: &FitRow| row.fit.smallest_gpus.unwrap_or(u64::MAX);
            of(a).cmp(&of(b))
        }
    };
    b.fit.fits.cmp(&a.fit.fits).then(by).then_with(|| a.model.cmp(&b.model))
}
