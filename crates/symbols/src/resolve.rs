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
use elf::Budget;
use model::{
    event::{Frame, FrameKind, Mapping, NamedFrame, Origin, ProcessId, Symbol},
    profile::Profile,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    DebugFiles, Files, Kept,
    ask::ask,
    bpf_code::BpfCode,
    demangle::demangle,
    dwarf::{Answer, Place},
    modules::{Modules, meaning},
};

/// How names are to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The file name of the injected library: its frames, and CUPTI's, are the probe's own.
    pub injector: &'static str,
    /// With file and line, and inlined functions as frames of their own.
    pub lines: bool,
    /// Where to look for what was stripped.
    pub debug_files: DebugFiles,
    /// How much of a file is read.
    pub budget: Budget,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Named {
    /// A symbol for every address that had none.
    pub symbols: Vec<Symbol>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// An address, what lay there, and from when on; 0 if nothing else ever did.
#[derive(Clone, Copy)]
struct Spot<'a> {
    process: ProcessId,
    address: u64,
    since: u64,
    mapping: Option<&'a Mapping>,
}

/// What a file is known by: path, build id, and where there is none the mapping.
type FileKey<'a> = (&'a str, &'a [u8], Option<(ProcessId, u64, u64)>);

/// Names every address in the profile's stacks that has none yet, and every host function launched as an unnamed kernel.
pub fn resolve(profile: &Profile, kept: &mut Kept, options: &Options) -> Named {
    let modules = Modules::of(profile);
    let mut unnamed_frames = FxHashSet::default();
    // What lay at each address: nearly always one mapping, and more where libraries took turns.
    let mut native = FxHashMap::<(ProcessId, u64), Vec<Option<&Mapping>>>::default();
    let frames = profile
        .stacks
        .values()
        .flat_map(|stack| stack.frames.iter().map(move |frame| (frame.named_in(stack.process), *frame, stack.time)));
    let stubs = profile.calls.unnamed_stubs().map(|(process, address)| (process, Frame::User(address), u64::MAX));
    for (process, frame, time) in frames.chain(stubs) {
        if profile.symbols.knows(process, frame) {
            continue;
        }
        if let Frame::User(address) = frame {
            if native.contains_key(&(process, address)) && !modules.take_turns(process) {
                continue;
            }
            let mapping = modules.find(process, address, time);
            let meanings = native.entry((process, address)).or_default();
            if !meanings.contains(&mapping) {
                meanings.push(mapping);
            }
        } else {
            unnamed_frames.insert((process, frame));
        }
    }
    let mut named = Named::default();
    let mut kernel = Vec::new();
    for (process, frame) in unnamed_frames {
        match frame {
            Frame::Kernel(address) => kernel.push(address),
            // Named when it was gathered, or never.
            _ => named.symbols.push(unnamed((process, frame, 0), FrameKind::Python, "python")),
        }
    }
    named.symbols.extend(name_kernel(&kernel, &kept.bpf));
    let mut files = BTreeMap::<FileKey<'_>, Vec<Spot<'_>>>::new();
    let mut generated = BTreeMap::<ProcessId, Vec<Spot<'_>>>::new();
    for spot in native.iter().flat_map(|(place, meanings)| spots(*place, meanings)) {
        match spot.mapping {
            Some(mapping) if Files::is_file(&mapping.path) => {
                let nameless = mapping.build_id.is_empty().then_some((mapping.process, mapping.start, mapping.time));
                files.entry((&mapping.path, &mapping.build_id, nameless)).or_default().push(spot);
            }
            _ => generated.entry(spot.process).or_default().push(spot),
        }
    }
    for spots in files.values() {
        name_file(spots, kept, options, &mut named, &mut generated);
    }
    for (process, spots) in generated {
        named.symbols.extend(name_generated(profile, process, &spots, kept));
    }
    named.notes.extend(notes(kept));
    // The order of a hash map is not the order of a file.
    named.symbols.sort_by_key(|s| (s.process, sort_key(s.frame), s.since));
    named
}

