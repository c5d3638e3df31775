//! Finds the cheapest place in a function where a probe sees every call, once, with arguments and stack unchanged since
//! the call.
//!
//! From the entry on, instructions are skipped while they are harmless: they change neither the stack pointer, nor
//! memory, nor a register that may hold an argument or belong to the caller, and they cannot fault on what the caller
//! passed. Of all the instructions reached this way, the cheapest is used, the first one of several. The return address
//! is still at `[rsp]` there, so return probes and stack arguments work as at the entry.
//!
//! A loop could return to a place after the entry, and the probe would count iterations instead of calls: if any branch
//! of the function goes there, or could, the entry is used.
//!
//! Drivers up to 535 begin their functions with `cmp; je; jmp *slot`: there the `je` is used. An emulated instruction
//! costs a tenth of a single-stepped one.

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
    UsedMemory, UsedRegister,
};

const PAGE: u64 = 4096;
/// The maximum distance of a site from the entry. Real prologues need 14 bytes.
const REACH: u64 = 64;
/// The only 5-byte nop that the kernel turns into a call.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// The cost of a hit, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cost {
    /// A 5-byte nop within one page: from Linux 6.18 on the kernel replaces it with a call, without a trap. Earlier
    /// kernels single-step it.
    Nop5,
    /// The kernel emulates the instruction, after a trap.
    Emulated,
    /// A trap, then the instruction runs out of line in single-step mode: ten times the cost.
    Stepped,
    /// The kernel rejects a probe there, and with it a whole `uprobe_multi` link: skip the function.
    Refused,
}

/// Where to place a function's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset in the file.
    pub offset: u64,
    /// The cost of a hit.
    pub cost: Cost,
}

/// Selects the site in a function's `code`, whose first byte has this virtual address: returns its distance from the
/// entry and its cost.
///
/// `code` is the whole function, because a branch anywhere in it matters.
pub fn choose(code: &[u8], address: u64) -> (u64, Cost) {
    let reached = reach(code, address);
    let best = reached.iter().copied().min_by_key(|&(delta, cost)| (cost, delta));
    let best = best.filter(|&(delta, _)| delta == 0 || !may_jump_back(code, address, delta));
    best.or(reached.first().copied()).unwrap_or((0, Cost::Refused))
}

/// Returns the cost of a probe on the very first instruction.
pub(crate) fn at_entry(code: &[u8], address: u64) -> Cost {
    reach(code, address).first().map_or(Cost::Refused, |&(_, cost)| cost)
}

/// Returns the instructions that every call runs before anything relevant changes, each with its cost.
fn reach(code: &[u8], address: u64) -> Vec<(u64, Cost)> {
    let mut reached = Vec::new();
    let mut facts = InstructionInfoFactory::new();
    let mut only_endbr = true;
    for instruction in decoder(code, address).iter() {
        let delta = instruction.ip().wrapping_sub(address);
        let bytes = code.get(delta as usize..delta as usize + instruction.len()).unwrap_or_default();
        if instruction.is_invalid() || delta > REACH {
            break;
        }
        // A call this early is a profiler's hook, `call __fentry__`, and belongs to the entry.
        if bytes[0] == 0xe8 && !only_endbr {
            break;
        }
        reached.push((delta, cost(bytes, &instruction)));
        if !harmless(&instruction, &mut facts) {
            break;
        }
        only_endbr &= instruction.code() == Code::Endbr64;
    }
    reached
}

fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

fn cost(bytes: &[u8], instruction: &Instruction) -> Cost {
    if bytes == NOP5 && instruction.ip() % PAGE + 5 <= PAGE {
        Cost::Nop5
    } else if emulated(bytes) {
        Cost::Emulated
    } else if refused(bytes, instruction) {
        Cost::Refused
    } else {
        Cost::Stepped
    }
}

/// Whether every kernel emulates it. Prefixes other than the one that `push %r8` to `%r15` need make the kernel
/// single-step or reject it.
fn emulated(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x90 | 0x50..=0x57]
            | [0x41, 0x50..=0x57]
            | [0xeb | 0x70..=0x7f, _]
            | [0xe8 | 0xe9, _, _, _, _]
            | [0x0f, 0x80..=0x8f, _, _, _, _]
    )
}

