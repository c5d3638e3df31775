//! Why a file has no table.

/// Why a file could not be read or compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The headers are not those of an ELF file, or contradict each other.
    #[error("cannot read ELF headers: {0}")]
    Elf(#[from] object::read::Error),

    /// A machine there are no rows for.
    #[error("cannot unwind code for ELF machine {0}: only x86-64 is supported")]
    Machine(u16),

    /// No `PT_LOAD` segment: an object file, or a core's fragment.
    #[error("no loadable segments: not an executable or a shared library")]
    NotLoadable,

    /// A section whose bytes lie outside the file.
    #[error("cannot read {0}: its bytes lie outside the file, or the file was cut short")]
    Truncated(&'static str),

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
