//! Text in columns.

/// A table: columns are as wide as their widest cell, numbers are right-aligned.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; `>` at the start of a name right-aligns the column.
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            header: columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect(),
            right: columns.iter().map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell of it has no end of a line or tab, whoever wrote it.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| cell.replace(char::is_control, "?")).collect());
    }

    /// The table as text; each line ends with a newline.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.header).chain(&self.rows).collect();
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = line.get(column).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                let right = self.right.get(column).copied().unwrap_or(false);
                let (before, after) = if right { (space.as_str(), "") } else { ("", &*space) };
                row.push_str(before);
                row.push_str(cell);
                row.push_str(after);
                row.push_str("  ");
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", ">size"]);
        table.row(vec!["a".to_owned(), "1".to_owned()]);
        table.row(vec!["größer".to_owned(), "1000".to_owned()]);
        table.row(vec!["short".to_owned()]);
        assert_eq!(table.text(), "name    size\na          1\ngrößer  1000\nshort\n");
    }
}
