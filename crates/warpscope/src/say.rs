//! Prints messages to stderr, one line each. Paths, names and errors in them come from programs that may be hostile:
//! they must neither control the terminal nor forge a line of their own.

use std::fmt::Display;

use text::names::printable;

use crate::status_line;

/// Writes one line.
pub fn say(text: impl Display) {
    let _erased = status_line::erase();
    eprintln!("{}", line(text));
}

/// Writes several lines of text that must not come from a program.
pub fn say_lines(text: &str) {
    let lines: Vec<_> = text.lines().map(printable).collect();
    eprintln!("warpscope: {}", lines.join("\n"));
}

/// Formats an error with its causes, without repeating a cause that the message already contains.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        said if said.contains(&cause) => text,
        said => format!("{said}: {cause}"),
    })
}

fn line(text: impl Display) -> String {
    format!("warpscope: {}", printable(&text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name with a line feed, an escape sequence or a text direction change stays one harmless line.
    #[test]
    fn hostile_names_stay_on_one_line() {
        assert_eq!(
            line("cannot read /tmp/a\nwarpscope: all is well"),
            "warpscope: cannot read /tmp/a warpscope: all is well"
        );
        assert_eq!(line("\u{1b}[2J\u{9b}1m\u{202e}\r\u{7}x"), "warpscope:  [2J 1m   x");
        assert_eq!(line("/home/jörg/模型"), "warpscope: /home/jörg/模型");
    }
}
