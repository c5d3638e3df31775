//! Source lines of GPU code, from the line table of a cubin.
//!
//! A cubin is an ELF file with a section for each function. Its line table (`-lineinfo`, or a compiler such as Triton's)
//! is DWARF with two extensions, because there is no description of inlined functions besides it:
//!
//! ```text
//!   row 1   0x00   a.cu:20                              in the kernel
//!   row 2   0x30   a.cu:24                              in the kernel: calls weigh()
//!   row 3   0x30   a.cu:7    context 2, name "weigh"    inlined there
//! ```
//!
//! The context of a row is the number of the row that it was called from, counted from the first row of its function.
//! Names are in `.debug_str`, counted from an
//! offset at the end of the table's header.
//!
//! Addresses in the table are relocated: each function begins at 0. Here function number N begins at `N << 32`.

mod barriers;
mod listing;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    sync::Arc,
    time::Duration,
};

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, LittleEndian, Reader as _,
    Relocate, RelocateReader,
};
use model::event::SourceLine;
use object::{
    Endianness, SectionIndex,
    elf::{FileHeader64, SHT_SYMTAB, STT_FUNC},
    read::elf::{FileHeader, Rel as _, Rela as _, SectionHeader as _, Sym as _},
};
use sandbox::{Failed, Limits};

pub use self::{barriers::Barriers, listing::Listing};
use crate::demangle::demangle;

/// `DW_LNE_NVIDIA_inlined_call`: the context and the name of the following rows.
const INLINED_CALL: u8 = 0x90;
/// `DW_LNE_NVIDIA_set_function_name`
const FUNCTION_NAME: u8 = 0x91;

/// The maximum number of rows of a cubin. The largest kernels have some ten thousand.
const MOST_ROWS: usize = 1 << 20;
/// The maximum depth of inlined functions.
const MOST_INLINED: usize = 64;
/// The maximum length of a name in bytes.
const LONGEST_NAME: usize = 1 << 12;

/// Limits on reading one cubin, of at most 8 MiB.
const LIMITS: Limits = Limits { time: Duration::from_secs(60), answer: 256 << 20 };

/// The bits of an address that are an offset in a function.
const OFFSET: u64 = (1 << 32) - 1;

/// Returns the lines of instructions, each a function and an offset in it, outermost first. An instruction whose line
/// is not known has none.
pub fn lines(cubin: &[u8], wanted: &[(&str, u64)]) -> Vec<Vec<SourceLine>> {
    let mut found = vec![Vec::new(); wanted.len()];
    // A malformed cubin has no lines; what was found before the error is kept.
    let _ = Table::read(cubin).map(|table| table.look_up(wanted, &mut found));
    found
}

/// A line, its function and its file.
type Line = (String, String, u32);

/// Returns the lines of instructions, read by a process without rights.
pub(crate) fn lines_apart(cubin: &[u8], wanted: Vec<(String, u64)>) -> Result<Vec<Vec<SourceLine>>, Failed> {
    fn read((cubin, wanted): &(Vec<u8>, Vec<(String, u64)>), _: &[&File]) -> Vec<Vec<Line>> {
        let wanted: Vec<(&str, u64)> = wanted.iter().map(|(name, offset)| (name.as_str(), *offset)).collect();
        let line = |line: SourceLine| (line.function.to_string(), line.file.to_string(), line.line);
        lines(cubin, &wanted).into_iter().map(|lines| lines.into_iter().map(line).collect()).collect()
    }
    let found = sandbox::parse(read, &(cubin.to_vec(), wanted), &[], &LIMITS)?;
    // Most lines share their file and function.
    let mut texts = HashSet::<Arc<str>>::new();
    let mut text = |text: String| match texts.get(text.as_str()) {
        Some(known) => known.clone(),
        None => {
            let new: Arc<str> = text.into();
            texts.insert(new.clone());
            new
        }
    };
    let mut line = |(function, file, line): Line| SourceLine { function: text(function), file: text(file), line };
    Ok(found.into_iter().map(|lines| lines.into_iter().take(MOST_INLINED + 1).map(&mut line).collect()).collect())
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The parts of a cubin that are needed.
struct Table<'a> {
    line: &'a [u8],
    strings: &'a [u8],
    /// The address of each function, by name.
    functions: HashMap<&'a [u8], u64>,
    /// What to add to the address at an offset in the line table.
    relocations: HashMap<usize, u64>,
}

