//! Resolves addresses to names: each distinct address once, file by file.
//!
//! All frames except the innermost are return addresses minus one, from the walker on. So a call that never returns, at
//! the very end of a function, is attributed to that function, and a frame's line is that of the call. A function has
//! the name of its symbol with or without lines; DWARF adds lines and inlined functions.

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
    event::{Frame, FrameKind, Instruction, Mapping, NamedFrame, Origin, ProcessId, SessionId, StallLines, Symbol},
    profile::Profile,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sandbox::Failed;

use crate::{
    DebugFiles, Files, Kept,
    bpf_code::BpfCode,
    cubin,
    demangle::readable,
    dwarf::{Answer, Place},
    look_up::{self, look_up},
    modules::{Modules, meaning},
};

/// How to resolve names.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The file name of the injected library: its frames, and CUPTI's, belong to the probe.
    pub injector: &'static str,
    /// Include file and line, and inlined functions as their own frames.
    pub lines: bool,
    /// Where to search for stripped symbols and debug information.
    pub debug_files: DebugFiles,
    /// Limits on reading a file.
    pub budget: Budget,
}

/// The result.
#[derive(Debug, Default)]
pub struct Named {
    /// A symbol for every address that had none.
    pub symbols: Vec<Symbol>,
    /// The source of GPU instructions that were sampled.
    pub lines: Vec<StallLines>,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Files that could not be read.
    pub unread: Unread,
}

/// Files whose names are missing because the process that reads them failed.
#[derive(Debug, Default)]
pub struct Unread {
    /// How many.
    pub count: u64,
    notes: BTreeSet<String>,
}

impl Unread {
    /// The most files that are named.
    const MOST: usize = 8;

    fn add(&mut self, file: &str, why: Failed) {
        self.count += 1;
        if self.notes.len() < Self::MOST {
            self.notes.insert(match why {
                // It holds for all files.
                Failed::Gone => format!("names are missing: {why}"),
                _ => format!("{file}: names are missing: {why}"),
            });
        }
    }
}

/// An address, its mapping, and the start of that mapping; 0 if it was the only one.
#[derive(Clone, Copy)]
struct Spot<'a> {
    process: ProcessId,
    address: u64,
    since: u64,
    mapping: Option<&'a Mapping>,
}

/// The identity of a file: path, build id, and without a build id the mapping.
type FileKey<'a> = (&'a str, &'a [u8], Option<(ProcessId, u64, u64)>);

/// Names every address in the profile's stacks that has no name yet, and every host function launched as an unnamed
/// kernel.
pub fn resolve(profile: &Profile, kept: &mut Kept, options: &Options) -> Named {
    let modules = Modules::of(profile);
    let mut unnamed_frames = FxHashSet::default();
    // The mappings at each address: nearly always one, and more if libraries were replaced.
    let mut native = FxHashMap::<(ProcessId, u64), Vec<Option<&Mapping>>>::default();
    let mut seen = FxHashSet::default();
    let frames = profile.stacks.iter().flat_map(|stack| {
        // What several stacks share is looked at once, unless its meaning depends on the time.
        let is_new = |&(node, _): &(u32, Frame)| {
            modules.has_reused_addresses(stack.process) || seen.insert((stack.process, node))
        };
        let frames: Vec<_> = stack.nodes().take_while(is_new).collect();
        frames.into_iter().map(move |(_, frame)| (frame.named_in(stack.process), frame, stack.time))
    });
    let stubs = profile.calls.unnamed_stubs().map(|(process, address)| (process, Frame::User(address), u64::MAX));
    for (process, frame, time) in frames.chain(stubs) {
        if profile.symbols.knows(process, frame) {
            continue;
        }
        if let Frame::User(address) = frame {
            if native.contains_key(&(process, address)) && !modules.has_reused_addresses(process) {
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
            // Named when it was collected, or never.
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
        named.symbols.extend(name_generated(profile, process, &spots, kept, &mut named.unread));
    }
    named.lines = locate(profile, kept, &mut named.unread);
    named.notes.extend(notes(kept));
    named.notes.extend(std::mem::take(&mut named.unread.notes));
    // The order of a hash map is not deterministic.
    named.symbols.sort_by_key(|s| (s.process, sort_key(s.frame), s.since));
    named
}

/// Returns one spot for each meaning of an address. The same file mapped again in the same place has the same meaning.
fn spots<'a>((process, address): (ProcessId, u64), meanings: &[Option<&'a Mapping>]) -> Vec<Spot<'a>> {
    let meaning = |mapping: &Option<&'a Mapping>| mapping.map(meaning);
    let spot = |mapping: Option<&'a Mapping>, since| Spot { process, address, since, mapping };
    match meanings {
        [first, others @ ..] if others.iter().all(|other| meaning(other) == meaning(first)) => vec![spot(*first, 0)],
        _ => meanings.iter().map(|mapping| spot(*mapping, mapping.map_or(0, |mapping| mapping.time))).collect(),
    }
}

