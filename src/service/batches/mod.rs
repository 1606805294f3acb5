//! Many questions at once: the best layouts of each, and a problem in the place of each faulty one.

mod table;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ServiceError;
use super::parallel::{Stop, in_parallel};
use super::question::{Asked, ResolvedModel, asked};
use crate::hub::HubError;
use crate::ingest::FieldError;
use crate::ingest::batch::{BatchRequest, Item};
use crate::ingest::request::PlanRequest;
use crate::launch;
use crate::planner;
use crate::planner::fit::WhyNotFit;
use crate::planner::plan::{RankedLayout, RefusedCount};

/// What was looked up for the models of a batch, by their JSON.
pub(super) type Models = std::collections::BTreeMap<String, Arc<Result<ResolvedModel, ServiceError>>>;

/// Saved clusters that a batch names, by the name's JSON.
pub(super) type Clusters = std::collections::BTreeMap<String, Result<Value, ServiceError>>;

/// Models in narrower weights, widest first, by the JSON of the model as asked.
pub(super) type Narrower = std::collections::BTreeMap<String, Vec<(&'static str, ResolvedModel)>>;

/// What was looked up for a batch.
#[derive(Default)]
pub(super) struct LookedUp {
    pub models: Models,
    pub clusters: Clusters,
}

impl LookedUp {
    /// The question with its saved cluster in place of the name.
    fn on_its_cluster<'r>(
        &self,
        item: &Item,
        request: &'r PlanRequest,
    ) -> Result<Cow<'r, PlanRequest>, ServiceError> {
        match self.clusters.get(&key(&item.cluster)) {
            None => Ok(Cow::Borrowed(request)),
            Some(Ok(cluster)) => Ok(Cow::Owned(PlanRequest { cluster: cluster.clone(), ..request.clone() })),
            Some(Err(error)) => Err(error.clone()),
        }
    }
}

/// Answers in the order of the questions.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Batch {
    /// Questions that were answered, whether anything fits or not.
    pub answered: u64,
    /// Of those, how many fit.
    pub feasible: u64,
    /// Questions with faults.
    pub faulty: u64,
    /// The questions of each cluster together, in the order in which clusters come first.
    pub by_cluster: Vec<ClusterTotals>,
    pub items: Vec<BatchItem>,
}

/// The questions that name the same cluster.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ClusterTotals {
    /// As asked.
    pub cluster: Value,
    /// GPUs of the cluster; null where it was not understood.
    pub gpus: Option<u64>,
    /// The cluster in its normal form of text.
    pub text: Option<String>,
    /// As one would say it: "2 nodes of 8 H100".
    pub words: Option<String>,
    pub answered: u64,
    /// Of those, how many fit, each alone.
    pub feasible: u64,
    /// Of those that do not, how many would with narrower weights.
    pub feasible_narrower: u64,
}

/// One answer, or what is wrong with the question.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BatchItem {
    /// Place of the question, from 0; in a matrix, models run slowest.
    pub index: u64,
    /// What `POST /v1/plans` would answer with: 200, or the status of the problem.
    pub status: u16,
    /// The model and cluster as asked.
    pub model: Value,
    pub cluster: Value,
    pub plan: Option<BatchPlan>,
    pub problem: Option<BatchProblem>,
}

/// The best layouts of a question; `POST /v1/plans` has the whole.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BatchPlan {
    pub feasible: bool,
    pub answer: String,
    /// Ranked, best first, at most `limit` (1 when not given).
    pub layouts: Vec<RankedLayout>,
    pub total_considered: u64,
    pub total_feasible: u64,
    /// Refusals by code.
    pub refused_counts: Vec<RefusedCount>,
    /// The refusal nearest to a fit, where nothing fits.
    pub why_not: Option<WhyNotFit>,
    /// GPUs of the cluster.
    pub cluster_gpus: u64,
    /// The cluster in its normal form of text.
    pub cluster_text: String,
    /// As one would say it: "2 nodes of 8 H100".
    pub cluster_words: String,
    /// Whole sequences of the best layout over all GPUs of the cluster, idle ones too.
    pub sequences_per_gpu: Option<f64>,
    /// Where memory is what is missing: the widest weights in which the model would fit.
    pub fits_only_as: Option<Box<NarrowerPlan>>,
}

