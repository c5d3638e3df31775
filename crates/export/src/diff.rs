//! Compares recordings: what got slower or faster, by kernel and by path of user code.
//!
//! Each side has one or more recordings of the same program. With several, a change is significant if Welch's t-test says
//! so at 95 %: the difference of the means is larger than what runs of one side differ by.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use model::profile::{GpuWeight, Profile};
use serde::Serialize;
use text::units::{count, time};

use crate::{
    tables::{by_kernel, by_line},
    terminal_text::{joined_path_text, shortened},
};

mod html;

/// The width from which counts are shown beside names.
const WIDE: usize = 96;
/// The least width of names.
const LEAST_NAME: usize = 13;

/// What a comparison needs of one recording.
#[derive(Clone, Debug, Default)]
pub struct Run {
    totals: Vec<(&'static str, u64)>,
    kernels: BTreeMap<String, GpuWeight>,
    paths: BTreeMap<String, GpuWeight>,
}

impl Run {
    /// Sums up a recording.
    pub fn of(profile: &Profile) -> Self {
        let gpu = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
        let cpu = profile.cpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
        let one = |(mut names, weight): (Vec<String>, GpuWeight)| (names.pop().unwrap_or_default(), weight);
        Self {
            totals: vec![(GPU_TIME, gpu), ("CPU time", cpu), ("recorded time", profile.wall_ns())],
            kernels: by_kernel(profile).into_iter().map(one).collect(),
            paths: by_line(profile).into_iter().map(one).collect(),
        }
    }
}

/// The total that decides whether a comparison fails.
const GPU_TIME: &str = "GPU time";

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Recordings of each side.
    pub recordings: (usize, usize),
    /// Totals of the recordings.
    pub totals: Vec<Change>,
    /// Kernels, the largest change first.
    pub kernels: Vec<Change>,
    /// Paths of user code, the largest change first.
    pub paths: Vec<Change>,
}

/// A change. Times and counts are means of the recordings of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What has changed.
    pub name: String,
    /// Time before, in nanoseconds.
    pub before_ns: u64,
    /// Time after.
    pub after_ns: u64,
    /// Runs before; 0 for totals.
    pub before_count: u64,
    /// Runs after.
    pub after_count: u64,
    /// The relative change of the time: 0.1 is 10 % more. Absent if there was none before.
    pub change: Option<f64>,
    /// Whether it is significant; absent with one recording on a side.
    pub significant: Option<bool>,
}

impl Diff {
    /// Compares two sides, each with at least one recording.
    pub fn of(before: &[Run], after: &[Run]) -> Self {
        let totals = [0, 1, 2].map(|at| {
            let values = |runs: &[Run]| runs.iter().map(|run| (run.totals[at].1, 0)).collect::<Vec<_>>();
            let name = before.first().map_or("", |run| run.totals[at].0);
            Change::of(name, &values(before), &values(after))
        });
        Self {
            recordings: (before.len(), after.len()),
            totals: totals.into(),
            kernels: changes(before, after, |run| &run.kernels),
            paths: changes(before, after, |run| &run.paths),
        }
    }

    /// Whether the GPU time has increased by more than `share`, and, with several recordings, significantly.
    pub fn is_above(&self, share: f64) -> bool {
        let gpu = self.totals.iter().find(|total| total.name == GPU_TIME);
        gpu.is_some_and(|gpu| {
            let more = gpu.change.map_or(gpu.after_ns > 0, |change| change > share);
            more && gpu.significant != Some(false)
        })
    }

    /// Keeps the first rows of each table.
    pub fn truncate(&mut self, rows: usize) {
        self.kernels.truncate(rows);
        self.paths.truncate(rows);
    }

