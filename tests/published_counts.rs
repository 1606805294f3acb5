//! Models whose file is in no catalogue here, against the parameters that their hub pages publish.
//!
//! Totals: safetensors metadata of the hub as collected in the crate llmfit-core 1.1.18 (`data/hf_models.json`). A published total counts
//! the layers for predicting further tokens, which the engine's class does not load: they are counted here from the same sizes.

use serde_json::{Value, json};
use shardwise::ingest::config_json;
use shardwise::planner::model::ModelSpec;

fn read(config: &Value) -> ModelSpec {
    config_json::read("test", config, None).expect("a config this reader knows").spec
}

fn dots() -> Value {
    json!({
        "architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "torch_dtype": "bfloat16",
        "hidden_size": 4096, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "vocab_size": 152_064,
        "max_position_embeddings": 32_768, "attention_bias": false, "tie_word_embeddings": false,
    })
}

#[test]
fn dots_llm1() {
    let spec = read(&dots());
    assert_eq!(spec.parameters(), 142_774_381_696);
}

#[test]
fn step_3_5_flash() {
    let kinds: Vec<&str> =
        (0..45).map(|i| if i % 4 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let bases: Vec<f64> = (0..45).map(|i| if i % 4 == 0 { 5e6 } else { 1e4 }).collect();
    let parts: Vec<f64> = (0..45).map(|i| if i % 4 == 0 { 0.5 } else { 1.0 }).collect();
    let sparse = (3..45).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let spec = read(&json!({
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "torch_dtype": "bfloat16",
        "hidden_size": 4096, "intermediate_size": 11_264, "num_hidden_layers": 45, "vocab_size": 128_896,
        "max_position_embeddings": 262_144, "num_attention_heads": 64, "num_attention_groups": 8,
        "head_dim": 128, "att_impl_type": "GQA", "use_head_wise_attn_gate": true, "sliding_window": 512,
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
            "head_dim": 128,
        },
        "layer_types": kinds, "rope_theta": bases, "partial_rotary_factors": parts,
        "moe_layers_enum": sparse, "moe_num_experts": 288, "moe_top_k": 8,
        "moe_intermediate_size": 1280, "share_expert_dim": 1280, "use_moe_router_bias": true,
        "num_nextn_predict_layers": 3, "tie_word_embeddings": false,
    }));
    // attention of a window layer with its norms and gates, the dense block, the joining layer, its norms, a head
    let attention = 4096 * 128 * (96 + 16) + 96 * 128 * 4096 + 2 * 128 + 96 * 4096;
    let predicting = attention + 3 * 4096 * 11_264 + 2 * 4096 + 2 * 4096 * 4096 + 3 * 4096 + 128_896 * 4096;
    assert_eq!(spec.parameters() + 3 * predicting, 199_384_301_376);
    assert_eq!((spec.query_heads, spec.kv_heads, spec.head_size), (64, 8, 128));
    assert_eq!(spec.layers.len(), 45);
}

fn longcat() -> Value {
    json!({
        "architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash", "torch_dtype": "bfloat16",
        "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "ffn_hidden_size": 12_288,
        "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
        "zero_expert_type": "identity", "moe_topk": 12, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131_072,
        "max_position_embeddings": 131_072, "router_bias": false, "rope_theta": 1e7,
    })
}

