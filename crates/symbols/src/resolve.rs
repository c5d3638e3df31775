//! Addresses to names: each distinct address once, file by file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use blazesym::symbolize::{
    Input, Symbolized, Symbolizer,
    source::{Kernel, Source},
};
use model::{
    event::{Frame, FrameKind, Mapping, NamedFrame, Origin, ProcessId, Symbol},
    profile::Profile,
};
use rustc_hash::FxHashSet;

use crate::{
    DebugFiles, Files, Kept,
    ask::ask,
    demangle::demangle,
    dwarf::{Answer, Place},
    modules::Modules,
};

/// How names are to be.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The file name of the injected library: its frames, and CUPTI's, are the probe's own.
    pub injector: &'static str,
    /// With file and line, and inlined functions as frames of their own.
    pub lines: bool,
    /// Where to look for what was stripped.
    pub debug_files: DebugFiles,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Named {
    /// A symbol for every address that had none.
    pub symbols: Vec<Symbol>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// An address in a file.
struct Spot<'a> {
    process: ProcessId,
    address: u64,
    mapping: &'a Mapping,
}

/// Names every address in the profile's stacks that has none yet, and every host function launched as an unnamed kernel.
pub fn resolve(profile: &Profile, kept: &mut Kept, wishes: &Wishes) -> Named {
    let modules = Modules::of(profile);
    let mut seen = FxHashSet::default();
    let mut kernel = Vec::new();
    // By what the file is known by: path, build id, and where there is none the mapping.
    let mut files = BTreeMap::<(&str, &[u8], Option<(ProcessId, u64, u64)>), Vec<Spot<'_>>>::new();
    let mut generated = BTreeMap::<ProcessId, BTreeMap<u64, &str>>::new();
    let mut named = Named::default();
    let frames = profile
        .stacks
        .values()
        .flat_map(|stack| stack.frames.iter().map(move |frame| (frame.named_in(stack.process), *frame, stack.time)));
    let stubs = profile.calls.unnamed_stubs().map(|(process, address)| (process, Frame::User(address), u64::MAX));
    for (process, frame, time) in frames.chain(stubs) {
        if profile.symbols.contains_key(&(process, frame)) || !seen.insert((process, frame)) {
            continue;
        }
        match frame {
            Frame::Kernel(address) => kernel.push(address),
            // Named when it was gathered, or never.
            Frame::Python(_) => named.symbols.push(unnamed(process, frame, FrameKind::Python, "python")),
            Frame::User(address) => match modules.find(process, address, time) {
                Some(mapping) if Files::is_file(&mapping.path) => {
                    let nameless =
                        mapping.build_id.is_empty().then_some((mapping.process, mapping.start, mapping.time));
                    let spots = files.entry((&mapping.path, &mapping.build_id, nameless)).or_default();
                    spots.push(Spot { process, address, mapping });
                }
                mapping => {
                    let module = mapping.map_or("unknown", |mapping| &mapping.path);
                    generated.entry(process).or_default().insert(address, module);
                }
            },
        }
    }
    named.symbols.extend(name_kernel(&kernel));
    for spots in files.values() {
        name_file(spots, kept, wishes, &mut named, &mut generated);
    }
    for (process, addresses) in generated {
        named.symbols.extend(name_generated(profile, process, &addresses, kept));
    }
    named.notes.extend(notes(kept));
    // The order of a hash map is not the order of a file.
    named.symbols.sort_by_key(|s| (s.process, sort_key(s.frame)));
    named
}

fn sort_key(frame: Frame) -> (u8, u64) {
    match frame {
        Frame::User(address) => (0, address),
        Frame::Kernel(address) => (1, address),
        Frame::Python(number) => (2, number.into()),
    }
}

fn notes(kept: &Kept) -> Vec<String> {
    let mut notes = Vec::new();
    if kept.files.most() > 0 && kept.files.not_held() > 0 {
        notes.push(format!(
            "{} mapped files were more than the {} that could be held open: they were looked for again by path and build id; \
             a higher hard limit (ulimit -Hn) lets more be held",
            kept.files.not_held(),
            kept.files.most(),
        ));
    }
    if kept.jits.refused() > 0 {
        notes.push(format!(
            "{} more processes made code at run time than are remembered: names of that code were not looked for",
            kept.jits.refused()
        ));
    }
    for path in kept.jits.too_large() {
        notes.push(format!("{path} is larger than 64 MiB: names in it were not read"));
    }
    notes
}

/// A frame known by its module alone: `[libfoo.so]`.
fn unnamed(process: ProcessId, frame: Frame, kind: FrameKind, module: &str) -> Symbol {
    let name = format!("[{}]", module.trim_matches(['[', ']']));
    Symbol { process, frame, names: vec![NamedFrame { kind, name: name.into(), module: module.into() }] }
}

