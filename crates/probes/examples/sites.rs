//! Prints the probe sites of libraries: `cargo run -p probes --example sites -- LIBRARY...`

use std::path::Path;

use elf::Budget;
use probes::{Error, exported, for_library, open, summary};
use text::pattern::Selection;

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let file = Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
        let selection = for_library(&Selection::default(), &file);
        let mut functions = exported(&open(Path::new(&path))?, |_| true, &Budget::RECORDING)?;
        functions.retain(|function| selection.first_selected(function.names()).is_some());
        for function in &functions {
            let delta = function.site.offset - function.offset;
            println!("{:#10x}+{delta:<3} {:8?} {}", function.offset, function.site.cost, function.name);
        }
        println!("{path}: {}", summary(&functions));
    }
    Ok(())
}
