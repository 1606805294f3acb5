//! `shardwise sweep`: curves over one or two things.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::args::{EngineArgs, SearchArgs, TableOrJson, WhatIfArgs, WorkloadArgs};
use super::ask::{answer, answer_flags, print_json, value};
use super::exit::Exit;
use super::number;
use super::output::{self, Style};
use super::request::{self, Question};
use crate::ingest::json::Document;
use crate::ingest::sweep::SweepRequest;
use crate::service::{ServiceError, SweepAnswer, sweep_offline};

/// `shardwise sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "E.g. shardwise sweep --model llama-3.1-70b --cluster \"16 H100s\" --over tp --by kv_cache_dtype=auto,fp8"
)]
pub struct SweepArgs {
    /// A model id or alias, or the path of a config.json.
    #[arg(long, value_name = "ID|PATH", required_unless_present = "request")]
    pub model: Option<String>,
    /// The GPUs as text, or @FILE.
    #[arg(long, value_name = "TEXT|@FILE", required_unless_present = "request")]
    pub cluster: Option<String>,
    /// What runs: tp, pp, context, concurrency, kv_cache_dtype, inter_link, intra_link or gpu; with values, or the usual ones.
    #[arg(long, value_name = "AXIS[=V,…]", required_unless_present = "request")]
    pub over: Option<String>,
    /// One curve for each value of a second thing.
    #[arg(long, value_name = "AXIS[=V,…]")]
    pub by: Option<String>,
    /// The body of POST /v1/sweeps instead; `-` reads stdin.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["model", "cluster", "over", "by"])]
    pub request: Option<PathBuf>,
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

/// Draw the curves as tables.
pub fn run(args: &SweepArgs, no_color: Option<&str>) -> Exit {
    let show = |answer: &SweepAnswer| match args.format {
        TableOrJson::Json => print_json(answer),
        TableOrJson::Table => output::print(&output::sweep(&answer.sweep, Style::for_stdout(no_color))),
    };
    let ask = |d: &Document| sweep_offline(&SweepRequest::read(value(d)?).map_err(ServiceError::Invalid)?);
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
    for (name, axis) in [("over", &args.over), ("by", &args.by)] {
        if let Some(text) = axis {
            body.insert(name.to_owned(), axis_of(text));
        }
    }
    answer_flags(body, ask, show)
}

/// `tp` or `tp=1,2,4`, as the API takes an axis.
fn axis_of(text: &str) -> Value {
    match text.split_once('=') {
        None => Value::from(text.trim()),
        Some((axis, values)) => {
            let values: Vec<Value> = values.split(',').map(|one| number::json(one.trim())).collect();
            json!({"axis": axis.trim(), "values": values})
        }
    }
}
