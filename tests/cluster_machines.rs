//! Clusters in machines' own words: each format is recognised and means what its fields say.

use std::fmt::Write as _;

use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::cluster::{ClusterError, ClusterErrorKind, Format, ParsedCluster, recognise};

fn read(text: &str) -> Result<ParsedCluster, ClusterError> {
    recognise(text, None, None, catalogue())
}

/// Format, pools as `nodes x gpus gpu | intra/island | inter`, and the codes of the warnings.
fn meaning(text: &str) -> (Format, Vec<String>, Vec<String>) {
    let parsed = read(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let pools = parsed.cluster.pools.iter().map(|p| {
        format!(
            "{}x{} {} | {}/{} | {}",
            p.nodes, p.gpus_per_node, p.gpu.key, p.intra_link.key, p.island_gpus, p.inter_link.key
        )
    });
    (parsed.format, pools.collect(), parsed.cluster.warnings.iter().map(|w| w.code.clone()).collect())
}

fn node(name: &str, labels: &[(&str, &str)], allocatable: &[(&str, &str)], ready: bool) -> serde_json::Value {
    let labels: serde_json::Map<String, serde_json::Value> =
        labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
    let devices: serde_json::Map<String, serde_json::Value> =
        allocatable.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
    serde_json::json!({"kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {}, "status": {"capacity": devices, "allocatable": devices,
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
}

fn list(items: &[serde_json::Value]) -> String {
    serde_json::json!({"kind": "List", "items": items}).to_string()
}

#[test]
fn the_fragment_of_the_kubernetes_documentation() {
    let text = r#"{"kind":"List","items":[{"kind":"Node","metadata":{"name":"node-a","labels":{
     "node.kubernetes.io/instance-type":"p5.48xlarge","topology.kubernetes.io/zone":"us-east-1a",
     "nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3","nvidia.com/gpu.count":"8","nvidia.com/gpu.memory":"81559",
     "nvidia.com/gpu.family":"hopper","nvidia.com/gpu.replicas":"1","nvidia.com/mig.strategy":"single"}},
     "spec":{"taints":[{"key":"nvidia.com/gpu","effect":"NoSchedule"}]},
     "status":{"capacity":{"nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32"},
      "allocatable":{"nvidia.com/gpu":"7","vpc.amazonaws.com/efa":"32"},
      "conditions":[{"type":"Ready","status":"True"}]}}]}"#;
    let (format, pools, warnings) = meaning(text);
    assert_eq!(format, Format::KubernetesNodes);
    assert_eq!(pools, ["1x7 h100-sxm5-80gb | nvlink4/7 | efa-v2"]);
    assert_eq!(warnings, ["gpus_not_allocatable"]);
}

#[test]
fn kubernetes_nodes_are_pooled_by_what_they_are() {
    let h100 = [
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.memory", "81559"),
        ("node.kubernetes.io/instance-type", "p5.48xlarge"),
    ];
    let l40s = [("nvidia.com/gpu.product", "NVIDIA-L40S"), ("nvidia.com/gpu.memory", "46068")];
    let gpus = [("nvidia.com/gpu", "8")];
    let text = list(&[
        node("a", &h100, &gpus, true),
        node("b", &l40s, &[("nvidia.com/gpu", "4")], true),
        node("c", &h100, &gpus, true),
        node("d", &h100, &gpus, false),
        node("e", &[], &[("cpu", "8")], true),
    ]);
    let (_, pools, warnings) = meaning(&text);
    assert_eq!(pools, ["2x8 h100-sxm5-80gb | nvlink4/8 | efa-v2", "1x4 l40s | pcie4/4 | roce-400"]);
    assert_eq!(warnings, ["nodes_skipped", "mixed_gpus"]);
}

#[test]
fn cliques_are_nvlink_domains() {
    let labels =
        |rack: &'static str| [("nvidia.com/gpu.product", "NVIDIA-GB200"), ("nvidia.com/gpu.clique", rack)];
    let trays: Vec<serde_json::Value> = (0..18)
        .map(|i| {
            node(
                "t",
                &labels(if i < 9 { "7b968a6d.1" } else { "7b968a6d.2" }),
                &[("nvidia.com/gpu", "4")],
                true,
            )
        })
        .collect();
    assert_eq!(meaning(&list(&trays)).1, ["18x4 gb200-186gb | nvlink5-nvl72/36 | infiniband-ndr"]);
}

