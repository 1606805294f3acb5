//! What changed between releases, as a table: everything else is the same in all of them.
//!
//! Sources: the package of 0.33.0; start-up logs of the releases named; release notes.

use super::Vllm;

/// vLLM 0.33.
pub static V0_33: Vllm = Vllm {
    version: "0.33",
    default_utilization: 0.92,
    large_gpu_defaults: true,
    sampler_copies: 4.0,
    graphs_in_budget: true,
    collectives_in_budget: false,
    declared_kv_dtype: true,
    hybrid_manager: true,
    hybrid_prefix_caching: true,
    state_checkpoints: true,
    batches_in_flight: true,
    concurrency_figure: true,
    null_block_checked: true,
    prompts_whole: false,
    first_engine_on_amd: false,
    chunk_when_cut: 2048,
    latent_caches: true,
    reduce_workspaces: true,
    refuses_deprecated: true,
};

/// vLLM 0.24: hybrids cache prefixes by default (a log of 0.24.0 holds two states a group); no checkpoints of states yet.
pub static V0_24: Vllm = Vllm {
    version: "0.24",
    state_checkpoints: false,
    batches_in_flight: false,
    large_gpu_defaults: false,
    null_block_checked: false,
    ..V0_33
};

/// vLLM 0.21: CUDA graphs come off the budget, of which 0.92 is used by default.
pub static V0_21: Vllm = Vllm { version: "0.21", hybrid_prefix_caching: false, ..V0_24 };

/// vLLM 0.20: graphs outside the budget; the printed tokens are blocks over groups.
pub static V0_20: Vllm = Vllm {
    version: "0.20",
    default_utilization: 0.90,
    graphs_in_budget: false,
    concurrency_figure: false,
    ..V0_21
};

/// vLLM 0.20.1: the printed tokens are concurrency times length (logs of 0.20.0 and 0.20.1 differ in it).
pub static V0_20_1: Vllm = Vllm { version: "0.20.1", concurrency_figure: true, ..V0_20 };

/// vLLM 0.12: the sampler's peak falls to about four copies of the logits, communicators are set up before the measurement.
pub static V0_12: Vllm = Vllm { version: "0.12", refuses_deprecated: false, ..V0_20 };

/// vLLM 0.10: the sampler sorts whole vocabularies; communicators count against the budget.
pub static V0_10: Vllm = Vllm {
    version: "0.10",
    sampler_copies: 9.7,
    collectives_in_budget: true,
    reduce_workspaces: false,
    declared_kv_dtype: false,
    ..V0_12
};

/// vLLM 0.8, whose default is the V1 engine: windows are allocated as if they kept every token.
pub static V0_8: Vllm = Vllm { version: "0.8", hybrid_manager: false, first_engine_on_amd: true, ..V0_10 };

/// vLLM 0.7.1: the first engine takes prompts whole.
pub static V0_7_1: Vllm = Vllm { version: "0.7.1", prompts_whole: true, ..V0_8 };

/// vLLM 0.6 and 0.7.0: latent attention has no kernels, so whole heads are cached.
pub static V0_6: Vllm = Vllm { version: "0.6", latent_caches: false, ..V0_7_1 };

/// vLLM 0.5: where prompts are cut, a step has 512 tokens (a log of 0.5.4).
pub static V0_5: Vllm = Vllm { version: "0.5", chunk_when_cut: 512, ..V0_6 };
