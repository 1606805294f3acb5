//! The binary as people and pipelines meet it: what it prints, where, and how it ends.

mod support;

use serde_json::Value;
use support::{run, run_with_input, transcript};

const MODEL: &str = "meta-llama/Llama-3.1-70B-Instruct";

fn plan(more: &[&str]) -> std::process::Output {
    run(&[&["plan", "--model", MODEL, "--cluster", "16 H100s"], more].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Every constant given, so that the figures below change only when a formula does.
const FIXED: &[&str] = &[
    "--latency-model",
    "roofline",
    "--max-model-len",
    "32768",
    "--assume",
    "gpu_memory_bytes=80e9",
    "--assume",
    "reserve_bytes=3e9",
    "--assume",
    "hbm_bytes_per_s=3.35e12",
    "--assume",
    "hbm_efficiency=0.8",
    "--assume",
    "peak_flops=989e12",
    "--assume",
    "compute_efficiency=0.75",
    "--assume",
    "link_efficiency=0.75",
    "--assume",
    "allreduce_fixed_us=5",
    "--assume",
    "usd_per_gpu_hour=2",
];

#[test]
fn the_table_reads_in_80_columns() {
    let output = plan(FIXED);
    let shown = text(&output.stdout);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "a line is longer than 80:\n{shown}");
    assert!(!shown.contains('\u{1b}'), "colour went to a pipe");
    insta::assert_snapshot!(transcript(&output));
}

#[test]
fn explained_it_still_reads_in_80_columns() {
    let shown = text(&plan(&[FIXED, &["--explain", "--limit", "2"]].concat()).stdout);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "a line is longer than 80:\n{shown}");
    for part in ["stage", "decode step", "Assumptions", "reserve_bytes", "Why it stands first"] {
        assert!(shown.contains(part), "{part} is not explained:\n{shown}");
    }
}

#[test]
fn copied_heads_are_told_with_what_they_cost() {
    let answer: Value =
        serde_json::from_slice(&plan(&["--format", "json", "--limit", "100"]).stdout).expect("JSON");
    let layouts = answer["layouts"].as_array().expect("layouts");
    let row = layouts
        .iter()
        .find(|r| r["layout"]["tp"] == 16 && r["layout"]["dcp"] == 1)
        .expect("TP=16 is among the layouts");
    assert_eq!(row["kv"]["replication_factor"], 2.0);
    let warning = row["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|w| w["code"] == "kv_replicated")
        .expect("it warns that KV heads are copied");
    assert!(warning["message"].as_str().is_some_and(|m| m.contains("token")), "{warning}");
}

#[test]
fn json_is_the_answer_of_the_api() {
    let by_flags = plan(&["--format", "json", "--tp", "8", "--max-model-len", "32K"]);
    let body = format!(
        r#"{{"model": "{MODEL}", "cluster": "16 H100s", "search": {{"tp": [8]}}, "engine": {{"max_model_len": 32768}}}}"#
    );
    let by_request = run_with_input(&["plan", "--request", "-", "--format", "json"], &body);
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
    assert_eq!(read(&by_flags.stdout), read(&by_request.stdout));
    assert_eq!(read(&by_flags.stdout)["layouts"][0]["rank"], 1);
    assert_eq!(by_flags.status.code(), Some(0));
}

#[test]
fn many_requests_are_answered_line_by_line_in_order() {
    let lines = format!(
        "{{\"model\": \"{MODEL}\", \"cluster\": \"8 H100\"}}\n\nnot json\n{{\"model\": \"{MODEL}\"}}\n{{\"model\": \"{MODEL}\", \"cluster\": \"1 L4\"}}\n"
    );
    let output = run_with_input(&["plan", "--request", "-", "--format", "json"], &lines);
    let answers: Vec<Value> =
        text(&output.stdout).lines().map(|l| serde_json::from_str(l).expect("one JSON a line")).collect();
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0]["feasible"], true);
    assert_eq!(answers[1]["status"], 400);
    assert_eq!(answers[2]["status"], 422);
    assert_eq!(answers[2]["errors"][0]["pointer"], "#/cluster");
    assert_eq!(answers[3]["feasible"], false);
    assert_eq!(
        output.status.code(),
        Some(2),
        "a question that cannot be read outweighs one that does not fit"
    );
}

