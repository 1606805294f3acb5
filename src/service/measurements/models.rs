//! The models of measured rows: by id from the catalogue, or by the short key that rows carry.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::catalogue::models;
use crate::ingest::config_json::{WhatIf, read_as};
use crate::planner::model::ModelSpec;

#[derive(Deserialize)]
struct File {
    families: Vec<Family>,
}

/// A short key, the id that it stands for, and a configuration where the catalogue has none.
#[derive(Debug, Clone, Deserialize)]
struct Family {
    key: String,
    id: String,
    config: Option<Value>,
}

/// Finds models by key and id, each read once for a format.
pub struct Families {
    families: Vec<Family>,
    read: BTreeMap<(String, String), Option<ModelSpec>>,
}

/// The embedded list.
const FAMILIES: &str = include_str!("../../../data/calibration/families.json");

impl Families {
    /// The embedded families over the catalogue.
    #[must_use]
    pub fn embedded() -> Self {
        let families = serde_json::from_str::<File>(FAMILIES).map_or_else(|_| Vec::new(), |f| f.families);
        Self { families, read: BTreeMap::new() }
    }

    /// The model of a row, stored as `dtype` says (`bf16`, `fp8`, `nvfp4`, `mxfp4`, `int4`, …). The key decides where
    /// both are given: it names the shape, whatever checkpoint was served.
    pub fn model(&mut self, key: Option<&str>, id: Option<&str>, dtype: Option<&str>) -> Option<&ModelSpec> {
        let dtype = dtype.unwrap_or("").to_owned();
        let names: Vec<&str> = [key, id].into_iter().flatten().collect();
        let found = names.iter().find_map(|name| self.find(name, &dtype))?;
        self.read.get(&found)?.as_ref()
    }

    /// The place of a model in what was read, reading it when it is new.
    fn find(&mut self, name: &str, dtype: &str) -> Option<(String, String)> {
        let place = (name.to_owned(), dtype.to_owned());
        if !self.read.contains_key(&place) {
            let family = self.families.iter().find(|f| f.key == name || f.id == name);
            let spec = match family {
                Some(Family { id, config: Some(config), .. }) => {
                    stored_as(dtype, |what_if| read_as(id, config, None, what_if).ok().map(|read| read.spec))
                }
                Some(family) => from_catalogue(&family.id, dtype),
                None => from_catalogue(name, dtype),
            };
            self.read.insert(place.clone(), spec);
        }
        self.read.get(&place)?.as_ref().map(|_| place)
    }
}

fn from_catalogue(name: &str, dtype: &str) -> Option<ModelSpec> {
    let model = models::find(name).ok()?;
    stored_as(dtype, |what_if| model.read_as(what_if).ok().map(|read| read.spec))
}

/// A checkpoint whose own format is the one of the row is read as it is; another is what-if.
fn stored_as(dtype: &str, read: impl Fn(WhatIf<'_>) -> Option<ModelSpec>) -> Option<ModelSpec> {
    let own = read(WhatIf::default())?;
    let wanted = match dtype {
        "" => return Some(own),
        "float16" => "fp16",
        "bfloat16" => "bf16",
        other => other,
    };
    let is_half = |name: &str| name.starts_with("bf16") || name.starts_with("fp16");
    let is_own =
        if is_half(wanted) { is_half(&own.quantization) } else { own.quantization.starts_with(wanted) };
    if is_own { Some(own) } else { read(WhatIf { weights: Some(wanted), ..WhatIf::default() }) }
}
