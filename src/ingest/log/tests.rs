use super::*;

fn of(text: &str) -> Observed {
    read(text.as_bytes()).expect("a text has no read errors")
}

/// Lines as vLLM prints them, of one start (figures of a public log, our own arrangement).
const V1: &str = "\
(APIServer pid=1) INFO 12-13 10:00:00 [api_server.py:1839] vLLM API server version 0.11.0
(APIServer pid=1) INFO 12-13 10:00:00 [utils.py:233] non-default args: {'model': 'meta-llama/Meta-Llama-3.1-8B-Instruct', 'max_model_len': 32000, 'gpu_memory_utilization': 0.92, 'max_num_seqs': 128}
(EngineCore_DP0 pid=9) INFO 12-13 10:00:09 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Meta-Llama-3.1-8B-Instruct', speculative_config=None, dtype=torch.bfloat16, max_seq_len=32000, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, enable_prefix_caching=True
INFO 12-13 10:00:09 [scheduler.py:205] Chunked prefill is enabled with max_num_batched_tokens=2048.
INFO 12-13 10:01:00 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 31.1 seconds
INFO 12-13 10:02:00 [gpu_worker.py:298] Available KV cache memory: 4.75 GiB
INFO 12-13 10:02:00 [gpu_worker.py:298] Available KV cache memory: 4.70 GiB
INFO 12-13 10:02:00 [kv_cache_utils.py:1087] GPU KV cache size: 38,944 tokens
INFO 12-13 10:02:00 [kv_cache_utils.py:1091] Maximum concurrency for 32,000 tokens per request: 1.22x
INFO 12-13 10:02:20 [gpu_model_runner.py:3480] Graph capturing finished in 20 secs, took 0.38 GiB
INFO:     Application startup complete.
";

#[test]
fn a_v1_start() {
    let o = of(V1);
    assert_eq!(
        (o.settings.name.as_str(), o.settings.version.as_str(), o.generation),
        ("vllm", "0.11.0", Some("V1"))
    );
    assert_eq!(o.model.as_deref(), Some("meta-llama/Meta-Llama-3.1-8B-Instruct"));
    assert_eq!((o.tp, o.pp, o.dp), (2, 1, 1));
    let s = &o.settings;
    assert_eq!(
        (s.gpu_memory_utilization, s.max_model_len, s.max_num_seqs, s.max_num_batched_tokens),
        (Some(0.92), Some(32000), Some(128), Some(2048))
    );
    assert_eq!(s.enable_prefix_caching, Some(true));
    assert_eq!(
        (o.weights_gib.least(), o.available_kv_gib.least(), o.available_kv_gib.most()),
        (Some(14.9889), Some(4.70), Some(4.75))
    );
    assert_eq!(
        (o.kv_tokens.least(), o.concurrency.least(), o.concurrency_length),
        (Some(38944.0), Some(1.22), Some(32000))
    );
    assert_eq!((o.cuda_graph_gib.least(), o.outcome), (Some(0.38), Outcome::Started));
    assert_eq!(o.kv_tokens.line, 8);
}

#[test]
fn a_v0_start_and_its_refusal() {
    let o = of(
        "INFO 12-02 llm_engine.py:237] Initializing an LLM engine (v0.6.4.post1) with config: model='m/x', max_seq_len=29000, tensor_parallel_size=1, kv_cache_dtype=auto\n\
        INFO 12-02 model_runner.py:1077] Loading model weights took 14.9888 GB\n\
        INFO 12-02 worker.py:232] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB; model weights take 14.99GiB; non_torch_memory takes 0.35GiB; PyTorch activation peak memory takes 2.64GiB; the rest of the memory reserved for KV Cache is 2.89GiB.\n\
        INFO 12-02 gpu_executor.py:76] # GPU blocks: 1478, # CPU blocks: 2048\n\
        ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648). Try increasing `gpu_memory_utilization`.\n",
    );
    assert_eq!((o.generation, o.settings.version.as_str()), (Some("V0"), "0.6.4.post1"));
    assert_eq!((o.gpu_total_gib.least(), o.settings.gpu_memory_utilization), (Some(23.58), Some(0.9)));
    assert_eq!(
        (o.non_torch_gib.least(), o.activation_gib.least(), o.available_kv_gib.least()),
        (Some(0.35), Some(2.64), Some(2.89))
    );
    assert_eq!(
        (o.kv_blocks.least(), o.kv_tokens.least(), o.longest_fitting),
        (Some(1478.0), Some(23648.0), Some(23648))
    );
    assert!(matches!(o.outcome, Outcome::Refused { code: "kv_cache_too_small", line: 5, .. }));
}

