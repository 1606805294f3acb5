//! A layout: how ranks divide the work. Enumeration, refusals and placement live beside it.

pub mod enumerate;
pub mod place;

use serde::Serialize;
use utoipa::ToSchema;

/// The parallel sizes of one replica: what the engine is started with.
/// GPUs of a replica = `tp * pp * attention_dp`; `ep` and `dcp` re-use those ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
pub struct Shape {
    /// Tensor parallel ranks.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Ranks that share out whole experts; 1 = experts are split like other tensors.
    /// Otherwise always `tp * attention_dp`.
    pub ep: u64,
    /// Data-parallel attention groups inside one instance.
    pub attention_dp: u64,
    /// Decode context parallel ranks, taken from the TP ranks.
    pub dcp: u64,
}

impl Shape {
    /// A plain TP × PP shape.
    #[must_use]
    pub const fn new(tp: u64, pp: u64) -> Self {
        Self { tp, pp, ep: 1, attention_dp: 1, dcp: 1 }
    }

    /// GPUs of one replica (saturating).
    #[must_use]
    pub const fn gpus(&self) -> u64 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.attention_dp)
    }

    /// True when experts are dealt out whole.
    #[must_use]
    pub const fn expert_parallel(&self) -> bool {
        self.ep > 1
    }
}

/// "TP=8 × PP=2", with the other sizes where they are not 1.
#[must_use]
pub fn sizes(shape: &Shape) -> String {
    let mut text = format!("TP={}", shape.tp);
    for (name, size) in
        [("PP", shape.pp), ("attention DP", shape.attention_dp), ("EP", shape.ep), ("DCP", shape.dcp)]
    {
        if size > 1 {
            text.push_str(&format!(" × {name}={size}"));
        }
    }
    text
}
