//! Questions in plain words: parsed into one of the typed requests, which is shown beside the answer.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::batches::Batch;
use super::fits::{Fits, fits};
use super::fleet::{apart, batch_offline, size_offline, sweep_offline};
use super::models::{ModelFacts, ModelView, listed_model};
use super::question::plan_offline;
use super::sweeps::SweepAnswer;
use super::{App, Notice, PlanAnswer, ServiceError};
use crate::catalogue::hardware;
use crate::ingest::batch::BatchRequest;
use crate::ingest::fits::FitsRequest;
use crate::ingest::question::{self, EXAMPLES, Known, Meaning, Parsed};
use crate::ingest::request::PlanRequest;
use crate::ingest::sizing::SizingRequest;
use crate::ingest::sweep::SweepRequest;
use crate::ingest::{FieldError, Pointer};
use crate::planner::answer::short;
use crate::planner::plan::Plan;
use crate::planner::sizes::ModelSizes;
use crate::planner::sizing::Sizing;
use crate::planner::sweep::{AxisValue, Point, Sweep};
use crate::planner::units::grouped;

/// Rows of "what fits" that a question shows when it names no number.
const ROWS: u64 = 50;
/// Words of a question that are looked up as names of saved clusters, at most.
const MOST_NAMES: usize = 8;

/// A question, what was understood, and the answer to that.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct QuestionAnswer {
    pub question: String,
    /// `plan`, `fits`, `sizing`, `sweep`, `batch`, `model`, or `unclear`.
    pub kind: String,
    /// The request that was answered, as the endpoint of that name takes it; null where nothing was understood.
    #[schema(value_type = Option<Object>)]
    pub request: Option<Value>,
    /// Taken because nothing was said.
    pub assumed: Vec<String>,
    /// Words of the question that have no part in the request.
    pub not_understood: Vec<String>,
    /// The answer in one or two sentences.
    pub answer: String,
    pub plan: Option<Box<PlanAnswer>>,
    pub fits: Option<Box<Fits>>,
    pub sizing: Option<Box<Sizing>>,
    pub sweep: Option<Box<SweepAnswer>>,
    /// Plans side by side.
    pub batch: Option<Box<Batch>>,
    /// What a model is, on any GPU.
    pub model: Option<Box<ModelInBrief>>,
    /// What can be asked, where nothing was understood.
    pub examples: Vec<String>,
}

/// What a model is, whatever it runs on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelInBrief {
    pub id: String,
    pub facts: ModelFacts,
    /// Weights by purpose, the cache of a token, and the TP sizes that vLLM takes.
    pub sizes: ModelSizes,
}

impl QuestionAnswer {
    fn of(text: &str, parsed: &Parsed) -> Self {
        let (kind, request, answer) = match &parsed.meaning {
            Meaning::Plan(request) => ("plan", Some(request), String::new()),
            Meaning::Fits(request) => ("fits", Some(request), String::new()),
            Meaning::Sizing(request) => ("sizing", Some(request), String::new()),
            Meaning::Sweep(request) => ("sweep", Some(request), String::new()),
            Meaning::Batch(request) => ("batch", Some(request), String::new()),
            Meaning::Model(request) => ("model", Some(request), String::new()),
            Meaning::Unclear(unclear) if unclear.instead.is_empty() => (
                "unclear",
                None,
                format!("{} You can ask, for example: {}.", unclear.why, EXAMPLES.join("; ")),
            ),
            Meaning::Unclear(unclear) => ("unclear", None, unclear.why.clone()),
        };
        let examples = match &parsed.meaning {
            Meaning::Unclear(unclear) if unclear.instead.is_empty() => EXAMPLES.map(str::to_owned).to_vec(),
            Meaning::Unclear(unclear) => unclear.instead.clone(),
            _ => Vec::new(),
        };
        Self {
            question: text.chars().take(question::MAX_CHARS).collect(),
            kind: kind.to_owned(),
            request: request.cloned(),
            assumed: parsed.assumed.clone(),
            not_understood: parsed.not_understood.clone(),
            answer,
            plan: None,
            fits: None,
            sizing: None,
            sweep: None,
            batch: None,
            model: None,
            examples,
        }
    }

