//! Reads what the arguments of a call point to.
//!
//! Arguments that are pointers are followed at exit only: after a successful call they are valid, because CUDA has
//! followed them. After a failed call, a system call first checks that the memory is readable.

use core::ptr;

use cupti::callback::CallbackData;
use wire::calls::MOST_TEXT;

use crate::sys;

/// A page is readable or not as a whole.
const PAGE: usize = 4096;

/// Returns a pointer argument by its place in a [`wire::calls::Capture`]; `None` if it is null.
pub(super) fn pointer(data: &CallbackData, place: u16) -> Option<*const u8> {
    let offset = usize::from(place.checked_sub(1)?);
    if data.params.is_null() {
        return None;
    }
    // SAFETY: the table has offsets within the parameters only.
    let pointer = unsafe { data.params.byte_add(offset).cast::<*const u8>().read_unaligned() };
    (!pointer.is_null()).then_some(pointer)
}

/// Copies bytes that the program points to; false if they cannot be read. If `valid`, the first of them can.
///
/// # Safety
/// `to` must have room for `length` bytes.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize, valid: bool) -> bool {
    let (start, end) = (from.addr(), from.addr().wrapping_add(length));
    let first = start & !(PAGE - 1);
    let pages = (first..end.max(first)).step_by(PAGE);
    for page in pages {
        let known = valid && page == first;
        if !known && !is_readable(page) {
            return false;
        }
    }
    // SAFETY: all pages can be read, and the caller guarantees the room.
    unsafe { ptr::copy_nonoverlapping(from, to, length) };
    true
}

/// Copies text up to its zero byte, or to [`MOST_TEXT`]. Returns its length, with the zero byte; 0 if it cannot be read.
///
/// # Safety
/// `to` must have room for [`MOST_TEXT`] bytes.
pub(super) unsafe fn copy_text(from: *const u8, to: *mut u8, valid: bool) -> usize {
    for at in 0..MOST_TEXT {
        let here = from.wrapping_add(at);
        if !valid && (at == 0 || here.addr().is_multiple_of(PAGE)) && !is_readable(here.addr()) {
            return 0;
        }
        // SAFETY: the text is valid up to its zero byte, or the page can be read; the caller guarantees the room.
        unsafe {
            let byte = here.read();
            to.add(at).write(byte);
            if byte == 0 {
                return at + 1;
            }
        }
    }
    MOST_TEXT
}

/// Whether a page can be read. The kernel reads the signals to block before it checks what to do with them.
#[cold]
fn is_readable(address: usize) -> bool {
    // The first page is never mapped, and a null pointer means no signals.
    if address < PAGE {
        return false;
    }
    let saved = sys::errno();
    let at = ptr::with_exposed_provenance::<u64>(address & !7);
    // SAFETY: with an invalid operation, nothing is changed; an invalid address is an error.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1_i64, at, ptr::null_mut::<u64>(), 8_usize) };
    let readable = sys::errno() != libc::EFAULT;
    sys::set_errno(saved);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pages are recognised as readable or not, and that errno is unchanged.
    #[test]
    fn unreadable_memory_is_recognised() {
        sys::set_errno(71);
        let memory = sys::reserve(2 * PAGE);
        // SAFETY: the second page is ours.
        unsafe { libc::mprotect(memory.add(PAGE).cast(), PAGE, libc::PROT_NONE) };
        let edge = memory.wrapping_add(PAGE - 4);
        let mut to = [0; MOST_TEXT];
        assert!(is_readable(memory.addr()) && !is_readable(edge.addr() + 4) && !is_readable(8));
        // SAFETY: the room is large enough; what cannot be read is not.
        unsafe {
            assert!(copy(edge, to.as_mut_ptr(), 4, false) && !copy(edge, to.as_mut_ptr(), 8, true));
            assert!(!copy(ptr::without_provenance(16), to.as_mut_ptr(), 8, false));
            ptr::copy_nonoverlapping(c"ab".as_ptr().cast(), edge, 3);
            assert_eq!(copy_text(edge, to.as_mut_ptr(), false), 3);
            ptr::copy_nonoverlapping(b"abcd".as_ptr(), edge, 4);
            assert_eq!(copy_text(edge, to.as_mut_ptr(), false), 0);
        }
        assert_eq!(sys::errno(), 71);
    }
}
