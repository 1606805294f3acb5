//! The embedded data: hardware, links, nodes and model configurations, parsed once into core types.

pub mod calibration;
pub mod hardware;
pub mod models;

/// Version of the embedded data: the day on which it was last read over.
pub const VERSION: &str = "2026-11-30";
