//! Attacks on the files that a recording writes.
