//! Names of kernels from the code that registers them, for files without symbols.
//!
//! nvcc generates a constructor that calls `__cudaRegisterFunction(handle, host function, name, name, ...)` for each kernel.
//! Its second and fourth arguments are addresses in the file, so an instruction that loads the host function's address
//! identifies the call, whether the CUDA runtime is linked statically or not:
//!
//! ```text
//!   lea  name(%rip), %rdx       the third argument
//!   mov  %rdx, %rcx             the fourth
//!   lea  stub(%rip), %rsi       the second
//!   call __cudaRegisterFunction
//! ```

use std::{collections::HashMap, fs::File};

use elf::{Bytes, Elf};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The section that nvcc adds to every file with kernels.
const MARK: &str = ".nvFatBinSegment";
/// The longest name of a kernel that is read.
const LONGEST: u64 = 8192;
/// The most bytes and instructions of the code that loads the arguments.
const WINDOW: usize = 96;
const INSTRUCTIONS: usize = 32;

/// Returns the names of the kernels whose host functions have these addresses, as the symbols of their host functions would
/// be; `None` for other addresses. Reads at most `budget` bytes of code.
pub(crate) fn names(file: &File, elf: &Elf, addresses: &[u64], budget: u64) -> Vec<Option<String>> {
    let mut found = vec![None; addresses.len()];
    if addresses.is_empty() || elf.section(MARK).is_none() {
        return found;
    }
    let wanted: HashMap<u64, usize> = addresses.iter().copied().zip(0..).collect();
    let mut left = budget;
    for segment in elf.segments.executable() {
        let Some(rest) = left.checked_sub(segment.file_size) else { break };
        left = rest;
        let Ok(code) = elf::read(file, segment.offset, segment.file_size, "code") else { continue };
        for (stub, name) in registrations(&code, segment.address, &|address| wanted.contains_key(&address)) {
            if let (Some(place), Some(name)) = (wanted.get(&stub), text(file, elf, name)) {
                found[*place] = Some(format!("__device_stub_{}{name}", if name.starts_with("_Z") { "" } else { "_" }));
            }
        }
    }
    found
}

/// Reads a name: printable characters that end in 0.
fn text(file: &File, elf: &Elf, address: u64) -> Option<String> {
    let (offset, left) = elf.segments.offset_of_vaddr(address)?;
    let mut bytes = vec![0; left.min(LONGEST) as usize];
    let read = Bytes::read_at(file, &mut bytes, offset);
    let name = bytes[..read].split(|byte| *byte == 0).next().filter(|name| name.len() < read)?;
    let printable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(name).into_owned())
}

/// Finds the calls that register wanted host functions: the function's address, and the address of the kernel's name.
fn registrations(code: &[u8], address: u64, wanted: &dyn Fn(u64) -> bool) -> Vec<(u64, u64)> {
    let starts = (0..code.len()).filter(|at| loads_second(&code[*at..]));
    let known = starts.filter_map(|at| {
        let stub = arguments(code, address, at).second.filter(|stub| wanted(*stub))?;
        // The name may have been loaded before or after.
        let starts = (at.saturating_sub(WINDOW)..at).rev().filter(|start| loads_third(&code[*start..]));
        [at].into_iter().chain(starts).find_map(|start| {
            let found = arguments(code, address, start);
            let is_call = found.called && found.second == Some(stub) && found.third == found.fourth;
            Some((stub, found.third.filter(|_| is_call)?))
        })
    });
    known.collect()
}

/// Whether the code begins with `lea X(%rip), %rsi` or `mov $X, %esi`.
fn loads_second(code: &[u8]) -> bool {
    code.starts_with(&[0x48, 0x8d, 0x35]) || code.first() == Some(&0xbe)
}

/// Whether the code begins with `lea X(%rip), %rdx` or `mov $X, %edx`.
fn loads_third(code: &[u8]) -> bool {
    code.starts_with(&[0x48, 0x8d, 0x15]) || code.first() == Some(&0xba)
}

