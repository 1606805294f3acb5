//! What a text says of one group of GPUs, collected phrase by phrase.

use super::vocabulary::{Fabric, Unit};
use super::words::Word;
use crate::catalogue::hardware::{Described, Form};
use crate::planner::hardware::Link;

/// Where a link was said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Unsaid,
    Inside,
    Between,
    /// Between the islands of a node.
    BetweenIslands,
}

/// A link as it was said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SaidLink {
    pub link: Option<Link>,
    pub fabric: Option<Fabric>,
    pub gbit: Option<f64>,
    pub bridge: bool,
    pub denied: bool,
    pub place: Place,
}

/// A product or node type as it was said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named<'c> {
    pub described: &'c Described,
    pub spelling: String,
}

/// Everything said of one group of GPUs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said<'c> {
    pub named: Option<Named<'c>>,
    /// A second name in the same group: the GPU of a system, or a repetition.
    pub also: Vec<Named<'c>>,
    pub dgx: bool,
    pub superpod: bool,
    /// Bare counts before and after the product.
    pub before: Vec<u64>,
    pub after: Vec<u64>,
    /// A number behind a counted product that nothing joins to it: "16 H100 64".
    pub stray: Option<u64>,
    /// What was said of a load or a layout: not the cluster's.
    pub load: Vec<String>,
    pub nodes: Option<u64>,
    pub trays: Option<u64>,
    pub racks: Option<u64>,
    pub superchips: Option<u64>,
    pub per_node: Option<u64>,
    pub ports: Option<u64>,
    /// "4 of the 8"
    pub part_of: Option<u64>,
    /// NVLink domains and the GPUs of each.
    pub domains: Option<u64>,
    pub domain_gpus: Option<u64>,
    /// "8 H100 2 nodes": nothing says whether the count is of one node or of all.
    pub nodes_behind: bool,
    /// "8x": a product of counts, not a total.
    pub multiplied: bool,
    /// True when the counts are spread over the nodes named behind them ("16 H100s on 2 nodes").
    pub total_over_nodes: bool,
    pub memory_gb: Option<(f64, f64)>,
    pub total_memory_gb: Option<f64>,
    pub host_memory_gb: Option<f64>,
    pub form: Option<Form>,
    pub mig: Option<(u64, u64)>,
    pub half: bool,
    /// "a quarter of": one of so many parts.
    pub share: Option<u64>,
    pub vague: bool,
    pub negative: bool,
    pub huge: Option<String>,
    pub links: Vec<SaidLink>,
    pub unknown: Vec<String>,
    /// "-8" behind the name.
    pub suffix: Option<u64>,
    /// The text spoke of GPUs, not superchips.
    pub said_gpus: bool,
    /// The product was not named but follows from the domain.
    pub assumed_gpu: bool,
}

/// One phrase of a group.
pub(super) enum Phrase<'c> {
    Count(u64),
    /// "(8xH100) * 2": what stands before, so many times.
    Copies(u64),
    Units(u64, Unit),
    UnitBehind(Unit),
    PerNode(u64),
    /// "... a node" behind a product.
    EachNode,
    /// The next count is of one node.
    NextPerNode,
    PartOf(u64, u64),
    Domains(Option<u64>, Option<u64>),
    /// Ports of a node, and the link or rate named with them.
    Ports(u64, Option<Word<'c>>),
    Named(Named<'c>),
    Dgx,
    SuperPod,
    Memory(f64, f64),
    TotalMemory(f64),
    HostMemory(f64),
    Form(Form),
    Mig(u64, u64),
    Link(SaidLink),
    NodesFlag(u64),
    Suffix(u64),
    NodesAndGpus(u64, u64),
    /// Words and numbers of a load or a layout.
    Load(String),
    /// "no" before something that is not a link.
    No,
    Over,
    Times,
    Half,
    Share(u64),
    Vague,
    Negative,
    Huge(String),
    Unknown(String),
    Separator,
    Nothing,
}

impl Said<'_> {
    pub(super) const fn has_product(&self) -> bool {
        self.named.is_some() || self.dgx || self.superpod
    }

    /// True when the text has said what one node holds, and nothing of how many there are.
    const fn is_a_node(&self) -> bool {
        self.has_product() && self.per_node.is_some() && self.nodes.is_none() && self.part_of.is_none()
    }
}

/// A group while it is read.
#[derive(Default)]
pub(super) struct State<'c> {
    pub said: Said<'c>,
    /// True right behind "on", "across": nodes named next hold the total.
    over: bool,
    times: bool,
    next_per_node: bool,
}

impl<'c> State<'c> {
    /// "gpu: H100, count: 16": what a scheduler's key announced ends at the comma.
    pub(super) const fn clause_ends(&mut self) {
        self.next_per_node = false;
    }

