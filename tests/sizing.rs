//! Fewest GPUs, the smallest replica and curves, held against plans of the same shapes one by one.

use serde_json::json;
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::{cluster, config_json};
use shardwise::planner;
use shardwise::planner::input::{
    EngineSettings, LatencyModel, Objective, Overrides, PlanInput, Search, Slo, Workload,
};
use shardwise::planner::plan::Plan;
use shardwise::planner::sizing::load::Load;
use shardwise::planner::sizing::{SizedProduct, SizingInput, size};
use shardwise::planner::smallest::smallest;
use shardwise::planner::sweep::{Axis, AxisValue, sweep, usual_layouts};

/// Llama 3.1 70B, published with the model.
fn input(cluster_text: &str) -> PlanInput {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
        "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "hidden_act": "silu"
    });
    let mut engine = EngineSettings::defaults_of("vllm", "0.33");
    engine.max_model_len = Some(32_768);
    PlanInput {
        model: config_json::read("llama-70b", &config, None).expect("a known architecture").spec.into(),
        cluster: cluster::parse_text(cluster_text, catalogue()).expect("a cluster"),
        engines: vec![engine],
        workload: Workload {
            input_tokens: 4096,
            output_tokens: 512,
            context_tokens: Some(32_768),
            decode_context_tokens: None,
            concurrency: 64,
            prefix_cache_hit_rate: 0.0,
        },
        slo: Slo::default(),
        objective: Objective::Balanced,
        search: Search { allow_idle_gpus: true, ..Search::default() },
        overrides: Overrides::default(),
        latency_model: LatencyModel::Roofline,
        calibration: shardwise::catalogue::calibration::calibration(),
        memory_corrections: [].into(),
        beyond: std::sync::Arc::default(),
        limit: 1,
    }
}

fn sized(input: &PlanInput, load: Load) -> SizedProduct {
    let sizing = size(&SizingInput { plan: input.clone(), load });
    sizing.products.into_iter().next().expect("one product")
}

/// The plan of exactly one TP × PP replica on as many nodes as it needs.
fn one(input: &PlanInput, tp: u64, pp: u64) -> Plan {
    let mut only = input.clone();
    for pool in &mut only.cluster.pools {
        pool.nodes =
            tp.saturating_mul(pp).div_ceil(pool.gpus_per_node) * tp.div_ceil(pool.gpus_per_node).max(1);
    }
    let size = |n| Some(vec![n]);
    only.search = Search {
        tp: size(tp),
        pp: size(pp),
        dp: size(1),
        ep: size(1),
        attention_dp: size(1),
        dcp: size(1),
        allow_idle_gpus: true,
    };
    planner::plan(&only)
}

#[test]
fn the_fewest_gpus_for_sequences_are_those_that_trying_every_shape_finds() {
    let base = input("8 H100");
    for sequences in [1, 5, 17, 40, 130] {
        let mut fewest = u64::MAX;
        for tp in 1..=16 {
            for pp in 1..=8 {
                let Some(best) = one(&base, tp, pp).layouts.into_iter().next() else { continue };
                let seats = best.capacity.sequences.min(1024);
                if seats > 0 {
                    fewest = fewest.min(tp * pp * u64::div_ceil(sequences, seats));
                }
            }
        }
        let product = sized(&base, Load::Sequences(sequences));
        let found = product.sized.expect("it fits");
        assert_eq!(found.gpus, fewest, "{sequences} sequences");
        assert_eq!(found.gpus, found.replicas * found.per_replica.gpus);
        assert!(found.layout.capacity.sequences_total >= sequences);
        assert!(found.nodes * product.gpus_per_node >= found.gpus);
    }
}

#[test]
fn a_limit_on_the_time_per_token_takes_more_gpus() {
    let mut base = input("8 H100");
    let free = sized(&base, Load::Sequences(40)).sized.expect("it fits");
    base.slo = Slo { ttft_ms: None, tpot_ms: Some(free.per_replica.tpot_ms * 0.5) };
    let bound = sized(&base, Load::Sequences(40)).sized.expect("it fits");
    assert!(bound.gpus > free.gpus, "{} against {}", bound.gpus, free.gpus);
    assert!(bound.per_replica.tpot_ms <= free.per_replica.tpot_ms * 0.5);
    assert!(bound.layout.meets_slo);
    base.slo = Slo { ttft_ms: None, tpot_ms: Some(0.001) };
    let never = sized(&base, Load::Sequences(1));
    assert_eq!(never.why_not.map(|w| w.code).as_deref(), Some("tpot_missed"));
    assert!(!never.feasible);
}

