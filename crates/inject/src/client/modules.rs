//! The modules that the loader has loaded, as it describes them: segments, dynamic sections, symbols and slots.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Types of relocations whose slot holds a function's address.
const GLOB_DAT: u64 = 6;
const JUMP_SLOT: u64 = 7;
/// The most entries of a dynamic section that are read.
const MOST_ENTRIES: usize = 4096;

/// `Elf64_Rela`
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Entries of the dynamic section.
mod tag {
    pub const NULL: i64 = 0;
    pub const NEEDED: i64 = 1;
    pub const PLT_SIZE: i64 = 2;
    pub const STRINGS: i64 = 5;
    pub const SYMBOLS: i64 = 6;
    pub const RELA: i64 = 7;
    pub const RELA_SIZE: i64 = 8;
    pub const SONAME: i64 = 14;
    pub const PLT: i64 = 23;
    pub const GNU_HASH: i64 = 0x6fff_fef5;
    pub const RELA_COUNT: i64 = 0x6fff_fff9;
}

/// Visits all loaded modules, until the visitor returns true. The loader keeps them loaded meanwhile.
pub fn each(visit: &mut dyn FnMut(&Module<'_>) -> bool) {
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and the caller its visitor.
        let (module, visit) =
            unsafe { (Module::new(&*info), &mut *data.cast::<&mut dyn FnMut(&Module<'_>) -> bool>()) };
        c_int::from(visit(&module))
    }
    let mut visit = visit;
    // SAFETY: the function matches its declaration, and the data outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut visit).cast()) };
}

/// Returns how often modules were loaded so far; 0 if the loader does not report it.
pub fn loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and the caller its number.
        unsafe { *data.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the function matches its declaration, and the number outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// A loaded module.
pub struct Module<'a> {
    pub base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl<'a> Module<'a> {
    /// # Safety
    /// The description must come from the loader.
    unsafe fn new(info: &'a libc::dl_phdr_info) -> Self {
        let headers = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: the loader's description is valid.
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
        };
        Self { base: info.dlpi_addr as usize, headers }
    }

    /// The addresses of the segments of a type.
    fn segments(&self, of: u32) -> impl Iterator<Item = (usize, usize)> + '_ {
        let headers = self.headers.iter().filter(move |header| header.p_type == of);
        headers.map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (start, start.wrapping_add(header.p_memsz as usize))
        })
    }

    pub fn contains(&self, address: usize) -> bool {
        self.segments(libc::PT_LOAD).any(|(start, end)| (start..end).contains(&address))
    }

    pub fn dynamic(&self) -> Option<Dynamic> {
        let (start, end) = self.segments(libc::PT_DYNAMIC).next()?;
        Dynamic::read(self.base, start, end)
    }

    /// Replaces a word, whose pages are writable for the time of the store.
    pub fn store(&self, word: &AtomicUsize, value: usize) -> bool {
        let at = word.as_ptr() as usize;
        // SAFETY: only asks for a number.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let page = at & !(page_size - 1);
        let Some(protection) = self.protection(at, page_size) else { return false };
        let is_writable = protection & libc::PROT_WRITE != 0;
        // SAFETY: the page belongs to the module, whose other threads only read it; it is as before afterwards.
        unsafe {
            if !is_writable && libc::mprotect(page as *mut c_void, page_size, protection | libc::PROT_WRITE) != 0 {
                return false;
            }
            word.store(value, Ordering::Release);
            if !is_writable {
                libc::mprotect(page as *mut c_void, page_size, protection);
            }
        }
        true
    }

    /// The protection of the page at an address; None if it is not in the module. The loader protects some writable pages
    /// once it has filled them (RELRO).
    fn protection(&self, at: usize, page_size: usize) -> Option<c_int> {
        let headers = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let segment = headers.into_iter().find(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (start..start.wrapping_add(header.p_memsz as usize)).contains(&at)
        })?;
        let is_relro = self
            .segments(libc::PT_GNU_RELRO)
            .any(|(start, end)| (start & !(page_size - 1)..end & !(page_size - 1)).contains(&at));
        let flags = [(libc::PF_R, libc::PROT_READ), (libc::PF_W, libc::PROT_WRITE), (libc::PF_X, libc::PROT_EXEC)];
        let granted = flags.iter().filter(|(flag, _)| segment.p_flags & flag != 0);
        let protection = granted.fold(0, |all, (_, protection)| all | protection);
        Some(if is_relro { protection & !libc::PROT_WRITE } else { protection })
    }

    /// A word of the module; None if the address is not aligned or elsewhere.
    pub fn word(&self, at: usize) -> Option<&AtomicUsize> {
        let is_word = at.is_multiple_of(size_of::<usize>()) && self.contains(at);
        // SAFETY: an aligned word of a loaded module.
        is_word.then(|| unsafe { &*(at as *const AtomicUsize) })
    }
}

