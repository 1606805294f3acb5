//! What tensors leave beside themselves when an engine prepares them for its kernels.

use std::ops::Range;

use crate::planner::layout::Shape;
use crate::planner::model::ledger::{Role, Tensor};
use crate::planner::model::{LayerKind, ModelSpec};
use crate::planner::units::Bytes;

/// Bytes that a layer of each kind grows by on a rank.
#[derive(Debug, Clone)]
pub struct Growth(Vec<u64>);

impl Growth {
    /// By what `of` says of each kind.
    pub fn new(model: &ModelSpec, of: impl Fn(&LayerKind) -> u64) -> Self {
        Self(model.kinds.iter().map(of).collect())
    }

    /// All layers of a stage.
    pub fn of_stage(&self, model: &ModelSpec, layers: &Range<usize>) -> Bytes {
        if self.0.iter().all(|bytes| *bytes == 0) {
            return Bytes::ZERO;
        }
        let stage = model.layers.get(layers.clone()).unwrap_or(&[]);
        stage.iter().map(|kind| Bytes(self.0.get(*kind).copied().unwrap_or(0))).sum()
    }
}

/// True for the matrix that takes a latent up to keys and values, `(H/T) * (nope + v)` rows of `kv_lora_rank`.
pub fn is_up_projection(tensor: &Tensor) -> bool {
    tensor.role != Role::RoutedExperts && tensor.name.contains("kv_b_proj")
}

/// Elements of it on a rank.
pub fn elements(tensor: &Tensor, shape: &Shape) -> u64 {
    tensor.on_rank(shape).parameters
}