#[test]
fn a_rate_fills_the_time_of_its_replicas() {
    let base = input("8 H100");
    for rate in [0.1, 3.0, 50.0] {
        let found = sized(&base, Load::Rate(vec![rate])).sized.expect("it fits");
        let most = found.per_replica.max_requests_per_s.expect("a rate");
        assert!(most * found.replicas as f64 + 1e-6 >= rate);
        assert!(most * (found.replicas - 1) as f64 <= rate, "one replica less is too few");
        // by hand: x = 1 / (P + (n-1)·s/c) for one engine; share of prompts p = x·P; TPOT = s / (1 - p)
        let (per, layout) = (&found.per_replica, &found.layout);
        let prompt_s = layout.latency.ttft_ms.value / 1e3 / layout.layout.pp as f64;
        let step_s = layout.latency.tpot_ms.value / 1e3;
        let flow = 1.0 / (prompt_s + 511.0 * step_s / per.concurrency as f64);
        assert!((per.tpot_ms / 1e3 - step_s / (1.0 - flow * prompt_s)).abs() < 1e-9);
        assert!((per.prefill_share - flow * prompt_s).abs() < 1e-9);
        assert!(flow * found.replicas as f64 >= rate * 0.999_999, "it carries the rate at this concurrency");
    }
}

#[test]
fn a_trace_has_a_peak_and_a_mean() {
    let base = input("8 H100");
    let flat = sized(&base, Load::Rate(vec![40.0])).sized.expect("it fits");
    let trace = sized(&base, Load::Rate(vec![0.0, 40.0, 20.0, 0.5])).sized.expect("it fits");
    assert_eq!((trace.gpus, trace.replicas), (flat.gpus, flat.replicas));
    assert!(trace.replicas_mean < trace.replicas as f64 && trace.replicas_mean >= 1.0);
    assert_eq!(flat.replicas_mean, flat.replicas as f64);
}

#[test]
fn users_who_think_need_fewer_gpus_than_users_who_do_not() {
    let base = input("8 H100");
    let of =
        |think_time_s| sized(&base, Load::Users { users: 3000, think_time_s }).sized.expect("it fits").gpus;
    assert!(of(60.0) < of(0.0));
}

#[test]
fn a_size_of_a_million_users_ends_and_saturates() {
    let base = input("8 H100");
    let found = sized(&base, Load::Users { users: u64::MAX, think_time_s: 1.0 });
    assert!(found.sized.is_none_or(|s| s.gpus > 1_000_000));
    let none = sized(&input("1 T4"), Load::Rate(vec![f64::MAX]));
    assert!(none.sized.is_none_or(|s| s.gpus > 1_000_000));
}

#[test]
fn the_smallest_replica_is_the_first_of_all_shapes_that_fits() {
    for cluster in ["8 H100", "8 H200", "8 A10G", "8 L4", "1 GH200"] {
        let base = input(cluster);
        let found = smallest(&base).expect("enough of any product hold it");
        let fits = |tp, pp| one(&base, tp, pp).layouts.first().is_some_and(|l| l.capacity.sequences >= 1);
        assert!(fits(found.tp, found.pp), "{cluster}: {found:?}");
        for tp in 1..=found.gpus() {
            for pp in 1..=(found.gpus() - 1) / tp {
                assert!(!fits(tp, pp), "{cluster}: TP={tp} PP={pp} fits and {found:?} was found");
            }
        }
    }
}

#[test]
fn the_tp_curve_shows_the_floor() {
    let curve = &sweep(&input("2 x 8 H100"), &Axis::Tp(vec![4, 6, 8, 16]), None);
    assert_eq!(curve.held, ["pp=1", "dp=1", "ep=1", "attention_dp=1", "dcp=1"]);
    let points = &curve.curves[0].points;
    let tokens = |i: usize| points[i].kv_tokens_per_replica.expect("fits");
    assert_eq!(points[1].why_not.as_ref().map(|w| w.code.as_str()), Some("query_heads_not_divisible"));
    assert_eq!(points[2].kv_tokens_if_sharded, Some(tokens(2)), "eight ranks, eight heads: no copies");
    assert_eq!(points[3].replication_factor, Some(2.0));
    assert_eq!(points[3].kv_tokens_if_sharded, Some(2 * tokens(3)));
    assert!((1.05..1.35).contains(&(tokens(3) as f64 / tokens(2) as f64)), "{} {}", tokens(3), tokens(2));
}

