//! The signal frame: the state to which a thread returns by itself.
//!
//! The layout is the kernel's (`struct rt_sigframe`, `struct ucontext`, `struct sigcontext`, and `struct _fpstate` with
//! its software-defined bytes). `rt_sigreturn` reads it and restores the general registers, the floating-point and
//! vector state and the signal mask at once.
//!
//! When a tracer dies, the kernel detaches it and the thread continues: it finishes the call at hand and returns by
//! this frame. So neither the time limit nor a signal needs a rollback: detaching is always correct. For this reason
//! there are no breakpoints and no single steps, which outlive a tracer and then kill the process.

use libc::user_regs_struct as Registers;

/// The bytes below the stack pointer that code may use without moving it.
const RED_ZONE: u64 = 128;
/// Space for a short string above the frame.
pub(crate) const SCRATCH: u64 = 128;
/// Return address, `ucontext` and `siginfo`.
const FRAME: u64 = 8 + 304 + 128;
/// `FP_XSTATE_MAGIC1`, `FP_XSTATE_MAGIC2`
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`
const FLAGS: u64 = 7;
/// Where `XSAVE` has its header, and where the legacy area has room for software.
const XSAVE_HEADER: usize = 512;
const SOFTWARE: usize = 464;
/// The smallest state: legacy area and header.
const MIN_XSTATE: usize = 576;
/// The feature bits of protection keys and of AMX tile data.
const PKRU: u64 = 1 << 9;
const TILE_DATA: u64 = 1 << 18;

/// A frame for the stack of a thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where it is: the stack pointer of the call. The first word is the return address.
    pub address: u64,
    /// Where a short string may be placed.
    pub scratch: u64,
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Builds the frame that returns to `registers`, `mask` and `xstate` by way of `restorer`.
    /// Returns nothing if the state cannot be understood.
    pub fn build(registers: &Registers, mask: u64, xstate: &[u8], restorer: u64) -> Option<Self> {
        let fpstate_bytes = fpstate(xstate)?;
        let scratch = registers.rsp.checked_sub(RED_ZONE + SCRATCH)? & !63;
        let fpstate_at = scratch.checked_sub(fpstate_bytes.len() as u64)? & !63;
        // As at the entry of a function: 8 bytes off a multiple of 16.
        let address = (fpstate_at.checked_sub(FRAME)? & !15).checked_sub(8)?;
        let mut bytes = Vec::new();
        let mut word = |value: u64| bytes.extend(value.to_le_bytes());
        word(restorer);
        word(FLAGS);
        // uc_link, and uc_stack: a stack of size 0 is rejected, so that the alternate stack stays as it is.
        (0..4).for_each(|_| word(0));
        let r = registers;
        for value in [r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15] {
            word(value);
        }
        for value in [r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags] {
            word(value);
        }
        word((r.cs & 0xffff) | (r.ss & 0xffff) << 48);
        // err, trapno, oldmask, cr2
        (0..4).for_each(|_| word(0));
        word(fpstate_at);
        (0..8).for_each(|_| word(0));
        word(mask);
        bytes.resize(usize::try_from(fpstate_at - address).ok()?, 0);
        bytes.extend(fpstate_bytes);
        Some(Frame { address, scratch, bytes })
    }

    /// Returns whether the words, the first of which is a restorer's address, look like a frame of the kernel.
    pub fn looks_real(words: &[u64], at: u64) -> bool {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        word(1) & !FLAGS == 0 && word(24) & 0xffff == 0x33 && word(21) > at
    }
}

/// Marks the register of the protection keys as present in a state of `PTRACE_GETREGSET`, if it is not 0. Without this
/// mark it would be restored as 0, which permits everything.
pub(crate) fn keep_protection_keys(xstate: &mut [u8]) {
    let has_keys = xstate.get(SOFTWARE + 1).is_some_and(|features| features & (PKRU >> 8) as u8 != 0);
    let (at, size) = component(9);
    let keys = xstate.get(at..at.saturating_add(size)).unwrap_or_default();
    let used = has_keys && keys.iter().any(|byte| *byte != 0);
    if let Some(present) = xstate.get_mut(XSAVE_HEADER + 1).filter(|_| used) {
        *present |= (PKRU >> 8) as u8;
    }
}

/// Converts the state of `PTRACE_GETREGSET` to that of a signal frame.
fn fpstate(xstate: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| xstate.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let present = word(XSAVE_HEADER)?;
    // The kernel puts the processor's features here; without AMX in use a thread's state has no room for tiles.
    let features = word(SOFTWARE)? & !(TILE_DATA & !present);
    let size = size(features)?;
    if xstate.len() < size || present & !features != 0 {
        return None;
    }
    let mut bytes = xstate.get(..size)?.to_vec();
    let total = u32::try_from(size).ok()?;
    let software = [MAGIC1, total + 4, features as u32, (features >> 32) as u32, total];
    bytes[SOFTWARE..XSAVE_HEADER].fill(0);
    for (index, value) in software.into_iter().enumerate() {
        bytes[SOFTWARE + 4 * index..][..4].copy_from_slice(&value.to_le_bytes());
    }
    bytes.extend(MAGIC2.to_le_bytes());
    Some(bytes)
}

/// Returns the size of a state with these features.
fn size(features: u64) -> Option<usize> {
    let extended = (2..63).filter(|bit| features >> bit & 1 == 1);
    extended.map(component).try_fold(MIN_XSTATE, |most, (at, size)| Some(most.max(at.checked_add(size)?)))
}

/// Returns offset and size of a part of the state.
fn component(bit: u32) -> (usize, usize) {
    let found = std::arch::x86_64::__cpuid_count(0xd, bit);
    (found.ebx as usize, found.eax as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state as the kernel reports it on this processor, with nothing but the legacy part in use.
    fn xstate() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[SOFTWARE] = 0b11;
        bytes[XSAVE_HEADER] = 0b11;
        bytes
    }

    /// Check the places that `rt_sigreturn` reads, and the alignment that it needs.
    #[test]
    fn frame_has_the_layout_of_the_kernel() {
        // SAFETY: all fields are integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.rsp, registers.rip, registers.cs, registers.ss) = (0x7fff_0123, 0x1234, 0x33, 0x2b);
        let frame = Frame::build(&registers, 0xabcd, &xstate(), 0x5678).expect("a frame");
        let word = |at: usize| u64::from_le_bytes(frame.bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(frame.address % 16, 8);
        assert_eq!((word(0), word(8)), (0x5678, 7));
        assert_eq!((word(168), word(176)), (0x7fff_0123, 0x1234));
        assert_eq!(word(192), 0x33 | 0x2b << 48);
        assert_eq!(word(304), 0xabcd);
        let fpstate = word(232);
        assert_eq!(fpstate % 64, 0);
        assert_eq!(word((fpstate - frame.address) as usize + SOFTWARE) as u32, MAGIC1);
        assert!(frame.address + frame.bytes.len() as u64 <= frame.scratch);
        assert!(frame.scratch + SCRATCH + RED_ZONE <= registers.rsp);
        let words: Vec<u64> = frame.bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        assert!(Frame::looks_real(&words, frame.address));
        assert!(!Frame::looks_real(&[0x5678, 1], 0));
    }

    /// Check that a truncated or contradictory state, or a stack pointer near 0, gives no frame.
    #[test]
    fn unknown_states_are_refused() {
        // SAFETY: all fields are integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        assert_eq!(Frame::build(&registers, 0, &xstate(), 0), None);
        registers.rsp = 1 << 40;
        assert!(Frame::build(&registers, 0, &xstate(), 0).is_some());
        for length in [0, 100, 519, 575] {
            assert_eq!(Frame::build(&registers, 0, &xstate()[..length], 0), None);
        }
        let mut more = xstate();
        more[XSAVE_HEADER] = 0b111;
        assert_eq!(Frame::build(&registers, 0, &more, 0), None, "more is in use than the processor has");
    }
}
