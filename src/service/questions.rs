//! Questions in plain words: parsed into one of the typed requests, which is shown beside the answer.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::fits::{Fits, fits};
use super::fleet::{apart, size_offline, sweep_offline};
use super::question::plan_offline;
use super::sweeps::SweepAnswer;
use super::{App, Notice, PlanAnswer, ServiceError};
use crate::catalogue::hardware;
use crate::ingest::fits::FitsRequest;
use crate::ingest::question::{self, EXAMPLES, Meaning, Parsed};
use crate::ingest::request::PlanRequest;
use crate::ingest::sizing::SizingRequest;
use crate::ingest::sweep::SweepRequest;
use crate::ingest::{FieldError, Pointer};
use crate::planner::sizing::Sizing;

/// Rows of "what fits" that a question shows when it names no number.
const ROWS: u64 = 50;

/// A question, what was understood, and the answer to that.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct QuestionAnswer {
    pub question: String,
    /// `plan`, `fits`, `sizing`, `sweep`, or `unclear`.
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
    /// What can be asked, where nothing was understood.
    pub examples: Vec<String>,
}

impl QuestionAnswer {
    fn of(text: &str, parsed: &Parsed) -> Self {
        let (kind, request, answer) = match &parsed.meaning {
            Meaning::Plan(request) => ("plan", Some(request), String::new()),
            Meaning::Fits(request) => ("fits", Some(request), String::new()),
            Meaning::Sizing(request) => ("sizing", Some(request), String::new()),
            Meaning::Sweep(request) => ("sweep", Some(request), String::new()),
            Meaning::Unclear(why) => {
                ("unclear", None, format!("{why} You can ask, for example: {}.", EXAMPLES.join("; ")))
            }
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
            examples: if request.is_none() { EXAMPLES.map(str::to_owned).to_vec() } else { Vec::new() },
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

    fn with_plan(mut self, plan: PlanAnswer) -> Self {
        self.answer.clone_from(&plan.plan.answer);
        self.plan = Some(Box::new(plan));
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
            answer.with_plan(plan_offline(&PlanRequest::read(request).map_err(ServiceError::Invalid)?)?)
        }
        Meaning::Fits(request) => answer.with_fits(fits(&fits_request(request)?)?),
        Meaning::Sizing(request) => {
            answer.with_sizing(size_offline(&SizingRequest::read(request).map_err(ServiceError::Invalid)?)?)
        }
        Meaning::Sweep(request) => {
            answer.with_sweep(sweep_offline(&SweepRequest::read(request).map_err(ServiceError::Invalid)?)?)
        }
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
        let (words, on) = (text.to_owned(), usual.map(str::to_owned));
        let parsed = apart(move || question::parse_on(&words, on.as_deref(), hardware::catalogue())).await?;
        self.answered(text, &parsed).await
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
            _ => {
                let fault =
                    FieldError::at(&Pointer::root().key("kind"), "not_allowed", "no such kind of question")
                        .allowed(["plan", "fits", "sizing", "sweep"]);
                return Err(ServiceError::Invalid(vec![fault]));
            }
        };
        let parsed = Parsed { meaning, not_understood: Vec::new(), assumed: Vec::new() };
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
                (answer.with_plan(plan), notices)
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

/// The last point of a curve over TP against the one before: is the larger size worth it.
fn compared(sweep: &crate::planner::sweep::Sweep) -> String {
    let points = sweep.curves.first().map(|curve| curve.points.as_slice()).unwrap_or_default();
    let [.., before, after] = points else { return "There is one size only; nothing to compare.".to_owned() };
    let name = |point: &crate::planner::sweep::Point| match &point.at {
        crate::planner::sweep::AxisValue::Number(n) => format!("TP={n}"),
        crate::planner::sweep::AxisValue::Text(text) => text.clone(),
    };
    match (before.kv_tokens_per_replica, after.kv_tokens_per_replica, before.tpot_ms, after.tpot_ms) {
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
        (Some(_), None, ..) => {
            let why = after.why_not.as_ref().map_or_else(String::new, |why| format!(": {}", why.message));
            format!("{} does not work{why}", name(after))
        }
        _ => "Neither size fits.".to_owned(),
    }
}