/// One spot for each meaning of an address. The same file in the same place, mapped again, means the same.
fn spots<'a>((process, address): (ProcessId, u64), meanings: &[Option<&'a Mapping>]) -> Vec<Spot<'a>> {
    let meaning = |mapping: &Option<&'a Mapping>| mapping.map(meaning);
    let spot = |mapping: Option<&'a Mapping>, since| Spot { process, address, since, mapping };
    match meanings {
        [first, others @ ..] if others.iter().all(|other| meaning(other) == meaning(first)) => vec![spot(*first, 0)],
        _ => meanings.iter().map(|mapping| spot(*mapping, mapping.map_or(0, |mapping| mapping.time))).collect(),
    }
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
fn unnamed((process, frame, since): (ProcessId, Frame, u64), kind: FrameKind, module: &str) -> Symbol {
    let name = format!("[{}]", module.trim_matches(['[', ']']));
    Symbol { process, frame, since, names: vec![NamedFrame { kind, name: name.into(), module: module.into() }] }
}

/// No function of the kernel is longer. Beyond its last one, where eBPF programs are, the search would still find that.
const LONGEST_FUNCTION: usize = 1 << 20;

fn name_kernel(addresses: &[u64], bpf: &BpfCode) -> Vec<Symbol> {
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
            let function = || match answers.get(i) {
                Some(Symbolized::Sym(sym)) if sym.offset < LONGEST_FUNCTION => Some((*sym.name).into()),
                _ => None,
            };
            match bpf.name(*address).cloned().or_else(function) {
                Some(name) => {
                    let name = NamedFrame { kind: FrameKind::Kernel, name, module: module.clone() };
                    Symbol { process: ProcessId(0), frame, since: 0, names: vec![name] }
                }
                None => unnamed((ProcessId(0), frame, 0), FrameKind::Kernel, "kernel"),
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
    options: &Options,
    named: &mut Named,
    generated: &mut BTreeMap<ProcessId, Vec<Spot<'a>>>,
) {
    let Some(mapping) = spots.first().and_then(|spot| spot.mapping) else { return };
    let path = &mapping.path;
    let module = module(path);
    let probe = &*module == options.injector || module.starts_with("libcupti.so");
    let kind = if probe { FrameKind::Probe } else { FrameKind::Native };
    let source = kept.files.source(mapping);
    if source.is_none() && path.starts_with("/memfd:") {
        for spot in spots {
            generated.entry(spot.process).or_default().push(*spot);
        }
        return;
    }
    let mut answers = Vec::new();
    if let Some(source) = source {
        let offset = |spot: &Spot<'_>| {
            let mapping = spot.mapping.unwrap_or(mapping);
            (spot.address - mapping.start).wrapping_add(mapping.offset)
        };
        let offsets: Vec<u64> = spots.iter().map(offset).collect();
        let lines = options.lines && !probe;
        let (answered, refused) = ask(&source, path, &offsets, &options.debug_files, lines, &options.budget);
        answers = answered;
        named.notes.extend(refused.into_iter().map(|what| format!("{module}: {what}")));
    }
    for (i, spot) in spots.iter().enumerate() {
        let frame = Frame::User(spot.address);
        named.symbols.push(match answers.get(i).and_then(|answer| frames(answer, kind, &module)) {
            Some(names) => Symbol { process: spot.process, frame, since: spot.since, names },
            None => unnamed((spot.process, frame, spot.since), kind, &module),
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
fn name_generated(profile: &Profile, process: ProcessId, spots: &[Spot<'_>], kept: &mut Kept) -> Vec<Symbol> {
    let mut names = HashMap::new();
    let mut image = Some(process);
    // The bound is for a broken recording.
    for _ in 0..1024 {
        let Some(asked) = image else { break };
        let missing: BTreeSet<u64> = spots.iter().map(|s| s.address).filter(|a| !names.contains_key(a)).collect();
        if missing.is_empty() {
            break;
        }
        names.extend(kept.jits.names(asked, missing));
        image = profile.processes.get(&asked).filter(|info| info.origin == Origin::Fork).and_then(|info| info.parent);
    }
    let symbol = |spot: &Spot<'_>| {
        let module = spot.mapping.map_or("unknown".into(), |mapping| module(&mapping.path));
        let (frame, since) = (Frame::User(spot.address), spot.since);
        match names.get(&spot.address) {
            Some(name) => {
                let name = NamedFrame { kind: FrameKind::Native, name: demangle(name).into(), module };
                Symbol { process, frame, since, names: vec![name] }
            }
            // The kernel's own code for probes.
            None if module.starts_with("[uprobes") => unnamed((process, frame, since), FrameKind::Probe, &module),
            None => unnamed((process, frame, since), FrameKind::Native, &module),
        }
    };
    spots.iter().map(symbol).collect()
}
