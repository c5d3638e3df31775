//! Why a file has no functions to probe, or a pattern no meaning.

use std::path::PathBuf;

/// Why a library could not be read, or a pattern not be understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// The headers are not those of an ELF file, or contradict each other.
    #[error("cannot read ELF headers: {0}")]
    Elf(#[from] object::read::Error),

    /// A machine whose instructions are not known here.
    #[error("cannot probe code for ELF machine {0}: only x86-64 is supported")]
    Machine(u16),

    /// No executable `PT_LOAD` segment: an object file, or a file of debug information.
    #[error("no executable segment: not a program or a shared library")]
    NoCode,

    /// More than any sound file has of something.
    #[error("too many {what}: more than {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },

    /// A glob that has no meaning.
    #[error("cannot understand the pattern '{pattern}': {reason}")]
    Pattern {
        /// As the user gave it.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}
