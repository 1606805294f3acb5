//! "What fits" in words, as CSV, and as a markdown table.

use super::{FitRow, Fits};
use crate::planner::answer::{short, short_context, short_name};
use crate::planner::hardware::Cluster;
use crate::service::csv::csv_line;

/// Rows of the markdown table at most: a comment holds no more.
const MARKDOWN_ROWS: usize = 250;

/// The answer in one or two sentences.
pub(super) fn answer(cluster: &Cluster, context: u64, rows: &[FitRow]) -> String {
    let fitting: Vec<&FitRow> = rows.iter().filter(|row| row.fit.fits).collect();
    let mut text = format!(
        "{} of {} models hold at least one sequence of {} tokens on {}.",
        fitting.len(),
        rows.len(),
        short_context(context),
        cluster.in_words(),
    );
    if let Some(largest) = fitting.iter().max_by_key(|row| row.parameters) {
        text.push_str(&format!(
            " The largest is {} ({} parameters).",
            largest.model,
            short(largest.parameters)
        ));
    }
    let lower = rows.iter().filter(|row| row.fits_only_as.is_some()).count();
    if lower > 0 {
        text.push_str(&format!(" {lower} more would fit with weights in fewer bits."));
    }
    text
}

/// The head of a table, and a row's cells under it. A cell without a figure is empty. A program reads the lengths in
/// full, people in thousands of 1,024.
fn head(contexts: &[u64], length: impl Fn(u64) -> String) -> Vec<String> {
    let mut head: Vec<String> =
        ["model", "parameters", "weights", "fits", "layout", "gpus", "idle_gpus", "replicas", "kv_tokens"]
            .map(str::to_owned)
            .to_vec();
    head.extend(contexts.iter().map(|context| format!("sequences_at_{}", length(*context))));
    head.extend(
        ["tpot_ms", "output_tokens_per_s", "smallest_gpus", "fits_only_as", "short_by_bytes", "reason"]
            .map(str::to_owned),
    );
    head
}

fn cells(row: &FitRow, contexts: usize) -> Vec<String> {
    let fit = &row.fit;
    let best = fit.best.as_ref();
    let show = |figure: Option<u64>| figure.map_or_else(String::new, |n| n.to_string());
    let mut cells = vec![
        row.model.clone(),
        row.parameters.to_string(),
        row.quantization.clone(),
        fit.fits.to_string(),
        best.map_or_else(String::new, |b| short_name(&b.layout)),
        show(best.map(|b| b.layout.gpus)),
        show(best.map(|b| b.layout.idle_gpus)),
        show(best.map(|b| b.layout.dp)),
        show(best.map(|b| b.kv_tokens_total)),
    ];
    cells.extend((0..contexts).map(|i| show(best.and_then(|b| b.sequences.get(i)?.sequences))));
    cells.extend([
        best.map_or_else(String::new, |b| format!("{:.2}", b.tpot_ms)),
        best.map_or_else(String::new, |b| format!("{:.0}", b.output_tokens_per_s)),
        show(fit.smallest_gpus),
        row.fits_only_as.as_ref().map_or_else(String::new, |lower| lower.weights.clone()),
        show(fit.why_not.as_ref().and_then(|why| why.short_by_bytes)),
        fit.why_not.as_ref().map_or_else(String::new, |why| why.code.clone()),
    ]);
    cells
}

impl Fits {
    /// All rows as CSV (RFC 4180), the head first.
    #[must_use]
    pub fn csv(&self) -> String {
        let rows = self.items.iter().map(|row| csv_line(&cells(row, self.contexts.len())));
        std::iter::once(csv_line(&head(&self.contexts, |n| n.to_string()))).chain(rows).collect()
    }

    /// The answer and the rows as a markdown table.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| {
            format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
        };
        let head = head(&self.contexts, short_context);
        let rule = head.iter().map(|_| "---".to_owned()).collect();
        let mut text = format!("{}\n\n{}{}", self.answer, line(head), line(rule));
        for row in self.items.iter().take(MARKDOWN_ROWS) {
            text.push_str(&line(cells(row, self.contexts.len())));
        }
        if self.items.len() > MARKDOWN_ROWS {
            text.push_str(&format!("\n{} more rows.\n", self.items.len() - MARKDOWN_ROWS));
        }
        text
    }

    /// The rows as texts under their names, for a table of the command.
    #[must_use]
    pub fn rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        (
            head(&self.contexts, short_context),
            self.items.iter().map(|row| cells(row, self.contexts.len())).collect(),
        )
    }
}
