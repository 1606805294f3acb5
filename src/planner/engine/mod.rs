//! What each engine does with memory and parallel sizes, one folder an engine, behind [`EngineRules`].
//!
//! An engine answers four questions about a model in a shape on a GPU: is it allowed, which layers sit on
//! which stage, how is the cache laid out, and what else takes memory. Everything is pure arithmetic over
//! kinds of layers; nothing loops over tokens or GPUs.

pub mod activation;
pub mod after_loading;
pub mod capacity;
pub mod correction;
pub mod divisions;
pub mod formats;
pub mod memory;
pub mod pools;
pub mod refusal;
pub mod rows;
pub mod settings;
pub mod sglang;
pub mod tensorrt_llm;
pub mod vllm;

use std::ops::Range;

use thiserror::Error;

use super::hardware::Gpu;
use super::input::EngineSettings;
use super::layout::Shape;
use super::model::ModelSpec;
use super::model::sharded::StageWeights;

pub use capacity::{CacheCapacity, CacheLayout, CacheTooSmall};
pub use correction::MemoryCorrection;
pub use memory::{Item, MemoryBudget, StageItems};
pub use refusal::{Refusal, RefusalCode};
pub use settings::ResolvedSettings;
pub use vllm::last_release_with;

/// What an engine does when the cache is full and a request needs more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Requests start with room for their prompt; when the cache is full, running ones are put back and computed again later.
    Recompute,
    /// A request starts when there is room for all of it.
    Wait,
}

impl WhenFull {
    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recompute => "recompute",
            Self::Wait => "wait",
        }
    }
}

/// The rules of one engine in one range of versions.
pub trait EngineRules: Sync {
    /// `vllm`, `sglang`, `tensorrt-llm`.
    fn name(&self) -> &'static str;

    /// The release that these rules were read from.
    fn version(&self) -> &'static str;

    /// What becomes of a request that finds the cache full.
    fn when_full(&self) -> WhenFull;

    /// The longest sequence that the model's positions are made for, as this engine derives it.
    fn longest(&self, model: &ModelSpec) -> u64;

    /// The settings with every default filled in for this model and GPU.
    ///
    /// # Errors
    /// A [`Refusal`] when the engine would not start with them at any parallel size.
    fn resolve(
        &self,
        settings: &EngineSettings,
        model: &ModelSpec,
        gpu: &Gpu,
    ) -> Result<ResolvedSettings, Refusal>;

    /// The first rule on sizes that `shape` breaks, in the engine's own order, or `None` when it may start.
    fn refuse(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<Refusal>;

    /// The code of [`EngineRules::refuse`] without its words, which cost more than the rules: a search asks for thousands of
    /// shapes and words a hundred.
    fn refused_code(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<RefusalCode> {
        self.refuse(model, shape, gpu, settings).map(|refusal| refusal.code)
    }

    /// The decoder layers of each stage, in order; `None` when the engine dies on it (a stage without layers).
    fn pipeline_split(
        &self,
        layers: usize,
        pp: u64,
        settings: &ResolvedSettings,
    ) -> Option<Vec<Range<usize>>>;

    /// How the cache of one rank is laid out. It depends neither on EP nor on attention DP.
    ///
    /// # Errors
    /// A [`Refusal`] when the engine has no layout for it.
    fn cache_layout(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
    ) -> Result<CacheLayout, Refusal>;

    /// What the engine may use of one GPU and what it needs apart from weights and cache, by stage.
    /// `weights` are what a rank of each stage holds. It does not depend on DCP.
    fn memory(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
        weights: &[StageWeights],
    ) -> MemoryBudget;
}

/// An engine or version that no rules are known for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no rules for engine {name:?} version {version:?}; known: {}", known.join(", "))]
pub struct UnknownEngine {
    pub name: String,
    pub version: String,
    /// What is known, as `name version`.
    pub known: Vec<String>,
}

/// Every engine, newest version first within a name.
static ENGINES: &[&dyn EngineRules] = &[
    &vllm::V0_33,
    &vllm::V0_24,
    &vllm::V0_21,
    &vllm::V0_20_1,
    &vllm::V0_20,
    &vllm::V0_12,
    &vllm::V0_10,
    &vllm::V0_8,
    &vllm::V0_7_1,
    &vllm::V0_6,
    &vllm::V0_5,
    &sglang::V0_5_23,
    &sglang::V0_5,
    &sglang::V0_4,
    &tensorrt_llm::V1_2,
];

/// Every known set of rules as (name, version), newest first within a name.
pub fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENGINES.iter().map(|e| (e.name(), e.version()))
}

/// The rules for `name` at `version`: the newest set that is not newer than the version asked for.
/// An empty version, `latest` or `nightly` takes the newest set.
///
/// # Errors
/// [`UnknownEngine`] when the name is unknown, the version is no version, or it is older than every set.
pub fn rules(name: &str, version: &str) -> Result<&'static dyn EngineRules, UnknownEngine> {
    let unknown = || UnknownEngine {
        name: name.to_owned(),
        version: version.to_owned(),
        known: known().map(|(n, v)| format!("{n} {v}")).collect(),
    };
    let mut of_name = ENGINES.iter().copied().filter(|e| e.name() == canonical_name(name));
    let asked = version.trim();
    if matches!(asked, "" | "latest" | "nightly" | "main") {
        return of_name.next().ok_or_else(unknown);
    }
    let asked = release(asked).ok_or_else(unknown)?;
    of_name.find(|e| release(e.version()).is_some_and(|known| known <= asked)).ok_or_else(unknown)
}

