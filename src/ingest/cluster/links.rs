//! Links as a text said them, over what is usual.

use super::error::ClusterError;
use super::said::{Place, Said, SaidLink};
use super::vocabulary::Fabric;
use crate::catalogue::hardware::{GpuEntry, HardwareCatalogue};
use crate::planner::hardware::{ClusterAssumption, ClusterWarning, Link, LinkScope, NodePool};

/// A pool with usual links, and where they come from.
pub(super) struct Links<'c> {
    pub pool: NodePool,
    pub entry: &'c GpuEntry,
    pub usual_source: String,
}

/// Replace the usual links by those that were said; the others become assumptions.
pub(super) fn apply_links(
    said: &Said<'_>,
    links: Links<'_>,
    assumed: &mut Vec<ClusterAssumption>,
    warnings: &mut Vec<ClusterWarning>,
    catalogue: &HardwareCatalogue,
) -> Result<NodePool, ClusterError> {
    let mut reader = Reader {
        pool: links.pool,
        entry: links.entry,
        catalogue,
        inside: false,
        between: false,
        rate_unsaid: false,
        warnings,
    };
    for link in &said.links {
        reader.take(link)?;
    }
    if let Some(gpus) = said.domain_gpus {
        reader.pool.island_gpus = gpus.max(1);
        reader.cover_node();
    }
    if let Some(ports) = said.ports {
        reader.pool.inter_links_per_node = Some(ports);
    }
    let (inside, between, rate_unsaid) = (reader.inside, reader.between, reader.rate_unsaid);
    let pool = reader.pool;
    if pool.gpus_per_node > 1 && !inside {
        let value = if pool.island_gpus < pool.gpus_per_node && pool.intra_link.scope == LinkScope::Pair {
            format!("{} in islands of {}", pool.intra_link.key, pool.island_gpus)
        } else {
            pool.intra_link.key.clone()
        };
        let source = match pool.intra_link.key.as_str() {
            key if key.starts_with("pcie") => "PCIe only; no bridges were mentioned".to_owned(),
            _ => format!("usual for {}", links.entry.gpu.short_name),
        };
        assumed.push(ClusterAssumption { name: "intra_link".to_owned(), value, source });
    }
    let one_domain = pool.island_gpus >= pool.gpus();
    if pool.nodes > 1 && (!between || rate_unsaid) && !one_domain {
        assumed.push(ClusterAssumption {
            name: "inter_link".to_owned(),
            value: pool.inter_link.key.clone(),
            source: if between { "the network's rate is not stated".to_owned() } else { links.usual_source },
        });
    }
    Ok(pool)
}

struct Reader<'r, 'c> {
    pool: NodePool,
    entry: &'c GpuEntry,
    catalogue: &'c HardwareCatalogue,
    inside: bool,
    between: bool,
    /// A network was named without its rate.
    rate_unsaid: bool,
    warnings: &'r mut Vec<ClusterWarning>,
}

impl Reader<'_, '_> {
    fn take(&mut self, said: &SaidLink) -> Result<(), ClusterError> {
        if said.denied {
            self.without(said);
            return Ok(());
        }
        if let Some(link) = &said.link {
            let link = match (said.fabric, said.gbit) {
                // "NDR 400 IB": the rate agrees with the name
                (_, None) => link.clone(),
                (_, Some(gbit)) => self
                    .catalogue
                    .link(&format!("{}-{gbit}", family_of(link)))
                    .unwrap_or_else(|| link.clone()),
            };
            self.place(link, said.place);
            return Ok(());
        }
        match said.fabric {
            Some(Fabric::NvLink) => self.nvlink(said.bridge),
            None if said.bridge => self.nvlink(true),
            Some(Fabric::Xgmi) if self.pool.intra_link.key.starts_with("xgmi") => {
                self.inside = true;
                Ok(())
            }
            Some(Fabric::Xgmi) => Err(self.lacks("xGMI")),
            Some(fabric) => {
                self.rate_unsaid |= said.gbit.is_none();
                self.fabric(fabric, said.gbit);
                Ok(())
            }
            None => {
                if let (Some(gbit), Place::Between) = (said.gbit, said.place) {
                    self.rate(gbit);
                }
                Ok(())
            }
        }
    }

    /// Put a link where it was said to be, or where a link of its scope belongs.
    fn place(&mut self, link: Link, place: Place) {
        match (place, link.scope) {
            (Place::BetweenIslands, _) => self.pool.host_link = Some(link),
            (Place::Inside, _) | (Place::Unsaid, LinkScope::Pair | LinkScope::Node | LinkScope::Rack) => {
                self.inside = true;
                if link.key == self.pool.intra_link.key {
                    return;
                }
                self.pool.island_gpus = match link.scope {
                    LinkScope::Pair => 2,
                    LinkScope::Rack => 72,
                    _ => self.pool.gpus_per_node,
                };
                self.pool.intra_link = link;
                self.cover_node();
            }
            (Place::Between, _) | (Place::Unsaid, LinkScope::Fabric) => {
                self.between = true;
                if link.key != self.pool.inter_link.key {
                    self.pool.inter_links_per_node = Some(self.ports_for(&link));
                    self.pool.inter_link = link;
                }
            }
        }
    }

