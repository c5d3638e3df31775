//! The result of a recording as numbers, for the process that started it (`record --result`).

use std::path::Path;

use model::profile::Profile;
use serde::{Deserialize, Serialize};
use text::{
    names::printable,
    units::{counted, time},
};

/// What was recorded, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The files, as printed.
    files: Vec<String>,
    /// Launch-class calls.
    launches: u64,
    kernels: u64,
    kernel_ns: u64,
    copies: u64,
    memsets: u64,
}

impl Recorded {
    /// Counts what a profile contains.
    pub fn of<'a>(profile: &Profile, files: impl Iterator<Item = &'a Path>) -> Self {
        let (ledger, estimated) = (&profile.ledger, &profile.sampled.estimated);
        Self {
            files: files.map(|path| printable(&path.display().to_string()).into_owned()).collect(),
            launches: ledger.launches.saturating_add(estimated.launches),
            kernels: ledger.kernels.saturating_add(estimated.kernels),
            kernel_ns: ledger.kernel_ns.saturating_add(estimated.kernel_ns),
            copies: ledger.copies,
            memsets: ledger.memsets,
        }
    }

    /// Says in one line what was written: `wrote a.html and a.wscope: 5 launches, 5 kernels of 5.00 ms`.
    pub fn text(&self) -> String {
        let parts = [
            (self.launches, counted(self.launches, "launch", "launches")),
            (self.kernels, format!("{} of {}", counted(self.kernels, "kernel", "kernels"), time(self.kernel_ns))),
            (self.copies, counted(self.copies, "copy", "copies")),
            (self.memsets, counted(self.memsets, "memset", "memsets")),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        let counts = if parts.is_empty() { "no GPU work".to_owned() } else { parts.join(", ") };
        format!("wrote {}: {counts}", self.files.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the line has the files and the counts, and says so if there was no GPU work.
    #[test]
    fn results_are_one_line() {
        let mut profile = Profile::default();
        let files = ["a.html", "a.wscope"].map(Path::new);
        let text = |profile: &Profile| Recorded::of(profile, files.into_iter()).text();
        assert_eq!(text(&profile), "wrote a.html and a.wscope: no GPU work");
        (profile.ledger.launches, profile.ledger.kernels, profile.ledger.kernel_ns) = (169_218, 5, 5_000_000);
        assert_eq!(text(&profile), "wrote a.html and a.wscope: 169,218 launches, 5 kernels of 5.00 ms");
    }
}
