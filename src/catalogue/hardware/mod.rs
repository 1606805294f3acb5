//! The hardware catalogue: GPUs, links and node types from `data/hardware`, with their sources,
//! found by key or by any name people and machines use for them.

mod fabric;
mod memory;
mod names;
mod read;
mod rows;
mod usual;

use std::sync::OnceLock;

pub use names::{Described, Name, NameIndex, squash};
pub use usual::UsualLinks;

use crate::planner::hardware::{Gpu, Link};

/// Everything known about hardware.
#[derive(Debug, Default)]
pub struct HardwareCatalogue {
    gpus: Vec<GpuEntry>,
    links: Vec<LinkEntry>,
    nodes: Vec<NodeType>,
    /// Products known by name only: their figures are missing, so nothing can be planned on them.
    nameless_figures: Vec<Incomplete>,
    names: NameIndex,
    link_names: NameIndex,
}

/// A GPU and what the catalogue knows beyond the core type.
#[derive(Debug)]
pub struct GpuEntry {
    pub gpu: Gpu,
    /// Products that differ only in memory or form factor share a family: `h100`, `rtx-3090`.
    pub family: String,
    pub form: Form,
    /// Size in the product's name, GB.
    pub marketing_gb: u64,
    /// What the driver prints as the total, MiB.
    pub driver_total_mib: Option<u64>,
    /// What driver, Kubernetes, clouds and Ray call it, then what people call it.
    pub aliases: Vec<String>,
    /// Ray's `accelerator_type`, which loses memory and form factor.
    pub ray_name: Option<String>,
    pub pcie_generation: Option<u64>,
    pub fabric: Option<GpuFabric>,
    pub notes: Vec<String>,
}

/// The links that leave a GPU, other than PCIe.
#[derive(Debug, Clone)]
pub struct GpuFabric {
    pub generation: String,
    pub bidirectional_gb_per_s: Option<f64>,
    pub links: Option<u64>,
}

/// How a GPU is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Sxm,
    Pcie,
    /// PCIe cards sold for NVLink bridges.
    Nvl,
    Oam,
    Superchip,
    Soc,
    Pod,
}

/// A link and its other names.
#[derive(Debug)]
pub struct LinkEntry {
    pub link: Link,
    pub aliases: Vec<String>,
}

/// A product known by name only.
#[derive(Debug)]
pub struct Incomplete {
    pub key: String,
    pub aliases: Vec<String>,
    /// What is missing, for people.
    pub missing: String,
}

/// A kind of node that can be bought or rented.
#[derive(Debug, Clone)]
pub struct NodeType {
    /// `dgx-h100`, `p5.48xlarge`.
    pub key: String,
    pub aliases: Vec<String>,
    /// `None` for a platform, else `AWS`, `GCP`, ...
    pub cloud: Option<String>,
    /// Key of the GPU.
    pub gpu: String,
    pub gpus_per_node: u64,
    /// Links as the catalogue states them; unknown ones are filled with what is usual for the GPU.
    pub intra_link: Option<String>,
    /// GPUs in one NVLink (or mesh) domain; 72 for an NVL72 tray, 1 without one.
    pub island_gpus: u64,
    pub inter_link: Option<Link>,
    pub nics_per_node: Option<u64>,
    pub usd_per_gpu_hour: Option<f64>,
    /// Who says so, and when.
    pub price_source: Option<String>,
    pub sources: Vec<String>,
    pub notes: Vec<String>,
}

/// The catalogue in the binary, parsed once.
/// The data are checked by a test; a broken file would give an empty catalogue.
#[must_use]
pub fn catalogue() -> &'static HardwareCatalogue {
    static CATALOGUE: OnceLock<HardwareCatalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| read::embedded().unwrap_or_default())
}

impl HardwareCatalogue {
    /// The product with this key or alias. Where a name covers several products ("A100"), the usual one.
    #[must_use]
    pub fn gpu(&self, name: &str) -> Option<&Gpu> {
        self.gpu_entry(name).map(|entry| &entry.gpu)
    }

