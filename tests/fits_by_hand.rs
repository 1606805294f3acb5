//! Rows of "what fits on 16 H100s", derived again by hand: weights on a GPU from the shapes of the matrices, cache from heads and
//! blocks. What the engine takes beside them (activations, graphs, runtime) is an estimate and is read off the plan.
//!
//! An H100 has 85,017,493,504 B as the driver counts them, of which vLLM takes 92 %: 78,216,094,024 B.

use std::sync::LazyLock;

use serde_json::{Value, json};
use shardwise::ingest::config_json;
use shardwise::ingest::fits::FitsRequest;
use shardwise::ingest::request::PlanRequest;
use shardwise::planner::fit::BestFit;
use shardwise::planner::layout::Shape;
use shardwise::service::fits::{FitRow, Fits, fits};
use shardwise::service::{listed_model, plan_offline};

const BUDGET: u64 = 78_216_094_024;

static ROWS: LazyLock<Fits> = LazyLock::new(|| {
    fits(&FitsRequest::read(&json!({"cluster": "16 H100s"})).expect("a valid request"))
        .expect("a valid cluster")
});

fn row(model: &str) -> &'static FitRow {
    ROWS.items.iter().find(|row| row.model == model).unwrap_or_else(|| panic!("{model} is listed"))
}

fn best(model: &str) -> &'static BestFit {
    row(model).fit.best.as_ref().unwrap_or_else(|| panic!("{model} has a layout"))
}

/// A layout of a plan: weights of a GPU and bytes left for the cache on the binding stage, KV tokens of a replica.
struct Planned {
    weights: u64,
    left: u64,
    tokens: u64,
}

/// The plan with these sizes. Which sizes are the best of a row hangs on estimates; the bytes of given sizes do not.
fn planned(model: &str, search: &Value) -> Planned {
    let request = json!({"model": model, "cluster": "16 H100s", "search": search});
    let plan = plan_offline(&PlanRequest::read(&request).expect("a valid request")).expect("an answer");
    let plan = serde_json::to_value(plan).expect("answers are JSON");
    let layout = &plan["layouts"][0];
    assert_eq!(layout["memory"]["budget_bytes"], BUDGET);
    let binding = layout["memory"]["binding_stage"].as_u64().expect("a stage");
    let stages = layout["memory"]["stages"].as_array().expect("stages");
    let stage = stages.iter().find(|s| s["stage"] == binding).expect("the binding stage");
    let bytes = |name: &str| stage[name].as_u64().unwrap_or_else(|| panic!("{name} is a number"));
    let others = bytes("activation_bytes") + bytes("runtime_bytes") + bytes("cuda_graph_bytes");
    assert_eq!(bytes("kv_bytes"), BUDGET - bytes("weights_bytes") - others, "the items sum to the budget");
    Planned {
        weights: bytes("weights_bytes"),
        left: bytes("kv_bytes"),
        tokens: layout["capacity"]["kv_tokens_per_replica"].as_u64().expect("tokens"),
    }
}

#[test]
fn a_row_shows_what_the_plan_of_its_layout_holds() {
    for model in [
        "meta-llama/Llama-3.1-70B-Instruct",
        "Qwen/Qwen3-32B-FP8",
        "deepseek-ai/DeepSeek-V2-Lite",
        "Qwen/Qwen3-0.6B",
    ] {
        let best = best(model);
        let l = &best.layout;
        let sizes = json!({"tp": [l.tp], "pp": [l.pp], "dp": [l.dp], "ep": [l.ep], "attention_dp": [l.attention_dp], "dcp": [l.dcp]});
        let plan = planned(model, &sizes);
        assert_eq!(best.kv_tokens_per_replica, plan.tokens, "{model}");
        assert!(
            best.weights_bytes_per_gpu >= plan.weights,
            "{model}: the fullest GPU has at least the binding one's"
        );
    }
}

#[test]
fn dense_gqa() {
    // Llama-3.1-70B: hidden 8192, 80 layers, 64 query heads and 8 KV heads of 128, width 28672, vocabulary 128256, bf16
    let plan = planned("meta-llama/Llama-3.1-70B-Instruct", &json!({"tp": [8], "pp": [2]}));
    let qkv = (64 / 8 + 2) * 128 * 8192;
    let layer = qkv + 8192 * 8192 / 8 + 3 * 28_672 / 8 * 8192 + 2 * 8192;
    let last_stage = 40 * layer + 128_256 / 8 * 8192 + 8192;
    assert_eq!(plan.weights, 2 * last_stage);
    // 2 × 40 layers × 1 head × 128 × 2 B on a GPU, in blocks of 16 tokens
    let block = 16 * 2 * 40 * 128 * 2;
    assert_eq!(plan.tokens, plan.left / block * 16);
}

