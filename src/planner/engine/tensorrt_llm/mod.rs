//! TensorRT-LLM (PyTorch backend): a fraction of what a dummy run leaves becomes cache.
//!
//! Read from the repository (`_torch/pyexecutor/_util.py`, `resource_manager.py`, docs/source/features); no single release.
//! Its first estimate of tokens charges `floor(d * Hkv / T)` elements, half a head at `T = 2 * Hkv`; the pool it then builds
//! holds `ceil(Hkv / T)` heads and rules. Only the latter is computed here.

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
use crate::planner::model::cache::{LayerCache, Reach};
use crate::planner::model::dtype::{Dtype, KvDtype};
use crate::planner::model::ledger::Tensor;
use crate::planner::model::sharded::StageWeights;
use crate::planner::model::storage::Extra;
use crate::planner::model::{LayerKind, ModelSpec};
use crate::planner::units::{Bytes, Tokens};

/// The rules of one range of releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorRtLlm {
    version: &'static str,
}

/// TensorRT-LLM 1.2.
pub static V1_2: TensorRtLlm = TensorRtLlm { version: "1.2" };

/// `free_gpu_memory_fraction`.
const FREE_FRACTION: f64 = 0.9;
const MAX_NUM_TOKENS: u64 = 8192;
const MAX_BATCH_SIZE: u64 = 2048;
const TOKENS_PER_BLOCK: u64 = 32;
/// Context, libraries, NCCL and graphs, all of which the dummy run measures.
const OUTSIDE_TORCH_GIB: f64 = 2.0;

impl EngineRules for TensorRtLlm {
    fn name(&self) -> &'static str {
        "tensorrt-llm"
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn when_full(&self) -> WhenFull {
        // `capacity_scheduler_policy` is GUARANTEED_NO_EVICT by default (llmapi/llm_args.py)
        WhenFull::Wait
    }

    fn longest(&self, model: &ModelSpec) -> u64 {
        model.positions.in_tensorrt_llm().max(1)
    }

    fn resolve(
        &self,
        asked: &EngineSettings,
        model: &ModelSpec,
        _gpu: &Gpu,
    ) -> Result<ResolvedSettings, Refusal> {
        let (kv_dtype, kv_dtype_declared) = kv_dtype(&asked.kv_cache_dtype, model)?;
        // the engine cuts a longer one to the model's own, with a word in its log
        let longest = Tokens(self.longest(model));
        let length = asked.max_model_len.map_or(longest, |asked| Tokens(asked.max(1)).min(longest));
        let block = asked.block_size.filter(|b| *b > 0).unwrap_or(TOKENS_PER_BLOCK);
        Ok(ResolvedSettings {
            gpu_memory_utilization: settings::utilization(
                "free_gpu_memory_fraction",
                asked.gpu_memory_utilization,
                FREE_FRACTION,
            )?,
            kv_dtype,
            kv_dtype_declared,
            max_model_len: length,
            max_num_seqs: asked.max_num_seqs.unwrap_or(MAX_BATCH_SIZE).max(1),
            max_num_batched_tokens: asked.max_num_batched_tokens.unwrap_or(MAX_NUM_TOKENS).max(1),
            block_size: Some(block),
            mamba_full_memory_ratio: None,
            ..ResolvedSettings::as_asked("tensorrt-llm", self.version, asked, model)?
        })
    }