/// True when release `a` is `b` or newer; `None` when one of them is no release.
#[must_use]
pub fn newer_or_equal(a: &str, b: &str) -> Option<bool> {
    Some(release(a)? >= release(b)?)
}

/// The engine's name as this crate writes it, for the spellings people use.
fn canonical_name(name: &str) -> &str {
    match name {
        "vLLM" => "vllm",
        "SGLang" | "sgl" => "sglang",
        "TensorRT-LLM" | "tensorrt_llm" | "trtllm" | "trt-llm" => "tensorrt-llm",
        other => other,
    }
}

/// The numbers of a release: "v0.11.2.post1" is (0, 11, 2, 1); missing parts are 0. A candidate or development build of a
/// release comes before it: its last number is 0.
fn release(version: &str) -> Option<[u64; 4]> {
    let mut parts = [0_u64, 0, 0, 1];
    let mut found = false;
    let text = version.trim_start_matches(['v', 'V']);
    for (slot, part) in parts.iter_mut().take(3).zip(text.split('.')) {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        if digits.is_empty() {
            break;
        }
        *slot = digits.parse().ok()?;
        found = true;
    }
    if ["rc", ".dev", "a0", "b0"].iter().any(|mark| text.contains(mark)) && !text.contains(".post") {
        parts = [parts[0], parts[1], parts[2], 0];
    }
    found.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_takes_the_newest_rules_not_newer() {
        for asked in ["0.33", "0.33.0", "v0.33.1", "0.40", "latest", ""] {
            assert_eq!(rules("vllm", asked).map(EngineRules::version).ok(), Some("0.33"), "{asked}");
        }
        for (asked, rules_of) in [
            ("0.11.2", "0.10"),
            ("v0.20.0", "0.20"),
            ("0.22.1", "0.21"),
            ("0.6.4", "0.6"),
            ("0.7.2", "0.7.1"),
            ("0.5.4", "0.5"),
            ("0.20.1.dev0", "0.20"),
            ("0.20.1", "0.20.1"),
        ] {
            assert_eq!(rules("vllm", asked).map(EngineRules::version).ok(), Some(rules_of), "{asked}");
        }
        assert!(rules("vllm", "0.0.1").is_err());
        assert!(rules("vllm", "banana").is_err());
        assert!(rules("SGLang", "").is_ok_and(|r| r.name() == "sglang"));
        assert!(rules("trtllm", "1.3.0rc2").is_ok_and(|r| r.name() == "tensorrt-llm"));
        assert!(rules("ollama", "1").is_err_and(|e| e.known.iter().any(|k| k == "vllm 0.33")));
    }

    #[test]
    fn releases_read_as_numbers() {
        assert_eq!(release("v0.11.2.post1"), Some([0, 11, 2, 1]));
        assert_eq!(release("0.6"), Some([0, 6, 0, 1]));
        assert_eq!(release("1.2.0rc3"), Some([1, 2, 0, 0]));
        assert_eq!(release("x"), None);
    }
}
