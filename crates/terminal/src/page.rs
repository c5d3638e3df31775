//! Lines of text for a terminal: colours, bars, and names and paths shortened to fit.

use analysis::names::is_informative;
use text::{
    short::{cut, short},
    units::{percent, time},
};

/// The minimum width for long bars.
const WIDE: usize = 100;

/// The style of a part of a line on a terminal.
#[derive(Clone, Copy)]
pub(crate) enum TextStyle {
    Bold,
    Dim,
    Blue,
    Red,
    Green,
    Yellow,
    Magenta,
}

pub(crate) struct Page {
    pub(crate) text: String,
    colour: bool,
    pub(crate) width: usize,
}

impl Page {
    pub(crate) fn new(colour: bool, width: usize) -> Self {
        Self { text: String::new(), colour, width }
    }

    pub(crate) fn ink(&self, ink: TextStyle, text: &str) -> String {
        let code = match ink {
            TextStyle::Bold => 1,
            TextStyle::Dim => 2,
            TextStyle::Blue => 34,
            TextStyle::Red => 31,
            TextStyle::Green => 32,
            TextStyle::Yellow => 33,
            TextStyle::Magenta => 35,
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// Returns the length of bars.
    pub(crate) fn bar_width(&self) -> usize {
        if self.width < WIDE { 5 } else { 12 }
    }

    /// Writes a table's header after an empty line: the title above the bars, what the shares are shares of, then `columns`
    /// aligned like [`Page::row`] and the columns after it.
    pub(crate) fn heading(&mut self, title: &str, share_of: &str, columns: &str) {
        self.heading_of(title, share_of, "time", columns);
    }

    /// The same for a table of values that are not times.
    pub(crate) fn heading_of(&mut self, title: &str, share_of: &str, value: &str, columns: &str) {
        let title_width = self.bar_width().max(6);
        let title = format!("{title:<title_width$}");
        let share = self.bar_width() + 9 - title_width;
        let columns = format!("{share_of:>share$}  {value:>8}  {columns}");
        let line = format!("{}{}", self.ink(TextStyle::Bold, &title), self.ink(TextStyle::Dim, &columns));
        self.text.push('\n');
        self.line(&line);
    }

    /// Formats a bar, a share and a time: the beginning of a row.
    pub(crate) fn row(&self, ink: TextStyle, ns: u64, share: f64, whole: u64) -> String {
        self.row_of(ink, (ns, whole), share, &time(ns))
    }

    /// The same for values that are not times: a part of a whole, its share, and its text.
    pub(crate) fn row_of(&self, ink: TextStyle, (part, whole): (u64, u64), share: f64, text: &str) -> String {
        format!("{} {:>8}  {text:>8}", self.ink(ink, &bar(share, self.bar_width())), percent(part, whole))
    }

    /// Returns the width left in a line after a row and `more` columns.
    pub(crate) fn rest(&self, more: usize) -> usize {
        self.width.saturating_sub(self.bar_width() + 19 + more)
    }
}

/// Draws a bar in eighths: anything above zero is visible.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    format!("{text:<width$}")
}

/// Breaks a text into lines of at most `most` columns, between words where possible.
pub(crate) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let word = cut(word, most);
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = word,
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Maximum length of one frame of a path, where it can be shortened to that.
const STEP: usize = 32;

/// Formats a frame of a path: a kernel without its brackets, but with its GPU where there are several.
fn step(name: &str) -> String {
    match name.strip_prefix("[GPU").and_then(|rest| rest.split_once("_Kernel] ")) {
        Some(("", kernel)) => short(kernel, STEP),
        Some((gpu, kernel)) => format!("GPU{gpu} {}", short(kernel, STEP)),
        None if name.starts_with("[GPU") => name.to_owned(),
        None => short(name, STEP),
    }
}

/// Returns a path whose frames are separated by `;`, shortened as [`path_text`] does.
pub(crate) fn joined_path_text(path: &str, most: usize) -> String {
    path_text(&path.split(';').map(str::to_owned).collect::<Vec<_>>(), most)
}

/// Formats `python3 > … > train > forward > linear > matmul`: the operation and its nearest caller, then the process,
/// then as many callers as fit.
pub(crate) fn path_text(path: &[String], most: usize) -> String {
    const BETWEEN: &str = " > ";
    const LEFT_OUT: &str = "…";
    let inner = 1..path.len().saturating_sub(1);
    let shown = path.iter().enumerate().filter(|(i, name)| !inner.contains(i) || is_informative(name));
    let mut names: Vec<String> = shown.map(|(_, name)| step(name)).collect();
    // nvcc's host function has the kernel's name.
    names.dedup();
    let whole = names.join(BETWEEN);
    if names.len() < 3 || whole.chars().count() <= most {
        return cut(&whole, most);
    }
    let length = |name: &str| name.chars().count() + BETWEEN.len();
    let mut from = names.len() - 2;
    let mut room = most + BETWEEN.len();
    for name in [&names[from], &names[from + 1], LEFT_OUT] {
        match room.checked_sub(length(name)) {
            Some(left) => room = left,
            None => return cut(&names[from..].join(BETWEEN), most),
        }
    }
    let mut start = vec![LEFT_OUT.to_owned()];
    if from > 0 && length(&names[0]) <= room {
        room -= length(&names[0]);
        start.insert(0, names[0].clone());
    }
    while from > 1 && length(&names[from - 1]) <= room {
        from -= 1;
        room -= length(&names[from]);
    }
    [&start[..], &names[from..]].concat().join(BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a path is shortened in its middle, and only as far as needed for the width.
    #[test]
    fn long_paths_are_shortened_in_the_middle() {
        let path: Vec<String> =
            ["python3", "main", "load", "train", "forward", "linear", "cudaLaunchKernel", "[GPU_Kernel] gemm<4>(int)"]
                .map(str::to_owned)
                .to_vec();
        assert_eq!(path_text(&path, 200), "python3 > load > train > forward > linear > gemm<4>");
        assert_eq!(path_text(&path, 42), "python3 > … > forward > linear > gemm<4>");
        assert_eq!(path_text(&path, 29), "… > linear > gemm<4>");
        assert_eq!(path_text(&path, 18), "linear > gemm<4>", "the nearest caller is more important than the process");
        for most in 1..90 {
            assert!(path_text(&path, most).chars().count() <= most);
        }
        assert_eq!(path_text(&["one".to_owned()], 2), "o…");
    }

    /// Check that text is broken between words, and a long word is cut.
    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 7), ["incomp…"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    /// Check that all bars have the same width, and that small values stay visible.
    #[test]
    fn bars() {
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(1.7, 4), "████");
        assert_eq!(bar(1e-9, 4), "▏   ");
        assert_eq!(bar(0.0, 4), "    ");
    }
}
