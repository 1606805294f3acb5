//! The models of measured rows: by id from the catalogue's families, by the short key that rows carry.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::ingest::config_json::{WhatIf, read_as};
use crate::planner::model::ModelSpec;

#[derive(Deserialize)]
struct File {
    families: Vec<Family>,
}

#[derive(Deserialize)]
struct Family {
    key: String,
    id: String,
    config: Value,
}

/// Configurations by key and by id, and the models read from them.
pub struct Families {
    configs: BTreeMap<String, (String, Value)>,
    read: BTreeMap<(String, String), Option<ModelSpec>>,
}

/// The embedded list.
const FAMILIES: &str = include_str!("../../../data/calibration/families.json");

impl Families {
    /// The embedded families.
    #[must_use]
    pub fn embedded() -> Self {
        let families = serde_json::from_str::<File>(FAMILIES).map_or_else(|_| Vec::new(), |f| f.families);
        let configs = families
            .into_iter()
            .flat_map(|f| [(f.key.clone(), (f.id.clone(), f.config.clone())), (f.id.clone(), (f.id, f.config))])
            .collect();
        Self { configs, read: BTreeMap::new() }
    }

    /// The model of a row, stored as `dtype` says (`bf16`, `fp8`, `nvfp4`, `mxfp4`, `int4`, …).
    pub fn model(&mut self, key: Option<&str>, id: Option<&str>, dtype: Option<&str>) -> Option<&ModelSpec> {
        let name = [id, key].into_iter().flatten().find(|n| self.configs.contains_key(*n))?.to_owned();
        let dtype = dtype.unwrap_or("").to_owned();
        let (id, config) = self.configs.get(&name)?;
        self.read
            .entry((name, dtype.clone()))
            .or_insert_with(|| read_stored_as(id, config, &dtype))
            .as_ref()
    }
}

/// A checkpoint whose own format is the one of the row is read as it is; another is what-if.
fn read_stored_as(id: &str, config: &Value, dtype: &str) -> Option<ModelSpec> {
    let own = read_as(id, config, None, WhatIf::default()).ok()?.spec;
    let wanted = match dtype {
        "" => return Some(own),
        "float16" => "fp16",
        "bfloat16" => "bf16",
        other => other,
    };
    let is_own = match wanted {
        "bf16" | "fp16" => own.quantization.starts_with("bf16") || own.quantization.starts_with("fp16"),
        other => own.quantization.starts_with(other),
    };
    if is_own {
        return Some(own);
    }
    let what_if = WhatIf { weights: Some(wanted), ..WhatIf::default() };
    read_as(id, config, None, what_if).ok().map(|read| read.spec)
}
