//! SGLang: pools of fixed proportions, in a share of the memory that was free before loading.
//!
//! Read from the packages 0.5.23, 0.5.9, 0.5.6, 0.5.3 and 0.4.6.post5 (`sglang/srt`). TP here is the attention width: an instance with attention DP has
//! `TP x attention DP` ranks, which SGLang calls its TP size.

mod fraction;
mod outside;

use std::ops::Range;

use super::pools::{self, PoolRules, StateSizing};
use super::settings::{self, own_kv_dtype};
use super::{
    CacheLayout, EngineRules, Item, MemoryBudget, Refusal, RefusalCode, ResolvedSettings, StageItems,
    WhenFull, activation, after_loading, divisions,
};
use crate::planner::hardware::Gpu;
use crate::planner::input::EngineSettings;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::LayerCache;
use crate::planner::model::dtype::{Dtype, KvDtype};
use crate::planner::model::ledger::Tensor;
use crate::planner::model::sharded::StageWeights;
use crate::planner::model::storage::Extra;
use crate::planner::units::Bytes;

/// The rules of one range of releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sglang {
    version: &'static str,
    /// How the share of memory is derived that nobody gave.
    fraction: fraction::Rule,
    /// A token of a sparse latent is counted with the scales that are stored beside it; before, as plain fp8.
    counts_scales: bool,
    /// Room for what images leave on the GPU is taken off the pool.
    multimodal_room: bool,
}

/// SGLang 0.5.23.
pub static V0_5_23: Sglang = Sglang {
    version: "0.5.23",
    fraction: fraction::Rule::ReservedWithPrefillGraphs,
    counts_scales: true,
    multimodal_room: true,
};

/// SGLang 0.5 up to 0.5.22: read from 0.5.3, 0.5.6 and 0.5.9, which agree in what is used here.
pub static V0_5: Sglang = Sglang {
    version: "0.5",
    fraction: fraction::Rule::Reserved,
    counts_scales: false,
    multimodal_room: false,
};

/// SGLang 0.4.
pub static V0_4: Sglang = Sglang { version: "0.4", fraction: fraction::Rule::ByRanks, ..V0_5 };

/// Tokens of the window pool for one of the full pool (`server_args.py`; DeepSeek-V4 has its own).
const WINDOW_SHARE: f64 = 0.8;
const COMPRESSED_WINDOW_SHARE: f64 = 0.1;
/// Bytes of states for one byte of keys and values.
const STATE_RATIO: f64 = 0.9;
/// States of a running request whose prefixes are kept.
const STATES_PER_REQUEST: u64 = 3;
/// States that track a request beside these under the `extra_buffer` strategy, while steps overlap and otherwise.
const TRACKING_STATES: (u64, u64) = (2, 1);
/// Classes for which the strategy `auto` is `extra_buffer` (`arg_groups/overrides.py`).
const EXTRA_BUFFER: [&str; 21] = [
    "KimiLinearForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen4ExpForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration",
    "BailingMoeV2_5ForCausalLM",
    "BailingMoeV3ForCausalLM",
    "BailingMoeV3VLForConditionalGeneration",
    "FalconH1ForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "Glm5NextForConditionalGeneration",
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "NemotronH_Omni_Reasoning_V3",
    "KimiK3ForConditionalGeneration",
    "InklingForConditionalGeneration",
];
/// The least that the engine takes when the caller gives no limit on running requests.
const RUNNING_REQUESTS: u64 = 2048;
/// Multimodal cache on the GPU (`SGLANG_VLM_CACHE_SIZE_MB`).
const MULTIMODAL_BYTES: u64 = 100 << 20;
/// Memory beside weights that is there when the pool is sized.
const RUNTIME_GIB: f64 = 0.2;

impl EngineRules for Sglang {
    fn name(&self) -> &'static str {
        "sglang"
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn when_full(&self) -> WhenFull {
        // running requests are retracted when the pool is full (managers/schedule_batch.py, `retract_decode`)
        WhenFull::Recompute
    }

    fn longest(&self, model: &ModelSpec) -> u64 {
        model.positions.in_sglang().max(1)
    }

