//! Watches functions: of libraries as they are found or mapped, of the kernel, and tracepoints.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bpf::{
    KernelFunction, KernelResult, Recorder,
    calls::{CALL_WORDS, Gather},
    tracefs,
};
use model::{
    calls::Tier,
    event::{Event, Layer, Note, ProcessId},
};

use super::{Deferred, Mapped, Tracer};
use crate::{
    calls::{kernel, libraries::Watching, points::Format, search},
    process::procfs,
};

/// How long one round inspects files, except for the last one.
const SLICE: Duration = Duration::from_millis(20);
/// The most mappings that wait for their file to be inspected.
const MOST_DEFERRED: usize = 256;

impl Tracer {
    /// Watches a file before anything runs; returns `false` if it has nothing to watch.
    pub fn watch(
        &mut self,
        file: &PathBuf,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<bool> {
        let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        let path = real.to_string_lossy();
        self.libraries
            .watch(file, &path, recorder, &mut self.functions, push)
            .map(|watching| matches!(watching, Watching::Since(_)))
            .with_context(|| format!("cannot trace {path}"))
    }

    /// Watches the libraries on the search paths of loaders and Python, so that no first call is missed, and those that
    /// running processes have mapped. Returns these processes.
    pub fn watch_machine(&mut self, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) -> Vec<u32> {
        for file in search::installed(|name| self.libraries.wanted.wants(name)) {
            if let Err(error) = self.watch(&file, recorder, push) {
                self.refuse(format!("{error:#}"), push);
            }
        }
        procfs::all().into_iter().filter(|pid| self.watch_process(*pid, recorder, push)).collect()
    }

    /// Handles a file mapped by a process: watches it from now on, if it should be watched and is not yet.
    pub(super) fn watch_mapped(&mut self, mapped: &Mapped<'_>, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        if !self.libraries.wanted.wants(mapped.path) {
            return;
        }
        let place = procfs::mapped_file(mapped.pid, mapped.start, mapped.end);
        let before = self.libraries.count();
        let mut watched = self.libraries.watch(&place, mapped.path, recorder, &mut self.functions, push);
        // The process exited before it was inspected. The next one that maps the same file is tried again.
        if watched.is_err() && !place.exists() {
            watched = self.libraries.watch(mapped.path.as_ref(), mapped.path, recorder, &mut self.functions, push);
        }
        match watched {
            Ok(Watching::Nothing) => {}
            Ok(Watching::Later(owner)) => self.defer(mapped, owner, push),
            Ok(Watching::Since(since)) => {
                if mapped.time < since && !place.exists() {
                    self.late.add_ended(mapped.pid, mapped.time, since);
                } else {
                    self.late.add(mapped.pid, mapped.time, since);
                }
                if self.libraries.count() > before && mapped.time != 0 {
                    let late = since.saturating_sub(mapped.time) as f64 / 1e6;
                    let text = format!(
                        "{} was probed {late:.1} ms after it was loaded: calls in that time are missing",
                        mapped.path
                    );
                    push(Event::Note(Note { text }));
                }
            }
            Err(_) if !place.exists() => {
                self.late.add_ended(mapped.pid, mapped.time, mapped.time);
                let text = format!(
                    "{} was mapped by a process that exited before the file was inspected: \
                     its calls are missing, unless the file was already probed",
                    mapped.path
                );
                push(Event::Note(Note { text }));
            }
            Err(error) => self.refuse(format!("{} is not probed: {error:#}", mapped.path), push),
        }
    }

    fn defer(&mut self, mapped: &Mapped<'_>, owner: u32, push: &mut dyn FnMut(Event)) {
        if self.deferred.len() >= MOST_DEFERRED {
            self.overlooked += 1;
            return;
        }
        self.deferred.push_back(Deferred::of(mapped, Some(owner)));
        let text = format!("user {owner} loads new libraries too fast: some are probed late");
        push(Event::Note(Note { text }));
    }

