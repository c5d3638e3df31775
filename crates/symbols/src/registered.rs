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

use std::{collections::HashMap, fs::File, ops::Range};

use elf::{Bytes, Elf};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use memchr::memchr2_iter;

/// The section that nvcc adds to every file with kernels.
const MARK: &str = ".nvFatBinSegment";
/// The longest name of a kernel that is read.
const LONGEST: u64 = 8192;
/// The most bytes and instructions of the code that loads the arguments.
const WINDOW: usize = 96;
const INSTRUCTIONS: usize = 32;
/// How much code is read at a time, and how much of it again with the next piece: a call may be at the border.
const PIECE: u64 = 4 << 20;
const MARGIN: u64 = 4 * WINDOW as u64;

/// Whether a file has kernels compiled by nvcc.
pub(crate) fn has_kernels(elf: &Elf) -> bool {
    elf.section(MARK).is_some()
}

/// Returns the names of the kernels whose host functions have these addresses, as the symbols of their host functions would
/// be; `None` for other addresses. Reads at most `budget` bytes of code.
pub(crate) fn names(file: &File, elf: &Elf, addresses: &[u64], budget: u64) -> Vec<Option<String>> {
    let mut found = vec![None; addresses.len()];
    if addresses.is_empty() || !has_kernels(elf) {
        return found;
    }
    let wanted: HashMap<Loaded, usize> = addresses.iter().copied().map(Loaded::Address).zip(0..).collect();
    let is_wanted = |function: Loaded| wanted.contains_key(&function);
    for (stub, name) in calls(file, elf, budget, &is_wanted, &|call| call.registration()) {
        if let (Some(place), Some(name)) = (wanted.get(&stub), stub_name(file, elf, name)) {
            found[*place] = Some(name);
        }
    }
    found
}

/// Reads the name of a kernel, and returns it as the symbol of its host function would be.
pub(crate) fn stub_name(file: &File, elf: &Elf, address: u64) -> Option<String> {
    Some(as_stub(&text(file, elf, address)?))
}

/// Returns the name of a kernel as the symbol of its host function would be.
pub(crate) fn as_stub(kernel: &str) -> String {
    format!("__device_stub_{}{kernel}", if kernel.starts_with("_Z") { "" } else { "_" })
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

/// Returns what `recognise` makes of the calls in a file that pass a wanted function as their second argument. Reads at most
/// `budget` bytes of code, in pieces.
pub(crate) fn calls<T>(
    file: &File,
    elf: &Elf,
    budget: u64,
    wanted: &dyn Fn(Loaded) -> bool,
    recognise: &dyn Fn(&Arguments) -> Option<T>,
) -> Vec<T> {
    let mut found = Vec::new();
    let mut left = budget;
    for segment in elf.segments.executable() {
        let Some(rest) = left.checked_sub(segment.file_size) else { break };
        left = rest;
        let mut start = 0;
        while start < segment.file_size {
            let end = segment.file_size.min(start + PIECE);
            let (from, to) = (start.saturating_sub(MARGIN), segment.file_size.min(end + MARGIN));
            let Ok(code) = elf::read(file, segment.offset.saturating_add(from), to - from, "code") else { break };
            let inside = (start - from) as usize..(end - from) as usize;
            found.extend(calls_in(&code, segment.address.wrapping_add(from), inside, wanted, recognise));
            start = end;
        }
    }
    found
}

/// The same for calls whose second argument is loaded by an instruction in `inside`.
fn calls_in<T>(
    code: &[u8],
    address: u64,
    inside: Range<usize>,
    wanted: &dyn Fn(Loaded) -> bool,
    recognise: &dyn Fn(&Arguments) -> Option<T>,
) -> Vec<T> {
    // The rarest byte of each instruction that `loads_second` accepts: libraries have a gigabyte of code.
    let rare = memchr2_iter(0x35, 0xbe, &code[inside.start..code.len().min(inside.end + 2)]);
    let places = rare.filter_map(|place| {
        let at = inside.start + place;
        if code[at] == 0xbe { Some(at) } else { at.checked_sub(2) }
    });
    let known = places.filter(|at| inside.contains(at)).filter_map(|at| {
        let function = loads_second(&code[at..], address.wrapping_add(at as u64)).filter(|loaded| wanted(*loaded))?;
        // The others may be loaded before it or after it.
        let starts = (at.saturating_sub(WINDOW)..at).rev().filter(|start| loads_other(&code[*start..]));
        [at].into_iter().chain(starts).find_map(|start| {
            let call = arguments(code, address, start);
            recognise(&call).filter(|_| call.called && call.second == Some(function))
        })
    });
    known.collect()
}

/// What an instruction loads into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loaded {
    /// An address in the file.
    Address(u64),
    /// The word at this address: that of a function which another file may replace.
    Word(u64),
}