    fn with_sweep(mut self, sweep: SweepAnswer) -> Self {
        self.answer = compared(&sweep.sweep);
        self.sweep = Some(Box::new(sweep));
        self
    }

    fn with_sizing(mut self, sizing: Sizing) -> Self {
        self.answer.clone_from(&sizing.answer);
        self.sizing = Some(Box::new(sizing));
        self
    }

    fn with_plan(mut self, plan: PlanAnswer, longest: bool) -> Self {
        self.answer.clone_from(&plan.plan.answer);
        if longest && let Some(longest) = longest_of(&plan.plan) {
            self.answer = format!("{longest} {}", self.answer);
        }
        self.plan = Some(Box::new(plan));
        self
    }

    fn with_batch(mut self, batch: Batch) -> Self {
        self.answer = side_by_side(&batch);
        self.batch = Some(Box::new(batch));
        self
    }

    fn with_model(mut self, model: ModelView) -> Self {
        let ModelView { id, facts, sizes, .. } = model;
        self.answer = in_brief(&id, &facts, &sizes);
        self.model = Some(Box::new(ModelInBrief { id, facts, sizes }));
        self
    }

    fn with_fits(mut self, fits: Fits) -> Self {
        self.answer.clone_from(&fits.answer);
        self.fits = Some(Box::new(fits));
        self
    }
}

/// Answer a question from the catalogue alone.
///
/// # Errors
/// [`ServiceError::Invalid`] where the parsed request has faults, with pointers into it.
pub fn ask_offline(text: &str) -> Result<QuestionAnswer, ServiceError> {
    let parsed = question::parse(text, hardware::catalogue());
    let answer = QuestionAnswer::of(text, &parsed);
    Ok(match &parsed.meaning {
        Meaning::Plan(request) => {
            let request = PlanRequest::read(request).map_err(ServiceError::Invalid)?;
            answer.with_plan(plan_offline(&request)?, parsed.longest)
        }
        Meaning::Fits(request) => answer.with_fits(fits(&fits_request(request)?)?),
        Meaning::Sizing(request) => {
            answer.with_sizing(size_offline(&SizingRequest::read(request).map_err(ServiceError::Invalid)?)?)
        }
        Meaning::Sweep(request) => {
            answer.with_sweep(sweep_offline(&SweepRequest::read(request).map_err(ServiceError::Invalid)?)?)
        }
        Meaning::Batch(request) => {
            answer.with_batch(batch_offline(&BatchRequest::read(request).map_err(ServiceError::Invalid)?))
        }
        Meaning::Model(request) => answer.with_model(listed_model(id_of(request))?),
        Meaning::Unclear(_) => answer,
    })
}

impl App {
    /// Answer a question; stored models are known too.
    ///
    /// # Errors
    /// As [`ask_offline`].
    pub async fn ask(&self, text: &str) -> Result<(QuestionAnswer, Vec<Notice>), ServiceError> {
        self.ask_on(text, None).await
    }

    /// The same for people who have `usual` GPUs: those are meant where none are named.
    ///
    /// # Errors
    /// As [`ask_offline`].
    pub async fn ask_on(
        &self,
        text: &str,
        usual: Option<&str>,
    ) -> Result<(QuestionAnswer, Vec<Notice>), ServiceError> {
        let read = async |saved: Vec<String>| {
            let (words, on) = (text.to_owned(), usual.map(str::to_owned));
            apart(move || {
                let known = Known { usual: on.as_deref(), saved: &saved };
                question::parse_on(&words, known, hardware::catalogue())
            })
            .await
        };
        let mut parsed = read(Vec::new()).await?;
        // a word that means nothing else may be the name of a saved cluster
        let saved = self.saved_among(&parsed.not_understood).await;
        if !saved.is_empty() {
            parsed = read(saved).await?;
        }
        self.answered(text, &parsed).await
    }

