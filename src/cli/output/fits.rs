//! What fits, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Style;
use super::grid::{self, Column, narrowed};
use super::words::{context, count, gibibytes, milliseconds, wrapped};
use crate::planner::answer::short;
use crate::service::fits::{FitRow, Fits};

/// Models that do not fit, shown at most.
const MAX_SHORT: usize = 20;

/// The answer, the models that fit, and those that do not with what they lack.
#[must_use]
pub fn text(fits: &Fits, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", style.bold(&wrapped("", &fits.answer, "")));
    let names = names(&fits.items);
    let named = |row: &FitRow| names.get(row.model.as_str()).copied().unwrap_or(&row.model).to_owned();
    let (fitting, short): (Vec<&FitRow>, Vec<&FitRow>) = fits.items.iter().partition(|row| row.fit.fits);
    if !fitting.is_empty() {
        fitting_rows(fits, &fitting, named, style, &mut out);
    }
    if !short.is_empty() {
        short_rows(&short, named, style, &mut out);
    }
    let left = usize::try_from(fits.models).unwrap_or(usize::MAX).saturating_sub(fits.items.len());
    if left > 0 {
        let line = format!("{left} more models: --limit, --search, --family and --sort choose among them");
        let _ = writeln!(out, "{}", style.faint(&wrapped("", &line, "")));
    }
    out
}

/// A model's name without its owner, which also finds it, where no other model has the same.
fn names(rows: &[FitRow]) -> BTreeMap<&str, &str> {
    let plain = |row: &'_ FitRow| row.model.rsplit('/').next().unwrap_or_default().to_lowercase();
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        *owners.entry(plain(row)).or_default() += 1;
    }
    let alone = rows.iter().filter(|row| owners.get(&plain(row)) == Some(&1));
    alone.filter_map(|row| Some((row.model.as_str(), row.model.rsplit('/').next()?))).collect()
}

fn fitting_rows(
    fits: &Fits,
    rows: &[&FitRow],
    named: impl Fn(&FitRow) -> String,
    style: Style,
    out: &mut String,
) {
    let best = |row: &&FitRow, show: &dyn Fn(&crate::planner::fit::BestFit) -> String| {
        row.fit.best.as_ref().map_or_else(String::new, show)
    };
    // the length that was asked about, as an index of those at which sequences were counted
    let at = fits.contexts.iter().position(|length| *length >= fits.context_tokens);
    let length = at.and_then(|at| fits.contexts.get(at)).copied();
    let mut columns = vec![
        Column::names("model", rows, |row| named(row)),
        Column::names("TP×PP×DP", rows, |row| {
            best(row, &|b| {
                let mut text = format!("{}×{}×{}", b.layout.tp, b.layout.pp, b.layout.dp);
                if b.layout.attention_dp > 1 {
                    text.push_str(&format!(" ADP {}", b.layout.attention_dp));
                }
                text
            })
        }),
        Column::figures("KV tokens", rows, |row| best(row, &|b| count(b.kv_tokens_total))),
    ];
    if let (Some(at), Some(length)) = (at, length) {
        columns.push(Column::figures(&format!("seqs@{}", context(length)), rows, |row| {
            best(row, &|b| b.sequences.get(at).and_then(|s| s.sequences).map_or_else(String::new, count))
        }));
    }
    columns.extend([
        Column::figures("TPOT ms", rows, |row| best(row, &|b| milliseconds(b.tpot_ms))),
        Column::figures("params", rows, |row| short(row.parameters)),
        Column::figures("least GPUs", rows, |row| {
            row.fit.smallest_gpus.map_or_else(String::new, |n| n.to_string())
        }),
    ]);
    let (head, lines) = grid::lines(&narrowed(columns));
    let _ = writeln!(out, "{}", style.faint(&head));
    for (line, row) in lines.iter().zip(rows) {
        let copied = row.fit.best.as_ref().is_some_and(|b| b.replication_factor > 1.0);
        let _ = writeln!(out, "{}", if copied { style.warning(line) } else { line.clone() });
    }
    out.push('\n');
}

fn short_rows(rows: &[&FitRow], named: impl Fn(&FitRow) -> String, style: Style, out: &mut String) {
    let _ = writeln!(out, "{}", style.bad(&format!("{} do not fit", rows.len())));
    for row in rows.iter().take(MAX_SHORT) {
        let mut line = format!("{} ({})", named(row), short(row.parameters));
        if let Some(why) = &row.fit.why_not {
            match why.short_by_bytes {
                Some(bytes) => {
                    let _ = write!(line, ": {} too much on a GPU", gibibytes(bytes));
                }
                None => {
                    let _ = write!(line, ": {}", why.code);
                }
            }
        }
        if let Some(least) = row.fit.smallest_gpus {
            let _ = write!(line, "; {least} GPUs hold it");
        }
        if let Some(lower) = &row.fits_only_as {
            let _ = write!(line, "; fits as {}", lower.weights);
        }
        let _ = writeln!(out, "{}", wrapped("- ", &line, "  "));
    }
    if rows.len() > MAX_SHORT {
        let _ = writeln!(out, "{}", style.faint(&format!("- and {} more", rows.len() - MAX_SHORT)));
    }
    out.push('\n');
}