impl<'a> Table<'a> {
    fn read(cubin: &'a [u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(cubin).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, cubin).ok()?;
        let (line_index, line) = sections.section_by_name(endian, b".debug_line")?;
        let strings = sections.section_by_name(endian, b".debug_str").and_then(|(_, s)| s.data(endian, cubin).ok());
        let symbols = sections.symbols(endian, cubin, SHT_SYMTAB).ok()?;
        let address = |section: usize, value: u64| (section as u64) << 32 | (value & OFFSET);
        let mut functions = HashMap::new();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_type() == STT_FUNC
                && let Ok(Some(SectionIndex(section))) = symbols.symbol_section(endian, symbol, index)
                && let Ok(name) = symbol.name(endian, symbols.strings())
            {
                functions.insert(name, address(section, symbol.st_value(endian)));
            }
        }
        let mut relocations = HashMap::new();
        let mut relocate = |offset: u64, symbol: u32, addend: u64| {
            let index = object::SymbolIndex(symbol as usize);
            if let Ok(symbol) = symbols.symbol(index)
                && let Ok(Some(SectionIndex(section))) = symbols.symbol_section(endian, symbol, index)
            {
                let base = address(section, symbol.st_value(endian).wrapping_add(addend));
                relocations.insert(offset as usize, base);
            }
        };
        for section in sections.iter().filter(|section| section.info_link(endian) == line_index) {
            if let Ok(Some((entries, _))) = section.rel(endian, cubin) {
                entries.iter().for_each(|entry| relocate(entry.r_offset(endian), entry.r_sym(endian), 0));
            }
            if let Ok(Some((entries, _))) = section.rela(endian, cubin) {
                let each = entries.iter().map(|e| (e.r_offset(endian), e.r_sym(endian, false), e.r_addend(endian)));
                each.for_each(|(offset, symbol, addend)| relocate(offset, symbol, addend.cast_unsigned()));
            }
        }
        Some(Self {
            line: line.data(endian, cubin).ok()?,
            strings: strings.unwrap_or_default(),
            functions,
            relocations,
        })
    }

    fn look_up(&self, wanted: &[(&str, u64)], found: &mut [Vec<SourceLine>]) -> Option<()> {
        let address = |(name, offset): &(&str, u64)| self.functions.get(name.as_bytes())?.checked_add(offset & OFFSET);
        let all = wanted.iter().enumerate();
        let mut spots: Vec<(u64, usize)> = all.filter_map(|(place, at)| Some((address(at)?, place))).collect();
        spots.sort_unstable();
        let section = RelocateReader::new(EndianSlice::new(self.line, LittleEndian), Relocations(&self.relocations));
        let section = DebugLine::from(section);
        let (mut offset, mut left) = (0, MOST_ROWS);
        while offset < self.line.len() {
            let program = section.program(DebugLineOffset(offset), 8, None, None).ok()?;
            let names = name_offset(self.line.get(offset..)?).unwrap_or(0);
            offset += 4 + program.header().unit_length();
            let rows = Rows::read(program, names, &mut left)?;
            rows.look_up(self, &spots, found);
        }
        Some(())
    }

    /// Returns the name at an offset in `.debug_str`, demangled.
    fn name(&self, offset: u64) -> Option<Arc<str>> {
        let bytes = self.strings.get(usize::try_from(offset).ok()?..)?;
        let bytes = &bytes[..bytes.len().min(LONGEST_NAME)];
        let name = bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(demangle(&String::from_utf8_lossy(name)).into())
    }
}

/// What to add to the address at an offset in the line table.
#[derive(Clone, Copy, Debug)]
struct Relocations<'a>(&'a HashMap<usize, u64>);

impl Relocate for Relocations<'_> {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.get(&offset).map_or(value, |base| base.wrapping_add(value)))
    }

    fn relocate_offset(&self, _offset: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}

/// A row of the line table.
#[derive(Clone, Copy)]
struct Row {
    address: u64,
    file: u64,
    line: u32,
    /// The index of the row that it was called from; `None` in the function itself.
    caller: Option<usize>,
    /// The offset of its function's name.
    name: u64,
    end: bool,
}