    /// As [`Self::gpu`], with what the catalogue knows beyond the core type.
    #[must_use]
    pub fn gpu_entry(&self, name: &str) -> Option<&GpuEntry> {
        let described = self.names.exact(name)?;
        let products = described.gpus();
        self.usual_product(&products)
    }

    /// A link by key or alias; also a fabric by its rate, e.g. `ethernet-25` or `roce-800` (Gbit/s a port).
    #[must_use]
    pub fn link(&self, name: &str) -> Option<Link> {
        let listed = self.link_names.exact(name).and_then(|d| self.link_meant(d));
        listed.cloned().or_else(|| fabric::by_rate(name))
    }

    /// A node type by key or alias.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeType> {
        self.names.exact(name)?.nodes().first().and_then(|&i| self.nodes.get(i))
    }

    /// Every GPU, in the order of the data file.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuEntry> {
        self.gpus.iter()
    }

    /// Every link, in the order of the data file.
    pub fn links(&self) -> impl Iterator<Item = &LinkEntry> {
        self.links.iter()
    }

    /// Every platform, then every cloud instance.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeType> {
        self.nodes.iter()
    }

    /// Products known by name only.
    pub fn incomplete(&self) -> impl Iterator<Item = &Incomplete> {
        self.nameless_figures.iter()
    }

    /// Every name of a GPU or node type.
    #[must_use]
    pub const fn names(&self) -> &NameIndex {
        &self.names
    }

    /// The GPU at an index of [`Name`].
    #[must_use]
    pub fn gpu_at(&self, index: usize) -> Option<&GpuEntry> {
        self.gpus.get(index)
    }

    /// The node type at an index of [`Name`].
    #[must_use]
    pub fn node_at(&self, index: usize) -> Option<&NodeType> {
        self.nodes.get(index)
    }

    /// Every name of a link.
    #[must_use]
    pub const fn link_names(&self) -> &NameIndex {
        &self.link_names
    }

    /// The link of a spelling found in [`Self::link_names`].
    #[must_use]
    pub fn link_meant(&self, described: &Described) -> Option<&Link> {
        let index =
            described.meanings.iter().find_map(|m| if let Name::Link(i) = m { Some(*i) } else { None })?;
        self.links.get(index).map(|e| &e.link)
    }

    /// Up to three GPU names close to a misspelt one, closest first.
    #[must_use]
    pub fn gpu_suggestions(&self, wrong: &str) -> Vec<String> {
        let keys = self.gpus.iter().flat_map(|e| {
            std::iter::once(e.gpu.key.as_str())
                .chain(e.aliases.iter().map(String::as_str))
                .map(move |alias| (alias, e.gpu.short_name.as_str()))
        });
        names::closest(wrong, keys)
    }

    /// Up to three link keys close to a misspelt one, closest first.
    #[must_use]
    pub fn link_suggestions(&self, wrong: &str) -> Vec<String> {
        let keys = self.links.iter().flat_map(|e| {
            std::iter::once(e.link.key.as_str())
                .chain(e.aliases.iter().map(String::as_str))
                .map(move |alias| (alias, e.link.key.as_str()))
        });
        names::closest(wrong, keys)
    }

    /// Of several products that share a name, the one people mean: the larger memory in its own module form.
    fn usual_product(&self, products: &[usize]) -> Option<&GpuEntry> {
        let entries = products.iter().filter_map(|&i| self.gpus.get(i));
        entries.max_by_key(|e| (e.form != Form::Pcie, e.marketing_gb))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_files_parse() {
        let read = read::embedded().expect("data/hardware is valid");
        assert_eq!(read.gpus.len() + read.nameless_figures.len(), 53 + 1);
        assert_eq!(read.nodes.len(), 25 + 142);
        for node in read.nodes() {
            let known = read.gpu_entry_by_key(&node.gpu).is_some()
                || read.incomplete().any(|i| i.key == node.gpu)
                || node.gpu == "gaudi1";
            assert!(known, "{} carries an unknown GPU {}", node.key, node.gpu);
            if let Some(link) = &node.intra_link {
                assert!(read.link(link).is_some(), "{} has an unknown link {link}", node.key);
            }
        }
    }

    #[test]
    fn names_of_people_and_machines_find_the_product() {
        for (name, key) in [
            ("h100-sxm5-80gb", "h100-sxm5-80gb"),
            ("H100", "h100-sxm5-80gb"),
            ("NVIDIA-H100-80GB-HBM3", "h100-sxm5-80gb"),
            ("NVIDIA H100 NVL", "h100-nvl-94gb"),
            ("A100", "a100-sxm4-80gb"),
            ("a100-40", "a100-sxm4-40gb"),
            ("nvidia-tesla-t4", "t4"),
            ("MI300X", "mi300x"),
            ("NVIDIA GH200 480GB", "gh200-96gb"),
            ("RTX PRO 6000", "rtx-pro-6000-server"),
        ] {
            assert_eq!(catalogue().gpu(name).map(|g| g.key.as_str()), Some(key), "{name}");
        }
        assert_eq!(catalogue().gpu("p5").map(|g| &g.key), None, "a cloud family is not a GPU");
    }

    #[test]
    fn memory_is_what_a_process_can_use() {
        let h100 = catalogue().gpu("h100").expect("listed");
        assert_eq!(h100.memory_bytes.get(), 81_079 * 1_048_576);
        assert!(!h100.memory_assumed);
        let unknown = catalogue().gpu("mi300x").expect("listed");
        assert!(unknown.memory_assumed, "no driver figure is known");
        for entry in catalogue().gpus() {
            let marketing = entry.marketing_gb * 1_073_741_824;
            let share = entry.gpu.memory_bytes.get() * 100 / marketing;
            assert!((86..=100).contains(&share), "{}: {share} % of its name", entry.gpu.key);
        }
    }

    #[test]
    fn links_are_found_by_the_contract_name_and_the_data_name() {
        for (name, key, gb_per_s) in [
            ("nvlink4", "nvlink4", 450.0),
            ("nvlink4_nvswitch", "nvlink4", 450.0),
            ("infiniband-ndr", "infiniband-ndr", 50.0),
            ("ib_ndr", "infiniband-ndr", 50.0),
            ("NDR400", "infiniband-ndr", 50.0),
            ("ethernet-25", "ethernet-25", 3.125),
            ("roce-400", "roce-400", 50.0),
        ] {
            let link = catalogue().link(name).unwrap_or_else(|| panic!("{name} is listed"));
            assert_eq!(link.key, key);
            assert!((link.per_direction_bytes_per_s / 1e9 - gb_per_s).abs() < 1e-9, "{name}");
        }
        assert_eq!(catalogue().link("ethernet-0"), None);
        assert_eq!(catalogue().link("ethernet-inf"), None);
    }

    #[test]
    fn a_wrong_name_gets_a_suggestion() {
        assert_eq!(catalogue().gpu_suggestions("H1OO").first().map(String::as_str), Some("H100"));
        assert_eq!(catalogue().link_suggestions("nvlnk4").first().map(String::as_str), Some("nvlink4"));
        assert!(catalogue().gpu_suggestions("zzzzzzzz").is_empty());
    }

    #[test]
    fn nodes_of_clouds_have_their_ports() {
        let node = catalogue().node("p5.48xlarge").expect("listed");
        assert_eq!((node.gpus_per_node, node.nics_per_node), (8, Some(32)));
        assert_eq!(node.inter_link.as_ref().map(|l| l.key.as_str()), Some("efa-v2"));
        let pool = catalogue().pool_of_node(node, 4).expect("complete");
        assert_eq!((pool.gpus(), pool.island_gpus, pool.intra_link.key.as_str()), (32, 8, "nvlink4"));
    }
}
