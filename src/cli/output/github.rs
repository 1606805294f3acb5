//! The answer as workflow commands, which a job shows as annotations.

use std::fmt::Write as _;

use super::Answered;
use super::words::layout;

/// Annotations of one kind that a job shows; the rest would be dropped without a word.
const MAX_WARNINGS: usize = 8;

pub(super) fn text(answered: &Answered<'_>) -> String {
    let plan = answered.plan;
    let mut out = String::new();
    let level = if plan.feasible { "notice" } else { "error" };
    let _ = writeln!(out, "::{level} title=shardwise::{}", escaped(&plan.answer));
    for outcome in answered.assertions.iter().filter(|a| !a.holds) {
        let _ = writeln!(
            out,
            "::error title=shardwise::{}",
            escaped(&format!("{} failed: {}", outcome.text, outcome.found))
        );
    }
    let of_best = plan.layouts.first().into_iter().flat_map(|best| {
        best.warnings.iter().map(|w| (w.code.as_str(), format!("{}: {}", layout(&best.layout), w.message)))
    });
    let of_all = plan.warnings.iter().map(|w| (w.code.as_str(), w.message.clone()));
    for (code, message) in of_all.chain(of_best).take(MAX_WARNINGS) {
        let _ = writeln!(out, "::warning title=shardwise {code}::{}", escaped(&message));
    }
    out
}

/// A message on one line, as workflow commands want it.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_message_cannot_start_another_command() {
        assert_eq!(escaped("17 %\n::set-env name=x::y"), "17 %25%0A::set-env name=x::y");
    }
}
