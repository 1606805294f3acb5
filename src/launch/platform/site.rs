//! What every platform's writer needs to know of a layout: names, images, shares of a replica.

use super::{Choices, Inexpressible, Platform};
use crate::launch::spread::Spread;
use crate::launch::start::Start;
use crate::launch::{Engine, Role, Wanted, commands, pool, vllm};
use crate::planner::engine;
use crate::planner::input::PlanInput;
use crate::planner::plan::{Plan, RankedLayout};
use crate::planner::units::grouped;

/// Where files of settings are mounted in a container.
pub(super) const OPTIONS_FOLDER: &str = "/etc/engine";
/// The port that every engine is told to serve on.
pub(super) const PORT: u64 = 8000;
/// Longest name of an object, so that what controllers append still makes a label of 63.
const NAME_CHARS: usize = 40;

/// A layout to be written for a platform.
pub(super) struct Site<'a> {
    pub wanted: Wanted<'a>,
    pub choices: &'a Choices,
    pub platform: Platform,
    pub name: String,
    /// Equal shares of a replica on nodes or pods.
    pub spread: Option<Spread>,
    /// Catalogue key of the GPU.
    pub gpu: &'a str,
    vendor: &'a str,
    slice: bool,
    /// The link between nodes.
    fabric: &'a str,
    /// Weights of a whole replica.
    pub weights_bytes: u64,
}

impl<'a> Site<'a> {
    pub(super) fn of(
        input: &'a PlanInput,
        plan: &'a Plan,
        layout: &'a RankedLayout,
        platform: Platform,
        choices: &'a Choices,
    ) -> Result<Self, Inexpressible> {
        let wanted = Wanted::of(input, plan, layout).ok_or_else(|| {
            Inexpressible::because(
                "nothing_to_start",
                format!(
                    "no command of {} is written for a model called {:?}: its name must not look like a flag",
                    layout.engine.name, plan.model.id
                ),
            )
        })?;
        let product = input.cluster.pools.iter().map(|p| &p.gpu).find(|gpu| gpu.key == layout.layout.gpu);
        let weights = layout.memory.stages.iter().map(|s| s.weights_bytes).fold(0, u64::saturating_add);
        let ranks = layout.layout.tp.saturating_mul(layout.layout.attention_dp);
        let name = slug(choices.name.as_deref().unwrap_or(&plan.model.id));
        Ok(Self {
            spread: Spread::of(&wanted),
            wanted,
            choices,
            platform,
            name,
            gpu: &layout.layout.gpu,
            vendor: product.map_or("", |gpu| gpu.vendor.as_str()),
            slice: product.is_some_and(|gpu| gpu.slice_of.is_some()),
            fabric: pool(plan, layout).map_or("", |pool| pool.inter_link.as_str()),
            weights_bytes: weights.saturating_mul(ranks),
        })
    }

    pub(super) fn engine(&self) -> Engine {
        self.wanted.engine
    }

    /// Refuse engines that the platform does not run.
    pub(super) fn only_vllm(&self, code: &'static str) -> Result<(), Inexpressible> {
        if self.engine() == Engine::Vllm {
            return Ok(());
        }
        Err(Inexpressible::because(
            code,
            format!(
                "{} runs vLLM; for {} use leader-worker-set or command",
                self.platform.name(),
                self.wanted.layout.engine.name
            ),
        ))
    }

    /// GPUs are handed out by the platform, which must then be free to take any.
    pub(super) fn any_gpus(&self) -> Result<(), Inexpressible> {
        let replicas = self.wanted.replicas_on_a_node();
        let chosen = self.wanted.layout.placement.devices.first().map_or(0, Vec::len) as u64;
        if chosen == 0 || (chosen == self.wanted.gpus_per_node && replicas == 1) {
            return Ok(());
        }
        Err(Inexpressible::because(
            "cannot_pin_gpus",
            "the plan rests on certain GPUs of a node with different free memory, and here the device plugin chooses: \
             use command or compose",
        ))
    }

