//! Names of kernels from the handles that a process keeps, for launches whose handles were requested before warpscope came.
//!
//! Host functions compiled by nvcc 13 do not launch by their own address. They request a handle once, and keep it:
//!
//! ```text
//!   static cudaKernel_t __handle;                      a word of the file's memory
//!   __cudaGetKernel(&__handle, host function);         once, at the first launch
//!   __cudaLaunchKernel(__handle, ...);
//! ```
//!
//! So the name of a handle follows from the word that contains it. Where symbols are left, that of the word contains the
//! kernel's name. Otherwise the code is searched for the calls that pass the word and the host function, and for those that
//! register the host function with the kernel's name.
//!
//! Handles that a library without host functions keeps have their names from the driver's objects: see [`crate::Layout`].
//!
//! `trace` also watches `__cudaLaunchKernel`, because the driver's launch within it may use another handle. `monitor`
//! does not, so that a launch stops the program once. A name found in this way is a symbol at the handle's value in the
//! recording.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
};

use elf::{Budget, Elf, SHT_SYMTAB, STT_OBJECT, Symbol, Symbols};
use model::event::{Frame, FrameKind, Mapping, NamedFrame, ProcessId, Symbol as Named};

use crate::{
    Files,
    demangle::stub_kernel,
    registered::{self, Arguments, Loaded},
    resolve::module,
};

/// The size of a handle.
const WORD: u64 = 8;
/// The most words of one file that may be handles.
const MOST_WORDS: usize = 1 << 20;
/// The most handles of one process.
const MOST: usize = 1 << 16;
/// The most bytes of code that are searched in the files of one process. It is read in pieces, so this limits time, not memory.
const MOST_CODE: u64 = 1 << 30;
/// How much of the process's memory is read at a time.
const BLOCK: usize = 1 << 16;

/// Returns the names of the kernel handles that a process keeps in its memory, each as a symbol at the handle's value: the
/// name of the kernel's host function. `memory` is the process's memory, `/proc/PID/mem`.
pub fn kept_handles<'a>(
    mappings: impl IntoIterator<Item = &'a Mapping>,
    files: &Files,
    memory: &File,
    budget: &Budget,
) -> Vec<Named> {
    let mut memory = Memory { file: memory, start: 0, bytes: Vec::new() };
    let (mut names, mut seen) = (HashMap::new(), HashSet::new());
    let mut code_left = MOST_CODE;
    for mapping in mappings {
        let Some(source) = files.source(mapping).filter(|source| registered::has_kernels(&source.elf)) else {
            continue;
        };
        let Some(bias) = source.elf.segments.bias(mapping.start, mapping.offset) else { continue };
        if !seen.insert((&mapping.path, bias)) {
            continue;
        }
        let mut word = |address: u64| memory.word(bias.wrapping_add(address)).filter(|word| *word != 0);
        let mut found = by_symbols(&source.file, &source.elf, budget, &mut word);
        if found.is_empty() {
            let size: u64 = source.elf.segments.executable().map(|segment| segment.file_size).sum();
            let Some(rest) = code_left.checked_sub(size) else { continue };
            code_left = rest;
            found = by_code(&source.file, &source.elf, &mut word);
        }
        let module = module(&mapping.path);
        for (handle, name) in found.into_iter().take(MOST.saturating_sub(names.len())) {
            names.entry(handle).or_insert_with(|| symbol(mapping.process, handle, name, &module));
        }
    }
    names.into_values().collect()
}

/// Returns the symbol of a handle whose kernel has this name; `module` is where it was found.
pub fn handle_symbol(process: ProcessId, handle: u64, kernel: &str, module: &str) -> Named {
    symbol(process, handle, registered::as_stub(kernel), module)
}

fn symbol(process: ProcessId, handle: u64, name: String, module: &str) -> Named {
    let names = vec![NamedFrame { kind: FrameKind::Native, name: name.into(), module: module.into() }];
    Named { process, frame: Frame::User(handle), since: 0, names }
}

/// Returns the handle that a symbol stands for, and its kernel's mangled name.
pub fn handle_kernel(symbol: &Named) -> Option<(u64, &str)> {
    let Frame::User(handle) = symbol.frame else { return None };
    Some((handle, stub_kernel(&symbol.names.last()?.name)?))
}

/// Returns the names with which the host functions at these addresses were registered. A host function's own symbol may differ:
/// the host's compiler names lambdas and anonymous namespaces by its own rules.
pub fn registered_kernels<'a>(
    mappings: impl IntoIterator<Item = &'a Mapping>,
    files: &Files,
    memory: &File,
    addresses: &HashSet<u64>,
) -> HashMap<u64, String> {
    let mut memory = Memory { file: memory, start: 0, bytes: Vec::new() };
    let (mut names, mut code_left) = (HashMap::new(), MOST_CODE);
    for mapping in mappings {
        let Some(source) = files.source(mapping).filter(|source| registered::has_kernels(&source.elf)) else {
            continue;
        };
        let Some(bias) = source.elf.segments.bias(mapping.start, mapping.offset) else { continue };
        if !addresses.iter().any(|address| (mapping.start..mapping.end).contains(address)) {
            continue;
        }
        let size: u64 = source.elf.segments.executable().map(|segment| segment.file_size).sum();
        let Some(rest) = code_left.checked_sub(size) else { continue };
        code_left = rest;
        let wanted = |function: Loaded| match function {
            Loaded::Address(address) => addresses.contains(&bias.wrapping_add(address)),
            Loaded::Word(address) => address.is_multiple_of(WORD),
        };
        for (function, name) in
            registered::calls(&source.file, &source.elf, MOST_CODE, &wanted, &|call| call.registration())
        {
            let address = match function {
                Loaded::Address(address) => Some(bias.wrapping_add(address)),
                Loaded::Word(address) => memory.word(bias.wrapping_add(address)),
            };
            let address = address.filter(|address| addresses.contains(address));
            let stub = address.and_then(|_| registered::stub_name(&source.file, &source.elf, name));
            if let (Some(address), Some(kernel)) = (address, stub.as_deref().and_then(stub_kernel)) {
                names.insert(address, kernel.to_owned());
            }
        }
    }
    names
}

