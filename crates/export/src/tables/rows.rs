//! The rows of a table, and how they are written.

use std::io::{self, Write};

use analysis::names;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A time in nanoseconds.
    Ns(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A number or count.
    Count(u64),
    /// A share from 0 to 1.
    Share(f64),
    /// An energy in microjoules.
    Microjoules(u64),
    /// A power in watts.
    Watts(f64),
    /// A number in the unit of its row.
    Number(f64),
}

/// The rows of a table, the most important first.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// As many cells as columns each.
    pub rows: Vec<Vec<Cell>>,
}

/// Returns a part as a share of the whole, 0 to 1.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Rows {
    /// Keeps the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
    }

    /// Writes the table as CSV (RFC 4180): a line with the names of the columns, then one for each row. Times are in
    /// nanoseconds.
    pub fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.columns.join(","))?;
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(csv).collect();
            writeln!(out, "{}", cells.join(","))?;
        }
        out.flush()
    }

    /// Returns the table as an array of objects.
    pub fn json(&self) -> serde_json::Value {
        let cell = |cell: &Cell| match cell {
            Cell::Text(text) => text.as_str().into(),
            Cell::Ns(number) | Cell::Bytes(number) | Cell::Count(number) | Cell::Microjoules(number) => {
                (*number).into()
            }
            Cell::Share(number) | Cell::Watts(number) | Cell::Number(number) => (*number).into(),
        };
        let row = |row: &Vec<Cell>| -> serde_json::Map<String, serde_json::Value> {
            self.columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), cell(value))).collect()
        };
        self.rows.iter().map(row).collect::<Vec<_>>().into()
    }
}

/// Quotes a text that contains a separator or a quote. It is a name from a program and may contain anything: control characters
/// become spaces, and a text that a spreadsheet would take for a formula gets an apostrophe, which makes it a text there.
fn csv_text(text: &str) -> String {
    let text = names::printable(text);
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']);
    let text = if formula { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn csv(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => csv_text(text),
        Cell::Ns(number) | Cell::Bytes(number) | Cell::Count(number) | Cell::Microjoules(number) => number.to_string(),
        Cell::Share(share) => format!("{share:.6}"),
        Cell::Watts(watts) => format!("{watts:.1}"),
        Cell::Number(number) => format!("{number:.3}"),
    }
}