#[test]
fn mixture_of_experts() {
    // Mixtral-8x7B: hidden 4096, 32 layers, 32 query and 8 KV heads of 128, 8 experts of 14336, vocabulary 32000
    let plan = planned(
        "mistralai/Mixtral-8x7B-v0.1",
        &json!({"tp": [1], "pp": [1], "ep": [8], "attention_dp": [8]}),
    );
    // attention data parallel: everything but the experts is whole on each GPU, and one expert of eight
    let attention = (32 + 2 * 8) * 128 * 4096 + 4096 * 4096;
    let layer = attention + 8 * 4096 + 3 * 14_336 * 4096 + 2 * 4096;
    assert_eq!(plan.weights, 2 * (32 * layer + 2 * 32_000 * 4096 + 4096));
    assert_eq!(
        listed_model("mistralai/Mixtral-8x7B-v0.1").expect("listed").sizes.kv_bytes_per_token,
        2 * 32 * 8 * 128 * 2
    );
}

#[test]
fn latent_attention() {
    // DeepSeek-V2-Lite: hidden 2048, 27 layers (the first dense, width 10944), 16 heads, latent 512 + 64, 64 experts of 1408
    // and 2 shared, vocabulary 102400
    let plan = planned("deepseek-ai/DeepSeek-V2-Lite", &json!({"tp": [8], "pp": [1], "ep": [8], "dcp": [8]}));
    let queries = 16 * (128 + 64) * 2048 / 8;
    let latent = (512 + 64) * 2048 + 512; // whole on every rank
    let from_latent = 16 * (128 + 128) * 512 / 8;
    let attention = queries + latent + from_latent + 16 * 128 * 2048 / 8 + 2 * 2048;
    let experts = 64 * 2048 + 64 / 8 * 3 * 1408 * 2048 + 3 * (2 * 1408) * 2048 / 8;
    let dense = 3 * 10_944 * 2048 / 8;
    let all = 27 * attention + 26 * experts + dense + 2 * 102_400 * 2048 / 8 + 2048;
    assert_eq!(plan.weights, 2 * all);
    // the latent is not divided by TP; DCP deals its positions over the eight ranks
    let block = 16 * 27 * (512 + 64) * 2;
    assert_eq!(plan.tokens, plan.left / block * 16 * 8);
}

#[test]
fn sliding_window_hybrid() {
    // Gemma-3-1B: hidden 1152, 26 layers (4 full, 22 with a window of 512), 4 query heads and 1 KV head of 256, width 6912,
    // vocabulary 262144, tied
    let plan = planned("google/gemma-3-1b-it", &json!({"tp": [1], "pp": [1]}));
    let layer = (4 + 2) * 256 * 1152 + 4 * 256 * 1152 + 3 * 6912 * 1152 + 4 * 1152 + 2 * 256;
    assert_eq!(plan.weights, 2 * (26 * layer + 262_144 * 1152 + 1152));
    // pools of 4 layers: one full, six with windows (22 layers, the last pool padded); a block is 16 tokens of 4 layers
    let block = 16 * 4 * 2 * 256 * 2;
    let blocks = plan.left / block;
    // a request of 32768 tokens needs 2048 blocks of the full pool; of a window pool what 511 + 16384 tokens of a step touch
    let in_window = (512_u64 - 1 + 16_384).div_ceil(16) + 1;
    let request = 32_768 / 16 + 6 * in_window;
    assert_eq!(plan.tokens, blocks * 32_768 / request);
}

#[test]
fn state_space_hybrid() {
    // Nemotron-H-56B: hidden 8192; 54 Mamba-2 layers of 256 heads of 64, 8 groups, state 256; 10 attention layers of 64 query
    // and 8 KV heads of 128; 54 feed-forward layers of width 32768 without gate; vocabulary 131072
    let plan = planned("nvidia/Nemotron-H-56B-Base-8K", &json!({"tp": [8], "pp": [1], "dcp": [1]}));
    let (inner, grouped) = (256 * 64, 8 * 256);
    let into = (2 * inner + 2 * grouped + 256) * 8192 / 8;
    let convolution = (inner + 2 * grouped) * (4 + 1) / 8; // four taps and a bias
    let mamba = into + convolution + inner / 8 + inner * 8192 / 8;
    let attention = (64 + 2 * 8) * 128 * 8192 / 8 + 64 * 128 * 8192 / 8;
    let forward = 2 * 32_768 * 8192 / 8;
    let matrices = 54 * mamba + 10 * attention + 54 * forward + 118 * 8192 + 8192 + 2 * 131_072 * 8192 / 8;
    // A in fp32, D and the step's bias in bf16: one number a head
    let per_head = 54 * (256 / 8) * (4 + 2 + 2);
    assert_eq!(plan.weights, 2 * matrices + per_head);
    assert_eq!(
        listed_model("nvidia/Nemotron-H-56B-Base-8K").expect("listed").sizes.kv_bytes_per_token,
        2 * 10 * 8 * 128 * 2
    );
}