#[test]
fn a_v1_refusal_says_what_would_have_fitted() {
    let o = of(
        "ValueError: To serve at least one request with the models's max seq len (262144), (62.00 GiB KV cache is needed, which is larger than the available KV cache memory (48.66 GiB). Based on the available memory, the estimated maximum model length is 205728. Try increasing `gpu_memory_utilization`",
    );
    assert_eq!(
        (o.needed_kv_gib.least(), o.available_kv_gib.least(), o.longest_fitting),
        (Some(62.0), Some(48.66), Some(205_728))
    );
}

#[test]
fn sglang_and_tensorrt() {
    let o = of(
        "[2025-10-07 10:00:00] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3.2-Exp', tokenizer_path='x', context_length=None, mem_fraction_static=0.8, tp_size=8, pp_size=1, dp_size=8, ep_size=1, enable_dp_attention=True, kv_cache_dtype='auto', page_size=64)\n\
        [2025-10-07 10:01:00 DP0 TP0] Load weight end. type=DeepseekV32ForCausalLM, dtype=torch.bfloat16, avail mem=81.00 GB, mem usage=90.30 GB.\n\
        [2025-10-07 10:01:00 DP0 TP0] KV Cache is allocated. #tokens: 1462784, KV size: 65.49 GB\n\
        The server is fired up and ready to roll!\n",
    );
    assert_eq!((o.settings.name.as_str(), o.tp, o.attention_dp, o.dp), ("sglang", 1, 8, 1));
    assert_eq!(
        (o.kv_tokens.least(), o.available_kv_gib.least(), o.weights_gib.least()),
        (Some(1_462_784.0), Some(65.49), Some(90.3))
    );
    assert_eq!(o.outcome, Outcome::Started);
    let two =
        of("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB");
    assert_eq!(two.available_kv_gib.least(), Some(16.46));
    let t = of(
        "[TensorRT-LLM] TensorRT-LLM version: 1.0.0\n[TensorRT-LLM][INFO] [MemUsageChange] Allocated 64.75 GiB for max tokens in paged KV cache (132608).\n",
    );
    assert_eq!((t.settings.name.as_str(), t.settings.version.as_str()), ("tensorrt-llm", "1.0.0"));
    assert_eq!((t.available_kv_gib.least(), t.kv_tokens.least()), (Some(64.75), Some(132_608.0)));
}

#[test]
fn links_and_topology_are_recognised() {
    let o = of(
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-51\nGPU1\tNV18\t X \t0-51\nhost:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nhost NCCL INFO Using network IB\n",
    );
    assert_eq!(o.topology.lines().count(), 3);
    assert_eq!(o.nccl_links, ["P2P", "NET/IB"]);
}

#[test]
fn damaged_logs_never_panic() {
    // a small generator of our own: the same damage every time
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below.max(1) as u64).unwrap_or(0)
    };
    for _ in 0..400 {
        let mut bytes = V1.as_bytes().to_vec();
        for _ in 0..random(40) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = u8::try_from(random(256)).unwrap_or(0),
                1 => drop(bytes.drain(at..(at + random(60)).min(bytes.len()))),
                2 => bytes.truncate(at),
                _ => bytes.splice(at..at, *b"9,999,999.99e99").for_each(drop),
            }
            if bytes.is_empty() {
                break;
            }
        }
        read(bytes.as_slice()).expect("bytes have no read errors");
    }
}

#[test]
fn long_lines_are_cut_and_large_logs_are_read_as_a_stream() {
    let mut text = "x".repeat(10 * MAX_LINE);
    text.push('\n');
    text.push_str(V1);
    assert_eq!(of(&text).kv_tokens.least(), Some(38944.0));
    assert_eq!(of(&text).lines, 12);
}
