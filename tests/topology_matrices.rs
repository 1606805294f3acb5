//! The matrices of `tests/data/topo` (sources in their sidecars): islands, links and warnings; and damaged ones.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;
use shardwise::catalogue::hardware::catalogue;
use shardwise::ingest::cluster::topology::{Code, Matrix, islands, parse_topology, read_matrix};
use shardwise::ingest::cluster::{ClusterError, ClusterErrorKind};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/topo")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a matrix of the folder")
}

/// Every matrix with its sidecar.
fn all() -> Vec<(String, String, Value)> {
    let index: Value =
        serde_json::from_str(&fs::read_to_string(folder().join("index.json")).expect("index")).expect("JSON");
    let files = index["files"].as_array().expect("a list").clone();
    files
        .into_iter()
        .map(|entry| {
            let name = entry["file"].as_str().expect("a name").trim_end_matches(".txt").to_owned();
            (name.clone(), text(&name), entry)
        })
        .collect()
}

fn code_text(code: Code) -> String {
    match code {
        Code::Itself => "X".to_owned(),
        Code::NvLink(n) => format!("NV{n}"),
        Code::Pix => "PIX".to_owned(),
        Code::Pxb => "PXB".to_owned(),
        Code::Phb => "PHB".to_owned(),
        Code::Node => "NODE".to_owned(),
        Code::Sys => "SYS".to_owned(),
    }
}

fn check(name: &str, matrix: &Matrix, entry: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |what: &str, wanted: &Value, got: Value| {
        if !wanted.is_null() && *wanted != got {
            faults.push(format!("{name}: {what}: wanted {wanted}, got {got}"));
        }
    };
    let wanted = &entry["expect"];
    expect("gpus", &entry["gpus"], matrix.gpus().into());
    expect("rows", &entry["rows_present"], matrix.rows_present.into());
    expect("complete", &entry["complete"], (!matrix.truncated).into());
    if wanted["gpu_gpu"].is_string() {
        for code in matrix.codes() {
            expect("gpu_gpu", &wanted["gpu_gpu"], code_text(code).into());
        }
    }
    if let Some(codes) = wanted["codes"].as_array() {
        let found: Vec<String> = matrix.codes().map(code_text).collect();
        for code in codes {
            expect(
                "has code",
                &Value::Bool(true),
                found.iter().any(|c| Some(c.as_str()) == code.as_str()).into(),
            );
        }
    }
    expect("islands", &wanted["islands"], serde_json::to_value(islands(matrix)).expect("numbers"));
    expect("nics", &wanted["nic_count"], matrix.nics.len().into());
    if wanted["nic_names"].is_array() {
        expect("nic names", &wanted["nic_names"], matrix.nics.clone().into());
    }
    expect("NUMA nodes", &wanted["numa_nodes"], matrix.numa_nodes.len().into());
    if wanted["gpu_numa_id"].is_array() {
        expect(
            "GPU NUMA ids",
            &wanted["gpu_numa_id"],
            serde_json::to_value(&matrix.gpu_numa).expect("numbers"),
        );
    }
    if let Some(gpu) = wanted["degraded_gpu"].as_u64() {
        let alone = islands(matrix).into_iter().find(|i| i.len() == 1);
        expect("degraded GPU", &serde_json::json!([gpu]), serde_json::to_value(alone).expect("numbers"));
    }
    if let Some(split) = wanted["numa_split"].as_array() {
        let sizes: Vec<usize> = islands(matrix).iter().map(Vec::len).collect();
        expect("sockets", &Value::Array(split.clone()), serde_json::to_value(sizes).expect("numbers"));
    }
    faults
}