    fn resolve(
        &self,
        asked: &EngineSettings,
        model: &ModelSpec,
        gpu: &Gpu,
    ) -> Result<ResolvedSettings, Refusal> {
        let chunk = asked.max_num_batched_tokens.unwrap_or(fraction::defaults(self.fraction, gpu).chunk);
        let start = fraction::Start {
            gpu,
            model,
            shape: &Shape::new(1, 1),
            chunk,
            running: asked.max_num_seqs,
            graphs: !asked.enforce_eager,
            vision: !asked.language_model_only,
            drafts: asked.num_speculative_tokens > 0,
        };
        let automatic = fraction::automatic(self.fraction, &start);
        let fraction = settings::utilization("mem_fraction_static", asked.gpu_memory_utilization, automatic)?;
        let (kv_dtype, kv_dtype_declared) = kv_dtype(&asked.kv_cache_dtype, model, gpu)?;
        Ok(ResolvedSettings {
            gpu_memory_utilization: fraction,
            utilization_automatic: asked.gpu_memory_utilization.is_none(),
            kv_dtype,
            kv_dtype_declared,
            max_model_len: settings::admitted_length(
                "context_length",
                asked,
                self.longest(model),
                "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
            )?,
            max_num_seqs: asked.max_num_seqs.unwrap_or(RUNNING_REQUESTS).max(1),
            max_num_batched_tokens: chunk.max(1),
            ..ResolvedSettings::as_asked("sglang", self.version, asked, model)?
        })
    }

