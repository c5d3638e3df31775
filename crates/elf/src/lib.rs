//! Reads untrusted ELF files, by offset and within limits.
//!
//! The files belong to the profiled programs, so every byte may be wrong, and their owner may change or truncate them
//! at any time. So nothing is mapped (a mapping of a truncated file raises SIGBUS, and touching a hole of a sparse file
//! on tmpfs allocates memory): everything is read with `pread` into our own memory, and no read is larger than a limit
//! that is checked before anything is allocated.
//!
//! - [`Elf::read`] reads the headers: segments, sections, build id. It is small and outlives the file.
//! - [`Section::read`] reads a whole section, [`Symbols::each`] streams a symbol table in constant memory, and
//!   [`Symbols::beginning_with`] finds a few by the beginnings of their names.
//! - [`Budget`] holds the limits: one for recordings, one for the daemon.
//!
//! Both word sizes of little-endian files are supported. Nothing here needs privileges.

mod budget;
mod bytes;
mod dynamic;
mod error;
mod hash;
mod header;
mod notes;
mod open;
mod place;
mod prefix;
mod section;
mod segments;
mod symbols;

pub use budget::Budget;
pub use bytes::{Bytes, read};
pub use dynamic::{dynamic_strings, needed_libraries};
pub use error::{Error, Size};
pub use header::Elf;
pub use open::{open, open_found};
pub use place::Place;
pub use section::{Compression, Section};
pub use segments::{Segment, Segments};
pub use symbols::{Symbol, Symbols};

pub use object::elf::{
    EM_X86_64, SHN_ABS, SHN_UNDEF, SHT_DYNSYM, SHT_GNU_VERSYM, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, STT_FUNC,
    STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, SectionType,
};
