//! Lists as tables.

use super::paint::{self, Paint};

/// The most columns of a line where there is no window.
const COLUMNS: usize = 160;

/// Writes rows under headings, each column as wide as it must be, and lines as the window is.
pub(crate) fn table(
    headings: &[&str],
    rows: &[Vec<String>],
    columns: Option<usize>,
    paint: Paint,
) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(paint::width(cell));
        }
    }
    let head: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let mut lines = vec![paint.bold(line(&head, &widths))];
    lines.extend(rows.iter().map(|row| line(row, &widths)));
    let columns = columns.unwrap_or(COLUMNS);
    let lines: Vec<String> = lines.iter().map(|line| paint::cut(line, columns)).collect();
    lines.join("\n")
}

/// Writes rows without headings, each column as wide as it must be.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| rows.iter().filter_map(move |row| row.get(at)).map(|cell| paint::width(cell));
    let widths: Vec<usize> = (0..columns).map(|at| width(at).max().unwrap_or(0)).collect();
    rows.iter().map(|row| line(row, &widths)).collect::<Vec<_>>().join("\n")
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| {
        let padding = width.saturating_sub(paint::width(cell));
        format!("{cell}{}", " ".repeat(padding))
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [vec!["é".to_owned(), "long".to_owned()], vec!["ab".to_owned(), String::new()]];
        expect![[r"
            A   B
            é   long
            ab"]]
        .assert_eq(&table(&["A", "B"], &rows, None, Paint::new(false)));
        expect![[r"
            A   B
            é   l…
            ab"]]
        .assert_eq(&table(&["A", "B"], &rows, Some(6), Paint::new(false)));
    }
}
