//! Explanations as text.

use analysis::explain::Entry;

use crate::page::{Page, TextStyle};

/// Returns explanations as text, at most `width` columns wide.
pub fn explanations(entries: &[Entry], colour: bool, width: usize) -> String {
    let mut page = Page::new(colour, width.min(100));
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            page.line("");
        }
        let name = page.ink(TextStyle::Bold, entry.name);
        let kind = page.ink(TextStyle::Dim, &format!("({})", entry.kind.text()));
        page.line(&format!("{name} {kind}"));
        let parts = [
            ("", entry.means),
            ("measured: ", entry.measured),
            ("exactness: ", entry.exact),
            ("what to do: ", entry.act),
        ];
        for (title, text) in parts {
            page.paragraph(TextStyle::Dim, "  ", &format!("{title}{text}"));
        }
    }
    page.text
}