/// The same question with the model's weights in fewer bits.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct NarrowerPlan {
    /// As `weights` of a plan's model, e.g. `fp8`.
    pub weights: String,
    /// The best layout then.
    pub best: RankedLayout,
    pub sequences_per_gpu: Option<f64>,
}

/// A fault in the form of RFC 9457, without the members that belong to a response of its own.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct BatchProblem {
    /// Stable code, as in `type` of a problem.
    pub code: String,
    pub detail: String,
    /// Every fault of the question; pointers are into the question itself.
    #[schema(value_type = Vec<Object>)]
    pub errors: Vec<FieldError>,
}

/// Answer every question, on all processors.
pub(super) fn answered(request: &BatchRequest, known: &LookedUp, stop: &Stop) -> Batch {
    let indexed: Vec<(usize, &Item)> = request.items.iter().enumerate().collect();
    let items = in_parallel(&indexed, stop, |(index, item)| one(*index, item, known));
    let count = |holds: fn(&BatchItem) -> bool| items.iter().filter(|item| holds(item)).count() as u64;
    Batch {
        answered: count(|item| item.plan.is_some()),
        feasible: count(|item| item.plan.as_ref().is_some_and(|plan| plan.feasible)),
        faulty: count(|item| item.problem.is_some()),
        by_cluster: by_cluster(&items),
        items,
    }
}

/// Places of the questions that did not fit for want of memory.
pub(super) fn too_big(batch: &Batch) -> Vec<usize> {
    let is_memory = |plan: &BatchPlan| plan.why_not.as_ref().is_some_and(|why| why.short_by_bytes.is_some());
    let items = batch.items.iter().enumerate();
    items.filter(|(_, item)| item.plan.as_ref().is_some_and(is_memory)).map(|(place, _)| place).collect()
}

/// Fill in `fits_only_as`: each question of `places` is tried with the models of `narrower`, widest first.
pub(super) fn narrowed(
    batch: &mut Batch,
    request: &BatchRequest,
    places: &[usize],
    known: &LookedUp,
    narrower: &Narrower,
    stop: &Stop,
) {
    let found = in_parallel(places, stop, |index| {
        let item = request.items.get(*index)?;
        let request = known.on_its_cluster(item, item.request.as_ref().ok()?).ok()?;
        let best = narrower.get(&key(&item.model))?.iter().find_map(|(weights, model)| {
            let plan = plan(&asked(&request, Ok(model.clone())).ok()?);
            let best = plan.layouts.into_iter().next().filter(|_| plan.feasible)?;
            Some(NarrowerPlan {
                weights: (*weights).to_owned(),
                best,
                sequences_per_gpu: plan.sequences_per_gpu,
            })
        })?;
        Some((*index, best))
    });
    for (index, best) in found.into_iter().flatten() {
        if let Some(plan) = batch.items.get_mut(index).and_then(|item| item.plan.as_mut()) {
            plan.fits_only_as = Some(Box::new(best));
        }
    }
    batch.by_cluster = by_cluster(&batch.items);
}

fn by_cluster(items: &[BatchItem]) -> Vec<ClusterTotals> {
    let mut totals: Vec<ClusterTotals> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for item in items {
        let place = *places.entry(key(&item.cluster)).or_insert(totals.len());
        if place == totals.len() {
            totals.push(ClusterTotals {
                cluster: item.cluster.clone(),
                gpus: None,
                text: None,
                words: None,
                answered: 0,
                feasible: 0,
                feasible_narrower: 0,
            });
        }
        let (Some(total), Some(plan)) = (totals.get_mut(place), &item.plan) else { continue };
        total.gpus = Some(plan.cluster_gpus);
        total.text.get_or_insert_with(|| plan.cluster_text.clone());
        total.words.get_or_insert_with(|| plan.cluster_words.clone());
        total.answered += 1;
        total.feasible += u64::from(plan.feasible);
        total.feasible_narrower += u64::from(plan.fits_only_as.is_some());
    }
    totals
}

