//! Model configurations: the catalogue's and the stored ones as one collection.

use std::sync::atomic::Ordering;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use super::from_hub::HubOrigin;
use super::{App, ConfigNote, Expect, Put, ServiceError};
use crate::catalogue;
use crate::ingest::config_json::{self, ReadModel};
use crate::ingest::{FieldError, Pointer};
use crate::planner::input::EngineSettings;
use crate::planner::model::ModelSpec;
use crate::planner::sizes::{ModelSizes, sizes};
use crate::planner::{engine, formula};
use crate::store::{DEFAULT_REVISION, Lookup, ModelRecord, Page};

/// A model in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelEntry {
    /// `org/name`.
    pub id: String,
    /// `catalogue` (embedded in the program) or `stored` (put here, or fetched from the hub).
    pub source: String,
    /// The house or line it belongs to, e.g. `Llama`; null for stored models.
    pub family: Option<String>,
    pub parameters: Option<u64>,
    pub active_parameters: Option<u64>,
    pub context_length: Option<u64>,
    pub quantization: Option<String>,
    /// The model whose shape this one has: every figure is the same.
    pub same_shape_as: Option<String>,
    /// When it was stored; null for the catalogue.
    pub updated_at: Option<String>,
}

/// A page of models, in order of id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelPage {
    pub items: Vec<ModelEntry>,
    /// Send it as `page_token` for the next page; null on the last.
    pub next_page_token: Option<String>,
    /// True when the database is away: only the catalogue is listed.
    pub catalogue_only: bool,
}

/// A model with its configuration and what was read from it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelView {
    pub id: String,
    /// `catalogue` or `stored`.
    pub source: String,
    /// When it was stored; null for the catalogue.
    pub updated_at: Option<String>,
    /// True when the database is away: a stored model is shown as last seen, or the catalogue's in its place.
    pub may_be_old: bool,
    /// The hub's commit and entity tag, for a model that was fetched from there.
    pub hub: Option<HubOrigin>,
    /// The models of the catalogue that have exactly this shape: the same weights, cache and speed.
    pub same_shape: Vec<String>,
    pub facts: ModelFacts,
    /// Weights by purpose, the cache of a token, and the TP sizes that vLLM takes.
    pub sizes: ModelSizes,
    /// What the reader did not use.
    pub notes: Vec<ConfigNote>,
    /// The config.json as given.
    #[schema(value_type = Object)]
    pub config: Value,
    /// The quantisation block of a side file, when there is one.
    #[schema(value_type = Option<Object>)]
    pub quantization_config: Option<Value>,
    /// Hash of config and quantisation block.
    #[serde(skip)]
    pub hash: String,
}

/// What a configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelFacts {
    pub architecture: String,
    pub layers: u64,
    pub hidden_size: u64,
    pub query_heads: u64,
    pub kv_heads: u64,
    pub head_size: u64,
    pub attention: String,
    /// Distinct parameters (tied tensors once).
    pub parameters: u64,
    /// Parameters that one token passes through.
    pub active_parameters: u64,
    /// Weights of one full copy.
    pub weights_bytes: u64,
    pub quantization: String,
    pub context_length: u64,
}

/// A model of the catalogue by its id.
///
/// # Errors
/// [`ServiceError::NoModel`].
pub fn listed_model(id: &str) -> Result<ModelView, ServiceError> {
    let entry = listed(id).ok_or_else(|| no_model(id))?;
    let (config, side) = (entry.config(), entry.side_quantization());
    let read = read(id, &config, side.as_ref()).map_err(|_| {
        ServiceError::Internal(format!("the catalogue's configuration of {id} cannot be read"))
    })?;
    let same_shape = entry.of_same_shape().iter().map(|other| other.id.to_owned()).collect();
    Ok(ModelView { same_shape, ..view(id, "catalogue", false, &config, side.as_ref(), &read) })
}

/// The longest id.
const MAX_ID: usize = 200;

