//! The embedded data: hardware, links, nodes and model configurations, parsed once into core types.

pub mod hardware;
pub mod models;
