//! Finds a few of many symbols by the beginnings of their names.

use memchr::memmem::Finder;

use crate::{Budget, Bytes, Error, Symbol, Symbols, bytes::fill};

/// Bytes of the string table read at a time.
const PIECE: usize = 1 << 20;
/// The most places of one prefix.
const MOST: usize = 64;

impl Symbols<'_> {
    /// Returns the symbols defined in this file whose names begin with each prefix, in constant memory.
    pub fn beginning_with<B: Bytes + ?Sized, const N: usize>(
        &self,
        bytes: &B,
        prefixes: [&str; N],
        budget: &Budget,
    ) -> Result<[Vec<Symbol>; N], Error> {
        let places = self.places(bytes, prefixes, budget)?;
        let mut found = [const { Vec::new() }; N];
        self.each(bytes, budget.symbols, |_, symbol| {
            for (places, found) in places.iter().zip(&mut found) {
                if places.contains(&symbol.name) && symbol.is_defined() && found.len() < MOST {
                    found.push(symbol);
                }
            }
        })?;
        Ok(found)
    }

    /// Returns the offsets of each prefix in the string table: that of a symbol's name is among them if it begins so.
    fn places<B: Bytes + ?Sized, const N: usize>(
        &self,
        bytes: &B,
        prefixes: [&str; N],
        budget: &Budget,
    ) -> Result<[Vec<u32>; N], Error> {
        let place = self.strings().place;
        Error::check_bytes("string table", place.size, budget.strings)?;
        let finders = prefixes.map(Finder::new);
        // So many bytes at the end of a piece are read again: a prefix may begin there.
        let overlap = prefixes.iter().map(|prefix| prefix.len()).max().unwrap_or(1).max(1) - 1;
        let mut places = [const { Vec::new() }; N];
        let (mut piece, mut done) = (vec![0; PIECE], 0);
        while done < place.size {
            let length = PIECE.min(usize::try_from(place.size - done).unwrap_or(PIECE));
            let read = fill(bytes, &mut piece[..length], place.offset.saturating_add(done));
            for (finder, places) in finders.iter().zip(&mut places) {
                let own = finder.find_iter(&piece[..read]).filter(|at| read < PIECE || *at < PIECE - overlap);
                let offsets = own.filter_map(|at| u32::try_from(done + at as u64).ok());
                places.extend(offsets.take(MOST - places.len()));
            }
            if read < PIECE {
                break;
            }
            done += (PIECE - overlap) as u64;
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Elf, SHT_SYMTAB};

    /// Check that a local function is found by the beginning of its name, also if that is at the border of two pieces, and
    /// names that contain it elsewhere are not.
    #[test]
    fn functions_are_found_by_the_beginnings_of_their_names() {
        const NAMES: [&str; 3] = ["_ZN4Pool8ScheduleEv", "x_ZN4Pool8ScheduleEv", "_ZN4Pool4LoopEi"];
        for gap in [0, PIECE - 40, PIECE - 8, PIECE, 2 * PIECE - 30] {
            let mut strings = vec![0];
            strings.resize(1 + gap, b'a');
            strings.push(0);
            let mut table = vec![0; 24];
            for (i, name) in NAMES.into_iter().enumerate() {
                let mut symbol = [0; 24];
                symbol[..4].copy_from_slice(&(strings.len() as u32).to_le_bytes());
                (symbol[4], symbol[6]) = (2, 1);
                symbol[8] = 0x10 + i as u8;
                table.extend(symbol);
                strings.extend(name.bytes().chain([0]));
            }
            let file = file_with(&table, &strings);
            let elf = Elf::read(&file[..]).expect("a file");
            let symbols = Symbols::of(&elf, SHT_SYMTAB).expect("a table");
            let found = symbols
                .beginning_with(&file[..], ["_ZN4Pool8ScheduleE", "_ZN4Pool4LoopE", "_ZN5Other"], &Budget::RECORDING)
                .expect("it is whole");
            assert_eq!(
                found.map(|symbols| symbols.iter().map(|s| s.address).collect::<Vec<_>>()),
                [vec![0x10], vec![0x12], vec![]],
                "{gap}"
            );
            let small = Budget { strings: 10, ..Budget::RECORDING };
            assert!(symbols.beginning_with(&file[..], ["_ZN"], &small).is_err());
        }
    }

    /// An ELF file with only a symbol table and its strings.
    fn file_with(table: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (file[16], file[18], file[20], file[52]) = (3, 62, 1, 64);
        let (at, strings_at) = (file.len() as u64, (file.len() + table.len()) as u64);
        file.extend(table);
        file.extend(strings);
        let headers = file.len() as u64;
        file[40..48].copy_from_slice(&headers.to_le_bytes());
        (file[58], file[60]) = (64, 3);
        for (kind, link, offset, size, entry) in
            [(0, 0, 0, 0, 0), (2u32, 2u32, at, table.len() as u64, 24u64), (3, 0, strings_at, strings.len() as u64, 0)]
        {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            header[56..64].copy_from_slice(&entry.to_le_bytes());
            file.extend(header);
        }
        file
    }
}
