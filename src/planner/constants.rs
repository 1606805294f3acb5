//! The constants of the plain model for a replica: the caller's where given, else the catalogue's or
//! the model's own, each with its source.

use super::estimate::{Assumption, AssumptionValue};
use super::hardware::{Gpu, NodePool};
use super::latency::roofline::Constants;
use super::layout::place::GroupLinks;
use super::model::ModelSpec;
use super::replica::{Ground, Replica};

/// Where the default efficiencies of the plain model come from.
const PLAIN: &str = "plain model: interactive lesson on TP and KV cache (published figures)";

const HBM_EFFICIENCY: f64 = 0.8;
const COMPUTE_EFFICIENCY: f64 = 0.75;
const LINK_EFFICIENCY: f64 = 0.75;
const ALLREDUCE_FIXED_US: f64 = 5.0;

impl Ground<'_> {
    /// The constants of the plain model for this replica.
    #[must_use]
    pub fn constants(&self, replica: &Replica) -> Constants {
        let given = |name: &str, default: f64| self.input.overrides.number(name).unwrap_or(default);
        Constants {
            hbm_bytes_per_s: given("hbm_bytes_per_s", self.gpu.hbm_bytes_per_s),
            hbm_efficiency: given("hbm_efficiency", HBM_EFFICIENCY),
            peak_flops: given("peak_flops", peak_flops(&self.model, &self.gpu)),
            compute_efficiency: given("compute_efficiency", COMPUTE_EFFICIENCY),
            link_bytes_per_s: self.link_rate(&replica.placed.tp),
            link_is_network: replica.placed.tp.is_over_fabric(),
            stage_link_bytes_per_s: replica
                .placed
                .pp
                .as_ref()
                .map_or(f64::INFINITY, |stages| self.link_rate(stages)),
            link_efficiency: given("link_efficiency", LINK_EFFICIENCY),
            allreduce_fixed_s: given("allreduce_fixed_us", ALLREDUCE_FIXED_US) * 1e-6,
        }
    }

    /// Both directions of the slowest link of a group, for each GPU.
    fn link_rate(&self, group: &GroupLinks) -> f64 {
        self.input
            .overrides
            .number_for("link_bytes_per_s", &group.link.key)
            .unwrap_or_else(|| rate_per_gpu(group, self.pool))
    }

    /// The same constants as the answer lists them.
    #[must_use]
    pub fn plain_assumptions(&self, replica: &Replica) -> Vec<Assumption> {
        let constants = self.constants(replica);
        let link = &replica.placed.tp.link;
        let link_source = format!(
            "hardware catalogue, {} ({}), both directions for each GPU: {}",
            link.key,
            link.name,
            link.sources.join("; ")
        );
        let mut list = vec![
            self.assumption(
                "hbm_bytes_per_s",
                constants.hbm_bytes_per_s,
                "B/s",
                &gpu_source(&self.gpu, "bw"),
            ),
            self.assumption("hbm_efficiency", constants.hbm_efficiency, "", PLAIN),
            self.assumption("peak_flops", constants.peak_flops, "FLOP/s", &gpu_source(&self.gpu, "tflops")),
            self.assumption("compute_efficiency", constants.compute_efficiency, "", PLAIN),
        ];
        if replica.shape.tp > 1 {
            list.push(self.assumption("link_bytes_per_s", constants.link_bytes_per_s, "B/s", &link_source));
            list.push(self.assumption("link_efficiency", constants.link_efficiency, "", PLAIN));
            list.push(self.assumption("allreduce_fixed_us", constants.allreduce_fixed_s * 1e6, "us", PLAIN));
        }
        list
    }

    /// An assumption, marked as given when the caller overrode it.
    #[must_use]
    pub fn assumption(&self, name: &str, value: f64, unit: &str, source: &str) -> Assumption {
        let given = self.input.overrides.has(name);
        Assumption {
            name: name.to_owned(),
            value: AssumptionValue::Number(value),
            unit: unit.to_owned(),
            source: if given { "given in the request".to_owned() } else { source.to_owned() },
            given,
        }
    }
}

/// Where one figure of a GPU comes from. The catalogue's sources start with the figure they are for.
#[must_use]
pub fn gpu_source(gpu: &Gpu, figure: &str) -> String {
    let of_figure = |source: &&String| source.split_once(':').is_some_and(|(key, _)| key.trim() == figure);
    let words: Vec<&str> = gpu.sources.iter().filter(of_figure).map(String::as_str).collect();
    let words = if words.is_empty() { gpu.sources.join("; ") } else { words.join("; ") };
    format!("hardware catalogue, {}: {words}", gpu.key)
}

/// A fabric's rate is per port: a GPU has its share of the node's ports, one where the number is unknown.
fn rate_per_gpu(group: &GroupLinks, pool: &NodePool) -> f64 {
    let ports_per_gpu = match group.nics_per_node {
        Some(ports) if group.is_over_fabric() && ports > 0 => ports as f64 / pool.gpus_per_node.max(1) as f64,
        _ => 1.0,
    };
    group.link.bidirectional_bytes_per_s * ports_per_gpu
}

/// Peak dense rate in the format that the matrix products run in: the weights' own where the GPU has it,
/// else 16 bit. Weight-only formats are unpacked to 16 bit.
fn peak_flops(model: &ModelSpec, gpu: &Gpu) -> f64 {
    let peak = &gpu.peak_flops;
    let half = peak.bf16.or(peak.fp16);
    let storage = model.quantization.as_str();
    let native = if storage.starts_with("nvfp4") {
        peak.fp4.or(peak.fp8)
    } else if storage.starts_with("fp8") {
        peak.fp8
    } else if storage.starts_with("int8") {
        peak.int8
    } else {
        None
    };
    native.or(half).unwrap_or(0.0)
}
