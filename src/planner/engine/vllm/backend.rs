//! Which attention backend the engine takes, as far as it decides sizes: blocks of latents, cache formats, checkpoints of
//! states (`platforms/cuda.py`, the backends' own `supports_*`).

use super::Vllm;
use crate::planner::engine::{Refusal, RefusalCode, ResolvedSettings};
use crate::planner::hardware::Gpu;
use crate::planner::layout::Shape;
use crate::planner::model::ModelSpec;
use crate::planner::model::cache::{LayerCache, State, StateKind};
use crate::planner::model::dtype::KvDtype;

/// Tokens of a block when nothing else decides.
const DEFAULT_BLOCK: u64 = 16;

/// Generations of GPU that the engine has different kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// AMD, whose sparse and compressed attention has kernels of its own (`backends/mla/rocm_aiter_mla_sparse.py`; a log of
    /// DeepSeek-V4 on MI300X).
    Amd,
    /// Before Hopper, and whatever else there is.
    Older,
    Hopper,
    /// Data-centre Blackwell (compute capability 10).
    Blackwell,
    /// Consumer and workstation Blackwell (12).
    ConsumerBlackwell,
}

impl Generation {
    pub fn of(gpu: &Gpu) -> Self {
        if gpu.vendor == "amd" {
            return Self::Amd;
        }
        match gpu.compute_capability {
            Some((9, _)) => Self::Hopper,
            Some((10 | 11, _)) => Self::Blackwell,
            Some((12, _)) => Self::ConsumerBlackwell,
            _ => Self::Older,
        }
    }
}

/// What kinds of attention a model has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    pub heads: bool,
    pub latent: bool,
    pub sparse: bool,
    pub compressed: bool,
    pub states: bool,
    pub windows: bool,
    /// Heads of 512 features.
    pub wide_heads: bool,
}

impl Traits {
    pub fn of(model: &ModelSpec) -> Self {
        use crate::planner::model::cache::Reach;
        let mut t = Self::default();
        for cache in model.kinds.iter().flat_map(|k| &k.caches) {
            match cache {
                LayerCache::Heads { reach, key_size, .. } => {
                    t.heads = true;
                    t.wide_heads |= *key_size == 512;
                    t.windows |= *reach != Reach::Full;
                }
                LayerCache::Latent { sparse, reach, .. } => {
                    t.latent = true;
                    t.sparse |= *sparse;
                    t.windows |= *reach != Reach::Full;
                }
                LayerCache::Indexer { .. } => t.sparse = true,
                LayerCache::Compressed { .. } => {
                    t.compressed = true;
                    t.windows = true;
                }
                LayerCache::State(_) => t.states = true,
            }
        }
        t
    }
}

/// The cache format that the backend stores, from the one resolved for the model, or why there is no backend.
///
/// Sparse latents: `fp8` asked for means `fp8_ds_mla` on Hopper and plain fp8 on Blackwell; a checkpoint that declares fp8 is
/// not translated, so Hopper has no backend for it; older GPUs have none at all. GLM's sparse models take fp8 on Blackwell
/// when nothing is asked.
pub fn stored_dtype(
    model: &ModelSpec,
    gpu: &Gpu,
    settings: &ResolvedSettings,
    traits: Traits,
) -> Result<KvDtype, Refusal> {
    let generation = Generation::of(gpu);
    let asked = settings.kv_dtype;
    let none = |why: &str| {
        Refusal::new(
            RefusalCode::NoAttentionBackend,
            format!("no attention backend on {}: {why}", gpu.short_name),
        )
    };
    if traits.compressed {
        return match generation {
            Generation::Hopper | Generation::Blackwell | Generation::Amd => Ok(KvDtype::Fp8DsMla),
            _ => Err(none("DeepSeek-V4's sparse attention needs compute capability 9 or 10")),
        };
    }
    if !traits.latent {
        return match asked {
            KvDtype::Fp8DsMla | KvDtype::Nvfp4DsMla => {
                Err(none("this cache format is for multi-head latent attention"))
            }
            other => Ok(other),
        };
    }
    if matches!(asked, KvDtype::Fp8PerTokenHead | KvDtype::Int8PerTokenHead | KvDtype::Nvfp4) {
        return Err(none("this cache format is not for multi-head latent attention"));
    }
    if !traits.sparse {
        return match asked {
            KvDtype::Fp8DsMla | KvDtype::Nvfp4DsMla => {
                Err(none("this cache format is for sparse latent attention"))
            }
            other => Ok(other),
        };
    }
    let glm = model.architecture == "GlmMoeDsaForCausalLM";
    match (generation, asked) {
        (Generation::Hopper, KvDtype::Fp8) if settings.kv_dtype_declared => Err(none(
            "the checkpoint declares an fp8 cache, which sparse latent attention has no kernel for here",
        )),
        (Generation::Hopper, KvDtype::Fp8) => Ok(KvDtype::Fp8DsMla),
        (Generation::Blackwell, KvDtype::Bf16 | KvDtype::Fp16) if glm && !settings.kv_dtype_given => {
            Ok(KvDtype::Fp8)
        }
        (Generation::Hopper | Generation::Blackwell | Generation::Amd, other) => Ok(other),
        (Generation::Older | Generation::ConsumerBlackwell, _) => {
            Err(none("sparse latent attention needs compute capability 9 or 10"))
        }
    }
}