fn name_kernel(addresses: &[u64]) -> Vec<Symbol> {
    // The kernel's table is large, and read for the asking.
    if addresses.is_empty() {
        return Vec::new();
    }
    let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
    let source = Source::Kernel(Kernel::default());
    let answers = symbolizer.symbolize(&source, Input::AbsAddr(addresses)).unwrap_or_default();
    let module: Arc<str> = "[kernel]".into();
    addresses
        .iter()
        .enumerate()
        .map(|(i, address)| {
            let frame = Frame::Kernel(*address);
            match answers.get(i) {
                Some(Symbolized::Sym(sym)) => {
                    let name = NamedFrame { kind: FrameKind::Kernel, name: (*sym.name).into(), module: module.clone() };
                    Symbol { process: ProcessId(0), frame, names: vec![name] }
                }
                _ => unnamed(ProcessId(0), frame, FrameKind::Kernel, "kernel"),
            }
        })
        .collect()
}

/// The file's name without its directory; bare memory has none in `/proc/PID/maps`.
fn module(path: &str) -> Arc<str> {
    let path = if path.is_empty() { "//anon" } else { path };
    Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into())
}

/// Names the addresses that lie in one file. What turns out to be no program file is taken for generated code.
fn name_file<'a>(
    spots: &[Spot<'a>],
    kept: &Kept,
    wishes: &Wishes,
    named: &mut Named,
    generated: &mut BTreeMap<ProcessId, BTreeMap<u64, &'a str>>,
) {
    let Some(first) = spots.first() else { return };
    let path = &first.mapping.path;
    let module = module(path);
    let probe = &*module == wishes.injector || module.starts_with("libcupti.so");
    let kind = if probe { FrameKind::Probe } else { FrameKind::Native };
    let source = kept.files.source(first.mapping);
    if source.is_none() && path.starts_with("/memfd:") {
        for spot in spots {
            generated.entry(spot.process).or_default().insert(spot.address, path);
        }
        return;
    }
    let mut answers = Vec::new();
    if let Some(source) = source {
        let offset = |spot: &Spot<'_>| (spot.address - spot.mapping.start).wrapping_add(spot.mapping.offset);
        let offsets: Vec<u64> = spots.iter().map(offset).collect();
        let (answered, unreadable) = ask(&source, path, &offsets, &wishes.debug_files, wishes.lines && !probe);
        answers = answered;
        named.notes.extend(unreadable.map(|why| format!("{module} has no lines, or not all: {why}")));
    }
    for (i, spot) in spots.iter().enumerate() {
        let frame = Frame::User(spot.address);
        named.symbols.push(match answers.get(i).and_then(|answer| frames(answer, kind, &module)) {
            Some(names) => Symbol { process: spot.process, frame, names },
            None => unnamed(spot.process, frame, kind, &module),
        });
    }
}

/// The frames of one address, outermost first: the function, and what was inlined into it there.
fn frames(answer: &Answer, kind: FrameKind, module: &Arc<str>) -> Option<Vec<NamedFrame>> {
    let function = answer.function.as_ref()?;
    let named = |name: &str, place: Option<&Place>| {
        let name = place.map_or_else(|| name.to_owned(), |place| format!("{name} ({place})"));
        NamedFrame { kind, name: name.into(), module: module.clone() }
    };
    let inlined = answer.inlined.iter().map(|(name, place)| named(name, place.as_ref()));
    Some([named(function, answer.place.as_ref())].into_iter().chain(inlined).collect())
}

/// Names code that lies in no file: from the process's own map, or from the one of the process it was forked from.
fn name_generated(
    profile: &Profile,
    process: ProcessId,
    addresses: &BTreeMap<u64, &str>,
    kept: &mut Kept,
) -> Vec<Symbol> {
    let mut names = HashMap::new();
    let mut image = Some(process);
    // The bound is for a broken recording.
    for _ in 0..1024 {
        let Some(asked) = image else { break };
        let missing: BTreeSet<u64> = addresses.keys().copied().filter(|address| !names.contains_key(address)).collect();
        if missing.is_empty() {
            break;
        }
        names.extend(kept.jits.names(asked, missing));
        image = profile.processes.get(&asked).filter(|info| info.origin == Origin::Fork).and_then(|info| info.parent);
    }
    let symbol = |(&address, &path): (&u64, &&str)| {
        let (frame, module) = (Frame::User(address), module(path));
        match names.get(&address) {
            Some(name) => {
                let name = NamedFrame { kind: FrameKind::Native, name: demangle(name).into(), module };
                Symbol { process, frame, names: vec![name] }
            }
            None => unnamed(process, frame, FrameKind::Native, &module),
        }
    };
    addresses.iter().map(symbol).collect()
}
