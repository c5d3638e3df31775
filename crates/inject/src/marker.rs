//! The function a uprobe is attached to.
//!
//! The cost of a uprobe depends on the instruction that it replaces: `push` and `nop` are emulated, most others are
//! single-stepped, which takes several microseconds, and from Linux 6.18 on a 5-byte nop becomes a call, without any
//! trap. So the marker is `nop5; ret`. It is in our own file, so the probe works in the same way with a static
//! libcudart, with programs that call the driver directly (Triton, JAX), and with every version of CUDA. The library is
//! linked with `-Bsymbolic-functions`, so that a symbol of the same name elsewhere cannot replace the marker.

use core::arch::naked_asm;

/// Called for a launch-class call, on the thread that makes it: the uprobe reads the arguments and walks the stack. `ids` is
/// the correlation id and, in the upper half, that of the thread's last launch that has returned, which `took` so long.
///
/// It does nothing itself. Its first instruction is the 5-byte nop that the kernel (6.18 and later) can replace with a
/// call. The alignment after the return raises that of the function's section, so the nop never crosses a page
/// boundary.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.warpscope_launch_marker")]
pub extern "C" fn warpscope_launch_marker(ids: u64, work: u32, session: u64, stack: u64, python: u64, took: u64) {
    naked_asm!(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "ret", ".p2align 4")
}

/// As on x86-64, with the only nop available.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.warpscope_launch_marker")]
pub extern "C" fn warpscope_launch_marker(ids: u64, work: u32, session: u64, stack: u64, python: u64, took: u64) {
    naked_asm!("nop", "ret", ".p2align 4")
}

/// Reports a launch: by itself if the caller's stacks are known ([`crate::launches`]), otherwise it calls the marker with the
/// id of the native stack, if known, and the hash of the Python frames.
///
/// The registers at the marker determine the stack, so the lookup must use the same ones: the marker is reached by a
/// jump, with this function's own stack pointer and its caller's frame pointer.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn mark(ids: u64, work: u32, session: u64, took: u64) {
    naked_asm!(
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        // The place of the native stack's id.
        "push rax",
        "lea rdi, [rsp + 40]",
        "mov rsi, rbp",
        "call {find}",
        "mov [rsp], rax",
        "push rdx",
        // The place of the hash.
        "push rdx",
        "mov rdi, rdx",
        "call {python}",
        "mov [rsp], rax",
        "mov rdi, [rsp + 24]",
        "mov esi, [rsp + 32]",
        "mov rdx, [rsp + 16]",
        "mov rcx, rax",
        "mov r8, [rsp + 8]",
        "mov r9, [rsp + 48]",
        "call {report}",
        "test al, al",
        // None of these changes the flags.
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r9",
        "jz {marker}",
        "ret",
        find = sym crate::known_stacks::find,
        python = sym crate::python::hash,
        report = sym crate::launches::report,
        marker = sym warpscope_launch_marker,
    )
}

/// As on x86-64, but every stack is walked.
#[cfg(target_arch = "aarch64")]
pub extern "C" fn mark(ids: u64, work: u32, session: u64, took: u64) {
    warpscope_launch_marker(ids, work, session, 0, 0, took);
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The marker is a 5-byte nop and a return, at an address where no page boundary can split the nop.
    #[test]
    fn starts_with_the_nop_the_kernel_can_replace() {
        let address = warpscope_launch_marker as *const () as usize;
        // SAFETY: the function's code is readable and at least six bytes long.
        let code = unsafe { core::slice::from_raw_parts(address as *const u8, 6) };
        assert_eq!(code, [0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3]);
        assert_eq!(address % 16, 0);
    }

    /// Calling the marker has no effect.
    #[test]
    fn can_be_called() {
        warpscope_launch_marker(1, 2, 3, 4, 5, 6);
    }
}
