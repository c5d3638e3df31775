//! How text is printed to a terminal, a pipe or a file: its width, and whether it may have colours and other characters than
//! ASCII.

use std::{borrow::Cow, env, io::IsTerminal, os::fd::AsFd};

use terminal_size::{Width, terminal_size_of};

/// The columns of text that does not go to a terminal: long names are not cut.
const PIPED: usize = 200;
/// The least and the most columns that are used.
const COLUMNS: std::ops::RangeInclusive<usize> = 40..=400;

/// How text is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With colours.
    pub colour: bool,
    /// A line can be erased and written again.
    pub redraws: bool,
    /// Columns.
    pub width: usize,
    /// Only ASCII characters.
    ascii: bool,
}

impl Style {
    /// Chooses the style for a stream.
    pub fn of(stream: &(impl AsFd + IsTerminal)) -> Self {
        let columns = terminal_size_of(stream).map(|(Width(columns), _)| columns.into());
        Self::choose(stream.is_terminal(), columns, |name| env::var(name).ok())
    }

    fn choose(terminal: bool, columns: Option<usize>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let given = set("COLUMNS").and_then(|value| value.parse().ok()).filter(|given| COLUMNS.contains(given));
        let own = columns.filter(|columns| terminal && *columns > 0);
        let own = own.map(|columns| columns.clamp(*COLUMNS.start(), *COLUMNS.end()));
        let width = given.or(own).unwrap_or(if terminal { 100 } else { PIPED });
        // Without any of these, as in most containers, the terminal is assumed to be a current one.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).map(|name| name.to_lowercase());
        let redraws = terminal && set("TERM").is_none_or(|name| name != "dumb");
        Self {
            redraws,
            colour: redraws && set("NO_COLOR").is_none(),
            width,
            ascii: locale.is_some_and(|name| !name.contains("utf-8") && !name.contains("utf8")),
        }
    }

    /// Returns the text as it may be printed.
    pub fn text(self, text: &str) -> Cow<'_, str> {
        if self.ascii && !text.is_ascii() { text.chars().map(ascii).collect::<String>().into() } else { text.into() }
    }
}

/// Returns one character for one, so that columns stay aligned.
fn ascii(character: char) -> char {
    match character {
        'µ' => 'u',
        '…' => '~',
        '·' => '.',
        '↳' => '>',
        '█' | '▉' | '▊' | '▋' | '▓' | '▇' | '▆' => '#',
        '▌' | '▍' | '▒' | '▅' | '▄' | '▃' => '=',
        '▎' | '▏' | '░' | '▂' | '▁' => '-',
        '└' | '┘' | '╷' => '|',
        other if other.is_ascii() => other,
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(terminal: bool, columns: Option<usize>, variables: &[(&str, &str)]) -> Style {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Style::choose(terminal, columns, find)
    }

    /// Check that COLUMNS wins over the terminal, which wins over the default, and that pipes are wide.
    #[test]
    fn widths() {
        let width = |terminal, columns, variables: &[(&str, &str)]| choose(terminal, columns, variables).width;
        assert_eq!(width(true, Some(60), &[]), 60);
        assert_eq!(width(true, Some(60), &[("COLUMNS", "120")]), 120);
        assert_eq!(width(false, None, &[("COLUMNS", "72")]), 72);
        assert_eq!(width(false, None, &[]), PIPED);
        assert_eq!(width(true, None, &[]), 100);
        for bad in ["", "0", "-3", "abc", "99999999"] {
            assert_eq!(width(true, Some(80), &[("COLUMNS", bad)]), 80, "{bad}");
        }
    }

    /// Check that NO_COLOR and a dumb terminal have no colours, and that an empty NO_COLOR does not count.
    #[test]
    fn colours() {
        assert!(choose(true, None, &[("TERM", "xterm"), ("NO_COLOR", "")]).colour);
        for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
            assert!(!choose(true, None, &variables).colour, "{variables:?}");
        }
        assert!(!choose(false, None, &[]).colour);
    }

    /// Check that a locale without UTF-8 gets ASCII of the same width, and that the first variable that is set counts.
    #[test]
    fn characters() {
        let text = "▏ 2.00 µs  gemm<…> 模";
        for (variables, plain) in [
            (&[][..], false),
            (&[("LANG", "en_US.UTF-8")], false),
            (&[("LANG", "C")], true),
            (&[("LC_ALL", "C"), ("LANG", "C.utf8")], true),
            (&[("LC_ALL", ""), ("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")], false),
        ] {
            let printed = choose(true, None, variables).text(text).into_owned();
            assert_eq!(printed, if plain { "- 2.00 us  gemm<~> ?" } else { text }, "{variables:?}");
        }
    }
}