    /// Returns the comparison as text.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        let (before, after) = self.recordings;
        if before > 1 || after > 1 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "means of {before} and {after} recordings; * marks significant changes (95 %)\n");
        }
        let none: &[Change] = &[];
        let changed =
            |changes: &[Change]| changes.iter().filter(|row| row.before_ns != row.after_ns).cloned().collect();
        let (kernels, paths): (Vec<Change>, Vec<Change>) = (changed(&self.kernels), changed(&self.paths));
        // On a narrow terminal the names need the room of the counts.
        let (wide, counts) = if width >= WIDE { (66, 19) } else { (47, 0) };
        let runs = |text: &str| if counts > 0 { format!("{text:>counts$}") } else { String::new() };
        for (title, changes) in [("Totals", &*self.totals), ("Kernels", &kernels), ("Paths", &paths)] {
            if changes == none {
                continue;
            }
            let titles = format!("{title:<10}{:>10}  {:>10}  {:>9}{}", "before", "after", "change", runs("runs"));
            let _ = writeln!(text, "{titles}");
            for row in changes {
                let new = if row.after_ns > 0 { "new" } else { "" };
                let change = row.change.map_or_else(|| new.to_owned(), percent);
                let mark = if row.significant == Some(true) { "*" } else { " " };
                let runs = runs(&match (row.before_count, row.after_count) {
                    (0, 0) => String::new(),
                    (a, b) if a == b => count(a),
                    (a, b) => format!("{} -> {}", count(a), count(b)),
                });
                let room = width.saturating_sub(wide).max(LEAST_NAME);
                let is_path = title == "Paths";
                let name = if is_path { joined_path_text(&row.name, room) } else { shortened(&row.name, room) };
                let (before, after) = (time(row.before_ns), time(row.after_ns));
                let _ = writeln!(text, "{:<10}{before:>10}  {after:>10}  {change:>8}{mark}{runs}  {name}", "");
            }
            text.push('\n');
        }
        if kernels.is_empty() && paths.is_empty() && !self.kernels.is_empty() {
            text.push_str("every kernel and every path took the same time\n");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

/// Compares everything with a name, the largest difference of time first.
fn changes(before: &[Run], after: &[Run], table: impl Fn(&Run) -> &BTreeMap<String, GpuWeight>) -> Vec<Change> {
    let names: BTreeSet<&String> = before.iter().chain(after).flat_map(|run| table(run).keys()).collect();
    let mut changes: Vec<Change> = Vec::new();
    for name in names {
        let values = |runs: &[Run]| {
            let of = |run: &Run| table(run).get(name).map_or((0, 0), |weight| (weight.ns, weight.count));
            runs.iter().map(of).collect::<Vec<_>>()
        };
        changes.push(Change::of(name, &values(before), &values(after)));
    }
    changes.sort_by_key(|row| std::cmp::Reverse(row.before_ns.abs_diff(row.after_ns)));
    changes
}

impl Change {
    /// Compares times and counts, one pair for each recording.
    fn of(name: &str, before: &[(u64, u64)], after: &[(u64, u64)]) -> Self {
        let times = |side: &[(u64, u64)]| side.iter().map(|(ns, _)| *ns as f64).collect::<Vec<_>>();
        let counts = |side: &[(u64, u64)]| mean(&side.iter().map(|(_, count)| *count as f64).collect::<Vec<_>>());
        let (a, b) = (times(before), times(after));
        let (from, to) = (mean(&a), mean(&b));
        Self {
            name: name.to_owned(),
            before_ns: from.round() as u64,
            after_ns: to.round() as u64,
            before_count: counts(before).round() as u64,
            after_count: counts(after).round() as u64,
            change: (from > 0.0).then(|| to / from - 1.0),
            significant: (a.len() > 1 && b.len() > 1).then(|| significant(&a, &b)),
        }
    }
}

fn percent(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Welch's t-test: whether two means differ, at 95 %.
fn significant(a: &[f64], b: &[f64]) -> bool {
    let error = |values: &[f64]| {
        let mean = mean(values);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
        variance / values.len() as f64
    };
    let (ea, eb, difference) = (error(a), error(b), (mean(a) - mean(b)).abs());
    if ea + eb == 0.0 {
        return difference > 0.0;
    }
    // The degrees of freedom of Welch and Satterthwaite.
    let degrees = (ea + eb).powi(2) / (ea.powi(2) / (a.len() - 1) as f64 + eb.powi(2) / (b.len() - 1) as f64);
    difference / (ea + eb).sqrt() > critical(degrees)
}

/// Returns the two-sided 95 % quantile of Student's t-distribution, rounded up to the next lower tabulated degrees of freedom.
fn critical(degrees: f64) -> f64 {
    const QUANTILES: [(f64, f64); 14] = [
        (1.0, 12.706),
        (2.0, 4.303),
        (3.0, 3.182),
        (4.0, 2.776),
        (5.0, 2.571),
        (6.0, 2.447),
        (7.0, 2.365),
        (8.0, 2.306),
        (10.0, 2.228),
        (12.0, 2.179),
        (15.0, 2.131),
        (20.0, 2.086),
        (30.0, 2.042),
        (60.0, 2.000),
    ];
    QUANTILES.iter().rev().find(|(known, _)| degrees >= *known).map_or(QUANTILES[0].1, |(_, quantile)| *quantile)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kernels: &[(&str, u64, u64)]) -> Run {
        let gpu = kernels.iter().map(|(_, ns, _)| ns).sum();
        let weight = |ns, count| GpuWeight { ns, count, ..GpuWeight::default() };
        let kernels: BTreeMap<_, _> =
            kernels.iter().map(|(name, ns, count)| ((*name).to_owned(), weight(*ns, *count))).collect();
        Run { totals: vec![(GPU_TIME, gpu), ("CPU time", 0), ("recorded time", 100)], paths: kernels.clone(), kernels }
    }

    /// Check that kernels are compared by name, with the largest change first, and that new and missing ones are shown.
    #[test]
    fn the_largest_change_is_first() {
        let before = run(&[("same", 1_000_000, 10), ("gemm", 2_000_000, 10), ("gone", 500_000, 5)]);
        let after = run(&[("same", 1_000_000, 10), ("gemm", 3_000_000, 10), ("fused", 100_000, 1)]);
        let diff = Diff::of(&[before], &[after]);
        let names: Vec<&str> = diff.kernels.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["gemm", "gone", "fused", "same"]);
        assert_eq!((diff.kernels[0].change, diff.kernels[1].change), (Some(0.5), Some(-1.0)));
        assert_eq!((diff.kernels[2].change, diff.kernels[2].significant), (None, None));
        let text = diff.text(120);
        assert!(text.contains("+50.0 %") && text.contains("new") && !text.contains("same"), "{text}");
        assert!(diff.is_above(0.1) && !diff.is_above(0.2), "3.5 to 4.1 ms: {text}");
    }

    /// Check that rows fit into terminals of 60 columns and more, with names that can be read, and that nothing is said to
    /// have changed if nothing has.
    #[test]
    fn rows_fit_into_the_terminal() {
        let name = "a_kernel_with_a_long_name_that_must_be_shortened_to_fit_into_the_line_of_a_terminal";
        let side = |ns| [run(&[(name, ns, 1_000_000)])];
        let diff = Diff::of(&side(1_000_000), &side(2_000_000));
        for width in 60..200 {
            let text = diff.text(width);
            assert!(text.lines().all(|line| line.trim_end().chars().count() <= width), "{width}: {text}");
            assert!(text.contains("a_kernel_") && text.contains("+100.0 %"), "{width}: {text}");
            assert!(!text.contains("new"), "no CPU time on either side: {text}");
            assert_eq!(text.contains("1,000,000"), width >= WIDE, "{text}");
        }
        let same = Diff::of(&side(1), &side(1)).text(80);
        assert!(same.ends_with("every kernel and every path took the same time\n"), "{same}");
    }

    /// Check that with several recordings only changes beyond the differences between runs are significant.
    #[test]
    fn chance_is_not_significant() {
        let side = |times: [u64; 3]| times.map(|ns| run(&[("gemm", ns, 1)]));
        let noisy = Diff::of(&side([900, 1_000, 1_100]), &side([1_000, 1_100, 1_150]));
        assert_eq!(noisy.kernels[0].significant, Some(false));
        assert!(!noisy.is_above(0.01));
        let real = Diff::of(&side([995, 1_000, 1_005]), &side([1_095, 1_100, 1_105]));
        assert_eq!(real.kernels[0].significant, Some(true));
        assert!(real.is_above(0.05) && !real.is_above(0.2));
        let exact = Diff::of(&side([1_000; 3]), &side([1_000; 3]));
        assert_eq!((exact.kernels[0].significant, exact.is_above(0.0)), (Some(false), false));
    }

    /// Check that no name can end the page's data, and that all rows are in it.
    #[test]
    fn the_page_contains_every_row() {
        let evil = "</script><script>alert(1)</script>";
        let diff = Diff::of(&[run(&[("gemm", 1, 1)])], &[run(&[(evil, 2, 1)])]);
        let mut page = Vec::new();
        diff.html([&["a".to_owned()], &["b".to_owned()]], &mut page).expect("written");
        let page = String::from_utf8(page).expect("UTF-8");
        let (_, data) = page.split_once("id=\"data\">").expect("the data");
        let data: serde_json::Value = serde_json::from_str(data.split('<').next().expect("data")).expect("JSON");
        assert_eq!((&data["diff"]["kernels"][0]["name"], &data["files"][1][0]), (&evil.into(), &"b".into()));
        assert!(!page.contains(evil) && page.ends_with("</html>\n"));
    }
}
