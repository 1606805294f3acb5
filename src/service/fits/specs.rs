//! The catalogue's models as the core sees them, each read once for the life of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::catalogue::models::{self, CatalogueModel};
use crate::ingest::config_json::WhatIf;
use crate::planner::model::ModelSpec;

/// Narrower weights that are tried where a model does not fit as published, widest first.
pub const LOWER: [&str; 2] = ["fp8", "int4"];

/// A model as published and in [`LOWER`] weights; each is read when it is first asked for.
#[derive(Default)]
struct Entry {
    published: OnceLock<Result<Arc<ModelSpec>, String>>,
    lower: [OnceLock<Option<Arc<ModelSpec>>>; LOWER.len()],
}

/// Access to the read models.
pub(super) struct Specs;

impl Specs {
    /// Every model, in order of id.
    pub(super) fn models() -> &'static [CatalogueModel] {
        models::all()
    }

    /// A model as published.
    pub(super) fn of(model: &CatalogueModel) -> Result<Arc<ModelSpec>, String> {
        let entry = entry(model).ok_or("it is not of this catalogue")?;
        let read = || model.spec().map(Arc::new).map_err(|error| error.to_string());
        entry.published.get_or_init(read).clone()
    }

    /// A model with the weights `LOWER[index]`; `None` where it is not stored wider than that.
    pub(super) fn lower(model: &CatalogueModel, index: usize) -> Option<Arc<ModelSpec>> {
        let weights = LOWER.get(index)?;
        let published = Self::of(model).ok()?.weights_bytes();
        let read = || {
            let what_if = WhatIf { weights: Some(weights), ..WhatIf::default() };
            let spec = model.read_as(what_if).ok()?.spec;
            (spec.weights_bytes() < published).then(|| Arc::new(spec))
        };
        entry(model)?.lower.get(index)?.get_or_init(read).clone()
    }
}

fn entry(model: &CatalogueModel) -> Option<&'static Entry> {
    static ENTRIES: OnceLock<BTreeMap<&'static str, Entry>> = OnceLock::new();
    let entries = ENTRIES.get_or_init(|| models::all().iter().map(|m| (m.id, Entry::default())).collect());
    entries.get(model.id)
}

/// The model whose configuration this one's is, to the last key; itself where it has its own.
pub(super) fn original(model: &'static CatalogueModel) -> &'static CatalogueModel {
    model.twin_of().unwrap_or(model)
}
