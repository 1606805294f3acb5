//! What a fleet's own start-ups say of the items of memory that are estimated.

use serde::{Deserialize, Serialize};

use super::memory::{Item, StageItems};
use crate::planner::units::Bytes;

const SOURCE: &str = "estimate corrected by this fleet's own start-ups (memory of the calibration file)";

/// A correction of activation, runtime memory and CUDA graphs together, for one engine's rules on one GPU:
/// `corrected = max(floor, factor · estimated + added_bytes)`, bytes of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryCorrection {
    /// `vllm`, `sglang`, `tensorrt-llm`.
    pub engine: String,
    /// The release whose rules it corrects.
    pub version: String,
    /// Catalogue key.
    pub gpu: String,
    pub factor: f64,
    pub added_bytes: f64,
    /// Where eight of ten of the start-ups lie about it, bytes.
    pub low_bytes: f64,
    pub high_bytes: f64,
    /// Start-ups it was learnt from.
    pub observations: u64,
}

impl MemoryCorrection {
    /// True when every figure can be computed with.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let bounded = |bytes: f64| bytes.abs() <= 1e12;
        (0.0..=100.0).contains(&self.factor)
            && [self.added_bytes, self.low_bytes, self.high_bytes].into_iter().all(bounded)
            && self.low_bytes <= self.high_bytes
    }

    /// What `estimated` bytes become; never less than `floor`, unless the estimate itself was.
    #[must_use]
    pub fn corrected(&self, estimated: Bytes, floor: Bytes) -> Bytes {
        let bytes = self.factor.mul_add(estimated.as_f64(), self.added_bytes);
        Bytes::from_f64(bytes.max(0.0)).max(floor.min(estimated))
    }

    /// Correct the items of a stage. The activation keeps its share; what is more or less than that is runtime memory.
    pub fn apply(&self, items: &mut StageItems, floor: Bytes) {
        let (activation, runtime, graphs) =
            (items.activation.bytes, items.runtime.bytes, items.cuda_graph.bytes);
        let estimated = activation + runtime + graphs;
        let wanted = self.corrected(estimated, floor);
        let scaled = |bytes: Bytes| Bytes::from_f64(bytes.as_f64() * self.factor).min(wanted);
        let activation = scaled(activation).max(floor.min(activation)).min(wanted);
        let graphs = scaled(graphs).min(wanted - activation);
        let runtime = wanted - activation - graphs;
        let about = |bytes: f64| Bytes::from_f64((runtime.as_f64() + bytes).max(0.0));
        items.activation = Item::exact(activation, SOURCE);
        items.cuda_graph = Item::exact(graphs, SOURCE);
        items.runtime = Item {
            low: about(self.low_bytes.min(0.0)),
            high: about(self.high_bytes.max(0.0)),
            ..Item::exact(runtime, SOURCE)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn correction(factor: f64, added_bytes: f64) -> MemoryCorrection {
        MemoryCorrection {
            engine: "vllm".to_owned(),
            version: "0.33".to_owned(),
            gpu: "h100-sxm5-80gb".to_owned(),
            factor,
            added_bytes,
            low_bytes: -10.0,
            high_bytes: 20.0,
            observations: 5,
        }
    }

    fn items() -> StageItems {
        let item = |bytes| Item::fitted(bytes, (0.5, 2.0), "test");
        StageItems {
            buffers: Item::none("test"),
            activation: item(1000.0),
            runtime: item(100.0),
            cuda_graph: item(400.0),
            drafter: Item::NO_DRAFTER,
        }
    }

    #[test]
    fn the_items_add_up_to_what_was_learnt() {
        for (factor, added, floor, total) in
            [(1.0, 500.0, 10, 2000), (0.5, 0.0, 10, 750), (1.0, -700.0, 10, 800), (1.0, -9e9, 300, 300)]
        {
            let mut items = items();
            correction(factor, added).apply(&mut items, Bytes(floor));
            assert_eq!(items.total(), Bytes(total), "{factor} {added}");
            assert!(items.activation.bytes >= Bytes(floor));
            assert!(items.runtime.low <= items.runtime.bytes && items.runtime.bytes <= items.runtime.high);
        }
    }

    #[test]
    fn absurd_figures_are_told_and_never_panic() {
        for bad in [correction(f64::NAN, 0.0), correction(-1.0, 0.0), correction(1.0, f64::INFINITY)] {
            assert!(!bad.is_usable());
            bad.apply(&mut items(), Bytes(u64::MAX));
        }
        assert!(correction(1.0, -5e9).is_usable());
    }
}