impl App {
    /// Models whose id contains `search`, after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ServiceError::Internal`]; a database that is away is said in the page.
    pub async fn list_models(
        &self,
        search: &str,
        after: &str,
        limit: u32,
    ) -> Result<ModelPage, ServiceError> {
        let needle = search.to_lowercase();
        // after the last revision of an id: no revision is above it
        let page = Page {
            after: (after.to_owned(), "\u{10ffff}".to_owned()),
            search: needle.clone(),
            limit: limit + 1,
        };
        let (stored, catalogue_only) = match self.models.list(&page).await.map_err(ServiceError::from) {
            Ok(heads) => (heads, false),
            Err(ServiceError::Unavailable(_)) => (Vec::new(), true),
            Err(error) => return Err(error),
        };
        let listed = catalogue::models::all()
            .iter()
            .filter(|entry| entry.id > after && named(entry, &needle))
            .filter(|entry| !stored.iter().any(|head| head.id == entry.id))
            .map(|entry| ModelEntry {
                id: entry.id.to_owned(),
                source: "catalogue".to_owned(),
                family: Some(entry.family.to_owned()),
                parameters: Some(entry.parameters),
                active_parameters: Some(entry.active_parameters),
                context_length: Some(entry.context_length),
                quantization: Some(entry.quantization.to_owned()),
                same_shape_as: entry.twin_of().map(|twin| twin.id.to_owned()),
                updated_at: None,
            });
        let kept = stored.iter().map(|head| ModelEntry {
            id: head.id.clone(),
            source: "stored".to_owned(),
            family: None,
            parameters: None,
            active_parameters: None,
            context_length: None,
            quantization: None,
            same_shape_as: None,
            updated_at: Some(written(head.updated_at)),
        });
        let mut items: Vec<ModelEntry> = kept.chain(listed).collect();
        items.sort_by(|a, b| a.id.cmp(&b.id));
        items.dedup_by(|a, b| a.id == b.id);
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_page_token = items.last().filter(|_| more).map(|last| hex::encode(&last.id));
        Ok(ModelPage { items, next_page_token, catalogue_only })
    }

    /// One model, stored or of the catalogue.
    ///
    /// # Errors
    /// [`ServiceError::NoModel`]; [`ServiceError::Unavailable`] when only the database could know.
    pub async fn model(&self, id: &str) -> Result<ModelView, ServiceError> {
        if !is_id(id) {
            return Err(no_model(id));
        }
        let listed = listed(id);
        let (record, may_be_old) = match self.models.find(id, DEFAULT_REVISION).await? {
            Lookup::Known(record) => (record, false),
            Lookup::Stale(record) => (record, true),
            Lookup::Unknown(_) if listed.is_some() => (None, true),
            Lookup::Unknown(away) => return Err(away.into()),
        };
        if let Some(record) = record {
            let read = read(id, &record.config, record.quantization_config.as_ref()).map_err(|_| {
                ServiceError::Internal(format!("the stored configuration of {id} can no longer be read"))
            })?;
            return Ok(ModelView {
                updated_at: Some(written(record.updated_at)),
                hub: HubOrigin::of(&record.source),
                ..view(id, "stored", may_be_old, &record.config, record.quantization_config.as_ref(), &read)
            });
        }
        Ok(ModelView { may_be_old, ..listed_model(id)? })
    }

    /// Store a configuration that can be planned for. When this returns `Ok`, it is in the database.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] with pointers into the document that was sent; [`ServiceError::Unexpected`];
    /// [`ServiceError::Unavailable`].
    pub async fn put_model(
        &self,
        id: &str,
        body: &Value,
        expect: &Expect,
    ) -> Result<(Put, ModelView), ServiceError> {
        let (config, side, place) = parts(body).map_err(ServiceError::Invalid)?;
        let mut faults: Vec<FieldError> = Vec::new();
        if !is_id(id) {
            faults.push(FieldError::at(&Pointer::root(), "invalid_id", ID_RULE));
        }
        let read = read(id, config, side)
            .map_err(|found| faults.extend(found.into_iter().map(|fault| fault.within(&place))));
        let read = match read {
            Ok(read) if faults.is_empty() => read,
            _ => return Err(ServiceError::Invalid(faults)),
        };
        let view = view(id, "stored", false, config, side, &read);
        let record = ModelRecord {
            id: id.to_owned(),
            revision: DEFAULT_REVISION.to_owned(),
            config: config.clone(),
            quantization_config: side.cloned(),
            source: "request".to_owned(),
            hash: view.hash.clone(),
            updated_at: OffsetDateTime::now_utc(),
        };
        let updated_at = Some(written(record.updated_at));
        let put = self.models.put(record, expect).await;
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok((put?, ModelView { updated_at, ..view }))
    }

    /// Forget a stored model; one of the catalogue shows again.
    ///
    /// # Errors
    /// [`ServiceError::NoModel`] when none is stored; [`ServiceError::Unexpected`]; [`ServiceError::Unavailable`].
    pub async fn delete_model(&self, id: &str, expect: &Expect) -> Result<(), ServiceError> {
        if !is_id(id) {
            return Err(no_model(id));
        }
        let deleted = self.models.delete(id, DEFAULT_REVISION, expect).await;
        self.generation.fetch_add(1, Ordering::AcqRel);
        if deleted? { Ok(()) } else { Err(no_model(id)) }
    }
}

/// True when the id, a plain name or the family holds `needle` (in lower case).
fn named(entry: &catalogue::models::CatalogueModel, needle: &str) -> bool {
    let holds = |name: &str| name.to_lowercase().contains(needle);
    holds(entry.id) || holds(entry.family) || entry.aliases.iter().any(|alias| holds(alias))
}

const ID_RULE: &str =
    "a model id is org/name, each of letters, digits, dot, dash and underscore, 200 characters together";

