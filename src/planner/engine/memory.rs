//! What an engine may use of a GPU, and what it needs apart from weights and cache.

use crate::planner::estimate::Basis;
use crate::planner::units::Bytes;

/// One item of memory, with the interval it is expected in and where the figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    pub bytes: Bytes,
    pub low: Bytes,
    pub high: Bytes,
    pub basis: Basis,
    pub source: &'static str,
}

impl Item {
    /// No drafter: the state that engines' rules start from.
    pub const NO_DRAFTER: Self = Self::none("no drafter");

    /// Nothing, for the reason given.
    #[must_use]
    pub const fn none(source: &'static str) -> Self {
        Self { bytes: Bytes::ZERO, low: Bytes::ZERO, high: Bytes::ZERO, basis: Basis::Calibrated, source }
    }

    /// An exact figure.
    #[must_use]
    pub const fn exact(bytes: Bytes, source: &'static str) -> Self {
        Self { bytes, low: bytes, high: bytes, basis: Basis::Calibrated, source }
    }

    /// A figure fitted to measurements, with the factors of its interval.
    #[must_use]
    pub fn fitted(bytes: f64, (low, high): (f64, f64), source: &'static str) -> Self {
        Self {
            bytes: Bytes::from_f64(bytes),
            low: Bytes::from_f64(bytes * low),
            high: Bytes::from_f64(bytes * high),
            basis: Basis::Calibrated,
            source,
        }
    }
}

/// Memory of one GPU of a stage that is neither loaded weights nor cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageItems {
    /// Persistent tensors that are no weights (position tables), and copies made after loading.
    pub buffers: Item,
    /// The peak of a forward pass over the tokens of one step, through the layers or the sampler.
    pub activation: Item,
    /// Runtime, communication and library memory that counts against the budget.
    pub runtime: Item,
    /// CUDA graphs, where the engine takes them off the budget.
    pub cuda_graph: Item,
    /// Weights of what drafts tokens, on the last stage.
    pub drafter: Item,
}

impl StageItems {
    /// Replace items by what the caller gives. A reserve stands for all of them at once.
    pub fn take_given(
        &mut self,
        reserve: Option<Bytes>,
        activation: Option<Bytes>,
        runtime: Option<Bytes>,
        cuda_graph: Option<Bytes>,
    ) {
        const GIVEN: &str = "given in the request";
        const IN_RESERVE: &str = "part of the given reserve_bytes";
        if let Some(bytes) = reserve {
            *self = Self {
                buffers: Item::none(IN_RESERVE),
                activation: Item::none(IN_RESERVE),
                runtime: Item::exact(bytes, GIVEN),
                cuda_graph: Item::none(IN_RESERVE),
                drafter: Item::none(IN_RESERVE),
            };
        }
        for (item, given) in [
            (&mut self.activation, activation),
            (&mut self.runtime, runtime),
            (&mut self.cuda_graph, cuda_graph),
        ] {
            if let Some(bytes) = given {
                *item = Item::exact(bytes, GIVEN);
            }
        }
    }

    /// All items together.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.buffers.bytes
            + self.activation.bytes
            + self.runtime.bytes
            + self.cuda_graph.bytes
            + self.drafter.bytes
    }
}

/// The budget of one GPU. Cache bytes of a stage =
/// `share_of_rest * (budget - weights - items)`, by [`MemoryBudget::kv_bytes`].
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryBudget {
    /// What the engine may use of the GPU for weights, items and cache.
    pub budget: Bytes,
    /// The value of the engine's knob that gave it.
    pub utilization: f64,
    /// Share of what is left that becomes cache: 1 but for engines whose knob works on the rest.
    pub share_of_rest: f64,
    /// The engine's knob is that share, and not one of the whole GPU.
    pub knob_on_rest: bool,
    /// One entry per stage.
    pub stages: Vec<StageItems>,
    /// By stage, what the tightest GPU has free for this budget, where the caller measured it; otherwise empty.
    pub free: Vec<Bytes>,
    /// Memory outside the budget that must stay free (context, collectives, graphs of versions that do
    /// not count them): the difference between the largest safe utilisation and 1.
    pub outside: Item,
    /// The arithmetic of `budget`, for people.
    pub source: &'static str,
}

impl MemoryBudget {
    /// Let a stage use no more than its GPU has free beside what lives outside the budget: `min(budget, free - outside)`.
    pub fn limit_to(&mut self, free: &[Bytes]) {
        self.free = free.iter().map(|bytes| *bytes - self.outside.bytes).collect();
    }

