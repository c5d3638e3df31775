//! Where an event occurs: offsets in a file, or a kernel tracepoint.

use std::{fs::File, path::Path};

use anyhow::{Context, bail};
use bpf::{HitPoint, HitSource, HitWeight, tracefs};
use elf::Budget;
use probes::{Cost, Function, Usdt};
use text::did_you_mean;

use super::spec::{Kind, Spec, Weight};
use crate::calls::{named::Named, points::Format};

/// A place in a file where an event occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function; empty if the place is not a function's entry or return.
    pub function: String,
    /// Offset in the file.
    pub offset: u64,
    /// Whether it is at the return of that function.
    pub returns: bool,
    /// The semaphore of a static tracepoint.
    pub semaphore: Option<u64>,
    /// What to gather there.
    pub point: HitPoint,
}

/// Returns all places of an event in a file that can be read at `file` and is known to the user as `path`.
pub fn in_file(spec: &Spec, file: &Path, path: &str) -> anyhow::Result<Vec<Place>> {
    let data = probes::open(file)?;
    let places = match &spec.kind {
        Kind::Function { named, returns } => {
            let functions = functions(&data, named, path)?;
            functions.iter().map(|(name, function)| at_function(spec, name, function, *returns)).collect()
        }
        Kind::Offset { offset, .. } => {
            if !probes::offset_in_code(&data, *offset)? {
                bail!("{path} has no code at offset {offset:#x}");
            }
            let point =
                HitPoint { weight: spec.weight.as_ref().map(|weight| argument(weight, false)), ..HitPoint::default() };
            vec![Place { function: String::new(), offset: *offset, returns: false, semaphore: None, point }]
        }
        Kind::Usdt { provider, name, .. } => usdt(spec, &probes::usdt(&data)?, provider.as_deref(), name, path)?,
        Kind::Tracepoint { .. } => Vec::new(),
    };
    Ok(places)
}

/// Returns the functions that the user selected, each with the name to show.
fn functions(file: &File, named: &Named, path: &str) -> anyhow::Result<Vec<(String, Function)>> {
    let (name, budget) = (named.pattern(), &Budget::RECORDING);
    if probes::chosen_at_load(file, name, budget)? {
        let all = probes::matching(file, |symbol| symbol.contains(name), budget)?;
        let others = all.iter().map(|function| function.name.as_str()).filter(|other| *other != name);
        let near = text::near(others, name);
        bail!(
            "{name} of {path} is an indirect function (ifunc), resolved at load time: use the name of the implementation{}",
            did_you_mean(&near)
        );
    }
    let mut found = named.find(file, path, budget)?;
    found.retain(|(_, function)| function.site.cost != Cost::Refused);
    if found.is_empty() {
        bail!("{name} of {path} cannot be probed: the kernel does not support a probe on its first instruction");
    }
    Ok(found)
}

fn at_function(spec: &Spec, name: &str, function: &Function, returns: bool) -> Place {
    let weight = spec.weight.as_ref().map(|weight| argument(weight, true));
    Place {
        function: symbols::readable(name),
        // The return address is where it was at the entry, whichever instruction is cheapest to probe.
        offset: function.site.offset,
        returns,
        semaphore: None,
        point: HitPoint { weight, at_entry: true, kernel: false },
    }
}

/// Returns the location of an argument in the calling convention (System V, x86-64), or of the result.
fn argument(weight: &Weight, at_entry: bool) -> HitWeight {
    /// rdi, rsi, rdx, rcx, r8, r9 by DWARF register number.
    const REGISTERS: [u8; 6] = [5, 4, 1, 2, 8, 9];
    const RAX: u8 = 0;
    const RSP: u8 = 7;
    match *weight {
        Weight::Argument { number, size, signed } => {
            let source = match REGISTERS.get(usize::from(number) - 1) {
                Some(register) => HitSource::Register(*register, 0),
                // The return address is between the stack pointer and the stack arguments.
                None => {
                    let offset = 8 * (i64::from(number) - 7) + if at_entry { 8 } else { 0 };
                    HitSource::Memory { base: Some(RSP), index: None, offset }
                }
            };
            HitWeight { source, size, signed }
        }
        Weight::Result { size, signed } => HitWeight { source: HitSource::Register(RAX, 0), size, signed },
        Weight::Field(_) => HitWeight { source: HitSource::Constant(0), size: 8, signed: false },
    }
}

