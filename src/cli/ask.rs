//! The questions beside `plan`: each reads the API's own JSON (or a text) and prints the API's own answer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use super::exit::Exit;
use super::output;
use super::plan::{exit_of, tell};
use super::request::{flag_of, text_at};
use super::serve;
use crate::catalogue::hardware;
use crate::ingest::batch::BatchRequest;
use crate::ingest::json::{self as document, Document};
use crate::service::observations::ObservationAnswer;
use crate::service::{self, ServiceError, accuracy, calibrate};

/// A question in the API's own JSON.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// The body of the call; `-` reads stdin.
    #[arg(long, value_name = "FILE|-")]
    pub request: PathBuf,
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
    /// Learn memory from this fleet's own start-ups instead: `observations` for those in the database that serve uses
    /// (DATABASE_URL), or a file of `shardwise observe --json` answers, one after the other; - for stdin.
    #[arg(long, value_name = "observations|FILE|-", conflicts_with = "measurements")]
    pub from: Option<PathBuf>,
    /// Start-ups of one engine, release and GPU from which something is learnt, at least.
    #[arg(long, value_name = "N", default_value_t = calibrate::memory::LEAST, requires = "from")]
    pub at_least: usize,
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

pub fn batch(args: &RequestArgs) -> Exit {
    with_document(args, |d| {
        Ok(service::batch_offline(&BatchRequest::read(value(d)?).map_err(ServiceError::Invalid)?))
    })
}

/// The GPUs that can be planned on.
pub fn gpus() -> Exit {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<26} {:>10} {:>12} {:>12}  name",
        "key", "memory GB", "memory GB/s", "bf16 TFLOP/s"
    );
    for entry in hardware::catalogue().gpus() {
        let gpu = &entry.gpu;
        let peak = gpu.peak_flops.bf16.map_or("-".to_owned(), |flops| format!("{:.0}", flops / 1e12));
        let _ = writeln!(
            text,
            "{:<26} {:>10.1} {:>12.0} {peak:>12}  {}",
            gpu.key,
            gpu.memory_bytes.as_f64() / 1e9,
            gpu.hbm_bytes_per_s / 1e9,
            gpu.name
        );
    }
    output::print(&text)
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
        Ok(report) => output::print(&report.to_string()),
        Err(fault) => Exit::BadInput.because(&format!("{}: {fault}", rows.display())),
    }
}

fn accuracy_of_latency(rows: Option<&Path>, calibration: Option<&Path>, held_out: bool) -> Exit {
    match accuracy::latency::of_file(rows, calibration, held_out) {
        Ok(report) => output::print(&report.markdown()),
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
    }
}

pub fn calibrate(args: &CalibrateArgs) -> Exit {
    let made = match &args.from {
        None => calibrate::run(&calibrate::Paths { measurements: args.measurements.clone() }),
        Some(from) => match observations_of(from) {
            Ok(answers) => calibrate::from_observations(&answers, args.at_least),
            Err(exit) => return exit,
        },
    };
    match made {
        Err(fault) => Exit::BadInput.because(&fault.to_string()),
        Ok(report) => {
            let printed = output::print(&format!("{}\n", report.text));
            match args.output.as_ref().map(|path| std::fs::write(path, &report.json)) {
                Some(Err(fault)) => Exit::BadInput.because(&fault.to_string()),
                _ => printed,
            }
        }
    }
}

/// Kept start-ups: of the database, or of a file with one answer after the other.
fn observations_of(from: &Path) -> Result<Vec<ObservationAnswer>, Exit> {
    if from == Path::new("observations") {
        return match serve::kept_observations() {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(fault)) => Err(exit_of(&fault).because(&fault.to_string())),
            Err(fault) if fault.is_bad_input() => Err(Exit::BadInput.because(&fault.to_string())),
            Err(fault) => Err(Exit::UpstreamFailed.because(&fault.to_string())),
        };
    }
    let text = text_at(from).map_err(|fault| Exit::BadInput.because(&fault.to_string()))?;
    serde_json::Deserializer::from_str(&text)
        .into_iter()
        .map(|answer| {
            answer.map_err(|fault| {
                Exit::BadInput.because(&format!("{}: no answer of observe: {fault}", from.display()))
            })
        })
        .collect()
}

/// Read a document, ask, show; faults go to stderr by their place.
pub(super) fn answer<T>(
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

/// Ask with the body that flags made, show; faults go to stderr by their flag.
pub(super) fn answer_flags<T>(
    body: Map<String, Value>,
    ask: impl Fn(&Document) -> Result<T, ServiceError>,
    show: impl Fn(&T) -> Exit,
) -> Exit {
    match ask(&Document { value: Value::Object(body), duplicates: Vec::new() }) {
        Ok(answer) => show(&answer),
        Err(fault) => tell(&fault, flag_of),
    }
}

/// The value of a document without duplicate keys.
pub(super) fn value(document: &Document) -> Result<&Value, ServiceError> {
    match document.duplicates.as_slice() {
        [] => Ok(&document.value),
        duplicates => Err(ServiceError::Invalid(duplicates.to_vec())),
    }
}

pub(super) fn print_json<T: Serialize>(answer: &T) -> Exit {
    match serde_json::to_string_pretty(answer) {
        Ok(text) => output::print(&(text + "\n")),
        Err(fault) => Exit::Internal.because(&fault.to_string()),
    }
}
