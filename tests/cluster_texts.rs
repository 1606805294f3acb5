//! Ways in which people write a cluster, each with its full meaning or the question that it must raise.

use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::cluster::{ClusterErrorKind, parse_text};
use shardwise::planner::hardware::Cluster;

/// What a text must mean.
enum Means {
    /// Pools as `nodes x gpus_per_node gpu | intra/island | inter`, and the names of what was assumed.
    Pools(&'static [&'static str], &'static [&'static str]),
    /// A question whose candidates contain these.
    Asks(&'static [&'static str]),
    Unknown(&'static [&'static str]),
    NoGpus,
    TooMany,
}
use Means::{Asks, NoGpus, Pools, TooMany, Unknown};

fn shown(cluster: &Cluster) -> Vec<String> {
    cluster
        .pools
        .iter()
        .map(|p| {
            format!(
                "{}x{} {} | {}/{} | {}",
                p.nodes, p.gpus_per_node, p.gpu.key, p.intra_link.key, p.island_gpus, p.inter_link.key
            )
        })
        .collect()
}

fn check(text: &str, means: &Means) -> Result<(), String> {
    let read = parse_text(text, catalogue());
    let fail = |why: String| Err(format!("{text:?}: {why}"));
    match (means, read) {
        (Pools(pools, assumed), Ok(cluster)) => {
            let got = shown(&cluster);
            if got != *pools {
                return fail(format!("\n  wanted {pools:?}\n  got    {got:?}"));
            }
            let names: Vec<&str> = cluster.assumed.iter().map(|a| a.name.as_str()).collect();
            for name in *assumed {
                if !names.contains(name) {
                    return fail(format!("`{name}` is not among the assumptions {names:?}"));
                }
            }
            Ok(())
        }
        (Asks(wanted), Err(e)) if e.kind == ClusterErrorKind::Ambiguous => {
            match wanted.iter().find(|w| !e.candidates.iter().any(|c| c.contains(**w))) {
                Some(w) => fail(format!("{w:?} is not among {:?}", e.candidates)),
                None => Ok(()),
            }
        }
        (Unknown(wanted), Err(e)) if e.kind == ClusterErrorKind::UnknownGpu => {
            match wanted
                .iter()
                .find(|w| !e.candidates.iter().any(|c| c.contains(**w)) && !e.message.contains(**w))
            {
                Some(w) => fail(format!("{w:?} is not in {e:?}")),
                None => Ok(()),
            }
        }
        (NoGpus, Err(e)) if e.kind == ClusterErrorKind::NoGpus => Ok(()),
        (TooMany, Err(e)) if e.kind == ClusterErrorKind::TooManyGpus => Ok(()),
        (_, Ok(cluster)) => fail(format!("read as {:?}", shown(&cluster))),
        (_, Err(e)) => fail(format!("{:?}: {e} {:?}", e.kind, e.candidates)),
    }
}

const H100: &str = "1x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr";
const H100_2: &str = "2x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr";
const H200: &str = "1x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr";
const H200_2: &str = "2x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr";
const H20_2: &str = "2x8 h20-96gb | nvlink4/8 | infiniband-ndr";
const A100: &str = "1x8 a100-sxm4-80gb | nvlink3/8 | infiniband-hdr";
const MI300X: &str = "1x8 mi300x | xgmi3/8 | roce-400";
const RACK: &str = "18x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr";

