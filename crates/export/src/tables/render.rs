//! A table as text for a terminal.

use text::{
    names::printable,
    short::short,
    units::{bytes, count, energy, time},
};

use super::{Cell, Rows};
use crate::terminal_text::joined_path_text;

/// The width of a name, where the line would be too long.
const SHORTEST: usize = 20;
/// The width of an instruction, which cannot be shortened like a name.
const INSTRUCTION: usize = 48;

impl Rows {
    /// Returns the table as text: numbers first, then names, which are shortened to fit into `width` columns.
    pub fn text(&self, width: usize) -> String {
        let numbers: Vec<usize> = (0..self.columns.len()).filter(|at| self.is_number(*at)).collect();
        let texts: Vec<usize> = (0..self.columns.len()).filter(|at| !self.is_number(*at)).collect();
        let shown: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(show).collect()).collect();
        let column = |at: usize| {
            let cells = shown.iter().map(|row| row[at].chars().count());
            cells.chain([heading(self.columns[at]).chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(column).collect();
        let used: usize = numbers.iter().map(|at| widths[*at] + 2).sum();
        let most = |at: usize| if self.columns[at] == "instruction" { INSTRUCTION } else { SHORTEST };
        let mut text = String::new();
        let mut line = |cells: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for at in &numbers {
                line += &format!("{:>width$}  ", cells(*at), width = widths[*at]);
            }
            for (index, at) in texts.iter().enumerate() {
                let last = index + 1 == texts.len();
                let others: usize = texts[..texts.len() - 1].iter().map(|at| widths[*at].min(most(*at)) + 2).sum();
                let room = if last { width.saturating_sub(used + others).max(SHORTEST) } else { most(*at) };
                let cell = match self.columns[*at] {
                    "path" => joined_path_text(&cells(*at), room),
                    _ => short(&printable(&cells(*at)), room),
                };
                let padding = if last { 0 } else { widths[*at].min(most(*at)) + 2 };
                line += &format!("{cell:<padding$}");
            }
            text += line.trim_end();
            text.push('\n');
        };
        line(&|at| heading(self.columns[at]).to_owned());
        for row in &shown {
            line(&|at| row[at].clone());
        }
        text
    }

    fn is_number(&self, column: usize) -> bool {
        self.rows.first().is_some_and(|row| !matches!(row[column], Cell::Text(_)))
    }
}

/// Returns a column's name without its unit, which each value has.
fn heading(column: &str) -> &str {
    match column {
        "ns" => "time",
        "watts" => "power",
        other => other.strip_suffix("_ns").or_else(|| other.strip_suffix("_uj")).unwrap_or(other),
    }
}

fn show(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Ns(ns) => time(*ns),
        Cell::Bytes(number) => bytes(*number),
        Cell::Microjoules(number) => energy(*number),
        Cell::Watts(watts) => format!("{watts:.0} W"),
        Cell::Number(number) => format!("{number:.1}"),
        Cell::Count(number) => count(*number),
        Cell::Share(share) => format!("{:.1} %", share * 100.0),
    }
}
