//! The text of instructions, from what `nvdisasm -c` prints about a cubin:
//!
//! ```text
//!         .section        .text._Z5waitsPf,"ax",@progbits
//! _Z5waitsPf:
//! .text._Z5waitsPf:
//!         /*0000*/                   LDC R1, c[0x0][0x28] ;
//!         /*0060*/              @!P0 BRA `(.L_x_0) ;
//! .L_x_0:
//!         /*0110*/                   EXIT ;
//! ```
//!
//! Offsets are those in the section. Labels get numbers that mean nothing elsewhere, so they are replaced by their offset.

use std::collections::HashMap;

use object::{
    Endianness, SectionIndex,
    elf::{FileHeader64, SHT_SYMTAB, STT_FUNC},
    read::elf::{FileHeader, Sym as _},
};

/// The longest text of an instruction, in characters.
const LONGEST: usize = 200;
/// The most labels that are kept, and the longest.
const MOST_LABELS: usize = 1 << 16;
const LONGEST_LABEL: usize = 64;

/// Picks the instructions that are wanted from the lines of a listing.
pub struct Listing {
    /// The sections, with the place in `found` of each offset that is wanted.
    wanted: Vec<HashMap<u64, Vec<usize>>>,
    sections: HashMap<Vec<u8>, usize>,
    /// The section of the current line.
    current: Option<usize>,
    /// Labels before the next instruction, and the offset of each.
    pending: Vec<String>,
    labels: HashMap<(usize, String), u64>,
    /// The section and the text of each instruction that is wanted.
    found: Vec<Option<(usize, String)>>,
}

impl Listing {
    /// For instructions of a cubin, each a function and an offset in it.
    pub fn new(cubin: &[u8], wanted: &[(&str, u64)]) -> Self {
        let mut listing = Self {
            wanted: Vec::new(),
            sections: HashMap::new(),
            current: None,
            pending: Vec::new(),
            labels: HashMap::new(),
            found: vec![None; wanted.len()],
        };
        let functions = functions(cubin).unwrap_or_default();
        for (place, (name, offset)) in wanted.iter().enumerate() {
            let Some((section, start)) = functions.get(name.as_bytes()) else { continue };
            let next = listing.wanted.len();
            let index = *listing.sections.entry(section.to_vec()).or_insert(next);
            if index == next {
                listing.wanted.push(HashMap::new());
            }
            listing.wanted[index].entry(start.wrapping_add(*offset)).or_default().push(place);
        }
        listing
    }

    /// Reads the next line.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let text = line.trim_start();
        if let Some(section) = text.strip_prefix(".section").filter(|rest| rest.starts_with([' ', '\t'])) {
            let name = section.trim_start().split(',').next().unwrap_or_default();
            self.current = self.sections.get(name.as_bytes()).copied();
            self.pending.clear();
            return;
        }
        let Some(section) = self.current else { return };
        if text.len() == line.len() {
            if let Some(label) = line.strip_suffix(':')
                && label.len() <= LONGEST_LABEL
                && self.labels.len() + self.pending.len() < MOST_LABELS
            {
                self.pending.push(label.to_owned());
            }
            return;
        }
        let Some((offset, text)) = instruction(text) else { return };
        for label in self.pending.drain(..) {
            self.labels.insert((section, label), offset);
        }
        for place in self.wanted[section].get(&offset).into_iter().flatten() {
            self.found[*place] = Some((section, text.clone()));
        }
    }

    /// Returns the text of each instruction that was wanted; `None` if the listing does not have it.
    pub fn finish(self) -> Vec<Option<String>> {
        let Self { found, labels, .. } = self;
        let text = |(section, text): (usize, String)| resolve(&text, |label| labels.get(&(section, label.to_owned())));
        found.into_iter().map(|instruction| instruction.map(text)).collect()
    }
}

/// The name of a section, and an offset in it.
type Place<'a> = (&'a [u8], u64);

/// Returns where each function begins.
fn functions(cubin: &[u8]) -> Option<HashMap<&[u8], Place<'_>>> {
    let header = FileHeader64::<Endianness>::parse(cubin).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, cubin).ok()?;
    let symbols = sections.symbols(endian, cubin, SHT_SYMTAB).ok()?;
    let mut found = HashMap::new();
    for (index, symbol) in symbols.enumerate().filter(|(_, symbol)| symbol.st_type() == STT_FUNC) {
        if let Ok(Some(SectionIndex(section))) = symbols.symbol_section(endian, symbol, index)
            && let Ok(section) = sections.section(SectionIndex(section))
            && let Ok(section) = sections.section_name(endian, section)
            && let Ok(name) = symbol.name(endian, symbols.strings())
        {
            found.insert(name, (section, symbol.st_value(endian)));
        }
    }
    Some(found)
}

