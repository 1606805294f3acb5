//! How far measurements lie from the model where the fit never saw them: intervals and their basis.

use serde::{Deserialize, Serialize};

use super::setting::{EngineKind, Generation, Question};
use crate::planner::estimate::Basis;

/// Factors around an estimate between which 80 % of the held-out measurements lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    pub low: f64,
    pub high: f64,
}

/// Bands of one figure, by requests in flight: up to 8, up to 64, more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// Engine and GPU generation were measured together: learnt by holding out whole sources.
    pub seen: Vec<Band>,
    /// They were not: learnt by holding out whole pairs of engine and generation.
    pub unseen: Vec<Band>,
}

/// An engine on a GPU generation that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub engine: String,
    pub generation: String,
    /// With routed experts.
    pub experts: bool,
    pub rows: u64,
    /// Sources that these rows come from. Files without it count as before: enough.
    #[serde(default = "enough_sources")]
    pub sources: u64,
}

const fn enough_sources() -> u64 {
    ENOUGH_SOURCES
}

/// All bands, and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranges {
    pub tpot: Bands,
    pub ttft: Bands,
    pub measured: Vec<Measured>,
}

/// Fewest rows of a pair that make it count as measured.
const ENOUGH_ROWS: u64 = 10;

/// Fewest sources: with a single one, holding it out leaves nothing of the pair, as if it had never been measured.
const ENOUGH_SOURCES: u64 = 2;

/// Where nothing was learnt: a factor of two both ways.
const UNLEARNT: Band = Band { low: 0.5, high: 2.0 };

/// What a range rests on, and its factors for TPOT and TTFT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub basis: Basis,
    pub tpot: Band,
    pub ttft: Band,
}

impl Ranges {
    /// Nothing learnt yet.
    #[must_use]
    pub fn unlearnt() -> Self {
        let bands = || Bands { seen: vec![], unseen: vec![] };
        Self { tpot: bands(), ttft: bands(), measured: vec![] }
    }

    /// The range of an answer.
    #[must_use]
    pub fn of(&self, q: &Question<'_>) -> Range {
        self.of_measured(q, self.is_measured(q.engine.kind, q.machine.generation, q.work.experts.is_some()))
    }

    /// The same for a caller who knows whether the engine was `seen` on this generation.
    pub(super) fn of_measured(&self, q: &Question<'_>, seen: bool) -> Range {
        let in_flight = (q.load.running + q.load.waiting) * q.attention_groups.max(1.0);
        let level = if in_flight <= 8.0 {
            0
        } else if in_flight <= 64.0 {
            1
        } else {
            2
        };
        let beyond = q.stages > 1.0 || q.tensor_wire.network.is_some();
        let pick = |bands: &Bands| {
            let list = if seen && !beyond { &bands.seen } else { &bands.unseen };
            list.get(level).copied().unwrap_or(UNLEARNT)
        };
        let basis = if seen && !beyond {
            Basis::Calibrated
        } else if q.engine.kind == EngineKind::Other && q.machine.generation == Generation::Other {
            Basis::Assumed
        } else {
            Basis::Extrapolated
        };
        Range { basis, tpot: pick(&self.tpot), ttft: pick(&self.ttft) }
    }

    /// True when enough rows, of more than one source, of the engine on this generation, with or without experts, were measured.
    #[must_use]
    pub fn is_measured(&self, engine: EngineKind, generation: Generation, experts: bool) -> bool {
        self.measured.iter().any(|m| {
            m.engine == engine.name()
                && m.generation == generation.name()
                && m.experts == experts
                && m.rows >= ENOUGH_ROWS
                && m.sources >= ENOUGH_SOURCES
        })
    }
}
