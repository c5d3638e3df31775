//! What several parts of the screen use.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Modifier, Style},
    widgets::Clear,
};

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Clears a box in the centre of the screen with room for some lines and a border.
pub(super) fn clear_centre(frame: &mut Frame<'_>, width: u16, lines: usize) -> Rect {
    let whole = frame.area();
    let (width, height) = (width.min(whole.width), (lines as u16 + 2).min(whole.height));
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    area
}