    /// The words under which clusters are saved; none without the database.
    async fn saved_among(&self, words: &[String]) -> Vec<String> {
        let mut names = Vec::new();
        for word in words.iter().take(MOST_NAMES) {
            if self.is_saved(word).await {
                names.push(word.clone());
            }
        }
        names
    }

    /// Answer a request of a kind, as [`QuestionAnswer::kind`] and [`QuestionAnswer::request`] show it.
    ///
    /// # Errors
    /// As [`ask_offline`]; an unknown kind is [`ServiceError::Invalid`].
    pub async fn ask_as(
        &self,
        kind: &str,
        request: Value,
    ) -> Result<(QuestionAnswer, Vec<Notice>), ServiceError> {
        let meaning = match kind {
            "plan" => Meaning::Plan(request),
            "fits" => Meaning::Fits(request),
            "sizing" => Meaning::Sizing(request),
            "sweep" => Meaning::Sweep(request),
            "batch" => Meaning::Batch(request),
            "model" => Meaning::Model(request),
            _ => {
                let fault =
                    FieldError::at(&Pointer::root().key("kind"), "not_allowed", "no such kind of question")
                        .allowed(["plan", "fits", "sizing", "sweep", "batch", "model"]);
                return Err(ServiceError::Invalid(vec![fault]));
            }
        };
        let parsed = Parsed { meaning, not_understood: Vec::new(), assumed: Vec::new(), longest: false };
        self.answered("", &parsed).await
    }

    async fn answered(
        &self,
        text: &str,
        parsed: &Parsed,
    ) -> Result<(QuestionAnswer, Vec<Notice>), ServiceError> {
        let answer = QuestionAnswer::of(text, parsed);
        Ok(match &parsed.meaning {
            Meaning::Plan(request) => {
                let request = PlanRequest::read(request).map_err(ServiceError::Invalid)?;
                let (plan, _, notices) = self.plan(&request).await?;
                (answer.with_plan(plan, parsed.longest), notices)
            }
            Meaning::Fits(request) => {
                let known = self.fits(fits_request(request)?).await?;
                (answer.with_fits(known.fits.clone()), Vec::new())
            }
            Meaning::Sizing(request) => {
                let (sizing, notices) =
                    self.size(SizingRequest::read(request).map_err(ServiceError::Invalid)?).await?;
                (answer.with_sizing(sizing), notices)
            }
            Meaning::Sweep(request) => {
                let (sweep, notices) =
                    self.sweep(SweepRequest::read(request).map_err(ServiceError::Invalid)?).await?;
                (answer.with_sweep(sweep), notices)
            }
            Meaning::Batch(request) => {
                let (batch, notices) =
                    self.batch(BatchRequest::read(request).map_err(ServiceError::Invalid)?).await?;
                (answer.with_batch(batch), notices)
            }
            Meaning::Model(request) => (answer.with_model(self.model(id_of(request)).await?), Vec::new()),
            Meaning::Unclear(_) => (answer, Vec::new()),
        })
    }
}

fn fits_request(request: &Value) -> Result<FitsRequest, ServiceError> {
    let mut request = request.clone();
    if let Some(object) = request.as_object_mut() {
        object.entry("limit").or_insert_with(|| Value::from(ROWS));
    }
    FitsRequest::read(&request).map_err(ServiceError::Invalid)
}

fn id_of(request: &Value) -> &str {
    request.get("model").and_then(Value::as_str).unwrap_or_default()
}

