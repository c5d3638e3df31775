//! The output formats: one module for each, the table of all, and what several of them share.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use analysis::{Events, Flames, flame_tree::View};
use flate2::{Compression, write::GzEncoder};

pub mod chrome;
pub mod cpu_txt;
mod firefox;
pub mod folded;
pub mod html;
mod json_object;
pub mod jsonl;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
pub(crate) mod proto;
pub mod speedscope;
pub mod svg;
pub mod table;

/// What a format is written from, and where to.
struct Target<'a, 'f, 'e> {
    flames: &'a Flames<'f>,
    view: View,
    /// Opens the recording from its beginning.
    events: &'a mut dyn FnMut() -> io::Result<Events<'e>>,
    out: &'a mut dyn Write,
}

/// What is known about a format.
struct Row {
    extension: &'static str,
    kind: Kind,
    needs_events: bool,
    help: &'static str,
    write: fn(Target<'_, '_, '_>) -> io::Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A terminal can show it.
    Text,
    Binary,
    /// A directory of files.
    Directory,
}

/// Declares the formats: `Name ".extension" kind, needs_events, "line of the help", writer`. What a writer writes to an extension
/// that ends in `.gz` is compressed. A format without a line is mentioned in the line of another.
macro_rules! formats {
    ($($name:ident $extension:literal $kind:ident, $needs_events:literal, $help:literal, $write:expr;)*) => {
        /// An output format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Format {
            $(#[doc = concat!("`", $extension, "` ", $help)] $name,)*
        }

        impl Format {
            /// All formats.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];

            fn row(self) -> Row {
                match self {
                    $(Self::$name => Row {
                        extension: $extension,
                        kind: Kind::$kind,
                        needs_events: $needs_events,
                        help: $help,
                        write: $write,
                    },)*
                }
            }
        }
    };
}

formats! {
    Recording ".wscope" Binary, false, "recording; can be converted to every other format later",
        |_| unsupported("a .wscope file is the recording itself: it is copied, not exported");
    Html ".html" Text, true, "report for the browser: flame graph, timeline and tables in one file",
        |to| html::write(to.flames, to.view, (to.events)()?, to.out);
    Svg ".svg" Text, false, "flame graph",
        |to| svg::write(to.flames, to.view, to.out);
    Folded ".folded" Text, false, "folded stacks, weights in microseconds (flamegraph.pl)",
        |to| folded::write(to.flames, to.view, to.out);
    Pprof ".pb.gz" Binary, true, "stacks with GPU, CPU and off-CPU time and launches (pprof)",
        |to| pprof::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Speedscope ".speedscope.json" Text, true, "the same for speedscope",
        |to| speedscope::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Perfetto ".pftrace" Binary, true, "timeline with stacks and arrows (ui.perfetto.dev); also .pftrace.gz",
        |to| perfetto::write(to.flames.profile, to.view, (to.events)()?, to.out);
    PerfettoGz ".pftrace.gz" Binary, true, "",
        |to| perfetto::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Chrome ".json" Text, true, "Chrome trace (chrome://tracing, Perfetto); also .json.gz",
        |to| chrome::write(to.flames.profile, to.view, (to.events)()?, to.out);
    ChromeGz ".json.gz" Binary, true, "",
        |to| chrome::write(to.flames.profile, to.view, (to.events)()?, to.out);
    FirefoxGz ".profile.json.gz" Binary, true, "threads and GPU work for profiler.firefox.com; also .profile.json",
        |to| firefox::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Firefox ".profile.json" Text, true, "",
        |to| firefox::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Jsonl ".jsonl" Text, true, "one JSON object per event",
        |to| jsonl::write(to.flames.profile, to.view, (to.events)()?, to.out);
    Csv ".csv" Text, true, "one table: kernels, or the one selected with `export --table`",
        |to| table::csv(&to.view.table.rows(to.flames, to.events)?, to.out);
    Parquet ".parquet" Directory, true, "directory of tables for SQL (DuckDB, pandas): kernels, launches, stacks, ...",
        |_| unsupported("a .parquet output is a directory: see `parquet::write`");
    CpuText ".cpu.txt" Text, true, "one line per CPU sample and launch: time, comm, pid, tid, cpu, stack",
        |to| cpu_txt::write(to.flames.profile, to.view, (to.events)()?, to.out);
}

/// A file name whose extension matches no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown output format '{}': the file name must end in one of {}", path.display(), Format::extensions())]
pub struct UnknownExtension {
    /// The file.
    pub path: PathBuf,
}

impl Format {
    /// Returns the file extension of this format.
    pub fn extension(self) -> &'static str {
        self.row().extension
    }

