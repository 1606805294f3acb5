//! The command line as clap reads it. Flags are named as the engine names its own settings;
//! what a value may be is decided in one place, `ingest::request`, not here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::ask::{AccuracyCommand, CalibrateArgs, RequestArgs};
use super::fit::FitArgs;
use super::health::HealthArgs;
use super::question::AskArgs;
use super::serve::{MigrateArgs, ServeArgs};
use super::size::SizeArgs;
use super::sweep::SweepArgs;

/// How to lay an LLM over GPUs: ranked TP × PP × DP layouts with KV capacity, replication and latency.
#[derive(Debug, Parser)]
#[command(name = "shardwise", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Any value switches colour off (see no-color.org).
    #[arg(long = "no-color", env = "NO_COLOR", hide = true, global = true, num_args = 0..=1, default_missing_value = "1")]
    pub no_color: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rank the layouts of a model on a cluster.
    Plan(Box<PlanArgs>),
    /// Check an engine command or a manifest before it is deployed.
    Check(super::check::CheckArgs),
    /// Compare an engine's start-up log with the prediction.
    Observe(super::observe::ObserveArgs),
    /// Prefixes over replicas, moves, hand-overs and longest sequences, as the API's own JSON.
    Kv(super::kv::KvArgs),
    /// The files that start a layout, for a platform.
    Launch(Box<super::launch::LaunchArgs>),
    /// What fits: every model of the catalogue on one cluster.
    Fit(Box<FitArgs>),
    /// Fewest GPUs for a load: sequences, users, or a request rate.
    Size(Box<SizeArgs>),
    /// Curves over TP, context, concurrency and more.
    Sweep(Box<SweepArgs>),
    /// Many plans, best rows only (POST /v1/batches).
    Batch(RequestArgs),
    /// Say how a cluster is understood.
    Topology(TopologyArgs),
    /// The GPUs that can be planned on.
    Gpus,
    /// The models of the catalogue; one model in full; a config.json read or stored.
    Models(super::models::ModelsArgs),
    /// How far predictions lie from what real machines printed.
    #[command(subcommand)]
    Accuracy(AccuracyCommand),
    /// Fit the constants of the latency model to measurements again. Minutes.
    Calibrate(CalibrateArgs),
    /// A question in plain words: what fits, how many GPUs, is it worth it.
    Ask(AskArgs),
    /// Run the service: the API, its documentation and its metrics.
    Serve(ServeArgs),
    /// Bring the database's schema to the newest migration, and end.
    Migrate(MigrateArgs),
    /// Print the OpenAPI document that the service serves.
    Openapi,
    /// Ask a running service whether it is well: exit 0 when it is, 4 when not.
    Health(HealthArgs),
}

/// `shardwise topology`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 understood, 2 not.")]
pub struct TopologyArgs {
    /// `nvidia-smi topo -m`, `--query-gpu` CSV or `-q -x`, Kubernetes nodes as JSON, Slurm, Ray, an instance list, or
    /// plain words; the format is recognised. `-` reads stdin.
    /// A text that names no file is taken as it is; `@FILE` always is a file.
    #[arg(value_name = "FILE|-|TEXT")]
    pub cluster: String,
    /// The GPU, where the file does not name it.
    #[arg(long, value_name = "KEY")]
    pub gpu: Option<String>,
    /// How many such nodes there are, where the file shows one.
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// table for people, json = the API's answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,
}

/// The form of an answer that is a table or the API's own JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TableOrJson {
    #[default]
    Table,
    Json,
}

