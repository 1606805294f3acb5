//! The answer as Markdown, for a comment on a change or a job's summary.

use std::fmt::Write as _;

use super::grid::Column;
use super::words::{count, factor, layout};
use super::{Answered, rows};
use crate::planner::units::grouped;

/// Rows of the table: a comment may hold 64 KB, and nobody reads more.
const MAX_ROWS: usize = 20;

pub(super) fn text(answered: &Answered<'_>, explain: bool) -> String {
    let plan = answered.plan;
    let mut out = String::new();
    let _ = writeln!(out, "**{}**\n", escaped(&plan.answer));
    let _ = writeln!(
        out,
        "`{}` ({} parameters, {}) on {}; KV {} a token\n",
        plan.model.id.replace('`', "'"),
        count(plan.model.parameters),
        escaped(&plan.model.quantization),
        escaped(&plan.cluster.text),
        escaped(&plan.model.kv_formula)
    );
    if let Some(fleet) = &plan.fleet {
        let _ = writeln!(out, "**{}**\n", escaped(&fleet.answer));
        table(&rows::fleet_columns(plan, fleet), fleet.pools.len() + 1, &mut out);
    }
    if !plan.layouts.is_empty() {
        table(&rows::columns(plan, MAX_ROWS, false), plan.layouts.len().min(MAX_ROWS), &mut out);
    }
    for outcome in answered.assertions {
        let mark = if outcome.holds { "✅" } else { "❌" };
        let _ = writeln!(out, "- {mark} `{}`: {}", outcome.text.replace('`', "'"), escaped(&outcome.found));
    }
    for warning in &plan.warnings {
        let _ = writeln!(out, "- ⚠️ `{}`: {}", warning.code, escaped(&warning.message));
    }
    if let Some(best) = plan.layouts.first() {
        for warning in &best.warnings {
            let name = layout(&best.layout);
            let _ = writeln!(out, "- ⚠️ `{}`: {name}: {}", warning.code, escaped(&warning.message));
        }
    }
    for advice in &plan.advice {
        let _ = writeln!(
            out,
            "- 💡 `{}`: KV {}, speed {}. {}",
            advice.change,
            factor(advice.kv_tokens_gain),
            factor(advice.tpot_gain),
            escaped(&advice.message)
        );
    }
    if !plan.refused_counts.is_empty() {
        let reasons: Vec<String> =
            plan.refused_counts.iter().map(|r| format!("{} {}", grouped(r.count), r.code)).collect();
        let _ = writeln!(out, "\nRefused: {}", escaped(&reasons.join(", ")));
    }
    if let Some(best) = plan.layouts.first().filter(|best| !best.launch.command.is_empty()) {
        let _ = writeln!(out, "\n```sh\n{}\n```", best.launch.command);
    }
    if explain && !plan.assumptions.is_empty() {
        let _ = writeln!(out, "\n<details><summary>Assumptions</summary>\n");
        for assumption in &plan.assumptions {
            let value = serde_json::to_string(&assumption.value).unwrap_or_default();
            let _ = writeln!(
                out,
                "- `{}` = {} {} ({})",
                assumption.name,
                escaped(&value),
                assumption.unit,
                escaped(&assumption.source)
            );
        }
        let _ = writeln!(out, "\n</details>");
    }
    out
}

fn table(columns: &[Column], lines: usize, out: &mut String) {
    let heads: Vec<&str> = columns.iter().map(|c| c.head.as_str()).collect();
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", "---:|".repeat(columns.len()));
    for i in 0..lines {
        let cells: Vec<&str> = columns.iter().filter_map(|c| c.cells.get(i)).map(String::as_str).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

/// Text that Markdown and HTML leave alone.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\r' | '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("a|b*c_d <b>\nx"), r"a\|b\*c\_d &lt;b&gt; x");
    }
}
