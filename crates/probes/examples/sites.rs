//! Prints the probe sites of libraries: `cargo run -p probes --example sites -- LIBRARY...`

use std::path::Path;

use elf::Budget;
use probes::{Error, Selection, exported, open, summary};

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let file = Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
        let selection = Selection::default().for_library(&file);
        let mut functions = exported(&open(Path::new(&path))?, |_| true, &Budget::RECORDING)?;
        functions.retain(|function| selection.name_of(function).is_some());
        for function in &functions {
            let delta = function.site.offset - function.offset;
            println!("{:#10x}+{delta:<3} {:8?} {}", function.offset, function.site.cost, function.name);
        }
        println!("{path}: {}", summary(&functions));
    }
    Ok(())
}
