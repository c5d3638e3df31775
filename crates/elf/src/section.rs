//! Sections.

use object::{
    LittleEndian as Le,
    elf::{CompressionHeader32, CompressionHeader64, ELFCOMPRESS_ZLIB, SHF_COMPRESSED, SHT_NOBITS, SectionType},
    read::elf::CompressionHeader as _,
};

use crate::{
    Bytes, Error, Place,
    bytes::{one, read},
};

/// A section header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Its name, or the beginning of it.
    pub name: String,
    /// `SHT_*`
    pub kind: SectionType,
    /// `SHF_*`
    pub flags: u64,
    /// Its bytes; for compressed sections including their header.
    pub place: Place,
    /// The index of the associated section.
    pub link: u32,
}

/// How a section is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// With zlib; otherwise with an unsupported method.
    pub zlib: bool,
    /// The compressed bytes, without the header.
    pub place: Place,
    /// The claimed size without compression.
    pub size: u64,
}

impl Section {
    /// Whether it has bytes in the file.
    pub fn is_in_file(&self) -> bool {
        self.kind != SHT_NOBITS && self.place.size > 0
    }

    /// Reads its bytes as they are in the file, if there are at most `limit`; `what` names the section in errors.
    pub fn read<B: Bytes + ?Sized>(&self, bytes: &B, limit: u64, what: &'static str) -> Result<Vec<u8>, Error> {
        if !self.is_in_file() {
            return Ok(Vec::new());
        }
        Error::check_bytes(what, self.place.size, limit)?;
        read(bytes, self.place.offset, self.place.size, what)
    }

    /// Whether it is compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED.0 != 0
    }

    /// Returns how it is compressed; `None` if it is not. `wide` is that of the file.
    pub fn compression<B: Bytes + ?Sized>(&self, wide: bool, bytes: &B) -> Result<Option<Compression>, Error> {
        if !self.is_compressed() {
            return Ok(None);
        }
        const WHAT: &str = "compressed bytes";
        let length = if wide { size_of::<CompressionHeader64<Le>>() } else { size_of::<CompressionHeader32<Le>>() };
        let header = read(bytes, self.place.offset, length as u64, WHAT)?;
        let (kind, size) = if wide {
            one::<CompressionHeader64<Le>>(&header).map(|header| (header.ch_type(Le), header.ch_size(Le)))
        } else {
            one::<CompressionHeader32<Le>>(&header).map(|header| (header.ch_type(Le), header.ch_size(Le).into()))
        }
        .ok_or(Error::Truncated(WHAT))?;
        let offset = self.place.offset + length as u64;
        let left = self.place.size.checked_sub(length as u64).ok_or(Error::Truncated(WHAT))?;
        let place = Place { address: self.place.address, offset, size: left };
        Ok(Some(Compression { zlib: kind == ELFCOMPRESS_ZLIB, place, size }))
    }
}