#[test]
fn slices_and_shares_are_not_gpus() {
    let a100 = [("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"), ("nvidia.com/gpu.memory", "81920")];
    let mig = list(&[node("m", &a100, &[("nvidia.com/mig-1g.10gb", "14")], true)]);
    let (_, pools, warnings) = meaning(&mig);
    assert_eq!(pools, ["1x14 a100-sxm4-80gb-mig-1g.10gb | pcie4/1 | infiniband-hdr"]);
    assert!(warnings.contains(&"mig_slices".to_owned()));
    let single =
        [("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"), ("nvidia.com/gpu.memory", "4864")];
    let text = list(&[node("s", &single, &[("nvidia.com/gpu", "56")], true)]);
    assert_eq!(meaning(&text).1, ["1x56 a100-sxm4-40gb-mig-1g.5gb | pcie4/1 | infiniband-hdr"]);
    let shared = [("nvidia.com/gpu.product", "Tesla-T4-SHARED"), ("nvidia.com/gpu.replicas", "4")];
    let text = list(&[node("s", &shared, &[("nvidia.com/gpu", "8")], true)]);
    let (_, pools, warnings) = meaning(&text);
    assert_eq!(pools, ["1x2 t4 | pcie3/2 | ethernet-100"]);
    assert_eq!(warnings, ["gpu_shared"]);
}

#[test]
fn lists_without_gpus_or_with_unknown_ones_say_so() {
    let none = read(&list(&[node("c", &[], &[("cpu", "8")], true)])).expect_err("no GPU");
    assert_eq!(none.kind, ClusterErrorKind::NoGpus);
    let unknown = read(&list(&[node(
        "u",
        &[("nvidia.com/gpu.product", "NVIDIA-Z900")],
        &[("nvidia.com/gpu", "8")],
        true,
    )]));
    assert_eq!(unknown.expect_err("unknown").kind, ClusterErrorKind::UnknownGpu);
    let unlabelled = read(&list(&[node("u", &[], &[("nvidia.com/gpu", "8")], true)]));
    assert_eq!(unlabelled.expect_err("unlabelled").kind, ClusterErrorKind::Ambiguous);
    let broken = read("{\"items\": [\n {\"metadata\": 7}]}").expect_err("damaged");
    assert_eq!(broken.at.map(|a| a.0), Some(2));
}

#[test]
fn nvidia_smi_csv_in_every_dress() {
    let header = "index, name, memory.total [MiB], memory.free [MiB]\n";
    let mut whole = header.to_owned();
    for i in 0..8 {
        let _ = writeln!(whole, "{i}, NVIDIA H100 80GB HBM3, 81559 MiB, {} MiB", 80_000 - i);
    }
    let parsed = read(&whole).expect("valid");
    assert_eq!(parsed.format, Format::NvidiaSmiCsv);
    let pool = &parsed.cluster.pools[0];
    assert_eq!((pool.nodes, pool.gpus_per_node, pool.gpu.key.as_str()), (1, 8, "h100-sxm5-80gb"));
    assert_eq!(pool.free_memory_bytes.as_ref().map(|f| f[7].get()), Some(79_993 * 1_048_576));
    let bare = "0, NVIDIA A100-SXM4-80GB, 81920\n1, NVIDIA A100-SXM4-80GB, 81920\n0, NVIDIA A100-SXM4-80GB, 81920\n1, NVIDIA A100-SXM4-80GB, 81920\n";
    assert_eq!(meaning(bare).1, ["2x2 a100-sxm4-80gb | nvlink3/2 | infiniband-hdr"]);
    let mixed =
        "name, memory.total [MiB]\nNVIDIA GeForce RTX 4090, 24564 MiB\nNVIDIA GeForce RTX 3090, 24576 MiB\n";
    let (_, pools, warnings) = meaning(mixed);
    assert_eq!(pools, ["1x1 rtx-4090 | pcie4/1 | ethernet-10", "1x1 rtx-3090 | pcie4/1 | ethernet-10"]);
    assert_eq!(warnings, ["mixed_gpus"]);
}