/// The memory of a process, read in blocks.
struct Memory<'a> {
    file: &'a File,
    start: u64,
    bytes: Vec<u8>,
}

impl Memory<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        if self.at(address).is_none() {
            self.bytes.resize(BLOCK, 0);
            let read = self.file.read_at(&mut self.bytes, address).unwrap_or(0);
            self.bytes.truncate(read);
            self.start = address;
        }
        self.at(address)
    }

    fn at(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(WORD as usize)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Finds handles by the symbols of the words that contain them: the handle, and the name of the host function.
fn by_symbols(file: &File, elf: &Elf, budget: &Budget, word: &mut dyn FnMut(u64) -> Option<u64>) -> Vec<(u64, String)> {
    let Some(symbols) = Symbols::of(elf, SHT_SYMTAB) else { return Vec::new() };
    let mut words: Vec<Symbol> = Vec::new();
    let is_word = |symbol: &Symbol| symbol.kind == STT_OBJECT && symbol.size == WORD && symbol.is_defined();
    let read = symbols.each(file, budget.symbols, |_, symbol| {
        if is_word(&symbol) && words.len() < MOST_WORDS {
            words.push(symbol);
        }
    });
    if read.is_err() {
        return Vec::new();
    }
    words.sort_unstable_by_key(|symbol| symbol.address);
    // Most words are 0: their names are not read.
    let kept = words.iter().filter_map(|symbol| Some((word(symbol.address)?, symbols.name(file, symbol)?)));
    kept.filter_map(|(handle, name)| Some((handle, host_function(std::str::from_utf8(&name).ok()?)?.to_owned())))
        .collect()
}

/// Returns the host function from the name of its static variable: `_ZZL25__device_stub__Z5scalePfiPfiE8__handle`.
fn host_function(variable: &str) -> Option<&str> {
    let inside = variable.strip_prefix("_ZZ").filter(|rest| rest.contains("E8__handle"))?;
    let at = inside.find("__device_stub__")?;
    let digits = inside[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let length: usize = inside[at - digits..at].parse().ok()?;
    inside.get(at..at.checked_add(length)?)
}

/// Finds handles by the code that requests them: the handle, and the name of the host function.
fn by_code(file: &File, elf: &Elf, word: &mut dyn FnMut(u64) -> Option<u64>) -> Vec<(u64, String)> {
    let code = |address: u64| elf.segments.executable().any(|segment| segment.addresses().contains(&address));
    let is_data = |address: u64| {
        let data = elf.segments.iter().filter(|segment| !segment.executable);
        address.is_multiple_of(WORD) && data.map(elf::Segment::addresses).any(|data| data.contains(&address))
    };
    let wanted = |function: Loaded| match function {
        Loaded::Address(address) => code(address),
        Loaded::Word(address) => is_data(address),
    };
    let recognise = |call: &Arguments| {
        let name = call.registration().map(|(function, name)| (function, Call::Registers(name)));
        name.or_else(|| call.pair().filter(|(_, at)| is_data(*at)).map(|(function, at)| (function, Call::Requests(at))))
    };
    let (mut names, mut words) = (HashMap::new(), Vec::new());
    for (function, call) in registered::calls(file, elf, MOST_CODE, &wanted, &recognise) {
        match call {
            Call::Registers(name) => drop(names.insert(function, name)),
            Call::Requests(at) => words.push((at, function)),
        }
    }
    words.retain(|(_, function)| names.contains_key(function));
    words.sort_unstable_by_key(|(at, _)| *at);
    words.truncate(MOST_WORDS);
    let kept = words.into_iter().filter_map(|(at, function)| Some((word(at)?, names.get(&function)?)));
    kept.filter_map(|(handle, name)| Some((handle, registered::stub_name(file, elf, *name)?))).collect()
}

/// What a call does with a host function.
enum Call {
    /// It registers it with the kernel's name at this address.
    Registers(u64),
    /// It may request its handle, to be written to this address.
    Requests(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that host functions are found in the names of their variables as GCC mangles them, and that other and malformed
    /// names are rejected.
    #[test]
    fn variables_name_their_host_functions() {
        for (variable, function) in [
            ("_ZZL25__device_stub__Z5scalePfiPfiE8__handle", Some("__device_stub__Z5scalePfi")),
            ("_ZZL18__device_stub__sumvE8__handle", Some("__device_stub__sum")),
            ("_ZZL25__device_stub__Z5scalePfiPfiE8__handle_0", Some("__device_stub__Z5scalePfi")),
            ("_ZZL25__device_stub__Z5scalePfiPfiE5__tmp", None),
            ("_ZZL99__device_stub__Z5scalePfiPfiE8__handle", None),
            ("_ZZL__device_stub__Z5scalePfiPfiE8__handle", None),
            ("_ZZL99999999999999999999__device_stub__sumvE8__handle", None),
            ("__handle", None),
        ] {
            assert_eq!(host_function(variable), function, "{variable}");
        }
    }
}
