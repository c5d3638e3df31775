//! Where a function returns, and where it calls others by their address.
//!
//! A return probe of the kernel replaces the return address, and a C++ exception that leaves the function then terminates
//! the program. Probes on the return instructions themselves change nothing in the program.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// An instruction that calls the function whose address is in a register or in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectCall {
    /// Its distance from the function's entry.
    pub at: u64,
    /// The register, numbered as in DWARF.
    pub register: u8,
    /// The distance from the address in the register to the memory that has the function's address.
    pub memory: Option<i32>,
}

/// Returns the distances from the entry to the return instructions of a function with this code; `None` if it contains bytes
/// that are no instructions, so that some could be missing.
pub fn returns(code: &[u8]) -> Option<Vec<u64>> {
    found(code, |instruction| (instruction.flow_control() == FlowControl::Return).then(|| instruction.ip()))
}

/// Returns the instructions that call a function by its address, in the same way; without those that need two registers.
pub fn indirect_calls(code: &[u8]) -> Option<Vec<IndirectCall>> {
    found(code, |instruction| {
        let at = instruction.ip();
        match (instruction.flow_control(), instruction.op0_kind()) {
            (FlowControl::IndirectCall, OpKind::Register) => {
                Some(IndirectCall { at, register: number(instruction.op0_register())?, memory: None })
            }
            (FlowControl::IndirectCall, OpKind::Memory) if instruction.memory_index() == Register::None => {
                let memory = Some(instruction.memory_displacement64() as i32);
                Some(IndirectCall { at, register: number(instruction.memory_base())?, memory })
            }
            _ => None,
        }
    })
}

fn found<T>(code: &[u8], what: impl Fn(&Instruction) -> Option<T>) -> Option<Vec<T>> {
    let mut found = Vec::new();
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        if instruction.is_invalid() {
            return None;
        }
        found.extend(what(&instruction));
    }
    Some(found)
}

/// Returns the number of a 64-bit register in DWARF, which has another order than the instructions.
fn number(register: Register) -> Option<u8> {
    const NUMBERS: [Register; 16] = [
        Register::RAX,
        Register::RDX,
        Register::RCX,
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::RSP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    NUMBERS.iter().position(|numbered| *numbered == register).map(|number| number as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every return is found, also those with a prefix or an operand, and none in the bytes of another
    /// instruction.
    #[test]
    fn returns_are_found() {
        // push %rbx; mov $0xc3,%eax; je; pop %rbx; ret; pop %rbx; repz ret; ret $8
        let code = [0x53, 0xb8, 0xc3, 0, 0, 0, 0x74, 2, 0x5b, 0xc3, 0x5b, 0xf3, 0xc3, 0xc2, 8, 0];
        assert_eq!(returns(&code), Some(vec![9, 11, 13]));
        assert_eq!(returns(&[0x53, 0xe8, 0, 0]), None, "truncated");
        assert_eq!(returns(&[]), Some(vec![]));
    }
    /// Check that calls by address are found, those of a register and of memory, and no other calls or jumps.
    #[test]
    fn indirect_calls_are_found() {
        // call +0; mov %r14,%rdi; call *-0x50(%rbp); call *%rax; jmp *%rax; call *(%rax,%rcx,8); call *0(%rip)
        let code = [
            0xe8, 0, 0, 0, 0, 0x4c, 0x89, 0xf7, 0xff, 0x55, 0xb0, 0xff, 0xd0, 0xff, 0xe0, 0xff, 0x14, 0xc8, 0xff, 0x15,
            0, 0, 0, 0,
        ];
        let expected = [
            IndirectCall { at: 8, register: 6, memory: Some(-0x50) },
            IndirectCall { at: 11, register: 0, memory: None },
        ];
        assert_eq!(indirect_calls(&code), Some(expected.to_vec()));
    }
}
