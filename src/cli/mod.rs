//! The command line: a thin face over `service`. It reads flags, asks, and prints; it never computes.

mod args;
mod ask;
mod assertion;
mod check;
mod exit;
mod fit;
mod health;
mod kv;
mod launch;
mod models;
mod number;
mod observe;
mod output;
mod plan;
mod question;
mod request;
pub mod serve;
mod size;
mod sweep;
mod topology;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

pub use args::Cli;
use args::Command;
use exit::Exit;

/// Run the command that the process arguments ask for.
#[must_use]
pub fn main() -> ExitCode {
    let read = command().try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    let cli = match read {
        Ok(cli) => cli,
        Err(told) => {
            // help and version are answers; anything else is a bad input
            let exit = if told.use_stderr() { Exit::BadInput } else { Exit::Fits };
            let _ = told.print();
            return exit.into();
        }
    };
    let exit = match &cli.command {
        Command::Plan(args) => plan::run(args, cli.no_color.as_deref()),
        Command::Check(args) => check::run(args),
        Command::Observe(args) => observe::run(args),
        Command::Kv(args) => kv::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Fit(args) => fit::run(args, cli.no_color.as_deref()),
        Command::Size(args) => size::run(args, cli.no_color.as_deref()),
        Command::Sweep(args) => sweep::run(args, cli.no_color.as_deref()),
        Command::Batch(args) => ask::batch(args),
        Command::Topology(args) => topology::run(args),
        Command::Gpus => ask::gpus(),
        Command::Models(args) => models::run(args),
        Command::Accuracy(command) => ask::accuracy(command),
        Command::Calibrate(args) => ask::calibrate(args),
        Command::Ask(args) => question::ask(args, cli.no_color.as_deref()),
        Command::Serve(args) if args.print_settings => told(serve::settings(args)),
        Command::Serve(args) => told(serve::serve(args).map(|()| String::new())),
        Command::Migrate(args) => told(serve::migrate(args).map(|told| told + "\n")),
        Command::Openapi => output::print(&crate::http::openapi_json()),
        Command::Health(args) => match health::check(args) {
            Ok(()) => Exit::Fits,
            Err(fault) => Exit::UpstreamFailed.because(&fault.to_string()),
        },
    };
    exit.into()
}

/// How a command of the server ended.
/// What a command of the service has to say at its end.
fn told(outcome: Result<String, serve::ServeError>) -> Exit {
    match outcome {
        Ok(text) => output::print(&text),
        Err(fault) if fault.is_bad_input() => Exit::BadInput.because(&fault.to_string()),
        Err(fault) => Exit::UpstreamFailed.because(&fault.to_string()),
    }
}

/// The whole command line, for tests and documentation.
#[must_use]
pub fn command() -> clap::Command {
    // `--max-model-len -1` is a value to refuse with its reason, not an unknown flag
    Cli::command().mut_subcommand("plan", |plan| {
        plan.mut_args(|arg| {
            let takes_value = arg.get_action().takes_values();
            arg.allow_negative_numbers(takes_value)
        })
    })
}
