//! Why a shape does not work.

use super::engine::{CacheTooSmall, Refusal, RefusalCode};
use super::units::Bytes;

/// A shape that does not work, and by how much when memory is the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    pub refusal: Refusal,
    pub short_by: Option<Bytes>,
}

/// Why a shape does not work, not yet in words: a search meets thousands and shows a hundred.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A rule of the engine on sizes; asked again, it gives the words.
    Rule(RefusalCode),
    Refused(Refusal),
    WeightsDoNotFit {
        stage: usize,
        weights: Bytes,
        /// Weights and all else on a GPU of the stage.
        used: Bytes,
        /// What the engine may use there.
        budget: Bytes,
    },
    CacheTooSmall(CacheTooSmall),
}

impl Fault {
    /// The code of the refusal.
    #[must_use]
    pub const fn code(&self) -> RefusalCode {
        match self {
            Self::Rule(code) => *code,
            Self::Refused(refusal) => refusal.code,
            Self::WeightsDoNotFit { .. } => RefusalCode::WeightsDoNotFit,
            Self::CacheTooSmall(_) => RefusalCode::KvCacheTooSmall,
        }
    }

    /// Bytes that lack on the tightest GPU, when memory is the reason.
    #[must_use]
    pub fn short_by(&self) -> Option<Bytes> {
        match self {
            Self::Rule(_) | Self::Refused(_) => None,
            Self::WeightsDoNotFit { used, budget, .. } => Some(*used - *budget + Bytes(1)),
            Self::CacheTooSmall(small) => Some(small.needed_bytes - small.available_bytes),
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