/// Returns the source of sampled instructions in the cubins that were kept.
fn locate(profile: &Profile, kept: &Kept, unread: &mut Unread) -> Vec<StallLines> {
    let stalls = &profile.stalls;
    let mut cubins = BTreeMap::<(SessionId, u32), Vec<Instruction>>::new();
    for at in stalls.unlocated() {
        cubins.entry((at.session, at.cubin)).or_default().push(at);
    }
    let name = |at: &Instruction| {
        let index = stalls.functions.get(&(at.session, at.function))?;
        profile.kernel_names.get(*index as usize).map(|kernel| &*kernel.mangled)
    };
    let mut located = Vec::new();
    for (key, mut instructions) in cubins {
        let Some(cubin) = kept.cubins.get(&key) else { continue };
        instructions.sort_unstable();
        let wanted = instructions.iter().map(|at| (name(at).unwrap_or_default().to_owned(), at.offset)).collect();
        let lines = cubin::lines_apart(cubin, wanted).unwrap_or_else(|why| {
            unread.add("cubin", why);
            Vec::new()
        });
        located.extend(instructions.into_iter().zip(lines).map(|(at, lines)| StallLines { at, lines }));
    }
    located.retain(|located| !located.lines.is_empty());
    located
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
            "{} mapped files exceeded the {} that can be kept open: they were opened again by path and build id; \
             raise the hard limit (ulimit -Hn) to keep more open",
            kept.files.not_held(),
            kept.files.most(),
        ));
    }
    if kept.jits.refused() > 0 {
        notes.push(format!(
            "{} processes that generate code exceeded the limit: names of their generated code are missing",
            kept.jits.refused()
        ));
    }
    for path in kept.jits.too_large() {
        notes.push(format!("{path} is larger than 64 MiB: names in it were not read"));
    }
    notes
}

/// A frame known only by its module: `[libfoo.so]`.
fn unnamed((process, frame, since): (ProcessId, Frame, u64), kind: FrameKind, module: &str) -> Symbol {
    let name = format!("[{}]", module.trim_matches(['[', ']']));
    Symbol { process, frame, since, names: vec![NamedFrame { kind, name: name.into(), module: module.into() }] }
}

/// The maximum length of a kernel function. Beyond the last function, where eBPF programs are, the search would still
/// return it.
const LONGEST_FUNCTION: usize = 1 << 20;

fn name_kernel(addresses: &[u64], bpf: &BpfCode) -> Vec<Symbol> {
    // The kernel's table is large, and reading it is expensive.
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

/// Returns the file's name without its directory; anonymous memory has none in `/proc/PID/maps`.
pub(crate) fn module(path: &str) -> Arc<str> {
    let path = if path.is_empty() { "//anon" } else { path };
    Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into())
}