    fn refuse(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<Refusal> {
        let by_size = sizes(shape).or_else(|| experts(model, shape));
        by_size.or_else(|| self.table_of_requests(model, shape, gpu, settings)).or_else(|| {
            let heads = |s: &Shape| model.query_heads.is_multiple_of(s.tp);
            if heads(shape) {
                return divisions::first_broken(&settings.divisions, shape, heads);
            }
            let legal = |s: &Shape| heads(s) && settings.divisions.iter().all(|d| d.allows(s));
            Some(
                Refusal::new(
                    RefusalCode::QueryHeadsNotDivisible,
                    format!(
                        "{} query heads do not split evenly over an attention width of {}",
                        model.query_heads, shape.tp
                    ),
                )
                .nearest(divisions::nearest_tp(shape, legal)),
            )
        })
    }

    fn refused_code(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<RefusalCode> {
        let heads = model.query_heads.is_multiple_of(shape.tp);
        sizes(shape)
            .or_else(|| experts(model, shape))
            .or_else(|| self.table_of_requests(model, shape, gpu, settings))
            .map(|refusal| refusal.code)
            .or_else(|| (!heads).then_some(RefusalCode::QueryHeadsNotDivisible))
            .or_else(|| divisions::first_broken_code(&settings.divisions, shape))
    }

    fn pipeline_split(
        &self,
        layers: usize,
        pp: u64,
        settings: &ResolvedSettings,
    ) -> Option<Vec<Range<usize>>> {
        super::vllm::split::stages(layers, pp, settings.pp_layer_partition.as_deref())
    }

    fn cache_layout(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
    ) -> Result<CacheLayout, Refusal> {
        let compressed = has(model, |c| matches!(c, LayerCache::Compressed { .. }));
        let sparse = is_sparse(model);
        let share = if compressed { COMPRESSED_WINDOW_SHARE } else { WINDOW_SHARE };
        let rules = PoolRules {
            page: settings.block_size.unwrap_or_else(|| page(model, gpu, compressed, sparse)),
            stored: if sparse && self.counts_scales && settings.kv_dtype == KvDtype::Fp8 {
                KvDtype::Fp8DsMla
            } else {
                settings.kv_dtype
            },
            heads,
            window_share: settings.swa_full_tokens_ratio.unwrap_or(share),
            states: (
                StateSizing::Ratio(settings.mamba_full_memory_ratio.unwrap_or(STATE_RATIO)),
                states_per_request(model, settings).saturating_add(settings.num_speculative_tokens),
            ),
            // only `mamba_ssm_dtype` is read, fp32 without it (`configs/mamba_utils.py`)
            state_dtype: Some(model.mamba_ssm_dtype.unwrap_or(Dtype::Fp32)),
            draft_tokens: 0,
        };
        Ok(pools::layout(model, shape, stages, &rules))
    }

    fn memory(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
        weights: &[StageWeights],
    ) -> MemoryBudget {
        let fraction = self.share(model, shape, gpu, settings);
        let free = outside::free_before_loading(gpu, shape);
        let images = self.multimodal_room && !settings.language_model_only && activation::has_tower(model);
        let multimodal = if images { Bytes(MULTIMODAL_BYTES) } else { Bytes::ZERO };
        let copies = after_loading::Growth::new(model, |kind| {
            kind.tensors.iter().map(|t| latent_copies(t, shape)).fold(0, u64::saturating_add)
        });
        let items = stages.iter().zip(weights).map(|(layers, w)| StageItems {
            buffers: Item::exact(
                w.buffer_bytes + copies.of_stage(model, layers),
                "position tables, and the copies of MLA up-projections that absorbed attention multiplies by",
            ),
            activation: Item::none(
                "SGLang measures no activations: they live in the rest, 1 - mem_fraction_static",
            ),
            runtime: Item::fitted(
                Bytes::from_gib(RUNTIME_GIB).as_f64(),
                (0.3, 3.0),
                "memory beside weights that is taken when the pool is sized (start-up logs)",
            ),
            cuda_graph: Item::none("SGLang captures graphs in the rest, 1 - mem_fraction_static"),
            drafter: Item::NO_DRAFTER,
        });
        MemoryBudget {
            budget: Bytes::from_f64(free.as_f64() * fraction) - multimodal,
            utilization: fraction,
            share_of_rest: 1.0,
            knob_on_rest: false,
            stages: items.collect(),
            free: Vec::new(),
            outside: self.outside(model, shape, settings, stages, gpu),
            source: "mem_fraction_static x the memory free before loading (context and communicators are already up), \
                     less 100 MiB for vision models",
        }
    }
}

/// Bytes of `w_kc` and `w_vc`, which stay beside `kv_b_proj`: its elements in 16 bit, in fp8 where its scales are not by
/// block of 128 x 128 (`models/deepseek_common/deepseek_weight_loader.py` `post_load_weights`).
fn latent_copies(tensor: &Tensor, shape: &Shape) -> u64 {
    if !after_loading::is_up_projection(tensor) {
        return 0;
    }
    let in_blocks =
        tensor.storage.extras.iter().any(|e| matches!(e, Extra::Block { rows: 128, cols: 128, .. }));
    let bytes = if tensor.storage.element == Dtype::Fp8 && !in_blocks { 1 } else { 2 };
    after_loading::elements(tensor, shape).saturating_mul(bytes)
}

/// States that a running request takes (`mem_cache/kv_cache_configurator.py` `_calculate_mamba_ratio`): 1 without prefix
/// caching, else 3, and those that track it under `extra_buffer`, which the engine chooses by class: 2 while steps overlap, else 1.
fn states_per_request(model: &ModelSpec, settings: &ResolvedSettings) -> u64 {
    if !settings.prefix_caching {
        return 1;
    }
    let (overlapping, apart) = TRACKING_STATES;
    let tracking = match (EXTRA_BUFFER.contains(&model.architecture.as_str()), settings.async_scheduling) {
        (true, true) => overlapping,
        (true, false) => apart,
        (false, _) => 0,
    };
    STATES_PER_REQUEST.saturating_add(tracking)
}

/// KV heads on a rank: `max(1, Hkv / (a / c))` for an attention width `a` and `c` DCP ranks (`configs/model_config.py`).
fn heads(kv_heads: u64, shape: &Shape) -> u64 {
    let width = shape.tp.checked_div(shape.dcp.max(1)).unwrap_or(1).max(1);
    kv_heads.checked_div(width).unwrap_or(kv_heads).max(1)
}

/// Tokens of a page: 1, or what a backend forces (`arg_groups/overrides.py`).
fn page(model: &ModelSpec, gpu: &Gpu, compressed: bool, sparse: bool) -> u64 {
    let blackwell = matches!(gpu.compute_capability, Some((10, _)));
    match (compressed, sparse) {
        (true, _) => 256,
        (false, true) => 64,
        // the kernels of TensorRT-LLM that are taken there know pages of 16, 32 and 64
        _ if blackwell && model.kv_heads > 0 => 64,
        _ => 1,
    }
}

fn has(model: &ModelSpec, wanted: impl Fn(&LayerCache) -> bool) -> bool {
    model.kinds.iter().flat_map(|k| &k.caches).any(wanted)
}

fn is_sparse(model: &ModelSpec) -> bool {
    has(model, |c| matches!(c, LayerCache::Indexer { .. }))
}

fn sizes(shape: &Shape) -> Option<Refusal> {
    let Shape { tp, pp, ep, attention_dp, dcp } = *shape;
    if [tp, pp, ep, attention_dp, dcp].contains(&0) {
        return Some(Refusal::new(RefusalCode::SettingInvalid, "parallel sizes start at 1"));
    }
    (!tp.is_multiple_of(dcp)).then(|| {
        Refusal::new(
            RefusalCode::DcpNotDivisible,
            format!("DCP={dcp} does not divide the attention width of {tp}"),
        )
        .nearest(Some(Shape { dcp: 1, ..*shape }))
    })
}

fn experts(model: &ModelSpec, shape: &Shape) -> Option<Refusal> {
    let Some(experts) = model.experts else {
        if shape.expert_parallel() {
            return Some(
                Refusal::new(
                    RefusalCode::ExpertParallelWithoutExperts,
                    format!("expert parallelism over {} ranks on a model without experts", shape.ep),
                )
                .nearest(Some(Shape { ep: 1, ..*shape })),
            );
        }
        return (shape.attention_dp > 1).then(|| {
            Refusal::new(
                RefusalCode::DenseAttentionDp,
                format!(
                    "attention DP={} on a model without experts: run replicas instead",
                    shape.attention_dp
                ),
            )
            .nearest(Some(Shape { attention_dp: 1, ..*shape }))
        });
    };
    (shape.expert_parallel() && !experts.routed.is_multiple_of(shape.ep)).then(|| {
        Refusal::new(
            RefusalCode::ExpertsNotDivisible,
            format!("{} experts do not split evenly over EP={}", experts.routed, shape.ep),
        )
        .nearest(Some(Shape { ep: 1, ..*shape }))
    })
}

/// The cache format: the caller's, else what the checkpoint declares, else the model's own; of sparse latents fp8 on Blackwell
/// and bf16 before (`_dsa_kv_cache_dtype_default`).
fn kv_dtype(text: &str, model: &ModelSpec, gpu: &Gpu) -> Result<(KvDtype, bool), Refusal> {
    let own = own_kv_dtype(model);
    let blackwell = gpu.compute_capability.is_some_and(|(major, _)| major >= 10);
    Ok(match text {
        "" | "auto" if is_sparse(model) => (if blackwell { KvDtype::Fp8 } else { KvDtype::Bf16 }, false),
        "" | "auto" => return Ok(model.declared_kv_dtype.map_or((own, false), |d| (d, true))),
        "fp8" | "fp8_e4m3" | "fp8_e5m2" => (KvDtype::Fp8, false),
        "bf16" | "bfloat16" => (KvDtype::Bf16, false),
        // the words of other engines for the format that the model computes in
        "fp16" | "float16" if own == KvDtype::Fp16 => (KvDtype::Fp16, false),
        "nvfp4" | "fp4_e2m1" | "fp4_mx_block16" => (KvDtype::Nvfp4, false),
        other => {
            return Err(Refusal::new(
                RefusalCode::KvCacheDtypeNotSupported,
                format!("how SGLang stores a cache of {other:?} is not known here"),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_follow_the_attention_width() {
        let width = |tp, dcp| Shape { tp, pp: 1, ep: 1, attention_dp: 1, dcp };
        assert_eq!(heads(8, &width(8, 1)), 1);
        assert_eq!(heads(8, &width(16, 1)), 1);
        assert_eq!(heads(8, &width(16, 2)), 1);
        assert_eq!(heads(8, &width(8, 2)), 2);
    }
}
