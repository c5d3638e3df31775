//! Malformed and hostile files: for any input, the result comes quickly and is a valid table or an error.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::{Duration, Instant};

use common::{CODE, CODE_SIZE, Random, cie, elf, fde};
use unwind::{Cfa, Error, Loss, Table};

/// Only a file that never finishes takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Compiles and checks what is true for any table.
fn compile(bytes: &[u8]) -> Result<Table, Error> {
    let start = Instant::now();
    let table = Table::of(bytes);
    let elapsed = start.elapsed();
    assert!(elapsed < TIMEOUT, "took {elapsed:?}");
    if let Ok(table) = &table {
        assert!(table.rows.is_sorted_by(|a, b| a.pc < b.pc && !a.same_rules(b)));
        if let (Some(first), Some(last)) = (table.rows.first(), table.rows.last()) {
            assert!(first.pc < 4096, "the base is the first function's page");
            assert_eq!(last.cfa(), Cfa::NoRule, "the last function has no end");
            assert_eq!(table.lookup(table.base + u64::from(last.pc)), Some(*last));
        }
        assert_eq!(table.lookup(u64::MAX).map(|row| row.cfa()).unwrap_or(Cfa::NoRule), Cfa::NoRule);
    }
    table
}

/// Changes bytes, usually a few of those from `from` on.
fn mutate(bytes: &mut [u8], from: usize, random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let at = match random.below(4) {
            0 => random.below(bytes.len().min(1024)),
            _ => from + random.below(bytes.len() - from),
        };
        bytes[at] = match random.below(4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at] ^ (1 << random.below(8)),
            _ => random.next() as u8,
        };
    }
}

