//! Looks up the names at addresses in one file: its symbols, those of its debug file, the kernels that it registers, and
//! with lines the DWARF of either.

use std::{fs::File, time::Duration};

use elf::{Budget, Elf, SHT_SYMTAB};
use sandbox::{Failed, Limits};

use crate::{
    debug_files::{Candidates, DebugFiles, Identity},
    demangle::demangle,
    dwarf::{self, Answer},
    files::Unread,
    registered, symbol_table,
};

/// The most notes about a file.
const MOST_NOTES: usize = 4;

/// What to look up in a file.
pub(crate) struct Request {
    /// The build id that it must have, if that is known.
    pub(crate) build_id: Vec<u8>,
    pub(crate) offsets: Vec<u64>,
    pub(crate) lines: bool,
    pub(crate) budget: Budget,
    /// How many of the files after the first may be its debug file by build id; those behind may be by link. `None` before
    /// they were searched.
    pub(crate) debug: Option<u64>,
}

/// What is in the file.
struct Reply {
    /// It is the file with the build id.
    same: bool,
    /// Its debug file is needed for an answer.
    wanted: Option<Identity>,
    answers: Vec<Answer>,
    notes: Vec<String>,
}

sandbox::plain! {
    Request { build_id, offsets, lines, budget, debug }
    Reply { same, wanted, answers, notes }
}

/// Answers, and notes.
type Found = (Vec<Answer>, Vec<String>);

/// Returns the answers for the offsets in a file with the path `path` in its processes, and notes about what could not be
/// read. `None` if it is another file, or no program file.
pub(crate) fn look_up(
    source: &Unread<'_>,
    path: &str,
    mut request: Request,
    debug_files: &DebugFiles,
) -> Result<Option<Found>, Failed> {
    let Budget { time, strings, .. } = request.budget;
    // Symbols are read within limits of size, not of time.
    let limits = Limits { time: time * 2 + Duration::from_secs(10), answer: strings };
    let mut reply = sandbox::parse(read, &request, &[&source.file], &limits)?;
    if let Some(wanted) = reply.wanted {
        let Candidates { by_build_id, by_link } = debug_files.candidates(source.root, path, &wanted);
        request.debug = Some(by_build_id.len() as u64);
        let files: Vec<&File> = [&*source.file].into_iter().chain(&by_build_id).chain(&by_link).collect();
        reply = sandbox::parse(read, &request, &files, &limits)?;
    }
    let notes = reply.notes.iter().take(MOST_NOTES).map(|note| sandbox::sentence(note)).collect();
    Ok(reply.same.then_some((reply.answers, notes)))
}

/// Reads a file, and its debug file if there is one. Runs without rights.
fn read(request: &Request, files: &[&File]) -> Reply {
    let Request { build_id, offsets, lines, budget, debug } = request;
    let (lines, mut reply) = (*lines, Reply { same: false, wanted: None, answers: Vec::new(), notes: Vec::new() });
    let Some((file, candidates)) = files.split_first() else { return reply };
    let Ok(elf) = Elf::read(*file) else { return reply };
    reply.same = build_id.is_empty() || elf.build_id == *build_id;
    if !reply.same {
        return reply;
    }
    let needs_debug = !has_symbols(&elf) || (lines && !has_dwarf(&elf));
    let identity = needs_debug.then(|| Identity::of(file, &elf));
    let found = match (&identity, debug) {
        (None, _) => None,
        (Some(_), None) => {
            reply.wanted = identity;
            return reply;
        }
        (Some(identity), Some(count)) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX).min(candidates.len());
            let (by_build_id, by_link) = candidates.split_at(count);
            identity.choose(by_build_id, by_link, budget)
        }
    };
    let found = found.as_ref().map(|debug| (debug.file, &debug.elf));
    (reply.answers, reply.notes) = names((file, &elf), found, offsets, lines, budget);
    reply
}

/// Returns the answers for offsets in a file, with its debug file if there is one.
fn names(
    own: (&File, &Elf),
    debug: Option<(&File, &Elf)>,
    offsets: &[u64],
    lines: bool,
    budget: &Budget,
) -> (Vec<Answer>, Vec<String>) {
    // Debug files have no code, so the file's offsets do not apply to them; addresses do.
    let addresses: Vec<Option<u64>> = offsets.iter().map(|offset| own.1.segments.vaddr_of_offset(*offset)).collect();
    let mut answers = vec![Answer::default(); offsets.len()];
    let mut notes = Vec::new();
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
