//! A layout to what starts it on a platform, and the check of what was written.

mod prefill;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::checks::{Check, Status, check_written};
use super::question::{self, Asked};
use super::{App, ServiceError};
use crate::ingest::fields::hint;
use crate::ingest::json::Document;
use crate::ingest::launch::LaunchAsk;
use crate::ingest::{FieldError, Pointer};
use crate::launch::platform::{self, Choices, Inexpressible, LaunchFile, Platform};
use crate::planner::kv::handover::Compatibility;
use crate::planner::plan::{EngineName, Layout, Plan, RankedLayout};
use prefill::Half;
pub(super) use prefill::side;

/// The answer of `POST /v1/launches`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LaunchesAnswer {
    pub model: String,
    pub engine: EngineName,
    pub layout: Layout,
    /// What each engine should print as its cache.
    pub kv_tokens_per_replica: u64,
    /// The length that the files admit: never more than the cache holds.
    pub max_model_len: u64,
    /// The prefill workers of a pair; the layout above is then that of the decode workers.
    pub prefill: Option<PrefillWorkers>,
    /// One for each platform, in the order asked.
    pub launches: Vec<PlatformLaunch>,
}

/// The workers that compute prompts and hand their cache over.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PrefillWorkers {
    pub layout: Layout,
    pub kv_tokens_per_replica: u64,
    pub max_model_len: u64,
    /// What carries the cache.
    pub connector: String,
    /// Whether the decode workers can read it, and how well.
    pub handover: Compatibility,
}

/// A layout for one platform.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PlatformLaunch {
    pub platform: String,
    /// Version of the platform's fields.
    pub api_version: String,
    /// Where those fields were read.
    pub verified_against: String,
    /// Empty when the platform cannot express the layout.
    pub files: Vec<LaunchFile>,
    pub notes: Vec<String>,
    /// The files read back and checked as any other (`POST /v1/checks`).
    pub check: Option<WrittenCheck>,
    /// Why the platform cannot express it.
    pub refused: Option<Inexpressible>,
}

/// How the check of the files came out.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct WrittenCheck {
    pub verdict: Status,
    pub message: String,
    pub checks: Vec<Check>,
}

/// Write the files of a layout, from the catalogue alone.
///
/// # Errors
/// [`ServiceError::Invalid`] with every fault of the question; a layout that does not fit is one (`does_not_fit`).
pub fn launches_offline(document: &Document) -> Result<LaunchesAnswer, ServiceError> {
    let ask = read(document)?;
    answer(&ask, &question::asked_offline(&ask.ask.request)?)
}

impl App {
    /// As [`launches_offline`]; stored models are asked.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with every fault of the question; a layout that does not fit is one (`does_not_fit`).
    pub async fn launches(&self, document: &Document) -> Result<LaunchesAnswer, ServiceError> {
        let ask = read(document)?;
        answer(&ask, &self.asked(&ask.ask.request).await?)
    }
}

/// The question with its platforms known.
struct Ready {
    ask: LaunchAsk,
    platforms: Vec<Platform>,
}

fn read(document: &Document) -> Result<Ready, ServiceError> {
    let ask = LaunchAsk::read(document).map_err(ServiceError::Invalid)?;
    let known = Platform::named();
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let mut faults = Vec::new();
    let mut platforms: Vec<Platform> = Vec::new();
    for (i, asked) in ask.platforms.iter().enumerate() {
        let plain = asked.to_ascii_lowercase().replace([' ', '_'], "-");
        match known.iter().find(|(name, _)| *name == plain) {
            Some((_, platform)) if platforms.contains(platform) => {}
            Some((_, platform)) => platforms.push(*platform),
            None => {
                let detail = format!("no files are written for `{asked}`{}", hint(&plain, &names));
                let place = Pointer::root().key("platforms").index(i);
                let fault = FieldError::at(&place, "not_allowed", detail)
                    .allowed(names.iter().copied())
                    .got(&Value::String(asked.clone()));
                faults.push(fault);
            }
        }
    }
    if faults.is_empty() { Ok(Ready { ask, platforms }) } else { Err(ServiceError::Invalid(faults)) }
}

