//! Refit the constants of the latency model from measurements: the same data give the same constants.

pub mod collectives;
pub mod serving;
pub mod solve;
