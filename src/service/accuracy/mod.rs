//! How far predictions lie from what engines printed at start-up: the same table for the records in the repository and
//! for anybody's own logs. `docs/ACCURACY.md` describes the rows.

pub mod latency;
pub mod predict;
pub mod rows;
pub mod table;

pub use predict::{Finders, Prediction, find_gpu, find_model, predict};
pub use rows::{MemoryRow, NotARow, read_rows};
pub use table::{Compared, Group, Report, report};

use crate::catalogue::hardware::catalogue;

/// Compare every row with its prediction.
#[must_use]
pub fn compare(rows: &[MemoryRow], finders: &Finders<'_>) -> Report {
    report(rows.iter().map(|row| Compared::of(row, predict(row, finders))).collect())
}

/// The table of a JSONL text of start-ups, with models and GPUs from the catalogue.
///
/// # Errors
/// [`NotARow`] for a line that is no row.
pub fn memory(text: &str) -> Result<Report, NotARow> {
    let gpu = |name: &str| find_gpu(catalogue(), name);
    Ok(compare(&read_rows(text)?, &Finders { model: &find_model, gpu: &gpu }))
}