/// The longest single sequence that a layout of the answer holds.
fn longest_of(plan: &Plan) -> Option<String> {
    let best = plan.layouts.iter().max_by_key(|layout| layout.capacity.max_sequence_tokens)?;
    let tokens = grouped(best.capacity.max_sequence_tokens);
    let all = best.capacity.max_sequence_tokens >= plan.model.context_length;
    let of_model = if all { ", all that the model takes" } else { "" };
    Some(format!("The longest sequence that fits is {tokens} tokens{of_model}, on {}.", best.layout.name()))
}

/// One plan after another, each under its model and cluster where those differ.
fn side_by_side(batch: &Batch) -> String {
    let of = |value: &Value| {
        value.get("id").unwrap_or(value).as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    let one_model = batch.items.iter().all(|item| Some(&item.model) == batch.items.first().map(|i| &i.model));
    let answers = batch.items.iter().map(|item| {
        let said = match (&item.plan, &item.problem) {
            (Some(plan), _) => plan.answer.clone(),
            (None, Some(problem)) => problem.detail.clone(),
            (None, None) => String::new(),
        };
        if one_model {
            format!("{}: {said}", of(&item.cluster))
        } else {
            format!("{} on {}: {said}", of(&item.model), of(&item.cluster))
        }
    });
    answers.collect::<Vec<_>>().join(" ")
}

fn in_brief(id: &str, facts: &ModelFacts, sizes: &ModelSizes) -> String {
    let gib = facts.weights_bytes as f64 / (1_u64 << 30) as f64;
    let cache = match &sizes.refused {
        Some(why) => why.clone(),
        None => format!("Cache of a token ({}): {}.", sizes.kv_cache_dtype, sizes.kv_formula),
    };
    format!(
        "{id}: {} parameters, {gib:.1} GiB of weights ({}). {cache}",
        short(facts.parameters),
        facts.quantization,
    )
}

/// The last point of a curve against the one before: is the larger size worth it.
fn compared(sweep: &Sweep) -> String {
    let points = sweep.curves.first().map(|curve| curve.points.as_slice()).unwrap_or_default();
    let [.., before, after] = points else { return "There is one size only; nothing to compare.".to_owned() };
    let name = |point: &Point| match &point.at {
        AxisValue::Number(n) => format!("{}={n}", sweep.over.to_uppercase()),
        AxisValue::Text(text) => text.clone(),
    };
    let many = points.len() > 2;
    let fitting: Vec<String> = points.iter().filter(|point| point.feasible).map(name).collect();
    match (before.kv_tokens_per_replica, after.kv_tokens_per_replica, before.tpot_ms, after.tpot_ms) {
        _ if fitting.is_empty() => {
            let why = after.why_not.as_ref().map_or_else(String::new, |why| format!(": {}", why.message));
            format!("None of them fits{why}")
        }
        _ if many && fitting.len() < points.len() => {
            let (verb, rest) =
                (if fitting.len() == 1 { "fits" } else { "fit" }, points.iter().filter(|p| !p.feasible));
            let rest: Vec<String> = rest.map(name).collect();
            let fitting = fitting.join(" and ");
            format!(
                "{fitting} {verb}, {} {}.",
                rest.join(" and "),
                if rest.len() == 1 { "does not" } else { "do not" }
            )
        }
        (Some(less), Some(more), Some(slow), Some(fast)) => {
            let copies = after.replication_factor.unwrap_or(1.0);
            let gain = more as f64 / less.max(1) as f64;
            let copied =
                if copies > 1.0 { format!("; every KV head is held {copies} times") } else { String::new() };
            format!(
                "{} holds {gain:.2} times the KV tokens of {} ({more} against {less}) and takes {fast:.1} ms a token against \
                 {slow:.1}{copied}.",
                name(after),
                name(before),
            )
        }
        (None, Some(_), ..) => format!("{} does not fit, {} does.", name(before), name(after)),
        _ => {
            let why = after.why_not.as_ref().map_or_else(String::new, |why| format!(": {}", why.message));
            format!("{} does not work{why}", name(after))
        }
    }
}
