//! A comparison as text for a terminal.

use std::fmt::Write;

use analysis::diff::{Change, Diff, StepsChange, Subject, Unit};
use text::{
    short::shortened,
    units::{bytes, count, counted, time},
};

use crate::{
    document::{Document, Form},
    page::{joined_path_text, wrapped},
};

/// The paths that a verdict names.
const PATHS: usize = 3;

/// The width from which counts are shown beside names.
const WIDE: usize = 96;
/// The least width of names.
const LEAST_NAME: usize = 13;

/// Returns a comparison as text, with at most `rows` rows in each table.
pub fn comparison(diff: &Diff, width: usize, rows: usize) -> String {
    let mut text = String::new();
    let (before, after) = diff.recordings;
    if !diff.filters.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "only a part of each is compared: {}\n", diff.filters.join(" "));
    }
    if before > 1 || after > 1 {
        let _ = writeln!(text, "means of {before} and {after} recordings; * marks significant changes (95 %)\n");
    }
    if (before, after) == (1, 1) && diff.steps.as_ref().is_some_and(|steps| steps.median.significant == Some(true)) {
        text.push_str("* marks a median step that differs more than parts of a run do (95 %)\n\n");
    }
    let step = diff.steps.as_ref().map(|steps| &steps.median);
    let all: Vec<&Change> = step.into_iter().chain(&diff.totals).collect();
    let counts = if step.is_some() { "steps" } else { "" };
    table(&mut text, ("Totals", counts), &all, width, false);
    let of_steps = diff.steps.as_ref().and_then(StepsChange::sentence);
    for explained in of_steps.into_iter().chain(diff.explained()) {
        for line in wrapped(&explained, width) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    let mut hidden = 0;
    for (subject, changes) in &diff.changes {
        let changed: Vec<&Change> = changes.iter().filter(|row| row.before != row.after).collect();
        let mut shown: Vec<&Change> =
            changed.iter().filter(|row| diff.is_beyond_noise(*subject, row)).copied().collect();
        hidden += changed.len() - shown.len();
        shown.truncate(rows);
        table(&mut text, subject.title(), &shown, width, *subject == Subject::Paths);
    }
    let is_same = |rows: &Vec<Change>| rows.iter().all(|row| row.before == row.after);
    if is_same(&diff.totals) && diff.changes.values().all(is_same) {
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

/// Returns what a reviewer needs of a comparison: whether it fails, `above`, what explains the difference, all totals, and the
/// paths that have changed most.
pub fn verdict(diff: &Diff, above: Option<&str>, form: Form) -> String {
    let mut document = Document::new(form);
    let explained = diff.explained();
    document.verdict(match (above, &explained) {
        (Some(_), _) => "regression",
        (None, Some(_)) => "no regression above the limit",
        (None, None) => "no difference of the wall time that needs an explanation",
    });
    for sentence in above.map(str::to_owned).into_iter().chain(explained) {
        document.line(&sentence);
    }
    if !diff.filters.is_empty() {
        document.line(&format!("only a part of each is compared: {}", diff.filters.join(" ")));
    }
    let (before, after) = diff.recordings;
    if before > 1 || after > 1 {
        document.line(&format!("means of {before} and {after} recordings; * is significant (95 %)"));
    }
    let columns = ["before", "after", "change", "total"];
    document.section("Totals");
    document.table(&columns, &diff.totals.iter().map(row).collect::<Vec<_>>());
    let subjects = [(Subject::Idle, "GPU idle"), (Subject::Paths, "Paths"), (Subject::Functions, "CPU functions")];
    for (subject, title) in subjects {
        let changed = diff.changes.get(&subject).into_iter().flatten().filter(|row| row.before != row.after);
        let rows: Vec<_> = changed.filter(|row| diff.is_beyond_noise(subject, row)).take(PATHS).map(row).collect();
        if !rows.is_empty() {
            document.section(&format!("{title} that changed most"));
            document.table(&[columns[0], columns[1], columns[2], "name"], &rows);
        }
    }
    document.finish()
}

/// Returns the numbers of a change and its name.
fn row(row: &Change) -> (Vec<String>, String) {
    let amount = |amount: u64| match row.unit {
        Unit::Ns => time(amount),
        Unit::Bytes => bytes(amount),
    };
    let mark = if row.significant == Some(true) { "*" } else { "" };
    let change = row.percent().unwrap_or_else(|| if row.after > 0 { "new".to_owned() } else { String::new() });
    (vec![amount(row.before), amount(row.after), format!("{change}{mark}")], row.name.replace(';', " > "))
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
        let change = row.percent().unwrap_or_else(|| new.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of one recording of each side.
    fn row(name: &str, (before, after): (u64, u64), (before_count, after_count): (u64, u64)) -> Change {
        let change = (before > 0).then(|| after as f64 / before as f64 - 1.0);
        let (name, unit) = (name.to_owned(), Unit::Ns);
        Change { name, unit, before, after, before_count, after_count, change, significant: None }
    }

    fn diff(changes: [(Subject, Vec<Change>); 1]) -> Diff {
        Diff {
            recordings: (1, 1),
            filters: Vec::new(),
            totals: Vec::new(),
            steps: None,
            explanation: None,
            changes: changes.into(),
        }
    }

    /// Check that what is new is marked, and that what has not changed, or only by chance, is left out.
    #[test]
    fn changes_are_shown() {
        let rows = vec![
            row("gemm", (2_000_000, 3_000_000), (10, 10)),
            row("fused", (0, 100_000), (0, 1)),
            row("same", (1_000_000, 1_000_000), (10, 10)),
        ];
        let text = comparison(&diff([(Subject::Kernels, rows)]), 120, 15);
        assert!(text.contains("+50.0 %") && text.contains("new") && !text.contains("same"), "{text}");
        let chance = vec![row("parse", (500_000, 505_000), (500, 505))];
        let text = comparison(&diff([(Subject::Functions, chance)]), 120, 15);
        assert!(text.contains("1 change is not shown") && !text.contains("parse"), "{text}");
        let text = comparison(&diff([(Subject::Functions, vec![row("parse", (5, 5), (1, 1))])]), 120, 15);
        assert!(text.ends_with("nothing has changed\n"), "{text}");
    }

    /// Check that a verdict names the regression, the totals and at most three paths, in both forms.
    #[test]
    fn verdicts_name_three_paths() {
        let paths =
            (0..5).map(|at| row(&format!("train;step{at};[GPU_Kernel] a|b"), (1_000_000, 3_000_000 - at), (1, 1)));
        let mut diff = diff([(Subject::Paths, paths.collect())]);
        diff.totals = vec![row("wall time", (1_000_000_000, 1_500_000_000), (0, 0))];
        let text = verdict(&diff, Some("the wall time has increased by 50.0 %, more than 3 %"), Form::Text);
        assert!(text.starts_with("regression\nthe wall time has increased by 50.0 %, more than 3 %\n"), "{text}");
        assert!(text.contains("  1.00 s  1.50 s  +50.0 %  wall time\n"), "{text}");
        assert_eq!(text.matches(" > [GPU_Kernel]").count(), 3, "{text}");
        let text = verdict(&diff, None, Form::Markdown);
        assert!(text.starts_with("### no difference"), "{text}");
        assert!(
            text.contains(
                "| before | after | change | total |\n|---:|---:|---:|---|\n| 1.00 s | 1.50 s | +50.0 % | `wall time` |"
            ),
            "{text}"
        );
    }

    /// Check that rows fit into terminals of 60 columns and more, with names that can be read.
    #[test]
    fn rows_fit_into_the_terminal() {
        let name = "a_kernel_with_a_long_name_that_must_be_shortened_to_fit_into_the_line_of_a_terminal";
        let rows = vec![row(name, (1_000_000, 2_000_000), (1_000_000, 1_000_000))];
        let diff = diff([(Subject::Kernels, rows)]);
        for width in 60..200 {
            let text = comparison(&diff, width, 15);
            assert!(text.lines().all(|line| line.trim_end().chars().count() <= width), "{width}: {text}");
            assert!(text.contains("a_kernel_") && text.contains("+100.0 %"), "{width}: {text}");
            assert!(!text.contains("new"), "{text}");
            assert_eq!(text.contains("1,000,000"), width >= WIDE, "{text}");
        }
    }
}
