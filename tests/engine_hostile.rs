//! No number brings the rules of an engine down, and what they say obeys simple laws.

use proptest::prelude::*;
use shardwise::catalogue::{hardware, models};
use shardwise::planner::engine::{self, EngineRules};
use shardwise::planner::input::EngineSettings;
use shardwise::planner::layout::Shape;
use shardwise::planner::model::ModelSpec;
use shardwise::planner::units::{Bytes, Tokens};

/// One of each kind of cache.
const MODELS: &[&str] = &[
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-V3.2",
    "deepseek-ai/DeepSeek-V4-Flash",
    "openai/gpt-oss-120b",
    "google/gemma-4-26B-A4B",
    "Qwen/Qwen3.5-27B",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
];

fn model(name: &str) -> ModelSpec {
    models::find(name).unwrap_or_else(|e| panic!("{name}: {e:?}")).spec().expect("a catalogue model is read")
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=64_u64, prop::sample::select(vec![128, 4096, 131_072, u64::MAX, u64::MAX / 2, 1 << 32])]
}

fn optional() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), number().prop_map(Some)]
}

prop_compose! {
    fn settings()(
        utilization in prop_oneof![Just(None), prop::num::f64::ANY.prop_map(Some), Just(Some(0.9))],
        kv in prop::sample::select(vec!["auto", "fp8", "nvfp4", "fp8_ds_mla", "int8_per_token_head", "x"]),
        lengths in (optional(), optional(), optional(), optional()),
        flags in (any::<bool>(), any::<bool>(), any::<bool>()),
        drafts in number(),
        parts in prop_oneof![Just(None), prop::collection::vec(number(), 0..5).prop_map(Some)],
    ) -> EngineSettings {
        EngineSettings {
            gpu_memory_utilization: utilization,
            kv_cache_dtype: kv.to_owned(),
            max_model_len: lengths.0,
            max_num_seqs: lengths.1,
            max_num_batched_tokens: lengths.2,
            block_size: lengths.3,
            async_scheduling: Some(flags.0),
            enable_prefix_caching: Some(flags.1),
            disable_hybrid_kv_cache_manager: flags.2,
            num_speculative_tokens: drafts,
            pp_layer_partition: parts,
            swa_full_tokens_ratio: utilization,
            mamba_full_memory_ratio: utilization,
            ..EngineSettings::defaults_of("", "")
        }
    }
}

prop_compose! {
    fn shapes()(tp in number(), pp in number(), ep in number(), attention_dp in number(), dcp in number()) -> Shape {
        Shape { tp, pp, ep, attention_dp, dcp }
    }
}

/// Ask every question that the search asks, legal or not.
fn ask(rules: &dyn EngineRules, model: &ModelSpec, shape: &Shape, asked: &EngineSettings, bytes: u64) {
    let gpu = hardware::catalogue().gpu("h100").expect("known");
    let Ok(settings) = rules.resolve(asked, model, gpu) else { return };
    let refusal = rules.refuse(model, shape, gpu, &settings);
    assert_eq!(rules.refused_code(model, shape, gpu, &settings), refusal.map(|r| r.code), "{shape:?}");
    let Some(stages) = rules.pipeline_split(model.layers.len(), shape.pp, &settings) else { return };
    assert_eq!(stages.iter().map(ExactSizeIterator::len).sum::<usize>(), model.layers.len());
    let sharded = model.sharded(shape);
    let last = stages.len() - 1;
    let weights: Vec<_> =
        stages.iter().enumerate().map(|(i, s)| sharded.stage(s.start, s.end, i == 0, i == last)).collect();
    let budget = rules.memory(model, shape, gpu, &settings, &stages, &weights);
    assert_eq!(budget.stages.len(), stages.len());
    // what a search shares between shapes
    let without_dcp = Shape { dcp: 1, ..*shape };
    assert_eq!(budget, rules.memory(model, &without_dcp, gpu, &settings, &stages, &weights));
    let cache = rules.cache_layout(model, shape, gpu, &settings, &stages);
    let without_experts = Shape { ep: 1, attention_dp: 1, ..*shape };
    assert_eq!(cache, rules.cache_layout(model, &without_experts, gpu, &settings, &stages));
    let Ok(cache) = cache else { return };
    assert_eq!(cache.block_bytes.len(), stages.len());
    let _ = cache.capacity(&vec![Bytes(bytes); stages.len()], &settings);
    let _ = cache.longest_sequence(bytes, Tokens(bytes));
    let _ = cache.sequences_at(bytes, Tokens(bytes));
    let _ = budget.smallest_utilization(&vec![Bytes(bytes); stages.len()], &cache.bytes_for(Tokens(bytes)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_number_brings_a_rule_down(shape in shapes(), asked in settings(), bytes in number(), which in 0..9_usize) {
        let model = model(MODELS[which]);
        for (name, version) in engine::known() {
            ask(engine::rules(name, version).expect("known"), &model, &shape, &asked, bytes);
        }
    }

    #[test]
    fn more_memory_never_holds_less(gib in 1..200_u64, more in 0..50_u64, which in 0..9_usize, tp in prop::sample::select(vec![1_u64, 2, 4, 8])) {
        let model = model(MODELS[which]);
        let gpu = hardware::catalogue().gpu("h100").expect("known");
        let shape = Shape::new(tp, 1);
        for (name, version) in engine::known() {
            let rules = engine::rules(name, version).expect("known");
            let asked = EngineSettings { max_model_len: Some(8192), ..EngineSettings::defaults_of(name, version) };
            let Ok(settings) = rules.resolve(&asked, &model, gpu) else { continue };
            if rules.refuse(&model, &shape, gpu, &settings).is_some() { continue }
            let stages = rules.pipeline_split(model.layers.len(), 1, &settings).expect("one stage");
            let Ok(cache) = rules.cache_layout(&model, &shape, gpu, &settings, &stages) else { continue };
            let held = |gib: u64| cache.capacity(&[Bytes(gib << 30)], &settings).map_or(Tokens::ZERO, |c| c.tokens);
            prop_assert!(held(gib + more) >= held(gib));
        }
    }
}
