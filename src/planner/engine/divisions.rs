//! Sizes of a model that parallel ranks must divide, and the nearest sizes that do.

use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::dimensions::{self, CutBy, DivisionRule};
use crate::planner::model::ledger::{Role, Tensor};

use super::{Refusal, RefusalCode};

/// One size and the rule for cutting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    pub code: RefusalCode,
    /// What is cut, e.g. `intermediate size`.
    pub what: &'static str,
    pub size: u64,
    pub rule: DivisionRule,
    pub cut_by: CutBy,
}

impl Division {
    /// Ranks that cut it under `shape`; 1 when it is not cut.
    fn ranks(&self, shape: &Shape) -> u64 {
        match self.cut_by {
            CutBy::Tensor => shape.tp,
            CutBy::Experts if shape.expert_parallel() => 1,
            CutBy::Experts => shape.tp.saturating_mul(shape.attention_dp),
        }
    }

    /// True when `shape` may cut it.
    #[must_use]
    pub fn allows(&self, shape: &Shape) -> bool {
        self.rule.allows(self.size, self.ranks(shape))
    }

    /// The broken rule in words.
    fn complaint(&self, shape: &Shape) -> String {
        let (what, size, ranks) = (self.what, self.size, self.ranks(shape));
        let by = match self.cut_by {
            CutBy::Tensor => format!("TP={ranks}"),
            CutBy::Experts => format!("TP x attention DP = {ranks}"),
        };
        match self.rule {
            DivisionRule::Divides => format!("{size} ({what}) does not split evenly over {by}"),
            DivisionRule::DividesOrCopies => {
                format!("{size} {what}: {by} must divide them, or be a multiple of them to copy each")
            }
            DivisionRule::WholeBlocks { block } => {
                format!(
                    "{size} {} over {by} is {} a rank, no multiple of the {block} quantisation block",
                    self.features(),
                    share(size, ranks)
                )
            }
            DivisionRule::RefinableBlocks { block, least } => format!(
                "{size} {} over {by} is {} a rank: the {block} quantisation block cannot be refined to {least} or more",
                self.features(),
                share(size, ranks)
            ),
        }
    }

    /// What a size cut by blocks counts: features, of the heads where it is cut by heads.
    fn features(&self) -> String {
        if self.what.contains("heads") {
            format!("(features of {})", self.what)
        } else {
            format!("({})", self.what)
        }
    }

    /// A rule about blocks says nothing new of a size that ranks do not even divide.
    fn repeats(&self, broken: &[&Self], shape: &Shape) -> bool {
        let by_blocks =
            matches!(self.rule, DivisionRule::WholeBlocks { .. } | DivisionRule::RefinableBlocks { .. });
        by_blocks
            && broken.iter().any(|other| {
                other.what == self.what && other.rule == DivisionRule::Divides && !other.allows(shape)
            })
    }
}

fn share(size: u64, ranks: u64) -> u64 {
    size.checked_div(ranks).unwrap_or(size)
}

/// Every size to divide, without repeats, in the order in which an engine builds a model: towers, embedding, layers,
/// output head. `text_only` leaves the towers out.
#[must_use]
pub fn of_model(model: &ModelSpec, text_only: bool) -> Vec<Division> {
    let towers = model.head.iter().filter(|t| !text_only && t.role == Role::Tower);
    let tables = model.head.iter().filter(|t| t.role != Role::Tower);
    let layers = model.kinds.iter().flat_map(|kind| &kind.tensors);
    let mut found: Vec<Division> = Vec::new();
    for tensor in towers.chain(tables).chain(layers).chain(&model.tail) {
        for dimension in dimensions::of_tensor(tensor) {
            let division = Division {
                code: code(tensor, dimension.what, dimension.rule),
                what: dimension.what,
                size: dimension.size,
                rule: dimension.rule,
                cut_by: dimension.cut_by,
            };
            let known = found
                .iter()
                .any(|d| (d.size, d.rule, d.cut_by) == (division.size, division.rule, division.cut_by));
            if !known {
                found.push(division);
            }
        }
    }
    found
}

fn code(tensor: &Tensor, what: &str, rule: DivisionRule) -> RefusalCode {
    match rule {
        DivisionRule::WholeBlocks { .. } | DivisionRule::RefinableBlocks { .. } => {
            RefusalCode::QuantizationBlockNotDivisible
        }
        _ if matches!(tensor.role, Role::Embedding | Role::LmHead) => RefusalCode::VocabNotDivisible,
        DivisionRule::DividesOrCopies => RefusalCode::KvHeadsNotDivisible,
        DivisionRule::Divides if what.contains("query heads") => RefusalCode::QueryHeadsNotDivisible,
        DivisionRule::Divides => RefusalCode::DimensionNotDivisible,
    }
}

/// The first division that `shape` breaks, with all of them in the message and the nearest TP that breaks none.
/// `legal` adds rules that are no divisions.
pub fn first_broken(
    divisions: &[Division],
    shape: &Shape,
    legal: impl Fn(&Shape) -> bool,
) -> Option<Refusal> {
    let first = divisions.iter().find(|d| !d.allows(shape))?;
    let complaints = complaints(divisions, shape, None);
    let nearest = nearest_tp(shape, |s| legal(s) && divisions.iter().all(|d| d.allows(s)));
    Some(Refusal::new(first.code, complaints.join("; ")).nearest(nearest))
}

/// Every broken rule in words, each once; those of the code `said` are told elsewhere.
pub fn complaints(divisions: &[Division], shape: &Shape, said: Option<RefusalCode>) -> Vec<String> {
    let broken: Vec<&Division> = divisions.iter().filter(|d| !d.allows(shape)).collect();
    let mut told = Vec::new();
    for division in &broken {
        let complaint = division.complaint(shape);
        if Some(division.code) != said && !division.repeats(&broken, shape) && !told.contains(&complaint) {
            told.push(complaint);
        }
    }
    told
}

/// The code of [`first_broken`].
pub fn first_broken_code(divisions: &[Division], shape: &Shape) -> Option<RefusalCode> {
    divisions.iter().find(|d| !d.allows(shape)).map(|d| d.code)
}

/// TP values tried on either side.
const REACH: u64 = 256;

/// The shape with the nearest TP that `legal` allows, smaller ones first; DCP falls back to 1.
pub fn nearest_tp(shape: &Shape, legal: impl Fn(&Shape) -> bool) -> Option<Shape> {
    (1..=REACH)
        .flat_map(|step| [shape.tp.checked_sub(step), shape.tp.checked_add(step)])
        .flatten()
        .filter(|tp| *tp > 0)
        .map(|tp| Shape {
            tp,
            ep: if shape.expert_parallel() { tp.saturating_mul(shape.attention_dp) } else { 1 },
            dcp: 1,
            ..*shape
        })
        .find(|candidate| legal(candidate))
}
