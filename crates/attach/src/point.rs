//! Safe points: where a thread may be borrowed.
//!
//! - `pthread_create` allocates memory with the program's allocator, so a thread within an allocator is not borrowed.
//!   All code of a library that exports `malloc` or `calloc` counts, and these functions of the C library and of the
//!   program. Return addresses are found by a scan of the innermost 4 KiB of the stack, 16 KiB for allocators: it may
//!   refuse a thread needlessly.
//! - A thread that waits for a lock is never borrowed: it may hold another lock of an allocator that is hidden in the
//!   program.
//! - If the tracer is alive, it sets the original registers after an interrupt stop, and the kernel restarts the system
//!   call with the time that is left. `epoll_wait` and a few others return `EINTR` to a tracer's interrupt; they are
//!   repeated, with their full time. Calls that would return a part of their result are not interrupted.

use libc::user_regs_struct as Registers;

use crate::{
    frame::Frame,
    library::Library,
    process::{Mapping, SystemCall},
};

/// The stack that the frame and `pthread_create` may use, as a signal handler would.
const ROOM: u64 = 48 << 10;
/// How much of the stack is searched for signal frames.
const MAX_STACK: u64 = 1 << 20;
/// How much of it is searched for the functions in which the thread waits.
const INNERMOST: usize = 4096 / 8;
/// The same for an allocator, whose functions may have arrays on the stack.
const INNERMOST_ALLOCATOR: usize = 16384 / 8;
/// 64-bit user code.
const CODE_SEGMENT: u64 = 0x33;

const EPOLL_PWAIT2: i64 = 441;

/// How many of them the kernel restarts after an interrupt. The others return `EINTR`.
const RESTARTED: usize = 17;

/// System calls that wait, in the order of preference.
const WAITING: [i64; 23] = [
    libc::SYS_futex,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_flock,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    EPOLL_PWAIT2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
];

/// How an interrupted system call goes on, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// The kernel restarts it. So does the signal frame, without any difference.
    Endless,
    /// The kernel restarts it with the time that is left, the signal frame with its whole time.
    Limited,
    /// It returns `EINTR`, and we repeat it. If this process is killed just before, the program sees `EINTR`.
    NotRestarted,
}

/// Returns how suitable a waiting thread is, the lowest first, or nothing if it does not wait.
pub(crate) fn rank(call: &SystemCall) -> Option<(Wait, usize)> {
    let [_, _, third, fourth, fifth, _] = call.arguments;
    let limited = match call.number {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => true,
        libc::SYS_poll => third as i32 >= 0,
        libc::SYS_ppoll => third != 0,
        libc::SYS_futex => fourth != 0,
        libc::SYS_select | libc::SYS_pselect6 => fifth != 0,
        _ => false,
    };
    // Interrupted, these return what they have so far, and the program may take that for the end.
    let all = libc::MSG_WAITALL as u64;
    let partial = match call.number {
        libc::SYS_recvfrom => fourth & all != 0,
        libc::SYS_recvmsg => third & all != 0,
        _ => false,
    };
    if partial {
        return None;
    }
    let position = WAITING.iter().position(|waiting| *waiting == call.number)?;
    let wait = match position {
        _ if position >= RESTARTED => Wait::NotRestarted,
        _ if limited => Wait::Limited,
        _ => Wait::Endless,
    };
    Some((wait, position))
}

/// Whether a thread waits for a lock. It may hold others, of whatever code, and one that the call needs would never be
/// released: an allocator that is linked into a program may be unknown.
///
/// A contended lock of glibc has the value 2, and so do those of many other libraries. Condition variables, semaphores and
/// `pthread_join` wait with `FUTEX_WAIT_BITSET`.
pub(crate) fn waits_for_a_lock(call: &SystemCall, library: &Library) -> bool {
    const FUTEX_LOCK_PI2: i32 = 13;
    let [_, operation, value, ..] = call.arguments;
    let lock = match operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT => value as u32 == 2,
        libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => true,
        _ => false,
    };
    call.number == libc::SYS_futex && lock && library.allocates()
}

/// The kernel's `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND` and `ERESTART_RESTARTBLOCK`, which user code never
/// sees.
const RESTART: [i64; 4] = [-512, -513, -514, -516];