    /// A host link is needed exactly where islands do not cover the node.
    fn cover_node(&mut self) {
        if self.pool.island_gpus >= self.pool.gpus_per_node {
            self.pool.host_link = None;
        } else if self.pool.host_link.is_none() {
            self.pool.host_link = Some(self.catalogue.pcie_of(self.entry));
        }
    }

    /// "no NVLink", "without InfiniBand"
    fn without(&mut self, said: &SaidLink) {
        let nvlink = said.fabric == Some(Fabric::NvLink) || said.bridge;
        if nvlink {
            self.inside = true;
            self.pool.intra_link = self.catalogue.pcie_of(self.entry);
            self.pool.island_gpus = self.pool.gpus_per_node;
            self.pool.host_link = None;
        } else if matches!(said.fabric, Some(Fabric::InfiniBand | Fabric::Roce | Fabric::Efa))
            && let Some(link) = self.catalogue.link("ethernet-100")
        {
            self.between = true;
            self.rate_unsaid = true;
            self.pool.inter_link = link;
            self.pool.inter_links_per_node = Some(1);
        }
    }

    /// "NVLink inside", "with NVLink bridges"
    fn nvlink(&mut self, bridge: bool) -> Result<(), ClusterError> {
        self.inside = true;
        let has = self.pool.intra_link.key.starts_with("nvlink");
        if has && !bridge {
            return Ok(());
        }
        match self.catalogue.bridge_of(self.entry) {
            Some((link, island)) if bridge || !has => {
                self.pool.intra_link = link;
                self.pool.island_gpus = island;
                self.cover_node();
                Ok(())
            }
            _ if has => Ok(()),
            _ => Err(self.lacks("NVLink")),
        }
    }

    fn lacks(&self, what: &str) -> ClusterError {
        let message =
            format!("{} has no {what}; its GPUs meet over {}", self.entry.gpu.name, self.pool.intra_link.key);
        ClusterError::ambiguous(message, [format!("{} without {what}", self.entry.gpu.short_name)])
    }

    /// A family of fabrics: the usual one of that family, or the rate that was said.
    fn fabric(&mut self, fabric: Fabric, gbit: Option<f64>) {
        let family = match fabric {
            Fabric::InfiniBand => "infiniband",
            Fabric::Roce => "roce",
            Fabric::Efa => "efa",
            _ => "ethernet",
        };
        self.between = true;
        if family_of(&self.pool.inter_link) == family && gbit.is_none() {
            return;
        }
        let usual = self.pool.inter_link.per_direction_bytes_per_s * 8.0 / 1e9;
        let said = gbit.unwrap_or(match fabric {
            Fabric::Ethernet => 100.0,
            _ if usual >= 100.0 => usual,
            _ => 400.0,
        });
        // A rate beyond any port is the node's: "EFA 3200 Gbit/s".
        let (gbit, ports) = if said > 1600.0 {
            let ports = self.pool.inter_links_per_node.unwrap_or(self.pool.gpus_per_node).max(1);
            (said / ports as f64, Some(ports))
        } else {
            (said, None)
        };
        let Some(link) = self.of_family(family, gbit) else {
            self.warnings.push(ClusterWarning {
                code: "link_not_known".to_owned(),
                message: format!(
                    "a port of {gbit} Gbit/s on {family} is not known; {} is kept",
                    self.pool.inter_link.key
                ),
            });
            return;
        };
        self.pool.inter_links_per_node = ports.or_else(|| Some(self.ports_for(&link)));
        self.pool.inter_link = link;
    }

    fn rate(&mut self, gbit: f64) {
        let family = family_of(&self.pool.inter_link);
        if let Some(link) = self.of_family(&family, gbit) {
            self.between = true;
            self.pool.inter_links_per_node = Some(self.ports_for(&link));
            self.pool.inter_link = link;
        }
    }

    /// A listed link of the family with that rate, else one by its rate.
    fn of_family(&self, family: &str, gbit: f64) -> Option<Link> {
        let listed = self.catalogue.links().map(|e| &e.link).find(|l| {
            family_of(l) == family
                && l.scope == LinkScope::Fabric
                && (l.per_direction_bytes_per_s * 8.0 / 1e9 - gbit).abs() < 1.0
        });
        listed.cloned().or_else(|| self.catalogue.link(&format!("{family}-{gbit}")))
    }

    /// Ethernet comes in one port a node; fabrics built for GPUs in one a GPU.
    fn ports_for(&self, link: &Link) -> u64 {
        let one = link.key.starts_with("ethernet");
        if one { 1 } else { self.pool.gpus_per_node.max(1) }
    }
}

/// "infiniband" of `infiniband-ndr`.
fn family_of(link: &Link) -> String {
    link.key.split('-').next().unwrap_or("").to_owned()
}
