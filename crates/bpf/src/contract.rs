//! The contract between the BPF programs and this crate: records, keys and values of maps, limits.
//!
//! The only definition is `bpf/shared.h` with the files in `bpf/shared`. The build generates [`types`] from the BTF of
//! `bpf/contract.bpf.c`, so a field that changes there changes here, or no longer compiles.
//!
//! A field that is moved or resized in C changes the Rust type with it; one that is renamed or removed breaks the Rust
//! code that uses it. In the headers hidden padding is an error, so that Rust may treat the structures as plain bytes.

use std::{mem::MaybeUninit, slice};

#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    unused_qualifications
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/contract.skel.rs"));
}
pub(crate) use generated::types;

/// Integers, and structures and arrays of them.
///
/// # Safety
/// Any bytes are a value of the type, and it has no padding.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ident)*) => {
        // SAFETY: integers only; shared.h makes padding an error.
        $(unsafe impl Plain for types::$name {})*
    };
}

plain! {
    stack_record raw_stack_record python_stack_record python_code_record python_frame launch_record memo_record deep_memo_record deep_word
    sample_record handover_record start_record
    call_record syscall_record switch_record point_record hit_record wait_record tensor_record process_record thread_record exit_record
    thread_state
    cost image handed mapping range python_process python_program_key python_program function hit_point tensor_point hit_key hit_sum sum_key sum error_key allocation_key allocation
    site_key site context_key memory_key memory_sum kernel_key kernel_sum
}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

/// Reads a value from the front; `None` if there are too few bytes.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    read_head(bytes, size_of::<T>())
}

/// Reads a record that is sent only as far as used: the first `least` bytes must be present. Missing bytes are 0.
pub(crate) fn read_head<T: Plain>(bytes: &[u8], least: usize) -> Option<T> {
    if bytes.len() < least {
        return None;
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: both have `length` bytes, and any bytes are a value.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), length);
        Some(value.assume_init())
    }
}

/// Reads `count` values starting at byte `at`; `None` if there are too few bytes.
pub(crate) fn read_several<T: Plain>(bytes: &[u8], at: usize, count: usize) -> Option<Vec<T>> {
    let bytes = bytes.get(at..)?.get(..count.checked_mul(size_of::<T>())?)?;
    bytes.chunks_exact(size_of::<T>()).map(read).collect()
}

/// Returns the bytes of a value, as the programs read it.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a value without padding consists of initialised bytes.
    unsafe { slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Returns the text up to its first zero.
pub(crate) fn text(chars: &[i8]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|char| char.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Check that a truncated record is rejected, and that the missing end of a record reads as 0.
    #[test]
    fn truncated_records_are_rejected_or_zero_filled() {
        let bytes = [1_u8; 24];
        assert_eq!(read::<types::exit_record>(&bytes).map(|exit| exit.pid), Some(0x0101_0101));
        assert!(read::<types::exit_record>(&bytes[..23]).is_none());
        let head = read_head::<types::exit_record>(&bytes[..8], 8).expect("a head");
        assert_eq!((head.image, head.time), (0x0101_0101, 0));
        assert_eq!(read_several::<u64>(&bytes, 8, 2), Some(vec![0x0101_0101_0101_0101; 2]));
        assert_eq!(read_several::<u64>(&bytes, 8, 3), None);
        assert_eq!(read_several::<u64>(&bytes, 25, 0), None);
    }

    /// Check that the walkers in the kernel and in user space use the same result numbers.
    #[test]
    fn walkers_agree_on_result_numbers() {
        use types::walk_result;
        use unwind::Ended;
        for (in_kernel, in_user) in [
            (walk_result::WALK_END, Ended::Whole),
            (walk_result::WALK_TRUNCATED, Ended::Truncated),
            (walk_result::WALK_NO_MAPPING, Ended::NoMapping),
            (walk_result::WALK_NO_ROW, Ended::NoRow),
            (walk_result::WALK_UNSUPPORTED, Ended::Unsupported),
            (walk_result::WALK_NO_REGISTER, Ended::NoRegister),
            (walk_result::WALK_BAD_READ, Ended::BadRead),
            (walk_result::WALK_STUCK, Ended::Stuck),
        ] {
            assert_eq!(in_kernel.0, in_user as u32);
        }
    }

    /// Check that unwind rows are uploaded in the walker's layout.
    #[test]
    fn unwind_rows_have_the_walkers_layout() {
        use types::unwind_row;
        use unwind::Row;
        assert_eq!(size_of::<unwind_row>(), size_of::<Row>());
        assert_eq!(offset_of!(unwind_row, pc), offset_of!(Row, pc));
        assert_eq!(offset_of!(unwind_row, cfa_offset), offset_of!(Row, cfa_offset));
        assert_eq!(offset_of!(unwind_row, rule), offset_of!(Row, rule));
    }

    /// Check that the programs use the injected library's refusal numbers.
    #[test]
    fn refusal_numbers_match_the_injected_library() {
        assert_eq!(types::launch_work::WORK_REFUSAL.0, wire::Refusal::BASE);
        assert_eq!(types::launch_work::WORK_NODE.0, wire::WORK_NODE);
    }
}