#[test]
fn every_axis_gives_the_plan_of_its_value() {
    let base = input("2 x 8 H100");
    let link = |key: &str| catalogue().link(key).expect("listed");
    let axes = [
        Axis::Pp(vec![1, 2, 4]),
        Axis::Context(vec![4096, 32_768]),
        Axis::Concurrency(vec![1, 64]),
        Axis::KvCacheDtype(vec!["auto".to_owned(), "fp8".to_owned()]),
        Axis::InterLink(vec![link("infiniband-ndr"), link("ethernet-25")]),
        Axis::IntraLink(vec![link("nvlink4"), link("pcie5")]),
        Axis::Gpu(vec![(
            "h200".to_owned(),
            cluster::parse_text("2 x 8 H200", catalogue()).expect("a cluster"),
        )]),
    ];
    for axis in axes {
        let drawn = sweep(&base, &axis, None);
        assert_eq!(drawn.curves[0].points.len(), axis.len(), "{}", axis.name());
        for point in &drawn.curves[0].points {
            assert!(point.feasible, "{}: {point:?}", axis.name());
        }
    }
    let by = sweep(
        &base,
        &Axis::Tp(vec![8, 16]),
        Some(&Axis::KvCacheDtype(vec!["auto".to_owned(), "fp8".to_owned()])),
    );
    let at = |i: usize| by.curves[i].points[0].kv_tokens_per_replica.expect("fits") as f64;
    assert_eq!(by.curves[1].by, Some(AxisValue::Text("fp8".to_owned())));
    assert!((1.95..2.05).contains(&(at(1) / at(0))), "an fp8 cache holds twice");
}

#[test]
fn a_given_total_of_weights_is_dealt_over_stages_too() {
    let mut base = input("2 x 8 H100");
    std::sync::Arc::make_mut(&mut base.model).weights_bytes_given = Some(160_000_000_000);
    let size = |n| Some(vec![n]);
    base.search = Search { tp: size(2), pp: Some(vec![2, 4]), dp: size(1), ..base.search };
    base.limit = 10;
    let plan = planner::plan(&base);
    for layout in &plan.layouts {
        let each = 160_000_000_000 / (2 * layout.layout.pp);
        assert!(layout.memory.stages.iter().all(|s| s.weights_bytes == each), "PP={}", layout.layout.pp);
    }
    assert_eq!(plan.layouts.len(), 2);
}

#[test]
fn a_curve_for_each_layout_goes_on_beyond_the_cache() {
    let mut base = input("2 x 8 H100");
    base.workload.context_tokens = Some(32_768);
    let layouts = usual_layouts(&base, 8);
    assert!((2..=8).contains(&layouts.len()));
    let counts = vec![1, 8, 64, 512];
    let drawn = sweep(&base, &Axis::Concurrency(counts.clone()), Some(&Axis::Layout(layouts.clone())));
    assert_eq!(drawn.curves.len(), layouts.len());
    for (curve, (name, search)) in drawn.curves.iter().zip(&layouts) {
        assert_eq!(curve.by, Some(AxisValue::Text(name.clone())));
        for (point, asked) in curve.points.iter().zip(&counts) {
            let layout = point.layout.as_ref().expect("fits");
            assert_eq!(
                (Some(vec![layout.tp]), Some(vec![layout.pp])),
                (search.tp.clone(), search.pp.clone())
            );
            let (tpot, ran) = (point.tpot_ms.expect("timed"), point.concurrency.expect("counted"));
            let user = point.output_tokens_per_s_per_user.expect("a rate");
            assert!((user * tpot / 1e3 - 1.0).abs() < 1e-9);
            // beyond the pool the whole batch is shown beside what runs
            assert_eq!(point.if_all_ran.is_some(), ran < *asked, "{name} {asked}");
            if point.fits_kv == Some(false) {
                let beyond = point.if_all_ran.as_ref().expect("more was asked for than fits");
                assert!(beyond.tpot_ms > tpot && beyond.output_tokens_per_s_per_gpu > 0.0, "{name} {asked}");
            }
        }
    }
    let points = || drawn.curves.iter().flat_map(|curve| &curve.points);
    assert!(points().any(|p| p.fits_kv == Some(false)) && points().any(|p| p.fits_kv == Some(true)));
    let rates = |p: &planner::sweep::Point| {
        (p.output_tokens_per_s_per_user.expect("a rate"), p.output_tokens_per_s_per_gpu.expect("a rate"))
    };
    assert!(points().any(|p| p.pareto) && points().any(|p| !p.pareto));
    for front in points().filter(|p| p.pareto) {
        let (user, gpu) = rates(front);
        assert!(!points().map(rates).any(|(u, g)| u > user && g > gpu), "beaten: {front:?}");
    }
}
