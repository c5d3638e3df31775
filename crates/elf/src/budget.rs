//! Limits on reading untrusted files.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Limits on what is read from one file, and on what is kept of all. Every size from a file is checked against one of
/// these before anything is read or allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of one symbol table. It is streamed, so this limits time, not memory.
    pub symbols: u64,
    /// Bytes of the symbols' string table, if all names are needed.
    pub strings: u64,
    /// Bytes of code to disassemble, if functions are probed.
    pub code: u64,
    /// Bytes of debug information (DWARF) of one file, uncompressed.
    pub debug: u64,
    /// Time spent on the debug information of one file.
    pub time: Duration,
    /// Bytes of all unwind tables together: those kept, and the memory needed to build the next one.
    pub tables: u64,
}

sandbox::plain! { Budget { symbols, strings, code, debug, time, tables } }

impl Default for Budget {
    fn default() -> Self {
        Self::RECORDING
    }
}

impl Budget {
    /// For recordings: many times the size of every PyTorch library.
    pub const RECORDING: Budget = Budget {
        symbols: 1024 * MIB,
        strings: 512 * MIB,
        code: 512 * MIB,
        debug: 2048 * MIB,
        time: Duration::from_secs(30),
        tables: 2048 * MIB,
    };

    /// For the daemon, whose service unit allows 256 MiB in total. It compiles only the functions that occur on stacks.
    pub const DAEMON: Budget = Budget {
        symbols: 64 * MIB,
        strings: 4 * MIB,
        code: 16 * MIB,
        debug: 16 * MIB,
        time: Duration::from_secs(2),
        tables: 32 * MIB,
    };
}
