//! Files for the platforms that run engines.
//!
//! A layout that a platform cannot express is told with a reason, never written with a loss. Each platform says which
//! release its fields were read from.

mod charts;
mod containers;
mod dynamo;
mod groups;
mod kserve;
mod mpi;
mod pair;
mod pod;
mod predictor;
mod ray;
mod request;
mod site;
mod sky;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Engine, Role};
use crate::planner::input::PlanInput;
use crate::planner::plan::{Plan, RankedLayout};
use pair::Pair;
use site::Site;

/// A platform that layouts are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Command,
    Kubernetes,
    LeaderWorkerSet,
    ProductionStack,
    LlmD,
    LlmDKustomize,
    KServe,
    InferenceService,
    Dynamo,
    DynamoRequest,
    RayServe,
    SkyPilot,
    AiBrix,
    GpuStack,
    JobSet,
    SglangRouter,
    Compose,
}

/// What is known of a platform.
struct Known {
    platform: Platform,
    name: &'static str,
    api_version: &'static str,
    verified_against: &'static str,
}

const KNOWN: &[Known] = &[
    known(Platform::Command, "command", "shell", "the engines' own releases"),
    known(Platform::Kubernetes, "kubernetes", "apps/v1", "Kubernetes apps/v1"),
    known(
        Platform::LeaderWorkerSet,
        "leader-worker-set",
        "leaderworkerset.x-k8s.io/v1",
        "kubernetes-sigs/lws 060ab4d",
    ),
    known(
        Platform::ProductionStack,
        "production-stack",
        "chart vllm-stack 0.1.12",
        "vllm-project/production-stack a6c01db (2026-08-05)",
    ),
    known(
        Platform::LlmD,
        "llm-d",
        "chart llm-d-modelservice 0.4.12",
        "llm-d-incubation/llm-d-modelservice 3051935 (2026-04-22)",
    ),
    known(
        Platform::LlmDKustomize,
        "llm-d-kustomize",
        "llm-d guides 0.9 to 0.10",
        "the llm-d template of ai-dynamo/aiconfigurator 095f58a; the guides themselves were not seen",
    ),
    known(
        Platform::KServe,
        "kserve",
        "serving.kserve.io/v1alpha2",
        "kserve/kserve aaac4e2 (2026-08-21, 0.20.0)",
    ),
    known(Platform::Dynamo, "dynamo", "nvidia.com/v1alpha1", "ai-dynamo 1.6.1, recipes 6fc72511"),
    known(
        Platform::InferenceService,
        "kserve-inference-service",
        "serving.kserve.io/v1beta1",
        "kserve/kserve aaac4e2 (2026-08-21, 0.20.0)",
    ),
    known(
        Platform::DynamoRequest,
        "dynamo-request",
        "nvidia.com/v1beta1",
        "ai-dynamo 1.6.1, request types 007640b",
    ),
    known(Platform::RayServe, "ray-serve", "LLMConfig", "ray 2.60.0"),
    known(Platform::SkyPilot, "skypilot", "task YAML", "skypilot 0.14.1"),
    known(
        Platform::AiBrix,
        "aibrix",
        "orchestration.aibrix.ai/v1alpha1",
        "vllm-project/aibrix e3e10f9 (0.7.0 candidates)",
    ),
    known(Platform::GpuStack, "gpustack", "model create body", "gpustack/gpustack 47277d7 (after 2.2.2)"),
    known(Platform::JobSet, "jobset", "jobset.x-k8s.io/v1alpha2", "kubernetes-sigs/jobset 08dfbdf"),
    known(Platform::SglangRouter, "sglang-router", "shell", "sglang-router 0.3.2"),
    known(Platform::Compose, "compose", "Compose Specification", "Docker Compose v2"),
];

const fn known(
    platform: Platform,
    name: &'static str,
    api_version: &'static str,
    verified_against: &'static str,
) -> Known {
    Known { platform, name, api_version, verified_against }
}

impl Platform {
    /// All of them, under their names.
    #[must_use]
    pub fn named() -> Vec<(&'static str, Self)> {
        KNOWN.iter().map(|known| (known.name, known.platform)).collect()
    }

    fn known(self) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.platform == self)
    }

    /// Its name in requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.known().map_or("", |known| known.name)
    }

    /// The version of its fields.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        self.known().map_or("", |known| known.api_version)
    }

    /// Where its fields were read.
    #[must_use]
    pub fn verified_against(self) -> &'static str {
        self.known().map_or("", |known| known.verified_against)
    }
}

