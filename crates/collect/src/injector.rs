//! The injected library.

use std::{path::PathBuf, sync::OnceLock};

use bpf::Marker;
use elf::Budget;

/// Its file name; frames in this file belong to the probe.
pub const INJECTOR: &str = "libwarpscope_inject.so";

/// Returns the marker function in a file with the injected library. It is found in our own copy: the file may be one that a
/// process can change.
pub fn marker(library: PathBuf) -> Marker {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    let find = || probes::find(embedded::INJECTOR, wire::MARKER_SYMBOL, &Budget::RECORDING).ok().flatten();
    // No file has this offset: attaching fails.
    let offset = *OFFSET.get_or_init(|| find().map_or(u64::MAX, |function| function.offset));
    Marker { library, offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the marker is found in the library.
    #[test]
    fn marker_is_in_the_library() {
        assert!(marker(PathBuf::new()).offset < embedded::INJECTOR.len() as u64);
    }
}