/// Returns what the code loads if it begins with `lea X(%rip), %rsi`, `mov X(%rip), %rsi` or `mov $X, %esi`.
fn loads_second(code: &[u8], address: u64) -> Option<Loaded> {
    let number = |at: usize| Some(i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?));
    let relative = || Some(address.wrapping_add(7).wrapping_add_signed(number(3)?.into()));
    match code {
        [0x48, 0x8d, 0x35, ..] => relative().map(Loaded::Address),
        [0x48, 0x8b, 0x35, ..] => relative().map(Loaded::Word),
        [0xbe, ..] => Some(Loaded::Address(number(1)?.cast_unsigned().into())),
        _ => None,
    }
}

/// Whether the code begins with `lea X(%rip), %rdx` or `mov $X, %edx`, or the same with `%rdi`.
fn loads_other(code: &[u8]) -> bool {
    matches!(code, [0x48, 0x8d, 0x15 | 0x3d, ..] | [0xba | 0xbf, ..])
}

/// What is known of a call's arguments.
#[derive(Default)]
pub(crate) struct Arguments {
    first: Option<Loaded>,
    second: Option<Loaded>,
    third: Option<Loaded>,
    fourth: Option<Loaded>,
    /// The code ends in a call.
    called: bool,
}

impl Arguments {
    /// Returns the host function and the address of the name, if the call registers a kernel.
    pub(crate) fn registration(&self) -> Option<(Loaded, u64)> {
        match self.third {
            Some(Loaded::Address(name)) if self.third == self.fourth => Some((self.second?, name)),
            _ => None,
        }
    }

    /// Returns the function, and the address that is passed first.
    pub(crate) fn pair(&self) -> Option<(Loaded, u64)> {
        match self.first {
            Some(Loaded::Address(first)) => Some((self.second?, first)),
            _ => None,
        }
    }
}

/// Follows the code from `start` to the next call.
fn arguments(code: &[u8], address: u64, start: usize) -> Arguments {
    let end = code.len().min(start + 2 * WINDOW);
    let mut known = Arguments::default();
    let mut decoder = Decoder::with_ip(64, &code[start..end], address.wrapping_add(start as u64), DecoderOptions::NONE);
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
            Register::RDI => known.first = loaded,
            Register::RSI => known.second = loaded,
            Register::RDX => known.third = loaded,
            Register::RCX => known.fourth = loaded,
            _ => {}
        }
    }
    known
}

/// Returns what an instruction loads, if it is known.
fn loaded(instruction: &Instruction, known: &Arguments) -> Option<Loaded> {
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Lea, OpKind::Memory) if instruction.is_ip_rel_memory_operand() => {
            Some(Loaded::Address(instruction.ip_rel_memory_address()))
        }
        (Mnemonic::Mov, OpKind::Memory) if instruction.is_ip_rel_memory_operand() => {
            Some(Loaded::Word(instruction.ip_rel_memory_address()))
        }
        (Mnemonic::Mov, OpKind::Immediate32) => Some(Loaded::Address(instruction.immediate32().into())),
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

    fn registrations(code: &[u8], address: u64, wanted: &dyn Fn(u64) -> bool) -> Vec<(Loaded, u64)> {
        let wanted = |loaded| matches!(loaded, Loaded::Address(address) if wanted(address));
        calls_in(code, address, 0..code.len(), &wanted, &Arguments::registration)
    }

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
        assert_eq!(found, [(Loaded::Address(0x1610), 0x9000), (Loaded::Address(0x1760), 0x9100)]);
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
        let found = registrations(&code, 0x40_1000, &|address| address == 0x40_1100);
        assert_eq!(found, [(Loaded::Address(0x40_1100), 0x40_2000)]);
    }

    /// The calls by which nvcc 13's host functions get the handle of their kernel, compiled by GCC: position-independent, with
    /// a function that another file may replace, and with absolute addresses.
    #[test]
    fn places_of_handles_are_found() {
        let mut code = vec![0x0f, 0x1f, 0x40, 0];
        relative(&mut code, &[0x48, 0x8d, 0x35], 0x1610);
        relative(&mut code, &[0x48, 0x8d, 0x3d], 0x5010);
        relative(&mut code, &[0xe8], 0x800);
        relative(&mut code, &[0x48, 0x8d, 0x3d], 0x5018);
        relative(&mut code, &[0x48, 0x8b, 0x35], 0x4ff0);
        relative(&mut code, &[0xe8], 0x800);
        code.extend([0xbe, 0, 0x18, 0, 0, 0xbf, 0x20, 0x50, 0, 0, 0xe8, 0, 0, 0, 0]);
        let found = calls_in(&code, 0x1000, 0..code.len(), &|_| true, &Arguments::pair);
        let expected =
            [(Loaded::Address(0x1610), 0x5010), (Loaded::Word(0x4ff0), 0x5018), (Loaded::Address(0x1800), 0x5020)];
        assert_eq!(found, expected);
        for length in 0..code.len() {
            calls_in(&code[..length], 0x1000, 0..length, &|_| true, &Arguments::pair);
        }
    }
}
