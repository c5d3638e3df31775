//! One module per output format, and what several of them share.

use std::io::{self, BufWriter, Write};

use analysis::{Events, Flames, flame_tree::View};
use flate2::{Compression, write::GzEncoder};
use model::profile::Profile;

pub mod chrome;
pub mod cpu_txt;
mod firefox;
pub mod folded;
mod format;
pub mod html;
mod json_object;
pub mod jsonl;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
mod proto;
pub mod speedscope;
pub mod svg;
pub mod table;

pub use format::{Format, UnknownExtension};

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
    let profile = flames.profile;
    let out = &mut BufWriter::with_capacity(1 << 16, out);
    match format {
        Format::Recording => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a .wscope file is the recording itself: it is copied, not exported",
        )),
        Format::Parquet => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "a .parquet output is a directory: see `parquet::write`"))
        }
        Format::Folded => folded::write(flames, view, out),
        Format::Svg => svg::write(flames, view, out),
        Format::Html => html::write(flames, view, events()?, out),
        Format::Chrome => chrome::write(profile, view, events()?, out),
        Format::CpuText => cpu_txt::write(profile, view, events()?, out),
        Format::Jsonl => jsonl::write(profile, view, events()?, out),
        Format::Pprof => gzip(profile, out, |out| pprof::write(profile, view, events()?, out)),
        Format::Speedscope => speedscope::write(profile, view, events()?, out),
        Format::Csv => table::csv(&view.table.rows(flames, events)?, out),
        Format::Perfetto => perfetto::write(profile, view, events()?, out),
        Format::PerfettoGz => gzip(profile, out, |out| perfetto::write(profile, view, events()?, out)),
        Format::ChromeGz => gzip(profile, out, |out| chrome::write(profile, view, events()?, out)),
        Format::Firefox => firefox::write(profile, view, events()?, out),
        Format::FirefoxGz => gzip(profile, out, |out| firefox::write(profile, view, events()?, out)),
    }
}

/// Compresses what `write` writes: as small as it gets, but a recording of millions of events in less time than these take.
fn gzip(
    profile: &Profile,
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let ledger = &profile.ledger;
    let calls: u64 = profile.calls.sums.values().map(|sum| sum.count).sum();
    let events = calls + ledger.launches + ledger.activities_matched + ledger.activities_unmatched;
    let is_large = events > 2_000_000;
    let level = if is_large { Compression::fast() } else { Compression::default() };
    // The encoder clears its buffer at every call, however short.
    let mut out = BufWriter::with_capacity(64 << 10, GzEncoder::new(out, level));
    write(&mut out)?;
    out.into_inner()?.finish()?.flush()
}
