//! A cluster in a person's words.

use super::clean::clean;
use super::error::ClusterError;
use super::grammar::groups;
use super::meaning::{Meaning, meaning};
use super::said::Said;
use super::words::{Word, words};
use crate::catalogue::hardware::HardwareCatalogue;
use crate::planner::hardware::{Cluster, ClusterAssumption, ClusterWarning, NodePool};

/// Longest text that is read as words of a person, in characters.
pub const MAX_TEXT_CHARS: usize = 4_000;

/// Most groups of GPUs in a cluster.
pub const MAX_POOLS: usize = 64;

/// Read a cluster text: "16 H100s", "2x8xH200 and 4xA100-80GB", "what fits on 4x p5.48xlarge".
///
/// # Errors
/// A [`ClusterError`] that asks back (`ambiguous_cluster`), names what is unknown (`unknown_gpu`),
/// or says why there is nothing to plan on (`no_gpus`, `too_many_gpus`, `unreadable_cluster`).
pub fn parse_text(text: &str, catalogue: &HardwareCatalogue) -> Result<Cluster, ClusterError> {
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(ClusterError::unreadable(format!("the text is longer than {MAX_TEXT_CHARS} characters")));
    }
    let words = words(&clean(text), catalogue);
    if !words.contains(&Word::Question) {
        return read(&words, catalogue);
    }
    // A question: the cluster stands behind "on", or is what is left without the other words.
    let tails =
        words.iter().enumerate().filter(|(_, w)| **w == Word::Over).filter_map(|(i, _)| words.get(i + 1..));
    for tail in tails.filter(|t| t.iter().any(|w| matches!(w, Word::Name(..) | Word::Dgx | Word::SuperPod))) {
        match read(tail, catalogue) {
            Ok(cluster) => return Ok(cluster),
            Err(error) if tail.contains(&Word::Over) => drop(error),
            Err(error) => return Err(error),
        }
    }
    let plain: Vec<Word<'_>> =
        words.iter().filter(|w| !matches!(w, Word::Unknown(_) | Word::Question)).cloned().collect();
    if plain.iter().any(|w| matches!(w, Word::Name(..) | Word::Dgx | Word::SuperPod)) {
        return read(&plain, catalogue);
    }
    read(&words, catalogue)
}

fn read(words: &[Word<'_>], catalogue: &HardwareCatalogue) -> Result<Cluster, ClusterError> {
    let mut groups = groups(words);
    // "3 nodes: 8 H100, 8 H100, 4 H100" lists them one by one.
    let listed = groups.len() as u64;
    if let Some((first, others)) = groups.split_first_mut()
        && first.nodes == Some(listed)
        && others.iter().all(|g| g.nodes.is_none())
        && !others.is_empty()
    {
        first.nodes = None;
    }
    if groups.len() > MAX_POOLS {
        return Err(ClusterError::unreadable(format!("more than {MAX_POOLS} groups of GPUs")));
    }
    let mut cluster = Cluster { pools: Vec::new(), assumed: Vec::new(), warnings: Vec::new() };
    for said in &groups {
        let said = rack_domain(said, catalogue);
        let Meaning { pool, assumed, warnings } = meaning(&said, catalogue)?;
        add_pool(&mut cluster, pool);
        for assumption in assumed {
            if !cluster.assumed.contains(&assumption) {
                cluster.assumed.push(assumption);
            }
        }
        cluster.warnings.extend(warnings);
    }
    checked(cluster)
}

/// "16 GPUs in one NVLink domain of 72": only NVL72 racks have such a domain, and GB200 is the first of them.
fn rack_domain<'c>(said: &Said<'c>, catalogue: &'c HardwareCatalogue) -> Said<'c> {
    let mut said = said.clone();
    if said.named.is_none()
        && !said.dgx
        && !said.superpod
        && matches!(said.domain_gpus, Some(36 | 72))
        && let Some(described) = catalogue.names().exact("gb200")
    {
        said.named = Some(super::said::Named { described, spelling: "GB200".to_owned() });
        said.said_gpus = true;
        said.assumed_gpu = true;
    }
    said
}

/// Equal nodes are one pool.
pub(super) fn add_pool(cluster: &mut Cluster, pool: NodePool) {
    let same = cluster.pools.iter_mut().find(|p| NodePool { nodes: pool.nodes, ..(**p).clone() } == pool);
    match same {
        Some(p) => p.nodes = p.nodes.saturating_add(pool.nodes),
        None => cluster.pools.push(pool),
    }
}

/// The limits and warnings that concern the pools together.
pub(super) fn checked(mut cluster: Cluster) -> Result<Cluster, ClusterError> {
    let gpus = cluster.gpus();
    if gpus == 0 {
        return Err(ClusterError::no_gpus("that is no GPU at all"));
    }
    if gpus > super::MAX_GPUS {
        return Err(ClusterError::too_many(&gpus.to_string()));
    }
    let mut kinds: Vec<&str> = Vec::new();
    for pool in &cluster.pools {
        if !kinds.contains(&pool.gpu.key.as_str()) {
            kinds.push(&pool.gpu.key);
        }
    }
    if kinds.len() > 1 {
        let message = format!(
            "{} kinds of GPU ({}): a replica stays in one pool, replicas of several pools add up",
            kinds.len(),
            kinds.join(", ")
        );
        cluster.warnings.push(ClusterWarning { code: "mixed_gpus".to_owned(), message });
    } else if cluster.pools.len() > 1 {
        let message = format!(
            "{} sizes or kinds of node: a replica stays in one pool, replicas of several pools add up",
            cluster.pools.len()
        );
        cluster.warnings.push(ClusterWarning { code: "mixed_nodes".to_owned(), message });
    }
    Ok(cluster)
}

/// The assumption that a domain of 72 is an NVL72 of GB200.
pub(super) fn assumed_rack() -> ClusterAssumption {
    ClusterAssumption {
        name: "gpu".to_owned(),
        value: "gb200-186gb".to_owned(),
        source: "an NVLink domain of 72 is an NVL72 rack; no GPU was named, GB200 is taken".to_owned(),
    }
}
