//! Why a file has no functions to probe.

use std::path::PathBuf;

/// Why a library could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// It is not an ELF file, or a part of it is missing or too large.
    #[error(transparent)]
    Elf(#[from] elf::Error),

    /// A machine whose instructions are not supported.
    #[error("cannot probe code for ELF machine {0}: only x86-64 is supported")]
    Machine(u16),

    /// No executable `PT_LOAD` segment: an object file, or a file of debug information.
    #[error("no executable segment: not a program or a shared library")]
    NoCode,
}
