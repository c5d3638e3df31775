//! `.csv`: a table, and the same as JSON for `report --by`.

use std::io::{self, Write};

use analysis::{
    names,
    tables::{Cell, Rows},
};

/// Writes the table as CSV (RFC 4180): a line with the names of the columns, then one for each row. Times are in
/// nanoseconds.
pub fn csv(rows: &Rows, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", rows.columns.join(","))?;
    for row in &rows.rows {
        let cells: Vec<String> = row.iter().map(csv_cell).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    out.flush()
}

/// Returns the table as an array of objects.
pub fn json(rows: &Rows) -> serde_json::Value {
    let cell = |cell: &Cell| match cell {
        Cell::Text(text) => text.as_str().into(),
        Cell::Ns(number) | Cell::Bytes(number) | Cell::Count(number) | Cell::Microjoules(number) => (*number).into(),
        Cell::Share(number) | Cell::Watts(number) | Cell::Number(number) => (*number).into(),
    };
    let row = |row: &Vec<Cell>| -> serde_json::Map<String, serde_json::Value> {
        rows.columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), cell(value))).collect()
    };
    rows.rows.iter().map(row).collect::<Vec<_>>().into()
}

/// Quotes a text that contains a separator or a quote. It is a name from a program and may contain anything: control characters
/// become spaces, and a text that a spreadsheet would take for a formula gets an apostrophe, which makes it a text there.
fn csv_text(text: &str) -> String {
    let text = names::printable(text);
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']);
    let text = if formula { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn csv_cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => csv_text(text),
        Cell::Ns(number) | Cell::Bytes(number) | Cell::Count(number) | Cell::Microjoules(number) => number.to_string(),
        Cell::Share(share) => format!("{share:.6}"),
        Cell::Watts(watts) => format!("{watts:.1}"),
        Cell::Number(number) => format!("{number:.3}"),
    }
}
