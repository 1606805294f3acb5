//! How far predictions lie from what engines printed at start-up: the same table for the records in the repository and
//! for anybody's own logs. `docs/ACCURACY.md` describes the rows.

pub mod find;
pub mod latency;
pub mod predict;
pub mod rows;
pub mod table;

pub use find::{find_gpu, find_model};
pub use predict::{Finders, Prediction, predict};
pub use rows::{MemoryRow, NotARow, read_rows};
pub use table::{Compared, Group, Report, report};

use std::collections::BTreeMap;

use crate::catalogue::hardware::catalogue;

/// Compare every row with its prediction. A row without a version has that of the other rows of its address, where those
/// agree: one text is of one engine.
#[must_use]
pub fn compare(rows: &[MemoryRow], finders: &Finders<'_>) -> Report {
    let known = versions_by_address(rows);
    let judged = rows.iter().map(|row| {
        let stated = known.get(&(row.url.as_str(), row.engine.as_str())).copied().flatten();
        let row = MemoryRow {
            engine_version: row.engine_version.clone().or_else(|| stated.map(str::to_owned)),
            ..row.clone()
        };
        Compared::of(&row, predict(&row, finders))
    });
    report(judged.collect())
}

/// The version that the rows of an address and engine state; `None` where they state several.
fn versions_by_address(rows: &[MemoryRow]) -> BTreeMap<(&str, &str), Option<&str>> {
    let mut known: BTreeMap<(&str, &str), Option<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.url.is_empty()) {
        let Some(version) = row.engine_version.as_deref() else { continue };
        known
            .entry((&row.url, &row.engine))
            .and_modify(|one| *one = one.filter(|same| *same == version))
            .or_insert(Some(version));
    }
    known
}

/// The table of a JSONL text of start-ups, with models and GPUs from the catalogue.
///
/// # Errors
/// [`NotARow`] for a line that is no row.
pub fn memory(text: &str) -> Result<Report, NotARow> {
    let gpu = |name: &str| find_gpu(catalogue(), name);
    Ok(compare(&read_rows(text)?, &Finders { model: &find_model, gpu: &gpu }))
}
