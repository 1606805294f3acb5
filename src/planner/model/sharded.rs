//! Weights on a rank: sums over the ledger, once for each split, then by stage in constant time.

use super::ModelSpec;
use super::ledger::{Buffer, RankTensor, Role, Stages, Tensor};
use crate::planner::layout::Shape;
use crate::planner::units::Bytes;

/// What one rank of a pipeline stage holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageWeights {
    /// Weights with their scales, as loaded.
    pub bytes: Bytes,
    /// Of those, held whole by every TP rank (0 without TP).
    pub replicated_bytes: Bytes,
    /// Elements on the rank.
    pub parameters: u64,
    /// Elements on the rank that one token passes through; of routed experts, the share that a token chooses.
    pub active_parameters: u64,
    /// Rotary tables, cache scales and the like: not weights, but loaded with them.
    pub buffer_bytes: Bytes,
}

/// Sums of one rank for a split; cheap to ask by stage.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardedWeights {
    /// `prefix[i]`: the layers before `i`.
    prefix: Vec<StageWeights>,
    head: StageWeights,
    tail: StageWeights,
    /// What both end stages hold.
    ends: StageWeights,
    /// What every stage holds.
    every: StageWeights,
    /// Buffers that layers share: bytes, and how many layers before `i` use them.
    shared_buffers: Vec<(Bytes, Vec<u32>)>,
    /// One rank's share of a total that replaces the ledger.
    given: Option<Bytes>,
}

impl StageWeights {
    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            replicated_bytes: self.replicated_bytes + other.replicated_bytes,
            parameters: self.parameters.saturating_add(other.parameters),
            active_parameters: self.active_parameters.saturating_add(other.active_parameters),
            buffer_bytes: self.buffer_bytes + other.buffer_bytes,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            replicated_bytes: self.replicated_bytes - other.replicated_bytes,
            parameters: self.parameters.saturating_sub(other.parameters),
            active_parameters: self.active_parameters.saturating_sub(other.active_parameters),
            buffer_bytes: self.buffer_bytes - other.buffer_bytes,
        }
    }

    fn of_tensor(on_rank: &RankTensor) -> Self {
        Self {
            bytes: Bytes(on_rank.bytes),
            replicated_bytes: if on_rank.replicated { Bytes(on_rank.bytes) } else { Bytes::ZERO },
            parameters: on_rank.parameters,
            active_parameters: on_rank.active_parameters,
            buffer_bytes: Bytes::ZERO,
        }
    }

    fn of_tensors(tensors: &[Tensor], shape: &Shape) -> Self {
        tensors.iter().map(|t| Self::of_tensor(&t.on_rank(shape))).fold(Self::default(), Self::plus)
    }

    fn with_buffers(mut self, buffers: &[Buffer]) -> Self {
        for buffer in buffers {
            self.buffer_bytes += Bytes(buffer.bytes);
        }
        self
    }
}

