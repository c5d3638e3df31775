//! A comparison as text for a terminal.

use std::fmt::Write;

use text::{
    short::shortened,
    units::{bytes, count, counted, time},
};

use super::{Change, Diff, Explanation, Part, Subject, Total, Unit, run::BUSY};
use crate::terminal_text::{joined_path_text, wrapped};

/// The width from which counts are shown beside names.
pub(super) const WIDE: usize = 96;
/// The least width of names.
const LEAST_NAME: usize = 13;
/// A change of idle time or waits that is a smaller part of the wall time, as 1 part in this many, is not shown.
const SMALL: u64 = 1_000;

impl Diff {
    /// Returns the comparison as text, with at most `rows` rows in each table.
    pub fn text(&self, width: usize, rows: usize) -> String {
        let mut text = String::new();
        let (before, after) = self.recordings;
        if !self.filters.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "only a part of each is compared: {}\n", self.filters.join(" "));
        }
        if before > 1 || after > 1 {
            let _ = writeln!(text, "means of {before} and {after} recordings; * marks significant changes (95 %)\n");
        }
        let all: Vec<&Change> = self.totals.iter().collect();
        table(&mut text, ("Totals", ""), &all, width, false);
        if let Some(explanation) = &self.explanation {
            for line in wrapped(&self.sentence(explanation), width) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        let mut hidden = 0;
        for (subject, changes) in &self.changes {
            let changed: Vec<&Change> = changes.iter().filter(|row| row.before != row.after).collect();
            let mut shown: Vec<&Change> = changed.iter().filter(|row| self.is_shown(*subject, row)).copied().collect();
            hidden += changed.len() - shown.len();
            shown.truncate(rows);
            table(&mut text, subject.title(), &shown, width, *subject == Subject::Paths);
        }
        let is_same = |rows: &Vec<Change>| rows.iter().all(|row| row.before == row.after);
        if is_same(&self.totals) && self.changes.values().all(is_same) {
            text.push_str("nothing has changed\n");
        } else if hidden > 0 {
            let hidden = counted(hidden as u64, "change is", "changes are");
            let _ = writeln!(
                text,
                "{hidden} not shown: within the noise of sampling, or below 0.1 % of the time (--json has all)"
            );
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// Whether a change is more than noise. Durations of GPU work are exact, and those of one recording may differ from
    /// those of another for no reason that a recording could show.
    fn is_shown(&self, subject: Subject, row: &Change) -> bool {
        if let Some(significant) = row.significant {
            return significant || matches!(subject, Subject::Kernels | Subject::Paths | Subject::Copies);
        }
        match subject {
            Subject::Kernels | Subject::Paths | Subject::Copies | Subject::Memory => true,
            // The number of samples differs by chance: by more than this in one of twenty cases.
            Subject::Functions | Subject::Lines => {
                let (a, b) = (row.before_count as f64, row.after_count as f64);
                (a - b).abs() > 2.0 * (a + b).sqrt()
            }
            Subject::Idle | Subject::Waits => {
                let wall = self.total(Total::Wall).map_or(0, |wall| wall.before.max(wall.after));
                row.before.abs_diff(row.after) >= wall / SMALL
            }
        }
    }

    /// Says which change explains the difference of the wall time.
    pub(super) fn sentence(&self, explanation: &Explanation) -> String {
        let more = explanation.wall_ns > 0;
        let change = self.total(Total::Wall).and_then(|wall| wall.change).map(percent).unwrap_or_default();
        let begin = format!(
            "the wall time has {} by {} ({change}): ",
            if more { "increased" } else { "decreased" },
            time(explanation.wall_ns.unsigned_abs()),
        );
        begin + &self.reasons().unwrap_or_else(|| "no single change explains it".to_owned())
    }

    /// Says which changes explain the difference of the wall time, if any do.
    pub fn reasons(&self) -> Option<String> {
        let explanation = self.explanation.as_ref().filter(|explanation| !explanation.parts.is_empty())?;
        let parts: Vec<String> = explanation.parts.iter().map(|part| said(part, explanation.gpu.as_deref())).collect();
        Some(parts.join("; "))
    }
}

/// Says how a part has changed.
fn said(part: &Part, gpu: Option<&str>) -> String {
    let (amount, more) = (time(part.ns.unsigned_abs()), if part.ns > 0 { "longer" } else { "shorter" });
    let name = analysis::names::printable(&part.name);
    match (gpu, &part.kernel) {
        (Some(gpu), Some((kernel, ns))) => {
            let sign = if *ns > 0 { "+" } else { "-" };
            let kernel = shortened(kernel, 60);
            format!("GPU {gpu} was busy {amount} {more}, most in {kernel} ({sign}{})", time(ns.unsigned_abs()))
        }
        (Some(gpu), None) if part.name == BUSY => format!("GPU {gpu} was busy {amount} {more}"),
        (Some(gpu), None) => format!("GPU {gpu} was idle {amount} {more}: {name}"),
        (None, _) => format!("{amount} {more} in {name}"),
    }
}

fn percent(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

/// Writes a table, unless it is empty. Names are paths if `is_path`.
fn table(text: &mut String, (title, counted): (&str, &str), rows: &[&Change], width: usize, is_path: bool) {
    if rows.is_empty() {
        return;
    }
    // On a narrow terminal the names need the room of the counts.
    let (wide, counts) = if width >= WIDE { (66, 19) } else { (47, 0) };
    let runs = |text: &str| if counts > 0 { format!("{text:>counts$}") } else { String::new() };
    let titles = format!("{title:<10}{:>10}  {:>10}  {:>9}{}", "before", "after", "change", runs(counted));
    let _ = writeln!(text, "{}", titles.trim_end());
    for row in rows {
        let new = if row.after > 0 { "new" } else { "" };
        let change = row.change.map_or_else(|| new.to_owned(), percent);
        let mark = if row.significant == Some(true) { "*" } else { " " };
        let runs = runs(&match (row.before_count, row.after_count) {
            (0, 0) => String::new(),
            (a, b) if a == b => count(a),
            (a, b) => format!("{} -> {}", count(a), count(b)),
        });
        let room = width.saturating_sub(wide).max(LEAST_NAME);
        let name = if is_path { joined_path_text(&row.name, room) } else { shortened(&row.name, room) };
        let amount = |amount: u64| match row.unit {
            Unit::Ns => time(amount),
            Unit::Bytes => bytes(amount),
        };
        let (before, after) = (amount(row.before), amount(row.after));
        let _ = writeln!(text, "{:<10}{before:>10}  {after:>10}  {change:>8}{mark}{runs}  {name}", "");
    }
    text.push('\n');
}