/// Returns the offset and the text of an instruction: `/*0060*/  @!P0 BRA ... ;`.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (offset, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let (text, _) = rest.split_once(';')?;
    let mut words = text.split_whitespace();
    let mut text = words.next()?.to_owned();
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    Some((offset, text.chars().filter(|character| !character.is_control()).take(LONGEST).collect()))
}

/// Replaces each label of the form `` `(.L_x_0) `` by its offset.
fn resolve<'a>(text: &str, offset_of: impl Fn(&str) -> Option<&'a u64>) -> String {
    let Some((before, rest)) = text.split_once("`(") else { return text.to_owned() };
    let Some((label, after)) = rest.split_once(')') else { return text.to_owned() };
    match offset_of(label) {
        Some(offset) => format!("{before}{offset:#x}{after}"),
        None => format!("{before}{label}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVCC: &[u8] = include_bytes!("../../tests/cubins/nvcc.cubin");

    /// What nvdisasm 13.4 prints about it with `-c -ndf`.
    const PRINTED: &str = include_str!("../../tests/cubins/nvcc.sass");

    fn read(printed: &str, wanted: &[(&str, u64)]) -> Vec<Option<String>> {
        let mut listing = Listing::new(NVCC, wanted);
        printed.lines().for_each(|line| listing.line(line));
        listing.finish()
    }

    /// Check the text of instructions of two functions, with a predicate and with a label, and that there is none beyond
    /// the end, between instructions and in unknown functions.
    #[test]
    fn instructions_have_their_text() {
        let waits = "_Z5waitsPf";
        let strided = "_Z7stridedPKfPfmi";
        let places = [
            (waits, 0x50),
            (waits, 0xd0),
            (waits, 0x110),
            (strided, 0x50),
            (strided, 0x10_0000),
            (waits, 0x58),
            ("other", 0x50),
        ];
        let expected = [
            Some("LDG.E R0, desc[UR6][R2.64]"),
            Some("BAR.SYNC.DEFER_BLOCKING 0x0"),
            Some("BRA 0x110"),
            Some("ULDC.64 UR8, c[0x0][0x210]"),
            None,
            None,
            None,
        ];
        assert_eq!(read(PRINTED, &places), expected.map(|text| text.map(str::to_owned)));
    }

    /// Check what is an instruction and what is not, and that an unknown label stays.
    #[test]
    fn other_lines_are_skipped() {
        let line = |text: &str| instruction(text).map(|(offset, text)| format!("{offset:#x} {text}"));
        assert_eq!(line("/*1a60*/              @!P1 STS [R2], R5 ;").as_deref(), Some("0x1a60 @!P1 STS [R2], R5"));
        assert_eq!(line("/*0010*/   NOP;   /* 0x0000000000007918 */").as_deref(), Some("0x10 NOP"));
        for other in ["", "/*", "/*zz*/ NOP;", "/*0010*/ NOP", "/*0010*/ ;", "/* 0x000fea0003800000 */", "NOP;"] {
            assert_eq!(line(other), None, "{other}");
        }
        assert_eq!(resolve("BRA `(.L_x_9)", |_| None), "BRA .L_x_9");
        assert_eq!(resolve("BRA `(.L_x_9", |_| None), "BRA `(.L_x_9");
    }

    /// Check that no listing is a panic, however its lines are cut, and that a section's lines count only there.
    #[test]
    fn damaged_listings_are_read() {
        for width in [1, 7, 30] {
            let mut listing = Listing::new(NVCC, &[("_Z5waitsPf", 0x50)]);
            for chunk in PRINTED.as_bytes().chunks(width) {
                listing.line(&String::from_utf8_lossy(chunk));
            }
            listing.finish();
        }
        let other = PRINTED.replace(".text._Z5waitsPf", ".text.other");
        assert_eq!(read(&other, &[("_Z5waitsPf", 0x50)]), [None]);
        assert_eq!(Listing::new(b"no cubin", &[("_Z5waitsPf", 0x50)]).finish(), [None]);
    }
}
