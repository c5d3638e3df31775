//! Addresses of functions in the target's C library, and of the code that allocates memory.

use std::{collections::HashMap, fs::File, ops::Range, os::unix::fs::MetadataExt};

use elf::{Bytes, Elf, SHT_DYNSYM, STT_FUNC, Symbols};

use crate::process::Mapping;

const MAX_SYMBOLS: u64 = 8 << 20;
const MAX_TEXT: u64 = 16 << 20;
/// `mov $15, %rax; syscall`: the code to which signal handlers return.
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
/// `syscall; ret`
const SYSTEM_CALL: [u8; 3] = [0x0f, 0x05, 0xc3];
/// What is called in the target.
const NEEDED: [&str; 7] = ["dlopen", "dlsym", "dlerror", "pthread_create", "pthread_self", "pthread_detach", "munmap"];
/// A thread that waits within one of these may hold a lock that the call needs.
const UNSAFE: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "malloc_trim",
    "fork",
    "pthread_create",
    "dlopen",
    "dlclose",
    "dlsym",
    "dl_iterate_phdr",
];

/// `pthread_create` allocates memory with these, from the C library or from a module that replaces them. Whoever replaces
/// them must export them, also a program that has its allocator linked in.
const ALLOCATOR: [&str; 2] = ["malloc", "calloc"];

/// What is known about the target's C library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Library {
    functions: HashMap<&'static str, u64>,
    /// Functions that take locks which the call needs.
    pub locking: Vec<Range<u64>>,
    /// The code of other modules that allocates memory.
    pub allocators: Vec<Range<u64>>,
    /// The code of the dynamic loader, if it is a file of its own.
    pub loader: Option<Range<u64>>,
    /// The address of `mov $15, %rax; syscall`.
    pub restorer: u64,
    /// The address of `syscall; ret`.
    pub system_call: u64,
}

impl Library {
    /// Finds the functions in the mapped C library, and in `libdl` and `libpthread` of older releases.
    /// `open` opens the file of a mapping, and `program` is the program's file. Returns what is missing.
    pub fn find(mappings: &[Mapping], program: &File, open: impl Fn(&Mapping) -> Option<File>) -> Result<Self, String> {
        let identity = |file: &File| file.metadata().map(|info| (info.dev(), info.ino())).ok();
        let mut library = Library::default();
        for mapping in mappings.iter().filter(|mapping| mapping.executable) {
            let name = mapping.file_name();
            let glibc = ["libc.so.6", "libc-2.", "libdl.so.2", "libdl-2.", "libpthread.so.0", "libpthread-2."];
            if name.starts_with("ld-linux") || name.starts_with("ld-2.") {
                library.loader = Some(mapping.start..mapping.end);
            } else if (glibc.iter().any(|prefix| name.starts_with(prefix)) || name.starts_with("ld-musl-"))
                && let Some(file) = open(mapping)
            {
                library.read(mapping, &file);
            } else if mapping.name.starts_with('/')
                && let Some(file) = open(mapping)
            {
                let is_program = identity(&file) == identity(program);
                library.read_allocator(mapping, &file, is_program);
            }
        }
        match NEEDED.into_iter().find(|name| !library.functions.contains_key(name)) {
            Some(name) => Err(format!("it has no C library with {name}, for example because it is statically linked")),
            None if library.restorer == 0 || library.system_call == 0 => {
                Err("its C library is of an unknown kind".to_owned())
            }
            None => Ok(library),
        }
    }

    /// Returns the address of a needed function.
    pub fn function(&self, name: &str) -> u64 {
        self.functions.get(name).copied().unwrap_or(0)
    }

    /// Whether `pthread_create` allocates memory: that of glibc, whose loader is a file of its own. That of musl does not.
    pub fn allocates(&self) -> bool {
        self.loader.is_some()
    }

    /// Notes the code of a module that replaces the C library's allocator: all of a library, because its functions may have
    /// called each other without leaving a return address; but of a program, which has other code too, these functions.
    fn read_allocator<B: Bytes>(&mut self, mapping: &Mapping, file: &B, is_program: bool) -> Option<()> {
        let elf = Elf::read(file).ok().filter(|elf| elf.wide)?;
        let find = |name: &&str| Symbols::exported(&elf, file, name).filter(|symbol| symbol.kind == STT_FUNC);
        if !ALLOCATOR.iter().any(|name| find(name).is_some()) {
            return None;
        }
        if !is_program {
            self.allocators.push(mapping.start..mapping.end);
            return Some(());
        }
        let bias = elf.segments.bias(mapping.start, mapping.offset)?;
        self.allocators.extend(UNSAFE.iter().filter_map(find).map(|symbol| {
            let start = bias.wrapping_add(symbol.address);
            start..start.saturating_add(symbol.size)
        }));
        Some(())
    }

    fn read<B: Bytes>(&mut self, mapping: &Mapping, file: &B) -> Option<()> {
        let elf = Elf::read(file).ok().filter(|elf| elf.wide && elf.machine == elf::EM_X86_64.0)?;
        let bias = elf.segments.bias(mapping.start, mapping.offset)?;
        let symbols = Symbols::of(&elf, SHT_DYNSYM)?;
        let strings = symbols.strings().read(file, MAX_SYMBOLS, "symbol names").ok()?;
        symbols
            .each(file, MAX_SYMBOLS, |_, symbol| {
                if symbol.kind != STT_FUNC || !symbol.is_defined() {
                    return;
                }
                let Some(name) = Symbols::name_in(&strings, &symbol) else { return };
                let start = bias.wrapping_add(symbol.address);
                if !mapping.contains(start) {
                    return;
                }
                if let Some(needed) = NEEDED.into_iter().find(|needed| needed.as_bytes() == name) {
                    self.functions.insert(needed, start);
                }
                if UNSAFE.into_iter().any(|function| function.as_bytes() == name) {
                    self.locking.push(start..start.saturating_add(symbol.size));
                }
            })
            .ok()?;
        let size = (mapping.end - mapping.start).min(MAX_TEXT);
        let text =
            elf::read(file, mapping.offset, size.min(file.length().saturating_sub(mapping.offset)), "code").ok()?;
        let find = |code: &[u8]| text.windows(code.len()).position(|window| window == code);
        if self.restorer == 0
            && let (Some(restorer), Some(system_call)) = (find(&RESTORER), find(&SYSTEM_CALL))
        {
            self.restorer = mapping.start + restorer as u64;
            self.system_call = mapping.start + system_call as u64;
        }
        Some(())
    }

    /// Checks that the target's memory has the expected code.
    pub fn verify(&self, read: impl Fn(u64, &mut [u8]) -> bool) -> bool {
        let (mut restorer, mut system_call) = (RESTORER, SYSTEM_CALL);
        restorer.fill(0);
        system_call.fill(0);
        read(self.restorer, &mut restorer)
            && restorer == RESTORER
            && read(self.system_call, &mut system_call)
            && system_call == SYSTEM_CALL
    }
}
