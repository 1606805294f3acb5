//! Comparisons that are kept: recovered settings and figures beside the prediction, never the log.

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::residuals::{MOST, PAGE};
use super::{ObservationAnswer, Refused, answer, copy_of, read_log, request};
use crate::ingest::fields::Fields;
use crate::ingest::json::Document;
use crate::ingest::{FieldError, Pointer};
use crate::service::models::written;
use crate::service::{App, ServiceError};
use crate::store::{ObservationHead, ObservationPage, ObservationRecord, Store};

/// Hexadecimal digits of an id: 128 bits of SHA-256.
const ID_DIGITS: usize = 32;

/// A kept start-up in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ObservationRow {
    pub id: String,
    /// When it was first kept, RFC 3339.
    pub observed_at: String,
    pub engine: String,
    pub version: String,
    /// Catalogue key; null when nothing said what it ran on.
    pub gpu: Option<String>,
    pub model: Option<String>,
    /// The sizes, e.g. "TP=8 × PP=2".
    pub layout: String,
    /// `started`, `refused`, `unknown`.
    pub outcome: String,
    /// True when prediction and log agree on whether it starts; null when either says nothing.
    pub outcome_agrees: Option<bool>,
    /// What the engine printed; null when it printed none.
    pub kv_tokens_observed: Option<f64>,
    /// Null without a prediction.
    pub kv_tokens_predicted: Option<f64>,
    /// Predicted over observed KV tokens; null when either is missing.
    pub kv_tokens_ratio: Option<f64>,
}

/// A page of kept start-ups, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ObservationRows {
    pub items: Vec<ObservationRow>,
    /// Send it as `page_token` for the next page; null on the last.
    pub next_page_token: Option<String>,
}

/// Which kept start-ups are meant: empty = all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservationFilter {
    pub engine: Option<String>,
    pub version: Option<String>,
    /// Catalogue key.
    pub gpu: Option<String>,
    pub model: Option<String>,
}

impl ObservationFilter {
    pub(super) fn page(&self, before: Option<(OffsetDateTime, String)>, limit: u32) -> ObservationPage {
        ObservationPage {
            before,
            engine: self.engine.clone(),
            version: self.version.clone(),
            gpu: self.gpu.clone(),
            model: self.model.clone(),
            limit,
        }
    }
}

/// Whether a comparison is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    No,
    /// Kept when the database is there; the answer says whether it was.
    IfPossible,
    /// Kept, or the request fails.
    Must,
}

impl App {
    /// Read a log in a request, compare it with the prediction, and keep what was compared as of `now`.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with every fault of the question; [`ServiceError::Unavailable`] when the caller insists
    /// on keeping it and the database is away.
    pub async fn observe(
        &self,
        document: &Document,
        now: OffsetDateTime,
    ) -> Result<ObservationAnswer, ServiceError> {
        let (text, base, keep) = parts(document).map_err(ServiceError::Invalid)?;
        let observed = read_log(text.as_bytes()).map_err(|e| ServiceError::Internal(e.to_string()))?;
        let asked = match request(&observed, &base)? {
            Some(request) => Some(match self.asked(&request).await {
                Err(error) => match copy_of(&request, &error) {
                    Some(request) => self.asked(&request).await,
                    None => Err(error),
                },
                asked => asked,
            }),
            None => None,
        };
        let mut answer = answer(&observed, asked)?;
        if keep == Keep::No {
            answer.not_stored = Some("the request says so".to_owned());
        } else if answer.engine.is_empty() {
            answer.not_stored = Some("no line of the log says which engine it is of".to_owned());
        } else {
            let record = record(&answer, &base, now)?;
            match self.guard.put_observation(&record).await {
                Ok(()) => {
                    self.observations_changed.notify_one();
                    answer.observed_at = Some(written(record.head.observed_at));
                    answer.id = Some(record.head.id);
                    answer.stored = true;
                }
                Err(fault) if keep == Keep::Must => return Err(fault.into()),
                Err(_) => {
                    answer.not_stored = Some("the database is away; send it again to keep it".to_owned());
                }
            }
        }
        Ok(answer)
    }