    /// Whether a terminal can show it.
    pub fn is_text(self) -> bool {
        self.row().kind == Kind::Text
    }

    /// Whether it is a directory of files.
    pub fn is_directory(self) -> bool {
        self.row().kind == Kind::Directory
    }

    /// Whether the format is written from events, not only from the profile.
    pub fn needs_events(self) -> bool {
        self.row().needs_events
    }

    /// Returns all extensions, for messages.
    pub fn extensions() -> String {
        Self::ALL.map(Self::extension).join(" ")
    }

    /// Returns a line for each format, for help texts.
    pub fn help() -> String {
        let rows = Self::ALL.map(Self::row);
        let lines = rows.iter().filter(|row| !row.help.is_empty());
        lines.map(|row| format!("\n  {:<16}  {}", row.extension, row.help)).collect()
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

/// Writes the profile of `flames` as `format`. `events` opens the recording from its beginning; only formats that need
/// events call it, once. `out` needs no buffer of its own. A recording itself ([`Format::Recording`]) is copied by the
/// caller, not written here, and a directory ([`Format::Parquet`]) is written by [`parquet::write`].
pub fn write<'a>(
    format: Format,
    flames: &Flames<'_>,
    view: View,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Row { write, extension, .. } = format.row();
    let out = &mut BufWriter::with_capacity(1 << 16, out);
    if !extension.ends_with(".gz") {
        return write(Target { flames, view, events, out });
    }
    // As small as it gets, but a recording of millions of events in less time than these take.
    let ledger = &flames.profile.ledger;
    let calls: u64 = flames.profile.calls.sums.values().map(|sum| sum.count).sum();
    let count = calls + ledger.launches + ledger.activities_matched + ledger.activities_unmatched;
    let level = if count > 2_000_000 { Compression::fast() } else { Compression::default() };
    // The encoder clears its buffer at every call, however short.
    let mut out = BufWriter::with_capacity(64 << 10, GzEncoder::new(out, level));
    write(Target { flames, view, events, out: &mut out })?;
    out.into_inner()?.finish()?.flush()
}

fn unsupported(reason: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
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
        for name in ["out.png", "out", "folded", ".svg", "out.txt", "", "out.svg.gz"] {
            let error = Format::from_path(Path::new(name)).expect_err(name).to_string();
            assert!(error.contains("must end in one of .wscope .html .svg .folded .pb.gz "), "{error}");
            assert!(Format::ALL.iter().all(|format| error.contains(format.extension())), "{error}");
        }
        assert_eq!(Format::from_path(Path::new("dir.svg/")), Ok(Format::Svg));
    }

    /// Check that the help, the README and the description of the formats have every extension.
    #[test]
    fn every_format_is_described() {
        let (help, readme) = (Format::help(), include_str!("../../../README.md"));
        let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `.")).collect();
        for extension in Format::ALL.map(Format::extension) {
            assert!(help.split([' ', '\n']).any(|word| word == extension), "{extension} is not in the help");
            let quoted = format!("`{extension}`");
            assert!(rows.iter().any(|row| row.contains(&quoted)), "{extension} is not in README.md");
            let plain = quoted.replace(".gz", "");
            let formats = include_str!("../../../docs/formats.md");
            let titles = || formats.lines().filter(|line| line.starts_with("## "));
            let described = titles().any(|title| title.contains(&quoted) || title.contains(&plain));
            assert!(described || extension == ".wscope", "{extension} has no section in docs/formats.md");
        }
    }
}
