//! The tensor ledger: every weight with its shape, how it is stored and how ranks share it.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::storage::Storage;
use crate::planner::layout::Shape;

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Token (or position) table: looked up, not multiplied.
    Embedding,
    /// Projections of attention: queries, outputs, fused QKV, the MLA chain.
    Attention,
    /// A projection to keys and values alone.
    KvProjection,
    /// The key and query projections of a sparse-attention indexer.
    Indexer,
    DenseFeedForward,
    Router,
    RoutedExperts,
    SharedExpert,
    Norm,
    LmHead,
    /// Mamba, delta-net, convolution and linear-attention mixers.
    StateMixer,
    /// Vision and audio towers and their projectors.
    Tower,
}

/// How the size of one axis is cut over the ranks that share the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// Not cut: every rank holds all of it.
    Whole,
    /// In this many units, dealt out evenly; legal only when the ranks divide the units.
    Units(u64),
    /// In this many units; with more ranks than units each rank holds one, copied.
    Heads(u64),
    /// Padded up to a multiple first, then cut evenly.
    Padded(u64),
    /// Cut evenly where the ranks divide `heads`, whole otherwise.
    UnitsIfDivides { units: u64, heads: u64 },
    /// Cut one by one, but padded so that more than one rank hold at least this many each.
    AtLeast { least: u64 },
    /// Cut in whole blocks of this many; the last ranks may hold padding.
    Blocks(u64),
}

/// A run of features along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// Features of the whole model, unpadded.
    pub size: u64,
    pub cut: Cut,
    /// What is cut, for messages, e.g. `query heads`, `intermediate size`.
    pub what: &'static str,
}

impl Part {
    /// Features that every rank holds.
    #[must_use]
    pub const fn whole(size: u64) -> Self {
        Self { size, cut: Cut::Whole, what: "" }
    }

    /// Features cut one by one.
    #[must_use]
    pub const fn even(size: u64, what: &'static str) -> Self {
        Self { size, cut: Cut::Units(size), what }
    }

    /// `units` heads of `width` features, cut by head.
    #[must_use]
    pub const fn units(units: u64, width: u64, what: &'static str) -> Self {
        Self { size: units.saturating_mul(width), cut: Cut::Units(units), what }
    }

    /// `units` heads of `width` features, copied when ranks outnumber them.
    #[must_use]
    pub const fn heads(units: u64, width: u64, what: &'static str) -> Self {
        Self { size: units.saturating_mul(width), cut: Cut::Heads(units), what }
    }

    /// Features of this part on one of `ranks` ranks (rank 0; illegal splits round up).
    #[must_use]
    pub fn on_rank(&self, ranks: u64) -> u64 {
        let ranks = ranks.max(1);
        match self.cut {
            Cut::Units(units) => units.div_ceil(ranks).saturating_mul(per_unit(self.size, units)),
            Cut::Heads(units) => (units / ranks).max(1).saturating_mul(per_unit(self.size, units)),
            Cut::UnitsIfDivides { units, heads } if heads.is_multiple_of(ranks) => {
                units.div_ceil(ranks).saturating_mul(per_unit(self.size, units))
            }
            Cut::AtLeast { least } if ranks > 1 => self.size.div_ceil(ranks).max(least),
            Cut::Whole | Cut::UnitsIfDivides { .. } | Cut::AtLeast { .. } => self.size,
            Cut::Blocks(block) => {
                let block = block.max(1);
                (self.size / block).div_ceil(ranks).saturating_mul(block)
            }
            Cut::Padded(multiple) => round_up(self.size, multiple).div_ceil(ranks),
        }
    }
}

const fn per_unit(size: u64, units: u64) -> u64 {
    match size.checked_div(units) {
        Some(width) => width,
        None => 0,
    }
}

/// The next multiple of `multiple` (0 counts as 1), saturating.
#[must_use]
pub fn round_up(size: u64, multiple: u64) -> u64 {
    let multiple = multiple.max(1);
    size.div_ceil(multiple).saturating_mul(multiple)
}

/// Which ranks share a tensor out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The TP ranks.
    Tensor,
    /// Copies (experts) dealt out whole over the EP ranks; without EP every copy is cut over TP × attention DP.
    Experts,
    /// The TP ranks; with EP over TP and attention DP every rank holds it whole (sequence-parallel MoE).
    SharedExperts,
}

/// Which pipeline stages hold a tensor of the head or the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stages {
    /// The first stage for the head, the last for the tail.
    #[default]
    Own,
    /// First and last: a tied table.
    Ends,
    /// Every stage: some classes build it everywhere.
    Every,
    /// No stage: the model has it, and the engine's class leaves it out.
    Nowhere,
}

