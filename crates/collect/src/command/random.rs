//! Names and tokens that cannot be guessed.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns 128 random bits as text.
pub fn token() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}