    /// Equal shares over pods.
    pub(super) fn shares(&self) -> Result<Spread, Inexpressible> {
        self.any_gpus()?;
        self.spread.ok_or_else(|| {
            Inexpressible::because(
                "ranks_not_dealt_evenly",
                format!(
                    "{} ranks cannot be dealt out in equal pods of at most {} GPUs: use ray-serve",
                    self.wanted.replica_gpus(),
                    self.wanted.gpus_per_node
                ),
            )
        })
    }

    /// Equal shares that engines without Ray or MPI can run.
    pub(super) fn shares_of_processes(&self) -> Result<Spread, Inexpressible> {
        let spread = self.shares_of_a_group()?;
        if self.engine() == Engine::TensorRtLlm && spread.pods > 1 {
            return Err(Inexpressible::because(
                "trtllm_needs_mpi",
                "TensorRT-LLM starts ranks on several nodes by MPI (trtllm-llmapi-launch): use leader-worker-set, dynamo, or                  command under Slurm",
            ));
        }
        Ok(spread)
    }

    /// Equal shares where a leader may start the ranks of its group by MPI.
    pub(super) fn shares_of_a_group(&self) -> Result<Spread, Inexpressible> {
        let spread = self.shares()?;
        match self.engine() {
            Engine::Vllm
                if spread.pods > 1
                    && self.wanted.layout.layout.attention_dp > 1
                    && spread.groups(&self.wanted).is_none() =>
            {
                Err(Inexpressible::because(
                    "vllm_dp_rank_over_nodes",
                    "a data-parallel rank of vLLM that lies on several nodes needs Ray: use ray-serve",
                ))
            }
            _ => Ok(spread),
        }
    }

    /// Refuse what needs more than one node.
    pub(super) fn on_one_node(&self, code: &'static str) -> Result<u64, Inexpressible> {
        self.any_gpus()?;
        let gpus = self.wanted.replica_gpus();
        if gpus <= self.wanted.gpus_per_node {
            return Ok(gpus);
        }
        Err(Inexpressible::because(
            code,
            format!(
                "a replica needs {gpus} GPUs, a node has {}, and {} starts one process on one node: use leader-worker-set",
                self.wanted.gpus_per_node,
                self.platform.name()
            ),
        ))
    }

    /// Where the file of options lies in a container.
    pub(super) fn options_path(&self) -> String {
        format!("{OPTIONS_FOLDER}/{}", self.wanted.options_file())
    }

    /// The same as one half of a pair, under a name of its own.
    pub(super) fn half(self, role: Role, connector: &'a str, own_from: Option<u64>) -> Self {
        let name = format!("{}-{}", self.name, role.word());
        Self { name, wanted: self.wanted.half(role, connector, own_from), ..self }
    }

    /// What starts a replica in one process.
    pub(super) fn start(&self) -> Start {
        let start = self.wanted.start(&self.options_path());
        match self.engine() {
            Engine::Vllm => vllm::together(start, &self.wanted),
            _ => start,
        }
    }

    /// The resource by which GPUs are asked for.
    pub(super) fn gpu_resource(&self) -> Result<String, Inexpressible> {
        if let Some(given) = &self.choices.gpu_resource {
            return Ok(given.clone());
        }
        match (self.vendor, self.slice) {
            ("nvidia", true) => {
                let profile = self.gpu.rsplit_once("-mig-").map_or("", |(_, profile)| profile);
                Ok(format!("nvidia.com/mig-{profile}"))
            }
            ("nvidia", false) => Ok("nvidia.com/gpu".to_owned()),
            ("amd", _) => Ok("amd.com/gpu".to_owned()),
            ("intel", _) => Ok("habana.ai/gaudi".to_owned()),
            (vendor, _) => Err(Inexpressible::because(
                "gpu_resource_unknown",
                format!("name the resource of GPUs from {vendor:?} as gpu_resource"),
            )),
        }
    }

    /// The engine's release.
    pub(super) fn release(&self) -> String {
        let rules = &self.wanted.layout.engine;
        let asked = self.choices.release.as_deref().map(|r| r.trim_start_matches('v'));
        let release = asked.filter(|r| r.starts_with(|c: char| c.is_ascii_digit()));
        match release {
            Some(release) if release.split('.').count() >= 3 => release.to_owned(),
            Some(release) if self.engine() == Engine::Vllm => format!("{release}.0"),
            _ => {
                let newest =
                    engine::known().find(|(name, _)| *name == rules.name).map(|(_, version)| version);
                match (self.engine(), newest == Some(rules.version.as_str())) {
                    (Engine::Sglang, true) => "0.5.23".to_owned(),
                    (Engine::TensorRtLlm, true) => "1.2.1".to_owned(),
                    _ => format!("{}.0", rules.version),
                }
            }
        }
    }

