//! What a model is: its layers, what each caches, and the tensors it is made of.
//!
//! A model is expanded once into a ledger of tensors. Weights on a rank, FLOPs per token and
//! bytes read per step are all sums over that ledger, so they cannot disagree.

pub mod cache;
pub mod dimensions;
pub mod dtype;
pub mod ledger;
pub mod positions;
pub mod sharded;
pub mod storage;

use cache::LayerCache;
use dtype::{Dtype, KvDtype};
use ledger::{Buffer, Role, Tensor};
use positions::Positions;
use storage::{Extra, Storage};

/// Layers and width of a vision tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TowerSize {
    pub layers: u64,
    pub hidden_size: u64,
}

/// A model, as read from its config.json: everything an engine or a formula needs, nothing of the file's form.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Id or given name, e.g. `meta-llama/Llama-3.1-70B-Instruct`.
    pub name: String,
    /// First entry of `architectures`, e.g. `LlamaForCausalLM`: engines decide by it.
    pub architecture: String,
    pub model_type: String,
    pub hidden_size: u64,
    pub vocab_size: u64,
    /// The longest sequence that its positions are made for, as vLLM derives it.
    pub context_length: u64,
    /// What it declares of them: other engines derive other lengths.
    pub positions: Positions,
    /// Query heads of the attention layers (the first kind that has any).
    pub query_heads: u64,
    /// KV heads as the engine counts them for its checks (MLA: as declared).
    pub kv_heads: u64,
    /// Head size as the engine reports it (MLA: `kv_lora_rank + qk_rope_head_dim`).
    pub head_size: u64,
    /// True when attention keeps one latent for all heads.
    pub mla: bool,
    /// Format of unquantised weights and of activations.
    pub dtype: Dtype,
    /// Format of recurrent states as `mamba_ssm_dtype` names it, the one key that SGLang reads.
    pub mamba_ssm_dtype: Option<Dtype>,
    /// Cache format that the checkpoint itself declares.
    pub declared_kv_dtype: Option<KvDtype>,
    /// How the weights are stored, for people: `bf16`, `fp8 block 128x128`, `nvfp4`, …
    pub quantization: String,
    /// Size of the vision tower, where the configuration has one.
    pub tower: Option<TowerSize>,
    /// `quant_method` that the checkpoint declares (`modelopt` where only its side file does); empty when it declares none, or is
    /// asked for as if it were stored otherwise.
    pub quantization_method: String,
    /// Experts, when some layer routes tokens.
    pub experts: Option<Experts>,
    /// One entry per decoder layer: an index into `kinds`.
    pub layers: Vec<usize>,
    /// The distinct layer shapes.
    pub kinds: Vec<LayerKind>,
    /// Tensors before the first layer (embedding, vision tower, …): on the first pipeline stage.
    pub head: Vec<Tensor>,
    /// Tensors after the last layer (final norm, lm_head): on the last stage.
    pub tail: Vec<Tensor>,
    /// Buffers of the towers: on the first stage.
    pub head_buffers: Vec<Buffer>,
    /// Embedding and lm_head are one tensor: stored once on one stage, on both ends when PP > 1.
    pub tied_embeddings: bool,
    /// What the engine's class of this architecture cannot do.
    pub limits: ClassLimits,
    /// Things a reader of the answer should know (defaults taken, parts left out).
    pub notes: Vec<String>,
    /// Total weights given by the caller: they replace the ledger's bytes, split evenly over the ranks.
    pub weights_bytes_given: Option<u64>,
}

/// Routed experts in brief, for engine rules and summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    pub routed: u64,
    pub per_token: u64,
    pub shared: u64,
}

/// The shape of a layer; layers of equal shape share one.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerKind {
    /// Short name, e.g. `full_attention+moe`.
    pub name: String,
    /// Query heads of its attention, 0 when it has none.
    pub query_heads: u64,
    /// What it caches, in the engine's order. Empty: nothing of its own.
    pub caches: Vec<LayerCache>,
    pub tensors: Vec<Tensor>,
    /// Rotary tables and other memory loaded with the weights.
    pub buffers: Vec<Buffer>,
}

/// Limits of the engine's model class (vLLM 0.33), beyond what the tensors themselves say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassLimits {
    /// The class cannot be cut into pipeline stages.
    pub no_pipeline: bool,
    /// The engine does not count this model's experts, so expert parallelism is refused.
    pub experts_not_counted: bool,
    /// KV heads are never copied: TP beyond them is refused.
    pub no_kv_replication: bool,
    /// Without expert parallelism, TP × attention DP may not exceed the routed experts.
    pub ranks_within_experts: bool,
}

impl ModelSpec {
    /// The weights are stored as the model computes with them.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.quantization.as_str(), "bf16" | "fp16" | "fp32")
    }

    /// The decoder alone, as engines load it when asked for the language model only.
    #[must_use]
    pub fn without_towers(&self) -> Self {
        let mut out = self.clone();
        out.head.retain(|tensor| tensor.role != Role::Tower);
        out.head_buffers.clear();
        out
    }

    /// The model with the products of its layers in fp8, one scale a matrix: what engines make of a 16-bit checkpoint
    /// while they load it (vLLM, `quantization=fp8`). `None` where the checkpoint is quantised already or only its total is known.
    #[must_use]
    pub fn in_fp8(&self) -> Option<Self> {
        let all = || self.kinds.iter().flat_map(|kind| &kind.tensors);
        if self.weights_bytes_given.is_some() || all().any(|t| t.storage.is_quantised()) {
            return None;
        }
        let mut out = self.clone();
        for tensor in out.kinds.iter_mut().flat_map(|kind| &mut kind.tensors) {
            let is_product = matches!(
                tensor.role,
                Role::Attention
                    | Role::KvProjection
                    | Role::DenseFeedForward
                    | Role::RoutedExperts
                    | Role::SharedExpert
            );
            if is_product
                && tensor.is_matmul
                && !tensor.is_duplicate
                && tensor.storage == Storage::plain(self.dtype)
            {
                tensor.storage = Storage::with(Dtype::Fp8, &[Extra::Part { bytes: 4 }]);
            }
        }
        "fp8 per tensor".clone_into(&mut out.quantization);
        Some(out)
    }
}
