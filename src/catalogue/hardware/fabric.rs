//! Fabrics between nodes: from the words of a node list ("EFA v2", 3200 Gbit/s over 32 ports) to a link,
//! and links named by their rate alone (`ethernet-25`).

use crate::planner::hardware::{Link, LinkScope};

/// Families whose links may be named by their rate, with the name for people.
const FAMILIES: [(&str, &str); 5] = [
    ("ethernet", "Ethernet over TCP"),
    ("roce", "RoCE v2"),
    ("infiniband", "InfiniBand"),
    ("efa", "Elastic Fabric Adapter"),
    ("gpudirect-tcpxo", "GPUDirect-TCPXO"),
];

/// The fastest port that is believed, Gbit/s.
const MAX_GBIT: f64 = 10_000.0;

/// `roce-800` and the like: the line rate is the figure, both directions are twice it.
pub(super) fn by_rate(name: &str) -> Option<Link> {
    let name = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    if let Some(link) = bonded_nvlinks(&name) {
        return Some(link);
    }
    let (family, rate) = name.rsplit_once('-')?;
    let rate = rate.trim_end_matches('g').parse::<f64>().ok()?;
    of(family, rate)
}

/// `nvlink2-nv3`: bonded NVLinks of a pair, at the rate of one link of that generation
/// (V100, A100, H100 25 GB/s one way, B200 50; topo_codes of links.json).
fn bonded_nvlinks(name: &str) -> Option<Link> {
    let (generation, count) = name.strip_prefix("nvlink")?.split_once("-nv")?;
    let count: u8 = count.parse().ok().filter(|n| (1..=18).contains(n))?;
    let each = match generation {
        "2" | "3" | "4" => 25e9,
        "5" => 50e9,
        _ => return None,
    };
    let rate = each * f64::from(count);
    Some(Link {
        key: name.to_owned(),
        name: format!("NVLink {generation}, {count} bonded links"),
        scope: LinkScope::Pair,
        per_direction_bytes_per_s: rate,
        bidirectional_bytes_per_s: 2.0 * rate,
        per_peer_bytes_per_s: None,
        sources: vec!["links of this generation, as named".to_owned()],
    })
}

/// A link of `family` at `gbit` per port.
pub(super) fn of(family: &str, gbit: f64) -> Option<Link> {
    let (key, name) = FAMILIES.iter().find(|(key, _)| *key == family)?;
    if !(gbit > 0.0 && gbit <= MAX_GBIT) {
        return None;
    }
    let bytes = gbit * 1e9 / 8.0;
    Some(Link {
        key: format!("{key}-{gbit}"),
        name: format!("{name}, {gbit} Gbit/s a port"),
        scope: LinkScope::Fabric,
        per_direction_bytes_per_s: bytes,
        bidirectional_bytes_per_s: 2.0 * bytes,
        per_peer_bytes_per_s: None,
        sources: vec!["line rate, as named".to_owned()],
    })
}

/// What a node list says of its network: words, Gbit/s of the node, ports, GPUs of the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network<'a> {
    pub words: &'a str,
    pub gbit_per_node: f64,
    pub ports: Option<u64>,
    pub gpus: u64,
}

/// The listed link that the words and the rate name, else one by rate; and the ports it comes in.
#[expect(clippy::cast_precision_loss, reason = "ports of one node")]
pub(super) fn of_network<'l>(
    network: Network<'_>,
    mut listed: impl FnMut(&str) -> Option<&'l Link>,
) -> Option<(Link, u64)> {
    let words = network.words.to_ascii_lowercase();
    let family = family_in(&words)?;
    let ports = match (network.ports, family) {
        (Some(n), _) if n > 0 => n,
        (_, "ethernet" | "efa") => 1,
        _ if words.contains("ethernet/ib") => 1,
        // One port a GPU is the rule of every fabric built for GPUs.
        _ => network.gpus.max(1),
    };
    let gbit = network.gbit_per_node / ports as f64;
    let by_name = listed_name(&words).and_then(&mut listed).filter(|l| has_rate(l, gbit));
    if let Some(link) = by_name {
        return Some((link.clone(), ports));
    }
    let link = of(family, gbit)?;
    Some((listed(&link.key).cloned().unwrap_or(link), ports))
}

fn has_rate(link: &Link, gbit: f64) -> bool {
    (link.per_direction_bytes_per_s * 8.0 / 1e9 - gbit).abs() < 1.0
}

fn family_in(words: &str) -> Option<&'static str> {
    let has = |w: &str| words.contains(w);
    if has("infiniband") {
        Some("infiniband")
    } else if has("tcpx") {
        Some("gpudirect-tcpxo")
    } else if has("roce") || has("ethernet/ib") {
        Some("roce")
    } else if has("efa") {
        Some("efa")
    } else if has("ena") || has("gvnic") || has("ethernet") {
        Some("ethernet")
    } else {
        None
    }
}

fn listed_name(words: &str) -> Option<&'static str> {
    const NAMED: [(&str, &str); 10] = [
        ("infiniband edr", "infiniband-edr"),
        ("infiniband hdr", "infiniband-hdr"),
        ("infiniband ndr", "infiniband-ndr"),
        ("infiniband xdr", "infiniband-xdr"),
        ("efa v1", "efa-v1"),
        ("efa v2", "efa-v2"),
        ("efa v3", "efa-v3"),
        ("efa v4", "efa-v4"),
        ("tcpxo", "gpudirect-tcpxo"),
        ("tcpx", "gpudirect-tcpx"),
    ];
    NAMED.iter().find(|(w, _)| words.contains(w)).map(|(_, key)| *key)
}