#[test]
fn fp8_in_blocks() {
    // Qwen3-32B-FP8: hidden 5120, 64 layers, 64 query and 8 KV heads of 128, width 25600, vocabulary 151936; a byte an element
    // and an fp32 scale for each 128 × 128
    let plan = planned("Qwen/Qwen3-32B-FP8", &json!({"tp": [4], "pp": [1]}));
    let fp8 = |rows: u64, cols: u64| rows * cols + rows.div_ceil(128) * cols.div_ceil(128) * 4;
    let layer = fp8((64 + 16) * 128 / 4, 5120)
        + fp8(5120, 64 * 128 / 4)
        + fp8(2 * 25_600 / 4, 5120)
        + fp8(5120, 25_600 / 4)
        + 2 * (2 * 5120 + 2 * 128) // norms in bf16
        + 2 * 4; // scales of the cache
    assert_eq!(plan.weights, 64 * layer + 2 * (2 * 151_936 / 4 * 5120 + 5120));
    let block = 16 * 2 * 64 * (8 / 4) * 128 * 2;
    assert_eq!(plan.tokens, plan.left / block * 16);
}

#[test]
fn awq() {
    // the same Llama, its matrices in 4 bits with an fp16 scale and a 4-bit zero point for each 128 inputs
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "hidden_size": 8192,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 28_672, "vocab_size": 128_256, "max_position_embeddings": 131_072,
        "tie_word_embeddings": false,
    });
    config["quantization_config"] =
        json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm"});
    let spec = config_json::read("llama-awq", &config, None).expect("readable").spec;
    let elements = (64 / 8 + 2) * 128 * 8192 + 8192 * 8192 / 8 + 3 * 28_672 / 8 * 8192;
    let layer = elements / 2 + elements / 128 * 2 + elements / 128 / 2 + 2 * 2 * 8192;
    let all = 80 * layer + 2 * (2 * 128_256 / 8 * 8192 + 8192);
    let rank = spec.sharded(&Shape::new(8, 1)).stage(0, 80, true, true);
    assert_eq!(rank.bytes.get(), all);
    // 5 GB of weights on a GPU of 80: two replicas of TP=8 fit 16 GPUs
    let request = json!({"model": {"config": config, "name": "llama-awq"}, "cluster": "16 H100s", "search": {"tp": [8], "pp": [1]}});
    let plan = plan_offline(&PlanRequest::read(&request).expect("valid")).expect("an answer");
    let plan = serde_json::to_value(plan).expect("JSON");
    assert_eq!(plan["layouts"][0]["layout"]["dp"], 2);
    assert_eq!(plan["layouts"][0]["memory"]["stages"][0]["weights_bytes"], all);
}

#[test]
fn tiny_and_tied() {
    // Qwen3-0.6B: hidden 1024, 28 layers, 16 query and 8 KV heads of 128, width 3072, vocabulary 151936, tied
    let plan = planned("Qwen/Qwen3-0.6B", &json!({"tp": [1], "pp": [1]}));
    let layer = (16 + 2 * 8) * 128 * 1024 + 16 * 128 * 1024 + 3 * 3072 * 1024 + 2 * 1024 + 2 * 128;
    assert_eq!(plan.weights, 2 * (28 * layer + 151_936 * 1024 + 1024));
    let block = 16 * 2 * 28 * 8 * 128 * 2;
    assert_eq!(plan.tokens, plan.left / block * 16);
}

#[test]
fn only_in_lower_precision() {
    // GLM-5: 743.9 billion parameters in bf16 are 93 GB for each of 16 GPUs, in fp8 half of that
    let row = row("zai-org/GLM-5");
    let each = row.parameters * 2 / 16;
    assert!(each > BUDGET && row.parameters / 16 < BUDGET);
    assert!(!row.fit.fits);
    let lower = row.fits_only_as.as_ref().expect("it fits in lower precision");
    assert_eq!(lower.weights, "fp8");
    let short = row.fit.why_not.as_ref().and_then(|why| why.short_by_bytes).expect("bytes are short");
    assert!(short >= each - BUDGET, "no split leaves every GPU with less than its share: {short}");
}

#[test]
fn not_at_all() {
    // Kimi-K3: 2.78 trillion parameters, its experts in MXFP4 (4 bits and a byte of scale for each 32)
    let row = row("moonshotai/Kimi-K3");
    let weights = listed_model("moonshotai/Kimi-K3").expect("listed").facts.weights_bytes;
    assert!(weights > row.parameters * 17 / 32 && weights / 16 > BUDGET);
    assert!(!row.fit.fits && row.fits_only_as.is_none());
    let short = row.fit.why_not.as_ref().and_then(|why| why.short_by_bytes).expect("bytes are short");
    assert!(short >= weights / 16 - BUDGET, "no split leaves every GPU with less than its share: {short}");
    assert!(row.fit.smallest_gpus.is_some_and(|n| n > 16));
}
