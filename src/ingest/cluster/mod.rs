//! Clusters as people and machines write them, to the core's `Cluster`.

mod clean;
mod error;
mod grammar;
mod links;
mod machines;
mod meaning;
mod numbers;
mod pieces;
mod product;
mod request;
mod said;
mod size;
mod systems;
mod text;
pub mod topology;
mod vocabulary;
mod words;

pub use clean::clean;
pub use error::{ClusterError, ClusterErrorKind};
pub use machines::{Format, ParsedCluster, recognise};
pub use pieces::{Part, Piece, pieces, spelled_number};
pub use request::{from_json, read, saved_name};
pub use text::{MAX_POOLS, MAX_TEXT_CHARS, parse_text};

/// Most GPUs that are planned for.
pub const MAX_GPUS: u64 = 999_999;
