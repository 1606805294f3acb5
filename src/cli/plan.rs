//! `shardwise plan`: a question by flags, or many as the API's own JSON.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use serde_json::Value;

use super::args::{Format, PlanArgs};
use super::assertion::{self, Assertion, Outcome};
use super::exit::Exit;
use super::output::{self, Answered, Style};
use super::request;
use crate::catalogue::calibration::install_file;
use crate::http::problem::Problem;
use crate::ingest::json::{self as document, Document};
use crate::ingest::request::PlanRequest;
use crate::service::{PlanAnswer, ServiceError, plan_offline};

/// Longest line of a JSONL file: far above the API's own limit on a body.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// Run the command; what went wrong is on stderr.
pub fn run(args: &PlanArgs, no_color: Option<&str>) -> Exit {
    let assertions =
        match args.output.assertions.iter().map(|a| Assertion::read(a)).collect::<Result<Vec<_>, _>>() {
            Ok(assertions) => assertions,
            Err(fault) => return Exit::BadInput.because(&format!("--assert: {fault}")),
        };
    if let Some(file) = args.calibration.as_deref().filter(|file| !file.as_os_str().is_empty())
        && let Err(fault) = install_file(file)
    {
        return Exit::BadInput.because(&format!("--calibration: {fault}"));
    }
    let style = if args.output.output.is_some() { Style::PLAIN } else { Style::for_stdout(no_color) };
    let face = Face { args, assertions, style };
    let mut sink = match face.sink() {
        Ok(sink) => sink,
        Err(exit) => return exit,
    };
    let exit = match &args.request {
        Some(path) => face.requests(path, &mut sink),
        None => face.flags(&mut sink),
    };
    match sink.flush() {
        Err(fault) if fault.kind() != io::ErrorKind::BrokenPipe => Exit::Internal.because(&fault.to_string()),
        _ => exit,
    }
}

/// How this run asks and prints.
struct Face<'a> {
    args: &'a PlanArgs,
    assertions: Vec<Assertion>,
    style: Style,
}

/// A sink that says once more, when it is flushed, what kept it from writing.
struct Sink {
    inner: Box<dyn Write>,
    fault: Option<(io::ErrorKind, String)>,
}

impl Sink {
    fn to(place: impl Write + 'static) -> Self {
        Self { inner: Box::new(io::BufWriter::new(place)), fault: None }
    }

    fn remember<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(fault) = &outcome
            && fault.kind() != io::ErrorKind::Interrupted
        {
            self.fault = Some((fault.kind(), fault.to_string()));
        }
        outcome
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = self.inner.write(bytes);
        self.remember(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((kind, text)) = &self.fault {
            return Err(io::Error::new(*kind, text.clone()));
        }
        let outcome = self.inner.flush();
        self.remember(outcome)
    }
}

