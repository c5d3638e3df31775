//! Why a file has no table.

/// Why a file could not be read or compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not an ELF file, or a part of it is missing or too large.
    #[error("{0}")]
    Elf(#[from] elf::Error),

    /// A machine that has no rows.
    #[error("cannot unwind code for ELF machine {0}: only x86-64 is supported")]
    Machine(u16),

    /// No `PT_LOAD` segment: an object file, or a part of a core dump.
    #[error("no loadable segments: not an executable or a shared library")]
    NotLoadable,

    /// More of something than any valid file has.
    #[error("too many {what}: more than {limit}")]
    TooMany {
        /// The name of what exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },

    /// Code further than 4 GiB from the table's base: its address does not fit a row.
    #[error("code spans {0} bytes, more than the limit of 4 GiB")]
    TooFar(u64),
}
