//! The flags that a plan depends on, by engine, under all their names.
//!
//! Sources: vLLM 0.33 engine arguments, SGLang 0.5.23 server arguments, `trtllm-serve` of TensorRT-LLM 1.2, and the
//! map of settings between engines that NVIDIA's aiconfigurator keeps. Flags that are not listed are passed over with a
//! note, unless they are nearly one of these.

/// What a flag sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meaning {
    Model,
    Revision,
    Tp,
    Pp,
    DataParallel,
    AttentionDp,
    /// SGLang: the plain data-parallel size counts attention groups.
    DpIsAttention,
    /// Every TP rank is an attention group (TensorRT-LLM).
    AllAttentionDp,
    ExpertParallel,
    ExpertParallelSize,
    Dcp,
    Nodes,
    Utilization,
    MaxModelLen,
    MaxNumSeqs,
    StepTokens,
    BlockSize,
    KvDtype,
    KvBytes,
    KvBlocks,
    Quantization,
    Speculative,
    DraftTokens,
    Eager,
    DeprecatedQuantization,
    PrefixCaching,
    NoPrefixCaching,
    AsyncScheduling,
    NoAsyncScheduling,
    HybridManagerOff,
    LanguageModelOnly,
    /// Tokens of the cache, at most (SGLang, TensorRT-LLM).
    TokenCap,
    WindowRatio,
    StateRatio,
    LayerPartition,
    NodeRank,
    Role,
    /// vLLM's settings of a connector, which name the part of the engine.
    KvTransfer,
    /// What carries the cache between halves.
    Connector,
    /// Dynamo's older switch of vLLM's prefill workers.
    PrefillWorker,
    Headless,
    /// A file of further settings, which is not read here.
    SettingsFile,
    /// Understood and of no weight for a plan.
    Plain,
}

/// Whether a word follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Value,
    Switch,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// All names, without the leading dashes, with dashes between words.
    pub names: &'static [&'static str],
    pub meaning: Meaning,
    pub kind: Kind,
}

const fn value(names: &'static [&'static str], meaning: Meaning) -> Flag {
    Flag { names, meaning, kind: Kind::Value }
}

const fn switch(names: &'static [&'static str], meaning: Meaning) -> Flag {
    Flag { names, meaning, kind: Kind::Switch }
}

