//! `shardwise size`: the fewest GPUs for a load.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::args::{EngineArgs, SearchArgs, TableOrJson, WhatIfArgs, WorkloadArgs};
use super::ask::{answer, answer_flags, print_json, value};
use super::exit::Exit;
use super::number;
use super::output::{self, Style};
use super::request::{self, Question, list, numbers, put};
use crate::ingest::json::Document;
use crate::ingest::sizing::SizingRequest;
use crate::planner::sizing::Sizing;
use crate::service::{ServiceError, size_offline};

/// `shardwise size`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 a product carries the load, 1 internal fault, 2 bad input, 3 none does."
)]
pub struct SizeArgs {
    /// A model id or alias, or the path of a config.json.
    #[arg(long, value_name = "ID|PATH", required_unless_present = "request")]
    pub model: Option<String>,
    /// Products to compare, e.g. H100,H200; every product of a known platform by default.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "cluster")]
    pub gpus: Vec<String>,
    /// Nodes to fill instead, as text or @FILE.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub cluster: Option<String>,
    /// The body of POST /v1/sizings instead; `-` reads stdin.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["model", "gpus", "cluster"])]
    pub request: Option<PathBuf>,
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub what_if: WhatIfArgs,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,
}

/// The load, in one of three forms.
#[derive(Debug, Args)]
#[command(next_help_heading = "What must be carried (one of)")]
pub struct LoadArgs {
    /// Sequences of --context-tokens held at once.
    #[arg(long, value_name = "N")]
    pub sequences: Option<String>,
    /// Users, each with one request in flight or thinking.
    #[arg(long, value_name = "N")]
    pub users: Option<String>,
    /// Seconds a user thinks between an answer and the next request.
    #[arg(long, value_name = "S")]
    pub think_time_s: Option<String>,
    /// Requests a second; several are the intervals of a trace.
    #[arg(long, value_name = "R,…", value_delimiter = ',')]
    pub requests_per_s: Vec<String>,
}

/// Fewest GPUs first.
pub fn run(args: &SizeArgs, no_color: Option<&str>) -> Exit {
    let show = |sizing: &Sizing| {
        let printed = match args.format {
            TableOrJson::Json => print_json(sizing),
            TableOrJson::Table => output::print(&output::sizing(sizing, Style::for_stdout(no_color))),
        };
        if printed == Exit::Fits && !sizing.feasible { Exit::DoesNotFit } else { printed }
    };
    let ask = |d: &Document| size_offline(&SizingRequest::read(value(d)?).map_err(ServiceError::Invalid)?);
    if let Some(path) = &args.request {
        return answer(path, ask, show);
    }
    let asked = Question {
        model: args.model.as_deref(),
        cluster: args.cluster.as_deref(),
        engine: &args.engine,
        workload: &args.workload,
        search: &args.search,
        what_if: &args.what_if,
    };
    let mut body = match request::body(&asked) {
        Ok(body) => body,
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    };
    if !args.gpus.is_empty() {
        body.insert("gpus".to_owned(), args.gpus.iter().map(|name| Value::from(name.trim())).collect());
    }
    let load = load_of(&args.load);
    if load.is_empty() {
        return Exit::BadInput.because("say what must be carried: --sequences, --users or --requests-per-s");
    }
    put(&mut body, "load", load);
    answer_flags(body, ask, show)
}

fn load_of(args: &LoadArgs) -> Map<String, Value> {
    let mut load = Map::new();
    numbers(
        &mut load,
        &[("sequences", &args.sequences), ("users", &args.users), ("think_time_s", &args.think_time_s)],
    );
    match args.requests_per_s.as_slice() {
        [] => {}
        [one] => _ = load.insert("requests_per_s".to_owned(), number::json(one)),
        several => list(&mut load, "requests_per_s", several),
    }
    load
}