/// How an interrupted system call goes on.
#[derive(Clone, Debug)]
pub(crate) struct Return {
    /// For the signal frame: the system call is repeated from its beginning.
    pub alone: Registers,
    /// For the tracer: the kernel restarts it and knows the time that is left.
    pub traced: Registers,
}

impl Return {
    /// Takes the registers of a thread that was interrupted by us, with no signal pending.
    pub fn to(registers: &Registers) -> Self {
        let result = registers.rax as i64;
        let mut repeated = *registers;
        repeated.rax = registers.orig_rax;
        repeated.rip = registers.rip.wrapping_sub(2);
        repeated.orig_rax = u64::MAX;
        match result {
            _ if RESTART.contains(&result) => Return { alone: repeated, traced: *registers },
            _ if result == -i64::from(libc::EINTR) && WAITING.contains(&(registers.orig_rax as i64)) => {
                Return { alone: repeated, traced: repeated }
            }
            _ => Return { alone: *registers, traced: *registers },
        }
    }
}

/// Returns why a stopped thread is not at a safe point, or nothing if it is.
pub(crate) fn why_unsafe(
    registers: &Registers,
    library: &Library,
    mappings: &[Mapping],
    read: impl Fn(u64, &mut [u8]) -> bool,
) -> Option<&'static str> {
    if registers.cs != CODE_SEGMENT {
        return Some("a thread runs 32-bit code");
    }
    let mut code = [0; 2];
    let waits = WAITING.contains(&(registers.orig_rax as i64));
    if !waits || !read(registers.rip.wrapping_sub(2), &mut code) || code != [0x0f, 0x05] {
        return Some("a thread was running, not waiting");
    }
    let sp = registers.rsp;
    let Some(stack) = mappings.iter().find(|mapping| mapping.contains(sp)) else {
        return Some("a thread's stack is unknown");
    };
    // glibc and musl put a thread's descriptor, to which fs points, at the upper end of its stack.
    let own = stack.contains(registers.fs_base) && sp < registers.fs_base;
    if !stack.writable || stack.shared || !(own || stack.name == "[stack]") {
        return Some("a thread uses a stack of its own making, such as a coroutine's or a signal handler's");
    }
    if sp - stack.start < ROOM {
        return Some("a thread has little stack left");
    }
    let end = if own { registers.fs_base } else { stack.end };
    let mut bytes = vec![0; usize::try_from((end - sp).min(MAX_STACK)).unwrap_or(0) & !7];
    if !read(sp, &mut bytes) {
        return Some("a thread's stack cannot be read");
    }
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let in_handler = words
        .iter()
        .enumerate()
        .any(|(index, word)| *word == library.restorer && Frame::looks_real(&words[index..], sp + 8 * index as u64));
    if in_handler {
        return Some("a thread was in a signal handler");
    }
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    let call = SystemCall { number: registers.orig_rax as i64, arguments: [rdi, rsi, rdx, r10, r8, r9] };
    if waits_for_a_lock(&call, library) {
        return Some("a thread was waiting for a lock");
    }
    let called = |address: u64| follows_a_call(address, &read);
    let allocates = |address: &u64| library.allocators.iter().any(|code| code.contains(address));
    let innermost = &words[..words.len().min(INNERMOST_ALLOCATOR)];
    // Whatever it waits for: allocators also sleep until a lock is free.
    if library.allocates()
        && (allocates(&registers.rip) || innermost.iter().any(|word| allocates(word) && called(*word)))
    {
        return Some("a thread was in the memory allocator");
    }
    if call.number == libc::SYS_futex {
        let innermost = &words[..words.len().min(INNERMOST)];
        if let Some(loader) = &library.loader
            && innermost.iter().any(|word| loader.contains(word) && called(*word))
        {
            return Some("a thread was in the dynamic loader");
        }
        let locking = |word: &u64| library.locking.iter().any(|function| function.contains(word));
        if innermost.iter().any(|word| locking(word) && called(*word)) {
            return Some("a thread was in the memory allocator or the loader");
        }
    }
    None
}