/// The rows of one line program, and its files.
struct Rows {
    rows: Vec<Row>,
    files: HashMap<u64, Arc<str>>,
}

impl Rows {
    fn read(
        program: gimli::IncompleteLineProgram<RelocateReader<Slice<'_>, Relocations<'_>>>,
        names: u64,
        left: &mut usize,
    ) -> Option<Self> {
        let mut files = HashMap::new();
        let mut rows = Vec::new();
        let header = program.header().clone();
        let (mut instructions, mut program) = (header.instructions(), program);
        let mut row = LineRow::new(&header);
        let (mut first, mut context, mut name) = (0, 0_u64, 0);
        while let Ok(Some(instruction)) = instructions.next_instruction(&header) {
            if let LineInstruction::UnknownExtended(code, mut operands) = instruction {
                match code.0 {
                    INLINED_CALL => {
                        context = operands.read_uleb128().ok()?;
                        name = names.wrapping_add(operands.read_uleb128().ok()?);
                    }
                    FUNCTION_NAME => name = names.wrapping_add(operands.read_uleb128().ok()?),
                    _ => {}
                }
                continue;
            }
            row.reset(&header);
            if !row.execute(instruction, &mut program).ok()? {
                continue;
            }
            *left = left.checked_sub(1)?;
            let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
            let end = row.end_sequence();
            let caller = usize::try_from(context).ok().and_then(|context| context.checked_sub(1)?.checked_add(first));
            rows.push(Row { address: row.address(), file: row.file_index(), line, caller, name, end });
            if end {
                (first, context, name) = (rows.len(), 0, 0);
            }
        }
        for row in &rows {
            files.entry(row.file).or_insert_with(|| path(&header, row.file));
        }
        Some(Self { rows, files })
    }

    /// Sets the lines of the instructions in these rows. A row covers from its address to that of the next.
    fn look_up(&self, table: &Table<'_>, spots: &[(u64, usize)], found: &mut [Vec<SourceLine>]) {
        let mut rows = HashMap::new();
        let mut left = MOST_ROWS;
        for (number, pair) in self.rows.windows(2).enumerate().filter(|(_, pair)| !pair[0].end) {
            let first = spots.partition_point(|(address, _)| *address < pair[0].address);
            let inside = spots[first..].iter().take_while(|(address, _)| *address < pair[1].address);
            // Rows of a valid table do not overlap.
            for (_, place) in inside.take(left) {
                rows.insert(*place, number);
                left -= 1;
            }
        }
        for (place, number) in rows {
            found[place] = self.chain(table, number);
        }
    }

    /// Returns the lines of a row and of those that it was called from, outermost first.
    fn chain(&self, table: &Table<'_>, number: usize) -> Vec<SourceLine> {
        let mut lines = Vec::new();
        let mut next = self.rows.get(number);
        // The rows of a malformed table may call each other in a circle.
        for _ in 0..MOST_INLINED {
            let Some(row) = next else { break };
            next = row.caller.and_then(|number| self.rows.get(number));
            let function = row.caller.and_then(|_| table.name(row.name)).unwrap_or_default();
            let file = self.files.get(&row.file).cloned().unwrap_or_default();
            if row.line > 0 && !file.is_empty() {
                lines.push(SourceLine { function, file, line: row.line });
            }
        }
        lines.reverse();
        lines
    }
}

/// Returns the path of a file.
fn path<R: gimli::Reader>(header: &gimli::LineProgramHeader<R>, file: u64) -> Arc<str> {
    let text = |value: AttributeValue<R>| match value {
        AttributeValue::String(bytes) => Some(bytes.to_string_lossy().ok()?.into_owned()),
        _ => None,
    };
    let Some(entry) = header.file(file) else { return Arc::default() };
    let name = text(entry.path_name()).unwrap_or_default();
    match entry.directory(header).and_then(text) {
        Some(directory) if !name.starts_with('/') && !directory.is_empty() => format!("{directory}/{name}").into(),
        _ => name.into(),
    }
}

