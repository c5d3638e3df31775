//! Asks one file for the names at addresses: its symbols, those of its debug file, and with lines the DWARF of either.

use std::{fs::File, panic::AssertUnwindSafe};

use blazesym::symbolize::{
    Input, Sym, Symbolized, Symbolizer,
    source::{Elf, Source as From},
};

use crate::{
    debug_files::DebugFiles,
    demangle::demangle,
    dwarf::{self, Answer, Unreadable},
    files::{Source, descriptor_path},
};

/// The answers for `offsets` in a file that processes know as `path`, and why there are no lines where there should be.
pub(crate) fn ask(
    source: &Source<'_>,
    path: &str,
    offsets: &[u64],
    debug_files: &DebugFiles,
    lines: bool,
) -> (Vec<Answer>, Option<Unreadable>) {
    // Debug files do not have the bytes, so their offsets are not the file's; addresses are.
    let addresses: Vec<Option<u64>> = offsets.iter().map(|offset| source.headers.address(*offset)).collect();
    let mut answers = vec![Answer::default(); offsets.len()];
    let headers = &source.headers;
    let debug = if !headers.symbols || (lines && !headers.dwarf) { debug_files.find(source, path) } else { None };
    // The file's own first: of several names for one function, those for others are the ones people know.
    let with_symbols = debug.iter().filter(|debug| debug.headers.symbols && !headers.symbols).map(|debug| &debug.file);
    for file in [&*source.file].into_iter().chain(with_symbols) {
        let (places, asked) = open_questions(&answers, &addresses);
        for (place, sym) in places.into_iter().zip(symbolize(file, &asked)) {
            answers[place].function = sym.map(|sym| demangle(&sym.name));
        }
    }
    if !lines {
        return (answers, None);
    }
    let (file, headers) = match &debug {
        Some(debug) if debug.headers.dwarf => (&debug.file, &debug.headers),
        _ => (&*source.file, headers),
    };
    if !headers.dwarf {
        return (answers, None);
    }
    let (places, asked): (Vec<usize>, Vec<u64>) =
        addresses.iter().enumerate().filter_map(|(place, address)| Some((place, (*address)?))).unzip();
    let (known, unreadable) = dwarf::lines(file, headers, &asked);
    for (place, known) in places.into_iter().zip(known) {
        let answer = &mut answers[place];
        answer.function = answer.function.take().or(known.function);
        (answer.place, answer.inlined) = (known.place, known.inlined);
    }
    (answers, unreadable)
}

/// The addresses without a name yet, and the places of their answers.
fn open_questions(answers: &[Answer], addresses: &[Option<u64>]) -> (Vec<usize>, Vec<u64>) {
    let open = answers.iter().zip(addresses).enumerate().filter(|(_, (answer, _))| answer.function.is_none());
    open.filter_map(|(place, (_, address))| Some((place, (*address)?))).unzip()
}

/// One answer for each address, in one go: what was parsed for it is then forgotten.
fn symbolize(file: &File, addresses: &[u64]) -> Vec<Option<Sym<'static>>> {
    let ask = || {
        let symbolizer =
            Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).enable_demangling(false).build();
        let mut elf = Elf::new(descriptor_path(file));
        elf.debug_syms = false;
        let source = From::Elf(elf);
        let sym = |answer: Symbolized<'_>| answer.into_sym().map(Sym::into_owned);
        match symbolizer.symbolize(&source, Input::VirtOffset(addresses)) {
            Ok(answers) => answers.into_iter().map(sym).collect::<Vec<_>>(),
            // One of them met a broken part: the others may not.
            Err(_) => addresses
                .iter()
                .map(|address| symbolizer.symbolize_single(&source, Input::VirtOffset(*address)).ok().and_then(sym))
                .collect(),
        }
    };
    if addresses.is_empty() {
        return Vec::new();
    }
    // A broken file must cost its own names at most.
    let mut answers = std::panic::catch_unwind(AssertUnwindSafe(ask)).unwrap_or_default();
    answers.resize_with(addresses.len(), || None);
    answers
}