    pub(super) fn take(&mut self, phrase: Phrase<'c>) {
        let over = std::mem::take(&mut self.over);
        let times = std::mem::take(&mut self.times);
        let said = &mut self.said;
        match phrase {
            Phrase::NextPerNode => self.next_per_node = true,
            Phrase::Count(n) if self.next_per_node => {
                self.next_per_node = false;
                said.per_node = Some(n);
            }
            // "2 nodes x 16": of each node, however large
            Phrase::Count(n)
                if times && said.nodes.is_some() && said.per_node.is_none() && !said.has_product() =>
            {
                said.per_node = Some(n);
            }
            // "8 H100/node * 2"
            Phrase::Count(n) if times && said.is_a_node() => said.nodes = Some(n),
            Phrase::Copies(n) if said.is_a_node() => said.nodes = Some(n),
            Phrase::Copies(n) => match (said.before.as_slice(), said.after.as_slice()) {
                ([each], []) | ([], [each]) if said.nodes.is_none() && said.has_product() => {
                    said.per_node = Some(*each);
                    said.nodes = Some(n);
                    said.before.clear();
                    said.after.clear();
                }
                _ => said.after.push(n),
            },
            Phrase::Count(n) if said.has_product() => {
                let counted = !(said.before.is_empty() && said.after.is_empty());
                if counted && !times {
                    said.stray = Some(n);
                }
                said.after.push(n);
            }
            Phrase::Count(n) => said.before.push(n),
            Phrase::Units(n, unit) => self.take_units(n, unit, over && !times),
            Phrase::UnitBehind(unit) => self.take_unit_behind(unit),
            Phrase::PerNode(n) => said.per_node = Some(n),
            // "half a node of H100s"
            Phrase::EachNode if said.half && said.before.is_empty() && said.after.is_empty() => {
                said.nodes = Some(1);
            }
            Phrase::EachNode => {
                said.per_node = said.after.pop().or_else(|| said.before.pop()).or(said.per_node);
            }
            Phrase::PartOf(part, whole) => {
                said.per_node = Some(part);
                said.part_of = Some(whole);
            }
            Phrase::Domains(count, gpus) => {
                said.domains = count.or(said.domains);
                said.domain_gpus = gpus.or(said.domain_gpus);
            }
            Phrase::Ports(n, with) => {
                said.ports = Some(n);
                said.links.extend(with.and_then(between));
            }
            Phrase::Named(named) => {
                if said.named.is_some() {
                    said.also.push(named);
                } else {
                    said.named = Some(named);
                }
            }
            Phrase::Dgx => said.dgx = true,
            Phrase::SuperPod => said.superpod = true,
            Phrase::Memory(low, high) => said.memory_gb = Some((low, high)),
            Phrase::TotalMemory(gb) => said.total_memory_gb = Some(gb),
            Phrase::HostMemory(gb) => said.host_memory_gb = Some(gb),
            Phrase::Form(form) => said.form = Some(form),
            Phrase::Mig(slices, gb) => said.mig = Some((slices, gb)),
            Phrase::Link(link) => said.links.push(link),
            Phrase::NodesFlag(n) => said.nodes = Some(n),
            Phrase::Suffix(n) => said.suffix = Some(n),
            Phrase::NodesAndGpus(nodes, gpus) => {
                said.nodes = Some(nodes);
                said.per_node = Some(gpus);
            }
            Phrase::Load(words) => said.load.push(words),
            // "no H100s"
            Phrase::No if !said.has_product() && said.before.is_empty() => said.before.push(0),
            Phrase::Over => self.over = true,
            Phrase::Times => {
                self.times = true;
                said.multiplied = true;
            }
            Phrase::Half => said.half = true,
            Phrase::Share(parts) => said.share = Some(parts),
            Phrase::Vague => said.vague = true,
            Phrase::Negative => said.negative = true,
            Phrase::Huge(n) => said.huge = Some(n),
            Phrase::Unknown(word) => said.unknown.push(word),
            Phrase::Separator | Phrase::No | Phrase::Nothing => {}
        }
    }

    fn take_units(&mut self, n: u64, unit: Unit, over: bool) {
        let said = &mut self.said;
        match unit {
            Unit::Node | Unit::Nodes => {
                said.total_over_nodes |= over;
                said.nodes_behind = said.has_product() && !over;
                said.nodes = Some(n);
            }
            Unit::Tray => said.trays = Some(n),
            Unit::Rack => said.racks = Some(n),
            Unit::Superchip => said.superchips = Some(n),
            Unit::Domain => said.domains = Some(n),
            Unit::Port => said.ports = Some(n),
            Unit::Gpu => {
                said.said_gpus = true;
                if said.has_product() { said.after.push(n) } else { said.before.push(n) }
            }
        }
    }

    /// A unit without a count of its own: "two 8xA100 nodes", "18 GB200 trays".
    fn take_unit_behind(&mut self, unit: Unit) {
        let said = &mut self.said;
        match unit {
            Unit::Gpu => said.said_gpus = true,
            Unit::Port | Unit::Domain => {}
            // Two counts before the product already say nodes and GPUs.
            Unit::Node | Unit::Nodes
                if said.before.len() >= 2 || said.nodes.is_some() || said.per_node.is_some() => {}
            // "an 8xH100 node": the GPUs of one node
            Unit::Node if said.before.len() == 1 && said.after.is_empty() && !said.before.contains(&1) => {
                said.per_node = said.before.pop();
            }
            // "8 GPU H100 node": the GPUs of one node
            Unit::Node if said.said_gpus && said.before.len() == 1 && said.after.is_empty() => {
                said.per_node = said.before.pop();
            }
            Unit::Node | Unit::Nodes | Unit::Tray | Unit::Rack | Unit::Superchip => {
                if said.dgx || said.superpod {
                    return;
                }
                if let Some(n) = said.after.pop().or_else(|| said.before.pop()) {
                    self.take_units(n, unit, false);
                }
            }
        }
    }
}

/// The fabric that was named together with its ports.
fn between(with: Word<'_>) -> Option<SaidLink> {
    let empty = SaidLink {
        link: None,
        fabric: None,
        gbit: None,
        bridge: false,
        denied: false,
        place: Place::Between,
    };
    match with {
        Word::Link(link) => Some(SaidLink { link: Some(link), ..empty }),
        Word::Fabric(fabric) => Some(SaidLink { fabric: Some(fabric), ..empty }),
        Word::Rate(gbit) | Word::Gigas(gbit) => Some(SaidLink { gbit: Some(gbit), ..empty }),
        _ => None,
    }
}