/// Whether uprobes reject it: some prefixes, privileged instructions, and those that debuggers use. Tested on Linux
/// 6.18.
fn refused(bytes: &[u8], instruction: &Instruction) -> bool {
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = &bytes[..bytes.iter().take_while(is_prefix).count()];
    prefixes.iter().any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
        // Processors differ in what these do.
        || prefixes.contains(&0x66) && is_branch(instruction)
        // Some of the vector encodings are accepted, by accident of their opcode byte.
        || instruction.encoding() != EncodingKind::Legacy
        // Writes to the stack segment delay the trap that ends a single step.
        || instruction.op0_register() == Register::SS
        || instruction.flow_control() == FlowControl::Interrupt
        || instruction.is_privileged()
}

/// Whether a call looks the same to a probe after this instruction as before it.
fn harmless(instruction: &Instruction, facts: &mut InstructionInfoFactory) -> bool {
    let facts = facts.info(instruction);
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_privileged()
        && facts.used_registers().iter().all(|used| !writes(used.access()) || spare(used))
        && facts.used_memory().iter().all(safe)
}

fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// Neither an argument nor the caller's: %rax and %r11, and vector registers, which probes cannot read. Not %r10, which
/// may be a static chain.
fn spare(used: &UsedRegister) -> bool {
    let register = used.register();
    matches!(register.full_register(), Register::RAX | Register::R11)
        || !(register.is_gpr() || register.is_segment_register())
}

/// Whether it reads the library's own or the thread's memory. A read through an argument could fault, and the call
/// would be missed.
fn safe(used: &UsedMemory) -> bool {
    match used.access() {
        OpAccess::NoMemAccess | OpAccess::None => true,
        OpAccess::Read | OpAccess::CondRead => {
            matches!(used.base(), Register::None | Register::RIP) && used.index() == Register::None
        }
        _ => false,
    }
}

/// Whether the function may jump to a place after its entry, up to and including `delta`, or its code cannot be
/// decoded.
fn may_jump_back(code: &[u8], address: u64, delta: u64) -> bool {
    // There is no label before a push that builds the frame, so jump tables cannot lead there.
    let tables_matter = !matches!(code.get(delta as usize..), Some([0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..]));
    decoder(code, address).iter().any(|instruction| {
        let by_table = || instruction.is_jmp_near_indirect() && !instruction.is_ip_rel_memory_operand();
        instruction.is_invalid()
            || (1..=delta).contains(&instruction.near_branch_target().wrapping_sub(address)) && is_branch(&instruction)
            || tables_matter && by_table()
    })
}

