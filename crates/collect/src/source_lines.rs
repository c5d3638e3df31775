//! The source code around sampled lines of kernels, read when the recording ends: `record --stalls`.
//!
//! The paths come from cubins, which are untrusted: a cubin may name any file. So only regular files with the extension of
//! source code are read, with the rights of the user who called sudo, and of those only the lines around samples.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::fd::AsRawFd,
    path::Path,
    sync::Arc,
};

use model::event::{SourceText, StallLines};

use crate::command::user::{User, acting_as};

/// The lines before and after a sampled line.
const AROUND: u32 = 8;
/// The most files, bytes of a file, lines of all files, and characters of a line.
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 4 << 20;
const MOST_LINES: usize = 20_000;
const MOST_WIDTH: usize = 400;

/// The extensions of source code.
const EXTENSIONS: [&str; 12] = ["cu", "cuh", "py", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "inl", "rs"];

/// Reads the lines around all located samples. A file that cannot be read has no text.
pub fn read(located: &[StallLines]) -> Vec<SourceText> {
    let wanted = wanted(located);
    let user = User::behind_sudo();
    let read = || -> io::Result<Vec<SourceText>> {
        let mut left = MOST_LINES;
        Ok(wanted.into_iter().flat_map(|(file, lines)| texts(&file, &lines, &mut left)).collect())
    };
    acting_as(user.as_ref(), read).unwrap_or_default()
}

/// Returns the lines to read of each file.
fn wanted(located: &[StallLines]) -> BTreeMap<Arc<str>, BTreeSet<u32>> {
    let mut files: BTreeMap<Arc<str>, BTreeSet<u32>> = BTreeMap::new();
    for line in located.iter().flat_map(|located| &located.lines) {
        if files.len() >= MOST_FILES && !files.contains_key(&line.file) {
            continue;
        }
        let around = line.line.saturating_sub(AROUND).max(1)..=line.line.saturating_add(AROUND);
        files.entry(line.file.clone()).or_default().extend(around);
    }
    files
}

/// Returns the text of some lines of a file, as runs of neighbouring lines.
fn texts(file: &Arc<str>, lines: &BTreeSet<u32>, left: &mut usize) -> Vec<SourceText> {
    let Some(text) = open(Path::new(&**file)).and_then(content) else { return Vec::new() };
    let mut runs: Vec<SourceText> = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if !lines.contains(&number) || *left == 0 {
            continue;
        }
        *left -= 1;
        let line: String = line.chars().take(MOST_WIDTH).collect();
        match runs.last_mut().filter(|run| run.first + run.lines.len() as u32 == number) {
            Some(run) => run.lines.push(line),
            None => runs.push(SourceText { file: file.clone(), first: number, lines: vec![line] }),
        }
    }
    runs
}

/// Opens a regular file of source code, without waiting for anything.
fn open(path: &Path) -> Option<File> {
    let is_source =
        |path: &Path| path.extension().and_then(|end| end.to_str()).is_some_and(|end| EXTENSIONS.contains(&end));
    if !is_source(path) {
        return None;
    }
    let file = elf::open(path).ok()?;
    // A link may lead to another kind of file.
    let target = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    is_source(&target).then_some(file)
}

fn content(file: File) -> Option<String> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use model::event::{Instruction, SourceLine};

    use super::*;

    fn located(file: &Path, line: u32) -> StallLines {
        let file = file.to_str().expect("text").into();
        StallLines { at: Instruction::default(), lines: vec![SourceLine { function: "".into(), file, line }] }
    }

    /// Check that the lines around samples are read, those of neighbouring samples once, and that long ones are cut.
    #[test]
    fn lines_around_samples_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("slow.cu");
        let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, text.replace("line 50\n", &format!("{}\n", "é".repeat(500)))).expect("a file");
        let all = read(&[located(&file, 3), located(&file, 5), located(&file, 50), located(&file, 99)]);
        let runs: Vec<_> = all.iter().map(|run| (run.first, run.lines.len())).collect();
        assert_eq!(runs, [(1, 13), (42, 17), (91, 10)]);
        assert_eq!((all[0].lines[4].as_str(), all[1].lines[8].chars().count()), ("line 5", 400));
    }

    /// Check that only regular files of source code are read, and that nothing waits.
    #[test]
    fn only_source_files_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("secret"), "x\n").expect("a file");
        std::fs::write(at("secret.key"), "x\n").expect("a file");
        std::fs::create_dir(at("directory.cu")).expect("a directory");
        let fifo = std::ffi::CString::new(at("fifo.cu").to_str().expect("text")).expect("no 0");
        // SAFETY: the path ends in 0.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        for name in ["secret", "secret.key", "directory.cu", "fifo.cu", "missing.cu"] {
            assert_eq!(read(&[located(&at(name), 1)]), [], "{name}");
        }
        std::os::unix::fs::symlink(at("secret"), at("link.cu")).expect("a link");
        assert_eq!(read(&[located(&at("link.cu"), 1)]), [], "a link to another kind of file");
    }
}