/// What a caller may choose about the files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choices {
    /// Name of the deployment; from the model otherwise.
    pub name: Option<String>,
    /// Container image; the engine's own otherwise.
    pub image: Option<String>,
    /// Resource by which GPUs are asked for; by vendor and slice otherwise.
    pub gpu_resource: Option<String>,
    /// Resource of RDMA devices, e.g. `rdma/ib`: asked for where a replica leaves its node.
    pub rdma_resource: Option<String>,
    /// Kueue queue.
    pub queue: Option<String>,
    /// Release of the engine as the caller named it.
    pub release: Option<String>,
}

/// A pool of prefill workers beside the layout, which then runs the decode workers.
#[derive(Debug, Clone, Copy)]
pub struct PrefillPool<'a> {
    /// The answer to the same question with the pool's sizes, and its layout.
    pub plan: &'a Plan,
    pub layout: &'a RankedLayout,
    /// What carries the cache, one of [`connectors`].
    pub connector: &'a str,
    /// Both halves lie on one node: the decode workers' first GPU.
    pub decode_from: Option<u64>,
}

/// What may carry the cache of an engine from prefill to decode, the usual one first.
#[must_use]
pub fn connectors(engine: &str) -> &'static [&'static str] {
    Engine::of(engine).map_or(&[], super::pair::connectors)
}

/// A file of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LaunchFile {
    pub name: String,
    /// `application/yaml`, `application/json`, `application/x-sh`.
    pub media_type: &'static str,
    pub text: String,
}

impl LaunchFile {
    fn yaml(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), media_type: "application/yaml", text }
    }

    fn shell(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), media_type: "application/x-sh", text }
    }
}

/// The files of a platform, and what to know about them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    pub files: Vec<LaunchFile>,
    pub notes: Vec<String>,
}

/// Why a platform cannot express a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Inexpressible {
    /// Stable code, e.g. `kserve_pp_with_dp`, `modelservice_no_pp_field`.
    pub code: &'static str,
    pub message: String,
}

impl Inexpressible {
    fn because(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Write a layout of `plan`, the answer to `input`, and a pool of prefill workers before it.
///
/// # Errors
/// [`Inexpressible`] when the platform has no place for something of it.
pub fn write_pair(
    input: &PlanInput,
    plan: &Plan,
    layout: &RankedLayout,
    prefill: PrefillPool<'_>,
    platform: Platform,
    choices: &Choices,
) -> Result<Written, Inexpressible> {
    let site = |plan, layout| Site::of(input, plan, layout, platform, choices);
    let first = prefill.decode_from.map(|_| 0);
    pair::write(
        &Pair {
            whole: site(plan, layout)?,
            prefill: site(prefill.plan, prefill.layout)?.half(Role::Prefill, prefill.connector, first),
            decode: site(plan, layout)?.half(Role::Decode, prefill.connector, prefill.decode_from),
        },
        platform,
    )
}

/// Write a layout of `plan`, the answer to `input`, for a platform.
///
/// # Errors
/// [`Inexpressible`] when the platform has no place for something of it.
pub fn write(
    input: &PlanInput,
    plan: &Plan,
    layout: &RankedLayout,
    platform: Platform,
    choices: &Choices,
) -> Result<Written, Inexpressible> {
    let site = Site::of(input, plan, layout, platform, choices)?;
    let mut written = match platform {
        Platform::Command => Ok(sky::command(&site)),
        Platform::SglangRouter => sky::sglang_router(&site),
        Platform::SkyPilot => sky::skypilot(&site),
        Platform::Kubernetes => groups::deployment(&site),
        Platform::LeaderWorkerSet => groups::leader_worker_set(&site),
        Platform::AiBrix => groups::aibrix(&site),
        Platform::JobSet => groups::jobset(&site),
        Platform::ProductionStack => charts::production_stack(&site),
        Platform::LlmD => charts::llm_d(&site),
        Platform::LlmDKustomize => charts::llm_d_kustomize(&site),
        Platform::GpuStack => charts::gpustack(&site),
        Platform::KServe => kserve::inference_service(&site),
        Platform::InferenceService => predictor::inference_service(&site),
        Platform::Dynamo => dynamo::graph(&site),
        Platform::DynamoRequest => request::request(&site, plan),
        Platform::RayServe => ray::serve(&site),
        Platform::Compose => containers::compose(&site),
    }?;
    written.notes.extend(site.notes());
    Ok(written)
}
