//! Columns of text for a line of 80.

use super::words::WIDTH;

/// Columns that are kept however long the lines get.
const KEPT: usize = 4;

/// One column: its head and one cell for each row.
pub(super) struct Column {
    pub(super) head: String,
    pub(super) cells: Vec<String>,
    /// Names stand to the left, figures to the right.
    left: bool,
}

impl Column {
    /// A column of figures.
    pub(super) fn figures<T>(head: &str, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        Self { head: head.to_owned(), cells: rows.iter().map(cell).collect(), left: false }
    }

    /// A column of names.
    pub(super) fn names<T>(head: &str, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        Self { left: true, ..Self::figures(head, rows, cell) }
    }

    fn width(&self) -> usize {
        self.cells.iter().chain([&self.head]).map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// A text of this column's width.
    pub(super) fn padded(&self, text: &str) -> String {
        let width = self.width();
        if self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }

    /// The cell of a row, at this column's width.
    fn cell(&self, row: usize) -> String {
        self.padded(self.cells.get(row).map_or("", String::as_str))
    }
}

/// The columns without those that would make lines longer than the width.
pub(super) fn narrowed(mut columns: Vec<Column>) -> Vec<Column> {
    while columns.len() > KEPT && line_width(&columns) > WIDTH {
        columns.pop();
    }
    columns
}

/// The line of heads, and the line of each row.
pub(super) fn lines(columns: &[Column]) -> (String, Vec<String>) {
    let line = |cell: &dyn Fn(&Column) -> String| -> String {
        columns.iter().map(cell).collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    (
        line(&|column| column.padded(&column.head)),
        (0..rows).map(|row| line(&|column| column.cell(row))).collect(),
    )
}

fn line_width(columns: &[Column]) -> usize {
    columns.iter().map(|c| c.width() + 1).sum::<usize>().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_figures_right() {
        let rows = ["a", "long name"];
        let columns = [
            Column::names("model", &rows, |r| (*r).to_owned()),
            Column::figures("n", &rows, |r| r.len().to_string()),
        ];
        let (head, lines) = lines(&columns);
        assert_eq!(head, "model     n");
        assert_eq!(lines, ["a         1", "long name 9"]);
    }

    #[test]
    fn the_last_columns_give_way() {
        let rows = ["x".repeat(30)];
        let columns = (0..6).map(|_| Column::figures("h", &rows, Clone::clone)).collect();
        assert_eq!(narrowed(columns).len(), KEPT);
    }
}