impl ModelSpec {
    /// Elements of the model, tied tensors once.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.sum_over(Tensor::parameters)
    }

    /// Elements through which one token passes: of the routed experts only those it chooses.
    /// Embedding tables count whole, as in the published "active parameters"; towers do not count.
    #[must_use]
    pub fn active_parameters(&self) -> u64 {
        self.sum_over(Tensor::active_parameters)
    }

    /// Floating-point operations of one token in all matrix multiplications of the decoder, attention scores apart.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        let tied_head = if self.tied_embeddings {
            self.head
                .iter()
                .filter(|t| t.role == Role::Embedding)
                .fold(0u64, |sum, t| sum.saturating_add(t.parameters().saturating_mul(2)))
        } else {
            0
        };
        self.sum_over(Tensor::flops_per_token).saturating_add(tied_head)
    }

    /// One full copy as the engine stores it on one GPU.
    #[must_use]
    pub fn weights_bytes(&self) -> Bytes {
        self.sharded(&Shape::new(1, 1)).stage(0, self.layers.len(), true, true).bytes
    }

    /// Sum of a figure over every tensor, each as often as it occurs.
    fn sum_over(&self, figure: impl Fn(&Tensor) -> u64) -> u64 {
        let of = |tensors: &[Tensor]| tensors.iter().fold(0u64, |sum, t| sum.saturating_add(figure(t)));
        let by_kind: Vec<u64> = self.kinds.iter().map(|kind| of(&kind.tensors)).collect();
        self.layers
            .iter()
            .filter_map(|kind| by_kind.get(*kind))
            .fold(of(&self.head).saturating_add(of(&self.tail)), |sum, n| sum.saturating_add(*n))
    }

    /// What one rank holds under `shape` (`tp`, `ep`, `attention_dp`; `pp` only for a given total).
    #[must_use]
    pub fn sharded(&self, shape: &Shape) -> ShardedWeights {
        let kinds: Vec<StageWeights> = self
            .kinds
            .iter()
            .map(|kind| {
                let mut sums = StageWeights::of_tensors(&kind.tensors, shape);
                for own in kind.buffers.iter().filter(|buffer| {
                    buffer.name.is_empty() && (!buffer.with_experts_dealt || shape.expert_parallel())
                }) {
                    sums.buffer_bytes += Bytes(own.bytes);
                }
                sums
            })
            .collect();
        let mut prefix = Vec::with_capacity(self.layers.len().saturating_add(1));
        let mut sum = StageWeights::default();
        prefix.push(sum);
        for kind in &self.layers {
            sum = sum.plus(kinds.get(*kind).copied().unwrap_or_default());
            prefix.push(sum);
        }
        let of = |tensors: &[Tensor], stages: Stages| {
            tensors
                .iter()
                .filter(|tensor| tensor.stages == stages)
                .map(|tensor| StageWeights::of_tensor(&tensor.on_rank(shape)))
                .fold(StageWeights::default(), StageWeights::plus)
        };
        let both = |stages| of(&self.head, stages).plus(of(&self.tail, stages));
        ShardedWeights {
            prefix,
            head: of(&self.head, Stages::Own).with_buffers(&self.head_buffers),
            tail: of(&self.tail, Stages::Own),
            ends: both(Stages::Ends),
            every: both(Stages::Every),
            shared_buffers: self.shared_buffers(),
            given: self.weights_bytes_given.map(|total| Bytes(total).share(shape.gpus())),
        }
    }

    /// Buffers with a name, each with the number of layers before `i` that use it.
    fn shared_buffers(&self) -> Vec<(Bytes, Vec<u32>)> {
        let mut names: Vec<&Buffer> = Vec::new();
        for buffer in self.kinds.iter().flat_map(|kind| &kind.buffers).filter(|b| !b.name.is_empty()) {
            if !names.iter().any(|known| known.name == buffer.name) {
                names.push(buffer);
            }
        }
        names
            .into_iter()
            .map(|buffer| {
                let users: Vec<bool> =
                    self.kinds.iter().map(|k| k.buffers.iter().any(|b| b.name == buffer.name)).collect();
                let mut before = Vec::with_capacity(self.layers.len().saturating_add(1));
                let mut count = 0u32;
                before.push(count);
                for kind in &self.layers {
                    count = count.saturating_add(u32::from(users.get(*kind).copied().unwrap_or(false)));
                    before.push(count);
                }
                (Bytes(buffer.bytes), before)
            })
            .collect()
    }
}

impl ShardedWeights {
    /// One rank of the stage that holds layers `first..past_last`. The first stage adds embeddings and towers, the last one the
    /// final norm and the head; a tied table lies on both ends.
    #[must_use]
    pub fn stage(&self, first: usize, past_last: usize, first_stage: bool, last_stage: bool) -> StageWeights {
        let last = self.prefix.len().saturating_sub(1);
        let (first, past_last) = (first.min(last), past_last.min(last));
        let at = |i: usize| self.prefix.get(i).copied().unwrap_or_default();
        let mut sum = at(past_last).minus(at(first)).plus(self.every);
        if first_stage {
            sum = sum.plus(self.head);
        }
        if last_stage {
            sum = sum.plus(self.tail);
        }
        if first_stage || last_stage {
            sum = sum.plus(self.ends);
        }
        for (bytes, before) in &self.shared_buffers {
            if before.get(past_last) > before.get(first) {
                sum.buffer_bytes += *bytes;
            }
        }
        if let Some(given) = self.given {
            sum.bytes = given;
            sum.replicated_bytes = Bytes::ZERO;
        }
        sum
    }
}
