//! The fewest GPUs for a load, for people.

use std::fmt::Write as _;

use super::Style;
use super::grid::{self, Column, narrowed};
use super::words::{gibibytes, milliseconds, wrapped};
use crate::planner::answer::short_name;
use crate::planner::sizing::{FewestGpus, SizedProduct, Sizing};
use crate::planner::units::grouped;

/// The answer, the products that carry the load, those that cannot, and how the load was counted.
#[must_use]
pub fn text(sizing: &Sizing, style: Style) -> String {
    let mut out = String::new();
    let answer = wrapped("", &sizing.answer, "");
    let _ = writeln!(out, "{}\n", if sizing.feasible { style.bold(&answer) } else { style.bad(&answer) });
    let sized: Vec<(&SizedProduct, &FewestGpus)> =
        sizing.products.iter().filter_map(|p| Some((p, p.sized.as_ref()?))).collect();
    if !sized.is_empty() {
        let dollars = |usd: Option<f64>| usd.map_or_else(|| "-".to_owned(), |usd| format!("{usd:.2}"));
        let columns = vec![
            Column::names("GPU", &sized, |(p, _)| p.gpu.clone()),
            Column::figures("GPUs", &sized, |(_, s)| grouped(s.gpus)),
            Column::figures("nodes", &sized, |(_, s)| grouped(s.nodes)),
            Column::figures("idle", &sized, |(_, s)| grouped(s.idle_gpus)),
            Column::names("layout", &sized, |(_, s)| short_name(&s.layout.layout)),
            Column::figures("TTFT ms", &sized, |(_, s)| milliseconds(s.per_replica.ttft_ms)),
            Column::figures("TPOT ms", &sized, |(_, s)| milliseconds(s.per_replica.tpot_ms)),
            Column::figures("USD/h", &sized, |(_, s)| dollars(s.cost.usd_per_hour)),
            Column::names("bound", &sized, |(_, s)| s.per_replica.bound.clone()),
        ];
        let (head, lines) = grid::lines(&narrowed(columns));
        let _ = writeln!(out, "{}", style.faint(&head));
        for (i, line) in lines.iter().enumerate() {
            let _ = writeln!(out, "{}", if i == 0 { style.good(line) } else { line.clone() });
        }
        out.push('\n');
    }
    for product in &sizing.products {
        let Some(why) = &product.why_not else { continue };
        let short =
            why.short_by_bytes.map_or_else(String::new, |b| format!(" ({} too much on a GPU)", gibibytes(b)));
        let _ = writeln!(out, "{}", wrapped("- ", &format!("{}: {}{short}", product.gpu, why.message), "  "));
    }
    for line in &sizing.method {
        let _ = writeln!(out, "{}", style.faint(&wrapped("", line, "")));
    }
    out
}
