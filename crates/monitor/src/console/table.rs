//! A table of a block, and how it is fitted into the terminal.

use std::fmt::Write as _;

use text::{short, units::count};

/// The width from which the less important columns are shown.
const WIDE: usize = 100;

/// The size and style of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStyle {
    /// Columns of the terminal, at least 60 of which are used; `None` for lines of any length.
    pub width: Option<usize>,
    /// Lines of the terminal.
    pub height: Option<usize>,
    /// With colours.
    pub colour: bool,
}

impl BlockStyle {
    /// Whether there is room for the less important columns.
    pub(super) fn wide(self) -> bool {
        self.width.is_none_or(|width| width >= WIDE)
    }
}

/// A table of a block.
pub(super) struct Table {
    pub title: &'static str,
    pub columns: String,
    pub rows: Vec<String>,
}

impl Table {
    /// Returns the lines it needs with at most `most` rows; the last one counts the omitted rows.
    pub fn shown(&self, most: usize) -> usize {
        self.rows.len().min(most.max(1))
    }

    /// Writes at most `most` rows.
    pub fn write(&self, text: &mut String, most: usize, look: BlockStyle) {
        let (bold, dim, plain) = if look.colour { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let room = look.width.map(|width| width - self.title.len());
        let columns = cut(self.columns.get(self.title.len()..).unwrap_or_default(), room);
        let _ = writeln!(text, "\n{bold}{}{plain}{dim}{columns}{plain}", self.title);
        let most = most.max(1);
        // With room for only one or two rows, show rows instead of the number omitted.
        let shown = if self.rows.len() > most && most > 2 { most - 1 } else { self.rows.len().min(most) };
        for row in &self.rows[..shown] {
            let _ = writeln!(text, "{}", cut(row.trim_end(), look.width));
        }
        if shown < self.rows.len() && shown < most {
            let _ = writeln!(text, "{dim}… and {} more{plain}", count((self.rows.len() - shown) as u64));
        }
    }
}

/// Shortens the text to at most `most` characters, if given.
pub(crate) fn cut(text: &str, most: Option<usize>) -> String {
    most.map_or_else(|| text.to_owned(), |most| short::cut(text, most))
}
