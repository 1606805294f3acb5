use super::{Engine, Wanted, commands};
use crate::planner::estimate::{Basis, Estimate};
use crate::planner::input::EngineSettings;
use crate::planner::latency::roof::{Passes, roof};
use crate::planner::plan::{
    Admission, Breakdown, Capacity, Cost, EngineEcho, EngineName, KvSummary, Latency, Launch, Layout,
    MemorySummary, Placement, RankedLayout, Throughput,
};
use crate::planner::units::Bytes;

/// A layout of these sizes that can hold a sequence of `holds` tokens.
fn layout(tp: u64, pp: u64, dp: u64, attention_dp: u64, ep: u64, dcp: u64, holds: u64) -> RankedLayout {
    let unknown = Estimate::within(1.0, 1.0, 1.0, Basis::Assumed);
    RankedLayout {
        rank: 1,
        layout: Layout {
            tp,
            pp,
            dp,
            ep,
            attention_dp,
            dcp,
            gpus: tp * pp * dp * attention_dp,
            idle_gpus: 0,
            kv_cache_dtype: "bf16".to_owned(),
            gpu: "h100-sxm5-80gb".to_owned(),
        },
        engine: EngineName { name: "vllm".to_owned(), version: "0.33".to_owned() },
        placement: Placement {
            tp_link: "nvlink4".to_owned(),
            pp_link: None,
            ep_link: None,
            tp_crosses_nodes: false,
            devices: Vec::new(),
        },
        kv: KvSummary {
            kv_heads_per_gpu: 1,
            replication_factor: 1.0,
            bytes_per_token_per_gpu: 1,
            bytes_per_token_logical: 1,
            bytes_per_token_cluster: 1,
        },
        memory: MemorySummary {
            gpu_bytes: 1,
            budget_bytes: 1,
            smallest_utilization: None,
            largest_safe_utilization: None,
            utilization: 0.92,
            binding_stage: 0,
            layer_partition: None,
            stages: Vec::new(),
            sources: Vec::new(),
        },
        capacity: Capacity {
            kv_blocks: 1,
            block_size: 16,
            kv_tokens_per_replica: holds,
            kv_tokens_total: holds,
            max_sequence_tokens: holds,
            sequences_at_context: 1.0,
            sequences: 1,
            sequences_total: 1,
            engine_max_concurrency: 1.0,
            bound: "kv_cache".to_owned(),
            engine_log_line: String::new(),
            admission: Admission::default(),
        },
        latency: Latency {
            ttft_ms: unknown,
            tpot_ms: unknown,
            decode_step_ms: 1.0,
            prefill_chunk_ms: 1.0,
            decode_breakdown_ms: Breakdown::default(),
            prefill_breakdown_ms: Breakdown::default(),
            communication_share: 0.0,
            prefill_communication_share: 0.0,
            all_reduces_per_pass: 0,
            tokens_per_step: 1.0,
            bound: "weights".to_owned(),
        },
        roof: roof(&[], Passes { batch: 1.0, context_tokens: 1.0, chunk_tokens: 1.0 }, 1.0, 1.0),
        throughput: Throughput {
            concurrency: 1,
            output_tokens_per_s: 1.0,
            output_tokens_per_s_per_gpu: 1.0,
            requests_per_s: 1.0,
        },
        cost: Cost { usd_per_hour: None, usd_per_million_output_tokens: None },
        meets_slo: true,
        pareto: true,
        warnings: Vec::new(),
        reasons: Vec::new(),
        launch: Launch::default(),
    }
}

fn command(layout: &RankedLayout, change: impl FnOnce(&mut EngineSettings)) -> String {
    let mut settings = EngineSettings::defaults_of("vllm", "0.33");
    change(&mut settings);
    let echo = EngineEcho {
        name: "vllm".to_owned(),
        version: "0.33".to_owned(),
        gpu_memory_utilization: 0.92,
        kv_cache_dtype: settings.kv_cache_dtype.clone(),
        max_model_len: 32_768,
        max_num_seqs: 256,
        max_num_batched_tokens: 8192,
        block_size: settings.block_size,
        kv_cache_memory_bytes: settings.kv_cache_memory_bytes.map(Bytes::get),
        quantization: settings.quantization.clone(),
        speculative_config: None,
    };
    let model = "org/model";
    let engine = Engine::Vllm;
    commands::of(&Wanted {
        engine,
        role: super::Role::Both,
        own_from: None,
        connector: super::pair::NIXL,
        model,
        settings: &settings,
        echo: &echo,
        layout,
        gpus_per_node: 8,
        island_gpus: 8,
    })
}

