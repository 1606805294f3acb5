//! The questions over many plans, from the catalogue alone and with stored models.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::batches::{self, Batch, Clusters, LookedUp, Narrower};
use super::fits::LOWER;
use super::parallel::Stop;
use super::question::{self, ResolvedModel};
use super::sizings::sized;
use super::sweeps::{SweepAnswer, swept};
use super::{App, Notice, ServiceError};
use crate::ingest::FieldError;
use crate::ingest::batch::BatchRequest;
use crate::ingest::request::{ModelRequest, ModelSource};
use crate::ingest::sizing::SizingRequest;
use crate::ingest::sweep::SweepRequest;
use crate::planner::sizing::Sizing;

/// Long pieces of work at once; others wait their turn, within their request's time.
const MOST_AT_ONCE: usize = 8;
static AT_ONCE: Semaphore = Semaphore::const_new(MOST_AT_ONCE);

/// The fewest GPUs for a load, from the catalogue and the question itself.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub fn size_offline(request: &SizingRequest) -> Result<Sizing, ServiceError> {
    sized(request, offline(&request.plan.model))
}

/// Curves, from the catalogue and the question itself.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub fn sweep_offline(request: &SweepRequest) -> Result<SweepAnswer, ServiceError> {
    swept(request, offline(&request.plan.model))
}

/// Many questions, from the catalogue and the questions themselves.
#[must_use]
pub fn batch_offline(request: &BatchRequest) -> Batch {
    let mut known = LookedUp::default();
    for (key, model) in wanted(request) {
        known.models.entry(key).or_insert_with(|| Arc::new(offline(model).map_err(ServiceError::Invalid)));
    }
    let mut batch = batches::answered(request, &known, &Stop::default());
    let places = batches::too_big(&batch);
    let mut narrower = Narrower::new();
    for Wide { key, bytes, narrower: asked } in widths(request, &places, &known) {
        let models = asked.into_iter().filter_map(|(weights, model)| Some((weights, offline(&model).ok()?)));
        narrower.insert(key, models.filter(|(_, model)| is_narrower(model, bytes)).collect());
    }
    batches::narrowed(&mut batch, request, &places, &known, &narrower, &Stop::default());
    batch
}

/// A model that lacks memory as published.
struct Wide {
    /// Under which it is looked up.
    key: String,
    /// Its weights as published.
    bytes: u64,
    /// The same model in each narrower weights, widest first.
    narrower: [(&'static str, ModelRequest); LOWER.len()],
}

/// The models of the questions at `places`.
fn widths(request: &BatchRequest, places: &[usize], known: &LookedUp) -> Vec<Wide> {
    let mut wanted = BTreeMap::new();
    for item in places.iter().filter_map(|place| request.items.get(*place)) {
        let key = batches::key(&item.model);
        let Some(Ok(published)) = known.models.get(&key).map(AsRef::as_ref) else { continue };
        let Ok(request) = &item.request else { continue };
        if request.model.weights.is_none() && request.model.weights_bytes.is_none() {
            let bytes = published.spec.weights_bytes().get();
            let narrow = |weights: &'static str| {
                (weights, ModelRequest { weights: Some(weights.to_owned()), ..request.model.clone() })
            };
            wanted.entry(key).or_insert_with(|| (bytes, LOWER.map(narrow)));
        }
    }
    wanted.into_iter().map(|(key, (bytes, narrower))| Wide { key, bytes, narrower }).collect()
}

fn is_narrower(model: &ResolvedModel, published: u64) -> bool {
    model.spec.weights_bytes().get() < published
}

/// A model from the catalogue or from the question itself.
pub(super) fn offline(model: &ModelRequest) -> Result<ResolvedModel, Vec<FieldError>> {
    match &model.source {
        ModelSource::Config { config, name } => question::read_config(name, config, None, model),
        ModelSource::Id { id, .. } => question::from_catalogue(id, model),
    }
}

/// The model of each valid question, under its key.
fn wanted(request: &BatchRequest) -> impl Iterator<Item = (String, &ModelRequest)> {
    let valid = request.items.iter().filter_map(|item| Some((&item.model, item.request.as_ref().ok()?)));
    valid.map(|(model, request)| (batches::key(model), &request.model))
}

impl App {
    /// The fewest GPUs for a load.
    ///
    /// # Errors
    /// As [`App::plan_text`].
    pub async fn size(&self, mut request: SizingRequest) -> Result<(Sizing, Vec<Notice>), ServiceError> {
        let mut notices = Vec::new();
        let model = self.resolve(&request.plan.model, &mut notices).await?;
        request.plan.cluster = self.with_saved(&request.plan.cluster).await?.into_owned();
        Ok((apart(move || sized(&request, model)).await??, notices))
    }