/// Tokens of a block of attention layers before hybrids raise it: what the caller fixed, else what the backend forces:
/// FlashMLA and sparse kernels 64, FlashInfer-MLA 32, FlashAttention 4 on Hopper for an fp8 cache of heads of 512 features 64
/// (`v1/attention/backends/flash_attn.py`), all others 16.
pub fn attention_block(gpu: &Gpu, settings: &ResolvedSettings, stored: KvDtype, traits: Traits) -> u64 {
    if let Some(block) = settings.block_size {
        return block;
    }
    if traits.compressed {
        return 256;
    }
    if traits.sparse {
        return 64;
    }
    if traits.latent {
        let quantized = !matches!(stored, KvDtype::Bf16 | KvDtype::Fp16 | KvDtype::Fp32);
        return match Generation::of(gpu) {
            Generation::Hopper if quantized => 64,
            Generation::Blackwell => 32,
            _ => DEFAULT_BLOCK,
        };
    }
    if traits.wide_heads && stored == KvDtype::Fp8 && Generation::of(gpu) == Generation::Hopper {
        return 64;
    }
    DEFAULT_BLOCK
}

/// How prefill hands out states in between for prefix caching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// Blocks that a request holds for them.
    pub blocks: u64,
    /// Positions are multiples of this; 1 = anywhere.
    pub alignment: u64,
}

/// Checkpoints of a state's layer class: Mamba2 everywhere; Qwen's gated delta net on Hopper and later (64 tokens);
/// Kimi-K3's KDA (32 at most); none for Mamba1, Kimi-Linear, OLMo's delta net, convolutions.
pub fn checkpoints(release: &Vllm, model: &ModelSpec, gpu: &Gpu, state: &State) -> Checkpoints {
    let none = Checkpoints { blocks: 0, alignment: 1 };
    if !release.state_checkpoints {
        return none;
    }
    let recent = !matches!(Generation::of(gpu), Generation::Older | Generation::Amd);
    match state.kind {
        StateKind::Mamba2 { .. } => Checkpoints { blocks: 1, alignment: 1 },
        StateKind::GatedDeltaNet { .. } if recent && model.architecture.starts_with("Qwen3") => {
            Checkpoints { blocks: 1, alignment: 64 }
        }
        StateKind::Kda { .. } if recent && model.architecture.starts_with("KimiK3") => {
            Checkpoints { blocks: 1, alignment: 32 }
        }
        _ => none,
    }
}

/// Classes without any attention keep one state and cache no prefixes.
pub fn attention_free(model: &ModelSpec) -> bool {
    matches!(
        model.architecture.as_str(),
        "MambaForCausalLM" | "Mamba2ForCausalLM" | "FalconMambaForCausalLM" | "RWKV7ForCausalLM"
    )
}

/// DCP that no backend of this GPU can run: a sparse latent on Hopper needs the `fp8_ds_mla` cache.
pub fn dcp_refusal(gpu: &Gpu, shape: &Shape, stored: KvDtype, traits: Traits) -> Option<Refusal> {
    if shape.dcp <= 1 {
        return None;
    }
    if traits.windows || traits.compressed {
        return Some(Refusal::new(
            RefusalCode::DcpNotSupported,
            format!("DCP={}: sliding-window and chunked caches cannot be dealt out by position", shape.dcp),
        ));
    }
    (traits.sparse && Generation::of(gpu) == Generation::Hopper && stored != KvDtype::Fp8DsMla).then(|| {
        Refusal::new(
            RefusalCode::DcpNotSupported,
            format!(
                "DCP={}: sparse latent attention on {} supports DCP only with the fp8_ds_mla cache",
                shape.dcp, gpu.short_name
            ),
        )
    })
}
