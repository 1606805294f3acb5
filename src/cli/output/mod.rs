//! An answer in the forms that people and pipelines read. All draw from the one [`Plan`].

mod github;
mod junit;
mod markdown;
mod rows;
mod style;
mod table;
mod words;

pub use style::Style;

use super::args::Format;
use super::assertion::Outcome;
use crate::planner::plan::Plan;
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
        Format::Junit => junit::text(answered),
        Format::Github => github::text(answered),
    }
}

fn json(value: &Value) -> String {
    // a value of string keys and finite numbers always serialises
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
