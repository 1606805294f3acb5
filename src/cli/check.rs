//! `shardwise check`: a command or manifest before it is deployed.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::args::Format;
use super::exit::Exit;
use crate::ingest::check::Policy;
use crate::ingest::json::Document;
use crate::service::ServiceError;
use crate::service::checks::{Check, CheckAnswer, Status, check_offline};
use crate::service::csv_line;

/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// `shardwise check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 pass or warn, 2 bad input, 3 a check failed.")]
pub struct CheckArgs {
    /// A file with an engine command or a manifest; `-` reads stdin.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// The GPUs it is meant for, e.g. "16 H100s". Not needed where the manifest names its GPUs.
    #[arg(long, value_name = "TEXT")]
    pub cluster: Option<String>,
    /// The model, where the file's own name for it is a path.
    #[arg(long, value_name = "ID")]
    pub model: Option<String>,
    /// The release whose rules apply.
    #[arg(long, value_name = "X.Y")]
    pub engine_version: Option<String>,
    /// YAML or JSON: `deny: [kv_replicated]`, `allow: […]`.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// A code that fails the check. Repeatable.
    #[arg(long, value_name = "CODE")]
    pub deny: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Run the command.
pub fn run(args: &CheckArgs) -> Exit {
    let text = match read(args) {
        Ok(text) => text,
        Err(fault) => return Exit::BadInput.because(&format!("{}: {fault}", args.file.display())),
    };
    let mut policy = match args.policy.as_ref().map(policy).transpose() {
        Ok(policy) => policy.unwrap_or_default(),
        Err(fault) => return Exit::BadInput.because(&fault),
    };
    policy.deny.extend(args.deny.iter().cloned());
    let mut question = json!({"text": text, "policy": {"deny": policy.deny, "allow": policy.allow}});
    for (key, value) in
        [("cluster", &args.cluster), ("model", &args.model), ("engine_version", &args.engine_version)]
    {
        if let Some(value) = value {
            question[key] = json!(value);
        }
    }
    match check_offline(&Document { value: question, duplicates: Vec::new() }) {
        Ok(answer) => {
            print!("{}", shown(&answer, args));
            if answer.verdict == Status::Fail { Exit::DoesNotFit } else { Exit::Fits }
        }
        Err(ServiceError::Internal(why)) => Exit::Internal.because(&why),
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
    }
}

fn read(args: &CheckArgs) -> std::io::Result<String> {
    let mut text = String::new();
    if args.file.as_os_str() == "-" {
        std::io::stdin().take(MOST_BYTES).read_to_string(&mut text)?;
    } else {
        fs::File::open(&args.file)?.take(MOST_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}

fn policy(path: &PathBuf) -> Result<Policy, String> {
    let told = |fault: &dyn std::fmt::Display| format!("--policy {}: {fault}", path.display());
    let text = fs::read_to_string(path).map_err(|e| told(&e))?;
    Policy::parse(&text).map_err(|e| told(&e))
}

fn shown(answer: &CheckAnswer, args: &CheckArgs) -> String {
    let file = args.file.display().to_string();
    match args.format {
        Format::Json => serde_json::to_string_pretty(answer).unwrap_or_default() + "\n",
        Format::Table => table(answer, &file),
        Format::Markdown => markdown(answer),
        Format::Csv => csv(answer),
        Format::Junit => junit(answer),
        Format::Github => github(answer, &file),
    }
}

fn table(answer: &CheckAnswer, file: &str) -> String {
    let mut out = format!("{}\n", answer.message);
    for check in &answer.checks {
        let place = check.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
        let _ =
            writeln!(out, "{:<4} {place:<16} {:<28} {}", check.status.as_str(), check.code, check.message);
    }
    out
}

fn markdown(answer: &CheckAnswer) -> String {
    let mut out =
        format!("**{}**\n\n| | line | check | |\n|---|---|---|---|\n", answer.message.replace('|', "\\|"));
    for check in &answer.checks {
        let line = check.line.map_or_else(String::new, |l| l.to_string());
        let message = check.message.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(out, "| {} | {line} | `{}` | {message} |", check.status.as_str(), check.code);
    }
    out
}

fn csv(answer: &CheckAnswer) -> String {
    let head = csv_line(&["status", "code", "deployment", "line", "message"].map(str::to_owned));
    let rows = answer.checks.iter().map(|check| {
        let line = check.line.map_or_else(String::new, |l| l.to_string());
        let status = check.status.as_str().to_owned();
        csv_line(&[status, check.code.clone(), check.deployment.clone(), line, check.message.clone()])
    });
    std::iter::once(head).chain(rows).collect()
}

fn junit(answer: &CheckAnswer) -> String {
    let failures = answer.checks.iter().filter(|c| c.status == Status::Fail).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"shardwise check\" tests=\"{}\" failures=\"{failures}\">\n",
        answer.checks.len()
    );
    for check in &answer.checks {
        let _ =
            write!(out, "  <testcase classname=\"{}\" name=\"{}\"", xml(&check.deployment), xml(&check.code));
        let _ = match check.status {
            Status::Fail => writeln!(out, "><failure message=\"{}\"/></testcase>", xml(&check.message)),
            _ => writeln!(out, "><system-out>{}</system-out></testcase>", xml(&check.message)),
        };
    }
    out.push_str("</testsuite>\n");
    out
}

fn xml(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn github(answer: &CheckAnswer, file: &str) -> String {
    let word = |check: &Check| match check.status {
        Status::Fail => "error",
        Status::Warn => "warning",
        Status::Pass => "notice",
    };
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let of_property = |text: &str| escaped(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for check in &answer.checks {
        let line = check.line.map_or_else(String::new, |l| format!(",line={l}"));
        let _ = writeln!(
            out,
            "::{} file={}{line},title={}::{}",
            word(check),
            of_property(file),
            of_property(&check.code),
            escaped(&check.message)
        );
    }
    out
}
