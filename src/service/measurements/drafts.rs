//! Speculative decoding as a row states it.

use super::row::Row;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::speculation::{DraftMethod, Drafter};

/// Draft tokens of a step: as stated, else two, as most of the recipes behind the rows have it.
pub(super) fn draft_tokens(row: &Row) -> f64 {
    if row.spec_decode.as_deref().is_none_or(|s| s == "none") {
        return 0.0;
    }
    row.num_speculative_tokens.filter(|n| (1.0..=64.0).contains(n)).unwrap_or(2.0)
}

/// What drafts: the method that the row names; where it only says that something does, the model's own layer.
pub(super) fn drafter(row: &Row, model: &ModelSpec, shape: &Shape, drafts: f64) -> Option<Drafter> {
    let method = DraftMethod::of(row.spec_decode.as_deref()?).unwrap_or(DraftMethod::Mtp);
    (drafts > 0.0).then(|| Drafter::by(method, model, shape, None)).flatten()
}
