//! Names on a line of text. They come from programs and may contain anything.

use std::borrow::Cow;

/// A text that can stand on a terminal and in XML: control characters, line separators, characters that turn the direction
/// of writing and characters that XML forbids become blanks.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hostile) {
        Cow::Owned(text.chars().map(|c| if is_hostile(c) { ' ' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A name that can stand in a folded line: [`printable`], without blanks at its ends.
///
/// `;` (which parts frames) becomes `:`. The blank before a last word that is a number becomes `_`, since `name 12 34`
/// reads as a stack with two weights. A name of which nothing is left is `[unnamed]`.
pub fn clean(name: &str) -> Cow<'_, str> {
    let mut text = printable(name);
    if text.contains(';') {
        text = Cow::Owned(text.replace(';', ":"));
    }
    if text.trim().len() != text.len() {
        text = Cow::Owned(text.trim().to_owned());
    }
    if text.is_empty() {
        return Cow::Borrowed("[unnamed]");
    }
    if let Some((head, last)) = text.rsplit_once(char::is_whitespace)
        && last.starts_with(|c: char| c.is_ascii_digit())
        && last.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        text = Cow::Owned(format!("{}_{last}", head.trim_end()));
    }
    text
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A process's or thread's short name, as one word.
pub fn word(comm: &str) -> String {
    clean(comm).split_whitespace().collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that hostile names become one harmless line, and harmless ones stay.
    #[test]
    fn clean_names() {
        assert!(matches!(clean("forward(Transformer*, int)"), Cow::Borrowed(_)));
        assert_eq!(clean("<[u8; 8] as Clone>::clone"), "<[u8: 8] as Clone>::clone");
        assert_eq!(clean("a\nb\tc\u{1b}[31m"), "a b c [31m");
        assert_eq!(clean("abc\u{202e}cba\u{ffff}"), "abc cba");
        assert_eq!(clean("kernel 5"), "kernel_5");
        assert_eq!(clean("version 1.5"), "version_1.5");
        assert_eq!(clean("kernel\u{a0}5"), "kernel_5");
        assert_eq!(clean("4 MiB class"), "4 MiB class");
        assert_eq!(clean(" \r\n"), "[unnamed]");
        assert_eq!(word("Web Content 7"), "Web_Content_7");
    }
}