    fn refuse(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        _gpu: &Gpu,
        settings: &ResolvedSettings,
    ) -> Option<Refusal> {
        let Shape { tp, pp, ep, attention_dp, dcp } = *shape;
        if [tp, pp, ep, attention_dp, dcp].contains(&0) {
            return Some(Refusal::new(RefusalCode::SettingInvalid, "parallel sizes start at 1"));
        }
        if dcp > 1 {
            return Some(
                Refusal::new(
                    RefusalCode::DcpNotSupported,
                    "TensorRT-LLM deals out positions only in Helix: latent attention on Blackwell, on the decode side of a disaggregated pair",
                )
                .nearest(Some(Shape { dcp: 1, ..*shape })),
            );
        }
        if attention_dp > 1 && tp > 1 {
            return Some(
                Refusal::new(
                    RefusalCode::AttentionDpNotSupported,
                    format!(
                        "attention DP is all or nothing: {} ranks take an attention width of 1, not {tp}",
                        tp.saturating_mul(attention_dp)
                    ),
                )
                .nearest(Some(Shape {
                    tp: 1,
                    attention_dp: tp.saturating_mul(attention_dp),
                    ..*shape
                })),
            );
        }
        if model.experts.is_none() && (shape.expert_parallel() || attention_dp > 1) {
            let code = if shape.expert_parallel() {
                RefusalCode::ExpertParallelWithoutExperts
            } else {
                RefusalCode::DenseAttentionDp
            };
            return Some(Refusal::new(code, "the model has no experts").nearest(Some(Shape {
                ep: 1,
                attention_dp: 1,
                ..*shape
            })));
        }
        let heads = |s: &Shape| model.query_heads.is_multiple_of(s.tp);
        if !heads(shape) {
            let legal = |s: &Shape| heads(s) && settings.divisions.iter().all(|d| d.allows(s));
            return Some(
                Refusal::new(
                    RefusalCode::QueryHeadsNotDivisible,
                    format!("{} query heads do not split evenly over TP={tp}", model.query_heads),
                )
                .nearest(divisions::nearest_tp(shape, legal)),
            );
        }
        divisions::first_broken(&settings.divisions, shape, heads)
    }

    /// Extra layers go to the first stages.
    fn pipeline_split(
        &self,
        layers: usize,
        pp: u64,
        settings: &ResolvedSettings,
    ) -> Option<Vec<Range<usize>>> {
        if settings.pp_layer_partition.is_some() {
            return super::vllm::split::stages(layers, pp, settings.pp_layer_partition.as_deref());
        }
        let count = usize::try_from(pp).ok().filter(|count| *count > 0 && *count <= layers)?;
        let (each, extra) = (layers.checked_div(count)?, layers.checked_rem(count)?);
        let mut first = 0_usize;
        Some(
            (0..count)
                .map(|i| {
                    let range = first..first.saturating_add(each).saturating_add(usize::from(i < extra));
                    first = range.end;
                    range
                })
                .collect(),
        )
    }

