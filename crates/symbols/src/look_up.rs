//! Looks up the names at addresses in one file: its symbols, those of its debug file, the kernels that it registers, and
//! with lines the DWARF of either.

use elf::{Budget, Elf, SHT_SYMTAB};

use crate::{
    debug_files::DebugFiles,
    demangle::demangle,
    dwarf::{self, Answer},
    files::Source,
    registered, symbol_table,
};

/// Returns the answers for `offsets` in a file with the path `path` in its processes, and notes about what could not be
/// read.
pub(crate) fn look_up(
    source: &Source<'_>,
    path: &str,
    offsets: &[u64],
    debug_files: &DebugFiles,
    lines: bool,
    budget: &Budget,
) -> (Vec<Answer>, Vec<String>) {
    // Debug files have no code, so the file's offsets do not apply to them; addresses do.
    let segments = &source.elf.segments;
    let addresses: Vec<Option<u64>> = offsets.iter().map(|offset| segments.vaddr_of_offset(*offset)).collect();
    let mut answers = vec![Answer::default(); offsets.len()];
    let mut notes = Vec::new();
    let own = (&*source.file, &source.elf);
    let debug = match has_symbols(own.1) && (!lines || has_dwarf(own.1)) {
        true => None,
        false => debug_files.find(source, path, budget),
    };
    let debug = debug.as_ref().map(|debug| (&debug.file, &debug.elf));
    // The file's own symbols first: of several names for one function, the exported ones are the well-known ones.
    let with_symbols = debug.filter(|(_, elf)| has_symbols(elf) && !has_symbols(own.1));
    for (file, elf) in [own].into_iter().chain(with_symbols) {
        let (places, queries) = unanswered(&answers, &addresses);
        let (names, refused) = symbol_table::names(file, elf, &queries, budget.symbols);
        notes.extend(refused.map(|why| format!("names were not read: {why}")));
        for (place, name) in places.into_iter().zip(names) {
            answers[place].function = name.map(|name| demangle(&name));
        }
    }
    let (places, queries) = unanswered(&answers, &addresses);
    for (place, name) in places.into_iter().zip(registered::names(own.0, own.1, &queries, budget.code)) {
        answers[place].function = name;
    }
    let with_lines = debug.filter(|(_, elf)| has_dwarf(elf)).or_else(|| has_dwarf(own.1).then_some(own));
    let Some((file, elf)) = with_lines.filter(|_| lines) else { return (answers, notes) };
    let (places, queries): (Vec<usize>, Vec<u64>) =
        addresses.iter().enumerate().filter_map(|(place, address)| Some((place, (*address)?))).unzip();
    let (known, unreadable) = dwarf::lines(file, elf, &queries, budget);
    for (place, known) in places.into_iter().zip(known) {
        let answer = &mut answers[place];
        answer.function = answer.function.take().or(known.function);
        (answer.place, answer.inlined) = (known.place, known.inlined);
    }
    notes.extend(unreadable.map(|why| format!("source lines are missing or incomplete: {why}")));
    (answers, notes)
}

/// Whether it has all its symbols, not only those exported to other files.
fn has_symbols(elf: &Elf) -> bool {
    elf.sections.iter().any(|section| section.kind == SHT_SYMTAB && section.is_in_file())
}

/// Whether it has lines and inlined functions.
fn has_dwarf(elf: &Elf) -> bool {
    elf.section(".debug_info").is_some_and(elf::Section::is_in_file)
}

/// Returns the addresses without a name yet, and the indices of their answers.
fn unanswered(answers: &[Answer], addresses: &[Option<u64>]) -> (Vec<usize>, Vec<u64>) {
    let open = answers.iter().zip(addresses).enumerate().filter(|(_, (answer, _))| answer.function.is_none());
    open.filter_map(|(place, (_, address))| Some((place, (*address)?))).unzip()
}
