//! The shape of the files of `data/hardware`; keys that nothing reads are passed over.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct GpuFile {
    pub source_keys: BTreeMap<String, String>,
    pub ambiguous_names: Vec<AmbiguousName>,
    pub gpus: Vec<GpuRow>,
}

/// A name that people use for several different products.
#[derive(Deserialize)]
pub(super) struct AmbiguousName {
    pub name: String,
    pub may_mean: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct GpuRow {
    pub key: String,
    pub vendor: String,
    pub display_names: Vec<String>,
    pub form_factor: String,
    pub architecture: String,
    pub compute_capability: Option<String>,
    pub names_printed: NamesPrinted,
    pub aliases: Vec<String>,
    pub memory: MemoryRow,
    pub memory_bandwidth_gbps: Option<f64>,
    pub dense_tflops: Tflops,
    pub nvlink_or_fabric: Option<FabricRow>,
    pub pcie: Option<PcieRow>,
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    pub data_quality: String,
    pub notes: Option<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct NamesPrinted {
    #[serde(default)]
    pub nvidia_smi_or_driver: Vec<String>,
    #[serde(default)]
    pub k8s_gpu_product_label: Vec<String>,
    pub aws_api_gpu_name: Option<String>,
    pub gke_accelerator_label: Option<String>,
    pub ray_accelerator_type: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct MemoryRow {
    pub marketing_gb: u64,
    pub driver_total_mib: Option<f64>,
    pub usable_mib: Option<f64>,
    pub torch_total_gib_seen: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct Tflops {
    pub fp16: Option<f64>,
    pub bf16: Option<f64>,
    pub fp8: Option<f64>,
    pub fp4: Option<f64>,
    pub int8: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct FabricRow {
    pub generation: String,
    pub bidir_gbps: Option<f64>,
    pub links: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct PcieRow {
    pub generation: u64,
}

#[derive(Deserialize)]
pub(super) struct LinkFile {
    pub sources: BTreeMap<String, String>,
    pub links: Vec<LinkRow>,
}

#[derive(Deserialize)]
pub(super) struct LinkRow {
    pub key: String,
    pub aliases: Vec<String>,
    pub name: String,
    pub scope: String,
    pub per_direction_gbps: f64,
    pub bidir_gbps: f64,
    pub per_peer_per_direction_gbps: Option<f64>,
    pub sources: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct NodeFile {
    pub source_keys: BTreeMap<String, String>,
    pub platforms: Vec<PlatformRow>,
    pub cloud_instances: Vec<InstanceRow>,
}

#[derive(Deserialize)]
pub(super) struct PlatformRow {
    pub key: String,
    pub names: Vec<String>,
    pub aliases: Vec<String>,
    pub gpu: String,
    pub gpus_per_node: u64,
    pub intra_link: Option<String>,
    pub nvlink_domain_gpus: u64,
    pub nics_per_node: Option<u64>,
    pub network_gbit_per_node: Option<f64>,
    pub fabric: Option<String>,
    #[serde(default)]
    pub sources: Vec<String>,
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct InstanceRow {
    pub cloud: String,
    pub instance_type: String,
    pub aliases: Vec<String>,
    pub gpu: String,
    pub gpus: u64,
    pub intra_link: Option<String>,
    pub nvlink_domain_gpus: u64,
    pub fabric: Option<String>,
    pub network_gbit_per_node: Option<f64>,
    pub nics: Option<u64>,
    pub price_usd_per_gpu_hour: Option<f64>,
    pub price_kind: Option<String>,
    pub price_source: Option<String>,
    pub price_date: Option<String>,
    #[serde(default)]
    pub sources: Vec<String>,
    #[serde(default)]
    pub notes: Vec<String>,
}
