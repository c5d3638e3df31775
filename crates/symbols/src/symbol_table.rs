//! Finds the functions around addresses in a file's symbol tables, in one pass over each.
//!
//! A function is the symbol with the highest address that is not above the address in question, so only the best
//! candidate so far is kept for each address:
//!
//! ```text
//!   addresses      a          b     c             sorted
//!   symbols    f---)   g------------)    h---)    in any order: each counts for the first address not below it
//!   a: f starts below, but has ended   b: g   c: g starts below, but has ended
//! ```

use std::{cmp::Reverse, fs::File};

use elf::{Elf, Error, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT};
use elf::{Symbol, Symbols};

/// Returns the mangled names of the functions around addresses, and the reason if some may be missing. A table of more
/// than `limit` bytes is not read.
pub(crate) fn names(file: &File, elf: &Elf, addresses: &[u64], limit: u64) -> (Vec<Option<String>>, Option<Error>) {
    let mut names = vec![None; addresses.len()];
    let mut refused = None;
    // All symbols; then the exported ones, which a stripped file still has.
    for (kind, sizeless) in [(SHT_SYMTAB, true), (SHT_DYNSYM, false)] {
        let mut open: Vec<usize> = (0..addresses.len()).filter(|i| names[*i].is_none()).collect();
        let Some(symbols) = Symbols::of(elf, kind).filter(|_| !open.is_empty()) else { continue };
        open.sort_by_key(|i| addresses[*i]);
        let sorted: Vec<u64> = open.iter().map(|i| addresses[*i]).collect();
        let (found, error) = around(&symbols, file, &sorted, limit, sizeless);
        refused = refused.or(error);
        for (i, symbol) in open.into_iter().zip(found) {
            let name = symbol.and_then(|symbol| symbols.name(file, &symbol));
            names[i] = name.map(|name| String::from_utf8_lossy(&name).into_owned());
        }
    }
    (names, refused)
}

/// Returns the symbol around each of the sorted addresses. If `sizeless` is set, symbols of unknown size extend to the
/// next one: in a table with gaps, such a symbol would name everything behind it.
fn around(
    symbols: &Symbols<'_>,
    file: &File,
    sorted: &[u64],
    limit: u64,
    sizeless: bool,
) -> (Vec<Option<Symbol>>, Option<Error>) {
    let mut best: Vec<Option<Symbol>> = vec![None; sorted.len()];
    let read = symbols.each(file, limit, |_, symbol| {
        let first = sorted.partition_point(|address| *address < symbol.address);
        if let Some(best) = best.get_mut(first).filter(|_| is_named_code(&symbol))
            && best.is_none_or(|known| rank(&symbol) > rank(&known))
        {
            *best = Some(symbol);
        }
    });
    let mut below: Option<Symbol> = None;
    for (address, best) in sorted.iter().zip(&mut best) {
        if let Some(found) = *best
            && below.is_none_or(|below| rank(&found) > rank(&below))
        {
            below = Some(found);
        }
        let holds = |symbol: &Symbol| match symbol.size {
            0 => sizeless || symbol.address == *address,
            size => address - symbol.address < size,
        };
        *best = below.filter(holds);
    }
    (best, read.err())
}

/// Hand-written assembly has no type; a jump table may be an object.
fn is_named_code(symbol: &Symbol) -> bool {
    let kind = [STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT].contains(&symbol.kind);
    kind && symbol.is_defined() && symbol.name != 0
}

/// The highest address, then the largest, then a function rather than an indirect one (`STT_GNU_IFUNC`), then the
/// exported name; of equals the first in the table.
fn rank(symbol: &Symbol) -> (u64, u64, bool, Reverse<u8>) {
    let binding = match symbol.binding {
        binding if binding == STB_GLOBAL.0 => 0,
        binding if binding == STB_WEAK.0 => 1,
        _ => 2,
    };
    (symbol.address, symbol.size, symbol.kind != STT_GNU_IFUNC, Reverse(binding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use blazesym::symbolize::{
        Input, Symbolizer,
        source::{Elf as ElfSource, Source},
    };

    /// Check that every address has the function that blazesym finds, which maps the file and sorts its symbols: in
    /// this program, which has all symbols, and in the C library, which has few.
    #[test]
    fn functions_match_blazesym() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
        let libc =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
        for (path, table) in [("/proc/self/exe", SHT_SYMTAB), (libc.expect("it is mapped"), SHT_DYNSYM)] {
            let file = File::open(path).expect("it opens");
            let elf = Elf::read(&file).expect("it is ELF");
            let code = elf.segments.executable().next().expect("it has code").addresses();
            let addresses: Vec<u64> = code.clone().step_by((code.end - code.start) as usize / 5000).collect();
            let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
            let mut source = ElfSource::new(path);
            source.debug_syms = false;
            let theirs = symbolizer.symbolize(&Source::Elf(source), Input::VirtOffset(&addresses)).expect("it can");
            let symbols = Symbols::of(&elf, table).expect("it has symbols");
            let (ours, error) = around(&symbols, &file, &addresses, u64::MAX, table == SHT_SYMTAB);
            assert_eq!(error, None);
            let mut named = 0;
            for ((address, ours), theirs) in addresses.iter().zip(ours).zip(theirs) {
                let theirs = theirs.into_sym().map(|sym| sym.addr);
                assert_eq!(ours.map(|symbol| symbol.address), theirs, "{path} {address:#x}");
                named += usize::from(theirs.is_some());
            }
            assert!(named > 1000, "{path}: {named}");
        }
    }
}
