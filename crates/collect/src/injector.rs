//! The injected library.

/// Its file name; frames in it are the probe's own.
pub const INJECTOR: &str = "libwarpscope_inject.so";
