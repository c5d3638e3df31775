//! A comparison as a page for the browser: totals, a flame graph of differences, and a table of each subject.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use analysis::diff::{Diff, Subject};
use serde::Serialize;

use crate::formats::html::{self, digest};

/// The page, which looks like a report. `{{name}}` marks where the parts go.
const PAGE: &str = include_str!("diff/page.html");
const STYLE: [&str; 2] = [html::STYLE, include_str!("diff/style.css")];
const SCRIPTS: [&str; 4] = [
    "'use strict';\n",
    include_str!("formats/html/page/format.js"),
    include_str!("formats/html/page/names.js"),
    include_str!("diff/page.js"),
];

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

/// Writes the page. `files` are the names of the recordings before and after.
pub fn write(diff: &Diff, files: [&[String]; 2], out: &mut dyn Write) -> io::Result<()> {
    let mut shown = diff.clone();
    shown.truncate(MOST_ROWS);
    let left_out = diff.changes.iter().map(|(subject, rows)| (*subject, rows.len().saturating_sub(MOST_ROWS)));
    let data = Data { files, diff: shown, explanation: diff.explained(), left_out: left_out.collect() };
    // No name may end the element that contains it.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    html::fill(PAGE, out, |name, out| match name {
        "style" => STYLE.iter().try_for_each(|part| out.write_all(part.as_bytes())),
        "style-digest" => out.write_all(digest::base64_sha256(&STYLE).as_bytes()),
        "script-digest" => out.write_all(digest::base64_sha256(&SCRIPTS).as_bytes()),
        "data" => out.write_all(data.as_bytes()),
        _ => SCRIPTS.iter().try_for_each(|part| out.write_all(part.as_bytes())),
    })?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use analysis::diff::{Change, Unit};

    use super::*;

    /// Check that no name can end the page's data, and that all rows are in it.
    #[test]
    fn the_page_contains_every_row() {
        let evil = "</script><script>alert(1)</script>";
        let row = |name: &str, before, after| Change {
            name: name.to_owned(),
            unit: Unit::Ns,
            before,
            after,
            before_count: 1,
            after_count: 1,
            change: None,
            significant: None,
        };
        let kernels = vec![row(evil, 0, 2), row("gemm", 1, 0)];
        let diff = Diff {
            recordings: (1, 1),
            filters: Vec::new(),
            totals: Vec::new(),
            steps: None,
            explanation: None,
            changes: [(Subject::Kernels, kernels)].into(),
        };
        let mut page = Vec::new();
        write(&diff, [&["a".to_owned()], &["b".to_owned()]], &mut page).expect("written");
        let page = String::from_utf8(page).expect("UTF-8");
        let (_, data) = page.split_once("id=\"data\">").expect("the data");
        let data: serde_json::Value = serde_json::from_str(data.split('<').next().expect("data")).expect("JSON");
        assert_eq!((&data["diff"]["kernels"][0]["name"], &data["files"][1][0]), (&evil.into(), &"b".into()));
        assert_eq!((&data["diff"]["kernels"][0]["unit"], &data["left_out"]["kernels"]), (&"ns".into(), &0.into()));
        assert!(!page.contains(evil) && page.ends_with("</html>\n"));
    }
}
