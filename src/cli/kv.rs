//! `shardwise kv`: the questions about a cache, as the API's own JSON.

use std::io::Read as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::output;
use crate::ingest::json;
use crate::service::{ServiceError, kv};

/// `shardwise kv`.
#[derive(Debug, Args)]
pub struct KvArgs {
    /// What is asked.
    #[arg(value_enum)]
    pub question: Question,
    /// The body of `POST /v1/kv/…`; `-` reads stdin.
    #[arg(long, value_name = "FILE|-")]
    pub request: PathBuf,
}

/// The questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// A shared prefix over replicas.
    Prefixes,
    /// Fetch or compute again.
    Moves,
    /// From a prefill worker to a decode worker.
    Handovers,
    /// The longest sequence of layouts.
    Sequences,
}

/// Run the command.
pub fn run(args: &KvArgs) -> Exit {
    let mut text = Vec::new();
    let read = if args.request.as_os_str() == "-" {
        std::io::stdin().take(1 << 20).read_to_end(&mut text)
    } else {
        std::fs::File::open(&args.request).and_then(|file| file.take(1 << 20).read_to_end(&mut text))
    };
    if let Err(fault) = read {
        return Exit::BadInput.because(&format!("--request {}: {fault}", args.request.display()));
    }
    match answer(args.question, &text) {
        Ok(shown) => output::print(&format!("{shown}\n")),
        Err(ServiceError::Internal(why)) => Exit::Internal.because(&why),
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
    }
}

fn answer(question: Question, text: &[u8]) -> Result<String, ServiceError> {
    let document = json::read(text)?;
    let pretty = |value: Result<String, serde_json::Error>| {
        value.map_err(|e| ServiceError::Internal(format!("an answer cannot be written: {e}")))
    };
    pretty(match question {
        Question::Prefixes => serde_json::to_string_pretty(&kv::prefixes_offline(&document)?),
        Question::Moves => serde_json::to_string_pretty(&kv::moves_offline(&document)?),
        Question::Handovers => serde_json::to_string_pretty(&kv::handovers_offline(&document)?),
        Question::Sequences => serde_json::to_string_pretty(&kv::sequences_offline(&document)?),
    })
}
