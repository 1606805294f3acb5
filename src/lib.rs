//! shardwise answers one question: how should this model be laid over these GPUs,
//! what will it hold, and how fast will it be?
//!
//! The crate is a pure core with thin faces around it. Imports point one way:
//!
//! ```text
//! cli  http  slack  dashboard        four thin faces; they never compute
//!            |
//!         service                    use cases: the only place where core, store and hub meet
//!            |
//! store  hub  launch  ingest  catalogue   the outside world, text, and the embedded data
//!            |
//!         planner                    the pure core: plan(&PlanInput) -> Plan
//! ```
//!
//! `ARCHITECTURE.md` has the map, the flow of data and what enforces each invariant.

pub mod catalogue;
pub mod cli;
pub mod config;
pub mod dashboard;
pub mod http;
pub mod hub;
pub mod ingest;
pub mod launch;
pub mod planner;
pub mod service;
pub mod slack;
pub mod store;
pub mod telemetry;
