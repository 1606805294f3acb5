//! Use cases: the only place where core, store and hub meet.

pub mod accuracy;