/// Returns whether an address may be a return address.
fn follows_a_call(address: u64, read: impl Fn(u64, &mut [u8]) -> bool) -> bool {
    let mut code = [0; 7];
    if !read(address.wrapping_sub(7), &mut code) {
        return false;
    }
    let indirect = |at: usize| code[at] == 0xff && code[at + 1] >> 3 & 7 == 2;
    code[2] == 0xe8 || [5, 4, 1, 0].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64, arguments: [u64; 6]) -> Option<(Wait, usize)> {
        rank(&SystemCall { number, arguments })
    }

    /// Check that calls without a time limit come first, and that partial or other calls are not interrupted.
    #[test]
    fn endless_waits_come_first() {
        let endless = call(libc::SYS_poll, [0, 1, 0xffff_ffff, 0, 0, 0]);
        let limited = call(libc::SYS_futex, [0, 0, 0, 0x7f00, 0, 0]);
        assert!(endless < limited, "{endless:?} {limited:?}");
        assert_eq!(call(libc::SYS_futex, [0; 6]), Some((Wait::Endless, 0)));
        let epoll = call(libc::SYS_epoll_wait, [3, 0, 1, u64::MAX, 0, 0]);
        assert_eq!(epoll, Some((Wait::NotRestarted, RESTARTED)));
        assert!(limited < epoll);
        assert_eq!(call(libc::SYS_recvfrom, [3, 0, 10, libc::MSG_WAITALL as u64, 0, 0]), None);
        assert!(call(libc::SYS_recvfrom, [3, 0, 10, 0, 0, 0]).is_some());
        assert_eq!(call(libc::SYS_write, [0; 6]), None);
    }

    /// Check that a thread that waits for a lock is recognised, and that one that waits for a condition or a time is not.
    #[test]
    fn waits_for_locks_are_recognised() {
        let mut glibc = Library::default();
        glibc.loader = Some(0..1);
        let futex = |operation: i32, value| SystemCall {
            number: libc::SYS_futex,
            arguments: [0x7f00, operation as u64, value, 0, 0, 0],
        };
        let private = libc::FUTEX_PRIVATE_FLAG;
        assert!(waits_for_a_lock(&futex(libc::FUTEX_WAIT | private, 2), &glibc));
        assert!(waits_for_a_lock(&futex(libc::FUTEX_LOCK_PI, 0), &glibc));
        assert!(!waits_for_a_lock(&futex(libc::FUTEX_WAIT_BITSET | private | libc::FUTEX_CLOCK_REALTIME, 2), &glibc));
        assert!(!waits_for_a_lock(&futex(libc::FUTEX_WAIT | private, 0), &glibc));
        assert!(
            !waits_for_a_lock(&futex(libc::FUTEX_WAIT | private, 2), &Library::default()),
            "musl allocates nothing"
        );
        let sleep = SystemCall { number: libc::SYS_nanosleep, arguments: [0, 0, 2, 0, 0, 0] };
        assert!(!waits_for_a_lock(&sleep, &glibc));
    }

    /// Check how each result of an interrupted system call goes on.
    #[test]
    fn interrupted_calls_are_repeated() {
        // SAFETY: all fields are integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.rip, registers.orig_rax) = (0x1002, 202);
        let mut result = |rax: i64| {
            registers.rax = rax as u64;
            let back = Return::to(&registers);
            let traced = (back.traced.rip, back.traced.rax as i64);
            ((back.alone.rip, back.alone.rax as i64), traced)
        };
        assert_eq!(result(-512), ((0x1000, 202), (0x1002, -512)), "the kernel restarts it after the tracer's stop");
        assert_eq!(result(-516), ((0x1000, 202), (0x1002, -516)), "with the time that is left");
        assert_eq!(result(-4), ((0x1000, 202), (0x1000, 202)), "EINTR is not for the program");
        assert_eq!(result(0), ((0x1002, 0), (0x1002, 0)), "it has just returned");
    }

    /// Check that return addresses are recognised.
    #[test]
    fn return_addresses_follow_calls() {
        let follows = |code: [u8; 7]| {
            follows_a_call(7, |_, bytes| {
                bytes.copy_from_slice(&code);
                true
            })
        };
        assert!(follows([0x90, 0x90, 0xe8, 1, 2, 3, 4]));
        assert!(follows([0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]), "call *%rax");
        assert!(follows([0x90, 0xff, 0x15, 1, 2, 3, 4]), "call *n(%rip)");
        assert!(!follows([0x90; 7]));
        assert!(!follows_a_call(0, |_, _| false));
    }
}
