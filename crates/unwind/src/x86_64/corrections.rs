//! Corrects missing and wrong rules in the system's libraries. They are recognised by their rows and their code
//! together; few rows look like them, so hardly any code is read.
//!
//! - Where a thread is created, the new thread has no caller, and its creator has one.
//! - libgcc overwrites its own frame between a throw and a catch: a walk ends there rather than give a wrong result.
//! - A program's first function has no caller, whatever its rules say.

use crate::{Cfa, Row};

/// Reads a number of bytes of code from a row's pc.
type Code<'a> = &'a dyn Fn(u32, u32) -> Option<Vec<u8>>;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov %rcx,%rsp`
const LAND: [u8; 3] = [0x48, 0x89, 0xcc];
const CALL: u8 = 0xe8;
const RCX: u8 = 2;
/// More than libc has between the system call and the start of the thread.
const CALL_TO_THREAD: u32 = 64;
/// More than libgcc has between its last two calls and the landing.
const CALLS_TO_LANDING: u32 = 256;

/// `clone` and `clone3` end their rules at the system call, because they would be wrong in the new thread; its own
/// rules begin later, with no caller. In the creator the return address is still at rsp.
///
/// ```text
///   mov $435,%eax      rsp + 8
///   syscall            no rule        the creator's caller is at rsp; the thread, where rax is 0, has none
///   test %rax,%rax     no rule
///   jz thread          no rule
///   ret                no rule
///   thread: ...        end
/// ```
pub(super) fn new_threads(rows: &mut [Row], code: Code<'_>) {
    for index in 1..rows.len() {
        let (hole, thread) = (rows[index - 1], rows[index]);
        if hole.cfa() == Cfa::NoRule
            && thread.cfa() == Cfa::End
            && thread.pc - hole.pc <= CALL_TO_THREAD
            && code(hole.pc, 2).is_some_and(|code| code == SYSCALL)
        {
            rows[index - 1] = Row::thread(hole.pc);
        }
    }
}

/// A signal handler's trampoline ends with the system call that never returns, and so do its rules. During the system
/// call, the instruction about to run is the one after it.
pub(super) fn signal_returns(rows: &mut [Row], code: Code<'_>) {
    for index in 1..rows.len() {
        let (signal, hole) = (rows[index - 1], rows[index]);
        let longer = rows.get(index + 1).is_none_or(|next| next.pc > hole.pc + 1);
        if signal.cfa() == Cfa::Signal
            && hole.cfa() == Cfa::NoRule
            && longer
            && code(hole.pc - 2, 2).is_some_and(|code| code == SYSCALL)
        {
            rows[index].pc += 1;
        }
    }
}

/// libgcc's functions that throw end by jumping into the frame that catches. Before that they overwrite their own saved
/// registers and return address with those of that frame: from then on the caller is unknown, and the rules are wrong.
///
/// ```text
///   call uw_install_context_1      overwrites
///   call _Unwind_DebugHook
///   ...
///   mov %rcx,%rsp                  CFA = rcx + 8: the landing
/// ```
pub(super) fn landings(rows: &mut Vec<Row>, code: Code<'_>) {
    let landing = |row: &&Row| row.cfa() == Cfa::Register(RCX, 8) && code(row.pc, 3).is_some_and(|code| code == LAND);
    let landings: Vec<u32> = rows.iter().filter(landing).map(|row| row.pc).collect();
    for landing in landings {
        let Some(before) = landing.checked_sub(CALLS_TO_LANDING) else { continue };
        let Some(code) = code(before, CALLS_TO_LANDING) else { continue };
        let calls = (0..code.len().saturating_sub(4)).rev().filter(|&at| is_near_call(&code[at..], before + at as u32));
        let Some(overwriting) = calls.take(2).last() else { continue };
        let from = before + overwriting as u32;
        rows.retain(|row| !(from..landing).contains(&row.pc));
        let place = rows.partition_point(|row| row.pc < from);
        rows.insert(place, Row::unsupported(from));
    }
}

/// Whether there is a call of a nearby function.
fn is_near_call(code: &[u8], pc: u32) -> bool {
    let [CALL, a, b, c, d, ..] = *code else { return false };
    let distance = i32::from_le_bytes([a, b, c, d]);
    distance.unsigned_abs() < 1 << 20 && pc.checked_add_signed(distance).is_some()
}
