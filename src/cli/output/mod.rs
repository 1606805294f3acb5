//! An answer in the forms that people and pipelines read. All draw from the one [`Plan`].

mod fits;
mod github;
mod grid;
mod junit;
mod markdown;
mod rows;
mod sizing;
mod style;
mod sweep;
mod table;
mod words;

pub use fits::text as fits;
pub use sizing::text as sizing;
pub use style::Style;
pub use sweep::text as sweep;

use std::io::{self, Write};

use super::args::Format;
use super::assertion::Outcome;
use super::exit::Exit;
use crate::planner::plan::Plan;
use crate::service::plan_csv;
use serde_json::Value;

/// One answered question.
pub struct Answered<'a> {
    pub plan: &'a Plan,
    /// The answer as the API gives it.
    pub json: &'a Value,
    pub assertions: &'a [Outcome],
}

impl Answered<'_> {
    /// True when a layout fits and every assertion holds.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.plan.feasible && self.assertions.iter().all(|a| a.holds)
    }
}

/// The text of an answer, ending in a newline.
#[must_use]
pub fn text(answered: &Answered<'_>, format: Format, style: Style, explain: bool) -> String {
    match format {
        Format::Table => table::text(answered, style, explain),
        Format::Json => json(answered.json),
        Format::Markdown => markdown::text(answered, explain),
        Format::Csv => plan_csv(answered.json),
        Format::Junit => junit::text(answered),
        Format::Github => github::text(answered),
    }
}

/// Write to stdout; a reader that has seen enough and closed the pipe is content.
pub fn print(text: &str) -> Exit {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(fault) if fault.kind() != io::ErrorKind::BrokenPipe => Exit::Internal.because(&fault.to_string()),
        _ => Exit::Fits,
    }
}

/// The answer in a sentence, as every command begins.
#[must_use]
pub fn sentence(text: &str, style: Style) -> String {
    format!("{}\n", style.bold(&words::wrapped("", text, "")))
}

/// The ranked layouts alone.
#[must_use]
pub fn layouts(plan: &Plan, style: Style) -> String {
    let mut out = String::new();
    if !plan.layouts.is_empty() {
        table::layouts(plan, style, &mut out);
    }
    out
}

fn json(value: &Value) -> String {
    // a value of string keys and finite numbers always serialises
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
