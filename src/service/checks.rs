//! Before a deployment: will it start, what will its pool be, and what in it is wrong.

mod judge;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::question::{self, Asked};
use super::{App, ServiceError};
use crate::catalogue::models;
use crate::ingest::check::{self, CheckAsk, Described, Policy};
use crate::ingest::command::{At, Finding, Meaning, Severity};
use crate::ingest::json::Document;
use crate::ingest::request::{ModelRequest, ModelSource, PlanRequest};
use crate::ingest::{FieldError, Pointer};
use crate::planner::input::PlanInput;
use crate::planner::plan::{RankedLayout, RefusedLayout};

/// How a check came out, or all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pass,
    Warn,
    Fail,
}

impl Status {
    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Check {
    /// Stable code: `starts`, `kv_pool`, `kv_replicated`, `tp_crosses_nodes`, `max_model_len`, `unknown_flag`, …
    pub code: String,
    pub status: Status,
    /// The deployment it is about; empty for the file as a whole.
    pub deployment: String,
    /// Line of the text, from 1.
    pub line: Option<u32>,
    pub message: String,
    /// The policy made it fail.
    pub denied: bool,
}

/// The answer of `POST /v1/checks`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CheckAnswer {
    pub verdict: Status,
    pub message: String,
    /// Worst first, then by line.
    pub checks: Vec<Check>,
    pub deployments: Vec<DeploymentAnswer>,
}

/// What will run.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DeploymentAnswer {
    pub name: String,
    /// `command`, or the platform of the manifest.
    pub platform: String,
    pub role: String,
    pub engine: String,
    pub model: String,
    /// Null: no rules are known for the engine, so nothing can be said.
    pub will_start: Option<bool>,
    pub replicas: u64,
    /// GPUs over all replicas.
    pub gpus: u64,
    /// What one engine will print as its cache size.
    pub kv_tokens_per_replica: Option<u64>,
    pub max_sequence_tokens: Option<u64>,
    /// The layout as a plan shows it.
    pub layout: Option<RankedLayout>,
    pub refused: Option<RefusedLayout>,
}

/// Check a command or manifest against a cluster, from the catalogue alone.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question.
pub fn check_offline(document: &Document) -> Result<CheckAnswer, ServiceError> {
    let ask = CheckAsk::read(document).map_err(ServiceError::Invalid)?;
    let mut checker = Checker::new(&ask);
    for described in ask.deployments.iter().filter(|d| d.deployment.role != "headless") {
        let request = plan_request(&ask, described)?;
        let asked = match question::asked_offline(&request) {
            Err(error) => match checker.stored_otherwise(described, &request, &error) {
                Some(request) => question::asked_offline(&request),
                None => Err(error),
            },
            asked => asked,
        };
        checker.take(described, asked)?;
    }
    Ok(checker.answer(&ask.policy))
}

impl App {
    /// As [`check_offline`]; stored models are asked.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with every fault of the question.
    pub async fn check(&self, document: &Document) -> Result<CheckAnswer, ServiceError> {
        let ask = CheckAsk::read(document).map_err(ServiceError::Invalid)?;
        let mut checker = Checker::new(&ask);
        for described in ask.deployments.iter().filter(|d| d.deployment.role != "headless") {
            let request = plan_request(&ask, described)?;
            let asked = match self.asked(&request).await {
                Err(error) => match checker.stored_otherwise(described, &request, &error) {
                    Some(request) => self.asked(&request).await,
                    None => Err(error),
                },
                asked => asked,
            };
            checker.take(described, asked)?;
        }
        Ok(checker.answer(&ask.policy))
    }
}

/// Check files that were written for a plan question, whose model and cluster are looked up already; `version` selects the
/// rules of the engine.
pub(super) fn check_written(files: &[(&str, &str)], asked: &Asked, version: &str) -> CheckAnswer {
    let mut checker = Checker { checks: Vec::new(), halves: Vec::new(), deployments: Vec::new() };
    match check::written(files) {
        Ok((described, findings)) => {
            checker.findings("", &findings);
            if described.is_empty() {
                checker.unreadable("no engine is started in it".to_owned());
            }
            for described in described.iter().filter(|d| d.deployment.role != "headless") {
                let mut settings = described.deployment.command.settings.clone();
                version.clone_into(&mut settings.version);
                let input = PlanInput { engines: vec![settings], limit: 1, ..asked.input.clone() };
                checker.findings(&described.deployment.name, &described.deployment.command.findings);
                let judged = judge::judge(
                    described,
                    Asked { input, source: asked.source, notes: asked.notes.clone() },
                );
                checker.checks.extend(judged.checks);
                checker.halves.extend(judged.half);
                checker.deployments.push(judged.deployment);
            }
        }
        Err(why) => checker.unreadable(why),
    }
    checker.answer(&Policy::default())
}