    /// The start-up kept under an id.
    ///
    /// # Errors
    /// [`ServiceError::NoObservation`]; [`ServiceError::Unavailable`].
    pub async fn observation(&self, id: &str) -> Result<ObservationAnswer, ServiceError> {
        let kept = self.guard.observation(known(id)?).await?.ok_or_else(|| no_observation(id))?;
        let answer: ObservationAnswer = serde_json::from_value(kept.record)
            .map_err(|e| ServiceError::Internal(format!("a kept observation cannot be read: {e}")))?;
        Ok(ObservationAnswer {
            id: Some(kept.head.id),
            stored: true,
            not_stored: None,
            observed_at: Some(written(kept.head.observed_at)),
            ..answer
        })
    }

    /// Kept start-ups, newest first, at most `limit`, after the page that ended with `token`.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn observations(
        &self,
        filter: &ObservationFilter,
        before: Option<(OffsetDateTime, String)>,
        limit: u32,
    ) -> Result<ObservationRows, ServiceError> {
        let page = filter.page(before, limit.saturating_add(1));
        let mut kept = self.guard.observations(&page).await?;
        let more = kept.len() > limit as usize;
        kept.truncate(limit as usize);
        let next_page_token = kept.last().filter(|_| more).map(token_after);
        Ok(ObservationRows { items: kept.into_iter().map(row).collect(), next_page_token })
    }

    /// Every kept start-up, the newest first, up to as many as accuracy is summed over.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn all_observations(&self) -> Result<Vec<ObservationAnswer>, ServiceError> {
        let mut all: Vec<ObservationAnswer> = Vec::new();
        let mut before = None;
        while all.len() < MOST {
            let page = ObservationFilter::default().page(before, PAGE);
            let heads = self.guard.observations(&page).await?;
            for head in &heads {
                // one that was forgotten meanwhile is none
                match self.observation(&head.id).await {
                    Ok(answer) => all.push(answer),
                    Err(ServiceError::NoObservation(_)) => {}
                    Err(fault) => return Err(fault),
                }
            }
            before = heads.last().map(|last| (last.observed_at, last.id.clone()));
            if heads.len() < PAGE as usize {
                break;
            }
        }
        Ok(all)
    }

    /// Forget a kept start-up.
    ///
    /// # Errors
    /// [`ServiceError::NoObservation`]; [`ServiceError::Unavailable`].
    pub async fn delete_observation(&self, id: &str) -> Result<(), ServiceError> {
        if !self.guard.delete_observation(known(id)?).await? {
            return Err(no_observation(id));
        }
        self.observations_changed.notify_one();
        Ok(())
    }
}

/// A log, what stands beside it in its body, and whether the comparison is to be kept.
type Parts<'d> = (&'d str, Map<String, Value>, Keep);

/// The log of a body, and what it says beside it: `cluster`, `model`, `assumptions`, and whether it is to be kept.
fn parts(document: &Document) -> Result<Parts<'_>, Vec<FieldError>> {
    let mut faults = document.duplicates.clone();
    let mut log = None;
    let mut base = Map::new();
    let mut keep = Keep::IfPossible;
    if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
        log = fields.required("log").and_then(Value::as_str);
        if log.is_none() && fields.has("log") {
            fields.refuse("log", "wrong_type", "`log` is the text of the log");
        }
        for key in ["cluster", "model", "assumptions"] {
            if let Some(value) = fields.raw(key) {
                base.insert(key.to_owned(), value.clone());
            }
        }
        keep = match fields.flag("store") {
            None => Keep::IfPossible,
            Some(true) => Keep::Must,
            Some(false) => Keep::No,
        };
        fields.finish();
    }
    match log {
        Some(log) if faults.is_empty() => Ok((log, base, keep)),
        _ => Err(faults),
    }
}

