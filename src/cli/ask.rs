//! The questions beside `plan`: each reads the API's own JSON (or a text) and prints the API's own answer.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};

use super::exit::Exit;
use super::number;
use super::plan::{exit_of, tell};
use super::request::{cluster_of, text_at};
use crate::catalogue::{hardware, models};
use crate::ingest::batch::BatchRequest;
use crate::ingest::fits::FitsRequest;
use crate::ingest::json::{self as document, Document};
use crate::ingest::sizing::SizingRequest;
use crate::ingest::sweep::SweepRequest;
use crate::planner::units::grouped;
use crate::service::{self, ServiceError, accuracy, calibrate, fits};

/// A question in the API's own JSON.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// The body of the call; `-` reads stdin.
    #[arg(long, value_name = "FILE|-")]
    pub request: PathBuf,
}

/// `shardwise fit`.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// The GPUs as text, or @FILE.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub cluster: Option<String>,
    /// The same without the flag: `shardwise fit "16 H100s"`.
    #[arg(value_name = "TEXT|@FILE", conflicts_with_all = ["cluster", "request"], required_unless_present_any = ["cluster", "request"])]
    pub gpus: Vec<String>,
    /// The length at which a model must hold one sequence.
    #[arg(long, value_name = "TOKENS", conflicts_with = "request")]
    pub context: Option<String>,
    /// The body of POST /v1/fits instead; `-` reads stdin.
    #[arg(long, value_name = "FILE|-", conflicts_with = "cluster")]
    pub request: Option<PathBuf>,
    /// Rows at most.
    #[arg(long, value_name = "N")]
    pub limit: Option<String>,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: FitFormat,
}

/// The form of the answer of `fit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FitFormat {
    #[default]
    Markdown,
    Json,
    Csv,
}

/// `shardwise accuracy`.
#[derive(Debug, Subcommand)]
pub enum AccuracyCommand {
    /// Predicted cache sizes against what engines printed at start-up.
    Memory {
        /// Rows as docs/ACCURACY.md describes them, one JSON object a line.
        #[arg(value_name = "FILE|-")]
        rows: PathBuf,
    },
    /// Predicted TPOT and TTFT against measured ones, beside a naive baseline.
    Latency {
        /// Rows as docs/ACCURACY.md describes them, one JSON object a line; without a file, the measurements in the program.
        #[arg(value_name = "FILE|-")]
        rows: Option<PathBuf>,
        /// Constants to judge instead of those in the program, as `shardwise calibrate --output` writes them.
        #[arg(long, value_name = "FILE")]
        calibration: Option<PathBuf>,
        /// Fit anew for every source of the rows, without its rows, and predict those: minutes.
        #[arg(long)]
        held_out: bool,
    },
}

/// `shardwise calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// A folder of measurements instead of those in the program.
    #[arg(long, value_name = "FOLDER")]
    pub measurements: Option<PathBuf>,
    /// Write the constants there.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Answer a document of the API.
pub fn with_document<T: Serialize>(
    args: &RequestArgs,
    ask: impl Fn(&Document) -> Result<T, ServiceError>,
) -> Exit {
    answer(&args.request, ask, |answer| print_json(answer))
}

pub fn size(args: &RequestArgs) -> Exit {
    with_document(args, |d| {
        service::size_offline(&SizingRequest::read(value(d)?).map_err(ServiceError::Invalid)?)
    })
}

pub fn sweep(args: &RequestArgs) -> Exit {
    with_document(args, |d| {
        service::sweep_offline(&SweepRequest::read(value(d)?).map_err(ServiceError::Invalid)?)
    })
}

pub fn batch(args: &RequestArgs) -> Exit {
    with_document(args, |d| {
        Ok(service::batch_offline(&BatchRequest::read(value(d)?).map_err(ServiceError::Invalid)?))
    })
}

/// Every model of the catalogue on one cluster.
pub fn fit(args: &FitArgs) -> Exit {
    let show = |fits: &fits::Fits| match args.format {
        FitFormat::Markdown => {
            print!("{}", fits.markdown());
            Exit::Fits
        }
        FitFormat::Csv => {
            print!("{}", fits.csv());
            Exit::Fits
        }
        FitFormat::Json => print_json(fits),
    };
    let ask = |d: &Document| fits::fits(&FitsRequest::read(value(d)?).map_err(ServiceError::Invalid)?);
    if let Some(path) = &args.request {
        return answer(path, ask, show);
    }
    let mut body = Map::new();
    let text = args.cluster.clone().unwrap_or_else(|| args.gpus.join(" "));
    if let Some(context) = &args.context {
        body.insert("workload".to_owned(), serde_json::json!({"context_tokens": number::json(context)}));
    }
    match cluster_of(&text, None) {
        Ok(cluster) => _ = body.insert("cluster".to_owned(), cluster),
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    }
    if let Some(limit) = &args.limit {
        body.insert("limit".to_owned(), number::json(limit));
    }
    match ask(&Document { value: Value::Object(body), duplicates: Vec::new() }) {
        Ok(fits) => show(&fits),
        Err(fault) => tell(&fault, super::request::flag_of),
    }
}

