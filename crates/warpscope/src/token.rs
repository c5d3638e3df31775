//! Tokens that cannot be guessed.

use std::{fs::File, io, io::Read};

/// Returns 128 random bits as text.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
