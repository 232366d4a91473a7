//! Tables of text, and the words in them.

use clap::ValueEnum;
use std::fmt;

/// Rows of `N` cells. Each column is as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    /// True for each column that is aligned to the right.
    right: [bool; N],
}

/// The title of a column, and its cell for an item.
pub(crate) type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl<const N: usize> Table<N> {
    /// Returns a table with a header, whose first columns are aligned to the left.
    pub(crate) fn new(left: usize, header: [&str; N]) -> Self {
        let right = std::array::from_fn(|column| column >= left);
        Self { rows: vec![header.map(str::to_owned)], right }
    }

    /// Returns a table with a row for each item, from the title and the cells of each column.
    pub(crate) fn of<T>(left: usize, columns: [Column<'_, T>; N], items: &[T]) -> Self {
        let mut table = Self::new(left, columns.map(|(title, _)| title));
        table.rows.extend(items.iter().map(|item| columns.map(|(_, cell)| cell(item))));
        table
    }

    pub(crate) fn without_header(right: [bool; N]) -> Self {
        Self { rows: Vec::new(), right }
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
            let cell = |((text, width), right): ((&String, &usize), &bool)| match right {
                true => format!("{text:>width$}"),
                false => format!("{text:<width$}"),
            };
            let cells: Vec<String> = row.iter().zip(&widths).zip(&self.right).map(cell).collect();
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

/// Returns the name of an option's value on the command line.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
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
