//! Functions compiled one at a time have the same rows as in the table of the whole file.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::File;

use common::Random;
use elf::Elf;
use unwind::{Functions, Partial, Table};

/// Returns the libraries and the program of this process.
fn mapped_files() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut files: Vec<String> = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| Some(line[line.find('/')?..].into()))
        .collect();
    files.dedup();
    files
}

/// Check that a table built from single functions agrees with the whole one, in every file that this process has
/// mapped: libc and libgcc with their corrections, the loader, this program.
#[test]
fn single_functions_have_the_rows_of_the_whole_table() {
    for path in mapped_files() {
        let bytes = &std::fs::read(&path).unwrap()[..];
        let elf = Elf::read(bytes).unwrap();
        let whole = Table::read(&elf, bytes, u64::MAX).unwrap();
        let Some(functions) = Functions::of(&elf, bytes).unwrap() else {
            assert!(whole.rows.is_empty(), "{path} has no search table");
            continue;
        };
        assert_eq!(functions.base, whole.base, "{path}");
        let mut partial = Partial::default();
        let mut random = Random(7);
        // In any order, then all of them.
        let some = (0..whole.rows.len()).map(|_| random.below(whole.rows.len()));
        for row in some.chain(0..whole.rows.len()).map(|index| whole.rows[index]) {
            for pc in [row.pc, row.pc.saturating_sub(1)] {
                let Some(expected) = whole.lookup(whole.base + u64::from(pc)) else { continue };
                if partial.find(pc).is_none() {
                    partial.add(&functions.at(whole.base + u64::from(pc)).unwrap());
                }
                let found = partial.find(pc).unwrap();
                assert!(found.same_rules(&expected), "{path} at {pc:#x}: {found:?}, expected {expected:?}");
            }
        }
    }
}

/// Check that an address below the first function has no rule, as in the whole table.
#[test]
fn addresses_outside_functions_have_no_rule() {
    let file = File::open("/proc/self/exe").unwrap();
    let elf = Elf::read(&file).unwrap();
    let functions = Functions::of(&elf, &file).unwrap().unwrap();
    let whole = Table::read(&elf, &file, u64::MAX).unwrap();
    let beyond = whole.base + u64::from(whole.rows.last().unwrap().pc) + 100;
    let piece = functions.at(beyond).unwrap();
    let mut partial = Partial::default();
    partial.add(&piece);
    let row = partial.find(u32::try_from(beyond - whole.base).unwrap()).unwrap();
    assert_eq!(row.cfa(), unwind::Cfa::NoRule);
    assert!(functions.at(whole.base.wrapping_sub(1)).is_none());
}

/// Check that damaged search tables and entries give some rows or none, but neither a panic nor unsorted rows.
#[test]
fn damaged_files_are_harmless() {
    let good = std::fs::read("/proc/self/exe").unwrap();
    let elf = Elf::read(&good[..]).unwrap();
    let header = elf.eh_frame_hdr.unwrap();
    let frames = elf.section(".eh_frame").unwrap().place;
    let whole = Table::of(&good[..]).unwrap();
    let mut random = Random(11);
    let mut pieces = 0;
    for place in [header, frames] {
        for _ in 0..40 {
            let mut bytes = good.clone();
            for _ in 0..200 {
                bytes[place.offset as usize + 12 + random.below(place.size as usize - 12)] = random.below(256) as u8;
            }
            let Ok(Some(functions)) = Functions::of(&elf, &bytes[..]) else { continue };
            let mut partial = Partial::default();
            for _ in 0..200 {
                let row = whole.rows[random.below(whole.rows.len())];
                if let Some(piece) = functions.at(functions.base + u64::from(row.pc)) {
                    assert!(piece.rows.is_sorted_by_key(|row| row.pc), "{piece:?}");
                    partial.add(&piece);
                    pieces += 1;
                }
            }
            assert!(partial.rows().is_sorted_by_key(|row| row.pc));
        }
    }
    assert!(pieces > 1_000, "{pieces}");
}
