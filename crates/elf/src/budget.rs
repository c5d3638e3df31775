//! How much is read of files that belong to other people.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Limits on what is read of one file, and on what is kept of all. Everything that comes from a file is compared with one of these
/// before it is read or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of one symbol table. It is streamed, so this limits time, not memory.
    pub symbols: u64,
    /// Bytes of the string table of the symbols, where all names are needed.
    pub strings: u64,
    /// Bytes of code that are disassembled, where functions are probed.
    pub code: u64,
    /// Bytes of debug information (DWARF) of one file, uncompressed.
    pub debug: u64,
    /// Time that the debug information of one file may take.
    pub time: Duration,
    /// Bytes of all unwind tables together: those that are kept, and what making the next one takes.
    pub tables: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::RECORDING
    }
}

impl Budget {
    /// For recordings: every library of PyTorch fits many times.
    pub const RECORDING: Budget = Budget {
        symbols: 1024 * MIB,
        strings: 512 * MIB,
        code: 512 * MIB,
        debug: 2048 * MIB,
        time: Duration::from_secs(30),
        tables: 2048 * MIB,
    };

    /// For the daemon, whose service unit allows 256 MiB in all. PyTorch's tables take 70 MiB.
    pub const DAEMON: Budget = Budget {
        symbols: 64 * MIB,
        strings: 4 * MIB,
        code: 16 * MIB,
        debug: 16 * MIB,
        time: Duration::from_secs(2),
        tables: 160 * MIB,
    };
}
