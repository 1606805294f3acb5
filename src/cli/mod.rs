//! The command line: a thin face over `service`. It reads flags, asks, and prints; it never computes.

pub mod serve;

use std::process::ExitCode;

/// Run the command that the process arguments ask for.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