/// The GPUs that can be planned on.
pub fn gpus() -> Exit {
    println!("{:<26} {:>10} {:>12} {:>12}  name", "key", "memory GB", "memory GB/s", "bf16 TFLOP/s");
    for entry in hardware::catalogue().gpus() {
        let gpu = &entry.gpu;
        let peak = gpu.peak_flops.bf16.map_or("-".to_owned(), |flops| format!("{:.0}", flops / 1e12));
        println!(
            "{:<26} {:>10.1} {:>12.0} {peak:>12}  {}",
            gpu.key,
            gpu.memory_bytes.as_f64() / 1e9,
            gpu.hbm_bytes_per_s / 1e9,
            gpu.name
        );
    }
    Exit::Fits
}

/// The models of the catalogue whose id or plain name holds `text`.
pub fn models(text: Option<&str>) -> Exit {
    let needle = text.unwrap_or_default().to_lowercase();
    let named = |name: &str| name.to_lowercase().contains(&needle);
    println!("{:<52} {:>17} {:>11}  weights", "id", "parameters", "context");
    for model in models::all().iter().filter(|m| named(m.id) || m.aliases.iter().any(|a| named(a))) {
        println!(
            "{:<52} {:>17} {:>11}  {}",
            model.id,
            grouped(model.parameters),
            grouped(model.context_length),
            model.quantization
        );
    }
    Exit::Fits
}

pub fn accuracy(command: &AccuracyCommand) -> Exit {
    match command {
        AccuracyCommand::Memory { rows } => accuracy_of_memory(rows),
        AccuracyCommand::Latency { rows, calibration, held_out } => {
            accuracy_of_latency(rows.as_deref(), calibration.as_deref(), *held_out)
        }
    }
}

fn accuracy_of_memory(rows: &Path) -> Exit {
    let text = match text_at(rows) {
        Ok(text) => text,
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    };
    match accuracy::memory(&text) {
        Ok(report) => {
            print!("{report}");
            Exit::Fits
        }
        Err(fault) => Exit::BadInput.because(&format!("{}: {fault}", rows.display())),
    }
}

fn accuracy_of_latency(rows: Option<&Path>, calibration: Option<&Path>, held_out: bool) -> Exit {
    match accuracy::latency::of_file(rows, calibration, held_out) {
        Ok(report) => {
            print!("{}", report.markdown());
            Exit::Fits
        }
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
    }
}

pub fn calibrate(args: &CalibrateArgs) -> Exit {
    let paths = calibrate::Paths { measurements: args.measurements.clone() };
    match calibrate::run(&paths) {
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
        Ok(report) => {
            println!("{}", report.text);
            match args.output.as_ref().map(|path| std::fs::write(path, &report.json)) {
                Some(Err(fault)) => Exit::BadInput.because(&fault.to_string()),
                _ => Exit::Fits,
            }
        }
    }
}

/// Read a document, ask, show; faults go to stderr by their place.
fn answer<T>(
    path: &Path,
    ask: impl Fn(&Document) -> Result<T, ServiceError>,
    show: impl Fn(&T) -> Exit,
) -> Exit {
    let text = match text_at(path) {
        Ok(text) => text,
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    };
    match document::read(text.as_bytes()).map_err(ServiceError::from).and_then(|d| ask(&d)) {
        Ok(answer) => show(&answer),
        Err(fault @ ServiceError::Invalid(_)) => {
            tell(&fault, |pointer| pointer.trim_start_matches(['#', '/']).to_owned())
        }
        Err(fault) => exit_of(&fault).because(&fault.to_string()),
    }
}

/// The value of a document without duplicate keys.
fn value(document: &Document) -> Result<&Value, ServiceError> {
    match document.duplicates.as_slice() {
        [] => Ok(&document.value),
        duplicates => Err(ServiceError::Invalid(duplicates.to_vec())),
    }
}

fn print_json<T: Serialize>(answer: &T) -> Exit {
    match serde_json::to_string_pretty(answer) {
        Ok(text) => {
            println!("{text}");
            Exit::Fits
        }
        Err(fault) => Exit::Internal.because(&fault.to_string()),
    }
}
