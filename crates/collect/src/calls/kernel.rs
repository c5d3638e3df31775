//! Kernel functions by name: `--kprobe` and `--fentry`.

use std::{io, path::Path};

use anyhow::{Context, bail};
use bpf::{KernelFunction, tracefs};
use text::{did_you_mean, pattern::Selection};

/// The most kernel functions of one trace. `--fentry` needs two programs for each.
const MOST_PROBED: usize = 1000;
const MOST_HOOKED: usize = 100;

/// Returns the functions matching the patterns that kprobes can be attached to.
pub fn probed(patterns: &[String]) -> anyhow::Result<Vec<String>> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let all = match tracefs::kernel_functions() {
        Ok(all) => all,
        Err(error) => {
            bail!("this kernel does not list functions for kprobes: {}; use --driver to trace ioctls", unlisted(&error))
        }
    };
    choose("--kprobe", patterns, all, String::as_str, MOST_PROBED)
}

/// Returns the functions matching the patterns that fentry can be attached to.
pub fn hooked(patterns: &[String]) -> anyhow::Result<Vec<KernelFunction>> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let chosen = choose("--fentry", patterns, can_be_hooked()?, |function| &function.name, MOST_HOOKED)?;
    if let Some(error) = refused(&chosen) {
        bail!(
            "this kernel does not permit fentry on {}: {}; --tracepoint, --uprobe and --driver work without it",
            if let [function] = chosen.as_slice() { &function.name } else { "any of these functions" },
            reason(&error),
        );
    }
    Ok(chosen)
}

/// Returns why none of these functions can be hooked; `None` if one can.
pub fn refused(functions: &[KernelFunction]) -> Option<io::Error> {
    let mut first = None;
    for function in functions {
        let error = bpf::try_hook(function).err()?;
        first.get_or_insert(error);
    }
    first
}

/// Says why the kernel does not list the functions that kprobes can be attached to.
pub fn unlisted(error: &io::Error) -> String {
    let has_kprobes = Path::new("/sys/bus/event_source/devices/kprobe").exists();
    if has_kprobes { reason(error) } else { "it was built without kprobes".into() }
}

/// Formats an error of the kernel.
pub fn reason(error: &io::Error) -> String {
    /// The kernel's internal ENOTSUPP, which libc has no name for.
    const UNSUPPORTED: i32 = 524;
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "not permitted (kernel lockdown or policy)".into(),
        Some(UNSUPPORTED) => "it was built without support for it".into(),
        _ => error.to_string(),
    }
}

/// Returns the functions with BTF types, without those that the kernel lists as untraceable.
pub fn can_be_hooked() -> anyhow::Result<Vec<KernelFunction>> {
    let mut all =
        bpf::kernel_functions(|_| true).context("--fentry requires BTF, which this kernel does not provide")?;
    // A locked-down kernel does not show the list. Functions that cannot be traced are then rejected later.
    if let Ok(traced) = tracefs::kernel_functions() {
        let traced: std::collections::HashSet<_> = traced.into_iter().collect();
        all.retain(|function| traced.contains(&function.name));
    }
    Ok(all)
}

/// Returns those with matching names, each once.
fn choose<T: Clone>(
    option: &str,
    patterns: &[String],
    all: Vec<T>,
    name: impl Fn(&T) -> &str,
    most: usize,
) -> anyhow::Result<Vec<T>> {
    let selection = Selection::parse(patterns, &[])?;
    let mut chosen: Vec<T> = all.iter().filter(|function| selection.takes(name(function))).cloned().collect();
    chosen.sort_by(|a, b| name(a).cmp(name(b)));
    chosen.dedup_by(|a, b| name(a) == name(b));
    let patterns = patterns.join(",");
    if chosen.is_empty() {
        let near = text::near(all.iter().map(&name), &patterns);
        bail!("{option} {patterns} matches no function of the kernel{}", did_you_mean(&near));
    }
    if chosen.len() > most {
        bail!(
            "{option} {patterns} matches {} functions, more than the limit of {most}: use a narrower pattern",
            chosen.len()
        );
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that functions are selected by pattern, each once and in order, and that none or too many is a clear
    /// error.
    #[test]
    fn functions_are_selected_by_pattern() {
        let all: Vec<String> = ["vfs_write", "vfs_read", "do_exit", "vfs_read"].map(String::from).into();
        let choose = |pattern: &str, most| {
            choose("--kprobe", &[pattern.to_owned()], all.clone(), String::as_str, most).map_err(|e| e.to_string())
        };
        assert_eq!(choose("vfs_*", 2), Ok(vec!["vfs_read".to_owned(), "vfs_write".to_owned()]));
        assert_eq!(
            choose("*", 2),
            Err("--kprobe * matches 3 functions, more than the limit of 2: use a narrower pattern".into())
        );
        let near = choose("vfs_red", 2).expect_err("no such function");
        assert!(
            near.starts_with("--kprobe vfs_red matches no function of the kernel; did you mean vfs_read"),
            "{near}"
        );
    }
}