/// The dynamic section of a loaded module.
pub struct Dynamic {
    base: usize,
    entries: &'static [[u64; 2]],
    strings: usize,
}

impl Dynamic {
    fn read(base: usize, start: usize, end: usize) -> Option<Self> {
        let most = (end.checked_sub(start)? / size_of::<[u64; 2]>()).min(MOST_ENTRIES);
        // SAFETY: the loader has mapped the section. The module stays loaded while the walk has it.
        let entries = unsafe { core::slice::from_raw_parts(start as *const [u64; 2], most) };
        let count = entries.iter().position(|[name, _]| name.cast_signed() == tag::NULL)?;
        let section = Self { base, entries: &entries[..count], strings: 0 };
        let strings = section.address(tag::STRINGS)?;
        Some(Self { strings, ..section })
    }

    fn value(&self, of: i64) -> Option<u64> {
        self.entries.iter().find(|[name, _]| name.cast_signed() == of).map(|[_, value]| *value)
    }

    /// Returns an address. Some loaders leave offsets in the section.
    fn address(&self, of: i64) -> Option<usize> {
        let value = self.value(of)? as usize;
        Some(if value < self.base { self.base + value } else { value })
    }

    /// The name by which other modules depend on this one.
    pub fn soname(&self) -> Option<&'static CStr> {
        self.value(tag::SONAME).map(|at| self.string(at))
    }

    /// The string stays where it is as long as the module is loaded.
    fn string(&self, at: u64) -> &'static CStr {
        // SAFETY: the loader has used the same string.
        unsafe { CStr::from_ptr((self.strings + at as usize) as *const c_char) }
    }

    pub fn needs(&self, soname: &CStr) -> bool {
        let needed = self.entries.iter().filter(|[name, _]| name.cast_signed() == tag::NEEDED);
        needed.into_iter().any(|[_, at]| self.string(*at) == soname)
    }

    /// Passes on the name and the slot of each imported symbol.
    pub fn slots(&self, visit: &mut dyn FnMut(&CStr, usize)) {
        let Some(symbols) = self.address(tag::SYMBOLS) else { return };
        // Relocations without a symbol come first, and there are many.
        let skipped = self.value(tag::RELA_COUNT).unwrap_or(0);
        let tables = [(tag::RELA, tag::RELA_SIZE, skipped), (tag::PLT, tag::PLT_SIZE, 0)];
        for (table, size, skipped) in tables {
            let (Some(table), Some(size)) = (self.address(table), self.value(size)) else { continue };
            let count = size as usize / size_of::<Relocation>();
            // SAFETY: the loader has read the same table.
            let relocations = unsafe { core::slice::from_raw_parts(table as *const Relocation, count) };
            for relocation in relocations.iter().skip(skipped as usize) {
                let (symbol, kind) = (relocation.info >> 32, relocation.info & 0xffff_ffff);
                if matches!(kind, GLOB_DAT | JUMP_SLOT) && relocation.addend == 0 {
                    // SAFETY: the loader has used the same symbol.
                    let symbol = unsafe { &*(symbols as *const libc::Elf64_Sym).add(symbol as usize) };
                    visit(self.string(symbol.st_name.into()), self.base.wrapping_add(relocation.offset as usize));
                }
            }
        }
    }

    /// Passes on the address of the value of each exported symbol of this name: one for each version.
    pub fn exports(&self, name: &CStr, visit: &mut dyn FnMut(usize)) {
        let (Some(table), Some(symbols)) = (self.address(tag::GNU_HASH), self.address(tag::SYMBOLS)) else { return };
        let table = table as *const u32;
        let wanted =
            name.to_bytes().iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        // SAFETY: the loader reads the same table, in the same way: four numbers, a filter, buckets, and chains of hashes,
        // whose last one is odd.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|index| *table.add(index) as usize);
            if buckets == 0 {
                return;
            }
            let starts = table.add(4 + 2 * filter);
            let mut index = *starts.add(wanted as usize % buckets) as usize;
            while index >= first {
                let hash = *starts.add(buckets + index - first);
                let symbol = (symbols as *const libc::Elf64_Sym).add(index);
                if hash | 1 == wanted | 1 && self.string((*symbol).st_name.into()) == name {
                    visit(&raw const (*symbol).st_value as usize);
                }
                if hash & 1 == 1 {
                    break;
                }
                index += 1;
            }
        }
    }
}
