//! Rules on parallel sizes, in the engine's own order.

use crate::planner::engine::{Refusal, RefusalCode, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;

/// The first rule broken, or `None`.
pub fn first_refusal(
    model: &ModelSpec,
    shape: &Shape,
    _gpu: &Gpu,
    _settings: &ResolvedSettings,
) -> Option<Refusal> {
    let tp = shape.tp;
    if tp == 0 || !model.query_heads.is_multiple_of(tp) {
        return Some(Refusal::new(
            RefusalCode::QueryHeadsNotDivisible,
            format!("{} query heads do not split evenly over TP={tp}", model.query_heads),
        ));
    }
    if shape.pp > model.layers.len() as u64 {
        return Some(Refusal::new(
            RefusalCode::MoreStagesThanLayers,
            format!(
                "PP={} is larger than the {} layers: a stage would be empty",
                shape.pp,
                model.layers.len()
            ),
        ));
    }
    None
}
