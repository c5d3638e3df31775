//! Finds exported symbols by their name, with the hash table that the loader uses: a few reads of a few bytes, however
//! large the file. libtorch has hundreds of thousands of symbols.

use object::elf::{SHT_DYNSYM, SHT_GNU_HASH};

use crate::{Bytes, Elf, Section, Symbol, Symbols, read};

/// The most symbols with one hash that are compared. Linkers create about as many buckets as symbols.
const MOST_IN_BUCKET: u64 = 4096;

impl<'a> Symbols<'a> {
    /// Returns the exported symbol with this name. Only for 64-bit files; `None` if the file has no hash table.
    pub fn exported<B: Bytes + ?Sized>(elf: &'a Elf, bytes: &B, name: &str) -> Option<Symbol> {
        let symbols = Symbols::of(elf, SHT_DYNSYM).filter(|_| elf.wide)?;
        let table = elf.sections.iter().find(|section| section.kind == SHT_GNU_HASH && section.is_in_file())?;
        let word = |index: u64| word(table, bytes, index);
        // The number of buckets, the first symbol in the table, and the number of 64-bit words of the filter.
        let (buckets, first, filter) = (word(0)?, word(1)?, word(2)?);
        let hash = hash(name);
        let start = 4 + 2 * u64::from(filter);
        let mut index = word(start + u64::from(hash.checked_rem(buckets)?))?;
        for _ in 0..MOST_IN_BUCKET {
            let of_symbol = word(start + u64::from(buckets) + u64::from(index.checked_sub(first)?))?;
            // The lowest bit says that the bucket ends here.
            if of_symbol | 1 == hash | 1
                && let Some(symbol) = symbols.at(bytes, index.into())
                && symbol.is_defined()
                && symbols.name(bytes, &symbol).is_some_and(|found| found == name.as_bytes())
            {
                return Some(symbol);
            }
            if of_symbol & 1 == 1 {
                return None;
            }
            index = index.checked_add(1)?;
        }
        None
    }
}

/// Reads one 32-bit word of the table.
fn word<B: Bytes + ?Sized>(table: &Section, bytes: &B, index: u64) -> Option<u32> {
    let offset = index.checked_mul(4).filter(|offset| *offset < table.place.size)?;
    let read = read(bytes, table.place.offset.checked_add(offset)?, 4, "hash table").ok()?;
    Some(u32::from_le_bytes(read.try_into().ok()?))
}

fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Check that every symbol that libc exports is found, and that others are not.
    #[test]
    fn symbols_are_found_by_hash() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
        let file = File::open(path.unwrap()).unwrap();
        let elf = Elf::read(&file).unwrap();
        let symbols = Symbols::of(&elf, SHT_DYNSYM).unwrap();
        let mut exported = Vec::new();
        symbols.each(&file, 1 << 24, |_, symbol| exported.extend(symbol.is_defined().then_some(symbol))).unwrap();
        assert!(exported.len() > 1000);
        for symbol in &exported {
            let name = String::from_utf8(symbols.name(&file, symbol).unwrap()).unwrap();
            let found = Symbols::exported(&elf, &file, &name).unwrap_or_else(|| panic!("{name} is not found"));
            // Several versions of one name may have different addresses.
            assert_eq!(found.name, symbol.name, "{name}");
        }
        for absent in ["", "mallo", "mallocc", "_ZN5torch8autograd6EngineC1Ev"] {
            assert_eq!(Symbols::exported(&elf, &file, absent), None, "{absent}");
        }
    }

    /// Check that a damaged table is no endless search and no panic.
    #[test]
    fn damaged_tables_are_harmless() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::read(whole.as_slice()).unwrap();
        let table = elf.sections.iter().find(|section| section.kind == SHT_GNU_HASH).unwrap().place;
        for value in [0, 0xff, 0x7f, 2] {
            for first in 0..table.size.min(32) {
                let mut bytes = whole.clone();
                let (from, to) = ((table.offset + first) as usize, (table.offset + table.size) as usize);
                bytes[from..to].fill(value);
                assert_eq!(Symbols::exported(&elf, bytes.as_slice(), "absent"), None);
            }
        }
    }
}