const VLLM: &[Flag] = &[
    value(&["model"], Meaning::Model),
    value(&["revision"], Meaning::Revision),
    value(&["tensor-parallel-size", "tp"], Meaning::Tp),
    value(&["pipeline-parallel-size", "pp"], Meaning::Pp),
    value(&["data-parallel-size", "dp"], Meaning::DataParallel),
    value(&["decode-context-parallel-size", "dcp"], Meaning::Dcp),
    switch(&["enable-expert-parallel", "ep"], Meaning::ExpertParallel),
    value(&["nnodes", "n"], Meaning::Nodes),
    value(&["gpu-memory-utilization"], Meaning::Utilization),
    value(&["max-model-len"], Meaning::MaxModelLen),
    value(&["max-num-seqs"], Meaning::MaxNumSeqs),
    value(&["max-num-batched-tokens"], Meaning::StepTokens),
    value(&["block-size"], Meaning::BlockSize),
    value(&["kv-cache-dtype"], Meaning::KvDtype),
    value(&["kv-cache-memory-bytes", "kv-cache-memory"], Meaning::KvBytes),
    value(&["num-gpu-blocks-override"], Meaning::KvBlocks),
    value(&["quantization", "q"], Meaning::Quantization),
    value(&["speculative-config"], Meaning::Speculative),
    switch(&["enforce-eager"], Meaning::Eager),
    switch(&["allow-deprecated-quantization"], Meaning::DeprecatedQuantization),
    switch(&["enable-prefix-caching"], Meaning::PrefixCaching),
    switch(&["no-enable-prefix-caching"], Meaning::NoPrefixCaching),
    switch(&["async-scheduling"], Meaning::AsyncScheduling),
    switch(&["no-async-scheduling"], Meaning::NoAsyncScheduling),
    switch(&["disable-hybrid-kv-cache-manager"], Meaning::HybridManagerOff),
    switch(&["language-model-only"], Meaning::LanguageModelOnly),
    switch(&["headless"], Meaning::Headless),
    value(&["config"], Meaning::SettingsFile),
    switch(
        &["trust-remote-code", "enable-auto-tool-choice", "enable-chunked-prefill", "disable-log-requests"],
        Meaning::Plain,
    ),
    switch(
        &["no-enable-chunked-prefill", "data-parallel-hybrid-lb", "data-parallel-external-lb"],
        Meaning::Plain,
    ),
    value(
        &["host", "port", "api-key", "served-model-name", "dtype", "tokenizer", "seed", "download-dir"],
        Meaning::Plain,
    ),
    value(&["node-rank", "r"], Meaning::NodeRank),
    value(&["master-addr", "master-port", "distributed-executor-backend"], Meaning::Plain),
    value(&["data-parallel-size-local", "data-parallel-address", "data-parallel-rpc-port"], Meaning::Plain),
    value(&["data-parallel-start-rank", "data-parallel-rank", "data-parallel-backend"], Meaning::Plain),
    value(&["compilation-config", "tool-call-parser", "reasoning-parser"], Meaning::Plain),
    value(&["kv-transfer-config"], Meaning::KvTransfer),
    // Dynamo's own, in front of the engine's
    value(&["disaggregation-mode"], Meaning::Role),
    switch(&["is-prefill-worker"], Meaning::PrefillWorker),
    value(&["all2all-backend", "attention-backend", "load-format", "uvicorn-log-level"], Meaning::Plain),
];

const SGLANG: &[Flag] = &[
    value(&["model-path", "model"], Meaning::Model),
    value(&["revision"], Meaning::Revision),
    value(&["tensor-parallel-size", "tp-size", "tp"], Meaning::Tp),
    value(&["pipeline-parallel-size", "pp-size", "pp"], Meaning::Pp),
    value(&["data-parallel-size", "dp-size", "dp"], Meaning::DataParallel),
    value(&["attn-dp-size"], Meaning::AttentionDp),
    switch(&["enable-dp-attention"], Meaning::DpIsAttention),
    value(&["expert-parallel-size", "ep-size", "ep"], Meaning::ExpertParallelSize),
    value(&["dcp-size"], Meaning::Dcp),
    value(&["nnodes"], Meaning::Nodes),
    value(&["mem-fraction-static"], Meaning::Utilization),
    value(&["context-length"], Meaning::MaxModelLen),
    value(&["max-running-requests"], Meaning::MaxNumSeqs),
    value(&["chunked-prefill-size"], Meaning::StepTokens),
    value(&["page-size"], Meaning::BlockSize),
    value(&["kv-cache-dtype"], Meaning::KvDtype),
    value(&["quantization"], Meaning::Quantization),
    value(&["speculative-num-draft-tokens"], Meaning::DraftTokens),
    switch(&["disable-cuda-graph"], Meaning::Eager),
    switch(&["disable-radix-cache"], Meaning::NoPrefixCaching),
    switch(&["disable-overlap-schedule"], Meaning::NoAsyncScheduling),
    value(&["disaggregation-mode"], Meaning::Role),
    value(&["config"], Meaning::SettingsFile),
    switch(
        &["trust-remote-code", "enable-metrics", "enable-hierarchical-cache", "enable-mixed-chunk"],
        Meaning::Plain,
    ),
    switch(&["enable-torch-compile", "disable-custom-all-reduce", "skip-tokenizer-init"], Meaning::Plain),
    value(&["host", "port", "api-key", "served-model-name", "dtype", "dist-init-addr"], Meaning::Plain),
    value(&["node-rank"], Meaning::NodeRank),
    value(&["max-total-tokens"], Meaning::TokenCap),
    value(&["swa-full-tokens-ratio"], Meaning::WindowRatio),
    value(&["mamba-full-memory-ratio"], Meaning::StateRatio),
    value(&["max-prefill-tokens", "cuda-graph-max-bs", "cuda-graph-bs"], Meaning::Plain),
    value(
        &["moe-dense-tp-size", "load-balance-method", "schedule-conservativeness", "tokenizer-path"],
        Meaning::Plain,
    ),
    value(&["decode-log-interval", "watchdog-timeout", "log-requests-level", "random-seed"], Meaning::Plain),
    value(
        &["attention-backend", "moe-a2a-backend", "schedule-policy", "log-level", "hicache-ratio"],
        Meaning::Plain,
    ),
    value(&["disaggregation-transfer-backend"], Meaning::Connector),
    value(&["disaggregation-bootstrap-port", "hicache-size"], Meaning::Plain),
    value(&["speculative-algorithm", "speculative-num-steps", "speculative-eagle-topk"], Meaning::Plain),
    value(&["tool-call-parser", "reasoning-parser", "chat-template", "mem-fraction"], Meaning::Plain),
];

