//! The output formats, and the file extensions that select them.

use std::path::{Path, PathBuf};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `.wscope`: the recording, from which all others can be generated.
    Recording,
    /// `.folded`: one line per distinct stack, in microseconds.
    Folded,
    /// `.svg`: a flame graph.
    Svg,
    /// `.html`: a report for the browser.
    Html,
    /// `.json`: a timeline for Perfetto and chrome://tracing.
    Chrome,
    /// `.cpu.txt`: one line per CPU sample.
    CpuText,
    /// `.jsonl`: one JSON object per event.
    Jsonl,
    /// `.pb.gz`: stacks for pprof.
    Pprof,
    /// `.speedscope.json`: stacks for speedscope.
    Speedscope,
    /// `.pftrace`: a timeline for Perfetto.
    Perfetto,
    /// `.pftrace.gz`: the same, compressed.
    PerfettoGz,
    /// `.json.gz`: [`Format::Chrome`], compressed.
    ChromeGz,
    /// `.csv`: a table.
    Csv,
    /// `.profile.json`: threads and GPU work for the Firefox Profiler.
    Firefox,
    /// `.profile.json.gz`: the same, compressed.
    FirefoxGz,
    /// `.parquet`: a directory of tables for SQL.
    Parquet,
}

/// A file name whose extension matches no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown output format '{}': the file name must end in one of {}", path.display(), Format::extensions())]
pub struct UnknownExtension {
    /// The file.
    pub path: PathBuf,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 16] = [
        Self::Recording,
        Self::Html,
        Self::Folded,
        Self::Svg,
        Self::Chrome,
        Self::CpuText,
        Self::Jsonl,
        Self::Pprof,
        Self::Speedscope,
        Self::Perfetto,
        Self::PerfettoGz,
        Self::ChromeGz,
        Self::Csv,
        Self::Firefox,
        Self::FirefoxGz,
        Self::Parquet,
    ];

    /// Returns the file extension of this format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Recording => ".wscope",
            Self::Folded => ".folded",
            Self::Svg => ".svg",
            Self::Html => ".html",
            Self::Chrome => ".json",
            Self::CpuText => ".cpu.txt",
            Self::Jsonl => ".jsonl",
            Self::Pprof => ".pb.gz",
            Self::Speedscope => ".speedscope.json",
            Self::Perfetto => ".pftrace",
            Self::PerfettoGz => ".pftrace.gz",
            Self::ChromeGz => ".json.gz",
            Self::Csv => ".csv",
            Self::Firefox => ".profile.json",
            Self::FirefoxGz => ".profile.json.gz",
            Self::Parquet => ".parquet",
        }
    }

    /// Whether a terminal can show it.
    pub fn is_text(self) -> bool {
        let binary = [Self::Recording, Self::Pprof, Self::Perfetto, Self::PerfettoGz, Self::ChromeGz, Self::FirefoxGz];
        !binary.contains(&self) && !self.is_directory()
    }

    /// Whether it is a directory of files.
    pub fn is_directory(self) -> bool {
        self == Self::Parquet
    }

    /// Returns all extensions, for messages.
    pub fn extensions() -> String {
        Self::ALL.map(Self::extension).join(" ")
    }

    /// Whether the format is written from events, not only from the profile.
    pub fn needs_events(self) -> bool {
        !matches!(self, Self::Recording | Self::Folded | Self::Svg)
    }

    /// Returns the format selected by the file's extension, the longest that matches. A name that consists only of an
    /// extension selects none.
    pub fn from_path(path: &Path) -> Result<Self, UnknownExtension> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .filter(|format| name.len() > format.extension().len() && name.ends_with(format.extension()))
            .max_by_key(|format| format.extension().len())
            .ok_or_else(|| UnknownExtension { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each extension selects its format, in any case and in any directory.
    #[test]
    fn extensions_select_formats() {
        for format in Format::ALL {
            let name = format!("some.dir/run.1{}", format.extension());
            assert_eq!(Format::from_path(Path::new(&name)), Ok(format));
            assert_eq!(Format::from_path(Path::new(&name.to_uppercase())), Ok(format));
        }
    }

    /// Check that an unknown extension is rejected with a message that lists the known ones.
    #[test]
    fn unknown_extensions_are_rejected() {
        for name in ["out.png", "out", "folded", ".svg", "dir.svg/", "out.txt", "", "out.svg.gz"] {
            let path = Path::new(name);
            if name == "dir.svg/" {
                assert_eq!(Format::from_path(path), Ok(Format::Svg));
                continue;
            }
            let error = Format::from_path(path).expect_err(name).to_string();
            assert!(
                error.contains(".wscope .html .folded .svg .json .cpu.txt .jsonl .pb.gz .speedscope.json .pftrace .pftrace.gz .json.gz .csv .profile.json .profile.json.gz .parquet"),
                "{error}"
            );
        }
    }
}
