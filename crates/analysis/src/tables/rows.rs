//! The rows of a table.

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

impl Rows {
    /// Keeps the first rows.
    pub fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
    }
}
