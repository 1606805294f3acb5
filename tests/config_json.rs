//! Untrusted configurations: what is asked otherwise, and what is hostile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shardwise::catalogue::models;
use shardwise::ingest::config_json::{self, ConfigError, WhatIf};
use shardwise::planner::layout::Shape;
use shardwise::planner::model::cache::{LayerCache, Reach};

/// A small Llama, with one key set to something else.
fn llama(key: &str, value: Value) -> Value {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "max_position_embeddings": 131_072, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    });
    config[key] = value;
    config
}

fn codes(error: &ConfigError) -> Vec<(String, &'static str)> {
    error.faults.iter().map(|fault| (fault.pointer.clone(), fault.code)).collect()
}

#[test]
fn each_hostile_value_is_refused_at_once() {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let cases = [
        ("num_hidden_layers", json!(1_000_000_000), "out_of_range"),
        ("num_hidden_layers", json!(0), "out_of_range"),
        ("num_hidden_layers", json!(-1), "out_of_range"),
        ("num_hidden_layers", json!("NaN"), "wrong_type"),
        ("num_hidden_layers", json!([32]), "wrong_type"),
        ("hidden_size", json!(u64::MAX), "out_of_range"),
        ("hidden_size", json!(9_223_372_036_854_775_808_u64), "out_of_range"),
        ("hidden_size", json!(1e308), "out_of_range"),
        ("hidden_size", json!(4096.5), "wrong_type"),
        ("hidden_size", json!({}), "wrong_type"),
        ("hidden_size", deep, "wrong_type"),
        ("vocab_size", Value::Null, "missing"),
        ("vocab_size", json!(false), "wrong_type"),
        ("num_attention_heads", json!(-1), "out_of_range"),
        ("num_key_value_heads", json!(1e300), "out_of_range"),
        ("num_key_value_heads", json!(64), "out_of_range"),
        ("num_key_value_heads", json!(7), "out_of_range"),
        ("intermediate_size", json!("14336"), "wrong_type"),
        ("torch_dtype", json!("complex128"), "not_allowed"),
        ("architectures", json!(["NobodysForCausalLM"]), "unknown_architecture"),
        ("architectures", json!("LlamaForCausalLM"), "wrong_type"),
        ("architectures", json!([]), "unknown_architecture"),
        ("quantization_config", json!({"quant_method": "aqlm"}), "unknown_quantisation"),
        ("quantization_config", json!({"quant_method": "fp8", "weight_block_size": [0, 0]}), "not_allowed"),
        (
            "quantization_config",
            json!({"quant_method": "compressed-tensors", "ignore": ["re:(((("]}),
            "not_allowed",
        ),
        (
            "quantization_config",
            json!({"quant_method": "modelopt", "quant_algo": "FP1"}),
            "unknown_quantisation",
        ),
    ];
    for (key, value, code) in cases {
        let config = llama(key, value);
        let began = Instant::now();
        let error = config_json::read("x", &config, None).expect_err(key);
        assert!(began.elapsed() < Duration::from_millis(100), "{key}");
        assert!(
            error.faults.iter().any(|fault| fault.code == code && fault.pointer.contains(key)),
            "{key}: {:?}, expected {code}",
            codes(&error)
        );
    }
}

/// A size of 0 is a fault of its own place: read as absent, a model of other sizes would be planned for.
#[test]
fn a_size_of_zero_is_a_fault_and_not_the_default() {
    for (id, place) in [
        ("meta-llama/Llama-3.1-70B", "num_key_value_heads"),
        ("Qwen/Qwen3-0.6B", "head_dim"),
        ("tiiuae/falcon-40b", "num_kv_heads"),
        ("deepseek-ai/DeepSeek-V3", "q_lora_rank"),
        ("deepseek-ai/DeepSeek-V3", "intermediate_size"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "moe_latent_size"),
        ("nvidia/Nemotron-H-56B-Base-8K", "n_groups"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "linear_conv_kernel_dim"),
        ("Qwen/Qwen3-30B-A3B", "decoder_sparse_step"),
        ("XiaomiMiMo/MiMo-V2-Flash", "swa_num_key_value_heads"),
        ("XiaomiMiMo/MiMo-V2-Flash", "v_head_dim"),
        ("google/gemma-4-26B-A4B", "global_head_dim"),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", "spatial_merge_size"),
    ] {
        let model = models::find(id).expect(id);
        let overrides = json!({ place: 0 });
        let error =
            model.read_as(WhatIf { overrides: overrides.as_object(), ..WhatIf::default() }).expect_err(place);
        assert!(
            error
                .faults
                .iter()
                .any(|fault| fault.code == "out_of_range" && fault.pointer.ends_with(&format!("/{place}"))),
            "{id} {place}: {:?}",
            codes(&error)
        );
        let overrides = json!({ place: null });
        let what_if = WhatIf { overrides: overrides.as_object(), ..WhatIf::default() };
        assert!(
            model.read_as(what_if).is_ok() || place == "intermediate_size",
            "{id}: {place} may be left to the class"
        );
    }
    let config = llama("kv_channels", json!(0));
    let error = config_json::read("x", &config, None).expect_err("a head of no size");
    assert_eq!(codes(&error), [("#/kv_channels".to_owned(), "out_of_range")]);
    let config = llama("hidden_size", json!(16));
    let error = config_json::read("x", &config, None).expect_err("32 heads of 16 features");
    assert_eq!(codes(&error), [("#/num_attention_heads".to_owned(), "out_of_range")]);
}

