//! `trace --list`: lists what can be traced on this machine.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf::tracefs;
use collect::{
    calls::{
        kernel, search,
        wanted::{Found, Limits, Wanted},
    },
    command::setup::Setup,
};
use probes::Cost;
use text::names::printable;
use text::pattern::Selection;

use super::plan::Plan;
use crate::args;

/// Lists libraries with the functions that would be traced, tracepoints and kernel functions: those that match, or the
/// default ones.
pub fn run(patterns: &str, options: &args::Trace, plan: Plan) -> anyhow::Result<ExitCode> {
    let selection =
        if patterns.is_empty() { plan.selection } else { Selection::parse(&[patterns.to_owned()], &options.exclude)? };
    let mut out = io::stdout().lock();
    let setup = if options.sim { Some(Setup::new(false, true, None)?) } else { None };
    let simulator = setup.as_ref().and_then(|setup| setup.injection.simulator.as_deref());
    let program = options.command.first().and_then(|program| search::program(program));
    let mut wanted = Wanted::new(selection.clone(), options.lib.clone(), plan.functions);
    let mut files: Vec<PathBuf> = wanted.given_paths().map(PathBuf::from).collect();
    let directories = search::directories(program.as_deref(), simulator);
    files.extend(search::files(&directories, |name| wanted.wants(name)));
    files.extend(program);
    // A library and the links to it are listed once.
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| std::fs::canonicalize(file).map_or(true, |real| seen.insert(real)));
    let mut any = false;
    for file in &files {
        any |= list_library(file, simulator, &mut wanted, &mut out)?;
    }
    if files.is_empty() {
        writeln!(out, "no CUDA library in the usual locations; --sim lists those of the simulated GPU")?;
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
            any |= list_names("kernel functions (--kprobe)", functions, &mut out)?;
        }
        Err(error) => {
            writeln!(out, "\nkernel functions cannot be traced with --kprobe here: {}", kernel::unlisted(&error))?;
        }
    }
    any |= list_hooks(relevant, &mut out)?;
    if !patterns.is_empty() && !any {
        writeln!(out, "\nnothing matches {patterns}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists functions for fentry with their parameters, or the reason why there are none.
fn list_hooks(relevant: impl Fn(&str) -> bool, out: &mut dyn Write) -> io::Result<bool> {
    const NOT_HERE: &str = "kernel functions cannot be traced with --fentry here";
    let mut functions = match kernel::can_be_hooked() {
        Ok(functions) => functions,
        Err(error) => {
            writeln!(out, "\n{NOT_HERE}: {error:#}")?;
            return Ok(false);
        }
    };
    functions.retain(|function| relevant(&function.name));
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    // Probing requires privileges.
    if bpf::features::privileged()
        && let Some(error) = kernel::refused(&functions)
    {
        writeln!(out, "\n{NOT_HERE}: {}", kernel::reason(&error))?;
        return Ok(false);
    }
    let prototypes = functions.iter().map(|function| format!("{}({})", function.name, function.parameters.join(", ")));
    list_names("kernel functions (--fentry)", prototypes.collect::<Vec<_>>().iter(), out)
}

fn list_library(
    file: &Path,
    simulator: Option<&Path>,
    wanted: &mut Wanted,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let shown = match real.file_name().filter(|_| simulator.is_some_and(|simulator| file.starts_with(simulator))) {
        Some(name) => format!("{} (simulated GPU)", name.display()),
        None => file.display().to_string(),
    };
    let mut found = match probes::open(file)
        .map_err(Into::into)
        .and_then(|data| wanted.find(&data, &real.to_string_lossy(), &Limits::TRACE, false))
    {
        Ok(found) => found,
        Err(error) => {
            writeln!(out, "{}: {error}", printable(&shown))?;
            return Ok(false);
        }
    };
    found.retain(|found| found.shown);
    writeln!(out, "{}: {}", printable(&shown), probes::summary(found.iter().map(|found| &found.function)))?;
    for Found { function, name, .. } in &found {
        let cost = match function.site.cost {
            Cost::Nop5 => "nop",
            Cost::Emulated => "emulated",
            Cost::Stepped => "stepped",
            Cost::Refused => "refused",
        };
        let offset = function.site.offset - function.offset;
        let known = if cuda::call(name).is_some() { "arguments" } else { "" };
        writeln!(out, "  {:<44} +{offset:<3} {cost:<9} {known}", printable(name))?;
    }
    Ok(!found.is_empty())
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
