//! Why a file, or a part of it, is not read.

use std::fmt;

/// Why a file, or a part of it, is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not an ELF file for this machine's byte order.
    #[error("it is not an ELF file")]
    NotElf,

    /// The bytes are missing: a wrong header, or the file was truncated in the meantime.
    #[error("{0} are outside the file, or the file was truncated")]
    Truncated(&'static str),

    /// A size exceeds its limit.
    #[error("its {what} has {size}, more than the limit of {limit}")]
    TooLarge {
        /// The part, in the singular.
        what: &'static str,
        /// The size in the file.
        size: Size,
        /// The limit.
        limit: Size,
    },
}

impl Error {
    /// Rejects a part of a file that has more bytes than `limit`.
    pub fn check_bytes(what: &'static str, size: u64, limit: u64) -> Result<(), Error> {
        if size <= limit {
            return Ok(());
        }
        Err(Error::TooLarge { what, size: Size::Bytes(size), limit: Size::Bytes(limit) })
    }

    /// Rejects a part of a file that has more entries than `limit`.
    pub fn check_entries(what: &'static str, size: u64, limit: u64) -> Result<(), Error> {
        if size <= limit {
            return Ok(());
        }
        Err(Error::TooLarge { what, size: Size::Entries(size), limit: Size::Entries(limit) })
    }
}

/// A size with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Entries of a table.
    Entries(u64),
}

/// `3.0 GiB`, `512 bytes`, `70000 entries`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Size::Entries(count) => write!(f, "{count} entries"),
            Size::Bytes(bytes) => {
                let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
                match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
                    Some((unit, shift)) => write!(f, "{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
                    None => write!(f, "{bytes} bytes"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an error contains the size and the limit.
    #[test]
    fn errors_contain_sizes() {
        let refused = Error::check_bytes("symbol table", 3 << 30, 64 << 20).expect_err("it is larger");
        assert_eq!(refused.to_string(), "its symbol table has 3.0 GiB, more than the limit of 64.0 MiB");
        let refused = Error::check_entries("section table", 5000, 4096).expect_err("there are more");
        assert_eq!(refused.to_string(), "its section table has 5000 entries, more than the limit of 4096 entries");
        assert_eq!(Error::check_bytes("symbol table", 7, 7), Ok(()));
    }
}