/// The plan question behind a deployment. Its sizes are put in once the model is known.
fn plan_request(ask: &CheckAsk, described: &Described) -> Result<PlanRequest, ServiceError> {
    let mut base = ask.base.clone();
    let deployment = &described.deployment;
    if !base.contains_key("model")
        && let Some(model) = &deployment.command.model
    {
        base.insert("model".to_owned(), Value::String(model.value.clone()));
    }
    if !base.contains_key("cluster")
        && let Some(gpu) = &deployment.gpu
    {
        let gpus = deployment.command.ranks().saturating_mul(deployment.replicas).max(1);
        base.insert("cluster".to_owned(), Value::String(format!("{gpus}x {gpu}")));
    }
    let mut request = PlanRequest::read(&Value::Object(base)).map_err(ServiceError::Invalid)?;
    let mut settings = deployment.command.settings.clone();
    if let Some(version) = &ask.engine_version {
        settings.version.clone_from(version);
    }
    request.model.quantized_on_load = settings.made_on_load();
    request.engines = vec![settings];
    request.of_a_command = true;
    request.limit = 1;
    Ok(request)
}

/// Deployments checked so far.
struct Checker {
    checks: Vec<Check>,
    halves: Vec<judge::Half>,
    deployments: Vec<DeploymentAnswer>,
}

impl Checker {
    fn new(ask: &CheckAsk) -> Self {
        let mut this = Self { checks: Vec::new(), halves: Vec::new(), deployments: Vec::new() };
        this.findings("", &ask.findings);
        this
    }

    fn take(
        &mut self,
        described: &Described,
        asked: Result<Asked, ServiceError>,
    ) -> Result<(), ServiceError> {
        let name = described.deployment.name.clone();
        self.findings(&name, &described.deployment.command.findings);
        match asked {
            Ok(asked) => {
                let judged = judge::judge(described, asked);
                self.checks.extend(judged.checks);
                self.halves.extend(judged.half);
                self.deployments.push(judged.deployment);
                Ok(())
            }
            // an engine without rules is no fault of the caller: its flags were read all the same
            Err(ServiceError::Invalid(faults)) if faults.iter().all(|f| f.code == "unknown_engine") => {
                self.unknown_engine(described, &faults);
                Ok(())
            }
            Err(ServiceError::Invalid(faults)) => {
                Err(ServiceError::Invalid(faults.into_iter().map(placed).collect()))
            }
            Err(other) => Err(other),
        }
    }

    /// A quantised copy of a known model, where nothing is known of the copy itself.
    fn stored_otherwise(
        &mut self,
        described: &Described,
        request: &PlanRequest,
        error: &ServiceError,
    ) -> Option<PlanRequest> {
        let ServiceError::Invalid(faults) = error else { return None };
        if !faults.iter().all(|f| f.code == "unknown_model") {
            return None;
        }
        let ModelSource::Id { id, .. } = &request.model.source else { return None };
        let (known, weights) = quantised_copy(id)?;
        self.checks.push(Check {
            code: "model_assumed".to_owned(),
            status: Status::Warn,
            deployment: described.deployment.name.clone(),
            line: Some(described.deployment.command.line_of(Meaning::Model)),
            message: format!("nothing is known of {id}: read as {known} with its weights in {weights}"),
            denied: false,
        });
        let mut model = ModelRequest::by_id(known);
        model.weights = Some(weights.to_owned());
        Some(PlanRequest { model, ..request.clone() })
    }

