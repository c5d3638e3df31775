//! The findings at the beginning of the text.

use analysis::findings::{Evidence, Finding};
use text::units::{percent, time};

use crate::page::{Page, TextStyle, wrapped};

/// How far the lines below a finding are indented.
const INDENT: usize = 4;

impl Page {
    /// Writes each finding: the most of the recorded time that could be gained, what was found, the numbers behind it, and what to try.
    pub(crate) fn findings(&mut self, findings: &[Finding], wall_ns: u64) {
        if findings.is_empty() {
            return;
        }
        self.text.push('\n');
        let heading = self.ink(TextStyle::Bold, "Findings");
        let by = format!("  by the most that each could gain of {}; gains overlap", time(wall_ns));
        let by = self.ink(TextStyle::Dim, &by);
        self.line(&format!("{heading}{by}"));
        for finding in findings {
            let gain = finding.gain.map_or_else(String::new, |gain| format!("≤ {}  ", percent(gain.ns, wall_ns)));
            self.paragraph(TextStyle::Yellow, "  ", &format!("{gain}{}", finding.title));
            let numbers: Vec<String> = finding.evidence.iter().map(Evidence::text).collect();
            let below = " ".repeat(INDENT);
            if !numbers.is_empty() {
                self.paragraph(TextStyle::Dim, &below, &numbers.join(", "));
            }
            self.paragraph(TextStyle::Dim, &below, &format!("try: {}", finding.advice));
        }
    }

    pub(crate) fn paragraph(&mut self, ink: TextStyle, indent: &str, text: &str) {
        for line in wrapped(text, self.width.saturating_sub(indent.len())) {
            let line = format!("{indent}{}", self.ink(ink, &line));
            self.line(&line);
        }
    }
}
