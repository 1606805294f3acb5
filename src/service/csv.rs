//! CSV as RFC 4180 has it, safe to open in a spreadsheet.

/// A line of CSV with its end.
pub fn csv_line(cells: &[String]) -> String {
    cells.iter().map(|cell| csv_cell(cell)).collect::<Vec<_>>().join(",") + "\r\n"
}

/// A cell, quoted where it must be. A spreadsheet must not take it for a formula.
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with(['=', '+', '-', '@']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
