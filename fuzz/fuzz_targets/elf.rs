//! ELF files: headers, symbols, the functions that can be probed, and unwind tables.
#![cfg_attr(feature = "libfuzzer", no_main)]

use elf::{Budget, Elf, SHT_DYNSYM, SHT_SYMTAB, Symbols};
use unwind::Table;

warpscope_fuzz::target!(|bytes: &[u8]| {
    if let Ok(elf) = Elf::read(bytes) {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            if let Some(symbols) = Symbols::of(&elf, kind) {
                let _ = symbols.each(bytes, 1 << 20, |_, symbol| {
                    symbols.name(bytes, &symbol);
                });
            }
        }
        let _ = elf::dynamic_strings(&elf, bytes);
    }
    if let Ok(functions) = probes::exported(bytes, |_| true, &Budget::DAEMON) {
        for function in functions {
            assert!(function.offset + function.size <= bytes.len() as u64);
            assert!(function.site.offset < bytes.len() as u64);
        }
    }
    let _ = probes::usdt(bytes);
    let _ = probes::find(bytes, "work", &Budget::DAEMON);
    if let Ok(table) = Table::of(bytes) {
        assert!(table.rows.is_sorted_by(|a, b| a.pc < b.pc));
    }
});
