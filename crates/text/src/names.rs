//! Makes names safe to print on a line. They come from programs and may contain anything.

use std::borrow::Cow;

/// Makes a text safe for a terminal and for XML: control characters, line separators, invisible characters, characters
/// that change the direction of text and characters that XML forbids become spaces.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hostile) {
        Cow::Owned(text.chars().map(|c| if is_hostile(c) { ' ' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Makes a name safe for a folded line: [`printable`], without leading and trailing spaces.
///
/// `;` (the separator of frames) becomes `:`. The space before a last word that is a number becomes `_`, since `name 12
/// 34` reads as a stack with two weights. A name that would be empty becomes `[unnamed]`.
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
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns a process's or thread's short name as one word.
pub fn word(comm: &str) -> String {
    clean(comm).split_whitespace().collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that hostile names become one harmless line, and that harmless ones are unchanged.
    #[test]
    fn hostile_names_are_cleaned() {
        assert!(matches!(clean("forward(Transformer*, int)"), Cow::Borrowed(_)));
        assert_eq!(clean("<[u8; 8] as Clone>::clone"), "<[u8: 8] as Clone>::clone");
        assert_eq!(clean("a\nb\tc\u{1b}[31m"), "a b c [31m");
        assert_eq!(clean("abc\u{202e}cba\u{ffff}"), "abc cba");
        assert_eq!(clean("a\u{200f}b\u{61c}c\u{200b}d\u{feff}"), "a b c d");
        assert_eq!(clean("kernel 5"), "kernel_5");
        assert_eq!(clean("version 1.5"), "version_1.5");
        assert_eq!(clean("kernel\u{a0}5"), "kernel_5");
        assert_eq!(clean("4-8 MiB"), "4-8 MiB");
        assert_eq!(clean(" \r\n"), "[unnamed]");
        assert_eq!(word("Web Content 7"), "Web_Content_7");
    }
}