fn answer(ready: &Ready, asked: &Asked) -> Result<LaunchesAnswer, ServiceError> {
    let ask = &ready.ask;
    let plan = asked.plan();
    let index = usize::try_from(ask.rank).unwrap_or(usize::MAX).saturating_sub(1);
    let layout = plan.layouts.get(index).ok_or_else(|| does_not_fit(ask, &plan))?;
    let engine = &layout.engine;
    // the question's engines keep the release as it was asked; the rules have their own
    let release = ask
        .request
        .engines
        .iter()
        .zip(&asked.input.engines)
        .find(|(_, known)| known.name == engine.name && known.version == engine.version)
        .map(|(given, _)| given.version.clone());
    let choices = Choices {
        name: ask.name.clone(),
        image: ask.image.clone(),
        gpu_resource: ask.gpu_resource.clone(),
        rdma_resource: ask.rdma_resource.clone(),
        queue: ask.queue.clone(),
        release,
    };
    let pair = ask.prefill.as_ref().map(|prefill| Half::of(prefill, asked, layout)).transpose()?;
    let admitted = plan.request.engines.iter().find(|e| e.name == engine.name && e.version == engine.version);
    Ok(LaunchesAnswer {
        model: plan.model.id.clone(),
        engine: engine.clone(),
        layout: layout.layout.clone(),
        kv_tokens_per_replica: layout.capacity.kv_tokens_per_replica,
        max_model_len: admitted
            .map_or(u64::MAX, |e| e.max_model_len)
            .min(layout.capacity.max_sequence_tokens),
        launches: ready
            .platforms
            .iter()
            .map(|platform| launch(asked, &plan, layout, pair.as_ref(), *platform, &choices))
            .collect(),
        prefill: pair.map(|half| half.shown),
    })
}

fn launch(
    asked: &Asked,
    plan: &Plan,
    layout: &RankedLayout,
    pair: Option<&Half>,
    platform: Platform,
    choices: &Choices,
) -> PlatformLaunch {
    let mut answer = PlatformLaunch {
        platform: platform.name().to_owned(),
        api_version: platform.api_version().to_owned(),
        verified_against: platform.verified_against().to_owned(),
        files: Vec::new(),
        notes: Vec::new(),
        check: None,
        refused: None,
    };
    let written = match pair.and_then(Half::pool) {
        None => platform::write(&asked.input, plan, layout, platform, choices),
        Some(pool) => platform::write_pair(&asked.input, plan, layout, pool, platform, choices),
    };
    match written {
        Ok(written) => {
            answer.check = Some(checked(&written.files, asked, layout));
            answer.files = written.files;
            answer.notes = written.notes;
        }
        Err(why) => answer.refused = Some(why),
    }
    answer
}

/// Read the files back and check them as if somebody else had written them.
fn checked(files: &[LaunchFile], asked: &Asked, layout: &RankedLayout) -> WrittenCheck {
    let texts: Vec<(&str, &str)> = files.iter().map(|f| (f.name.as_str(), f.text.as_str())).collect();
    let answer = check_written(&texts, asked, &layout.engine.version);
    WrittenCheck { verdict: answer.verdict, message: answer.message, checks: answer.checks }
}

fn does_not_fit(ask: &LaunchAsk, plan: &Plan) -> ServiceError {
    let place = Pointer::root().key(if ask.layout_given { "layout" } else { "rank" });
    let detail = match (plan.layouts.len(), plan.refused.first()) {
        (0, Some(refused)) if ask.layout_given => refused.message.clone(),
        (0, _) => plan.answer.clone(),
        (found, _) => format!("only {found} layouts fit, there is no number {}", ask.rank),
    };
    ServiceError::Invalid(vec![FieldError::at(&place, "does_not_fit", detail)])
}