/// Where the engine itself takes 0 as "none", a file may say so.
#[test]
fn zeros_that_the_engine_reads_as_none_are_read_so() {
    let plain = |id: &str| models::find(id).map(|model| model.spec().expect(id)).expect(id);
    for (id, place) in [
        ("mistralai/Mistral-7B-Instruct-v0.3", "sliding_window"),
        ("openai/gpt-oss-20b", "sliding_window"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "attention_chunk_size"),
        ("deepseek-ai/DeepSeek-V3", "n_shared_experts"),
        ("google/gemma-4-26B-A4B", "num_kv_shared_layers"),
        ("google/gemma-4-26B-A4B", "hidden_size_per_layer_input"),
        ("MiniMaxAI/MiniMax-M1-80k", "shared_intermediate_size"),
    ] {
        let overrides = json!({ place: 0 });
        let what_if = WhatIf { overrides: overrides.as_object(), ..WhatIf::default() };
        let spec = models::find(id).expect(id).read_as(what_if).expect(place).spec;
        assert!(spec.parameters() <= plain(id).parameters(), "{id} {place}");
        let window = spec.kinds.iter().flat_map(|kind| &kind.caches).any(|cache| {
            matches!(cache, LayerCache::Heads { reach: Reach::Sliding { .. } | Reach::Chunked { .. }, .. })
        });
        assert!(
            !window || place.ends_with("layers") || place.ends_with("input"),
            "{id} {place}: no window of 0"
        );
    }
}

#[test]
fn a_document_that_is_no_object_is_refused() {
    for config in [json!(null), json!([]), json!("x"), json!(1)] {
        assert!(config_json::read("x", &config, None).is_err());
    }
}

#[test]
fn every_fault_is_found_at_once() {
    let mut config = llama("hidden_size", json!("wide"));
    config["vocab_size"] = json!(-5);
    config["num_attention_heads"] = json!(1e308);
    let error = config_json::read("x", &config, None).expect_err("three faults");
    let pointers: Vec<&str> = error.faults.iter().map(|fault| fault.pointer.as_str()).collect();
    for pointer in ["#/hidden_size", "#/vocab_size", "#/num_attention_heads"] {
        assert!(pointers.contains(&pointer), "{pointers:?}");
    }
}

#[test]
fn the_largest_sizes_that_are_read_do_not_overflow() {
    let mut config = llama("num_hidden_layers", json!(config_json::MAX_LAYERS));
    for key in [
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
        "head_dim",
    ] {
        config[key] = json!(config_json::MAX_SIZE);
    }
    let began = Instant::now();
    let spec = config_json::read("x", &config, None).expect("within the bounds").spec;
    let stage = spec.sharded(&Shape::new(u64::MAX, u64::MAX)).stage(0, usize::MAX, true, true);
    assert!(spec.weights_bytes() >= stage.bytes);
    assert_eq!(spec.parameters(), u64::MAX, "saturates");
    assert!(began.elapsed() < Duration::from_millis(500));
}

#[test]
fn unknown_keys_are_kept_and_listed() {
    let read = config_json::read("x", &llama("my_own_key", json!(1)), None).expect("still a Llama");
    assert!(
        read.diagnostics.iter().any(|d| d.pointer == "#/my_own_key" && d.code == "unread_key"),
        "{:?}",
        read.diagnostics
    );
}

#[test]
fn what_if_keys_replace_those_of_the_file() {
    let overrides = json!({"num_key_value_heads": 1, "num_hidden_layers": 2});
    let what_if = WhatIf { overrides: overrides.as_object(), ..WhatIf::default() };
    let spec = config_json::read_as("x", &llama("x", json!(1)), None, what_if).expect("a Llama").spec;
    assert_eq!((spec.kv_heads, spec.layers.len()), (1, 2));
    let gemma = models::find("google/gemma-3-27b-it").expect("in the catalogue");
    let overrides = json!({"num_hidden_layers": 6, "layer_types": null});
    let what_if = WhatIf { overrides: overrides.as_object(), ..WhatIf::default() };
    assert_eq!(gemma.read_as(what_if).expect("a Gemma").spec.layers.len(), 6);
}