/// Check a real library with changed bytes in its headers and frame sections.
#[test]
fn mutated_libraries_are_survived() {
    let original = common::assemble(
        &(0..50)
            .map(|index| {
                format!(
                    ".globl f{index}\n f{index}: .cfi_startproc\n push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6, -16\n
                     mov %rsp, %rbp\n .cfi_def_cfa_register 6\n call f{index}@plt\n leave\n .cfi_def_cfa 7, 8\n ret\n
                     .cfi_endproc\n .skip {}\n",
                    index + 1
                )
            })
            .collect::<String>(),
    );
    let frames = {
        use object::{Object as _, ObjectSection as _};
        let file = object::File::parse(&*original).unwrap();
        file.section_by_name(".eh_frame").unwrap().file_range().unwrap().0 as usize
    };
    assert_eq!(compile(&original).unwrap().stats.malformed, 0);
    let mut random = Random(0xe1f);
    let (mut tables, mut errors) = (0, 0);
    for _ in 0..4000 {
        let mut bytes = original.clone();
        mutate(&mut bytes, frames, &mut random);
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        match compile(&bytes) {
            Ok(_) => tables += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(tables > 500 && errors > 100, "{tables} tables, {errors} errors: the mutations should cause both");
}

/// Check handmade frame sections of both kinds, changed anywhere.
#[test]
fn mutated_frame_sections_are_survived() {
    let mut frame = cie(&[]);
    for index in 0..40 {
        let program = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x44, 0x0c, 7, 8, 0x41, 0x0b];
        frame.extend(fde(frame.len(), 0, CODE + 64 * index, 60, &program));
    }
    let mut random = Random(0xeb);
    for round in 0..4000 {
        let mut mutated = frame.clone();
        mutate(&mut mutated, 0, &mut random);
        let bytes = if round % 2 == 0 { elf(&mutated, &[]) } else { elf(&frame, &mutated) };
        compile(&bytes).unwrap();
    }
}

/// Check random bytes: as whole files, and as sections.
#[test]
fn random_bytes_are_survived() {
    let mut random = Random(3);
    for _ in 0..2000 {
        let noise: Vec<u8> = (0..random.below(2000)).map(|_| random.next() as u8).collect();
        assert!(Table::of(&*noise).is_err());
        let table = compile(&elf(&noise, &noise)).unwrap();
        assert!(table.rows.is_empty() || table.stats.functions > 0);
    }
}

/// Check that one CIE full of instructions is run once, not once for each of its functions.
#[test]
fn a_large_cie_is_run_once() {
    let mut frame = cie(&[0x2e, 0x08].repeat(500_000));
    for index in 0..20_000 {
        frame.extend(fde(frame.len(), 0, CODE + index * 8, 8, &[]));
    }
    let table = compile(&elf(&frame, &[])).unwrap();
    assert_eq!(table.stats.functions, 20_000);
}

/// Check that CIEs cannot be nested to be read repeatedly: an FDE finds only those between entries.
#[test]
fn nested_cies_are_not_found() {
    let inner = cie(&[]);
    let mut frame = cie(&inner.repeat(20_000));
    let length = inner.len();
    for index in 0..20_000_usize {
        let at = frame.len();
        frame.extend(fde(at, 16 + index * length, CODE + index as u64 * 8, 8, &[]));
    }
    let table = compile(&elf(&frame, &[])).unwrap();
    assert_eq!(table.stats.functions, 0);
    assert!(table.stats.malformed >= 20_000, "{}", table.stats.malformed);
}

/// Check overlapping functions: the one that starts last counts, as for unwinders that search .eh_frame_hdr.
#[test]
fn of_overlapping_functions_the_last_counts() {
    let mut frame = cie(&[]);
    for (start, length, offset) in [(100, 100, 16), (0, 150, 24), (50, 10, 32), (50, 5, 40)] {
        frame.extend(fde(frame.len(), 0, CODE + start, length, &[0x0e, offset]));
    }
    let table = compile(&elf(&frame, &[])).unwrap();
    let rows: Vec<_> = table.rows.iter().map(|row| (row.pc, row.cfa())).collect();
    assert_eq!(
        rows,
        [(0, Cfa::Rsp(24)), (50, Cfa::Rsp(32)), (60, Cfa::NoRule), (100, Cfa::Rsp(16)), (200, Cfa::NoRule)]
    );
    assert_eq!((table.stats.functions, table.stats.overlapping), (3, 2));
}

/// Check files whose entry point is at the start of a gap, or at the end of the last function: one row for one address.
#[test]
fn an_entry_in_a_gap_has_one_row() {
    let mut frame = cie(&[]);
    for start in [0, 512] {
        frame.extend(fde(frame.len(), 0, CODE + start, 64, &[0x0e, 16]));
    }
    let rows = |entry: u64| -> Vec<(u32, Cfa)> {
        let mut bytes = elf(&frame, &[]);
        bytes[24..32].copy_from_slice(&entry.to_le_bytes());
        compile(&bytes).unwrap().rows.iter().map(|row| (row.pc, row.cfa())).collect()
    };
    let (code, hole) = (Cfa::Rsp(16), Cfa::NoRule);
    assert_eq!(rows(CODE + 64), [(0, code), (64, Cfa::End), (192, hole), (512, code), (576, hole)]);
    assert_eq!(rows(CODE + 100), [(0, code), (64, hole), (100, Cfa::End), (228, hole), (512, code), (576, hole)]);
    assert_eq!(rows(CODE + 576), [(0, code), (64, hole), (512, code), (576, hole)]);
}

/// Check that functions outside the code, empty ones, and ones whose end wraps around are omitted.
#[test]
fn functions_outside_the_code_are_omitted() {
    let mut frame = cie(&[]);
    for (start, length) in [
        (0, 16),
        (CODE - 8, 16),
        (CODE + CODE_SIZE - 8, 16),
        (CODE, u64::MAX),
        (u64::MAX - 4, 4),
        (CODE + 64, 0),
        (CODE + 64, 8),
    ] {
        frame.extend(fde(frame.len(), 0, start, length, &[]));
    }
    let table = compile(&elf(&frame, &[])).unwrap();
    assert_eq!((table.stats.functions, table.stats.outside, table.stats.malformed), (1, 4, 1));
    assert_eq!(table.rows.len(), 2);
}

/// Check programs that run backwards, leave their function, pop without a push, or push endlessly.
#[test]
fn malformed_programs_are_survived() {
    let backwards = [vec![0x44, 0x01], (CODE - 1).to_le_bytes().to_vec()].concat();
    let far = vec![0x44, 0x04, 0xff, 0xff, 0xff, 0xff, 0x0e, 16];
    let programs = [(backwards, true), (far, false), (vec![0x44, 0x0b], true), (vec![0x0a; 1_000_000], true)];
    for (program, broken) in programs {
        let head = cie(&[]);
        let frame = [head.clone(), fde(head.len(), 0, CODE, 32, &program)].concat();
        let table = compile(&elf(&frame, &[])).unwrap();
        assert_eq!(table.stats.lost(Loss::Program), u64::from(broken));
        assert_eq!(table.lookup(CODE + 31).map(|row| row.cfa() == Cfa::Unsupported), Some(broken));
    }
}

/// Sets p_memsz of the only segment.
fn grow_code(bytes: &mut [u8], size: u64) {
    bytes[64 + 40..64 + 48].copy_from_slice(&size.to_le_bytes());
}

/// Check the limit on rows: a program that changes the rule at every byte of a large function.
#[test]
fn rows_are_limited() {
    let head = cie(&[]);
    let program = [0x41, 0x0e, 16, 0x41, 0x0e, 24].repeat(unwind::MAX_ROWS / 2 + 1);
    let mut bytes = elf(&[head.clone(), fde(head.len(), 0, CODE, 1 << 30, &program)].concat(), &[]);
    grow_code(&mut bytes, 1 << 31);
    assert!(matches!(Table::of(&*bytes), Err(Error::TooMany { what: "rows", .. })));
}

/// Check code that spans more than a row's address can.
#[test]
fn code_beyond_4_gib_is_rejected() {
    let mut frame = cie(&[]);
    for start in [CODE, CODE + (1 << 32)] {
        frame.extend(fde(frame.len(), 0, start, 8, &[]));
    }
    let mut bytes = elf(&frame, &[]);
    grow_code(&mut bytes, 1 << 33);
    assert!(matches!(compile(&bytes), Err(Error::TooFar(_))));
}

/// Check that other machines, object files and empty files are rejected with a reason.
#[test]
fn other_files_are_rejected() {
    let mut other = elf(&[], &[]);
    other[18] = 183;
    assert!(matches!(compile(&other), Err(Error::Machine(183))));
    let mut object = elf(&[], &[]);
    object[56] = 0;
    assert!(matches!(compile(&object), Err(Error::NotLoadable)));
    assert!(matches!(compile(&[]), Err(Error::Elf(_))));
    let mut cut = elf(&cie(&[]), &[]);
    cut.truncate(cut.len() - 8);
    assert!(matches!(compile(&cut), Err(Error::Elf(elf::Error::Truncated(".eh_frame")))));
    assert_eq!(compile(&elf(&[], &[])).unwrap(), Table::default());
}
