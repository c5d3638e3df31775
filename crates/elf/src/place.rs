//! A range of a file.

/// A range of a file that also has an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Virtual address in the file.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}