    /// Curves over one or two things.
    ///
    /// # Errors
    /// As [`App::plan_text`].
    pub async fn sweep(&self, mut request: SweepRequest) -> Result<(SweepAnswer, Vec<Notice>), ServiceError> {
        let mut notices = Vec::new();
        let model = self.resolve(&request.plan.model, &mut notices).await?;
        request.plan.cluster = self.with_saved(&request.plan.cluster).await?.into_owned();
        Ok((apart(move || swept(&request, model)).await??, notices))
    }

    /// Many questions at once. A faulty one, or one whose model cannot be had now, has its problem in its place.
    ///
    /// # Errors
    /// [`ServiceError::Internal`] only.
    pub async fn batch(&self, request: BatchRequest) -> Result<(Batch, Vec<Notice>), ServiceError> {
        let mut notices = Vec::new();
        let mut known = LookedUp::default();
        for (key, model) in wanted(&request) {
            #[expect(clippy::map_entry, reason = "an entry cannot be held while the model is waited for")]
            if !known.models.contains_key(&key) {
                let found = self.resolve(model, &mut notices).await;
                known
                    .models
                    .insert(key, Arc::new(found.and_then(|read| read.map_err(ServiceError::Invalid))));
            }
        }
        known.clusters = self.saved_of(&request).await;
        notices.sort_unstable();
        notices.dedup();
        let (request, known, mut batch) = apart_until(move |stop| {
            let batch = batches::answered(&request, &known, stop);
            (request, known, batch)
        })
        .await?;
        let places = batches::too_big(&batch);
        let mut narrower = Narrower::new();
        for Wide { key, bytes, narrower: asked } in widths(&request, &places, &known) {
            let mut models = Vec::new();
            for (weights, model) in asked {
                if let Ok(Ok(model)) = self.resolve(&model, &mut Vec::new()).await
                    && is_narrower(&model, bytes)
                {
                    models.push((weights, model));
                }
            }
            narrower.insert(key, models);
        }
        if !narrower.is_empty() {
            batch = apart_until(move |stop| {
                batches::narrowed(&mut batch, &request, &places, &known, &narrower, stop);
                batch
            })
            .await?;
        }
        Ok((batch, notices))
    }

    /// The saved clusters that a batch names, each looked up once.
    async fn saved_of(&self, request: &BatchRequest) -> Clusters {
        let mut seen = BTreeSet::new();
        let mut saved = Clusters::new();
        for item in request.items.iter().filter(|item| item.request.is_ok()) {
            let key = batches::key(&item.cluster);
            if !seen.insert(key.clone()) {
                continue;
            }
            match self.with_saved(&item.cluster).await {
                Ok(Cow::Borrowed(_)) => {}
                Ok(Cow::Owned(cluster)) => _ = saved.insert(key, Ok(cluster)),
                Err(error) => _ = saved.insert(key, Err(error)),
            }
        }
        saved
    }
}

/// Work that takes longer than a plan, on a thread where no other request waits for it.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServiceError> {
    apart_until(move |_| work()).await
}

/// The same for work that can end early: it is told to when the request is no longer waited for.
async fn apart_until<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> Result<T, ServiceError> {
    let internal = |error: &dyn std::fmt::Display| ServiceError::Internal(error.to_string());
    let turn = AT_ONCE.acquire().await.map_err(|error| internal(&error))?;
    let stop = Stop::default();
    let _waiting = stop.when_dropped();
    let running = tokio::task::spawn_blocking(move || {
        // the turn is over when the work is, not when its request was given up
        let _turn = turn;
        work(&stop)
    });
    running.await.map_err(|error| internal(&error))
}