/// Whether the first operand is a jump target: jumps, calls, loops, transactions.
fn is_branch(instruction: &Instruction) -> bool {
    use iced_x86::OpKind::{NearBranch16, NearBranch32, NearBranch64};
    matches!(instruction.op0_kind(), NearBranch16 | NearBranch32 | NearBranch64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const RET: u8 = 0xc3;

    /// Returns the site in code composed of pieces, at an address where nothing crosses a page boundary.
    fn site(pieces: &[&[u8]]) -> (u64, Cost) {
        choose(&pieces.concat(), 0x1000)
    }

    /// Check that every instruction the kernel emulates is chosen if it comes first.
    #[test]
    fn emulated_instructions_are_chosen() {
        for first in [
            &[0x55][..],
            &[0x54],
            &[0x41, 0x57],
            &[0x90],
            &[0xeb, 0x10],
            &[0xe9, 1, 2, 3, 0],
            &[0x74, 0x10],
            &[0x0f, 0x84, 1, 2, 3, 0],
            &[0xe8, 1, 2, 3, 0],
        ] {
            assert_eq!(site(&[first, &[RET]]), (0, Cost::Emulated), "{first:x?}");
            assert_eq!(site(&[&ENDBR, first, &[RET]]), (4, Cost::Emulated), "endbr64, {first:x?}");
        }
    }

    /// Check the driver's stub: the conditional jump behind a comparison with the library's own memory.
    #[test]
    fn the_drivers_stub() {
        let compare = [0x81, 0x3d, 0x10, 0x20, 0x30, 0x00, 0x00, 0xba, 0x1c, 0x32];
        let rest = [0x74, 0x06, 0xff, 0x25, 0, 1, 2, 0, 0xb8, 4, 0, 0, 0, RET];
        assert_eq!(site(&[&compare, &rest]), (10, Cost::Emulated));
        assert_eq!(site(&[&ENDBR, &compare, &rest]), (14, Cost::Emulated));
    }

    /// Check that 5-byte nops are preferred, except for those across two pages.
    #[test]
    fn nops_are_preferred() {
        assert_eq!(site(&[&NOP5, &[RET]]), (0, Cost::Nop5));
        assert_eq!(site(&[&ENDBR, &NOP5, &[0x55, RET]]), (4, Cost::Nop5));
        assert_eq!(site(&[&[0x90], &NOP5, &[RET]]), (1, Cost::Nop5), "better than the nop before it");
        let code = [&NOP5[..], &[0x55, RET]].concat();
        assert_eq!(choose(&code, 0x1ffb), (0, Cost::Nop5), "up to the page's end");
        assert_eq!(choose(&code, 0x1ffc), (5, Cost::Emulated), "across two pages");
        assert_eq!(site(&[&[0x0f, 0x1f, 0x40, 0x00], &[0x55, RET]]), (4, Cost::Emulated), "other nops are skipped");
        assert_eq!(site(&[&[0x66, 0x90], &[RET]]), (0, Cost::Stepped));
    }

    /// Check that no instruction is skipped that changes what a probe would see.
    #[test]
    fn harmful_instructions_end_the_walk() {
        for first in [
            &[0x48, 0x83, 0xec, 0x18][..],   // sub $24,%rsp
            &[0x48, 0x8d, 0x64, 0x24, 0xf8], // lea -8(%rsp),%rsp
            &[0x48, 0x89, 0xf7],             // mov %rsi,%rdi
            &[0x31, 0xf6],                   // xor %esi,%esi
            &[0x40, 0xb7, 0x01],             // mov $1,%dil
            &[0x31, 0xd2],                   // xor %edx,%edx
            &[0xb5, 0x01],                   // mov $1,%ch
            &[0x45, 0x31, 0xc0],             // xor %r8d,%r8d
            &[0x45, 0x31, 0xc9],             // xor %r9d,%r9d
            &[0x4c, 0x8b, 0x15, 0, 1, 0, 0], // mov x(%rip),%r10
            &[0x48, 0x89, 0xe5],             // mov %rsp,%rbp
            &[0x31, 0xdb],                   // xor %ebx,%ebx
            &[0x89, 0x05, 0, 1, 0, 0],       // mov %eax,x(%rip)
            &[0x48, 0x89, 0x5c, 0x24, 0xe8], // mov %rbx,-24(%rsp)
            &[0x8b, 0x07],                   // mov (%rdi),%eax: may fault
            &[0xff, 0x15, 0, 1, 0, 0],       // call *x(%rip)
            &[0x0f, 0x05],                   // syscall
            &[0x0f, 0xa2],                   // cpuid: writes %ecx
            &[0xf3, 0xa4],                   // rep movsb
            &[RET],
        ] {
            assert_eq!(site(&[first, &[0x55, RET]]), (0, Cost::Stepped), "{first:x?}");
        }
    }

    /// Check that instructions are skipped that only change spare registers and flags.
    #[test]
    fn harmless_instructions_are_skipped() {
        for first in [
            &[0x31, 0xc0][..],                            // xor %eax,%eax
            &[0x48, 0x89, 0xf8],                          // mov %rdi,%rax
            &[0x49, 0x89, 0xd3],                          // mov %rdx,%r11
            &[0x48, 0x85, 0xff],                          // test %rdi,%rdi
            &[0x48, 0x8b, 0x05, 0, 1, 0, 0],              // mov x(%rip),%rax
            &[0x48, 0x8d, 0x05, 0, 1, 0, 0],              // lea x(%rip),%rax
            &[0x48, 0x8d, 0x04, 0x37],                    // lea (%rdi,%rsi),%rax
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 40, 0, 0, 0], // mov %fs:40,%rax
            &[0x66, 0x0f, 0xef, 0xc0],                    // pxor %xmm0,%xmm0
        ] {
            assert_eq!(site(&[first, &[0x55, RET]]), (first.len() as u64, Cost::Emulated), "{first:x?}");
        }
        let far = [0x31, 0xc0].repeat(40);
        assert_eq!(site(&[&far, &[0x55, RET]]), (0, Cost::Stepped), "only up to a limit");
        assert_eq!(
            site(&[&[0x31, 0xc0], &[0xe8, 1, 2, 3, 0], &[RET]]),
            (0, Cost::Stepped),
            "a call belongs to the entry"
        );
    }

    /// Check that a site in a loop is not used, wherever the backward branch is.
    #[test]
    fn sites_in_loops_are_not_used() {
        // xor %eax,%eax; 2: test %edi,%edi; je end; dec %edi; jmp 2b
        let to_test = [0x31, 0xc0, 0x85, 0xff, 0x74, 0x04, 0xff, 0xcf, 0xeb, 0xf8, RET];
        assert_eq!(site(&[&to_test]), (0, Cost::Stepped));
        let mut to_site = to_test;
        to_site[9] = 0xfa;
        assert_eq!(site(&[&to_site]), (0, Cost::Stepped));
        let mut to_entry = to_test;
        to_entry[9] = 0xf6;
        assert_eq!(site(&[&to_entry]), (4, Cost::Emulated), "a probe on the entry would see these iterations too");
        let mut behind = to_test;
        behind[9] = 0xfc;
        assert_eq!(site(&[&behind]), (4, Cost::Emulated));
        // endbr64; push; 300 nops; jmp to the push, near
        let back = (-306_i32).to_le_bytes();
        assert_eq!(site(&[&ENDBR, &[0x55], &[0x90; 300], &[0xe9], &back]), (0, Cost::Stepped));
    }

    /// Check that a jump table rules out a branch as a site, and another function's slot or a push does not.
    #[test]
    fn jump_tables_rule_out_branches() {
        let test = [0x85, 0xff, 0x74, 0x10];
        assert_eq!(site(&[&test, &[0xff, 0xe0]]), (0, Cost::Stepped), "jmp *%rax");
        assert_eq!(site(&[&test, &[0xff, 0x24, 0xc5, 0, 1, 0, 0]]), (0, Cost::Stepped), "jmp *table(,%rax,8)");
        assert_eq!(site(&[&test, &[0xff, 0x25, 0, 1, 0, 0]]), (2, Cost::Emulated), "jmp *slot(%rip)");
        assert_eq!(site(&[&ENDBR, &[0x55], &[0xff, 0xe0]]), (4, Cost::Emulated));
    }

    /// Check that instructions the kernel rejects are not chosen, and reported if there is no alternative.
    #[test]
    fn rejected_instructions_are_not_chosen() {
        for first in [
            &[0xf0, 0xff, 0x05, 0, 1, 0, 0][..], // lock incl x(%rip)
            &[0x2e, 0x74, 0x10],                 // cs je
            &[0x3e, 0xff, 0xe0],                 // notrack jmp *%rax
            &[0xcc],                             // int3
            &[0xf4],                             // hlt
            &[0x66, 0x74, 0x10],                 // data16 je
            &[0x8e, 0xd0],                       // mov %eax,%ss
            &[0xec],                             // in
            &[0xc5, 0xf8, 0x77],                 // vzeroupper
        ] {
            assert_eq!(site(&[first]).1, Cost::Refused, "{first:x?}");
        }
        let vpxor = [0xc5, 0xf9, 0xef, 0xc0]; // vpxor %xmm0,%xmm0,%xmm0
        assert_eq!(site(&[&vpxor, &[RET]]), (4, Cost::Stepped), "the next best");
        for first in [&[0x0f, 0x0b][..], &[0xf3, 0x48, 0x0f, 0xb8, 0xc7], &[0x66, 0x0f, 0x38, 0x00, 0xc1]] {
            assert_eq!(site(&[first, &[RET]]), (0, Cost::Stepped), "{first:x?}: ud2, popcnt and pshufb are accepted");
        }
    }

    /// Check that empty code, a truncated instruction and invalid code are rejected, and that code after the site must
    /// be valid.
    #[test]
    fn invalid_code_is_rejected() {
        assert_eq!(choose(&[], 0), (0, Cost::Refused));
        assert_eq!(choose(&[0x55], u64::MAX), (0, Cost::Emulated));
        assert_eq!(choose(&[0x0f], 0), (0, Cost::Refused));
        assert_eq!(choose(&[0xe9, 0, 0], 0), (0, Cost::Refused));
        assert_eq!(choose(&[0x06, 0x55], 0), (0, Cost::Refused));
        assert_eq!(site(&[&ENDBR, &[0x55, 0x06, RET]]), (0, Cost::Stepped), "invalid code: use the entry");
        assert_eq!(choose(&[0xff; 100], u64::MAX - 10), (0, Cost::Refused));
    }

    /// Check that for all bytes and addresses, the site is within the code.
    #[test]
    fn sites_are_within_the_code() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..100_000 {
            let code: Vec<u8> = (0..random() % 40).map(|_| random() as u8).collect();
            let address = (random() as u64) << (random() % 34);
            let (delta, cost) = choose(&code, address);
            assert!(delta == 0 || delta < code.len() as u64);
            assert!(cost == Cost::Refused || !code.is_empty());
        }
    }
}
