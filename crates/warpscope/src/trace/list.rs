//! `trace --list`: what can be traced on this machine.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf::tracefs;
use export::names::printable;
use probes::{Cost, Selection};

use super::{kernel, libraries::Libraries, search};

/// Lists libraries with their functions, tracepoints and functions of the kernel; those with such names, or the usual.
pub fn run(patterns: &str, named: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let wanted: Vec<String> = if patterns.is_empty() { Vec::new() } else { vec![patterns.to_owned()] };
    let selection = Selection::parse(&wanted, &[])?;
    let mut out = io::stdout().lock();
    let mut files: Vec<PathBuf> = named.iter().filter(|l| l.is_file()).cloned().collect();
    let libraries =
        Libraries::new(Selection::default(), named.to_vec(), Vec::new(), Box::new(|_, gather| Some(gather)));
    files.extend(search::files(&search::directories(None, None), |name| libraries.wants(name)));
    // A library and the links to it are one.
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| std::fs::canonicalize(file).is_ok_and(|real| seen.insert(real)));
    let mut any = false;
    for file in &files {
        any |= list_library(file, &selection, &mut out)?;
    }
    if files.is_empty() {
        writeln!(out, "no CUDA library in the usual places; those of a program are found when it is traced")?;
    }
    let points = tracefs::tracepoints().unwrap_or_default();
    let relevant = |name: &&String| match patterns {
        "" => ["nvidia", "nvswitch", "gpu_mem", "dma_fence"].iter().any(|c| name.starts_with(c)),
        _ => selection.takes(name) || name.split_once(':').is_some_and(|(_, point)| selection.takes(point)),
    };
    any |= list_names("tracepoints (--tracepoint)", points.iter().filter(relevant), &mut out)?;
    let relevant = |name: &str| match patterns {
        "" => ["nvidia_", "uvm_", "nv_"].iter().any(|c| name.starts_with(c)),
        _ => selection.takes(name),
    };
    match tracefs::kernel_functions() {
        Ok(functions) => {
            let functions = functions.iter().filter(|name| relevant(name));
            any |= list_names("functions of the kernel (--kprobe)", functions, &mut out)?;
        }
        Err(error) => {
            writeln!(out, "\nfunctions of the kernel cannot be probed here (--kprobe): {}", kernel::unlisted(&error))?;
        }
    }
    any |= list_hooks(relevant, &mut out)?;
    if !patterns.is_empty() && !any {
        writeln!(out, "\nnothing here matches {patterns}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Functions for fentry with their parameters; or why there are none.
fn list_hooks(relevant: impl Fn(&str) -> bool, out: &mut dyn Write) -> io::Result<bool> {
    const NOT_HERE: &str = "functions of the kernel cannot be hooked here (--fentry)";
    let mut functions = match kernel::can_be_hooked() {
        Ok(functions) => functions,
        Err(error) => {
            writeln!(out, "\n{NOT_HERE}: {error:#}")?;
            return Ok(false);
        }
    };
    functions.retain(|function| relevant(&function.name));
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    // Without privileges nothing can be tried.
    if bpf::features::privileged()
        && let Some(error) = kernel::refused(&functions)
    {
        writeln!(out, "\n{NOT_HERE}: {}", kernel::reason(&error))?;
        return Ok(false);
    }
    let prototypes = functions.iter().map(|function| format!("{}({})", function.name, function.parameters.join(", ")));
    list_names("functions of the kernel (--fentry)", prototypes.collect::<Vec<_>>().iter(), out)
}

fn list_library(file: &Path, selection: &Selection, out: &mut dyn Write) -> anyhow::Result<bool> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let functions = match probes::open(file).and_then(|data| probes::exported(&data)) {
        Ok(functions) => functions,
        Err(error) => {
            writeln!(out, "{}: {error}", printable(&file.display().to_string()))?;
            return Ok(false);
        }
    };
    let selection = selection.for_library(&name);
    let chosen: Vec<_> = functions.iter().filter(|f| selection.name_of(f).is_some()).collect();
    writeln!(out, "{}: {}", printable(&file.display().to_string()), probes::summary(chosen.iter().copied()))?;
    for function in &chosen {
        let cost = match function.site.cost {
            Cost::Nop5 => "nop",
            Cost::Emulated => "emulated",
            Cost::Stepped => "stepped",
            Cost::Refused => "refused",
        };
        let offset = function.site.offset - function.offset;
        let known = if cuda::call(&function.name).is_some() { "arguments" } else { "" };
        writeln!(out, "  {:<44} +{offset:<3} {cost:<9} {known}", printable(&function.name))?;
    }
    Ok(!chosen.is_empty())
}

fn list_names<'a>(title: &str, names: impl Iterator<Item = &'a String>, out: &mut dyn Write) -> io::Result<bool> {
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        writeln!(out, "\n{title}: {}", names.len())?;
        for name in &names {
            writeln!(out, "  {name}")?;
        }
    }
    Ok(!names.is_empty())
}
