//! The result of a recording in one line, for the process that started it (`record --result`).

use std::path::Path;

use model::profile::Profile;
use text::{
    names::printable,
    units::{counted, time},
};

/// Says what was written, and what it contains: `wrote a.html and a.wscope: 5 launches, 5 kernels of 5.00 ms`.
pub fn line<'a>(profile: &Profile, files: impl Iterator<Item = &'a Path>) -> String {
    let (ledger, estimated) = (&profile.ledger, &profile.sampled.estimated);
    let files: Vec<String> = files.map(|path| printable(&path.display().to_string()).into_owned()).collect();
    let launches = ledger.launches.saturating_add(estimated.launches);
    let kernels = ledger.kernels.saturating_add(estimated.kernels);
    let kernel_time = time(ledger.kernel_ns.saturating_add(estimated.kernel_ns));
    let parts = [
        (launches, counted(launches, "launch", "launches")),
        (kernels, format!("{} of {kernel_time}", counted(kernels, "kernel", "kernels"))),
        (ledger.copies, counted(ledger.copies, "copy", "copies")),
        (ledger.memsets, counted(ledger.memsets, "memset", "memsets")),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    let counts = if parts.is_empty() { "no GPU work".to_owned() } else { parts.join(", ") };
    format!("wrote {}: {counts}", files.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the line has the files and the counts, and says so if there was no GPU work.
    #[test]
    fn results_are_one_line() {
        let mut profile = Profile::default();
        let files = ["a.html", "a.wscope"].map(Path::new);
        let text = |profile: &Profile| line(profile, files.into_iter());
        assert_eq!(text(&profile), "wrote a.html and a.wscope: no GPU work");
        (profile.ledger.launches, profile.ledger.kernels, profile.ledger.kernel_ns) = (169_218, 5, 5_000_000);
        assert_eq!(text(&profile), "wrote a.html and a.wscope: 169,218 launches, 5 kernels of 5.00 ms");
    }
}
