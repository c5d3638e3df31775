//! Reads the DWARF sections of a file, decompressed.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
};

use elf::{Budget, Compression, Elf, Error, Section};
use flate2::bufread::ZlibDecoder;
use gimli::SectionId;

/// Why answers are missing or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Compressed with an unsupported method.
    Method,
    /// Larger than the limit, or not in the file.
    Refused(Error),
    /// Reading took too long.
    Time(u64),
    /// It is malformed.
    Broken,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("its debug information is compressed by a method other than zlib"),
            Self::Refused(why) => why.fmt(f),
            Self::Time(seconds) => write!(f, "reading its debug information took longer than {seconds} s"),
            Self::Broken => f.write_str("its debug information is broken"),
        }
    }
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<gimli::Error> for Unreadable {
    fn from(_: gimli::Error) -> Self {
        Self::Broken
    }
}

/// The sections used.
const SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Reads the sections by name. All sizes are checked against the budget first, so that nothing is read from a file that
/// exceeds it.
pub(crate) fn read(file: &File, elf: &Elf, budget: &Budget) -> Result<HashMap<&'static str, Vec<u8>>, Unreadable> {
    let mut found = Vec::new();
    let mut total = 0_u64;
    for id in SECTIONS {
        let Some(section) = elf.section(id.name()).filter(|section| section.is_in_file()) else { continue };
        let compression = section.compression(elf.wide, file)?;
        let size = compression.map_or(section.place.size, |compression| compression.size);
        total = total.saturating_add(size);
        found.push((id.name(), section, compression));
    }
    Error::check_bytes("debug information", total, budget.debug)?;
    let bytes = |(name, section, compression): (_, &Section, _)| {
        let bytes = match compression {
            None => section.read(file, budget.debug, "debug information")?,
            Some(compression) => decompress(file, &compression)?,
        };
        Ok((name, bytes))
    };
    found.into_iter().map(bytes).collect()
}

/// Decompresses a section whose size has been checked. Memory grows only as far as there is data for it.
fn decompress(file: &File, compression: &Compression) -> Result<Vec<u8>, Unreadable> {
    if !compression.zlib {
        return Err(Unreadable::Method);
    }
    let mut bytes = vec![0; usize::try_from(compression.size).map_err(|_| Unreadable::Broken)?];
    let compressed = Positioned { file, at: compression.place.offset }.take(compression.place.size);
    let read = ZlibDecoder::new(BufReader::with_capacity(1 << 16, compressed)).read_exact(&mut bytes);
    read.map_err(|_| Unreadable::Broken)?;
    Ok(bytes)
}

/// A file read at its own position: the descriptor may be in use elsewhere.
struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