/// `org/name`, as model hubs write it.
fn is_id(id: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    id.len() <= MAX_ID && id.split_once('/').is_some_and(|(org, name)| part(org) && part(name))
}

fn no_model(id: &str) -> ServiceError {
    ServiceError::NoModel(id.chars().take(MAX_ID).collect())
}

/// The parts of a body that stores a model: `{"config": …, "quantization_config": …}`, or a config.json as it is.
pub(super) fn parts(body: &Value) -> Result<(&Value, Option<&Value>, Pointer), Vec<FieldError>> {
    let root = Pointer::root();
    match body.get("config") {
        Some(config @ Value::Object(_))
            if body.get("model_type").is_none() && body.get("architectures").is_none() =>
        {
            let mut faults = Vec::new();
            let mut side = None;
            if let Some(mut fields) = crate::ingest::fields::Fields::of(body, root.clone(), &mut faults) {
                fields.required("config");
                side = fields
                    .open_object("quantization_config", usize::MAX)
                    .and(body.get("quantization_config"));
                fields.finish();
            }
            if faults.is_empty() { Ok((config, side, root.key("config"))) } else { Err(faults) }
        }
        _ => Ok((body, None, root)),
    }
}

pub(super) fn read(id: &str, config: &Value, side: Option<&Value>) -> Result<ReadModel, Vec<FieldError>> {
    config_json::read(id, config, side).map_err(|error| error.faults)
}

pub(super) fn view(
    id: &str,
    source: &str,
    may_be_old: bool,
    config: &Value,
    side: Option<&Value>,
    read: &ReadModel,
) -> ModelView {
    let spec = &read.spec;
    let notes = read.diagnostics.iter().map(|d| ConfigNote {
        pointer: d.pointer.clone(),
        code: d.code.to_owned(),
        message: d.message.clone(),
    });
    ModelView {
        id: id.to_owned(),
        source: source.to_owned(),
        updated_at: None,
        may_be_old,
        hub: None,
        same_shape: Vec::new(),
        sizes: sizes_of(spec),
        facts: ModelFacts {
            architecture: spec.architecture.clone(),
            layers: spec.layers.len() as u64,
            hidden_size: spec.hidden_size,
            query_heads: spec.query_heads,
            kv_heads: spec.kv_heads,
            head_size: spec.head_size,
            attention: formula::attention(spec).to_owned(),
            parameters: spec.parameters(),
            active_parameters: spec.active_parameters(),
            weights_bytes: spec.weights_bytes().get(),
            quantization: spec.quantization.clone(),
            context_length: spec.context_length,
        },
        notes: notes.collect(),
        config: config.clone(),
        quantization_config: side.cloned(),
        hash: hash_of(config, side),
    }
}

/// The newest vLLM on the usual GPU: what decides backends, and with them some caches.
pub(super) fn sizes_of(spec: &ModelSpec) -> ModelSizes {
    let settings = EngineSettings::defaults_of("vllm", "");
    match (engine::rules("vllm", ""), catalogue::hardware::catalogue().gpu_entry("h100-sxm5-80gb")) {
        (Ok(rules), Some(entry)) => sizes(spec, rules, &settings, &entry.gpu),
        _ => ModelSizes::default(),
    }
}

/// The entry of the catalogue with this very id.
fn listed(id: &str) -> Option<&'static catalogue::models::CatalogueModel> {
    catalogue::models::find(id).ok().filter(|entry| entry.id == id)
}

/// The entity tag of a configuration.
pub(super) fn hash_of(config: &Value, side: Option<&Value>) -> String {
    let mut hash = Sha256::new();
    hash.update(config.to_string());
    if let Some(side) = side {
        hash.update([0]);
        hash.update(side.to_string());
    }
    let mut text = hex::encode(hash.finalize());
    text.truncate(32);
    text
}

pub(super) fn written(time: OffsetDateTime) -> String {
    time.replace_nanosecond(0).unwrap_or(time).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_are_those_of_hubs() {
        for (id, valid) in [
            ("meta-llama/Llama-3.1-70B", true),
            ("a/b", true),
            ("a", false),
            ("a/b/c", false),
            ("../etc", false),
            ("a/..", false),
            ("a/ü", false),
            ("/b", false),
        ] {
            assert_eq!(is_id(id), valid, "{id}");
        }
    }

    #[test]
    fn a_config_is_put_bare_or_with_its_side_file() {
        let bare = json!({"model_type": "llama", "config": {}});
        assert_eq!(parts(&bare), Ok((&bare, None, Pointer::root())));
        let both = json!({"config": {"a": 1}, "quantization_config": {"b": 2}});
        assert_eq!(
            parts(&both),
            Ok((&json!({"a": 1}), Some(&json!({"b": 2})), Pointer::root().key("config")))
        );
        assert!(parts(&json!({"config": {}, "quantisation_config": {}})).is_err());
    }
}
