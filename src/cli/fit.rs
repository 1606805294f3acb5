//! `shardwise fit`: what fits, over the whole catalogue.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::args::{EngineArgs, WorkloadArgs};
use super::ask::{answer, answer_flags, print_json, value};
use super::exit::Exit;
use super::output::{self, Style};
use super::request::{cluster_of, engine_of, numbers, put, workload_of};
use crate::ingest::fits::FitsRequest;
use crate::ingest::json::Document;
use crate::service::ServiceError;
use crate::service::fits::{Fits, fits};

/// Rows of the table unless `--limit` says otherwise; the other forms have all of them.
const TABLE_ROWS: usize = 40;

/// `shardwise fit`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 some model fits, 1 internal fault, 2 bad input, 3 none fits.")]
pub struct FitArgs {
    /// The GPUs as text, or @FILE.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub cluster: Option<String>,
    /// The same without the flag: `shardwise fit "16 H100s"`.
    #[arg(value_name = "TEXT|@FILE", conflicts_with_all = ["cluster", "request"], required_unless_present_any = ["cluster", "request"])]
    pub gpus: Vec<String>,
    /// The body of POST /v1/fits instead; `-` reads stdin.
    #[arg(long, value_name = "FILE|-", conflicts_with = "cluster")]
    pub request: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub rows: RowArgs,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: FitFormat,
}

/// Which rows, and in what order.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rows")]
pub struct RowArgs {
    /// Only models whose id, alias or family holds this.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only models of this family.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Only models under this licence.
    #[arg(long, value_name = "NAME")]
    pub licence: Option<String>,
    #[arg(long, value_name = "N", help = "Only models of at least so many parameters, e.g. 30e9")]
    pub min_parameters: Option<String>,
    #[arg(long, value_name = "N", help = "Only models of at most so many parameters")]
    pub max_parameters: Option<String>,
    /// Only models that fit.
    #[arg(long)]
    pub only_fitting: bool,
    /// Only models within --ttft-ms and --tpot-ms.
    #[arg(long)]
    pub only_within_slo: bool,
    /// What "best" means: balanced, throughput, latency, capacity, cost.
    #[arg(long, value_name = "WHAT")]
    pub objective: Option<String>,
    /// The order: parameters, name, released, kv_tokens, sequences, tpot, throughput, smallest_gpus.
    #[arg(long, value_name = "BY")]
    pub sort: Option<String>,
    /// Rows at most.
    #[arg(long, value_name = "N")]
    pub limit: Option<String>,
}

/// The form of the answer of `fit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FitFormat {
    #[default]
    Table,
    Markdown,
    Json,
    Csv,
}

/// Every model of the catalogue on one cluster.
pub fn run(args: &FitArgs, no_color: Option<&str>) -> Exit {
    let show = |fits: &Fits| {
        let printed = match args.format {
            FitFormat::Table => output::print(&output::fits(fits, Style::for_stdout(no_color))),
            FitFormat::Markdown => output::print(&fits.markdown()),
            FitFormat::Csv => output::print(&fits.csv()),
            FitFormat::Json => print_json(fits),
        };
        if printed == Exit::Fits && fits.models_fitting == 0 { Exit::DoesNotFit } else { printed }
    };
    let ask = |d: &Document| fits(&FitsRequest::read(value(d)?).map_err(ServiceError::Invalid)?);
    if let Some(path) = &args.request {
        return answer(path, ask, show);
    }
    let text = args.cluster.clone().unwrap_or_else(|| args.gpus.join(" "));
    let mut body = Map::new();
    match cluster_of(&text, None) {
        Ok(cluster) => _ = body.insert("cluster".to_owned(), cluster),
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    }
    put(&mut body, "engine", engine_of(&args.engine));
    let (workload, slo) = workload_of(&args.workload);
    put(&mut body, "workload", workload);
    put(&mut body, "slo", slo);
    rows_of(&args.rows, args.format, &mut body);
    answer_flags(body, ask, show)
}

/// The filter, the order, and how many rows.
fn rows_of(args: &RowArgs, format: FitFormat, body: &mut Map<String, Value>) {
    let mut filter = Map::new();
    for (name, text) in [("search", &args.search), ("family", &args.family), ("licence", &args.licence)] {
        if let Some(text) = text {
            filter.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    numbers(
        &mut filter,
        &[("min_parameters", &args.min_parameters), ("max_parameters", &args.max_parameters)],
    );
    for (name, only) in [("fits", args.only_fitting), ("meets_slo", args.only_within_slo)] {
        if only {
            filter.insert(name.to_owned(), Value::from(true));
        }
    }
    put(body, "filter", filter);
    for (name, text) in [("objective", &args.objective), ("sort", &args.sort)] {
        if let Some(text) = text {
            body.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    numbers(body, &[("limit", &args.limit)]);
    if format == FitFormat::Table {
        body.entry("limit").or_insert_with(|| Value::from(TABLE_ROWS));
    }
}