#[test]
fn every_matrix_reads_as_its_sidecar_says() {
    let all = all();
    assert_eq!(all.len(), 24);
    let mut faults = Vec::new();
    for (name, text, entry) in all {
        match read_matrix(&text) {
            Ok(matrix) => faults.extend(check(&name, &matrix, &entry)),
            Err(e) => faults.push(format!("{name}: {e}")),
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Intra link, island, host link and warnings of a matrix for a GPU.
fn meaning(name: &str, gpu: &str) -> (String, u64, Option<String>, Vec<String>) {
    let cluster =
        parse_topology(&text(name), Some(gpu), 1, catalogue()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let pool = &cluster.pools[0];
    let codes = cluster.warnings.iter().map(|w| w.code.clone()).collect();
    (pool.intra_link.key.clone(), pool.island_gpus, pool.host_link.as_ref().map(|l| l.key.clone()), codes)
}

#[test]
fn links_and_warnings_follow_from_the_matrix() {
    type Row = (&'static str, &'static str, &'static str, u64, Option<&'static str>, &'static [&'static str]);
    let rows: [Row; 13] = [
        ("a100_8x_nvswitch_10nic_tab", "a100-sxm4-80gb", "nvlink3", 8, None, &[]),
        ("h100_8x_nvswitch_compact", "h100", "nvlink4", 8, None, &[]),
        ("h100_4x_nv6_mesh_4nic", "h100", "nvlink4-mesh", 4, None, &[]),
        (
            "b200_8x_one_gpu_lost_nvlink_truncated",
            "b200",
            "nvlink5",
            7,
            Some("pcie-sys"),
            &["gpu_cut_off", "island_smaller_than_node", "tp_crosses_sys", "matrix_truncated"],
        ),
        ("gb200_4x_nv18_tray", "gb200", "nvlink5-nvl72", 72, None, &[]),
        (
            "power9_v100_4x_nv3_pairs_mlx5",
            "v100-32gb",
            "nvlink2-nv3",
            2,
            Some("pcie-sys"),
            &["island_smaller_than_node", "tp_crosses_sys"],
        ),
        (
            "v100_8x_hybrid_cube_mesh_blank_lines",
            "v100-32gb",
            "nvlink2-mesh",
            8,
            None,
            &["tp_crosses_sys", "unequal_nvlink"],
        ),
        ("v100_16x_nv6_dgx2_truncated", "v100-32gb", "nvlink2", 16, None, &["matrix_truncated"]),
        ("pcie_8x_node_phb_sys", "l40s", "pcie4", 6, Some("pcie-sys"), &["tp_crosses_sys"]),
        ("rtx4090_8x_sys_2nic", "rtx-4090", "pcie-sys", 8, None, &["tp_crosses_sys"]),
        ("rtx5090_2x_phb", "rtx-5090", "pcie5", 2, None, &[]),
        ("mixed_5x_sys_phb_node", "rtx-3090", "pcie4", 4, Some("pcie-sys"), &["tp_crosses_sys"]),
        ("a100pcie_4x_sys_4numa", "a100-pcie-80gb", "pcie-sys", 4, None, &["tp_crosses_sys"]),
    ];
    for (name, gpu, intra, island, host, warnings) in rows {
        let got = meaning(name, gpu);
        assert_eq!((got.0.as_str(), got.1, got.2.as_deref()), (intra, island, host), "{name}");
        for code in warnings {
            assert!(got.3.iter().any(|c| c == code), "{name}: {code} is not among {:?}", got.3);
        }
        if warnings.is_empty() {
            assert_eq!(got.3, Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn a_matrix_without_a_gpu_or_without_its_nvlink_asks() {
    let ask = |name: &str, gpu: Option<&str>| -> ClusterError {
        parse_topology(&text(name), gpu, 1, catalogue()).expect_err("a question")
    };
    let unnamed = ask("h100_8x_nvswitch_compact", None);
    assert_eq!(unnamed.kind, ClusterErrorKind::Ambiguous);
    assert!(unnamed.candidates.iter().any(|c| c == "h100-sxm5-80gb"));
    let hidden = ask("deepep_8x_topo_mp_hides_nvlink_truncated", Some("h800"));
    assert_eq!(hidden.kind, ClusterErrorKind::Ambiguous);
    assert!(hidden.message.contains("-mp"), "{hidden}");
    assert!(ask("deepep_8x_topo_mp_hides_nvlink_truncated", None).message.contains("-mp"));
    assert_eq!(ask("pair_2x_phb", Some("h1000x")).kind, ClusterErrorKind::UnknownGpu);
}

#[test]
fn damage_names_its_place() {
    let whole = text("h100_8x_nvswitch_compact");
    let wrong_code = whole.replacen("GPU2  NV18  NV18", "GPU2  NV18  NVX8", 1);
    let e = read_matrix(&wrong_code).expect_err("a wrong code");
    assert_eq!(e.at, Some((4, 13)), "{e}");
    let differs = whole.replacen("GPU2  NV18  NV18", "GPU2  NV18  NV12", 1);
    assert_eq!(read_matrix(&differs).expect_err("asymmetric").at, Some((4, 13)));
    let short = whole.replacen(
        "GPU3  NV18  NV18  NV18   X    NV18  NV18  NV18  NV18   0-51         0\n",
        "GPU3  NV18\n",
        1,
    );
    assert_eq!(read_matrix(&short).expect_err("a short row").at.map(|a| a.0), Some(5));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut, overwritten and inserted bytes: an answer or an error with a place, never a panic.
    #[test]
    fn damaged_matrices_never_panic(file in 0..24_usize, cut in 0..4_000_usize, at in 0..4_000_usize, junk in "\\PC{0,12}") {
        let all = all();
        let (_, text, _) = &all[file % all.len()];
        let mut damaged: String = text.chars().take(cut).collect();
        let place = damaged.char_indices().nth(at % (damaged.chars().count() + 1)).map_or(damaged.len(), |(i, _)| i);
        damaged.insert_str(place, &junk);
        if let Err(e) = read_matrix(&damaged) {
            prop_assert!(e.at.is_some() || e.kind == ClusterErrorKind::NoGpus, "{e}");
        }
        let _ = parse_topology(&damaged, Some("h100"), 1, catalogue());
    }
}
