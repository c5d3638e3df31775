//! The injected library.

/// Its file name; frames in this file belong to the probe.
pub const INJECTOR: &str = "libwarpscope_inject.so";