#[test]
fn longcat_flash() {
    let spec = read(&longcat());
    let attention = 6144 * (1536 + 576) + 1536 + 1536 * 64 * 192 + 512 + 512 * 64 * 256 + 64 * 128 * 6144;
    // one attention, one dense block, the joining layer, five norms, its own token table
    let predicting = attention + 3 * 6144 * 12_288 + 2 * 6144 * 6144 + 5 * 6144 + 131_072 * 6144;
    assert_eq!(spec.parameters() + predicting, 561_862_880_256);
    assert!(spec.mla);
    // two latents of 576 numbers for each of 28 layers
    assert_eq!(spec.kinds.iter().map(|kind| kind.caches.len()).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_quantised_longcat_is_refused_by_name() {
    let mut config = longcat();
    config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let error = config_json::read("test", &config, None).expect_err("its modules are not known");
    assert!(error.to_string().contains("quantised"), "{error}");
}

#[test]
fn minicpm3_caches_every_head() {
    let spec = read(&json!({
        "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "torch_dtype": "bfloat16",
        "hidden_size": 2560, "num_hidden_layers": 62, "num_attention_heads": 40, "num_key_value_heads": 40,
        "intermediate_size": 6400, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32, "v_head_dim": 64, "vocab_size": 73_448, "max_position_embeddings": 32_768,
    }));
    // published as 4.07 billion, the token table being the head too
    assert_eq!(spec.parameters() / 10_000_000, 407);
    assert!(!spec.mla);
    assert_eq!((spec.kv_heads, spec.head_size), (40, 96));
}

#[test]
fn glm_4_9b_chat_in_its_own_form() {
    let spec = read(&json!({
        "architectures": ["ChatGLMModel"], "model_type": "chatglm", "torch_dtype": "bfloat16",
        "hidden_size": 4096, "ffn_hidden_size": 13_696, "num_layers": 40, "num_attention_heads": 32,
        "multi_query_attention": true, "multi_query_group_num": 2, "kv_channels": 128,
        "add_bias_linear": false, "add_qkv_bias": true, "padded_vocab_size": 151_552, "seq_length": 131_072,
        "rmsnorm": true, "post_layer_norm": true, "tie_word_embeddings": false, "rope_ratio": 500,
    }));
    assert_eq!(spec.parameters(), 9_399_951_360);
    assert_eq!((spec.kv_heads, spec.context_length), (2, 131_072));
}

/// Counted from the shapes; no published total is at hand.
#[test]
fn baichuan_2_7b_turns_positions_and_13b_does_not() {
    let config = |hidden: u64, layers: u64, width: u64, heads: u64| {
        json!({
            "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "torch_dtype": "bfloat16",
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": width, "vocab_size": 125_696, "max_position_embeddings": 4096,
            "tie_word_embeddings": false,
        })
    };
    let seven = read(&config(4096, 32, 11_008, 32));
    assert_eq!(seven.parameters(), 7_505_973_248);
    let thirteen = read(&config(5120, 40, 13_696, 40));
    let tables = |spec: &ModelSpec| {
        spec.kinds
            .iter()
            .flat_map(|kind| &kind.buffers)
            .filter(|buffer| buffer.name.starts_with("rope"))
            .count()
    };
    assert_eq!((tables(&seven), tables(&thirteen)), (1, 0));
}

/// https://huggingface.co/deepseek-ai/deepseek-moe-16b-base: 16,375,728,128 parameters by its safetensors metadata.
#[test]
fn deepseek_moe_16b() {
    let spec = read(&json!({
        "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "torch_dtype": "bfloat16",
        "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 10_944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "vocab_size": 102_400, "max_position_embeddings": 4096, "tie_word_embeddings": false,
    }));
    assert_eq!(spec.parameters(), 16_375_728_128);
    assert_eq!(spec.experts.map(|e| (e.routed, e.per_token, e.shared)), Some((64, 6, 2)));
}

/// https://huggingface.co/Qwen/Qwen-7B: 7,721,324,544 parameters by its safetensors metadata. Its file gives the width of
/// gate and up together.
#[test]
fn qwen_1_7b() {
    let spec = read(&json!({
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "bf16": true, "torch_dtype": "bfloat16",
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 22_016,
        "kv_channels": 128, "no_bias": true, "vocab_size": 151_936, "seq_length": 8192,
        "max_position_embeddings": 8192, "tie_word_embeddings": false,
    }));
    assert_eq!(spec.parameters(), 7_721_324_544);
}

/// The paper (arXiv:2507.19427) gives 316 billion parameters of the language model and 38 billion active.
#[test]
fn step_3() {
    let spec = read(&json!({
        "architectures": ["Step3TextForCausalLM"], "model_type": "step3_text", "torch_dtype": "bfloat16",
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "num_attention_groups": 1,
        "head_dim": 256, "share_q_dim": 2048, "intermediate_size": 18_432, "moe_intermediate_size": 5120,
        "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "vocab_size": 128_815,
        "moe_layers_enum": (4..60).map(|i| i.to_string()).collect::<Vec<_>>().join(","),
        "max_position_embeddings": 65_536, "tie_word_embeddings": false,
    }));
    let attention = 7168 * (2048 + 2 * 256) + 2048 + 2048 * 64 * 256 + 64 * 256 * 7168;
    let experts = 48 * 7168 + (48 + 1) * 3 * 5120 * 7168;
    let all = 61 * (attention + 2 * 7168) + 56 * experts + 5 * 3 * 18_432 * 7168 + 2 * 128_815 * 7168 + 7168;
    assert_eq!(spec.parameters(), all);
    assert_eq!(all / 1_000_000_000, 316);
    assert_eq!(spec.active_parameters() / 1_000_000_000, 38);
    // queries of low rank are made on every rank, one KV head is copied to each
    assert_eq!((spec.kv_heads, spec.head_size), (1, 256));
}

/// InternLM-7B is a Llama with biases on the attention's projections.
#[test]
fn internlm_7b() {
    let spec = read(&json!({
        "architectures": ["InternLMForCausalLM"], "model_type": "internlm", "torch_dtype": "float16", "bias": true,
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11_008,
        "vocab_size": 103_168, "max_position_embeddings": 2048, "tie_word_embeddings": false,
    }));
    let layer = 4 * (4096 * 4096 + 4096) + 3 * 11_008 * 4096 + 2 * 4096;
    assert_eq!(spec.parameters(), 2 * 103_168 * 4096 + 32 * layer + 4096);
}

/// FlexOlmo is an OLMoE with the norms behind attention and experts.
#[test]
fn flex_olmo() {
    let sizes = |architecture: &str| {
        read(&json!({
            "architectures": [architecture], "model_type": "olmoe", "torch_dtype": "bfloat16", "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11_008,
            "num_experts": 7, "num_experts_per_tok": 5, "vocab_size": 100_352, "max_position_embeddings": 4096,
            "tie_word_embeddings": false,
        }))
    };
    assert_eq!(sizes("FlexOlmoForCausalLM").parameters(), sizes("OlmoeForCausalLM").parameters());
}
