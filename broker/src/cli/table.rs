//! Answers as people read them (a table) and as programs do (JSON); the names of the columns are those of the fields.

use serde_json::Value;

/// Prints one JSON document on stdout.
pub(super) fn print_json(value: &Value) {
    say!("{value:#}");
}

/// The rows (JSON objects) as a table with the given columns, each as wide as its longest cell.
pub(super) fn table(columns: &[&str], rows: &[Value]) -> String {
    let cells: Vec<Vec<String>> =
        std::iter::once(columns.iter().map(|c| c.to_uppercase()).collect())
            .chain(
                rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()),
            )
            .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &cells {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        // Never blank: the next cell would be read as this one.
        Value::Null => "-".to_owned(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::String(text) => super::ask::printable(text),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [json!({"name": "orders", "isr": [1, 2]}), json!({"name": "a\u{7}", "isr": []})];
        let shown = table(&["name", "isr", "rack"], &rows);
        assert_eq!(shown, "NAME    ISR  RACK\norders  1,2  -\na       -    -\n");
    }
}