#[test]
fn exit_codes_are_the_contract() {
    let model = ["plan", "--model", MODEL, "--cluster"];
    for (args, code) in [
        (vec!["8 H100"], 0),
        (vec!["1 L4"], 3),
        (vec!["8 H100", "--assert", "kv_tokens>=200000"], 0),
        (vec!["8 H100", "--assert", "kv_tokens>=200000", "--assert", "idle_gpus>0"], 3),
        (vec!["8 H100", "--assert", "kv_tokens"], 2),
        (vec!["8 H100", "--assert", "no_such_figure>1"], 2),
        (vec!["eight of the good ones"], 2),
        (vec!["8 H100", "--max-model-len", "-1"], 2),
        (vec!["8 H100", "--no-such-flag"], 2),
        (vec!["@no/such/file"], 2),
    ] {
        let output = run(&[&model[..], &args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", transcript(&output));
        assert_eq!(output.stderr.is_empty(), matches!(code, 0 | 3), "{args:?}: {}", transcript(&output));
    }
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(run(&["plan"]).status.code(), Some(2));
}

#[test]
fn faults_name_the_flags_all_at_once() {
    let output = plan(&[
        "--max-model-len",
        "-1",
        "--gpu-memory-utilization",
        "1.5",
        "--tp",
        "eight",
        "--objective",
        "speed",
        "--assume",
        "reserv_bytes=1",
    ]);
    assert!(output.stdout.is_empty());
    insta::assert_snapshot!(transcript(&output));
}

#[test]
fn pipelines_get_their_own_forms() {
    let assertions = ["--assert", "kv_tokens>=1000", "--assert", "replication_factor>1000"];
    let junit = text(&plan(&[&["--format", "junit"], &assertions[..]].concat()).stdout);
    assert!(junit.contains("tests=\"3\" failures=\"1\""), "{junit}");
    assert_eq!(junit.matches("<testcase").count(), 3);
    let github = plan(&[&["--format", "github"], &assertions[..]].concat());
    let lines = text(&github.stdout);
    assert_eq!(github.status.code(), Some(3));
    assert!(lines.lines().all(|l| l.starts_with("::")), "{lines}");
    assert!(lines.contains("::error title=shardwise::replication_factor>1000 failed: replication_factor is"));
    let markdown = text(&plan(&["--format", "markdown"]).stdout);
    assert!(markdown.lines().any(|l| l.starts_with("| # | TP | PP | DP |")), "{markdown}");
}

#[test]
fn an_answer_can_go_to_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plan.json");
    let output = plan(&["--format", "json", "--output", &file.to_string_lossy()]);
    assert!(output.stdout.is_empty());
    let written: Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    assert_eq!(written["feasible"], true);
    let nowhere = plan(&["--output", "/no/such/folder/plan.json"]);
    assert_eq!(nowhere.status.code(), Some(2));
}

#[test]
fn the_spelling_of_the_cluster_does_not_change_the_answer() {
    let ask = |cluster: &str| {
        let output = run(&["plan", "--model", MODEL, "--cluster", cluster, "--format", "json"]);
        let mut answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // what was assumed to read the text may differ; what follows from it may not
        answer["assumptions"].take();
        answer
    };
    assert_eq!(ask("2x8xH100"), ask("2 nodes x 8 H100"));
}

#[test]
fn every_question_has_a_table_of_80_columns_and_an_exit_code() {
    let questions: [(&[&str], i32, &str); 7] = [
        (&["fit", "16 H100s", "--limit", "8"], 0, "seqs@32k"),
        (&["fit", "1 L4", "--search", "llama-3.1-405b"], 3, "do not fit"),
        (
            &["size", "--model", MODEL, "--gpus", "H100,H200", "--sequences", "10", "--context", "32768"],
            0,
            "USD/h",
        ),
        (&["size", "--model", MODEL, "--gpus", "H100"], 2, ""),
        (&["sweep", "--model", MODEL, "--cluster", "16 H100s", "--over", "tp=8,16"], 0, "if split"),
        (&["ask", "is TP=16 worth it for llama 3.1 70b"], 0, "Understood as sweep"),
        (&["ask", "good morning"], 2, "You can ask"),
    ];
    for (args, code, part) in questions {
        let output = run(args);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}");
        assert!(shown.contains(part), "{args:?}: {shown}");
        let long = |line: &&str| line.chars().count() > 80 && !line.starts_with("Understood");
        assert_eq!(shown.lines().find(long), None, "{args:?}");
    }
}

