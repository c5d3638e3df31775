//! Reads the types of functions of the kernel and its modules from BTF, in /sys/kernel/btf. The format is described in
//! the kernel's Documentation/bpf/btf.rst.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The BTF directory: one file for the kernel, one for each module.
const DIRECTORY: &str = "/sys/kernel/btf";
/// The file of the kernel itself.
pub(crate) const KERNEL: &str = "vmlinux";

/// A function of the kernel or of a module, and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Its name.
    pub name: String,
    /// The module, or `vmlinux`.
    pub module: String,
    /// Its type id in the module's BTF.
    pub id: u32,
    /// The names of its parameters, one for each word of 8 bytes.
    pub parameters: Vec<String>,
    /// How many bytes of each of these words are used.
    pub widths: Vec<u8>,
    /// Its result type.
    pub result: KernelResult,
}

/// The result type of a kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelResult {
    /// Nothing.
    Nothing,
    /// A signed number of this many bytes.
    Signed(u8),
    /// An unsigned number of this many bytes, or an address.
    Unsigned(u8),
}

impl KernelResult {
    /// Returns the value in the result register, without the unused bits.
    pub fn read(self, register: u64) -> u64 {
        let beyond = |bytes: u8| 64 - 8 * u32::from(bytes.clamp(1, 8));
        match self {
            Self::Nothing => 0,
            Self::Signed(bytes) => ((register << beyond(bytes)).cast_signed() >> beyond(bytes)).cast_unsigned(),
            Self::Unsigned(bytes) => register << beyond(bytes) >> beyond(bytes),
        }
    }
}

/// Returns the matching functions of the kernel and of the loaded modules.
pub fn kernel_functions(wanted: impl Fn(&str) -> bool) -> io::Result<Vec<KernelFunction>> {
    functions_in(Path::new(DIRECTORY), wanted)
}

/// Returns the matching functions in one BTF file, such as `/sys/kernel/btf/vmlinux`. `None` if it cannot be parsed.
pub fn functions_of(bytes: &[u8], module: &str, wanted: impl Fn(&str) -> bool) -> Option<Vec<KernelFunction>> {
    Some(Types::parse(bytes, None)?.functions(module, &wanted))
}