    /// The budget of a GPU of this stage.
    #[must_use]
    pub fn of(&self, stage: usize) -> Bytes {
        self.free.get(stage).map_or(self.budget, |free| self.budget.min(*free))
    }

    /// What weights, items and cache of this stage may take: the budget, or all of the `whole` GPU (as far as it is free) where
    /// a cache given outright goes past the budget.
    #[must_use]
    pub fn room(&self, stage: usize, whole: Option<Bytes>) -> Bytes {
        whole.map_or_else(|| self.of(stage), |gpu| self.free.get(stage).copied().unwrap_or(gpu))
    }

    /// Bytes of cache on a GPU of this stage whose weights and other items take `used`; `None` when they exceed the budget.
    #[must_use]
    pub fn kv_bytes(&self, stage: usize, used: Bytes) -> Option<Bytes> {
        let rest = self.of(stage).get().checked_sub(used.get()).map(Bytes)?;
        if self.share_of_rest >= 1.0 {
            return Some(rest);
        }
        Some(Bytes::from_f64(rest.as_f64() * self.share_of_rest))
    }

    /// Bytes that the knob leaves free on a GPU of this stage, beside `used` and the cache; zero where it shares out the GPU.
    #[must_use]
    pub fn left_free(&self, stage: usize, used: Bytes) -> Bytes {
        let rest = self.of(stage) - used;
        self.kv_bytes(stage, used).map_or(Bytes::ZERO, |kv| rest - kv)
    }

    /// The smallest value of the engine's knob with which every stage holds what one request of the longest length
    /// needs, rounded up to a thousandth. `used` are weights and items of a GPU of each stage, `needed` the cache that a
    /// request takes there ([`super::CacheLayout::bytes_for`]). `None` when no value up to 1 is enough.
    #[must_use]
    pub fn smallest_utilization(&self, used: &[Bytes], needed: &[Bytes]) -> Option<f64> {
        let stages = used.iter().zip(needed);
        let knob = if self.knob_on_rest {
            let share = |(used, needed): (&Bytes, &Bytes)| needed.as_f64() / (self.budget - *used).as_f64();
            stages.map(share).fold(0.0, f64::max)
        } else {
            let base = self.budget.as_f64() / self.utilization;
            stages.map(|(used, needed)| (*used + *needed).as_f64() / base).fold(0.0, f64::max)
        };
        let rounded = (knob * 1000.0).ceil() / 1000.0;
        (rounded > 0.0 && rounded <= 1.0).then_some(rounded)
    }

    /// The largest value of the knob that leaves room for what lives outside the budget on a GPU of `total` bytes, rounded
    /// down to a thousandth. A knob on the rest leaves room for what the runtime may take beyond its estimate, on the tightest
    /// stage: `1 - (high - estimate) / rest`. `used` are weights and items of a GPU of each stage.
    #[must_use]
    pub fn largest_safe_utilization(&self, total: Bytes, used: &[Bytes]) -> f64 {
        let share = if self.knob_on_rest {
            let stages = self.stages.iter().zip(used).enumerate();
            let of_stage = |(stage, (items, used)): (usize, (&StageItems, &Bytes))| {
                let rest = (self.of(stage) - *used).as_f64();
                1.0 - (items.runtime.high - items.runtime.bytes).as_f64() / rest.max(1.0)
            };
            stages.map(of_stage).fold(1.0, f64::min)
        } else {
            (total - self.outside.bytes).as_f64() / total.as_f64().max(1.0)
        };
        ((share * 1000.0).floor() / 1000.0).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(share_of_rest: f64, utilization: f64, budget: u64) -> MemoryBudget {
        MemoryBudget {
            budget: Bytes(budget),
            utilization,
            share_of_rest,
            knob_on_rest: share_of_rest < 1.0,
            stages: Vec::new(),
            free: Vec::new(),
            outside: Item::exact(Bytes(50), "test"),
            source: "test",
        }
    }

    #[test]
    fn the_smallest_knob_holds_one_request_on_the_tightest_stage() {
        let vllm = budget(1.0, 0.9, 900);
        assert_eq!(
            vllm.smallest_utilization(&[Bytes(500), Bytes(600)], &[Bytes(100), Bytes(100)]),
            Some(0.7)
        );
        assert_eq!(vllm.smallest_utilization(&[Bytes(950)], &[Bytes(100)]), None);
        let rest = budget(0.9, 0.9, 1000);
        assert_eq!(rest.smallest_utilization(&[Bytes(500)], &[Bytes(100)]), Some(0.2));
        assert!((vllm.largest_safe_utilization(Bytes(1000), &[]) - 0.95).abs() < 1e-9);
    }
}