#[test]
fn nvidia_smi_xml_gives_usable_memory() {
    let gpu = |name: &str, total: u64, reserved: u64| {
        format!(
            "<gpu id=\"x\"><product_name>{name}</product_name><fb_memory_usage><total>{total} MiB</total><reserved>{reserved} MiB</reserved><free>{} MiB</free></fb_memory_usage><bar1_memory_usage><total>1 MiB</total></bar1_memory_usage><mig_mode><current_mig>Disabled</current_mig></mig_mode></gpu>",
            total - reserved
        )
    };
    let doc = |gpus: &str| {
        format!(
            "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log><attached_gpus>4</attached_gpus>{gpus}</nvidia_smi_log>"
        )
    };
    let parsed = read(&doc(&gpu("NVIDIA GB200", 189_471, 742).repeat(4))).expect("valid");
    assert_eq!(parsed.format, Format::NvidiaSmiXml);
    let pool = &parsed.cluster.pools[0];
    assert_eq!(
        (pool.nodes, pool.gpus_per_node, pool.gpu.key.as_str(), pool.island_gpus),
        (1, 4, "gb200-186gb", 72)
    );
    assert_eq!(pool.gpu.memory_bytes.get(), 188_729 * 1_048_576);
    let damaged = read("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<gpu>").expect_err("damaged");
    assert!(damaged.at.is_some(), "{damaged}");
    let mig = doc(
        "<gpu><product_name>NVIDIA H100 80GB HBM3</product_name><mig_mode><current_mig>Enabled</current_mig></mig_mode></gpu>",
    );
    assert_eq!(read(&mig).expect_err("slices").kind, ClusterErrorKind::Ambiguous);
}

#[test]
fn slurm_in_its_four_forms() {
    let sinfo = "node-13 tmp:844G\ngpu-[01-04] gpu:nvidia_h100_80gb_hbm3:8(S:0-1)\nold-1 gpu:a100-40:4\n";
    let (format, pools, _) = meaning(sinfo);
    assert_eq!(format, Format::Slurm);
    assert_eq!(
        pools,
        [
            "4x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr",
            "1x4 a100-sxm4-40gb | nvlink3/4 | infiniband-hdr"
        ]
    );
    let scontrol = "NodeName=n1 Arch=x86_64 CoresPerSocket=32\n   Gres=gpu:h100:8(S:0-1)\n   State=IDLE\n   CfgTRES=cpu=64,mem=800G,billing=64,gres/gpu=8,gres/gpu:h100=8\n\nNodeName=n2 Arch=x86_64\n   Gres=(null)\n   State=DOWN+DRAIN\n   CfgTRES=gres/gpu:h100=8\n";
    let (_, pools, warnings) = meaning(scontrol);
    assert_eq!(pools, ["1x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"]);
    assert_eq!(warnings, ["nodes_skipped"]);
    let conf = "NodeName=dgx[01-02] Gres=gpu:h200:8 CPUs=112 State=UNKNOWN\n";
    assert_eq!(meaning(conf).1, ["2x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr"]);
    let gres = "Name=gpu Type=a100 File=/dev/nvidia[0-3]\n";
    assert_eq!(meaning(gres).1, ["1x4 a100-sxm4-80gb | nvlink3/4 | infiniband-hdr"]);
    let untyped = read("n1 gpu:2\n").expect_err("which GPU");
    assert_eq!(untyped.kind, ClusterErrorKind::Ambiguous);
    let named = recognise("n1 gpu:2\n", Some("l40s"), None, catalogue()).expect("the caller names it");
    assert_eq!(named.cluster.gpus(), 2);
}

#[test]
fn names_alone_are_the_gpus_of_one_host() {
    let name = "NVIDIA H100 80GB HBM3\n";
    let listed = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n";
    for (text, gpus) in
        [(name.repeat(4), "1x4 "), (format!("name\n{}", name.repeat(8)), "1x8 "), (listed.to_owned(), "1x2 ")]
    {
        let (format, pools, _) = meaning(&text);
        assert_eq!(format, Format::NvidiaSmiCsv, "{text}");
        assert!(pools.len() == 1 && pools[0].starts_with(gpus), "{text}: {pools:?}");
    }
    let sliced = format!("{listed}  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n");
    assert_eq!(read(&sliced).expect_err("slices").at, Some((3, 1)));
}