/// Names the addresses in one file. If it is not a program file, its code counts as generated.
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
    // As a file, or in memory, where it has a number.
    let injected =
        !options.injector.is_empty() && module.strip_prefix("memfd:").unwrap_or(&module).starts_with(options.injector);
    let probe = injected || module.starts_with("libcupti.so");
    let kind = if probe { FrameKind::Probe } else { FrameKind::Native };
    let found = kept.files.unread(mapping).and_then(|source| {
        let offset = |spot: &Spot<'_>| {
            let mapping = spot.mapping.unwrap_or(mapping);
            (spot.address - mapping.start).wrapping_add(mapping.offset)
        };
        let request = look_up::Request {
            build_id: mapping.build_id.clone(),
            offsets: spots.iter().map(offset).collect(),
            lines: options.lines && !probe,
            budget: options.budget,
            debug: None,
        };
        look_up(&source, path, request, &options.debug_files).transpose()
    });
    let (answers, refused) = match found {
        None if path.starts_with("/memfd:") => {
            for spot in spots {
                generated.entry(spot.process).or_default().push(*spot);
            }
            return;
        }
        None => Default::default(),
        Some(Ok(found)) => found,
        Some(Err(why)) => {
            named.unread.add(&module, why);
            Default::default()
        }
    };
    named.notes.extend(refused.into_iter().map(|what| format!("{module}: {what}")));
    for (i, spot) in spots.iter().enumerate() {
        let frame = Frame::User(spot.address);
        named.symbols.push(match answers.get(i).and_then(|answer| frames(answer, kind, &module)) {
            Some(names) => Symbol { process: spot.process, frame, since: spot.since, names },
            None => unnamed((spot.process, frame, spot.since), kind, &module),
        });
    }
}

/// Returns the frames of one address, outermost first: the function, and the functions inlined into it there.
fn frames(answer: &Answer, kind: FrameKind, module: &Arc<str>) -> Option<Vec<NamedFrame>> {
    let function = answer.function.as_ref()?;
    let named = |name: &str, place: Option<&Place>| {
        let name = place.map_or_else(|| name.to_owned(), |place| format!("{name} ({place})"));
        NamedFrame { kind, name: name.into(), module: module.clone() }
    };
    let inlined = answer.inlined.iter().map(|(name, place)| named(name, place.as_ref()));
    Some([named(function, answer.place.as_ref())].into_iter().chain(inlined).collect())
}

/// Names code that is not in a file: from the process's own map, or from that of the process it was forked from.
fn name_generated(
    profile: &Profile,
    process: ProcessId,
    spots: &[Spot<'_>],
    kept: &mut Kept,
    unread: &mut Unread,
) -> Vec<Symbol> {
    let mut names = HashMap::new();
    let mut image = Some(process);
    // The bound protects against a malformed recording.
    for _ in 0..1024 {
        let Some(current) = image else { break };
        let missing: BTreeSet<u64> = spots.iter().map(|s| s.address).filter(|a| !names.contains_key(a)).collect();
        if missing.is_empty() {
            break;
        }
        match kept.jits.names(current, &missing) {
            Ok(found) => names.extend(found),
            Err(why) => unread.add("perf map", why),
        }
        image = profile.processes.get(&current).filter(|info| info.origin == Origin::Fork).and_then(|info| info.parent);
    }
    let symbol = |spot: &Spot<'_>| {
        let module = spot.mapping.map_or("unknown".into(), |mapping| module(&mapping.path));
        let (frame, since) = (Frame::User(spot.address), spot.since);
        match names.get(&spot.address) {
            Some(name) => {
                let name = NamedFrame { kind: FrameKind::Native, name: readable(name).into(), module };
                Symbol { process, frame, since, names: vec![name] }
            }
            // The kernel's own code for probes.
            None if module.starts_with("[uprobes") => unnamed((process, frame, since), FrameKind::Probe, &module),
            None => unnamed((process, frame, since), FrameKind::Native, &module),
        }
    };
    spots.iter().map(symbol).collect()
}
