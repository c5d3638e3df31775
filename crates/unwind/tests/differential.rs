//! Compares every row with gimli's own evaluation of the same file, at thousands of addresses.
//!
//! The results are compared, not their representation: registers and memory get arbitrary contents, and both sides must
//! compute the same CFA and the same location of the caller's rbp.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Random;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, EvaluationResult, FrameDescriptionEntry, LittleEndian,
    Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};
use object::{Object as _, ObjectSection as _};
use unwind::{Cfa, Row, Saved, Table};

type Bytes<'data> = EndianSlice<'data, LittleEndian>;

/// The general registers, by DWARF number.
fn register(number: u16) -> u64 {
    0x7ffe_0000_5550 + (u64::from(number) << 20)
}

fn memory(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// The result of a step: the CFA, and the locations of the caller's rbp and rip.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    cfa: u64,
    rbp: Place,
    rbx: Place,
    rip: Place,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Unchanged,
    Memory(u64),
    Undefined,
    Elsewhere,
}

/// Evaluates an address with gimli. None if it needs a register that walkers do not have.
fn by_gimli(
    section: &EhFrame<Bytes<'_>>,
    row: &UnwindTableRow<usize>,
    fde: &FrameDescriptionEntry<Bytes<'_>>,
    pc: u64,
) -> Option<Step> {
    let encoding = fde.cie().encoding();
    let register = |number: Register| match number.0 {
        0..16 => Some(register(number.0)),
        16 => Some(pc),
        _ => None,
    };
    let evaluate = |expression: &UnwindExpression<usize>, initial: Option<u64>| {
        let expression = expression.get(section).unwrap();
        let mut evaluation = expression.evaluation(encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register: number, .. } => {
                    evaluation.resume_with_register(Value::Generic(register(number)?)).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(memory(address))).unwrap()
                }
                other => panic!("unexpected {other:?}"),
            };
        }
        match evaluation.result()[0].location {
            Location::Address { address } => Some(address),
            ref other => panic!("unexpected {other:?}"),
        }
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: number, offset } => register(*number)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => evaluate(expression, None)?,
    };
    let place = |number| match row.register(Register(number)) {
        None | Some(RegisterRule::SameValue) => Place::Unchanged,
        Some(RegisterRule::Undefined) => Place::Undefined,
        Some(RegisterRule::Offset(offset)) => Place::Memory(cfa.wrapping_add_signed(offset)),
        Some(RegisterRule::Expression(expression)) => {
            evaluate(&expression, Some(cfa)).map_or(Place::Elsewhere, Place::Memory)
        }
        Some(_) => Place::Elsewhere,
    };
    Some(Step { cfa, rbp: place(6), rbx: place(3), rip: place(16) })
}

/// Evaluates an address with a row.
fn by_row(row: Row, pc: u64) -> Step {
    let at = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
    let (rbp, rsp) = (register(6), register(7));
    let cfa = match row.cfa() {
        Cfa::Rsp(offset) => at(rsp, offset),
        Cfa::Rbp(offset) => at(rbp, offset),
        Cfa::Register(number, offset) => at(register(number.into()), offset),
        Cfa::Return(_, offset) => at(rsp, offset),
        Cfa::Plt(threshold) => rsp + 8 + if pc & 15 >= threshold.into() { 8 } else { 0 },
        Cfa::RbpSlot(offset, addend) => at(memory(at(rbp, offset)), addend),
        Cfa::RspSlot(offset, addend) => at(memory(at(rsp, offset)), addend),
        Cfa::Signal => {
            let [rbx, rbp, rip] = [128, 120, 168].map(|offset| Place::Memory(rsp + offset));
            return Step { cfa: memory(rsp + 160), rbp, rbx, rip };
        }
        other => panic!("{other:?} has no result"),
    };
    let place = |saved| match saved {
        Saved::Same => Place::Unchanged,
        Saved::AtCfa(offset) => Place::Memory(at(cfa, offset)),
        Saved::AtRbp(offset) => Place::Memory(at(rbp, offset)),
        Saved::Lost => Place::Elsewhere,
    };
    let rip = if matches!(row.cfa(), Cfa::Return(..)) { Place::Elsewhere } else { Place::Memory(cfa - 8) };
    Step { cfa, rbp: place(row.rbp()), rbx: place(row.rbx()), rip }
}

/// Whether a row need not express this: it needs another register, the return address is elsewhere, or numbers are
/// unaligned.
fn beyond_rows(step: Option<Step>) -> bool {
    step.is_none_or(|step| step.rip != Place::Memory(step.cfa.wrapping_sub(8)) || step.cfa % 8 != 0)
}