    /// The container image.
    pub(super) fn image(&self) -> Result<String, Inexpressible> {
        if let Some(given) = &self.choices.image {
            return Ok(given.clone());
        }
        if self.vendor != "nvidia" {
            return Err(Inexpressible::because(
                "image_needed",
                format!(
                    "the engine's usual image is built for NVIDIA GPUs: name one for {} as image",
                    self.gpu
                ),
            ));
        }
        let release = self.release();
        Ok(match self.engine() {
            Engine::Vllm => format!("vllm/vllm-openai:v{release}"),
            Engine::Sglang => format!("lmsysorg/sglang:v{release}"),
            Engine::TensorRtLlm => format!("nvcr.io/nvidia/tensorrt-llm/release:{release}"),
        })
    }

    /// The line at the top of a file.
    pub(super) fn comment(&self) -> String {
        format!(
            "{} ({}); {}",
            self.platform.name(),
            self.platform.api_version(),
            commands::expected(&self.wanted)
        )
    }

    /// Shared memory of a container, GiB: NCCL and the engine's processes talk through it.
    pub(super) fn shared_memory_gib(gpus: u64) -> u64 {
        gpus.saturating_mul(2).max(8)
    }

    /// Seconds that a start may take: ten minutes for compilation and graphs, and the weights at 250 MB/s.
    pub(super) fn start_seconds(&self) -> u64 {
        (self.weights_bytes / 250_000_000).saturating_add(600)
    }

    /// What to know about any of the files.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let several = self.wanted.replica_gpus() > self.wanted.gpus_per_node;
        let containers = !matches!(self.platform, Platform::Command | Platform::SglangRouter);
        if several && containers && self.choices.rdma_resource.is_none() {
            notes.push(format!(
                "A replica leaves its node over {}: the figures hold only when NCCL uses it. Give the pods the RDMA devices \
                 of your plugin (rdma_resource), set NCCL_IB_HCA and NCCL_SOCKET_IFNAME where several ports exist, and look \
                 for NET/IB in the log with NCCL_DEBUG=INFO.",
                self.fabric
            ));
        }
        if self.wanted.settings.num_speculative_tokens > 0 {
            notes.push(
                "The plan counts draft tokens; the settings of the draft model are not written: add them."
                    .to_owned(),
            );
        }
        if self.platform != Platform::Command {
            notes.push(format!(
                "Expect {} KV tokens in the log of each engine; another figure means that a setting did not arrive.",
                grouped(self.wanted.layout.capacity.kv_tokens_per_replica)
            ));
        }
        if containers {
            notes.push(format!(
                "A start may take {} s here: {:.0} GB of weights at 250 MB/s (assumed) and ten minutes for the rest.",
                self.start_seconds(),
                self.weights_bytes as f64 / 1e9
            ));
        }
        notes
    }
}

/// A process that answers on every address of its container.
pub(super) fn serving(mut start: Start) -> Start {
    start.text("--host", "0.0.0.0");
    start.whole("--port", PORT);
    start
}

/// A text as the name of a Kubernetes object (RFC 1123 label), from the last part of a model's id.
fn slug(text: &str) -> String {
    let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or(text);
    let mut name = String::new();
    for c in last.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_lowercase()),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
        if name.len() >= NAME_CHARS {
            break;
        }
    }
    let name = name.trim_end_matches('-');
    match name.chars().next() {
        None => "model".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("m{name}"),
        Some(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn names_are_labels() {
        for (text, name) in [
            ("meta-llama/Llama-3.1-70B-Instruct", "llama-3-1-70b-instruct"),
            ("org/01.AI", "m01-ai"),
            ("$(reboot)\n", "reboot"),
            ("日本", "model"),
            ("/models/x/", "x"),
        ] {
            assert_eq!(slug(text), name);
        }
        assert!(slug(&"a.".repeat(100)).len() <= 40);
    }
}
