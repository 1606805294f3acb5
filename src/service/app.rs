//! The running service: stored models, kept plans, and memories in front of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moka::future::Cache;
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::fits::FitsAnswer;
use super::fleet::apart;
use super::from_hub::HubAccess;
use super::observations::residuals;
use super::question::{self, PlanAnswer, ResolvedModel};
use super::{AnswerBytes, Health, Predictions, ServiceError};
use crate::catalogue;
use crate::ingest::json;
use crate::ingest::request::{ModelRequest, ModelSource, PlanRequest};
use crate::ingest::{FieldError, cluster};
use crate::planner::layout::enumerate::most_listed;
use crate::store::plans::{PlanWriter, Stored};
use crate::store::{DEFAULT_REVISION, Guard, Kept, Lookup, Models, Plans, Store};

/// How much is remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of rendered answers.
    pub answers_bytes: u64,
    /// Bytes of plans by id.
    pub plans_bytes: u64,
    /// How long a stored model is taken on trust.
    pub models_fresh: Duration,
    /// Plans written to the database, in number and bytes.
    pub stored: Stored,
    /// Days after which stored plans are forgotten; 0: never.
    pub keep_days: u32,
}

/// Something about the service, not the plan, that the caller should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The plan is in memory only; after a restart its id may be unknown.
    PlanNotStored,
    /// The database is away; a stored model was used as it was last seen.
    StoredModelMayBeOld,
    /// The database is away; the catalogue's model was used without asking whether a stored one replaces it.
    StoredModelsNotAsked,
    /// The hub is away; a model that came from it earlier was used as it was then.
    HubModelMayBeOld,
    /// The model was fetched from the hub and could not be stored.
    HubModelNotStored,
}

impl Notice {
    /// Its stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::PlanNotStored => "plan_not_stored",
            Self::StoredModelMayBeOld => "stored_model_may_be_old",
            Self::StoredModelsNotAsked => "stored_models_not_asked",
            Self::HubModelMayBeOld => "hub_model_may_be_old",
            Self::HubModelNotStored => "hub_model_not_stored",
        }
    }
}

/// An answer, ready to be sent.
#[derive(Debug, Clone)]
pub struct Rendered {
    pub plan_id: Arc<str>,
    pub json: AnswerBytes,
    pub notices: Vec<Notice>,
    /// Time spent reading the question; zero when the answer was remembered.
    pub read: Duration,
    /// Time spent planning; zero when the answer was remembered.
    pub planned: Duration,
    /// Writes of models seen before this answer: a later write makes it old.
    generation: u64,
}

/// Models whose read configuration is remembered.
const SPECS: u64 = 256;

/// The service of one server.
pub struct App {
    pub(super) guard: Arc<Guard>,
    pub(super) models: Models,
    plans: Plans,
    /// Answers by the exact bytes of their question.
    answers: Cache<Vec<u8>, Rendered>,
    pub(super) generation: AtomicU64,
    /// Models as published, read from their configuration: reading costs more than a plan.
    specs: Cache<String, ResolvedModel>,
    /// Answers over the whole catalogue, which does not change while the program runs.
    pub(super) fits: Cache<String, Arc<FitsAnswer>>,
    /// What was predicted on saved clusters.
    pub(super) predictions: Arc<Predictions>,
    /// Told when an observation came or went.
    pub(super) observations_changed: Arc<Notify>,
    /// Where models are fetched that are known nowhere else; `None`: nowhere.
    pub(super) hub: Option<HubAccess>,
}

/// What runs beside the requests.
pub struct Background {
    guard: Arc<Guard>,
    writer: PlanWriter,
    keep_days: u32,
    predictions: Arc<Predictions>,
    observations_changed: Arc<Notify>,
}

/// Layouts shown, or listed for the search of each engine, from which on a plan is not made between other requests.
const MANY_LAYOUTS: usize = 100;
const MANY_SEARCHED: u64 = 2_000;
const MANY_ENGINES: usize = 4;

/// Whether a plan may take so long that other requests on the same thread would feel it.
fn may_be_long(request: &PlanRequest) -> bool {
    request.limit > MANY_LAYOUTS
        || request.engines.len() >= MANY_ENGINES
        || most_listed(&request.search) > MANY_SEARCHED
}

