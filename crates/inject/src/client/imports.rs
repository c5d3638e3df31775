//! Redirects imported functions: a module calls another module's function through a slot of its own, which the loader has
//! filled with the function's address. A slot can be changed at any time with one store.
//!
//! Only modules that name libcupti as a dependency are changed, and only slots that lead to the libcupti that this library
//! uses. The loader protects most slots against writing (RELRO): their page becomes writable for the time of the store.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function that other modules import: its name, its address, and the function to call instead.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub name: &'static CStr,
    pub real: usize,
    pub wrapper: usize,
}

/// Where slots lead afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Wrapper,
    Real,
}

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
    pub const RELA_COUNT: i64 = 0x6fff_fff9;
}

/// What the walk over the modules does, and what it has found.
struct Walk<'a> {
    imports: &'a [Import],
    to: To,
    /// The name by which modules depend on the libcupti in use; null in the first walk, which finds it.
    soname: *const c_char,
    changed: usize,
}

/// Redirects the imports of all modules; returns the number of slots changed.
pub fn redirect(imports: &[Import], to: To) -> usize {
    let mut walk = Walk { imports, to, soname: core::ptr::null(), changed: 0 };
    // SAFETY: the function matches its declaration, and the data outlives the calls. The loader keeps all modules, and
    // their strings, loaded while it calls: so the name found by the first call is used by the second only if libcupti is
    // still there, which this library ensures by never closing it.
    unsafe {
        libc::dl_iterate_phdr(Some(find_soname), (&raw mut walk).cast());
        if !walk.soname.is_null() {
            libc::dl_iterate_phdr(Some(redirect_module), (&raw mut walk).cast());
        }
    }
    walk.changed
}

/// Returns how often modules were loaded so far; 0 if the loader does not report it.
pub fn modules_loaded() -> u64 {
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

unsafe extern "C" fn find_soname(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and the caller its walk.
    let (module, walk) = unsafe { (Module::new(&*info), &mut *data.cast::<Walk<'_>>()) };
    let ours = walk.imports.first().is_some_and(|import| module.contains(import.real));
    if let Some(dynamic) = module.dynamic().filter(|_| ours) {
        walk.soname = dynamic.soname();
        return 1;
    }
    0
}

unsafe extern "C" fn redirect_module(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: as in `find_soname`.
    let (module, walk) = unsafe { (Module::new(&*info), &mut *data.cast::<Walk<'_>>()) };
    // SAFETY: the name was found in a loaded module.
    let soname = unsafe { CStr::from_ptr(walk.soname) };
    if let Some(dynamic) = module.dynamic().filter(|dynamic| dynamic.needs(soname)) {
        dynamic.slots(&mut |name, slot| {
            if let Some(import) = walk.imports.iter().find(|import| import.name == name) {
                walk.changed += usize::from(module.redirect(slot, import, walk.to));
            }
        });
    }
    0
}

/// A loaded module.
struct Module<'a> {
    base: usize,
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

    fn contains(&self, address: usize) -> bool {
        self.segments(libc::PT_LOAD).any(|(start, end)| (start..end).contains(&address))
    }

    fn dynamic(&self) -> Option<Dynamic> {
        let (start, end) = self.segments(libc::PT_DYNAMIC).next()?;
        Dynamic::read(self.base, start, end)
    }

    /// Changes a slot that leads to the function, or that the loader has not filled yet; false if it leads elsewhere.
    fn redirect(&self, slot: usize, import: &Import, to: To) -> bool {
        let (from, target) = match to {
            To::Wrapper => (import.real, import.wrapper),
            To::Real => (import.wrapper, import.real),
        };
        if !slot.is_multiple_of(size_of::<usize>()) || !self.contains(slot) {
            return false;
        }
        // SAFETY: the slot is an aligned word of a loaded module.
        let word = unsafe { &*(slot as *const AtomicUsize) };
        let value = word.load(Ordering::Acquire);
        // An unfilled slot leads to the module's own code, which calls the loader.
        let unfilled = to == To::Wrapper && self.contains(value);
        if value != from && !unfilled {
            return false;
        }
        // SAFETY: only asks for a number.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let page = slot & !(page_size - 1);
        let is_protected = self
            .segments(libc::PT_GNU_RELRO)
            .any(|(start, end)| (start & !(page_size - 1)..end & !(page_size - 1)).contains(&slot));
        // SAFETY: the page belongs to the module, whose other threads only read it; it is as before afterwards.
        unsafe {
            if is_protected && libc::mprotect(page as *mut c_void, page_size, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            word.store(target, Ordering::Release);
            if is_protected {
                libc::mprotect(page as *mut c_void, page_size, libc::PROT_READ);
            }
        }
        true
    }
}

/// The dynamic section of a loaded module.
struct Dynamic {
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

    fn soname(&self) -> *const c_char {
        self.value(tag::SONAME).map_or(core::ptr::null(), |at| (self.strings + at as usize) as *const c_char)
    }

    fn string(&self, at: u64) -> &CStr {
        // SAFETY: the loader has used the same string.
        unsafe { CStr::from_ptr((self.strings + at as usize) as *const c_char) }
    }

    fn needs(&self, soname: &CStr) -> bool {
        let needed = self.entries.iter().filter(|[name, _]| name.cast_signed() == tag::NEEDED);
        needed.into_iter().any(|[_, at]| self.string(*at) == soname)
    }

    /// Passes on the name and the slot of each imported symbol.
    fn slots(&self, visit: &mut dyn FnMut(&CStr, usize)) {
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
}