/// `shardwise plan`.
#[derive(Debug, Args, Default)]
#[command(
    after_help = "Exit codes: 0 fits, 1 internal fault, 2 bad input, 3 does not fit or an assertion failed, \
                        4 an upstream failed."
)]
pub struct PlanArgs {
    /// A model id or alias, or the path of a config.json (or of the folder that holds one).
    #[arg(long, value_name = "ID|PATH", required_unless_present = "request")]
    pub model: Option<String>,
    /// The GPUs as text ("16 H100s", "2x8xH200"), or @FILE with that text, JSON, or `nvidia-smi topo -m`.
    #[arg(long, value_name = "TEXT|@FILE", required_unless_present = "request")]
    pub cluster: Option<String>,
    /// The API's own JSON instead of flags: one object, or JSONL (one answer or problem a line). `-` reads stdin.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["model", "cluster"])]
    pub request: Option<PathBuf>,
    /// Constants of the latency model from your own measurements, as `shardwise calibrate --output` writes them.
    #[arg(long, value_name = "FILE", env = "SHARDWISE_PLANNER_CALIBRATION")]
    pub calibration: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub what_if: WhatIfArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The engine's settings.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Engine, as the engine names its settings")]
pub struct EngineArgs {
    /// The engine: vllm, sglang, tensorrt-llm. Several (comma-separated) are compared.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub engine: Vec<String>,
    /// The release whose rules apply; the newest known by default.
    #[arg(long, value_name = "X.Y")]
    pub engine_version: Option<String>,
    /// Share of the GPU's memory that the engine may take.
    #[arg(long, value_name = "0..1")]
    pub gpu_memory_utilization: Option<String>,
    /// Format of the cache: auto, bfloat16, fp8, …
    #[arg(long, value_name = "DTYPE")]
    pub kv_cache_dtype: Option<String>,
    /// Longest sequence to admit.
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<String>,
    /// Most sequences in one batch.
    #[arg(long, value_name = "N")]
    pub max_num_seqs: Option<String>,
    /// Most tokens in one step: the size of a prefill chunk.
    #[arg(long, value_name = "TOKENS")]
    pub max_num_batched_tokens: Option<String>,
    /// Tokens in a block of the cache.
    #[arg(long, value_name = "TOKENS")]
    pub block_size: Option<String>,
    /// Cache of one GPU, given outright instead of a share of its memory.
    #[arg(long, value_name = "BYTES")]
    pub kv_cache_memory_bytes: Option<String>,
    /// Quantise the weights while loading, e.g. fp8.
    #[arg(long, value_name = "METHOD")]
    pub quantization: Option<String>,
    /// Draft tokens of speculative decoding.
    #[arg(long, value_name = "N")]
    pub num_speculative_tokens: Option<String>,
    /// What drafts: mtp, eagle, eagle3, draft_model, ngram.
    #[arg(long, value_name = "METHOD")]
    pub speculative_method: Option<String>,
    /// Chance that a draft token holds where those before it did.
    #[arg(long, value_name = "0..1")]
    pub acceptance_rate: Option<String>,
    /// Weights of a draft model.
    #[arg(long, value_name = "BYTES")]
    pub draft_weights_bytes: Option<String>,
    /// Layers of each pipeline stage, e.g. 21,20,20 (the engine's VLLM_PP_LAYER_PARTITION).
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub pp_layer_partition: Vec<String>,
    /// Overlap scheduling with the GPU's work.
    #[arg(long, overrides_with = "no_async_scheduling")]
    pub async_scheduling: bool,
    #[arg(long, hide = true)]
    pub no_async_scheduling: bool,
    /// Keep the blocks of common prefixes.
    #[arg(long, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    #[arg(long, hide = true)]
    pub no_enable_prefix_caching: bool,
    /// Give every layer full-length blocks, also those with a window.
    #[arg(long)]
    pub disable_hybrid_kv_cache_manager: bool,
    /// Leave out vision and audio towers.
    #[arg(long)]
    pub language_model_only: bool,
    /// Run without CUDA graphs.
    #[arg(long)]
    pub enforce_eager: bool,
    /// Admit a length beyond the model's own, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 does.
    #[arg(long)]
    pub allow_long_max_model_len: bool,
    /// vLLM: start with a checkpoint whose format it is about to drop.
    #[arg(long)]
    pub allow_deprecated_quantization: bool,
}

/// The load.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Load and limits")]
pub struct WorkloadArgs {
    /// Prompt length of a request.
    #[arg(long, value_name = "TOKENS")]
    pub input_tokens: Option<String>,
    /// Generated length of a request.
    #[arg(long, value_name = "TOKENS")]
    pub output_tokens: Option<String>,
    /// Length at which sequences are counted, --max-model-len by default; where it is given, timings read it too.
    #[arg(long, alias = "context", value_name = "TOKENS")]
    pub context_tokens: Option<String>,
    /// Tokens that a sequence holds while it decodes; the given context, or the prompt and half of the answer, by default.
    #[arg(long, value_name = "TOKENS")]
    pub decode_context_tokens: Option<String>,
    /// Requests in flight over the whole deployment.
    #[arg(long, value_name = "N")]
    pub concurrency: Option<String>,
    /// Share of the prompt tokens that are in the cache already.
    #[arg(long, value_name = "0..1")]
    pub prefix_cache_hit_rate: Option<String>,
    /// Longest acceptable time to the first token.
    #[arg(long, value_name = "MS")]
    pub ttft_ms: Option<String>,
    /// Longest acceptable time for each further token.
    #[arg(long, value_name = "MS")]
    pub tpot_ms: Option<String>,
}

/// Which layouts to look at, and in what order.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Search (every value by default)")]
pub struct SearchArgs {
    /// What "best" means: balanced, throughput, latency, capacity, cost.
    #[arg(long, value_name = "WHAT")]
    pub objective: Option<String>,
    /// How far advice looks: brief, or detailed (published checkpoints in fewer bits, GPU products that the cluster lacks).
    #[arg(long, value_name = "HOW")]
    pub advice: Option<String>,
    /// Tensor parallel sizes to try, e.g. 8,16.
    #[arg(long, alias = "tensor-parallel-size", value_name = "N,…", value_delimiter = ',')]
    pub tp: Vec<String>,
    /// Pipeline stages to try.
    #[arg(long, alias = "pipeline-parallel-size", value_name = "N,…", value_delimiter = ',')]
    pub pp: Vec<String>,
    /// Independent replicas to try.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub dp: Vec<String>,
    /// Expert parallel sizes to try.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub ep: Vec<String>,
    /// Data-parallel attention groups to try.
    #[arg(long, alias = "data-parallel-size", value_name = "N,…", value_delimiter = ',')]
    pub attention_dp: Vec<String>,
    /// Decode context parallel sizes to try.
    #[arg(long, alias = "decode-context-parallel-size", value_name = "N,…", value_delimiter = ',')]
    pub dcp: Vec<String>,
    /// Only layouts that use every GPU.
    #[arg(long)]
    pub no_idle_gpus: bool,
    /// Layouts in the answer.
    #[arg(long, value_name = "N")]
    pub limit: Option<String>,
}

impl SearchArgs {
    /// The sizes of each kind that were listed, under the API's names.
    pub(super) const fn sizes(&self) -> [(&'static str, &Vec<String>); 6] {
        [
            ("tp", &self.tp),
            ("pp", &self.pp),
            ("dp", &self.dp),
            ("ep", &self.ep),
            ("attention_dp", &self.attention_dp),
            ("dcp", &self.dcp),
        ]
    }
}

/// Constants and parts of the model to change.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "What-ifs")]
pub struct WhatIfArgs {
    /// As if the checkpoint were quantised so: fp8, int4, nvfp4, …
    #[arg(long, value_name = "FORMAT")]
    pub weights: Option<String>,
    /// A key of config.json to replace, e.g. num_key_value_heads=1. Repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// A constant to replace, e.g. reserve_bytes=3e9 or link_bytes_per_s.nvlink4=9e11. Repeatable.
    #[arg(long = "assume", value_name = "NAME=VALUE")]
    pub assumptions: Vec<String>,
    /// calibrated, or roofline (plain enough to check by hand).
    #[arg(long, value_name = "MODEL")]
    pub latency_model: Option<String>,
    /// The GPU of a topology matrix given by --cluster @FILE.
    #[arg(long, value_name = "KEY")]
    pub gpu: Option<String>,
}

/// What to print, and where.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// table for people, json = the API's answer, markdown for a comment, csv = a row for each layout, junit and github for a pipeline.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write there instead of to stdout.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Fail (exit 3) unless this holds for the best layout, e.g. 'kv_tokens>=200000' or 'ttft_ms<=800'. Repeatable.
    #[arg(long = "assert", value_name = "CONDITION")]
    pub assertions: Vec<String>,
    /// Show every assumption, and one GPU's memory stage by stage.
    #[arg(long)]
    pub explain: bool,
}

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Markdown,
    Csv,
    Junit,
    Github,
}
