//! A column of the table of processes.

use ratatui::{
    layout::{Alignment, Constraint},
    text::Line,
    widgets::Cell,
};

use super::app::Sort;

/// The least columns of a text that can be cut.
const LEAST_NAME: u16 = 11;

/// A column: its title, its cells, and when it is left out.
pub(super) struct Column {
    pub title: &'static str,
    pub texts: Vec<String>,
    /// What the table is sorted by if it is sorted by this column.
    pub sort: Option<Sort>,
    /// The higher, the sooner it is left out; 0: never.
    pub order: u8,
    is_number: bool,
}

impl Column {
    /// A column of numbers, which are never cut.
    pub fn number(title: &'static str, sort: Option<Sort>, texts: Vec<String>, order: u8) -> Self {
        Self { title, texts, sort, order, is_number: true }
    }

    /// A column of texts.
    pub fn text(title: &'static str, texts: Vec<String>, order: u8) -> Self {
        Self { title, texts, sort: None, order, is_number: false }
    }

    /// Returns the width of its texts, but not less than usual, so that columns do not move with every number.
    fn longest(&self) -> u16 {
        let usual = match self.title {
            "pid" | "errors" => 7,
            "live" | "peak" => 9,
            "user" => 10,
            // Room for the mark of the sorted column.
            "launches/s" | "HtoD/s" | "DtoH/s" => 11,
            _ => self.title.len(),
        };
        let texts = self.texts.iter().map(|text| text.chars().count());
        texts.chain([usual]).max().unwrap_or(0).min(64) as u16
    }

    /// Returns the columns that it needs.
    pub fn least(&self) -> u16 {
        match self.title {
            "name" => LEAST_NAME,
            "user" => self.longest().min(LEAST_NAME),
            _ => self.longest(),
        }
    }

    /// Returns its width for the layout.
    pub fn constraint(&self) -> Constraint {
        if self.title == "name" { Constraint::Min(LEAST_NAME) } else { Constraint::Length(self.least()) }
    }

    /// Returns a cell.
    pub fn cell(&self, text: String) -> Cell<'static> {
        let alignment = if self.is_number { Alignment::Right } else { Alignment::Left };
        Cell::from(Line::from(text).alignment(alignment))
    }
}
