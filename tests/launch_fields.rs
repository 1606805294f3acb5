//! The fields of what is written, platform by platform: their names, and the traps that each platform lays.

use serde_json::{Value, json};
use shardwise::ingest::json::Document;
use shardwise::ingest::yaml::{self, Node};
use shardwise::launch::platform::Platform;
use shardwise::service::launches::{PlatformLaunch, launches_offline};

fn documents(launch: &PlatformLaunch) -> Vec<Node> {
    yaml::read(&launch.files[0].text).expect("YAML")
}

/// The node at a path, list items by number, in the document of a kind.
fn at<'n>(documents: &'n [Node], kind: &str, path: &str) -> Option<&'n Node> {
    let document =
        documents.iter().find(|d| kind.is_empty() || d.get("kind").and_then(Node::text) == Some(kind))?;
    path.split('/').try_fold(document, |node, key| match key.parse::<usize>() {
        Ok(index) => node.items().get(index),
        Err(_) => node.get(&key.replace('~', "/")),
    })
}

/// Platform, layout, kind of the object, and (path, value): `*` stands for any value.
type Fields = (&'static str, Value, &'static str, &'static [(&'static str, &'static str)]);

#[test]
fn fields_are_those_of_each_platform() {
    let one = || json!({"tp": 8, "dp": 2});
    let stages = || json!({"tp": 8, "pp": 2});
    let groups = || json!({"tp": 1, "attention_dp": 16, "ep": 16});
    let cases: Vec<Fields> = vec![
        (
            "kubernetes",
            one(),
            "Deployment",
            &[
                ("apiVersion", "apps/v1"),
                ("spec/replicas", "2"),
                ("metadata/annotations/planner~expected-kv-tokens", "*"),
                ("spec/template/spec/containers/0/resources/limits/nvidia.com~gpu", "8"),
                ("spec/template/spec/containers/0/startupProbe/failureThreshold", "*"),
                ("spec/template/spec/containers/0/livenessProbe/httpGet/path", "/health"),
                ("spec/template/spec/volumes/0/emptyDir/medium", "Memory"),
                ("spec/template/spec/volumes/0/emptyDir/sizeLimit", "16Gi"),
            ],
        ),
        (
            "leader-worker-set",
            stages(),
            "LeaderWorkerSet",
            &[
                ("apiVersion", "leaderworkerset.x-k8s.io/v1"),
                ("spec/replicas", "1"),
                ("spec/leaderWorkerTemplate/size", "2"),
                ("spec/leaderWorkerTemplate/restartPolicy", "RecreateGroupOnPodRestart"),
                (
                    "spec/leaderWorkerTemplate/leaderTemplate/spec/containers/0/startupProbe/periodSeconds",
                    "10",
                ),
                ("spec/leaderWorkerTemplate/leaderTemplate/spec/containers/0/resources/limits/rdma~ib", "1"),
                (
                    "spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/resources/limits/nvidia.com~gpu",
                    "8",
                ),
                (
                    "spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/securityContext/capabilities/add/0",
                    "IPC_LOCK",
                ),
            ],
        ),
        (
            "production-stack",
            one(),
            "",
            &[
                ("servingEngineSpec/modelSpec/0/replicaCount", "2"),
                ("servingEngineSpec/modelSpec/0/requestGPU", "8"),
                ("servingEngineSpec/modelSpec/0/requestGPUType", "nvidia.com/gpu"),
                ("servingEngineSpec/modelSpec/0/repository", "vllm/vllm-openai"),
                ("servingEngineSpec/modelSpec/0/tag", "v0.33.0"),
                ("servingEngineSpec/modelSpec/0/shmSize", "16Gi"),
                ("servingEngineSpec/modelSpec/0/vllmConfig/tensorParallelSize", "8"),
                ("servingEngineSpec/modelSpec/0/vllmConfig/maxModelLen", "16384"),
                ("servingEngineSpec/modelSpec/0/vllmConfig/gpuMemoryUtilization", "*"),
                ("servingEngineSpec/modelSpec/0/vllmConfig/extraArgs/0", "--kv-cache-dtype"),
            ],
        ),
        (
            "production-stack",
            stages(),
            "",
            &[
                // the trap: without Ray the value of P is passed over in silence
                ("servingEngineSpec/modelSpec/0/raySpec/enabled", "true"),
                ("servingEngineSpec/modelSpec/0/raySpec/headNode/requestGPU", "8"),
                ("servingEngineSpec/modelSpec/0/replicaCount", "1"),
                ("servingEngineSpec/modelSpec/0/vllmConfig/pipelineParallelSize", "2"),
            ],
        ),
        (
            "llm-d",
            groups(),
            "",
            &[
                ("multinode", "true"),
                ("modelArtifacts/uri", "hf://deepseek-ai/DeepSeek-V3.1"),
                ("decode/parallelism/tensor", "1"),
                ("decode/parallelism/data", "16"),
                ("decode/parallelism/dataLocal", "8"),
                ("decode/parallelism/workers", "2"),
                ("decode/containers/0/modelCommand", "vllmServe"),
                ("prefill/create", "false"),
            ],
        ),
        (
            "llm-d-kustomize",
            one(),
            "Deployment",
            &[("spec/template/spec/containers/0/name", "modelserver"), ("spec/replicas", "2")],
        ),
        (
            "kserve",
            groups(),
            "LLMInferenceService",
            &[
                ("apiVersion", "serving.kserve.io/v1alpha2"),
                ("spec/parallelism/data", "16"),
                ("spec/parallelism/dataLocal", "8"),
                ("spec/parallelism/expert", "true"),
                ("spec/template/containers/0/name", "main"),
                ("spec/template/containers/0/env/0/name", "VLLM_ADDITIONAL_ARGS"),
                ("spec/worker/containers/0/resources/limits/nvidia.com~gpu", "8"),
                ("spec/router/scheduler", "*"),
            ],
        ),
        (
            "kserve",
            stages(),
            "LLMInferenceService",
            &[
                // the trap: no preset passes the pipeline on, so the command is our own
                ("spec/parallelism/pipeline", "2"),
                ("spec/template/containers/0/command/0", "sh"),
                ("spec/worker/containers/0/command/0", "sh"),
            ],
        ),
        (
            "dynamo",
            stages(),
            "DynamoGraphDeployment",
            &[
                ("apiVersion", "nvidia.com/v1alpha1"),
                ("spec/backendFramework", "vllm"),
                ("spec/services/Frontend/componentType", "frontend"),
                ("spec/services/Worker/multinode/nodeCount", "2"),
                ("spec/services/Worker/resources/limits/gpu", "8"),
                ("spec/services/Worker/sharedMemory/size", "16Gi"),
                ("spec/services/Worker/extraPodSpec/mainContainer/command/2", "dynamo.vllm"),
            ],
        ),
        (
            "dynamo-request",
            one(),
            "DynamoGraphDeploymentRequest",
            &[
                ("apiVersion", "nvidia.com/v1beta1"),
                ("spec/backend", "vllm"),
                ("spec/hardware/gpuSku", "h200_sxm"),
                ("spec/hardware/totalGpus", "16"),
                ("spec/hardware/numGpusPerNode", "8"),
                ("spec/workload/isl", "*"),
                ("spec/workload/osl", "*"),
                ("spec/workload/concurrency", "*"),
                ("spec/sla/optimizationType", "throughput"),
                ("spec/searchStrategy", "rapid"),
                // the trap: what Dynamo finds would otherwise be deployed unseen
                ("spec/autoApply", "false"),
                ("spec/overrides/dgd/kind", "DynamoGraphDeployment"),
            ],
        ),
        (
            "kserve-inference-service",
            one(),
            "InferenceService",
            &[
                ("apiVersion", "serving.kserve.io/v1beta1"),
                ("metadata/annotations/serving.kserve.io~deploymentMode", "Standard"),
                ("spec/predictor/minReplicas", "2"),
                ("spec/predictor/maxReplicas", "2"),
                ("spec/predictor/containers/0/name", "kserve-container"),
                ("spec/predictor/containers/0/ports/0/containerPort", "8000"),
                ("spec/predictor/containers/0/resources/limits/nvidia.com~gpu", "8"),
            ],
        ),
        (
            "ray-serve",
            stages(),
            "",
            &[
                ("applications/0/import_path", "ray.serve.llm:build_openai_app"),
                ("applications/0/args/llm_configs/0/accelerator_type", "H200"),
                ("applications/0/args/llm_configs/0/engine_kwargs/pipeline_parallel_size", "2"),
                ("applications/0/args/llm_configs/0/placement_group_config/bundle_per_worker/GPU", "1"),
                ("applications/0/args/llm_configs/0/placement_group_config/strategy", "PACK"),
            ],
        ),
        ("ray-serve", groups(), "", &[("applications/0/import_path", "ray.serve.llm:build_dp_openai_app")]),
        (
            "skypilot",
            one(),
            "",
            &[
                ("resources/accelerators", "H200:8"),
                ("num_nodes", "1"),
                ("service/readiness_probe/path", "/health"),
                ("service/readiness_probe/initial_delay_seconds", "*"),
                ("service/replica_policy/min_replicas", "2"),
                ("service/replica_policy/target_qps_per_replica", "*"),
            ],
        ),
        (
            "aibrix",
            stages(),
            "StormService",
            &[
                ("apiVersion", "orchestration.aibrix.ai/v1alpha1"),
                ("spec/template/spec/roles/0/podGroupSize", "2"),
                ("spec/template/spec/roles/0/stateful", "true"),
                ("spec/template/spec/roles/0/template/metadata/labels/model.aibrix.ai~engine", "vllm"),
            ],
        ),
        (
            "gpustack",
            one(),
            "",
            &[
                ("source", "huggingface"),
                ("backend", "vLLM"),
                ("backend_parameters/0", "--tensor-parallel-size=8"),
                ("gpu_selector/gpus_per_replica", "8"),
            ],
        ),
        (
            "jobset",
            stages(),
            "JobSet",
            &[
                ("apiVersion", "jobset.x-k8s.io/v1alpha2"),
                ("metadata/labels/kueue.x-k8s.io~queue-name", "team"),
                ("spec/replicatedJobs/0/template/spec/parallelism", "2"),
                ("spec/replicatedJobs/0/template/spec/completions", "2"),
                ("spec/replicatedJobs/0/template/spec/completionMode", "Indexed"),
            ],
        ),
        (
            "compose",
            one(),
            "",
            &[
                ("services/deepseek-v3-1/shm_size", "16gb"),
                ("services/deepseek-v3-1/deploy/resources/reservations/devices/0/device_ids/7", "7"),
                ("services/deepseek-v3-1/healthcheck/start_period", "*"),
            ],
        ),
    ];
    let mut seen: Vec<&str> = vec!["command", "sglang-router"];
    for (platform, layout, kind, fields) in &cases {
        let question = json!({"model": "deepseek-ai/DeepSeek-V3.1", "cluster": "2x8 H200", "layout": layout,
            "engine": {"max_model_len": 16384}, "platforms": [platform], "rdma_resource": "rdma/ib", "queue": "team"});
        let document = Document { value: question, duplicates: Vec::new() };
        let answer = launches_offline(&document).unwrap_or_else(|e| panic!("{platform} {layout}: {e}"));
        let launch = &answer.launches[0];
        assert!(launch.refused.is_none(), "{platform} {layout}: {:?}", launch.refused);
        let found = documents(launch);
        for (path, meant) in *fields {
            let node = at(&found, kind, path);
            assert!(node.is_some(), "{platform}: {path} is missing in\n{}", launch.files[0].text);
            let text = node.and_then(Node::text).unwrap_or_default();
            assert!(*meant == "*" || text == *meant, "{platform}: {path} is {text:?}, not {meant:?}");
        }
        seen.push(platform);
    }
    for (platform, _) in Platform::named() {
        assert!(seen.contains(&platform), "no field of {platform} is looked at");
    }
}

/// Both halves of a pair, platform by platform: the place of each, and what says which half it is.
#[test]
fn pairs_have_a_place_for_each_half() {
    type Pairs = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);
    let cases: &[Pairs] = &[
        (
            "dynamo",
            "vllm",
            "DynamoGraphDeployment",
            &[
                ("spec/services/Prefill/componentType", "worker"),
                ("spec/services/Prefill/subComponentType", "prefill"),
                ("spec/services/Prefill/replicas", "2"),
                ("spec/services/Prefill/resources/limits/gpu", "4"),
                ("spec/services/Decode/subComponentType", "decode"),
                ("spec/services/Decode/resources/limits/gpu", "8"),
                ("spec/services/Frontend/componentType", "frontend"),
            ],
        ),
        ("dynamo", "tensorrt-llm", "DynamoGraphDeployment", &[("spec/backendFramework", "trtllm")]),
        (
            "llm-d",
            "vllm",
            "",
            &[
                ("multinode", "false"),
                ("routing/proxy/connector", "nixlv2"),
                ("prefill/create", "true"),
                ("prefill/replicas", "2"),
                ("prefill/parallelism/tensor", "4"),
                ("prefill/containers/0/modelCommand", "vllmServe"),
                ("prefill/containers/0/env/0/name", "VLLM_NIXL_SIDE_CHANNEL_HOST"),
                ("decode/create", "true"),
                ("decode/parallelism/tensor", "8"),
            ],
        ),
        (
            "kserve",
            "vllm",
            "LLMInferenceService",
            &[
                ("spec/prefill/replicas", "2"),
                ("spec/prefill/parallelism/tensor", "4"),
                ("spec/prefill/template/containers/0/name", "main"),
                ("spec/parallelism/tensor", "8"),
                ("spec/replicas", "1"),
                ("spec/router/scheduler", "*"),
            ],
        ),
        (
            "aibrix",
            "sglang",
            "StormService",
            &[
                ("spec/template/spec/roles/0/name", "prefill"),
                ("spec/template/spec/roles/0/replicas", "2"),
                ("spec/template/spec/roles/1/name", "decode"),
            ],
        ),
        (
            "ray-serve",
            "vllm",
            "",
            &[
                ("applications/0/import_path", "ray.serve.llm:build_pd_openai_app"),
                (
                    "applications/0/args/prefill_config/engine_kwargs/kv_transfer_config/kv_role",
                    "kv_producer",
                ),
                (
                    "applications/0/args/decode_config/engine_kwargs/kv_transfer_config/kv_connector",
                    "NixlConnector",
                ),
            ],
        ),
        ("kubernetes", "sglang", "Deployment", &[("metadata/name", "deepseek-v3-1-prefill")]),
        ("leader-worker-set", "vllm", "LeaderWorkerSet", &[("metadata/name", "deepseek-v3-1-prefill")]),
    ];
    for (platform, engine, kind, fields) in cases {
        let question = json!({"model": "deepseek-ai/DeepSeek-V3.1", "cluster": "4x8 H200",
            "layout": {"tp": 8}, "prefill": {"tp": 8, "dp": 2},
            "engine": {"name": engine, "max_model_len": 16384}, "platforms": [platform]});
        // the smaller half of a model that fits four GPUs
        let small = json!({"model": "meta-llama/Llama-3.1-70B-Instruct", "cluster": "4x8 H200", "name": "deepseek-v3-1",
            "layout": {"tp": 8}, "prefill": {"tp": 4, "dp": 2},
            "engine": {"name": engine, "max_model_len": 16384}, "platforms": [platform]});
        for question in [question, small.clone()] {
            let exact = question == small;
            let answer = launches_offline(&Document { value: question, duplicates: Vec::new() })
                .unwrap_or_else(|e| panic!("{platform}: {e}"));
            let launch = &answer.launches[0];
            assert!(launch.refused.is_none(), "{platform}: {:?}", launch.refused);
            let found = documents(launch);
            for (path, meant) in *fields {
                let node = at(&found, kind, path);
                assert!(node.is_some(), "{platform}: {path} is missing in\n{}", launch.files[0].text);
                let text = node.and_then(Node::text).unwrap_or_default();
                assert!(
                    !exact || *meant == "*" || text == *meant,
                    "{platform}: {path} is {text:?}, not {meant:?}"
                );
            }
        }
    }
}