fn usdt(spec: &Spec, all: &[Usdt], provider: Option<&str>, name: &str, path: &str) -> anyhow::Result<Vec<Place>> {
    let is_meant = |probe: &&Usdt| probe.name == name && provider.is_none_or(|provider| probe.provider == provider);
    let found: Vec<&Usdt> = all.iter().filter(is_meant).collect();
    if found.is_empty() {
        let near = text::near(all.iter().map(|probe| probe.name.as_str()), name);
        let full = |name: &String| all.iter().find(|probe| probe.name == *name);
        let near: Vec<String> =
            near.iter().filter_map(full).map(|probe| format!("{}:{}", probe.provider, probe.name)).collect();
        let wanted = provider.map_or_else(|| name.to_owned(), |provider| format!("{provider}:{name}"));
        match all.len() {
            0 => bail!("{path} has no static tracepoints (USDT)"),
            _ => bail!("{path} has no static tracepoint {wanted}{}", did_you_mean(&near)),
        }
    }
    found.into_iter().map(|probe| at_usdt(spec, probe)).collect()
}

fn at_usdt(spec: &Spec, probe: &Usdt) -> anyhow::Result<Place> {
    let weight = match &spec.weight {
        Some(Weight::Argument { number, .. }) => Some(usdt_argument(probe, *number)?),
        _ => None,
    };
    Ok(Place {
        function: String::new(),
        offset: probe.offset,
        returns: false,
        semaphore: probe.semaphore,
        point: HitPoint { weight, ..HitPoint::default() },
    })
}

/// Returns the location of an argument, counted from 1.
pub(crate) fn usdt_argument(probe: &Usdt, number: u8) -> anyhow::Result<HitWeight> {
    let full = || format!("{}:{}", probe.provider, probe.name);
    let argument = match probe.arguments.get(usize::from(number) - 1) {
        None => bail!(
            "{} has {}: there is no arg{number}",
            full(),
            text::units::counted(probe.arguments.len() as u64, "argument", "arguments")
        ),
        Some(None) => {
            bail!("arg{number} of {} cannot be read: it is not an integer in a register or in memory", full())
        }
        Some(Some(argument)) => argument,
    };
    let source = match argument.place {
        probes::Place::Constant(value) => HitSource::Constant(value),
        probes::Place::Register(register, shift) => HitSource::Register(register, shift),
        probes::Place::Memory { base, index, offset } => HitSource::Memory { base, index, offset },
    };
    Ok(HitWeight { source, size: argument.size, signed: argument.signed })
}

/// Returns the number of a kernel tracepoint in tracefs, and what to gather there.
pub fn in_kernel(group: &str, name: &str, weight: Option<&Weight>) -> anyhow::Result<(u64, HitPoint)> {
    let read = |file| tracefs::read(&format!("events/{group}/{name}/{file}"));
    let id = match read("id") {
        Ok(id) => id,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let full = format!("{group}:{name}");
            let all = tracefs::tracepoints().unwrap_or_default();
            let near = text::near(all.iter().map(String::as_str), &full);
            bail!("there is no tracepoint {full}{}", did_you_mean(&near));
        }
        Err(error) => {
            return Err(error).context(
                "cannot read the kernel's list of tracepoints (tracefs is not mounted at /sys/kernel/tracing or \
                 /sys/kernel/debug/tracing, and cannot be mounted)",
            );
        }
    };
    let id = id.trim().parse().context("tracefs returned an invalid tracepoint id")?;
    let weight = match weight {
        Some(Weight::Field(field)) => {
            let format = Format::parse(&read("format").unwrap_or_default());
            let Some((offset, size, signed)) = format.number(field) else {
                let numbers: Vec<&str> = format.numbers().collect();
                bail!("{group}:{name} has no numeric field {field}; it has: {}", numbers.join(", "));
            };
            Some(HitWeight { source: HitSource::Field(offset), size, signed })
        }
        _ => None,
    };
    // At a system call the kernel part of the stack is always the same.
    Ok((id, HitPoint { weight, at_entry: false, kernel: group != "syscalls" }))
}
