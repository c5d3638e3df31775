//! A comparison as a page for the browser: totals, a flame graph of differences, and tables of kernels and paths.

use std::io::{self, Write};

use serde::Serialize;

use super::Diff;

/// The page. `{{data}}` marks where the comparison goes.
const PAGE: &str = include_str!("page.html");

/// The most kernels, and the most paths, in a page.
const MOST_ROWS: usize = 5_000;

#[derive(Serialize)]
struct Data<'a> {
    /// The recordings of each side.
    files: [&'a [String]; 2],
    diff: Diff,
    /// Kernels and paths that are not in the page.
    left_out: [usize; 2],
}

impl Diff {
    /// Writes the page. `files` are the names of the recordings before and after.
    pub fn html(&self, files: [&[String]; 2], out: &mut dyn Write) -> io::Result<()> {
        let mut diff = self.clone();
        diff.truncate(MOST_ROWS);
        let left_out = [self.kernels.len() - diff.kernels.len(), self.paths.len() - diff.paths.len()];
        // No name may end the element that contains it.
        let data = serde_json::to_string(&Data { files, diff, left_out })?.replace('<', "\\u003c");
        let (before, after) = PAGE.split_once("{{data}}").unwrap_or((PAGE, ""));
        [before, &data, after].into_iter().try_for_each(|part| out.write_all(part.as_bytes()))?;
        out.flush()
    }
}