    fn unknown_engine(&mut self, described: &Described, faults: &[FieldError]) {
        let deployment = &described.deployment;
        let command = &deployment.command;
        let message = faults.first().map_or_else(String::new, |f| f.detail.clone());
        self.checks.push(Check {
            code: "engine_rules_unknown".to_owned(),
            status: Status::Warn,
            deployment: deployment.name.clone(),
            line: Some(command.line),
            message: format!("only the flags were checked: {message}"),
            denied: false,
        });
        self.deployments.push(DeploymentAnswer {
            name: deployment.name.clone(),
            platform: described.platform.to_owned(),
            role: deployment.role.clone(),
            engine: format!("{} {}", command.settings.name, command.settings.version).trim().to_owned(),
            model: command.model.as_ref().map(|m| m.value.clone()).unwrap_or_default(),
            will_start: None,
            replicas: deployment.replicas,
            gpus: command.ranks().saturating_mul(deployment.replicas),
            kv_tokens_per_replica: None,
            max_sequence_tokens: None,
            layout: None,
            refused: None,
        });
    }

    /// What was written cannot be read back.
    fn unreadable(&mut self, why: String) {
        self.checks.push(Check {
            code: "not_read_back".to_owned(),
            status: Status::Fail,
            deployment: String::new(),
            line: None,
            message: why,
            denied: false,
        });
    }

    fn findings(&mut self, deployment: &str, findings: &[Finding]) {
        self.checks.extend(findings.iter().map(|finding| Check {
            code: finding.code.to_owned(),
            status: match finding.severity {
                Severity::Note => Status::Pass,
                Severity::Warn => Status::Warn,
                Severity::Fail => Status::Fail,
            },
            deployment: deployment.to_owned(),
            line: Some(finding.line),
            message: finding.message.clone(),
            denied: false,
        }));
    }

    fn answer(mut self, policy: &Policy) -> CheckAnswer {
        self.checks.extend(judge::handovers(&self.halves));
        for check in &mut self.checks {
            if policy.deny.contains(&check.code) && check.status != Status::Pass {
                check.status = Status::Fail;
                check.denied = true;
            } else if policy.allow.contains(&check.code) && check.code != "starts" {
                check.status = Status::Pass;
            }
        }
        self.checks.sort_by(|a, b| b.status.cmp(&a.status).then(a.line.cmp(&b.line)));
        let verdict = self.checks.iter().map(|c| c.status).max().unwrap_or(Status::Pass);
        let count = |status| self.checks.iter().filter(|c| c.status == status).count();
        let message = match self.checks.first() {
            Some(worst) if verdict != Status::Pass => format!(
                "{}: {} fail, {} warn. {}",
                verdict.as_str(),
                count(Status::Fail),
                count(Status::Warn),
                worst.message
            ),
            _ => self
                .checks
                .iter()
                .find(|c| c.code == "kv_pool")
                .map_or_else(|| "pass".to_owned(), |c| format!("pass: {}", c.message)),
        };
        CheckAnswer { verdict, message, checks: self.checks, deployments: self.deployments }
    }
}

/// The model that an id is a quantised copy of, by the usual endings, and the format of the copy.
pub(super) fn quantised_copy(id: &str) -> Option<(&'static str, &'static str)> {
    const ENDINGS: &[(&str, &str)] = &[
        ("-fp8-dynamic", "fp8"),
        ("-fp8", "fp8"),
        ("-nvfp4", "nvfp4"),
        ("-fp4", "nvfp4"),
        ("-int4-w4a16", "int4"),
        ("-gptq-int4", "int4"),
        ("-int4", "int4"),
        ("-awq", "int4"),
        ("-w4a16", "int4"),
        ("-int8", "int8"),
        ("-w8a8", "int8"),
    ];
    let lower = id.to_ascii_lowercase();
    let (ending, weights) = ENDINGS.iter().find(|(ending, _)| lower.ends_with(ending))?;
    let base = id.get(..id.len().checked_sub(ending.len())?)?;
    let name = base.rsplit('/').next().unwrap_or(base);
    let entry = models::find(base).or_else(|_| models::find(name)).ok()?;
    Some((entry.id, weights))
}

/// Faults of the plan question behind a check: a model that nobody knows was read from the text.
fn placed(fault: FieldError) -> FieldError {
    if fault.pointer.starts_with("#/engine") {
        return FieldError { pointer: Pointer::root().key("engine_version").fragment(), ..fault };
    }
    fault
}

/// A size of a command, 1 where it names none.
fn size(at: Option<&At<u64>>) -> u64 {
    at.map_or(1, |a| a.value)
}