fn compare(path: &str, samples: usize) {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let eh_frame = EhFrame::new(section.data().unwrap(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut fdes = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
            fdes.push(fde);
        }
    }
    fdes.retain(|fde| fde.len() > 0);
    fdes.sort_by_key(|fde| fde.initial_address());

    let table = Table::of(&*data).unwrap();
    assert!(table.rows.is_sorted_by(|a, b| a.pc < b.pc && !a.same_rules(b)), "{path}: not sorted or not merged");
    let mut context = UnwindContext::new();
    let mut random = Random(0x5eed);
    let mut unsupported = 0;
    for sample in 0..samples {
        let index = random.below(fdes.len());
        let fde = &fdes[index];
        let hole = fde.end_address()..fdes.get(index + 1).map_or(u64::MAX, |next| next.initial_address());
        if !hole.is_empty() {
            let row = table.lookup(hole.start).unwrap();
            // Except after system calls that create threads or end signals.
            assert!(
                matches!(row.cfa(), Cfa::NoRule | Cfa::Thread | Cfa::Signal),
                "{path}: {:#x} is in a gap",
                hole.start
            );
        }
        // The starts and ends of functions are where searches go wrong.
        let pc = fde.initial_address()
            + match sample % 8 {
                0 => 0,
                1 => fde.len() - 1,
                _ => random.next() % fde.len(),
            };
        let found = fde.unwind_info_for_address(&eh_frame, &bases, &mut context, pc).unwrap();
        let expected = by_gimli(&eh_frame, found, fde, pc);
        let row = table.lookup(pc).unwrap();
        match row.cfa() {
            Cfa::Unsupported => {
                unsupported += 1;
                assert!(beyond_rows(expected), "{path}: {pc:#x} has a rule that a row can express");
            }
            Cfa::End => {
                let undefined = found.register(Register(16)) == Some(RegisterRule::Undefined);
                assert!(undefined || fde.contains(file.entry()), "{path}: {pc:#x}");
            }
            Cfa::NoRule => panic!("{path}: {pc:#x} is in a function, but has no rule"),
            _ => assert_eq!(Some(by_row(row, pc)), expected, "{path}: {pc:#x} {row:?}"),
        }
    }
    println!("{path}: {samples} addresses, {unsupported} unsupported");
    assert!(unsupported * 20 < samples, "{path}: {unsupported} of {samples} addresses unsupported");
}

/// Check glibc and its loader: hand-written assembly, signal trampoline, clone.
#[test]
fn libc_and_loader_match_gimli() {
    compare("/lib/x86_64-linux-gnu/libc.so.6", 20_000);
    compare("/lib64/ld-linux-x86-64.so.2", 5_000);
}

/// Check this test program: Rust code, linked with any linker.
#[test]
fn this_executable_matches_gimli() {
    compare("/proc/self/exe", 5_000);
}

/// Check large C++ and C programs: a C++ library, a Python, and clang's LLVM, which the build needs anyway.
#[test]
fn large_libraries_match_gimli() {
    compare("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 10_000);
    compare("/usr/bin/python3", 10_000);
    let libraries = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").unwrap().map(|entry| entry.unwrap().path());
    let llvm: Vec<_> = libraries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libLLVM") && name.contains(".so")
        })
        .collect();
    assert!(!llvm.is_empty(), "libLLVM is missing: install Debian's clang");
    compare(llvm[0].to_str().unwrap(), 10_000);
}

/// Check programs of random instructions: wherever gimli can run one, rows give the same result.
#[test]
fn random_programs_match_gimli() {
    let mut random = Random(7);
    let (mut followed, mut broken) = (0, 0);
    for _ in 0..3000 {
        let length = random.below(60);
        let cie = common::cie(&[]);
        let program: Vec<u8> = (0..length).flat_map(|_| instruction(&mut random)).collect();
        let frame = [cie.clone(), common::fde(cie.len(), 0, common::CODE, 256, &program)].concat();
        let table = Table::of(&*common::elf(&frame, &[])).unwrap();

        let eh_frame = EhFrame::new(&frame, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(common::EH_FRAME);
        let fde = eh_frame.fde_from_offset(&bases, cie.len().into(), EhFrame::cie_from_offset).unwrap();
        let mut context = UnwindContext::new();
        let mut rows = fde.rows(&eh_frame, &bases, &mut context).unwrap();
        loop {
            match rows.next_row() {
                Ok(Some(found)) => {
                    let pc = found.start_address();
                    // A row that ends where it starts is never used.
                    if pc >= common::CODE + 256 || found.end_address() == pc {
                        continue;
                    }
                    let row = table.lookup(pc).unwrap();
                    let expected = by_gimli(&eh_frame, found, &fde, pc);
                    match row.cfa() {
                        Cfa::Unsupported => assert!(beyond_rows(expected), "{pc:#x} {row:?} {program:x?}"),
                        Cfa::End => assert_eq!(found.register(Register(16)), Some(RegisterRule::Undefined)),
                        _ => {
                            let (row, expected) = (by_row(row, pc), expected.unwrap());
                            assert_eq!((row.cfa, row.rip), (expected.cfa, expected.rip), "{program:x?}");
                            for (row, expected) in [(row.rbp, expected.rbp), (row.rbx, expected.rbx)] {
                                let lost = matches!(expected, Place::Undefined | Place::Elsewhere);
                                assert_eq!(row == Place::Elsewhere, lost, "{program:x?}");
                                assert!(lost || row == expected, "{program:x?}");
                            }
                        }
                    }
                    followed += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    broken += 1;
                    break;
                }
            }
        }
    }
    assert!(followed > 10_000 && broken > 100, "{followed} rows compared, {broken} programs broken");
}

/// Returns a random instruction, usually a valid one.
fn instruction(random: &mut Random) -> Vec<u8> {
    let register = [3, 6, 6, 7, 16][random.below(5)];
    let small = random.below(16) as u8;
    match random.below(16) {
        0..=4 => vec![0x40 | (1 + small % 8)],
        5 => vec![0x0e, small * 8 % 128],
        6 => vec![0x0d, [6, 7, 7, 3][random.below(4)]],
        7 => vec![0x0c, [6, 7][random.below(2)], small * 8 % 128],
        8 => vec![0x80 | [3, 6][random.below(2)], 2 + small],
        9 => vec![0xc0 | register],
        10 => vec![0x0a],
        11 => vec![0x0b],
        12 => vec![[0x07, 0x08][random.below(2)], [3, 6, 6][random.below(3)]],
        13 => vec![0x0f, 3, [0x76, 0x77][random.below(2)], small * 8 % 64, 0x06],
        14 => vec![0x10, 6, 2, 0x76, small * 8 % 64],
        _ => vec![[0x00, 0x2e][random.below(2)], 0],
    }
}