const TENSORRT: &[Flag] = &[
    value(&["model", "model-path"], Meaning::Model),
    value(&["revision"], Meaning::Revision),
    value(&["tp-size", "tensor-parallel-size"], Meaning::Tp),
    value(&["pp-size", "pipeline-parallel-size"], Meaning::Pp),
    value(&["ep-size", "moe-expert-parallel-size"], Meaning::ExpertParallelSize),
    switch(&["enable-attention-dp"], Meaning::AllAttentionDp),
    value(&["cp-size", "context-parallel-size"], Meaning::Dcp),
    value(&["kv-cache-free-gpu-memory-fraction", "free-gpu-memory-fraction"], Meaning::Utilization),
    value(&["max-seq-len"], Meaning::MaxModelLen),
    value(&["max-batch-size"], Meaning::MaxNumSeqs),
    value(&["max-num-tokens"], Meaning::StepTokens),
    value(&["tokens-per-block"], Meaning::BlockSize),
    value(&["kv-cache-dtype"], Meaning::KvDtype),
    value(&["max-gpu-total-bytes"], Meaning::KvBytes),
    value(&["max-tokens"], Meaning::TokenCap),
    value(&["pp-partition"], Meaning::LayerPartition),
    switch(&["enable-block-reuse"], Meaning::PrefixCaching),
    switch(&["disable-overlap-scheduler"], Meaning::NoAsyncScheduling),
    switch(&["disable-cuda-graphs"], Meaning::Eager),
    value(&["extra-llm-api-options", "config", "extra-config", "extra-engine-args"], Meaning::SettingsFile),
    value(&["disaggregation-mode"], Meaning::Role),
    value(&["cache-transceiver-config"], Meaning::Plain),
    switch(&["trust-remote-code", "reasoning"], Meaning::Plain),
    value(
        &["host", "port", "backend", "tokenizer", "gpus-per-node", "log-level", "max-beam-width"],
        Meaning::Plain,
    ),
    value(&["cluster-size", "num-postprocess-workers", "reasoning-parser", "server-role"], Meaning::Plain),
    value(&["served-model-name", "tool-parser", "metadata-server-config-file"], Meaning::Plain),
];

/// The flags of an engine.
#[must_use]
pub fn table(engine: &str) -> &'static [Flag] {
    match engine {
        "vllm" => VLLM,
        "sglang" => SGLANG,
        _ => TENSORRT,
    }
}

/// The name of an engine whose flags are known.
#[must_use]
pub fn known_engine(name: &str) -> Option<&'static str> {
    ["vllm", "sglang", "tensorrt-llm"].into_iter().find(|known| *known == name)
}