#[test]
fn weights_as_if_stored_otherwise() {
    let model = models::find("meta-llama/Llama-3.1-70B").expect("in the catalogue");
    let plain = model.spec().expect("a Llama").weights_bytes().get();
    assert_eq!(plain, 141_107_412_992);
    let as_if = |name| {
        let what_if = WhatIf { weights: Some(name), ..WhatIf::default() };
        model.read_as(what_if).map(|read| read.spec.weights_bytes().get())
    };
    // linear layers of the decoder: 80 * 855,638,016 parameters; table, head and norms stay in 16 bits
    let linear = 80 * 855_638_016_u64;
    for (name, extra_bits) in [("bf16", 16), ("fp8", 8), ("int8", 8), ("int4", 4), ("nvfp4", 4), ("mxfp4", 4)]
    {
        let bytes = as_if(name).expect(name);
        let least = plain - linear * (16 - extra_bits) / 8;
        assert!(bytes >= least && bytes <= least + linear / 15, "{name}: {bytes}, at least {least}");
    }
    assert_eq!(as_if("bf16"), Ok(plain));
    let error = as_if("fp7").expect_err("no such format");
    assert!(error.to_string().contains("fp8_block"), "{error}");
}

#[test]
fn a_given_total_replaces_the_ledger() {
    let what_if = WhatIf { weights_bytes: Some(1_000_000), ..WhatIf::default() };
    let spec = config_json::read_as("x", &llama("x", json!(1)), None, what_if).expect("a Llama").spec;
    let stage =
        spec.sharded(&Shape { tp: 4, pp: 2, ep: 1, attention_dp: 1, dcp: 1 }).stage(0, 16, true, false);
    assert_eq!(stage.bytes.get(), 125_000);
}

#[test]
fn quantisation_of_side_files_and_bare_blocks_is_read() {
    let side = json!({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}});
    let read = config_json::read("x", &llama("x", json!(1)), Some(&side)).expect("a Llama");
    assert_eq!(read.spec.quantization, "fp8 per tensor");
    assert!(read.spec.declared_kv_dtype.is_some());
    let bare =
        json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]});
    let read = config_json::read("x", &llama("x", json!(1)), Some(&bare)).expect("a Llama");
    assert_eq!(read.spec.quantization, "fp8 block 128x128");
    for (method, label) in [("gptq", "int4 group 128"), ("awq", "int4 group 128")] {
        let block = json!({"quant_method": method, "bits": 4, "group_size": 128});
        let read = config_json::read("x", &llama("quantization_config", block), None).expect("a Llama");
        assert_eq!(read.spec.quantization, label);
    }
}

#[test]
fn stages_add_up_to_the_whole() {
    for id in [
        "meta-llama/Llama-3.1-70B",
        "deepseek-ai/DeepSeek-V3",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "google/gemma-3-27b-it",
    ] {
        let spec = models::find(id).map(|m| m.spec().expect(id)).expect(id);
        let layers = spec.layers.len();
        for tp in [1, 2, 8] {
            let shape = Shape::new(tp, 1);
            let sharded = spec.sharded(&shape);
            let whole = sharded.stage(0, layers, true, true);
            let middle = layers / 3;
            let (a, b) = (sharded.stage(0, middle, true, false), sharded.stage(middle, layers, false, true));
            assert!(a.bytes + b.bytes >= whole.bytes, "{id} tp={tp}");
            assert!(
                whole.replicated_bytes <= whole.bytes && whole.active_parameters <= whole.parameters,
                "{id}"
            );
        }
    }
}

#[test]
fn what_no_model_can_be_is_refused_at_its_key() {
    let refused = |id: &str, key: &str, value: Value| {
        let mut config = models::find(id).expect("of the catalogue").config();
        config[key] = value;
        codes(&config_json::read("odd", &config, None).expect_err("refused"))
    };
    let of = |key: &str| vec![(format!("#/{key}"), "out_of_range")];
    assert_eq!(
        refused("mistralai/Mixtral-8x7B-Instruct-v0.1", "num_experts_per_tok", json!(9)),
        of("num_experts_per_tok")
    );
    assert_eq!(refused("Qwen/Qwen3-30B-A3B", "num_experts_per_tok", json!(1000)), of("num_experts_per_tok"));
    let llama = "meta-llama/Llama-3.1-8B-Instruct";
    assert_eq!(refused(llama, "max_position_embeddings", json!(0)), of("max_position_embeddings"));
    for (rope, at, code) in [
        (json!("banana"), "", "wrong_type"),
        (json!({"rope_type": "banana", "factor": 8.0}), "/rope_type", "not_allowed"),
        (json!({"rope_type": "yarn"}), "/factor", "missing"),
        (json!({"rope_type": "yarn", "factor": -4}), "/factor", "out_of_range"),
    ] {
        assert_eq!(refused(llama, "rope_scaling", rope), vec![(format!("#/rope_scaling{at}"), code)]);
    }
    let pattern = "hybrid_override_pattern";
    assert_eq!(refused("nvidia/Nemotron-H-56B-Base-8K", pattern, json!("")), of(pattern));
}
