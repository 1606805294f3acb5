//! Version 1 of the API: one file for each resource.

pub mod checks;
pub mod clusters;
pub mod fits;
pub mod fleet;
pub mod fleet_schema;
mod form;
pub mod hardware;
pub mod kv;
pub mod launches;
pub mod models;
pub mod observations;
pub mod plans;
