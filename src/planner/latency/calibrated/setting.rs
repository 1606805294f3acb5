//! Where a model runs and under which load: what the calibrated model is asked.

use super::collective::Wire;
use super::work::RankWork;
use crate::planner::hardware::{Gpu, PeakFlops};
use crate::planner::speculation::Drafter;

/// GPU families whose constants differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    Ampere,
    Hopper,
    Blackwell,
    Amd,
    /// Ada, Turing, Intel, …: the constants of Hopper, which most of the measurements are of.
    Other,
}

/// A GPU's rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    pub generation: Generation,
    /// Peak memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    pub peak: PeakFlops,
    /// Rate that replaces every peak, where the caller gave one, FLOP/s.
    pub given_flops: Option<f64>,
}

impl Machine {
    /// A GPU of the catalogue.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        Self {
            generation: Generation::of(gpu),
            hbm_bytes_per_s: gpu.hbm_bytes_per_s.max(1.0),
            peak: gpu.peak_flops,
            given_flops: None,
        }
    }

    /// Peak 16-bit rate, FLOP/s.
    #[must_use]
    pub fn half(&self) -> f64 {
        self.given_flops.or(self.peak.bf16).or(self.peak.fp16).unwrap_or(1e14).max(1.0)
    }

    /// Peak 8-bit float rate, FLOP/s: the 16-bit one where the GPU has none.
    #[must_use]
    pub fn fp8(&self) -> f64 {
        self.given_flops.or(self.peak.fp8).unwrap_or_else(|| self.half()).max(1.0)
    }

    /// Peak 4-bit float rate, FLOP/s: the next wider one where the GPU has none.
    #[must_use]
    pub fn fp4(&self) -> f64 {
        self.given_flops.or(self.peak.fp4).unwrap_or_else(|| self.fp8()).max(1.0)
    }
}

impl Generation {
    /// By vendor and architecture of the catalogue.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        if gpu.vendor == "amd" {
            return Self::Amd;
        }
        match gpu.architecture.split([' ', '-']).next().unwrap_or("") {
            "Ampere" => Self::Ampere,
            "Hopper" => Self::Hopper,
            "Blackwell" => Self::Blackwell,
            _ => Self::Other,
        }
    }

    /// Name in calibration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ampere => "ampere",
            Self::Hopper => "hopper",
            Self::Blackwell => "blackwell",
            Self::Amd => "amd",
            Self::Other => "other",
        }
    }
}

/// Engines whose constants differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    Vllm,
    Sglang,
    TensorRtLlm,
    Other,
}

impl EngineKind {
    /// By name, as sources write it, e.g. `vllm`, `dynamo+sglang`, `tensorrt-llm`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name.contains("sglang") {
            Self::Sglang
        } else if name.contains("tensorrt") || name.contains("trt") {
            Self::TensorRtLlm
        } else if name.contains("vllm") {
            Self::Vllm
        } else {
            Self::Other
        }
    }

    /// Name in calibration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TensorRtLlm => "tensorrt-llm",
            Self::Other => "other",
        }
    }
}

/// An engine as it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Engine {
    pub kind: EngineKind,
    /// When the release came out, in years, e.g. 2026.25.
    pub released: f64,
    /// No CUDA graphs.
    pub eager: bool,
    /// Draft tokens of a speculative step, 0 without.
    pub draft_tokens: f64,
    /// Chance that a draft token holds where those before it did; `None`: the fitted one.
    pub acceptance: Option<f64>,
    /// Most new tokens in one pass.
    pub chunk_tokens: f64,
    /// Steps between two looks for new requests: SGLang's `scheduler_recv_interval`, 1 by default and in other engines.
    pub poll_steps: f64,
}

/// How requests come, as load generators differ in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// As many clients as the concurrency, each starting anew when it has its answer; lengths differ.
    ClosedLoop,
    /// The same with equal lengths: requests that started together end together.
    ClosedLoopFixed,
    /// All requests at once, then none.
    AllAtOnce,
    /// One batch, no arrivals while it runs.
    StaticBatch,
}

/// Which figure over the requests is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// Over all requests of a run, the starting burst among them.
    Mean,
    /// Of the typical request.
    Median,
}

/// The load on one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Sequences that run at once in one attention-DP group.
    pub running: f64,
    /// Sequences of one group that wait for a slot.
    pub waiting: f64,
    pub input_tokens: f64,
    /// Of those, with their cache there already: they are not computed again.
    pub reused_tokens: f64,
    pub output_tokens: f64,
    /// Tokens in the cache of a sequence, on average, in decode.
    pub context_tokens: f64,
    pub arrival: Arrival,
    pub statistic: Statistic,
    /// Prefill runs on other GPUs.
    pub disaggregated: bool,
}

/// One question to the calibrated model.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    pub work: &'a RankWork,
    pub machine: &'a Machine,
    pub engine: Engine,
    pub load: Load,
    /// Bytes of one cache element, scales included.
    pub kv_element_bytes: f64,
    pub stages: f64,
    /// Attention-DP groups of a replica.
    pub attention_groups: f64,
    /// Experts dealt out whole.
    pub expert_parallel: bool,
    /// The wires under the TP group.
    pub tensor_wire: Wire,
    /// The wires between all ranks of a stage, over which tokens go to experts; `None`: no such exchange.
    pub expert_wire: Option<Wire>,
    /// The wires between stages.
    pub stage_wire: Option<Wire>,
    /// What drafts tokens, where it takes time.
    pub drafter: Option<Drafter>,
}

impl Load {
    /// Prompt tokens that are computed: at least one, whose pass gives the first token.
    #[must_use]
    pub fn computed_tokens(&self) -> f64 {
        (self.input_tokens - self.reused_tokens).max(1.0_f64.min(self.input_tokens))
    }
}
