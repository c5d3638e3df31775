//! Cubins: gives each module that is loaded a number, and sends those with line information to warpscope.
//!
//! CUPTI identifies the cubin of a sample by what [`identify`] returned when the module was loaded. Equal cubins with line
//! information get equal numbers, and are sent once; all others get numbers of their own.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::{MAX_TEXT, MOST_CUBIN, MOST_CUBINS};

use crate::lifecycle;
use crate::queue::QUEUE;

/// The most cubins that are recognised when they are loaded again.
const MOST_KNOWN: usize = 4096;

static NEXT: AtomicU32 = AtomicU32::new(1);
static SENT: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// The cubins that were sent: size, hash and number.
static KNOWN: Mutex<Vec<(usize, u64, u32)>> = Mutex::new(Vec::new());

/// Begins a session, which has not sent any cubin.
pub fn begin() {
    SENT.store(0, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The number of cubins with line information that were not sent.
pub fn refused() -> u32 {
    REFUSED.load(Ordering::Relaxed)
}

/// CUPTI's function to identify a cubin that is being loaded.
///
/// # Safety
/// `cubin` must be null or point to `size` bytes, and `identity` must be writable.
pub unsafe extern "C" fn identify(cubin: *const c_void, size: usize, identity: *mut u64) {
    let new = || NEXT.fetch_add(1, Ordering::Relaxed);
    let number = if cubin.is_null() || !lifecycle::is_reading() {
        new()
    } else {
        // SAFETY: the caller guarantees the bytes.
        let bytes = unsafe { core::slice::from_raw_parts(cubin.cast::<u8>(), size) };
        lifecycle::guarded(0, || keep(bytes, new))
    };
    // SAFETY: the caller guarantees that it is writable.
    unsafe { *identity = number.into() };
}

/// Returns the number of a cubin. One with line information is sent, unless it was.
fn keep(bytes: &[u8], new: impl FnOnce() -> u32) -> u32 {
    if section(bytes, b".debug_line").is_none() {
        return new();
    }
    let key = (bytes.len(), hash(bytes));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., number)) = known.iter().find(|(size, hash, _)| (*size, *hash) == key) {
        return *number;
    }
    let number = new();
    let room = known.len() < MOST_KNOWN && known.try_reserve(1).is_ok();
    let fits = bytes.len() <= MOST_CUBIN && SENT.load(Ordering::Relaxed) + bytes.len() <= MOST_CUBINS;
    if room && fits && send(number, bytes) {
        SENT.fetch_add(bytes.len(), Ordering::Relaxed);
        known.push((key.0, key.1, number));
    } else {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
    number
}

/// Queues the bytes of a cubin; false if they do not fit.
fn send(number: u32, bytes: &[u8]) -> bool {
    let mut message = [0; 7 + MAX_TEXT];
    for part in bytes.chunks(MAX_TEXT) {
        wire::encode_cubin_part(number, part, &mut message);
        if !QUEUE.append(&message[..wire::text_size(part)], 0) {
            return false;
        }
    }
    let mut end = [0; wire::CubinEnd::SIZE];
    wire::CubinEnd { number, size: bytes.len() as u32 }.encode(&mut end);
    QUEUE.append(&end, 0)
}

/// FNV-1a over words.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, (*byte).into()))
}

/// Returns the bytes of a section of a 64-bit ELF file; `None` if there is no such section, or no such file.
fn section<'a>(file: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let field = |at: usize, size: usize| {
        let mut number = [0; 8];
        number[..size].copy_from_slice(file.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    let part = |header: usize| {
        let (offset, size) = (field(header + 0x18, 8)?, field(header + 0x20, 8)?);
        file.get(offset..offset.checked_add(size)?)
    };
    if !file.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (table, size) = (field(0x28, 8)?, field(0x3a, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?).filter(|at| *at < file.len());
    // With very many sections, both numbers are in the first one.
    let (mut count, mut names) = (field(0x3c, 2)?, field(0x3e, 2)?);
    if count == 0 {
        (count, names) = (field(header(0)? + 0x20, 8)?, field(header(0)? + 0x28, 4)?);
    }
    let names = part(header(names)?)?;
    (0..count).map_while(header).find_map(|at| {
        let text = names.get(field(at, 4)?..)?;
        (text.starts_with(name) && text.get(name.len()) == Some(&0)).then(|| part(at))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRITON: &[u8] = include_bytes!("../../symbols/tests/cubins/triton.cubin");

    /// A section is found in a real cubin; a file that is cut off or is no ELF file has none.
    #[test]
    fn sections_are_found() {
        assert_eq!(section(TRITON, b".debug_line").map(<[u8]>::len), Some(0x96));
        assert_eq!(section(TRITON, b".debug_lin"), None);
        assert_eq!(section(TRITON, b".debug_str"), None);
        for length in (0..TRITON.len()).step_by(5) {
            assert_eq!(section(&TRITON[..length], b".nothing"), None);
        }
        assert_eq!(section(b"not a cubin", b".debug_line"), None);
    }

    /// The hash depends on every byte.
    #[test]
    fn hashes_differ() {
        let mut bytes = [7; 21];
        let first = hash(&bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_ne!(hash(&bytes), first, "{at}");
            bytes[at] ^= 1;
        }
    }
}
