//! Tables of text.

use std::fmt;

/// Rows of `N` cells below a header. Each column is as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    /// The number of columns, from the first, that are aligned to the left.
    left: usize,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(left: usize, header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned)], left }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for row in &self.rows {
            let cell = |(column, (text, width)): (usize, (&String, &usize))| match column < self.left {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            };
            let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Returns the number with so many digits behind the point, or a dash.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(dash, |value| format!("{value:.digits$}"))
}

/// Returns the cell of a value that there is not.
pub(crate) fn dash() -> String {
    "-".to_owned()
}

/// Returns the word for a limit.
pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(1, ["mode", "p99"]);
        table.push(["µ".to_owned(), number(Some(12345.678), 1)]);
        table.push(["without".to_owned(), number(None, 1)]);
        assert_eq!(table.to_string(), "mode         p99\nµ        12345.7\nwithout        -\n");
    }
}
