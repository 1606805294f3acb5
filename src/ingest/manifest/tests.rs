use super::*;

fn one(text: &str) -> (Manifest, Deployment) {
    let mut found = read(text).expect("yaml");
    assert_eq!(found.len(), 1, "{text}");
    let manifest = found.remove(0);
    let deployment = manifest.deployments.first().expect("a deployment").clone();
    (manifest, deployment)
}

/// (platform, model, TP, PP, DP, replicas, pods, GPUs of a pod, max_model_len)
type Brief = (&'static str, String, u64, u64, u64, u64, u64, Option<u64>, Option<u64>);

fn brief(text: &str) -> Brief {
    let (m, d) = one(text);
    let size = |at: &Option<At<u64>>| at.as_ref().map_or(1, |a| a.value);
    let c = &d.command;
    (
        m.platform,
        c.model.as_ref().map(|m| m.value.clone()).unwrap_or_default(),
        size(&c.tp),
        size(&c.pp),
        size(&c.data_parallel),
        d.replicas,
        d.pods,
        d.gpus_per_pod.as_ref().map(|g| g.value),
        c.settings.max_model_len,
    )
}

fn codes(text: &str) -> Vec<(u32, &'static str)> {
    let found = read(text).expect("yaml");
    let of = |m: &Manifest| {
        m.findings
            .iter()
            .chain(m.deployments.iter().flat_map(|d| &d.command.findings))
            .filter(|f| f.severity == Severity::Fail)
            .map(|f| (f.line, f.code))
            .collect::<Vec<_>>()
    };
    found.iter().flat_map(of).collect()
}

#[test]
fn helm_values_of_production_stack() {
    let text = "servingEngineSpec:
  modelSpec:
    - name: a
      modelURL: org/m
      replicaCount: 2
      requestGPU: 8
      vllmConfig:
        tensorParallelSize: 8
        pipelineParallelSize: 2
        maxModelLen: 32768
        extraArgs: [\"--kv-cache-dtype\", \"fp8\"]
";
    assert_eq!(brief(text), ("production-stack", "org/m".to_owned(), 8, 2, 1, 2, 1, Some(8), Some(32768)));
    assert_eq!(codes(text), [(9, "productionstack_pp_needs_ray"), (6, "gpu_count_mismatch")]);
    assert_eq!(one(text).1.command.settings.kv_cache_dtype, "fp8");
    let ray = text.replace("replicaCount: 2", "replicaCount: 1\n      raySpec: {enabled: true}");
    assert_eq!(codes(&ray), []);
}

#[test]
fn llm_d_roles_and_their_split() {
    let text = "multinode: true
modelArtifacts: { name: org/m, uri: \"hf://org/m\" }
decode:
  create: true
  replicas: 3
  parallelism: { tensor: 1, data: 16, dataLocal: 8, workers: 2 }
  containers:
    - name: vllm
      modelCommand: vllmServe
      args: [\"--enable-expert-parallel\", \"--max-model-len\", \"32768\"]
prefill: { create: false }
";
    assert_eq!(brief(text), ("llm-d", "org/m".to_owned(), 1, 1, 16, 3, 2, Some(8), Some(32768)));
    assert_eq!(codes(text), []);
    assert_eq!(codes(&text.replace("workers: 2", "workers: 3")), [(6, "modelservice_data_split")]);
    let stages = text.replace("\"--enable-expert-parallel\"", "\"--pipeline-parallel-size=2\"");
    assert_eq!(codes(&stages), [(10, "modelservice_no_pp_field"), (6, "gpu_count_mismatch")]);
}

#[test]
fn kserve_drops_stages_and_refuses_some_pairs() {
    let text = "apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: { name: r1 }
spec:
  model: { uri: \"hf://org/m\", name: org/m }
  replicas: 2
  parallelism: { tensor: 8, pipeline: 2 }
  template:
    containers:
      - name: main
        env: [{ name: VLLM_ADDITIONAL_ARGS, value: \"--max-model-len 32768\" }]
        resources: { limits: { nvidia.com/gpu: \"8\" } }
  worker:
    containers: [{ name: main, resources: { limits: { nvidia.com/gpu: \"8\" } } }]
";
    assert_eq!(brief(text), ("kserve", "org/m".to_owned(), 8, 2, 1, 2, 2, Some(8), Some(32768)));
    assert_eq!(codes(text), [(7, "kserve_pp_not_in_preset")]);
    let carried = text.replace("--max-model-len 32768", "--max-model-len 32768 --pipeline-parallel-size 2");
    assert_eq!(codes(&carried), []);
    let both = text.replace("pipeline: 2", "pipeline: 2, data: 2");
    assert!(codes(&both).contains(&(7, "kserve_pp_with_dp")));
    assert!(codes(&both).contains(&(7, "kserve_data_without_local")));
    assert!(codes(&text.replace(", pipeline: 2", "")).contains(&(14, "kserve_worker_without_parallelism")));
    assert!(
        codes(&text.replace("- name: main\n        env", "- name: other\n        env"))
            .contains(&(10, "kserve_container_not_main"))
    );
}

#[test]
fn leader_worker_sets_and_plain_pods() {
    let text = "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: { name: big }
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: vllm/vllm-openai:v0.33.0
            command: [sh, -c, \"ray start --head; vllm serve org/m --tensor-parallel-size 8 --pipeline-parallel-size 2\"]
            resources: { limits: { nvidia.com/gpu: \"8\" } }
    workerTemplate: { spec: { containers: [ { name: worker, image: x, args: [\"...\"] } ] } }
";
    assert_eq!(brief(text), ("leader-worker-set", "org/m".to_owned(), 8, 2, 1, 2, 2, Some(8), None));
    assert_eq!(one(text).1.command.settings.version, "0.33.0");
    assert_eq!(codes(&text.replace("size: 2", "size: 1")), [(14, "gpu_count_mismatch")]);
    let pod = "kind: Deployment
spec:
  replicas: 4
  template:
    spec:
      containers:
        - image: vllm/vllm-openai:v0.20.0
          args:
            - --model=org/m
            - --max-model-len 4096
          resources: {limits: {nvidia.com/gpu: 1}}
";
    assert_eq!(brief(pod), ("kubernetes", "org/m".to_owned(), 1, 1, 1, 4, 1, Some(1), Some(4096)));
    assert_eq!(codes(pod), [(10, "flag_and_value_in_one_word")]);
}

#[test]
fn ray_and_dynamo() {
    let ray = "applications:
  - name: plan
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: { model_id: plan, model_source: org/m }
          accelerator_type: H100
          engine_kwargs: { tensor_parallel_size: 4, pipeline_parallel_size: 2, max_model_len: 32768, enable_prefix_caching: false }
          deployment_config: { num_replicas: 2 }
          placement_group_config: { bundles: [{GPU: 1}, {GPU: 1}] }
";
    assert_eq!(brief(ray), ("ray-serve", "org/m".to_owned(), 4, 2, 1, 2, 1, None, Some(32768)));
    assert_eq!(codes(ray), [(10, "gpu_count_mismatch")]);
    assert_eq!(one(ray).1.command.settings.enable_prefix_caching, Some(false));
    let inner = ray.lines().map(|l| format!("    {l}")).collect::<Vec<_>>().join("\n");
    let service = format!("kind: RayService\nspec:\n  serveConfigV2: |\n{inner}\n");
    assert_eq!(brief(&service), brief(ray));
    let dynamo = "kind: DynamoGraphDeployment
spec:
  services:
    Frontend: { componentType: frontend, replicas: 1 }
    Prefill:
      componentType: worker
      subComponentType: prefill
      replicas: 2
      resources: { limits: { gpu: \"4\" } }
      extraPodSpec: { mainContainer: { image: x, args: [\"--model\", \"org/m\", \"--tensor-parallel-size\", \"4\"] } }
    Decode:
      componentType: worker
      subComponentType: decode
      resources: { limits: { gpu: \"8\" } }
      multinode: { nodeCount: 2 }
      extraPodSpec: { mainContainer: { image: x, command: [python3, -m, dynamo.vllm], args: [\"--model\", \"org/m\", \"--data-parallel-size\", \"16\"] } }
";
    let (m, first) = one(dynamo);
    let roles: Vec<_> = m.deployments.iter().map(|d| (d.role.as_str(), d.gpus())).collect();
    assert_eq!(
        (m.platform, first.replicas, roles),
        ("dynamo", 2, vec![("prefill", Some(4)), ("decode", Some(16))])
    );
    assert_eq!(codes(dynamo), []);
}

#[test]
fn other_files_with_an_engine_in_them() {
    let sky = "resources: { accelerators: \"H100:8\", ports: 8000 }\nservice: { replica_policy: { min_replicas: 2 } }\nrun: vllm serve org/m --tensor-parallel-size 8\n";
    assert_eq!(brief(sky), ("skypilot", "org/m".to_owned(), 8, 1, 1, 2, 1, Some(8), None));
    let compose = "services:\n  v:\n    image: vllm/vllm-openai:v0.33.0\n    command: --model org/m --tensor-parallel-size 2\n";
    assert_eq!(brief(compose), ("compose", "org/m".to_owned(), 2, 1, 1, 1, 1, None, None));
    let options = "tensor_parallel_size: 8\nenable_attention_dp: true\nkv_cache_config: { free_gpu_memory_fraction: 0.8, tokens_per_block: 32 }\n";
    let (m, d) = one(options);
    assert_eq!(
        (m.platform, d.command.settings.name.as_str(), d.command.settings.block_size),
        ("engine-settings", "tensorrt-llm", Some(32))
    );
    assert_eq!(d.command.attention_dp.map(|a| a.value), Some(8));
    assert!(read("kind: Service\nspec: {ports: [80]}\n").expect("yaml").is_empty());
    assert!(read("just a text").expect("yaml").is_empty());
}

#[test]
fn inference_services_with_a_runtime_or_a_container() {
    let text = "apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: { name: llm }
spec:
  predictor:
    minReplicas: 2
    model:
      modelFormat: { name: huggingface }
      args:
        - --model_name=llm
        - --model_id=org/m
        - --backend=vllm
        - --tensor-parallel-size=4
        - --max-model-len=8192
      resources: { limits: { nvidia.com/gpu: \"4\" } }
";
    assert_eq!(
        brief(text),
        ("kserve-inference-service", "org/m".to_owned(), 4, 1, 1, 2, 1, Some(4), Some(8192))
    );
    assert_eq!(codes(text), []);
    assert_eq!(codes(&text.replace("\"4\"", "\"2\"")), [(15, "gpu_count_mismatch")]);
    let nodes = "kind: InferenceService
spec:
  predictor:
    model:
      modelFormat: { name: huggingface }
      storageUri: hf://org/m
      env: [{ name: PIPELINE_PARALLEL_SIZE, value: \"2\" }]
      resources: { limits: { nvidia.com/gpu: \"8\" } }
    workerSpec: { tensorParallelSize: 8, pipelineParallelSize: 2 }
";
    assert_eq!(brief(nodes), ("kserve-inference-service", "org/m".to_owned(), 8, 2, 1, 1, 2, Some(8), None));
    assert_eq!(codes(nodes), [(7, "kserve_size_by_environment")]);
    let other =
        "kind: InferenceService\nspec: { predictor: { model: { modelFormat: { name: sklearn } } } }\n";
    assert!(read(other).expect("yaml").is_empty());
}

#[test]
fn requests_to_dynamo_are_judged_by_what_they_start_from() {
    let text = "apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeploymentRequest
spec:
  model: org/m
  hardware: { gpuSku: h100_sxm, totalGpus: 16, numGpusPerNode: 8 }
  workload: { isl: 4000, osl: 500, concurrency: 8 }
  sla: { ttft: 500, itl: 20 }
";
    let found = read(text).expect("yaml");
    assert_eq!(found[0].findings.iter().map(|f| f.code).collect::<Vec<_>>(), ["layout_chosen_by_dynamo"]);
    let wrong = text
        .replace("concurrency: 8", "concurrency: 8, requestRate: 2")
        .replace("itl: 20", "itl: 0")
        .replace("totalGpus: 16", "totalGpus: 12");
    assert_eq!(
        codes(&wrong),
        [(6, "dgdr_two_loads"), (7, "dgdr_limit_not_positive"), (5, "dgdr_gpus_per_node")]
    );
    let graph = format!(
        "{text}  overrides:
    dgd:
      kind: DynamoGraphDeployment
      spec:
        services:
          P:
            componentType: worker
            resources: {{ limits: {{ gpu: \"8\" }} }}
            extraPodSpec: {{ mainContainer: {{ image: x, args: [\"--model\", \"org/m\", \"-tp\", \"8\", \"--disaggregation-mode\", \"prefill\"] }} }}
"
    );
    let (m, d) = one(&graph);
    assert_eq!((m.platform, d.role.as_str(), d.gpus()), ("dynamo-request", "prefill", Some(8)));
}

#[test]
fn halves_are_told_by_the_engines_own_flags() {
    let of = |args: &str| {
        let text = format!("kind: Pod\nspec:\n  containers:\n    - command: [sh, -c, \"{args}\"]\n");
        let (_, d) = one(&text);
        (d.role, d.command.connector.unwrap_or_default())
    };
    let told = |role: &str, connector: &str| (role.to_owned(), connector.to_owned());
    for (args, role, connector) in [
        (
            "vllm serve m --kv-transfer-config '{\\\"kv_connector\\\":\\\"NixlConnector\\\",\\\"kv_role\\\":\\\"kv_producer\\\"}'",
            "prefill",
            "nixl",
        ),
        (
            "vllm serve m --kv-transfer-config '{\\\"kv_connector\\\":\\\"LMCacheConnectorV1\\\",\\\"kv_role\\\":\\\"kv_consumer\\\"}'",
            "decode",
            "lmcache",
        ),
        (
            "vllm serve m --kv-transfer-config '{\\\"kv_connector\\\":\\\"NixlConnector\\\",\\\"kv_role\\\":\\\"kv_both\\\"}'",
            "both",
            "nixl",
        ),
        (
            "python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --disaggregation-transfer-backend mooncake",
            "decode",
            "mooncake",
        ),
        ("python3 -m dynamo.trtllm --model-path m --disaggregation-mode prefill", "prefill", ""),
        ("python3 -m dynamo.vllm --model m --is-prefill-worker", "prefill", ""),
    ] {
        assert_eq!(of(args), told(role, connector), "{args}");
    }
    assert!(
        read("kind: Pod\nspec: {containers: [{command: [trtllm-serve, disaggregated, -c, f.yaml]}]}\n")
            .expect("yaml")
            .is_empty()
    );
}