/// What is kept of a comparison: no line of the log, and no rows of it.
fn record(
    answer: &ObservationAnswer,
    base: &Map<String, Value>,
    now: OffsetDateTime,
) -> Result<ObservationRecord, ServiceError> {
    let kept = ObservationAnswer {
        refusal: answer.refusal.as_ref().map(|r| Refused { message: None, ..r.clone() }),
        topology: None,
        ..answer.clone()
    };
    let item = |name: &str| answer.items.iter().find(|i| i.name == name);
    let tokens = item("kv_tokens");
    let ratios: Map<String, Value> =
        answer.items.iter().filter_map(|i| Some((i.name.clone(), json!(i.ratio?)))).collect();
    let head = ObservationHead {
        id: id_of(answer, base),
        engine: answer.engine.clone(),
        version: answer.version.clone(),
        gpu: answer.gpu.clone().unwrap_or_default(),
        model: answer.model.clone().unwrap_or_default(),
        layout: answer.layout.clone(),
        outcome: answer.outcome.clone(),
        outcome_agrees: answer.outcome_agrees,
        kv_tokens_observed: tokens.map(|i| i.observed),
        kv_tokens_predicted: tokens.and_then(|i| i.predicted),
        ratios: Value::Object(ratios),
        // whole seconds: both databases order texts and times alike then
        observed_at: now.replace_nanosecond(0).unwrap_or(now),
    };
    let record = serde_json::to_value(kept)
        .map_err(|e| ServiceError::Internal(format!("an observation cannot be written: {e}")))?;
    Ok(ObservationRecord { head, record })
}

/// The hash of what was observed and on what: the same start sent twice is one observation, whatever was predicted.
fn id_of(answer: &ObservationAnswer, base: &Map<String, Value>) -> String {
    let figures: Vec<(&str, f64)> = answer.items.iter().map(|i| (i.name.as_str(), i.observed)).collect();
    let content = json!({
        "engine": [answer.engine, answer.version],
        "model": answer.model,
        "settings": answer.settings,
        "outcome": answer.outcome,
        "refusal": answer.refusal.as_ref().map(|r| &r.code),
        "figures": figures,
        "asked": base,
    });
    let mut id = hex::encode(Sha256::digest(content.to_string()));
    id.truncate(ID_DIGITS);
    id
}

fn known(id: &str) -> Result<&str, ServiceError> {
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if is_id { Ok(id) } else { Err(no_observation(id)) }
}

fn no_observation(id: &str) -> ServiceError {
    ServiceError::NoObservation(id.chars().take(64).collect())
}

fn row(head: ObservationHead) -> ObservationRow {
    let told = |text: String| Some(text).filter(|t| !t.is_empty());
    ObservationRow {
        id: head.id,
        observed_at: written(head.observed_at),
        engine: head.engine,
        version: head.version,
        gpu: told(head.gpu),
        model: told(head.model),
        layout: head.layout,
        outcome: head.outcome,
        outcome_agrees: head.outcome_agrees,
        kv_tokens_observed: head.kv_tokens_observed,
        kv_tokens_predicted: head.kv_tokens_predicted,
        kv_tokens_ratio: head.ratios.get("kv_tokens").and_then(Value::as_f64),
    }
}

/// The token of the page after this row.
fn token_after(head: &ObservationHead) -> String {
    format!("{:x}-{}", head.observed_at.unix_timestamp(), head.id)
}

/// Where the page of a token starts; `None` for a text that is no token.
#[must_use]
pub fn page_start(token: &str) -> Option<(OffsetDateTime, String)> {
    let (time, id) = token.split_once('-')?;
    let time = OffsetDateTime::from_unix_timestamp(i64::from_str_radix(time, 16).ok()?).ok()?;
    Some((time, known(id).ok()?.to_owned()))
}