impl App {
    /// A service over a store, and the work that must run beside it.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, migrate: bool, limits: &Limits) -> (Arc<Self>, Background) {
        Self::with_hub(store, migrate, limits, None)
    }

    /// The same with a hub for models that are known nowhere else.
    #[must_use]
    pub fn with_hub(
        store: Arc<dyn Store>,
        migrate: bool,
        limits: &Limits,
        hub: Option<HubAccess>,
    ) -> (Arc<Self>, Background) {
        let guard = Guard::over(store, migrate);
        let models = Models::over(Arc::clone(&guard), limits.models_fresh);
        let (plans, writer) = Plans::over(Arc::clone(&guard), limits.plans_bytes, limits.stored);
        let answers = Cache::builder()
            .max_capacity(limits.answers_bytes)
            .time_to_live(limits.models_fresh.max(Duration::from_millis(1)))
            .weigher(|question: &Vec<u8>, answer: &Rendered| {
                u32::try_from(question.len() + answer.json.len() + 256).unwrap_or(u32::MAX)
            })
            .build();
        let fits = Cache::builder()
            .max_capacity(limits.answers_bytes)
            .weigher(|question: &String, answer: &Arc<FitsAnswer>| {
                // the rows and their JSON
                u32::try_from(question.len() + 3 * answer.json.len() + 256).unwrap_or(u32::MAX)
            })
            .build();
        let predictions: Arc<Predictions> = Arc::default();
        let observations_changed: Arc<Notify> = Arc::default();
        let background = Background {
            guard: Arc::clone(&guard),
            writer,
            keep_days: limits.keep_days,
            predictions: Arc::clone(&predictions),
            observations_changed: Arc::clone(&observations_changed),
        };
        let app = Self {
            guard,
            models,
            plans,
            answers,
            generation: AtomicU64::new(0),
            specs: Cache::new(SPECS),
            fits,
            predictions,
            observations_changed,
            hub,
        };
        (Arc::new(app), background)
    }

    /// How the database is.
    #[must_use]
    pub fn database(&self) -> (&'static str, Health) {
        (self.guard.kind(), self.guard.health())
    }

    /// What was predicted on saved clusters, and how far predictions lay from what engines printed, for the page of metrics.
    #[must_use]
    pub fn predictions(&self) -> Arc<Predictions> {
        Arc::clone(&self.predictions)
    }

    /// Answer a question given as JSON text. The same bytes again are answered from memory.
    ///
    /// # Errors
    /// [`ServiceError::Malformed`] or [`ServiceError::Invalid`] for a faulty question.
    pub async fn plan_text(&self, question: &[u8]) -> Result<Rendered, ServiceError> {
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(known) = self.answers.get(question).await.filter(|a| a.generation == generation) {
            metrics::counter!("shardwise_cache_lookups_total", "kind" => "answers", "result" => "hit")
                .increment(1);
            return Ok(Rendered { read: Duration::ZERO, planned: Duration::ZERO, ..known });
        }
        metrics::counter!("shardwise_cache_lookups_total", "kind" => "answers", "result" => "miss")
            .increment(1);
        let started = Instant::now();
        let request = PlanRequest::read_document(&json::read(question)?).map_err(ServiceError::Invalid)?;
        let read = started.elapsed();
        let (answer, json, notices) = self.plan(&request).await?;
        let planned = started.elapsed().saturating_sub(read);
        let rendered = Rendered { plan_id: answer.plan_id.into(), json, notices, read, planned, generation };
        // an answer with a notice is not remembered: the next one may be better
        if rendered.notices.is_empty() {
            self.answers.insert(question.to_vec(), rendered.clone()).await;
        }
        Ok(rendered)
    }

    /// Answer a question, and keep the plan.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] for a faulty question.
    pub async fn plan(
        &self,
        request: &PlanRequest,
    ) -> Result<(PlanAnswer, AnswerBytes, Vec<Notice>), ServiceError> {
        let mut notices = Vec::new();
        let model = self.resolve(&request.model, &mut notices).await?;
        // a what-if on a model is no deployment of it
        let saved = cluster::saved_name(&request.cluster).filter(|_| request.model.is_as_published());
        let saved = saved.map(str::to_owned);
        let request = self.with_saved_cluster(request).await?;
        let started = Instant::now();
        // a common plan takes less time than the way to another thread
        let (answer, json) = if may_be_long(&request) {
            let request = request.into_owned();
            apart(move || question::answer(&request, model)).await??
        } else {
            question::answer(&request, model)?
        };
        metrics::histogram!("shardwise_plan_seconds").record(started.elapsed().as_secs_f64());
        let feasible = if answer.plan.feasible { "true" } else { "false" };
        metrics::counter!("shardwise_plans_total", "feasible" => feasible).increment(1);
        if let Some(saved) = saved {
            self.predictions.remember(&saved, &answer.plan);
        }
        if self.plans.keep(&answer.plan_id, json.clone(), unix_seconds()).await == Kept::MemoryOnly {
            notices.push(Notice::PlanNotStored);
        }
        Ok((answer, json, notices))
    }

    /// The answer kept under a plan id, as it was sent.
    ///
    /// # Errors
    /// [`ServiceError::NoPlan`]; [`ServiceError::Unavailable`] when only the database could know.
    pub async fn kept_plan(&self, plan_id: &str) -> Result<AnswerBytes, ServiceError> {
        let is_id = plan_id.len() == question::PLAN_ID_DIGITS
            && plan_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !is_id {
            return Err(ServiceError::NoPlan(plan_id.chars().take(64).collect()));
        }
        self.plans.find(plan_id).await?.ok_or_else(|| ServiceError::NoPlan(plan_id.to_owned()))
    }

    /// A question with everything looked up; stored models are asked.
    pub(super) async fn asked(&self, request: &PlanRequest) -> Result<question::Asked, ServiceError> {
        let model = self.resolve(&request.model, &mut Vec::new()).await?;
        question::asked(self.with_saved_cluster(request).await?.as_ref(), model)
    }

    /// The question with a saved cluster in place of its name.
    async fn with_saved_cluster<'r>(
        &self,
        request: &'r PlanRequest,
    ) -> Result<Cow<'r, PlanRequest>, ServiceError> {
        Ok(match self.with_saved(&request.cluster).await? {
            Cow::Borrowed(_) => Cow::Borrowed(request),
            Cow::Owned(cluster) => Cow::Owned(PlanRequest { cluster, ..request.clone() }),
        })
    }

    /// The model of a question: from the question itself, or stored, or of the catalogue.
    pub(super) async fn resolve(
        &self,
        request: &ModelRequest,
        notices: &mut Vec<Notice>,
    ) -> Result<Result<ResolvedModel, Vec<FieldError>>, ServiceError> {
        let (id, revision) = match &request.source {
            ModelSource::Config { config, name } => {
                return Ok(question::read_config(name, config, None, request));
            }
            ModelSource::Id { id, revision } => (id, revision.as_deref()),
        };
        let id = catalogue::models::find(id).map_or(id.as_str(), |entry| entry.id);
        let stored = match self.models.find(id, revision.unwrap_or(DEFAULT_REVISION)).await? {
            Lookup::Known(record) => record,
            Lookup::Stale(record) => {
                notices.push(Notice::StoredModelMayBeOld);
                record
            }
            Lookup::Unknown(_) => {
                notices.push(Notice::StoredModelsNotAsked);
                None
            }
        };
        let stored = self.refreshed(stored, notices).await?;
        let published = request.is_as_published();
        let key = stored.as_ref().map_or_else(|| id.to_owned(), |record| format!("{id} {}", record.hash));
        if published && let Some(read) = self.specs.get(&key).await {
            let source = if stored.is_some() { "stored" } else { "catalogue" };
            return Ok(Ok(ResolvedModel { source, ..read }));
        }
        let is_stored = stored.is_some();
        let resolved = match stored {
            Some(record) => {
                let side = record.quantization_config.as_ref();
                question::read_with(&record.id, &record.config, side, request)
                    .map(|read| ResolvedModel::of(read, "stored"))
            }
            None => question::from_catalogue(id, request),
        };
        if !is_stored
            && resolved.is_err()
            && catalogue::models::find(id).is_err()
            && let Some(record) = self.ask_hub(id, revision.unwrap_or(DEFAULT_REVISION), notices).await?
        {
            let side = record.quantization_config.as_ref();
            let read = question::read_with(&record.id, &record.config, side, request);
            return Ok(read.map(|read| ResolvedModel::of(read, "hub")));
        }
        if published && let Ok(model) = &resolved {
            self.specs.insert(key, model.clone()).await;
        }
        Ok(resolved)
    }
}

impl Background {
    /// Run until every [`App`] of it is gone and what waited is written.
    pub async fn run(self) {
        let watch = tokio::spawn(Arc::clone(&self.guard).watch());
        let forget = tokio::spawn(forget_old_plans(Arc::clone(&self.guard), self.keep_days));
        let residuals =
            tokio::spawn(residuals::follow(self.guard, self.predictions, self.observations_changed));
        self.writer.run().await;
        residuals.abort();
        forget.abort();
        watch.abort();
    }
}

/// Every hour, a little at a time so that no write waits long for it.
async fn forget_old_plans(guard: Arc<Guard>, keep_days: u32) {
    if keep_days == 0 {
        return;
    }
    let age = Duration::from_secs(u64::from(keep_days) * 86_400);
    loop {
        tokio::time::sleep(Duration::from_hours(1)).await;
        let Some(before) =
            time::Duration::try_from(age).ok().and_then(|age| OffsetDateTime::now_utc().checked_sub(age))
        else {
            return;
        };
        while matches!(guard.delete_plans_before(before, 500).await, Ok(1..)) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