/// One weight matrix, or a stack of equal ones. Fused matrices (QKV, gate and up) are one tensor of several parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name within the layer, as the engine's module has it, e.g. `self_attn.qkv_proj`.
    pub name: Cow<'static, str>,
    pub role: Role,
    /// Output features, one part for each fused matrix.
    pub outputs: SmallVec<[Part; 3]>,
    /// Input features; size 1 for vectors (norms, biases).
    pub inputs: Part,
    /// Equal matrices in the stack, e.g. the experts.
    pub copies: u64,
    /// Copies that one token passes through: `copies` unless routed, 0 for towers.
    pub active_copies: u64,
    pub sharing: Sharing,
    pub storage: Storage,
    /// False for tables and vectors: nothing is multiplied through them.
    pub is_matmul: bool,
    /// What the engine keeps beside the model's own numbers (cache scales, copies): bytes without parameters.
    pub is_duplicate: bool,
    /// For tensors outside the layers.
    pub stages: Stages,
}

/// The part of a tensor on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankTensor {
    /// Output features, padding of the split included (kernel tiles not).
    pub rows: u64,
    /// Input features.
    pub cols: u64,
    /// Equal matrices on this rank.
    pub copies: u64,
    /// With scales and kernel padding.
    pub bytes: u64,
    /// Elements on this rank.
    pub parameters: u64,
    /// Elements that one token passes through, averaged over ranks for routed experts.
    pub active_parameters: u64,
    /// True when the TP split leaves the tensor whole on every rank.
    pub replicated: bool,
}

impl Tensor {
    /// Output features of the whole model.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.outputs.iter().fold(0, |sum, part| sum.saturating_add(part.size))
    }

    /// Input features of the whole model.
    #[must_use]
    pub const fn cols(&self) -> u64 {
        self.inputs.size
    }

    /// Elements of all copies, unpadded.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        if self.is_duplicate {
            0
        } else {
            self.rows().saturating_mul(self.cols()).saturating_mul(self.copies)
        }
    }

    /// Elements through which one token passes.
    #[must_use]
    pub fn active_parameters(&self) -> u64 {
        if self.is_duplicate {
            0
        } else {
            self.rows().saturating_mul(self.cols()).saturating_mul(self.active_copies)
        }
    }

    /// Floating-point operations of one token: two for each weight it is multiplied with.
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        if self.is_matmul { self.active_parameters().saturating_mul(2) } else { 0 }
    }

    /// How many ranks cut each copy, and how many copies stay on a rank, under `shape`.
    fn ranks_and_copies(&self, shape: &Shape) -> (u64, u64) {
        let tp = shape.tp.max(1);
        match self.sharing {
            Sharing::Experts if shape.expert_parallel() => (1, self.copies.div_ceil(shape.ep.max(1))),
            Sharing::Experts => (tp.saturating_mul(shape.attention_dp.max(1)), self.copies),
            Sharing::SharedExperts if shape.expert_parallel() && tp > 1 && shape.attention_dp > 1 => {
                (1, self.copies)
            }
            Sharing::Tensor | Sharing::SharedExperts => (tp, self.copies),
        }
    }

    /// Output and input features of one copy on one rank, without what they take.
    #[must_use]
    pub fn features_on_rank(&self, shape: &Shape) -> (u64, u64) {
        let (ranks, _) = self.ranks_and_copies(shape);
        let rows = self.outputs.iter().fold(0u64, |sum, part| sum.saturating_add(part.on_rank(ranks)));
        (rows, self.inputs.on_rank(ranks))
    }

    /// This tensor on one rank (tensor rank 0, data rank 0) under `shape`.
    #[must_use]
    pub fn on_rank(&self, shape: &Shape) -> RankTensor {
        let (ranks, copies) = self.ranks_and_copies(shape);
        let parts: SmallVec<[u64; 3]> = self.outputs.iter().map(|part| part.on_rank(ranks)).collect();
        let rows = parts.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        let cols = self.inputs.on_rank(ranks);
        let parameters = if self.is_duplicate { 0 } else { rows.saturating_mul(cols).saturating_mul(copies) };
        RankTensor {
            rows,
            cols,
            copies,
            bytes: self.storage.bytes(&parts, cols, copies, self.copies),
            parameters,
            active_parameters: scaled(parameters, self.active_copies, self.copies),
            replicated: shape.tp > 1 && self.is_whole(),
        }
    }

    /// True when no axis is cut and copies are not dealt out.
    fn is_whole(&self) -> bool {
        self.sharing != Sharing::Experts
            && self.inputs.cut == Cut::Whole
            && self.outputs.iter().all(|part| part.cut == Cut::Whole)
    }
}

/// `n * num / den` without overflow; `den = 0` counts as 1.
fn scaled(n: u64, num: u64, den: u64) -> u64 {
    if num == den {
        return n;
    }
    let product = u128::from(n) * u128::from(num) / u128::from(den.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Memory that is not weights but loaded with them (rotary tables, cache scales).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Equal names are one buffer, however many layers use it; an empty name is a layer's own.
    pub name: Cow<'static, str>,
    pub bytes: u64,
    /// There only when experts are dealt out whole.
    pub with_experts_dealt: bool,
}