impl Face<'_> {
    fn sink(&self) -> Result<Sink, Exit> {
        match &self.args.output.output {
            None => Ok(Sink::to(io::stdout())),
            Some(path) => match fs::File::create(path) {
                Ok(file) => Ok(Sink::to(file)),
                Err(fault) => Err(Exit::BadInput.because(&format!("--output {}: {fault}", path.display()))),
            },
        }
    }

    /// One question, by flags: its faults name the flags.
    fn flags(&self, sink: &mut dyn Write) -> Exit {
        let body = match request::body(&self.args.into()) {
            Ok(body) => Value::Object(body),
            Err(fault) => return Exit::BadInput.because(&fault.to_string()),
        };
        match answer(&Document { value: body, duplicates: Vec::new() }) {
            Ok(answer) => self.show(&answer, false, sink),
            Err(fault) => tell(&fault, request::flag_of),
        }
    }

    /// The API's own JSON. One document that fills several lines is one question; otherwise each line is one,
    /// answered in order as it comes.
    fn requests(&self, path: &Path, sink: &mut dyn Write) -> Exit {
        let opened: io::Result<Box<dyn BufRead>> = if path == Path::new("-") {
            Ok(Box::new(io::BufReader::new(io::stdin())))
        } else {
            fs::File::open(path).map(|file| Box::new(io::BufReader::new(file)) as Box<dyn BufRead>)
        };
        let told = |fault: &dyn std::fmt::Display| {
            Exit::BadInput.because(&format!("--request {}: {fault}", path.display()))
        };
        let mut source = match opened {
            Ok(source) => source,
            Err(fault) => return told(&fault),
        };
        let first = match next_line(source.as_mut()) {
            Ok(Some(line)) => line,
            Ok(None) => return told(&"there is no request in it"),
            Err(fault) => return told(&fault),
        };
        if document::read(&first).is_err() {
            let mut all = first.clone();
            if let Err(fault) = Read::take(&mut source, MAX_LINE_BYTES).read_to_end(&mut all) {
                return told(&fault);
            }
            let rest = all.get(first.len()..).unwrap_or_default();
            let lines_of_their_own = rest
                .split(|b| *b == b'\n')
                .any(|line| document::read(line).is_ok_and(|d| d.value.is_object()));
            if !lines_of_their_own {
                return self.document(&all, false, sink);
            }
            return self.lines(first, &mut io::Cursor::new(rest), sink);
        }
        self.lines(first, source.as_mut(), sink)
    }

    fn lines(&self, first: Vec<u8>, source: &mut dyn BufRead, sink: &mut dyn Write) -> Exit {
        let mut worst = Exit::Fits;
        let mut line = Some(first);
        while let Some(text) = line {
            worst = worst.max(self.document(&text, true, sink));
            // a pipe's reader gets each answer at once; nobody is left to answer where it went away
            if sink.flush().is_err() {
                return worst;
            }
            line = match next_line(source) {
                Ok(line) => line,
                Err(fault) => return Exit::BadInput.because(&fault.to_string()).max(worst),
            };
        }
        worst
    }

    fn document(&self, text: &[u8], on_one_line: bool, sink: &mut dyn Write) -> Exit {
        let outcome = match document::read(text) {
            Ok(document) => answer(&document),
            Err(fault) => Err(ServiceError::from(fault)),
        };
        match outcome {
            Ok(answer) => self.show(&answer, on_one_line, sink),
            Err(fault) if self.args.output.format == Format::Json => {
                let exit = exit_of(&fault);
                let problem = problem(fault);
                put(sink, &if on_one_line { compact(&problem) } else { pretty(&problem) });
                exit
            }
            Err(fault) => tell(&fault, |pointer| pointer.trim_start_matches("#/").to_owned()),
        }
    }

    /// Print an answer and say how it came out.
    fn show(&self, answer: &PlanAnswer, on_one_line: bool, sink: &mut dyn Write) -> Exit {
        if on_one_line && self.args.output.format == Format::Json && self.assertions.is_empty() {
            return match serde_json::to_string(answer) {
                Ok(text) => {
                    put(sink, &(text + "\n"));
                    if answer.plan.feasible { Exit::Fits } else { Exit::DoesNotFit }
                }
                Err(fault) => Exit::Internal.because(&fault.to_string()),
            };
        }
        let json = match serde_json::to_value(answer) {
            Ok(json) => json,
            Err(fault) => return Exit::Internal.because(&fault.to_string()),
        };
        let outcomes = match outcomes(&self.assertions, &json) {
            Ok(outcomes) => outcomes,
            Err(fault) => return Exit::BadInput.because(&format!("--assert: {fault}")),
        };
        let answered = Answered { plan: &answer.plan, json: &json, assertions: &outcomes };
        let text = if on_one_line && self.args.output.format == Format::Json {
            compact(&json)
        } else {
            output::text(&answered, self.args.output.format, self.style, self.args.output.explain)
        };
        put(sink, &text);
        if self.args.output.format == Format::Json || self.args.output.output.is_some() {
            for failed in outcomes.iter().filter(|o| !o.holds) {
                eprintln!("failed: {}: {}", failed.text, failed.found);
            }
        }
        if answered.passes() { Exit::Fits } else { Exit::DoesNotFit }
    }
}

/// One question, by the path that every face takes.
fn answer(document: &Document) -> Result<PlanAnswer, ServiceError> {
    let request = PlanRequest::read_document(document).map_err(ServiceError::Invalid)?;
    plan_offline(&request)
}

/// A fault as the API would answer it.
fn problem(fault: ServiceError) -> Value {
    serde_json::to_value(Problem::from(fault).body()).unwrap_or_default()
}

pub(super) fn exit_of(fault: &ServiceError) -> Exit {
    match fault {
        ServiceError::Malformed(_)
        | ServiceError::Invalid(_)
        | ServiceError::NoPlan(_)
        | ServiceError::NoModel(_)
        | ServiceError::NoCluster(_)
        | ServiceError::NoObservation(_)
        | ServiceError::Unexpected { .. } => Exit::BadInput,
        ServiceError::Unavailable(_) | ServiceError::Hub(_) => Exit::UpstreamFailed,
        ServiceError::Internal(_) => Exit::Internal,
    }
}

/// Every fault on a line of its own on stderr, at its place as `name` calls it.
pub(super) fn tell(fault: &ServiceError, name: impl Fn(&str) -> String) -> Exit {
    match fault {
        ServiceError::Invalid(faults) => {
            for fault in faults {
                let got = match &fault.got {
                    Some(got) if !fault.detail.contains("got ") => format!(", got {got}"),
                    _ => String::new(),
                };
                eprintln!("error: {}: {}{got}", name(&fault.pointer), fault.detail);
            }
        }
        other => eprintln!("error: {other}"),
    }
    exit_of(fault)
}

fn outcomes(assertions: &[Assertion], json: &Value) -> Result<Vec<Outcome>, assertion::Unreadable> {
    let best = json.pointer("/layouts/0");
    assertions.iter().map(|a| a.check(best)).collect()
}

/// The next line that is not blank, without its end.
fn next_line(source: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        let length = Read::take(&mut *source, MAX_LINE_BYTES + 1).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        if u64::try_from(length).unwrap_or(u64::MAX) > MAX_LINE_BYTES {
            return Err(io::Error::other(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(line));
        }
    }
}

fn put(sink: &mut dyn Write, text: &str) {
    // a reader that went away is seen when the sink is flushed
    let _ = sink.write_all(text.as_bytes());
}

fn compact(value: &Value) -> String {
    format!("{value}\n")
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
