//! The dynamic section.

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, SHT_DYNAMIC};

use crate::{Bytes, Elf, Error, Symbols};

/// The maximum bytes of a dynamic section: linkers create some 30 entries of 16 bytes.
const MAX_DYNAMIC: u64 = 1 << 16;

/// Returns the library directories of a program: `DT_RPATH` and `DT_RUNPATH`. Only for 64-bit files.
pub fn dynamic_strings<B: Bytes + ?Sized>(elf: &Elf, bytes: &B) -> Result<Vec<String>, Error> {
    entries(elf, bytes, &[DT_RPATH.0.cast_unsigned(), DT_RUNPATH.0.cast_unsigned()])
}

/// Returns the names of the libraries that a program was linked with: `DT_NEEDED`. Only for 64-bit files.
pub fn needed_libraries<B: Bytes + ?Sized>(elf: &Elf, bytes: &B) -> Result<Vec<String>, Error> {
    entries(elf, bytes, &[DT_NEEDED.0.cast_unsigned()])
}

/// Returns the strings of the entries with these tags.
fn entries<B: Bytes + ?Sized>(elf: &Elf, bytes: &B, tags: &[u64]) -> Result<Vec<String>, Error> {
    let Some(dynamic) = elf.sections.iter().find(|section| section.kind == SHT_DYNAMIC && elf.wide) else {
        return Ok(Vec::new());
    };
    let Some(strings) = elf.sections.get(dynamic.link as usize) else { return Ok(Vec::new()) };
    let entries = dynamic.read(bytes, MAX_DYNAMIC, "dynamic section")?;
    let (entries, _) = entries.as_chunks::<16>();
    let mut found = Vec::new();
    for entry in entries {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
        if tags.contains(&number(0)) {
            found.extend(Symbols::string(bytes, strings, number(8)).map(|text| String::from_utf8_lossy(&text).into()));
        }
    }
    Ok(found)
}