    fn cache_layout(
        &self,
        model: &ModelSpec,
        shape: &Shape,
        _gpu: &Gpu,
        settings: &ResolvedSettings,
        stages: &[Range<usize>],
    ) -> Result<CacheLayout, Refusal> {
        // the split over window pools follows a mean length: half of the longest sequence where none is told
        let mean = settings.max_model_len.as_f64() / 2.0;
        let window = longest_window(model);
        let share = (Tokens(window).as_f64() / mean.max(1.0)).min(1.0);
        let rules = PoolRules {
            page: settings.block_size.unwrap_or(TOKENS_PER_BLOCK),
            stored: settings.kv_dtype,
            heads,
            window_share: settings.swa_full_tokens_ratio.unwrap_or(share),
            states: (StateSizing::Slots(settings.max_num_seqs.min(MAX_STATES)), 1),
            state_dtype: None,
            draft_tokens: settings.num_speculative_tokens,
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
        let by_kind = activation::token_bytes_by_kind(model, shape);
        let last = stages.len().saturating_sub(1);
        let copies = after_loading::Growth::new(model, |kind| key_copies(kind, shape));
        let items = stages
            .iter()
            .zip(weights)
            .enumerate()
            .map(|(i, (layers, weights))| {
                let peak = activation::layer_peak(model, layers, &by_kind, settings.max_num_batched_tokens);
                // one row of logits for each sequence of the dummy run
                let rows = settings.max_num_seqs.min(settings.max_num_batched_tokens);
                let logits = Bytes(rows.saturating_mul(model.vocab_size).saturating_mul(4)).as_f64();
                StageItems {
                    buffers: Item::exact(
                        weights.buffer_bytes + copies.of_stage(model, layers),
                        "position tables, and the transposed key part of MLA up-projections (k_b_proj_trans)",
                    ),
                    activation: Item::fitted(
                        if i == last { peak.max(logits) } else { peak },
                        (0.5, 2.5),
                        "peak of a dummy prefill of max_num_tokens (formula of the layers; no log of TensorRT-LLM checked)",
                    ),
                    runtime: Item::fitted(
                        Bytes::from_gib(OUTSIDE_TORCH_GIB).as_f64(),
                        (0.5, 2.0),
                        "context, libraries, NCCL, cuBLAS (assumed: an MLPerf log of B200 leaves about 5 GiB for all of it)",
                    ),
                    cuda_graph: Item::none("counted with the runtime: the dummy run measures both"),
                    drafter: Item::NO_DRAFTER,
                }
            })
            .collect();
        MemoryBudget {
            budget: gpu.memory_bytes,
            utilization: settings.gpu_memory_utilization,
            share_of_rest: settings.gpu_memory_utilization,
            knob_on_rest: true,
            stages: items,
            free: Vec::new(),
            outside: Item::none("free_gpu_memory_fraction leaves its rest free"),
            source: "all of the GPU; free_gpu_memory_fraction of what weights and a dummy run leave becomes cache",
        }
    }
}

/// Bytes of `k_b_proj_trans`, a parameter of its own beside `kv_b_proj` (`_torch/modules/attention.py`), of which it is the
/// `nope` rows of each head: `(H/T) * kv_lora_rank * nope`, in fp8 where that is quantised by block, else in 16 bit.
/// Values keep a view.
fn key_copies(kind: &LayerKind, shape: &Shape) -> u64 {
    let find = |wanted: fn(&Tensor) -> bool| kind.tensors.iter().find(|t| wanted(t));
    let Some(up) = find(after_loading::is_up_projection) else { return 0 };
    let Some(out) = find(|t| t.name.ends_with("self_attn.o_proj")) else { return 0 };
    // rows are heads x (nope + v), inputs of o_proj are heads x v
    let rows = up.outputs.iter().map(|part| part.size).fold(0, u64::saturating_add);
    let keys = rows.saturating_sub(out.inputs.size);
    let elements = after_loading::elements(up, shape);
    let of_keys = elements.checked_div(rows).unwrap_or(0).saturating_mul(keys);
    let in_blocks = up.storage.element == Dtype::Fp8
        && up.storage.extras.iter().any(|extra| matches!(extra, Extra::Block { .. }));
    of_keys.saturating_mul(if in_blocks { 1 } else { 2 })
}

/// States kept at most: one for each sequence of a batch.
const MAX_STATES: u64 = 1 << 20;

/// KV heads on a rank of the pool: `ceil(Hkv / T)`.
fn heads(kv_heads: u64, shape: &Shape) -> u64 {
    kv_heads.div_ceil(shape.tp.max(1)).max(1)
}

fn longest_window(model: &ModelSpec) -> u64 {
    model
        .kinds
        .iter()
        .flat_map(|k| &k.caches)
        .map(|cache| match cache {
            LayerCache::Heads { reach, .. } | LayerCache::Latent { reach, .. } => match reach {
                Reach::Full => 0,
                Reach::Sliding { window } => *window,
                Reach::Chunked { chunk } => *chunk,
            },
            LayerCache::Compressed { window, .. } => *window,
            LayerCache::Indexer { .. } | LayerCache::State(_) => 0,
        })
        .max()
        .unwrap_or(0)
}

fn kv_dtype(text: &str, model: &ModelSpec) -> Result<(KvDtype, bool), Refusal> {
    let own = own_kv_dtype(model);
    Ok(match text {
        "" | "auto" => return Ok(model.declared_kv_dtype.map_or((own, false), |d| (d, true))),
        "fp8" | "fp8_e4m3" => (KvDtype::Fp8, false),
        "nvfp4" => (KvDtype::Nvfp4, false),
        "bf16" | "bfloat16" => (KvDtype::Bf16, false),
        "fp16" | "float16" => (KvDtype::Fp16, false),
        other => {
            return Err(Refusal::new(
                RefusalCode::KvCacheDtypeNotSupported,
                format!("how TensorRT-LLM stores a cache of {other:?} is not known here"),
            ));
        }
    })
}
