//! How far predictions lie from what engines printed at start-up: the same table for the records in the repository and
//! for anybody's own logs. `docs/ACCURACY.md` describes the rows.

pub mod predict;
pub mod rows;
pub mod table;

pub use predict::{Finders, Prediction, find_gpu, predict};
pub use rows::MemoryRow;
pub use table::{Compared, Group, Report, report};

/// Compare every row with its prediction.
#[must_use]
pub fn compare(rows: &[MemoryRow], finders: &Finders<'_>) -> Report {
    report(rows.iter().map(|row| Compared::of(row, predict(row, finders))).collect())
}