#[test]
fn flags_reach_the_request_of_each_question() {
    let json = |args: &[&str]| -> Value {
        serde_json::from_slice(&run(&[args, &["--format", "json"]].concat()).stdout).expect("JSON")
    };
    let fits = json(&[
        "fit",
        "8 H100",
        "--max-parameters",
        "9e9",
        "--context",
        "8192",
        "--only-fitting",
        "--sort",
        "tpot",
    ]);
    let items = fits["items"].as_array().expect("rows");
    assert!(!items.is_empty() && items.iter().all(|row| row["parameters"].as_u64() <= Some(9_000_000_000)));
    let tpot: Vec<f64> = items.iter().filter_map(|row| row["fit"]["best"]["tpot_ms"].as_f64()).collect();
    assert!(tpot.is_sorted(), "{tpot:?}");
    assert_eq!(fits["context_tokens"], 8192);
    let sweep = json(&[
        "sweep",
        "--model",
        MODEL,
        "--cluster",
        "16 H100s",
        "--over",
        "tp=8,16",
        "--by",
        "kv_cache_dtype=auto,fp8",
    ]);
    assert_eq!(sweep["curves"].as_array().map(Vec::len), Some(2));
    let sized = json(&[
        "size",
        "--model",
        MODEL,
        "--gpus",
        "H200",
        "--users",
        "20",
        "--think-time-s",
        "10",
        "--tpot-ms",
        "50",
    ]);
    assert!(
        sized["products"][0]["sized"]["per_replica"]["max_users"].as_f64().is_some_and(|n| n > 1.0),
        "{sized}"
    );
}

/// `shardwise launch` of two stages on two nodes, with every constant of memory given.
fn launch(more: &[&str]) -> std::process::Output {
    let fixed = [
        "launch",
        "--model",
        MODEL,
        "--cluster",
        "2 nodes x 8 H100",
        "--tp",
        "8",
        "--pp",
        "2",
        "--max-model-len",
        "32768",
        "--assume",
        "gpu_memory_bytes=80e9",
        "--assume",
        "reserve_bytes=3e9",
    ];
    run(&[&fixed, more].concat())
}

#[test]
fn a_layout_is_written_for_a_platform() {
    insta::assert_snapshot!(transcript(&launch(&[
        "--platform",
        "leader-worker-set",
        "--rdma-resource",
        "rdma/ib"
    ])));
}

#[test]
fn launch_ends_as_pipelines_need_it() {
    assert_eq!(launch(&[]).status.code(), Some(0));
    let refused = launch(&["--platform", "kubernetes"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("kubernetes_one_node"), "{}", text(&refused.stderr));
    let unknown = launch(&["--platform", "kserv"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("kserve"), "{}", text(&unknown.stderr));
    assert_eq!(launch(&["--platform", "command", "--rank", "7"]).status.code(), Some(3));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deploy");
    let wrote = launch(&["--platform", "dynamo,kserve", "--output", path.to_str().expect("UTF-8")]);
    assert_eq!(wrote.status.code(), Some(0), "{}", text(&wrote.stderr));
    assert!(path.join("dynamo/dynamographdeployment.yaml").is_file());
    assert!(path.join("kserve/llminferenceservice.yaml").is_file());
    // what was written passes the check of files
    let file = path.join("kserve/llminferenceservice.yaml");
    let checked = run(&["check", file.to_str().expect("UTF-8"), "--cluster", "2 nodes x 8 H100"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
}

/// A full disk is told by every form of an answer.
#[test]
fn what_cannot_be_written_is_an_error() {
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let request = r#"{"model": "meta-llama/Llama-3.1-8B-Instruct", "cluster": "8 H100"}"#;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), request).expect("written");
    let path = file.path().to_str().expect("a path");
    let plan = ["plan", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--cluster", "8 H100"];
    for more in [&["--format", "json"][..], &["--format", "table"], &["--format", "markdown"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_shardwise"));
        let sink = std::fs::OpenOptions::new().write(true).open(full).expect("opens");
        let out = command.args(plan).args(more).stdout(sink).output().expect("runs");
        assert_eq!(out.status.code(), Some(1), "{more:?}");
    }
    for args in [&["plan", "--request", path][..], &["serve", "--print-settings"]] {
        let sink = std::fs::OpenOptions::new().write(true).open(full).expect("opens");
        let out =
            std::process::Command::new(env!("CARGO_BIN_EXE_shardwise")).args(args).stdout(sink).output();
        assert_eq!(out.expect("runs").status.code(), Some(1), "{args:?}");
    }
}