    /// Watches files that processes have mapped, and deferred ones for which there is time now. Returns whether some are left for the
    /// next round: a scrape must not wait for many new libraries.
    pub fn watch_all_mapped<'a>(
        &mut self,
        all: impl Iterator<Item = Mapped<'a>>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> bool {
        let begun = Instant::now();
        for mapped in all.filter(|mapped| self.libraries.wanted.wants(mapped.path)).collect::<Vec<_>>() {
            if begun.elapsed() >= SLICE && self.deferred.len() < MOST_DEFERRED {
                self.deferred.push_back(Deferred::of(&mapped, None));
            } else {
                self.watch_mapped(&mapped, recorder, push);
            }
        }
        for _ in 0..self.deferred.len() {
            if begun.elapsed() >= SLICE {
                return true;
            }
            let Some(next) = self.deferred.pop_front() else { break };
            if next.owner.is_none_or(|owner| self.libraries.has_time_for(owner)) {
                self.watch_mapped(&next.mapped(), recorder, push);
            } else {
                self.deferred.push_back(next);
            }
        }
        false
    }

    /// Watches the files that a running process has mapped; returns whether there are any to watch.
    pub fn watch_process(&mut self, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) -> bool {
        let mut any = false;
        for mapping in procfs::mappings(pid, ProcessId(0)) {
            let mapped = Mapped { pid, start: mapping.start, end: mapping.end, path: &mapping.path, time: 0 };
            any |= self.libraries.wanted.wants(mapped.path);
            self.watch_mapped(&mapped, recorder, push);
        }
        any
    }

    /// Notes why something is not watched.
    pub(super) fn refuse(&mut self, text: String, push: &mut dyn FnMut(Event)) {
        self.refused = Some(text.clone());
        push(Event::Note(Note { text }));
    }

    /// Watches a tracepoint, `CATEGORY:NAME`.
    pub fn watch_point(
        &mut self,
        name: &str,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        let Some((category, point)) = name.split_once(':').filter(|(c, p)| is_plain(c) && is_plain(p)) else {
            bail!("--tracepoint expects CATEGORY:NAME, such as sched:sched_switch, not {name}");
        };
        let read = |file| tracefs::read(&format!("events/{category}/{point}/{file}"));
        let id = match read("id") {
            Ok(id) => id,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let all = tracefs::tracepoints().unwrap_or_default();
                let near = text::near(all.iter().map(String::as_str), name);
                bail!("there is no tracepoint {name}{}", text::did_you_mean(&near));
            }
            Err(error) => return Err(error).context("cannot read the kernel's list of tracepoints (tracefs)"),
        };
        let id = id.trim().parse().context("tracefs returned an invalid tracepoint id")?;
        let function =
            self.functions.add(Layer::Point, category, point, true).context("too many functions are traced already")?;
        recorder.watch_point(id, function.id.0)?;
        self.points.insert(function.id.0, Format::parse(&read("format").unwrap_or_default()));
        push(Event::Function(function));
        Ok(())
    }

    /// Watches kernel functions with kprobes.
    pub fn watch_kernel(
        &mut self,
        names: Vec<String>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        // Without types, arguments have no names.
        let wanted: HashSet<_> = names.iter().map(String::as_str).collect();
        let known = bpf::kernel_functions(|name| wanted.contains(name)).unwrap_or_default();
        let known: HashMap<_, _> = known.iter().map(|function| (function.name.as_str(), function)).collect();
        let mut numbers = Vec::new();
        for name in &names {
            let number = self.describe_kernel(name, known.get(name.as_str()).copied(), recorder, push)?;
            numbers.push((name.clone(), number));
        }
        recorder.watch_kernel(&numbers).context("this kernel does not permit kprobes; use --driver to trace ioctls")
    }

    /// Watches kernel functions with fentry.
    pub fn hook_kernel(
        &mut self,
        functions: Vec<KernelFunction>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        let mut numbers = Vec::new();
        for function in functions {
            let number = self.describe_kernel(&function.name, Some(&function), recorder, push)?;
            numbers.push((function, number));
        }
        for refused in recorder.hook(&numbers) {
            let text = format!("{} is not traced (fentry): {}", refused.name, kernel::reason(&refused.error));
            push(Event::Note(Note { text }));
        }
        Ok(())
    }

    /// Numbers a kernel function, and sets what to gather at its calls.
    fn describe_kernel(
        &mut self,
        name: &str,
        known: Option<&KernelFunction>,
        recorder: &Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<u32> {
        let module = known.map_or("vmlinux", |function| &function.module);
        let library = if module == "vmlinux" { "kernel" } else { module };
        let mut function =
            self.functions.add(Layer::Kernel, library, name, true).context("too many functions are traced already")?;
        let mut gather = Gather { kernel: true, words: 6, layer: Tier::Kernel as u8 + 1, ..Gather::default() };
        if let Some(known) = known {
            gather.words = known.parameters.len().min(CALL_WORDS) as u8;
            function.parameters.clone_from(&known.parameters);
            function.void = known.result == KernelResult::Nothing;
            self.types.insert(function.id.0, (known.result, known.widths.clone()));
        }
        let number = function.id.0;
        recorder.describe(number, gather)?;
        push(Event::Function(function));
        Ok(number)
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
