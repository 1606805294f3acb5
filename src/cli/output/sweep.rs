//! Curves, for people: one table for each.

use std::fmt::Write as _;

use super::Style;
use super::grid::{self, Column, narrowed};
use super::rows::rate;
use super::words::{count, factor, milliseconds, wrapped};
use crate::planner::answer::short_name;
use crate::planner::sweep::{AxisValue, Curve, Point, Sweep};

/// Every curve as a table.
#[must_use]
pub fn text(sweep: &Sweep, style: Style) -> String {
    let mut out = String::new();
    for curve in &sweep.curves {
        if let (Some(name), Some(value)) = (&sweep.by, &curve.by) {
            let _ = writeln!(out, "{}", style.bold(&format!("{name} = {}", value_of(value))));
        }
        table(&sweep.over, curve, style, &mut out);
    }
    if !sweep.held.is_empty() {
        let _ =
            writeln!(out, "{}", style.faint(&wrapped("", &format!("Held: {}", sweep.held.join(", ")), "")));
    }
    out
}

fn table(over: &str, curve: &Curve, style: Style, out: &mut String) {
    let points = &curve.points;
    let tokens = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), count);
    let times = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), milliseconds);
    let figures = |head: &str, cell: &dyn Fn(&Point) -> String| Column::figures(head, points, |p| cell(p));
    let mut columns = vec![
        figures(over, &|p| value_of(&p.at)),
        Column::names("layout", points, |p| p.layout.as_ref().map_or_else(String::new, short_name)),
        figures("KV tokens", &|p| tokens(p.kv_tokens_total)),
    ];
    if points.iter().any(|p| p.replication_factor.is_some_and(|f| f > 1.0)) {
        columns.push(figures("copies", &|p| p.replication_factor.map_or_else(|| "-".to_owned(), factor)));
        columns.push(figures("if split", &|p| tokens(p.kv_tokens_if_sharded)));
    }
    columns.extend([
        figures("sequences", &|p| tokens(p.sequences_total)),
        figures("TPOT ms", &|p| times(p.tpot_ms)),
        figures("TTFT ms", &|p| times(p.ttft_ms)),
        figures("tok/s", &|p| p.output_tokens_per_s.map_or_else(|| "-".to_owned(), rate)),
    ]);
    let (head, lines) = grid::lines(&narrowed(columns));
    let _ = writeln!(out, "{}", style.faint(&head));
    for (line, point) in lines.iter().zip(points) {
        let copied = point.replication_factor.is_some_and(|f| f > 1.0);
        let _ = writeln!(out, "{}", if copied { style.warning(line) } else { line.clone() });
    }
    for point in points {
        if let Some(why) = &point.why_not {
            let line = format!("{over} = {}: {}", value_of(&point.at), why.message);
            let _ = writeln!(out, "{}", wrapped("- ", &line, "  "));
        }
    }
    out.push('\n');
}

fn value_of(value: &AxisValue) -> String {
    match value {
        AxisValue::Number(n) => n.to_string(),
        AxisValue::Text(text) => text.clone(),
    }
}