const TABLE: &[(&str, Means)] = &[
    ("16 H100s", Pools(&[H100_2], &["nodes", "gpus_per_node", "intra_link", "inter_link", "form_factor"])),
    ("16 H100s, 8 a node, NVLink inside, InfiniBand between", Pools(&[H100_2], &["form_factor"])),
    ("2x8xH100", Pools(&[H100_2], &["intra_link", "inter_link"])),
    ("2x8x MI300X-192GB", Pools(&["2x8 mi300x | xgmi3/8 | roce-400"], &[])),
    ("8×H100-80GB SXM", Pools(&[H100], &[])),
    ("8xH100", Pools(&[H100], &["form_factor"])),
    ("H100x8", Pools(&[H100], &[])),
    ("H100:8", Pools(&[H100], &["nodes"])),
    ("A100:80GB:8", Pools(&[A100], &[])),
    ("A100-80GB:8", Pools(&[A100], &["form_factor"])),
    ("24GB..40GB:2", Asks(&["a100-sxm4-40gb", "rtx-4090", "rtx-5090"])),
    ("gpu:h100:8", Pools(&[H100], &["nodes"])),
    ("gres/gpu:h100=8", Pools(&[H100], &["nodes"])),
    ("--gres=gpu:a100:4 -N 2", Pools(&["2x4 a100-sxm4-80gb | nvlink3/4 | infiniband-hdr"], &["gpu_memory"])),
    ("--gpus-per-node=8 --nodes=4", Asks(&["4 nodes x 8 H100"])),
    ("nvidia.com/gpu: 8", Asks(&["8 H100"])),
    ("4x p5.48xlarge", Pools(&["4x8 h100-sxm5-80gb | nvlink4/8 | efa-v2"], &[])),
    ("p5.48xlarge x2", Pools(&["2x8 h100-sxm5-80gb | nvlink4/8 | efa-v2"], &[])),
    ("p5", Asks(&["p5.48xlarge", "p5.4xlarge"])),
    ("2 p5en.48xlarge", Pools(&["2x8 h200-sxm-141gb | nvlink4/8 | efa-v3"], &[])),
    ("p4de.24xlarge", Pools(&["1x8 a100-sxm4-80gb | nvlink3/8 | efa-v1"], &["nodes"])),
    ("g6e.48xlarge", Pools(&["1x8 l40s | pcie4/8 | efa-100"], &[])),
    ("g7e.24xlarge", Pools(&["1x4 rtx-pro-6000-server | pcie5/4 | efa-400"], &[])),
    ("a3-megagpu-8g", Pools(&["1x8 h100-sxm5-80gb | nvlink4/8 | gpudirect-tcpxo"], &[])),
    ("2 a3-ultragpu-8g", Pools(&["2x8 h200-sxm-141gb | nvlink4/8 | roce-400"], &[])),
    ("a2-ultragpu-4g", Pools(&["1x4 a100-sxm4-80gb | nvlink3/4 | infiniband-hdr"], &[])),
    ("Standard_ND96isr_H100_v5", Pools(&[H100], &[])),
    ("2x ND H200 v5", Pools(&[H200_2], &[])),
    ("BM.GPU.H100.8", Pools(&["1x8 h100-sxm5-80gb | nvlink4/8 | roce-400"], &[])),
    ("BM.GPU.B4.8", Pools(&["1x8 a100-sxm4-40gb | nvlink3/8 | roce-200"], &[])),
    ("gpu_8x_a100_80gb_sxm4", Pools(&[A100], &[])),
    ("1 DGX H200", Pools(&[H200], &[])),
    ("DGX H100 x4", Pools(&["4x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &[])),
    ("two 8xA100-40 nodes", Pools(&["2x8 a100-sxm4-40gb | nvlink3/8 | infiniband-hdr"], &[])),
    ("a DGX", Asks(&["DGX H100", "DGX B200"])),
    ("one HGX B200 box", Pools(&["1x8 b200-sxm-180gb | nvlink5/8 | infiniband-ndr"], &[])),
    ("SuperPOD SU", Pools(&["32x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &["nodes", "node_type"])),
    ("half a DGX A100", Pools(&["1x4 a100-sxm4-80gb | nvlink3/8 | infiniband-hdr"], &["gpu_memory"])),
    ("72 GB200", Pools(&[RACK], &["count"])),
    ("1 GB200 NVL72", Pools(&[RACK], &[])),
    ("36 GB200", Pools(&["9x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr"], &["count"])),
    ("4x GB200", Pools(&["1x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr"], &["count"])),
    ("18 GB200 trays", Pools(&[RACK], &[])),
    ("NVL36", Pools(&["9x4 gb200-186gb | nvlink5-nvl72/36 | infiniband-ndr"], &["gpu"])),
    ("2 racks of GB300", Pools(&["36x4 gb300-288gb | nvlink5-nvl72/72 | infiniband-xdr"], &[])),
    ("16 GPUs(H20)", Asks(&["H20 96GB", "H20-3e 141GB"])),
    ("2nodes(each with 8xH20)", Pools(&[H20_2], &["gpu_memory"])),
    ("2*8*H20", Pools(&[H20_2], &["gpu_memory"])),
    ("16卡H800", Pools(&["2x8 h800-sxm5-80gb | nvlink4-nv8/8 | infiniband-ndr"], &["nodes"])),
    ("8*A800", Pools(&["1x8 a800-sxm4-80gb | nvlink3-nv8/8 | infiniband-hdr"], &[])),
    ("H100 NVL x2", Pools(&["1x2 h100-nvl-94gb | nvlink4-bridge/2 | ethernet-100"], &["intra_link"])),
    ("4x H100 PCIe", Pools(&["1x4 h100-pcie-80gb | pcie5/4 | ethernet-100"], &["intra_link"])),
    ("4xL40S", Pools(&["1x4 l40s | pcie4/4 | roce-400"], &[])),
    (
        "8x RTX Pro 6000 Blackwell Server Edition",
        Pools(&["1x8 rtx-pro-6000-server | pcie5/8 | roce-400"], &[]),
    ),
    ("rtx 6000", Asks(&["RTX 6000 Ada", "RTX PRO 6000"])),
    ("2x 5090", Pools(&["1x2 rtx-5090 | pcie5/2 | ethernet-10"], &["intra_link"])),
    ("4 3090s with nvlink bridges", Pools(&["1x4 rtx-3090 | nvlink3-bridge-nv4/2 | ethernet-10"], &[])),
    ("dual 4090", Pools(&["1x2 rtx-4090 | pcie4/2 | ethernet-10"], &[])),
    ("2 DGX Sparks", Pools(&["2x1 gb10 | pcie5/1 | roce-200"], &[])),
    ("8 MI300X", Pools(&[MI300X], &[])),
    ("4 of the 8 MI300X", Pools(&["1x4 mi300x | xgmi3/4 | roce-400"], &[])),
    ("Gaudi3 x8", Pools(&["1x8 gaudi3 | gaudi3-roce/8 | roce-200"], &[])),
    ("v5p-128", Asks(&["64 TPU v5p"])),
    ("tpu v6e-8", Pools(&["1x8 tpu-v6e | ici-v6e/8 | ethernet-100"], &[])),
    ("8 H100 + 8 A100", Pools(&[H100, A100], &["gpu_memory"])),
    ("6 H100", Pools(&["1x6 h100-sxm5-80gb | nvlink4/6 | infiniband-ndr"], &["gpus_per_node"])),
    ("12 H100s", Asks(&["2x6 H100", "3x4 H100"])),
    ("100 H100", Pools(&["12x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &["nodes"])),
    ("640GB of H100", Pools(&[H100], &["count"])),
    ("2 nodes", Asks(&["2 nodes x 8 H100"])),
    ("H100", Pools(&["1x1 h100-sxm5-80gb | nvlink4/1 | infiniband-ndr"], &["count"])),
    ("0 H100", NoGpus),
    ("-8 H100", NoGpus),
    ("1e6 H100", TooMany),
    ("H1OO (letter O)", Unknown(&["H100"])),
    ("h100s x sixteen", Pools(&[H100_2], &[])),
    ("sixteen H100s", Pools(&[H100_2], &[])),
    ("a couple of A100s", Pools(&["1x2 a100-sxm4-80gb | nvlink3/2 | infiniband-hdr"], &["gpu_memory"])),
    ("some H200", Asks(&["8 H200"])),
    ("what fits on 16 H100s", Pools(&[H100_2], &[])),
    ("can we run Llama 70B on 4xA100 80?", Pools(&["1x4 a100-sxm4-80gb | nvlink3/4 | infiniband-hdr"], &[])),
    ("H100 SXM5 80GB x 8 (NDR400 IB)", Pools(&[H100], &[])),
    ("8x NVIDIA-H100-80GB-HBM3", Pools(&[H100], &[])),
    ("NVIDIA GH200 480GB", Pools(&["1x1 gh200-96gb | nvlink4/1 | infiniband-ndr"], &["count"])),
    ("8 x B100", Unknown(&["B100"])),
    ("B300 8-GPU, 270GB", Pools(&["1x8 b300-sxm-288gb | nvlink5/8 | infiniband-xdr"], &[])),
    ("<https://x&#124;16 H100s>", Pools(&[H100_2], &[])),
    ("16&nbsp;H100s", Pools(&[H100_2], &[])),
    ("16\u{a0}H100s", Pools(&[H100_2], &[])),
    ("“16” H100s", Pools(&[H100_2], &[])),
    ("@planner 16 H100s", Pools(&[H100_2], &[])),
];

/// The same families in other words.
const ALIKE: &[(&str, Means)] = &[
    ("two nodes of eight H100", Pools(&[H100_2], &["form_factor"])),
    ("two 8-GPU H100 nodes", Pools(&[H100_2], &[])),
    ("2 nodes x 8 H100, InfiniBand between", Pools(&[H100_2], &["intra_link"])),
    ("16 H100 across two nodes", Pools(&[H100_2], &[])),
    ("2 nodes with 8 H100 each", Pools(&[H100_2], &[])),
    ("8 H100 per node, 2 nodes", Pools(&[H100_2], &[])),
    ("2x (8xH100)", Pools(&[H100_2], &[])),
    ("两台8卡H100", Pools(&[H100_2], &[])),
    ("八卡H100", Pools(&[H100], &[])),
    ("8 GPU H100 node", Pools(&[H100], &["nodes"])),
    ("16x nvidia h100 80gb hbm3", Pools(&[H100_2], &[])),
    ("how many tokens can 2x8xH200 hold?", Pools(&[H200_2], &[])),
    ("is 8xH100 enough for Llama 3.1 405B", Pools(&[H100], &[])),
    (
        "plan meta-llama/Llama-3.1-70B-Instruct on 4x p5.48xlarge",
        Pools(&["4x8 h100-sxm5-80gb | nvlink4/8 | efa-v2"], &[]),
    ),
    ("twenty-four H200s", Pools(&["3x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr"], &["nodes"])),
    ("100,000 H100s", Pools(&["12500x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &["nodes"])),
    (
        "16 GB200 in one NVLink domain",
        Pools(&["4x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr"], &["count"]),
    ),
    (
        "16 GPUs in one NVLink domain of 72",
        Pools(&["4x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr"], &["gpu"]),
    ),
    ("36 GB200 superchips", Pools(&[RACK], &[])),
    ("one rack of GB200", Pools(&[RACK], &[])),
    ("8xH20-3e", Pools(&["1x8 h20-3e-141gb | nvlink4/8 | infiniband-ndr"], &[])),
    ("8 H20", Pools(&["1x8 h20-96gb | nvlink4/8 | infiniband-ndr"], &["gpu_memory"])),
    (
        "3 nodes: 8 H100, 8 H100, 4 H100",
        Pools(&[H100_2, "1x4 h100-sxm5-80gb | nvlink4/4 | infiniband-ndr"], &[]),
    ),
    ("2x8xH100 and 4xA100-80GB", Pools(&[H100_2, "1x4 a100-sxm4-80gb | nvlink3/4 | infiniband-hdr"], &[])),
    ("7x A100 1g.10gb", Pools(&["1x7 a100-sxm4-80gb-mig-1g.10gb | pcie4/1 | infiniband-hdr"], &[])),
    ("4x8 H100 with 400G RoCE", Pools(&["4x8 h100-sxm5-80gb | nvlink4/8 | roce-400"], &[])),
    ("2x8 H100 without InfiniBand", Pools(&["2x8 h100-sxm5-80gb | nvlink4/8 | ethernet-100"], &[])),
    // what a load or a layout counts is no count of GPUs
    ("8 H100 4k", Pools(&[H100], &[])),
    ("16 H100s @ 32k", Pools(&[H100_2], &[])),
    ("what fits on 16 H100s with 128k context", Pools(&[H100_2], &[])),
    ("8 H100 for 50 users at 32k context", Pools(&[H100], &[])),
    ("16 H100, 100 users", Pools(&[H100_2], &[])),
    ("16 H100 (TP=8, PP=2)", Pools(&[H100_2], &[])),
    ("8 H100 tp 4 pp 2", Pools(&[H100], &[])),
    ("16 H100s at 10 requests per second", Pools(&[H100_2], &[])),
    ("8xH100 $2/hr", Pools(&[H100], &[])),
    ("1k H200", Pools(&["125x8 h200-sxm-141gb | nvlink4/8 | infiniband-ndr"], &["nodes"])),
    ("16 H100 64", Asks(&["16 H100"])),
    ("16 H100 8", Asks(&["16 H100", "2 nodes x 8 H100"])),
    ("2x8xH100 32", Asks(&["2x8 H100"])),
    ("8xH100 x2", Pools(&[H100_2], &[])),
    ("8 H100/node * 2", Pools(&[H100_2], &[])),
    ("8 H100 per node x 2", Pools(&[H100_2], &[])),
    ("H100, 8 per node, x 2", Pools(&[H100_2], &[])),
    ("[8xH100]*2", Pools(&[H100_2], &[])),
    ("(8 H100) x 2", Pools(&[H100_2], &[])),
    ("2 x (8 x H100)", Pools(&[H100_2], &[])),
    ("half a dozen H100s", Pools(&["1x6 h100-sxm5-80gb | nvlink4/6 | infiniband-ndr"], &["gpus_per_node"])),
    ("16 H100s, 8 per node, 8x400Gb/s NDR", Pools(&[H100_2], &[])),
    ("2x ml.p5.48xlarge", Pools(&["2x8 h100-sxm5-80gb | nvlink4/8 | efa-v2"], &[])),
    ("acht H100", Asks(&["8 H100"])),
    ("H100を16枚", Asks(&["16 H100"])),
    ("1.5 H100", Asks(&["1 H100"])),
    ("8x Ascend 910B", Unknown(&["Ascend"])),
    ("4 A6000", Pools(&["1x4 rtx-a6000 | pcie4/4 | ethernet-100"], &["nodes", "intra_link"])),
    ("2x8 H100, RoCE between", Pools(&["2x8 h100-sxm5-80gb | nvlink4/8 | roce-400"], &["inter_link"])),
    ("(4xH100)*2", Pools(&["2x4 h100-sxm5-80gb | nvlink4/4 | infiniband-ndr"], &[])),
    ("H100 2x8", Pools(&[H100_2], &[])),
    ("2N8G H100", Pools(&[H100_2], &[])),
    ("sixteen (16) H100s", Pools(&[H100_2], &[])),
    ("an 8xH100 node", Pools(&[H100], &["nodes"])),
    ("half a node of H100", Pools(&["1x4 h100-sxm5-80gb | nvlink4/4 | infiniband-ndr"], &[])),
    ("half of the 8 MI300X", Pools(&["1x4 mi300x | xgmi3/4 | roce-400"], &[])),
    ("4 out of 8 H100", Pools(&["1x4 h100-sxm5-80gb | nvlink4/4 | infiniband-ndr"], &[])),
    ("half a rack of GB200", Pools(&["9x4 gb200-186gb | nvlink5-nvl72/72 | infiniband-ndr"], &[])),
    ("DGX GB200 NVL72", Pools(&[RACK], &[])),
    ("两机16卡H800", Pools(&["2x8 h800-sxm5-80gb | nvlink4-nv8/8 | infiniband-ndr"], &[])),
    ("双卡4090", Pools(&["1x2 rtx-4090 | pcie4/2 | ethernet-10"], &[])),
    ("ND96isr H100 v5", Pools(&[H100], &[])),
    ("gres/gpu:h100=16", Pools(&[H100_2], &["nodes"])),
    ("16 H100s, NVLink intra-node, InfiniBand inter-node", Pools(&[H100_2], &[])),
    ("two dozen H100", Pools(&["3x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &[])),
    ("no H100s", NoGpus),
    ("minus 8 H100", NoGpus),
    ("1 million H100s", TooMany),
    ("lots of H100s", Asks(&["8 H100"])),
    ("8 GTX 9999", Unknown(&["GTX 9999"])),
    ("10^18 H100", TooMany),
    ("999999999999999999999 H100", TooMany),
    ("a few A100s", Asks(&["8 A100"])),
    ("10 H100", Asks(&["2x5 H100"])),
    ("4x p5", Asks(&["p5.48xlarge"])),
    ("8 L40S with NVLink", Asks(&["L40S"])),
    ("8 Z100", Unknown(&["V100"])),
    ("a quarter of a DGX H100", Asks(&["2 H100"])),
    ("H100 cluster", Asks(&["8 H100"])),
    ("tpu v5e-16", Pools(&["2x8 tpu-v5e | ici-v5e/16 | ethernet-100"], &[])),
    ("2x a3-highgpu-4g", Pools(&["2x4 h100-sxm5-80gb | nvlink4/4 | ethernet-100"], &[])),
    ("GB200 NVL4", Asks(&["4 GB200"])),
    ("RTX PRO 6000 x 4", Pools(&["1x4 rtx-pro-6000-server | pcie5/4 | roce-400"], &["gpu"])),
    ("8x B200 192GB", Pools(&["1x8 b200-sxm-180gb | nvlink5/8 | infiniband-ndr"], &["gpu_memory"])),
    ("8x HGX H100", Pools(&["8x8 h100-sxm5-80gb | nvlink4/8 | infiniband-ndr"], &["gpus"])),
    ("8 H100 2 nodes", Asks(&["2 nodes x 8 H100", "2 nodes x 4 H100"])),
    ("双路4090", Pools(&["1x2 rtx-4090 | pcie4/2 | ethernet-10"], &[])),
    ("7900 XTX x2", Unknown(&[])),
    ("hello", NoGpus),
];

#[test]
fn texts_of_the_same_families() {
    let faults: Vec<String> = ALIKE.iter().filter_map(|(text, means)| check(text, means).err()).collect();
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), ALIKE.len(), faults.join("\n"));
}

#[test]
fn every_candidate_is_itself_a_clear_text() {
    let mut unclear = Vec::new();
    for (text, means) in TABLE.iter().chain(ALIKE) {
        let Asks(_) = means else { continue };
        for candidate in parse_text(text, catalogue()).expect_err("a question").candidates {
            if let Err(e) = parse_text(&candidate, catalogue()) {
                unclear.push(format!("{text:?} offers {candidate:?}: {e}"));
            }
        }
    }
    assert!(unclear.is_empty(), "{}", unclear.join("\n"));
}

#[test]
fn every_row_of_the_table() {
    let faults: Vec<String> = TABLE.iter().filter_map(|(text, means)| check(text, means).err()).collect();
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), TABLE.len(), faults.join("\n"));
}