/// The commands without their comments.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.starts_with('#')).collect()
}

#[test]
fn one_node_names_every_setting_the_figures_rest_on() {
    let text = command(&layout(8, 1, 1, 1, 1, 1, 500_000), |_| ());
    assert_eq!(
        lines(&text),
        [
            "vllm serve org/model --tensor-parallel-size 8 --max-model-len 32768 --gpu-memory-utilization 0.92 \
          --kv-cache-dtype auto --max-num-seqs 256 --max-num-batched-tokens 8192"
        ]
    );
    assert!(text.starts_with("# expected at start-up: GPU KV cache size of 500,000 tokens"));
}

#[test]
fn the_length_never_exceeds_what_fits() {
    assert!(command(&layout(8, 1, 1, 1, 1, 1, 4096), |_| ()).contains("--max-model-len 4096 "));
}

#[test]
fn stages_over_two_nodes_start_on_both() {
    let text = command(&layout(8, 2, 1, 1, 1, 1, 500_000), |_| ());
    let lines = lines(&text);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].ends_with("--nnodes 2 --node-rank 0 --master-addr $HEAD_IP"), "{text}");
    assert!(lines[1].ends_with("--nnodes 2 --node-rank 1 --master-addr $HEAD_IP --headless"), "{text}");
    assert!(lines.iter().all(|l| l.contains("--tensor-parallel-size 8 --pipeline-parallel-size 2 ")));
}

#[test]
fn ranks_that_cannot_be_dealt_evenly_go_by_ray() {
    let text = command(&layout(1, 9, 1, 1, 1, 1, 500_000), |_| ());
    assert!(text.contains("--distributed-executor-backend ray"), "{text}");
    assert!(!text.contains("--nnodes"));
}

#[test]
fn replicas_in_a_node_share_neither_gpus_nor_port() {
    let text = command(&layout(4, 1, 4, 1, 1, 1, 500_000), |_| ());
    let lines = lines(&text);
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve"));
    assert!(lines[0].ends_with("--port 8000"));
    assert!(lines[1].starts_with("CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve"));
    assert!(lines[1].ends_with("--port 8001"));
    assert!(text.contains("# 4 replicas: on each of 2 nodes"));
}

#[test]
fn attention_groups_over_nodes_know_their_ranks() {
    let text = command(&layout(1, 1, 1, 32, 32, 1, 500_000), |_| ());
    let lines = lines(&text);
    assert!(
        lines[0].contains(
            "--data-parallel-size 32 --data-parallel-size-local 8 --data-parallel-address $HEAD_IP"
        )
    );
    assert!(lines[0].contains("--enable-expert-parallel"));
    assert!(lines[1].ends_with("--headless --data-parallel-start-rank $((NODE_RANK * 8))"), "{text}");
    assert!(text.contains("NODE_RANK=1..3"));
}

#[test]
fn given_settings_are_passed_on() {
    let text = command(&layout(16, 1, 1, 1, 1, 2, 500_000), |s| {
        s.kv_cache_dtype = "fp8".to_owned();
        s.block_size = Some(64);
        s.quantization = Some("fp8".to_owned());
        s.enable_prefix_caching = Some(false);
        s.enforce_eager = true;
        s.kv_cache_memory_bytes = Some(Bytes(1_000));
    });
    for flag in [
        "--decode-context-parallel-size 2",
        "--kv-cache-dtype fp8",
        "--block-size 64",
        "--quantization fp8",
        "--no-enable-prefix-caching",
        "--enforce-eager",
        "--kv-cache-memory-bytes 1000",
    ] {
        assert!(text.contains(flag), "{flag} is missing:\n{text}");
    }
    assert!(!text.contains("--gpu-memory-utilization"), "the engine ignores it beside a given cache size");
}
