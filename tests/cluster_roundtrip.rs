//! The normal text of a cluster reads back to the same cluster, and odd texts never panic.

use proptest::prelude::*;
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::cluster::{parse_text, recognise};
use shardwise::planner::hardware::{Cluster, Link, LinkScope, NodePool};
use shardwise::planner::units::Bytes;

fn links(fabric: bool) -> Vec<Link> {
    let all = catalogue().links().map(|e| e.link.clone());
    let mut found: Vec<Link> = all.filter(|l| (l.scope == LinkScope::Fabric) == fabric).collect();
    if fabric {
        found.extend(
            ["ethernet-25", "roce-800", "efa-40", "infiniband-50"].iter().filter_map(|k| catalogue().link(k)),
        );
    }
    found
}

/// Any pool that the contract can describe.
fn any_pool() -> impl Strategy<Value = NodePool> {
    let gpus: Vec<String> = catalogue().gpus().map(|e| e.gpu.key.clone()).collect();
    let shape = (
        1..2_000_u64,
        1..33_u64,
        prop_oneof![Just(1_u64), Just(2), Just(4), Just(8), Just(72)],
        any::<bool>(),
    );
    let rest = (1..65_u64, proptest::option::of(1..(1_u64 << 42)));
    (
        shape,
        proptest::sample::select(gpus),
        proptest::sample::select(links(false)),
        proptest::sample::select(links(true)),
        rest,
    )
        .prop_map(
            |((nodes, gpus_per_node, island, whole), gpu, intra_link, inter_link, (ports, host_memory))| {
                let entry = catalogue().gpu_entry_by_key(&gpu).expect("listed");
                let island_gpus = if whole { gpus_per_node } else { island };
                NodePool {
                    nodes,
                    gpus_per_node,
                    gpu: entry.gpu.clone(),
                    intra_link,
                    island_gpus,
                    host_link: (island_gpus < gpus_per_node).then(|| catalogue().pcie_of(entry)),
                    inter_link,
                    inter_links_per_node: Some(ports),
                    host_memory_bytes: host_memory.map(Bytes),
                    usd_per_gpu_hour: None,
                    price_source: None,
                    free_memory_bytes: None,
                }
            },
        )
}

/// Texts as people write them: counts, separators and names in every order.
fn any_text() -> impl Strategy<Value = String> {
    let names: Vec<String> =
        catalogue().gpus().flat_map(|e| e.aliases.iter().cloned().chain([e.gpu.key.clone()])).collect();
    let types: Vec<String> = catalogue().nodes().map(|n| n.key.clone()).collect();
    let times = proptest::sample::select(vec!["x", " x ", "X", "×", "*", " "]);
    let link = proptest::sample::select(vec![
        "",
        ", NVLink inside",
        ", InfiniBand between",
        " with 400G RoCE",
        ", no NVLink",
        " over ethernet",
    ]);
    let named = (
        1..40_u64,
        proptest::sample::select(vec![1_u64, 2, 4, 8]),
        proptest::sample::select(names),
        times,
        link,
        0..5_u8,
    )
        .prop_map(|(nodes, gpus, name, times, link, form)| match form {
            0 => format!("{nodes} nodes{times}{gpus} {name}{link}"),
            1 => format!("{nodes}x{gpus}x {name}{link}"),
            2 => format!("{name} x {gpus}{link}"),
            3 => format!("{} {name}, {gpus} a node{link}", nodes * gpus),
            _ => format!("{nodes} nodes (each with {gpus}x {name}){link}"),
        });
    let typed = (1..100_u64, proptest::sample::select(types)).prop_map(|(n, t)| format!("{n} x {t}"));
    prop_oneof![3 => named, 1 => typed]
}

/// Pools without what the normal text leaves out.
fn bare(cluster: &Cluster) -> Vec<NodePool> {
    let strip = |p: &NodePool| NodePool {
        usd_per_gpu_hour: None,
        price_source: None,
        free_memory_bytes: None,
        ..p.clone()
    };
    cluster.pools.iter().map(strip).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pools_round_trip(pools in proptest::collection::vec(any_pool(), 1..4)) {
        let mut cluster = Cluster { pools: Vec::new(), assumed: vec![], warnings: vec![] };
        for pool in pools {
            // equal nodes are one pool, and the limit holds
            let fresh = !cluster.pools.iter().any(|p| NodePool { nodes: pool.nodes, ..p.clone() } == pool);
            if fresh && cluster.gpus() + pool.gpus() < 900_000 {
                cluster.pools.push(pool);
            }
        }
        prop_assume!(!cluster.pools.is_empty());
        let text = cluster.full_text();
        let read = parse_text(&text, catalogue()).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(&read.full_text(), &text);
        prop_assert!(read.pools == cluster.pools, "{} differs in a figure", text);
        prop_assert!(read.assumed.is_empty(), "{}: {:?}", text, read.assumed);
    }

    #[test]
    fn texts_of_people_round_trip(text in any_text()) {
        // Some combinations ask back (NVLink on a card without it); what is read must read back.
        if let Ok(cluster) = parse_text(&text, catalogue()) {
            let normal = cluster.full_text();
            let again = parse_text(&normal, catalogue()).map_err(|e| TestCaseError::fail(format!("{text} -> {normal}: {e}")))?;
            prop_assert_eq!(&again.full_text(), &normal, "{}", text);
            prop_assert!(bare(&again) == bare(&cluster), "{} -> {} differs in a figure", text, normal);
        }
    }

    #[test]
    fn odd_texts_never_panic(text in "\\PC{0,80}") {
        let _ = recognise(&text, None, None, catalogue());
    }

    #[test]
    fn odd_words_never_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "8", "x", "H100", "nodes", "-", "1e99", "of", "the", "a", "per", "node", "half", "DGX", "GB200", "rack", "NVL72",
        "NVLink", "domain", "72", "80GB", "1g.10gb", "400G", "IB", "inside", "between", "+", "and", ",", "(", "gpu:", "-N",
        "--nodes=", "99999999999999999999", "0", "superchips", "ports", "islands", "p5", "SU", "some", "no", "PCIe", "host memory",
    ]), 0..14)) {
        let _ = recognise(&words.join(" "), Some("h100"), Some(2), catalogue());
        let _ = recognise(&words.concat(), None, None, catalogue());
    }
}
