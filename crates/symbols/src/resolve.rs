//! Addresses to names.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use blazesym::symbolize::{
    Input, Symbolized, Symbolizer,
    source::{Elf, Kernel, Source},
};
use model::{
    event::{Frame, FrameKind, Mapping, NamedFrame, ProcessId, Symbol},
    profile::Profile,
};
use rustc_hash::FxHashSet;

use crate::{demangle::demangle, modules::Modules};

/// Names every address in the profile's stacks that has none yet, and every host function launched as an unnamed kernel.
///
/// `injector` is the file name of the injected library: its frames, and CUPTI's, are the probe's own.
pub fn resolve(profile: &Profile, injector: &str) -> Vec<Symbol> {
    let symbolizer =
        Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).enable_demangling(false).build();
    let modules = Modules::of(profile);
    let mut seen = FxHashSet::default();
    let mut kernel = Vec::new();
    let mut files = BTreeMap::<&str, Vec<(ProcessId, u64, &Mapping)>>::new();
    let mut symbols = Vec::new();
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
            Frame::Python(_) => symbols.push(unnamed(process, frame, FrameKind::Python, "python")),
            Frame::User(address) => match modules.find(process, address, time) {
                Some(mapping) => files.entry(&mapping.path).or_default().push((process, address, mapping)),
                None => symbols.push(unnamed(process, frame, FrameKind::Native, "unknown")),
            },
        }
    }
    symbols.extend(name_kernel(&symbolizer, &kernel));
    for (path, addresses) in files {
        symbols.extend(name_file(&symbolizer, path, &addresses, injector));
    }
    // The order of a hash map is not the order of a file.
    symbols.sort_by_key(|s| (s.process, sort_key(s.frame)));
    symbols
}

fn sort_key(frame: Frame) -> (u8, u64) {
    match frame {
        Frame::User(address) => (0, address),
        Frame::Kernel(address) => (1, address),
        Frame::Python(number) => (2, number.into()),
    }
}

/// A frame known by its module alone: `[libfoo.so]`.
fn unnamed(process: ProcessId, frame: Frame, kind: FrameKind, module: &str) -> Symbol {
    let name = format!("[{}]", module.trim_matches(['[', ']']));
    Symbol { process, frame, names: vec![NamedFrame { kind, name: name.into(), module: module.into() }] }
}

fn name_kernel(symbolizer: &Symbolizer, addresses: &[u64]) -> Vec<Symbol> {
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

fn name_file(
    symbolizer: &Symbolizer,
    path: &str,
    addresses: &[(ProcessId, u64, &Mapping)],
    injector: &str,
) -> Vec<Symbol> {
    let module: Arc<str> = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy().into());
    let probe = &*module == injector || module.starts_with("libcupti.so");
    let kind = if probe { FrameKind::Probe } else { FrameKind::Native };
    let offsets: Vec<u64> = addresses.iter().map(|(_, address, m)| address - m.start + m.offset).collect();
    let answers = if path.starts_with('/') {
        let mut elf = Elf::new(path);
        elf.debug_syms = false;
        symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(&offsets)).unwrap_or_default()
    } else {
        Vec::new()
    };
    addresses
        .iter()
        .enumerate()
        .map(|(i, (process, address, _))| {
            let frame = Frame::User(*address);
            match answers.get(i) {
                Some(Symbolized::Sym(sym)) => {
                    let name = NamedFrame { kind, name: demangle(&sym.name).into(), module: module.clone() };
                    Symbol { process: *process, frame, names: vec![name] }
                }
                _ => unnamed(*process, frame, kind, &module),
            }
        })
        .collect()
}
