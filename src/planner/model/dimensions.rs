//! Which sizes of a model a split must divide: read off the ledger, so that rules and bytes cannot disagree.

use super::ModelSpec;
use super::dtype::Dtype;
use super::ledger::{Cut, Role, Sharing, Tensor, round_up};
use super::storage::Extra;

/// A size that parallel ranks cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardedDimension {
    /// What is cut, e.g. `query heads`, `KV heads`, `vocabulary padded to 64`, `intermediate size`.
    pub what: &'static str,
    /// The tensor that is cut, e.g. `self_attn.qkv_proj`.
    pub tensor: String,
    /// Units to deal out.
    pub size: u64,
    pub rule: DivisionRule,
    /// Who cuts it.
    pub cut_by: CutBy,
}

/// When a number of ranks may cut a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DivisionRule {
    /// `size mod ranks = 0`.
    Divides,
    /// `size mod ranks = 0` or `ranks mod size = 0`: one is copied.
    DividesOrCopies,
    /// The features on a rank, `size / ranks`, are a multiple of a quantisation block.
    WholeBlocks { block: u64 },
    /// The features on a rank are a multiple of the block, or the grid can be refined to at least `least`.
    RefinableBlocks { block: u64, least: u64 },
}

/// Which ranks cut a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CutBy {
    /// TP.
    Tensor,
    /// TP × attention DP, unless experts are dealt out whole.
    Experts,
}

impl DivisionRule {
    /// True when `ranks` may cut `size`.
    #[must_use]
    pub fn allows(self, size: u64, ranks: u64) -> bool {
        let ranks = ranks.max(1);
        match self {
            Self::Divides => size.is_multiple_of(ranks),
            Self::DividesOrCopies => {
                if size >= ranks {
                    size.is_multiple_of(ranks)
                } else {
                    size > 0 && ranks.is_multiple_of(size)
                }
            }
            Self::WholeBlocks { block } => ranks == 1 || (size / ranks).is_multiple_of(block.max(1)),
            Self::RefinableBlocks { block, least } => {
                let on_rank = size / ranks;
                on_rank.is_multiple_of(block.max(1)) || super::storage::gcd(block, on_rank) >= least
            }
        }
    }
}

impl ModelSpec {
    /// Every size that TP (or the ranks that share experts) must divide, without repeats, in a fixed order.
    #[must_use]
    pub fn sharded_dimensions(&self) -> Vec<ShardedDimension> {
        let mut found: Vec<ShardedDimension> = Vec::new();
        let tensors =
            self.head.iter().chain(self.kinds.iter().flat_map(|kind| &kind.tensors)).chain(&self.tail);
        for tensor in tensors {
            for dimension in of_tensor(tensor) {
                if !found.iter().any(|d| {
                    d.what == dimension.what
                        && d.size == dimension.size
                        && d.rule == dimension.rule
                        && d.cut_by == dimension.cut_by
                }) {
                    found.push(dimension);
                }
            }
        }
        found
    }

    /// The vocabulary as the engine pads it before cutting; `None` when no table is cut by vocabulary.
    #[must_use]
    pub fn padded_vocabulary(&self) -> Option<u64> {
        self.head.iter().chain(&self.tail).flat_map(|t| &t.outputs).find_map(|part| match part.cut {
            Cut::Padded(multiple) => Some(round_up(part.size, multiple)),
            _ => None,
        })
    }
}

/// The dimensions that one tensor is cut along: outputs first.
#[must_use]
pub fn of_tensor(tensor: &Tensor) -> Vec<ShardedDimension> {
    let cut_by = if tensor.sharing == Sharing::Experts { CutBy::Experts } else { CutBy::Tensor };
    let block = tensor.storage.extras.iter().find_map(|extra| match extra {
        Extra::Block { rows, cols, .. } if *rows > 1 => Some((*rows, *cols, false)),
        Extra::RefinedBlock { block, .. } => Some((*block, *block, true)),
        _ => None,
    });
    let mut out = Vec::new();
    for (part, is_input) in
        tensor.outputs.iter().map(|part| (part, false)).chain(std::iter::once((&tensor.inputs, true)))
    {
        let (size, rule) = match part.cut {
            Cut::Whole | Cut::UnitsIfDivides { .. } | Cut::Blocks(_) => continue,
            Cut::Units(units) => (units, DivisionRule::Divides),
            Cut::AtLeast { .. } => (part.size, DivisionRule::Divides),
            Cut::Heads(units) => (units, DivisionRule::DividesOrCopies),
            Cut::Padded(multiple) => (round_up(part.size, multiple), DivisionRule::Divides),
        };
        let make = |size, rule| ShardedDimension {
            what: part.what,
            tensor: tensor.name.to_string(),
            size,
            rule,
            cut_by,
        };
        out.push(make(size, rule));
        if let (Some(group), Cut::Units(_), true) = (whole_groups(tensor), part.cut, is_input)
            && group < part.size
        {
            out.push(make(part.size, DivisionRule::WholeBlocks { block: group }));
        }
        if let (Some((rows, cols, refined)), Cut::Units(_)) = (block, part.cut) {
            let block = if is_input { cols } else { rows };
            let rule = if refined {
                DivisionRule::RefinableBlocks { block, least: 32 }
            } else {
                DivisionRule::WholeBlocks { block }
            };
            out.push(make(part.size, rule));
        }
    }
    out
}

/// Input features of a group of packed numbers that must lie on one rank, since its scale cannot be dealt out: padding mends
/// tiles, not groups (vLLM `distributed/utils.py` `verify_group_size_divides_partition`, `auto_awq.py`, the Marlin kernels).
/// Experts of AWQ and GPTQ fall back to kernels that halve the group until it fits; those of compressed-tensors, which store
/// their shape beside each copy, are refused (`compressed_tensors_moe_wna16.py`). NVFP4 takes whole groups of 16 and MXFP8 of 32
/// (`modelopt.py`: "not multiple of 16", "divisible by"), MXFP4 of dense layers 32. Towers stay in 16 bit in such checkpoints.
fn whole_groups(tensor: &Tensor) -> Option<u64> {
    let extras = &tensor.storage.extras;
    let keeps_shape = extras.iter().any(|extra| matches!(extra, Extra::Copy { .. }));
    if tensor.role == Role::Tower {
        return None;
    }
    let experts = tensor.sharing == Sharing::Experts;
    extras.iter().find_map(|extra| match (extra, tensor.storage.element) {
        (Extra::Group { cols, bits: 16 }, _) if !experts || keeps_shape => Some(*cols),
        // experts of MXFP8 are refused, those of the four-bit formats padded
        (Extra::Group { cols, bits: 8 }, Dtype::Fp8) => Some(*cols),
        (Extra::Group { cols, bits: 8 }, Dtype::Fp4) if !experts => Some(*cols),
        _ => None,
    })
}
