//! What several tests need: the binary, and the public plan path.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of this")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shardwise::ingest::request::PlanRequest;
use shardwise::service::plan_offline;

/// The answer to a body of `POST /v1/plans`, as JSON, by the path that every face takes.
pub fn answer(body: &Value) -> Value {
    let request = PlanRequest::read(body).unwrap_or_else(|faults| panic!("{body} is refused: {faults:?}"));
    let answer = plan_offline(&request).unwrap_or_else(|fault| panic!("{body} has no answer: {fault:?}"));
    serde_json::to_value(answer).expect("an answer is JSON")
}

/// The binary with these arguments, in a folder without any configuration.
pub fn shardwise(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardwise"));
    command.args(args).env_clear().current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

/// What a run printed and how it ended, in one text.
pub fn transcript(output: &Output) -> String {
    let mut text =
        format!("exit {}\n", output.status.code().map_or("by signal".to_owned(), |c| c.to_string()));
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !bytes.is_empty() {
            text.push_str(&format!("----- {name}\n{}", String::from_utf8_lossy(bytes)));
        }
    }
    text
}

/// Run to the end.
pub fn run(args: &[&str]) -> Output {
    shardwise(args).output().expect("the binary runs")
}

/// Run to the end with `input` on stdin.
pub fn run_with_input(args: &[&str], input: &str) -> Output {
    let mut child = shardwise(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("its stdin");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    // a run that refuses its input may close it early
    let _ = writer.join().expect("written");
    output
}
