//! `shardwise observe`: an engine's start-up log beside the prediction.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::exit::Exit;
use crate::service::observations::{ObservationAnswer, compare_offline, read_log};

/// `shardwise observe`.
#[derive(Debug, Args)]
pub struct ObserveArgs {
    /// The log; `-` reads stdin.
    #[arg(value_name = "LOG|-")]
    pub log: PathBuf,
    /// What it ran on, e.g. "8 H100": without it there is no prediction.
    #[arg(long, value_name = "TEXT")]
    pub cluster: Option<String>,
    /// The model, where the log's own name for it is a path.
    #[arg(long, value_name = "ID")]
    pub model: Option<String>,
    /// Print the API's answer.
    #[arg(long)]
    pub json: bool,
}

/// Run the command.
pub fn run(args: &ObserveArgs) -> Exit {
    let read = if args.log.as_os_str() == "-" {
        read_log(io::stdin().lock())
    } else {
        File::open(&args.log).and_then(|file| read_log(BufReader::with_capacity(1 << 20, file)))
    };
    let observed = match read {
        Ok(observed) => observed,
        Err(fault) => return Exit::BadInput.because(&format!("{}: {fault}", args.log.display())),
    };
    let mut base = Map::new();
    for (key, value) in [("cluster", &args.cluster), ("model", &args.model)] {
        if let Some(value) = value {
            base.insert(key.to_owned(), Value::String(value.clone()));
        }
    }
    match compare_offline(&observed, &base) {
        Ok(answer) if args.json => {
            println!("{}", serde_json::to_string_pretty(&answer).unwrap_or_default());
            Exit::Fits
        }
        Ok(answer) => {
            show(&answer);
            Exit::Fits
        }
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
    }
}

fn show(answer: &ObservationAnswer) {
    println!(
        "{} {} {}: {}",
        answer.engine,
        answer.version,
        answer.model.as_deref().unwrap_or("(no model named)"),
        answer.outcome
    );
    if let Some(refusal) = &answer.refusal {
        println!("line {}: {}", refusal.line, refusal.message.as_deref().unwrap_or(&refusal.code));
    }
    for item in &answer.items {
        let predicted = item.predicted.map_or_else(|| "-".to_owned(), |p| format!("{p:.2}"));
        let ratio = item.ratio.map_or_else(String::new, |r| format!("{r:.3}×"));
        println!(
            "{:<16} {:>14.2} {:<8} predicted {predicted:>14} {ratio}",
            item.name, item.observed, item.unit
        );
    }
    for cause in &answer.causes {
        println!("- {cause}");
    }
    if let Some(why) = &answer.not_predicted {
        println!("no prediction: {why}");
    }
}
