//! The outputs generated from a recording: one module per format, the same bytes for the same recording.
//!
//! Formats of weighted stacks ([`folded`], [`svg`]) and the [`summary`] need only the [`Profile`]. Formats of
//! individual events or threads ([`html`], [`chrome`], [`jsonl`], [`pprof`], ...) read the recording again and use the
//! profile of the first pass for the names, so that no format holds all events in memory.

use std::io::{self, BufWriter, Write};

use flate2::{Compression, write::GzEncoder};
use model::profile::Profile;

pub mod chrome;
pub mod cpu_txt;
pub mod diff;
pub mod energy;
mod events;
pub mod family;
pub mod findings;
mod firefox;
mod flame_cache;
pub mod flame_tree;
pub mod folded;
mod format;
mod helper_programs;
pub mod html;
pub mod idle;
mod json_object;
pub mod jsonl;
mod lanes;
mod launch_lengths;
pub mod losses;
pub mod memory;
mod moments;
pub mod names;
pub mod occupancy;
mod palette;
pub mod parquet;
pub mod perfetto;
mod power;
pub mod pprof;
mod proto;
mod recursion;
mod source;
pub mod speedscope;
pub mod stalls;
pub mod summary;
pub mod svg;
mod table;
pub mod tables;
mod terminal_text;
pub mod trace;
mod user_code;
pub mod verdicts;
mod waits;
mod weighted;

pub use crate::{
    events::Events,
    findings::Finding,
    flame_cache::Flames,
    flame_tree::{EventView, MemoryView, View},
    format::{Format, UnknownExtension},
    summary::Summary,
    table::Table,
    user_code::Place,
};

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
        Format::Csv => view.table.rows(flames, events)?.csv(out),
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

/// Returns the text of a recording: its summary, and for a trace the idle gaps and the timeline. `events` opens the
/// recording from its beginning; it is called once, and only for traces.
pub fn report<'a>(
    flames: &Flames<'_>,
    events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    colour: bool,
    width: usize,
) -> io::Result<String> {
    Ok(summary::render(&Summary::with_events(flames, events, width)?, colour, width))
}