fn functions_in(directory: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<KernelFunction>> {
    let kernel = fs::read(directory.join(KERNEL))?;
    let broken = |path: PathBuf| io::Error::other(format!("cannot understand {}", path.display()));
    let base = Types::parse(&kernel, None).ok_or_else(|| broken(directory.join(KERNEL)))?;
    let mut found = base.functions(KERNEL, &wanted);
    for file in fs::read_dir(directory)?.flatten().filter(|file| file.file_name() != KERNEL) {
        let bytes = fs::read(file.path())?;
        let types = Types::parse(&bytes, Some(&base)).ok_or_else(|| broken(file.path()))?;
        found.extend(types.functions(&file.file_name().to_string_lossy(), &wanted));
    }
    Ok(found)
}

const INT: u32 = 1;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const TYPE_TAG: u32 = 18;

/// Types by id, and their names. The ids and name offsets of a module continue those of the kernel.
struct Types<'a> {
    base: Option<&'a Types<'a>>,
    records: Vec<Type<'a>>,
    names: &'a [u8],
}

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Its size, or the type that it refers to.
    size_or_type: u32,
    more: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8], base: Option<&'a Self>) -> Option<Self> {
        const MAGIC: u16 = 0xeb9f;
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = word(bytes, 4)? as usize;
        let part = |at: usize| {
            let (offset, length) = (word(bytes, at)? as usize, word(bytes, at + 4)? as usize);
            bytes.get(header + offset..)?.get(..length)
        };
        let (mut rest, names) = (part(8)?, part(16)?);
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (name, info, size_or_type) = (word(rest, 0)?, word(rest, 4)?, word(rest, 8)?);
            let (count, kind) = ((info & 0xffff) as usize, info >> 24 & 0x1f);
            let more = match kind {
                INT | 14 | 17 => 4,                     // also VAR, DECL_TAG
                3 => 12,                                // ARRAY
                STRUCT | UNION | 15 | 19 => 12 * count, // also DATASEC, ENUM64
                ENUM | FUNC_PROTO => 8 * count,
                0..=18 => 0,
                _ => return None,
            };
            records.push(Type { name, kind, size_or_type, more: rest.get(12..12 + more)? });
            rest = &rest[12 + more..];
        }
        Some(Self { base, records, names })
    }

    /// Returns the id of the first type; id 0 is void.
    fn first(&self) -> u32 {
        self.base.map_or(1, |base| base.first() + base.records.len() as u32)
    }

    fn get(&self, id: u32) -> Option<Type<'a>> {
        match (id.checked_sub(self.first()), self.base) {
            (Some(index), _) => self.records.get(index as usize).copied(),
            (None, base) => base?.get(id),
        }
    }

    fn name(&self, offset: u32) -> Option<&'a str> {
        let before = self.base.map_or(0, |base| base.names.len());
        match ((offset as usize).checked_sub(before), self.base) {
            (Some(at), _) => {
                let text = self.names.get(at..)?;
                std::str::from_utf8(&text[..text.iter().position(|byte| *byte == 0)?]).ok()
            }
            (None, base) => base?.name(offset),
        }
    }

    /// Resolves typedefs and qualifiers.
    fn bare(&self, mut id: u32) -> Option<Type<'a>> {
        const MOST: usize = 64;
        for _ in 0..MOST {
            let found = self.get(id)?;
            match found.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = found.size_or_type,
                _ => return Some(found),
            }
        }
        None
    }

    fn functions(&self, module: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<KernelFunction> {
        let functions = self.records.iter().zip(self.first()..).filter(|(record, _)| record.kind == FUNC);
        let found = functions.filter_map(|(record, id)| {
            let name = self.name(record.name).filter(|name| wanted(name))?;
            let prototype = self.get(record.size_or_type).filter(|prototype| prototype.kind == FUNC_PROTO)?;
            let (parameters, widths) = self.parameters(prototype);
            Some(KernelFunction {
                name: name.to_owned(),
                module: module.to_owned(),
                id,
                parameters,
                widths,
                result: self.result(prototype),
            })
        });
        found.collect()
    }

    /// Returns the name of each word, and how many of its bytes are used.
    fn parameters(&self, prototype: Type<'_>) -> (Vec<String>, Vec<u8>) {
        let (mut parameters, mut widths) = (Vec::new(), Vec::new());
        for parameter in prototype.more.chunks_exact(8) {
            let (name, id) = (word(parameter, 0).unwrap_or(0), word(parameter, 4).unwrap_or(0));
            let name = match self.name(name) {
                None | Some("") => format!("arg{}", parameters.len()),
                Some(name) => name.to_owned(),
            };
            // A structure of up to 16 bytes is passed in two words.
            let (words, width) = match self.bare(id) {
                Some(Type { kind: STRUCT | UNION, size_or_type: size, .. }) if size > 8 => (2, 8),
                Some(Type { kind: INT | ENUM, size_or_type: size @ (1 | 2 | 4), .. }) => (1, size as u8),
                _ => (1, 8),
            };
            parameters.extend(std::iter::repeat_n(name, words));
            widths.extend(std::iter::repeat_n(width, words));
        }
        (parameters, widths)
    }

    fn result(&self, prototype: Type<'_>) -> KernelResult {
        const SIGNED: u32 = 1 << 24;
        if prototype.size_or_type == 0 {
            return KernelResult::Nothing;
        }
        match self.bare(prototype.size_or_type) {
            Some(Type { kind: INT, size_or_type: size, more, .. }) => {
                let signed = word(more, 0).is_some_and(|encoding| encoding & SIGNED != 0);
                if signed { KernelResult::Signed(size as u8) } else { KernelResult::Unsigned(size as u8) }
            }
            Some(Type { kind: ENUM, size_or_type: size, .. }) => KernelResult::Signed(size as u8),
            _ => KernelResult::Unsigned(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes types in the kernel's format: a header, records, names.
    fn written(records: &[&[u32]], names: &str) -> Vec<u8> {
        let types: Vec<u32> = records.concat();
        let sizes = [24, 0, 4 * types.len() as u32, 4 * types.len() as u32, names.len() as u32];
        let words = [0x0001_eb9f].into_iter().chain(sizes).chain(types);
        words.flat_map(u32::to_ne_bytes).chain(names.bytes()).collect()
    }

    const fn info(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    /// Check that a kernel function is found, and a module function that takes a kernel type.
    #[test]
    fn kernel_and_module_functions_are_found() {
        const SIGNED: u32 = 1 << 24 | 32;
        let directory = tempfile::tempdir().expect("a directory");
        let names = "\0int\0pair\0open\0flags\0both\0";
        let kernel = written(
            &[
                &[1, info(INT, 0), 4, SIGNED],
                &[5, info(STRUCT, 0), 16],
                &[0, info(FUNC_PROTO, 3), 1, 15, 1, 21, 2, 0, 1],
                &[10, info(FUNC, 0), 3],
            ],
            names,
        );
        let at = names.len() as u32;
        let module = written(&[&[0, info(FUNC_PROTO, 1), 0, 15, 1], &[at + 1, info(FUNC, 0), 5]], "\0close\0");
        fs::write(directory.path().join(KERNEL), kernel).expect("a file");
        fs::write(directory.path().join("driver"), module).expect("a file");
        let found = functions_in(directory.path(), |_| true).expect("functions");
        let function = |name: &str, module: &str, id, parameters: &[(&str, u8)], result| KernelFunction {
            name: name.into(),
            module: module.into(),
            id,
            parameters: parameters.iter().map(|&(name, _)| name.into()).collect(),
            widths: parameters.iter().map(|&(_, width)| width).collect(),
            result,
        };
        let words = [("flags", 4), ("both", 8), ("both", 8), ("arg3", 4)];
        let expected = [
            function("open", KERNEL, 4, &words, KernelResult::Signed(4)),
            function("close", "driver", 6, &[("flags", 4)], KernelResult::Nothing),
        ];
        assert_eq!(found, expected);
        assert!(functions_in(directory.path(), |name| name == "read").expect("functions").is_empty());
    }

    /// Check that truncated and invalid files are rejected.
    #[test]
    fn invalid_files_are_rejected() {
        let directory = tempfile::tempdir().expect("a directory");
        let whole = written(&[&[1, info(INT, 0), 4, 32]], "\0int\0");
        for bytes in [&b""[..], b"\x7fELF", &whole[..whole.len() - 1], &written(&[&[0, info(31, 0), 0]], "\0")] {
            fs::write(directory.path().join(KERNEL), bytes).expect("a file");
            let error = functions_in(directory.path(), |_| true).expect_err("an error");
            assert!(error.to_string().contains("cannot understand"), "{error}");
        }
    }

    /// Check that only the bytes of the result type are read.
    #[test]
    fn only_the_bytes_of_the_result_type_are_read() {
        assert_eq!(KernelResult::Signed(4).read(0x1_ffff_fffe).cast_signed(), -2);
        assert_eq!(KernelResult::Unsigned(1).read(0xff01), 1);
        assert_eq!(KernelResult::Unsigned(8).read(u64::MAX), u64::MAX);
        assert_eq!(KernelResult::Signed(8).read(u64::MAX), u64::MAX);
        assert_eq!(KernelResult::Nothing.read(7), 0);
    }
}
