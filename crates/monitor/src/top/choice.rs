//! The list in which columns are chosen.

use ratatui::{
    Frame,
    crossterm::event::KeyCode,
    style::Color,
    text::Line,
    widgets::{Block, Borders, List, ListState},
};

use super::{
    App,
    column::Column,
    parts::{BOLD, clear_centre},
};

/// The columns of the list.
const WIDTH: u16 = 58;

/// Returns the columns that can be chosen.
fn choices() -> impl Iterator<Item = Column> {
    Column::ALL.into_iter().filter(|column| !column.is_fixed())
}

impl App {
    /// Handles a key while the list is open.
    pub(super) fn choice_key(&mut self, code: KeyCode, row: usize) {
        let last = choices().count() - 1;
        self.choosing = match code {
            KeyCode::Down | KeyCode::Char('j') => Some((row + 1).min(last)),
            KeyCode::Up | KeyCode::Char('k') => Some(row.saturating_sub(1)),
            KeyCode::Home | KeyCode::Char('g') => Some(0),
            KeyCode::End | KeyCode::Char('G') => Some(last),
            KeyCode::Char(' ') => {
                let column = choices().nth(row);
                let is_chosen = |other: &Column| self.columns.contains(other) != (Some(*other) == column);
                self.columns = Column::ALL.into_iter().filter(is_chosen).collect();
                self.sort_by_shown();
                Some(row)
            }
            KeyCode::Enter | KeyCode::Esc | KeyCode::Char('c' | 'q') => None,
            _ => Some(row),
        };
    }

    /// Draws the list. `shown` are the columns of the table: a chosen one that is not among them has no room.
    pub(super) fn draw_choice(&self, frame: &mut Frame<'_>, row: usize, shown: &[Column]) {
        let line = |column: Column| {
            let mark = if self.columns.contains(&column) { 'x' } else { ' ' };
            let hidden = mark == 'x' && !shown.is_empty() && !shown.contains(&column);
            let room = if hidden { " (no room)" } else { "" };
            Line::from(format!("[{mark}] {:<15}{}{room}", column.name(), column.meaning()))
        };
        let lines: Vec<Line<'_>> = choices().map(line).collect();
        let area = clear_centre(frame, WIDTH, lines.len());
        let list = List::new(lines)
            .block(Block::default().borders(Borders::ALL).title(" columns "))
            .highlight_symbol("> ")
            .highlight_style(BOLD.bg(Color::DarkGray));
        frame.render_stateful_widget(list, area, &mut ListState::default().with_selected(Some(row)));
    }
}