/// What is known of a call's arguments.
#[derive(Default)]
struct Arguments {
    second: Option<u64>,
    third: Option<u64>,
    fourth: Option<u64>,
    /// The code ends in a call.
    called: bool,
}

/// Follows the code from `start` to the next call.
fn arguments(code: &[u8], address: u64, start: usize) -> Arguments {
    let end = code.len().min(start + 2 * WINDOW);
    let mut known = Arguments::default();
    let mut decoder = Decoder::with_ip(64, &code[start..end], address + start as u64, DecoderOptions::NONE);
    for instruction in decoder.iter().take(INSTRUCTIONS) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                known.called = true;
                break;
            }
            _ => break,
        }
        let loaded = loaded(&instruction, &known);
        match instruction.op0_register().full_register() {
            Register::RSI => known.second = loaded,
            Register::RDX => known.third = loaded,
            Register::RCX => known.fourth = loaded,
            _ => {}
        }
    }
    known
}

/// Returns the address that an instruction loads, if it is known.
fn loaded(instruction: &Instruction, known: &Arguments) -> Option<u64> {
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Lea, OpKind::Memory) if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        (Mnemonic::Mov, OpKind::Immediate32) => Some(instruction.immediate32().into()),
        (Mnemonic::Mov, OpKind::Register) => match instruction.op1_register().full_register() {
            Register::RDX => known.third,
            Register::RCX => known.fourth,
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends an instruction with a 32-bit distance to `target`.
    fn relative(code: &mut Vec<u8>, bytes: &[u8], target: i64) {
        code.extend(bytes);
        let distance = target - (0x1000 + code.len() as i64 + 4);
        code.extend((distance as i32).to_le_bytes());
    }

    /// Two calls as nvcc 13.0 and GCC generate them, the arguments in different orders; and code that loads a function's
    /// address for another purpose.
    #[test]
    fn registrations_are_found() {
        let mut code = vec![0x6a, 0];
        relative(&mut code, &[0x48, 0x8d, 0x15], 0x9000);
        code.extend([0x48, 0x89, 0xc7, 0x48, 0x89, 0xc3, 0x6a, 0, 0x48, 0x89, 0xd1]);
        relative(&mut code, &[0x48, 0x8d, 0x35], 0x1610);
        code.extend([0x6a, 0]);
        relative(&mut code, &[0x48, 0x89, 0x05], 0x5068);
        relative(&mut code, &[0xe8], 0x800);
        code.extend([0x48, 0x83, 0xc4, 0x20, 0x48, 0x89, 0xdf, 0x45, 0x31, 0xc9]);
        relative(&mut code, &[0x48, 0x8d, 0x35], 0x1760);
        relative(&mut code, &[0x48, 0x8d, 0x0d], 0x9100);
        code.extend([0x48, 0x89, 0xca]);
        relative(&mut code, &[0xe8], 0x800);
        // The address of the same function, without a name.
        relative(&mut code, &[0x48, 0x8d, 0x35], 0x1760);
        relative(&mut code, &[0xe8], 0x900);
        let found = registrations(&code, 0x1000, &|address| [0x1610, 0x1760].contains(&address));
        assert_eq!(found, [(0x1610, 0x9000), (0x1760, 0x9100)]);
        assert!(registrations(&code, 0x1000, &|address| address == 0x1234).is_empty());
        for length in 0..code.len() {
            registrations(&code[..length], 0x1000, &|_| true);
        }
    }

    /// Absolute addresses, as in programs that are not position-independent.
    #[test]
    fn absolute_addresses_are_found() {
        // mov $0x402000,%edx; mov %rdx,%rcx; mov $0x401100,%esi; call
        let code = [0xba, 0, 0x20, 0x40, 0, 0x48, 0x89, 0xd1, 0xbe, 0, 0x11, 0x40, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(registrations(&code, 0x40_1000, &|address| address == 0x40_1100), [(0x40_1100, 0x40_2000)]);
    }
}
