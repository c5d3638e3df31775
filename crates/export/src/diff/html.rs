//! A comparison as a page for the browser: totals, a flame graph of differences, and a table of each subject.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use super::{Diff, Subject};

/// The page. `{{data}}` marks where the comparison goes.
const PAGE: &str = include_str!("page.html");

/// The most rows of a table in a page.
const MOST_ROWS: usize = 5_000;

#[derive(Serialize)]
struct Data<'a> {
    /// The recordings of each side.
    files: [&'a [String]; 2],
    diff: Diff,
    /// Which change explains the difference of the wall time.
    explanation: Option<String>,
    /// Rows that are not in the page.
    left_out: BTreeMap<Subject, usize>,
}

impl Diff {
    /// Writes the page. `files` are the names of the recordings before and after.
    pub fn html(&self, files: [&[String]; 2], out: &mut dyn Write) -> io::Result<()> {
        let mut diff = self.clone();
        diff.truncate(MOST_ROWS);
        let left_out = self.changes.iter().map(|(subject, rows)| (*subject, rows.len().saturating_sub(MOST_ROWS)));
        let explanation = self.explanation.as_ref().map(|explanation| self.sentence(explanation));
        let data = Data { files, diff, explanation, left_out: left_out.collect() };
        // No name may end the element that contains it.
        let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
        let (before, after) = PAGE.split_once("{{data}}").unwrap_or((PAGE, ""));
        [before, &data, after].into_iter().try_for_each(|part| out.write_all(part.as_bytes()))?;
        out.flush()
    }
}