#[test]
fn tables_of_slurm_say_how_many_hosts_work() {
    let (_, pools, warnings) = meaning("PARTITION NODES GRES\ngpu 4 gpu:h100:8\n");
    assert!(pools[0].starts_with("4x8 "), "{pools:?} {warnings:?}");
    let states = "NODELIST NODES GRES STATE\ngpu[01-04] 4 gpu:a100-80g:8 idle\ngpu05 1 gpu:a100-80g:8 down*\n\
                  gpu06 1 gpu:a100-80g:8 drained\n";
    let (_, pools, _) = meaning(states);
    assert!(pools.len() == 1 && pools[0].starts_with("4x8 "), "{pools:?}");
}

#[test]
fn ray_counts_nodes_by_kind() {
    let (format, pools, _) =
        meaning(r#"{"CPU":384.0,"GPU":16.0,"accelerator_type:H100":2.0,"memory":3.2e12}"#);
    assert_eq!(
        (format, pools),
        (Format::RayResources, vec!["2x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr".to_owned()])
    );
    assert_eq!(
        meaning("{'CPU': 8.0, 'GPU': 1.0, 'accelerator_type:L4': 1.0}").1,
        ["1x1 l4 | pcie4/1 | ethernet-100"]
    );
    let kinds = read(r#"{"GPU":16.0,"accelerator_type:H100":1.0,"accelerator_type:A100":1.0}"#);
    assert_eq!(kinds.expect_err("two kinds").kind, ClusterErrorKind::Ambiguous);
    let vague = read(r#"{"GPU":2.0,"accelerator_type:G":1.0}"#);
    assert_eq!(vague.expect_err("which").kind, ClusterErrorKind::Ambiguous);
}

#[test]
fn instance_lists_add_up() {
    let (format, pools, _) =
        meaning(r#"[{"instance_type":"p5.48xlarge","count":2},{"instance_type":"g6e.48xlarge"}]"#);
    assert_eq!(format, Format::InstanceList);
    assert_eq!(pools, ["2x8 h100-sxm5-80gb | nvlink4/8 | efa-v2", "1x8 l40s | pcie4/8 | efa-100"]);
    let described = r#"{"InstanceTypes":[{"InstanceType":"p9.huge","GpuInfo":{"Gpus":[{"Name":"H100","Manufacturer":"NVIDIA","Count":8,"MemoryInfo":{"SizeInMiB":81920}}]}}]}"#;
    assert_eq!(meaning(described).1, ["1x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"]);
    assert_eq!(
        meaning("instance_type,count\np5en.48xlarge,3\n").1,
        ["3x8 h200-sxm-141gb | nvlink4/8 | efa-v3"]
    );
    let unknown = read(r#"[{"instance_type":"p5.99xlarge"}]"#).expect_err("unknown");
    assert!(unknown.candidates.iter().any(|c| c == "p5.48xlarge"), "{unknown:?}");
    let (format, pools, _) = meaning("4 x p5.48xlarge\n2 x g6e.48xlarge\n");
    assert_eq!(format, Format::Text);
    assert_eq!(pools.len(), 2);
}

#[test]
fn a_thousand_nodes_are_one_pool() {
    let labels = [
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.memory", "81559"),
        ("nvidia.com/gpu.family", "hopper"),
    ];
    let items: Vec<serde_json::Value> =
        (0..1_000).map(|i| node(&format!("node-{i}"), &labels, &[("nvidia.com/gpu", "8")], true)).collect();
    let text = list(&items);
    let parsed = read(&text).expect("valid");
    assert_eq!((parsed.cluster.pools.len(), parsed.cluster.gpus()), (1, 8_000));
}

fn read_as(text: &str, gpu: &str) -> (Format, Vec<String>, Vec<String>) {
    let parsed = recognise(text, Some(gpu), None, catalogue()).unwrap_or_else(|e| panic!("{e}: {text}"));
    let pools = parsed.cluster.pools.iter().map(|p| {
        format!("{}x{} {} | {}/{}", p.nodes, p.gpus_per_node, p.gpu.key, p.intra_link.key, p.island_gpus)
    });
    (parsed.format, pools.collect(), parsed.cluster.warnings.iter().map(|w| w.code.clone()).collect())
}

#[test]
fn ray_status_prints_usage() {
    let text = "======== Autoscaler status ========\nNode status\n---\nActive:\n 2 node_a\nResources\n---\nUsage:\n 0.0/384.0 CPU\n 0.0/16.0 GPU\n 0.0/2.0 accelerator_type:H100\n 0B/2.90TiB memory\nDemands:\n (no resource demands)\n";
    let (format, pools, _) = meaning(text);
    assert_eq!(format, Format::RayResources);
    assert_eq!(pools, ["2x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"]);
}

#[test]
fn topology_conf_names_hosts_and_domains() {
    let tree =
        "SwitchName=s0 Nodes=node[01-08]\nSwitchName=s1 Nodes=node[09-16]\nSwitchName=s2 Switches=s[0-1]\n";
    assert_eq!(read(tree).expect_err("the GPU is not named").kind, ClusterErrorKind::Ambiguous);
    let (format, pools, warnings) = read_as(tree, "h100");
    assert_eq!(format, Format::Slurm);
    assert_eq!(pools, ["16x8 h100-sxm5-80gb | nvlink4/8"]);
    assert_eq!(warnings, ["switch_levels"]);

    let blocks = "BlockName=b1 Nodes=node[01-18]\nBlockName=b2 Nodes=node[19-36]\nBlockSizes=18\n";
    let (_, pools, _) = read_as(blocks, "gb200");
    assert_eq!(pools, ["36x4 gb200-186gb | nvlink5-nvl72/72"]);

    // the nodes' own records say what each has
    let both = format!("NodeName=node[01-16] Gres=gpu:h200:8 State=UNKNOWN\n{tree}");
    let (_, pools, _) = meaning(&both);
    assert_eq!(pools, ["16x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr"]);
}

/// The table of link types as AMD's tools print it.
fn amd_table(title: &str, kinds: &[&[&str]]) -> String {
    let names: Vec<String> = (0..kinds.len()).map(|i| format!("GPU{i}")).collect();
    let rows: Vec<String> =
        kinds.iter().zip(&names).map(|(row, name)| format!("{name}   {}", row.join("         "))).collect();
    format!("{title}\n       {}\n{}\n\n", names.join("         "), rows.join("\n"))
}

#[test]
fn amd_tables_show_what_xgmi_joins() {
    let rocm = "============================== Link Type between two GPUs ==============================";
    let mesh: &[&[&str]] = &[
        &["0", "XGMI", "XGMI", "XGMI"],
        &["XGMI", "0", "XGMI", "XGMI"],
        &["XGMI", "XGMI", "0", "XGMI"],
        &["XGMI", "XGMI", "XGMI", "0"],
    ];
    let (format, pools, warnings) = read_as(&amd_table(rocm, mesh), "mi300x");
    assert_eq!(format, Format::AmdTopology);
    assert_eq!(pools, ["1x4 mi300x | xgmi3/4"]);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(read(&amd_table(rocm, mesh)).expect_err("no GPU is named").kind, ClusterErrorKind::Ambiguous);

    let pairs: &[&[&str]] = &[
        &["SELF", "XGMI", "PCIE", "PCIE"],
        &["XGMI", "SELF", "PCIE", "PCIE"],
        &["PCIE", "PCIE", "SELF", "XGMI"],
        &["PCIE", "PCIE", "XGMI", "SELF"],
    ];
    let (_, pools, warnings) = read_as(&amd_table("LINK TYPE TABLE:", pairs), "mi250x");
    assert!(pools[0].ends_with("/2"), "{pools:?}");
    assert_eq!(warnings, ["island_smaller_than_node"]);

    let cards: &[&[&str]] = &[&["0", "PCIE"], &["PCIE", "0"]];
    let (_, pools, _) = read_as(&amd_table(rocm, cards), "mi300x");
    assert_eq!(pools, ["1x2 mi300x | pcie5/2"]);

    let damaged =
        recognise(&amd_table(rocm, &[&["0", "XGMI"], &["XGMI"]]), Some("mi300x"), None, catalogue())
            .expect_err("a cell is missing");
    assert_eq!(damaged.at.map(|at| at.0), Some(4));
}