/// Returns the offset in `.debug_str` from which a line table counts names: 4 bytes at the end of its header, after the
/// table of files.
fn name_offset(table: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_le_bytes(table.get(at..at + 4)?.try_into().ok()?));
    let length = word(6)? as usize;
    let end = 10_usize.checked_add(length)?;
    // The version, and the number of opcodes, which have one byte each.
    let version = u16::from_le_bytes(table.get(4..6)?.try_into().ok()?);
    let opcodes = if version >= 4 { 15 } else { 14 };
    let mut rest = table.get(opcodes + usize::from(*table.get(opcodes)?)..end)?;
    let string = |rest: &mut &[u8]| {
        let length = rest.iter().position(|byte| *byte == 0)?;
        *rest = &rest[length + 1..];
        Some(length)
    };
    while string(&mut rest)? > 0 {}
    while string(&mut rest)? > 0 {
        for _ in 0..3 {
            let length = rest.iter().position(|byte| byte & 0x80 == 0)?;
            rest = &rest[length + 1..];
        }
    }
    Some(u32::from_le_bytes(rest.try_into().ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiled by Triton for an H200 from a kernel that loads with a stride in line 7 of tri.py. On the H200, most of its
    /// samples were at 0x5b0, waiting for these loads.
    const TRITON: &[u8] = include_bytes!("../tests/cubins/triton.cubin");

    /// Compiled by nvcc 13.0 with -lineinfo for an H200: the second function calls one that is inlined.
    const NVCC: &[u8] = include_bytes!("../tests/cubins/nvcc.cubin");

    fn text(lines: &[SourceLine]) -> Vec<String> {
        let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
        lines.iter().map(|line| format!("{} {}:{}", line.function, name(&line.file), line.line)).collect()
    }

    /// Check that instructions of a Triton kernel have lines of its Python source.
    #[test]
    fn triton_kernels_have_lines_of_python() {
        let found = lines(TRITON, &[("gather", 0x5b0), ("gather", 0xae0), ("gather", 0xc00), ("other", 0x110)]);
        assert_eq!((text(&found[0]), text(&found[1])), (vec![" tri.py:7".to_owned()], vec![" tri.py:8".to_owned()]));
        assert_eq!((found[2].len(), found[3].len()), (0, 0), "beyond the function, and in no function");
    }

    /// Check that an inlined function is below the line that calls it, as nvdisasm shows it, also in a function that is not
    /// the first of its line table.
    #[test]
    fn inlined_functions_are_below_their_call() {
        let found = lines(NVCC, &[("_Z7stridedPKfPfmi", 0x50), ("_Z7stridedPKfPfmi", 0x60), ("_Z5waitsPf", 0xd0)]);
        let inlined = "weigh(float const*, unsigned long) small.cu:3";
        assert_eq!(text(&found[0]), [" small.cu:10", inlined]);
        assert_eq!((text(&found[1]), text(&found[2])), (vec![" small.cu:6".into()], vec![" small.cu:17".into()]));
    }

    /// Check that rows that call each other in a circle end, also without lines.
    #[test]
    fn circles_of_calls_end() {
        let table = Table { line: &[], strings: b"f\0", functions: HashMap::new(), relocations: HashMap::new() };
        for (line, expected) in [(0, 0), (7, MOST_INLINED)] {
            let row = |address, caller| Row { address, file: 1, line, caller, name: 0, end: false };
            let rows = Rows { rows: vec![row(0, Some(1)), row(16, Some(0))], files: [(1, "a.cu".into())].into() };
            assert_eq!(rows.chain(&table, 0).len(), expected);
        }
    }

    /// Check that a damaged cubin is an answer without lines, never a panic: each byte of its headers and its line table
    /// is changed, and it is cut off everywhere.
    #[test]
    fn damaged_cubins_have_no_lines() {
        let mut bytes = TRITON.to_vec();
        for at in (0..0x700).chain(bytes.len() - 0x440..bytes.len()) {
            for value in [0, 0x7f, 0xff] {
                let saved = std::mem::replace(&mut bytes[at], value);
                assert_eq!(lines(&bytes, &[("gather", 0x110)]).len(), 1);
                bytes[at] = saved;
            }
        }
        for length in (0..bytes.len()).step_by(7) {
            lines(&bytes[..length], &[("gather", 0x110)]);
        }
    }
}