fn one(index: usize, item: &Item, known: &LookedUp) -> BatchItem {
    let outcome = match &item.request {
        Err(faults) => Err(ServiceError::Invalid(faults.clone())),
        Ok(request) => known.on_its_cluster(item, request).and_then(|request| {
            match known.models.get(&key(&item.model)).map(AsRef::as_ref) {
                Some(Ok(model)) => asked(&request, Ok(model.clone())).map(|asked| plan(&asked)),
                // the other faults of the question come with those of its model
                Some(Err(ServiceError::Invalid(faults))) => {
                    asked(&request, Err(faults.clone())).map(|asked| plan(&asked))
                }
                Some(Err(other)) => Err(other.clone()),
                None => Err(ServiceError::Internal("a model was not looked up".to_owned())),
            }
        }),
    };
    let (plan, problem) = match outcome {
        Ok(plan) => (Some(plan), None),
        Err(error) => (None, Some(error)),
    };
    BatchItem {
        index: index as u64,
        status: problem.as_ref().map_or(200, status),
        model: item.model.clone(),
        cluster: item.cluster.clone(),
        plan,
        problem: problem.map(shown),
    }
}

/// Under which a model or cluster is looked up once for all its questions.
pub(super) fn key(model: &Value) -> String {
    model.to_string()
}

fn plan(asked: &Asked) -> BatchPlan {
    let mut plan = planner::plan(&asked.input);
    launch::attach(&asked.input, &mut plan);
    let nearest = plan.refused.iter().filter(|r| r.short_by_bytes.is_some()).min_by_key(|r| r.short_by_bytes);
    let why_not = nearest.or(plan.refused.first()).filter(|_| !plan.feasible).map(|refused| WhyNotFit {
        code: refused.code.clone(),
        message: refused.message.clone(),
        short_by_bytes: refused.short_by_bytes,
    });
    let best = plan.layouts.first().filter(|_| plan.feasible);
    BatchPlan {
        cluster_gpus: plan.cluster.gpus,
        cluster_text: plan.cluster.text,
        cluster_words: plan.cluster.words,
        sequences_per_gpu: best.map(|l| l.capacity.sequences_total as f64 / plan.cluster.gpus.max(1) as f64),
        fits_only_as: None,
        feasible: plan.feasible,
        answer: plan.answer,
        layouts: plan.layouts,
        total_considered: plan.total_considered,
        total_feasible: plan.total_feasible,
        refused_counts: plan.refused_counts,
        why_not,
    }
}

const fn status(error: &ServiceError) -> u16 {
    match error {
        ServiceError::Malformed(_) => 400,
        ServiceError::Invalid(_) => 422,
        ServiceError::NoPlan(_)
        | ServiceError::NoModel(_)
        | ServiceError::NoCluster(_)
        | ServiceError::NoObservation(_) => 404,
        ServiceError::Unexpected { .. } => 412,
        ServiceError::Unavailable(_) => 503,
        ServiceError::Hub(HubError::Gated(_) | HubError::TokenRefused) => 403,
        ServiceError::Hub(_) => 502,
        ServiceError::Internal(_) => 500,
    }
}

fn shown(error: ServiceError) -> BatchProblem {
    let detail = error.to_string();
    let (code, errors) = match error {
        ServiceError::Invalid(faults) => ("invalid_request", faults),
        ServiceError::Malformed(_) => ("malformed_json", Vec::new()),
        ServiceError::NoPlan(_) => ("plan_not_found", Vec::new()),
        ServiceError::NoModel(_) => ("model_not_found", Vec::new()),
        ServiceError::NoCluster(_) => ("cluster_not_found", Vec::new()),
        ServiceError::NoObservation(_) => ("observation_not_found", Vec::new()),
        ServiceError::Unexpected { .. } => ("precondition_failed", Vec::new()),
        ServiceError::Unavailable(_) => ("database_unavailable", Vec::new()),
        ServiceError::Hub(HubError::Gated(_) | HubError::TokenRefused) => ("model_gated", Vec::new()),
        ServiceError::Hub(_) => ("hub_unavailable", Vec::new()),
        ServiceError::Internal(_) => ("internal", Vec::new()),
    };
    BatchProblem { code: code.to_owned(), detail, errors }
}
