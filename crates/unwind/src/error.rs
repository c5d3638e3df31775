//! Why a file has no table.

/// Why a file could not be read or compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not an ELF file, or a part of it is missing or too large.
    #[error("{0}")]
    Elf(#[from] elf::Error),

    /// A machine there are no rows for.
    #[error("cannot unwind code for ELF machine {0}: only x86-64 is supported")]
    Machine(u16),

    /// No `PT_LOAD` segment: an object file, or a core's fragment.
    #[error("no loadable segments: not an executable or a shared library")]
    NotLoadable,

    /// More than any sound file has of something.
    #[error("too many {what}: more than {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },

    /// Code further than 4 GiB from the table's base: its address does not fit a row.
    #[error("code spans {0} bytes: rows reach 4 GiB")]
    TooFar(u64),
}
