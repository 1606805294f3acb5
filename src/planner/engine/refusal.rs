//! Why an engine would not start.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use crate::planner::layout::Shape;

/// A rule that was broken. The text of a code is part of the public contract and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// TP does not divide the query heads.
    QueryHeadsNotDivisible,
    /// TP and the KV heads do not divide each other, or the class cannot copy KV heads.
    KvHeadsNotDivisible,
    /// TP does not divide the padded vocabulary.
    VocabNotDivisible,
    /// TP does not divide another sharded dimension (feed-forward width, state heads, vision heads).
    DimensionNotDivisible,
    /// A rank's share of a weight is no multiple of its quantisation block.
    QuantizationBlockNotDivisible,
    /// A stage would have no layers.
    MoreStagesThanLayers,
    /// The model class cannot be split into stages.
    PipelineNotSupported,
    /// A given partition does not add up.
    PipelinePartitionInvalid,
    /// DCP does not divide TP, or is larger than the copies of a KV head.
    DcpNotDivisible,
    /// DCP on a model whose KV heads are not copied at this TP.
    DcpWithoutReplication,
    /// DCP with a cache kind or backend that does not support it.
    DcpNotSupported,
    /// EP on a model in which the engine finds no experts.
    ExpertParallelWithoutExperts,
    /// TP larger than the routed experts, for classes that check it; or EP that does not divide them.
    ExpertsNotDivisible,
    /// Attention DP on a dense model: independent replicas are meant.
    DenseAttentionDp,
    /// Attention DP that the engine cannot do at these sizes.
    AttentionDpNotSupported,
    /// No attention backend for this GPU, head size and cache format.
    NoAttentionBackend,
    /// The engine does not know the architecture.
    ArchitectureUnknown,
    /// The engine has dropped the architecture.
    ArchitectureRemoved,
    /// A cache format that the engine does not know, or not for this model.
    KvCacheDtypeNotSupported,
    /// A stored format that the engine starts with only under a flag.
    QuantizationNotSupported,
    /// `max_model_len` is longer than the model's positions, and nothing admits that.
    MaxModelLenExceedsModel,
    /// Cache kinds of one model that the engine cannot bring together.
    CacheLayoutNotSupported,
    /// A setting outside what the engine takes.
    SettingInvalid,
    /// One request of `max_model_len` tokens does not fit the cache.
    KvCacheTooSmall,
    /// Weights and overheads leave nothing for the cache.
    WeightsDoNotFit,
    /// One replica needs more GPUs than the pool has.
    NotEnoughGpus,
    /// Several ranks on MIG slices, which have no links to each other.
    SlicesNotLinked,
    /// No rules are known for the engine or its version.
    EngineUnknown,
}

impl RefusalCode {
    /// The stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueryHeadsNotDivisible => "query_heads_not_divisible",
            Self::KvHeadsNotDivisible => "kv_heads_not_divisible",
            Self::VocabNotDivisible => "vocab_not_divisible",
            Self::DimensionNotDivisible => "dimension_not_divisible",
            Self::QuantizationBlockNotDivisible => "quantization_block_not_divisible",
            Self::MoreStagesThanLayers => "more_stages_than_layers",
            Self::PipelineNotSupported => "pipeline_not_supported",
            Self::PipelinePartitionInvalid => "pipeline_partition_invalid",
            Self::DcpNotDivisible => "dcp_not_divisible",
            Self::DcpWithoutReplication => "dcp_without_replication",
            Self::DcpNotSupported => "dcp_not_supported",
            Self::ExpertParallelWithoutExperts => "expert_parallel_without_experts",
            Self::ExpertsNotDivisible => "experts_not_divisible",
            Self::DenseAttentionDp => "dense_attention_dp",
            Self::AttentionDpNotSupported => "attention_dp_not_supported",
            Self::NoAttentionBackend => "no_attention_backend",
            Self::ArchitectureUnknown => "architecture_unknown",
            Self::ArchitectureRemoved => "architecture_removed",
            Self::KvCacheDtypeNotSupported => "kv_cache_dtype_not_supported",
            Self::QuantizationNotSupported => "quantization_not_supported",
            Self::MaxModelLenExceedsModel => "max_model_len_exceeds_model",
            Self::CacheLayoutNotSupported => "cache_layout_not_supported",
            Self::SettingInvalid => "setting_invalid",
            Self::KvCacheTooSmall => "kv_cache_too_small",
            Self::WeightsDoNotFit => "weights_do_not_fit",
            Self::NotEnoughGpus => "not_enough_gpus",
            Self::SlicesNotLinked => "slices_not_linked",
            Self::EngineUnknown => "engine_unknown",
        }
    }
}

impl RefusalCode {
    /// True when the rule looks at TP and the model alone, so that it holds for every other size too.
    /// How experts are split depends on EP: with experts, widths do not count.
    #[must_use]
    pub const fn is_about_tp(self, has_experts: bool) -> bool {
        match self {
            Self::QueryHeadsNotDivisible
            | Self::KvHeadsNotDivisible
            | Self::VocabNotDivisible
            | Self::ArchitectureUnknown
            | Self::ArchitectureRemoved
            | Self::NoAttentionBackend
            | Self::KvCacheDtypeNotSupported
            | Self::QuantizationNotSupported
            | Self::MaxModelLenExceedsModel
            | Self::SlicesNotLinked => true,
            Self::DimensionNotDivisible | Self::QuantizationBlockNotDivisible => !has_experts,
            _ => false,
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The first rule that the engine itself would trip over.
    pub code: RefusalCode,
    /// One or more sentences, naming every rule that is broken.
    pub message: String,
    /// The closest shape that this rule and its kin allow, where there is one.
    pub nearest: Option<Shape>,
}

impl Refusal {
    /// A refusal without a near legal shape.
    #[must_use]
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), nearest: None }
    }

    /// The same with the closest legal shape.
    #[must_use]
    pub fn nearest(mut self, nearest: Option<Shape>) -> Self {
        self.nearest = nearest;
        self
    }
}
