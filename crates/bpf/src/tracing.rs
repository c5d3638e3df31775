//! Watches functions, system calls, the scheduler and tracepoints.

use std::{
    path::Path,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use libbpf_rs::{
    KprobeMultiOpts, KprobeOpts, Link, MapCore, MapFlags, Program, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys,
};

use crate::{
    Error, Recorder, Result,
    btf::KernelFunction,
    calls::Gather,
    contract::bytes_of,
    hooks::{Hook, Modules, Refused},
    links::{attach_tracepoint, detach, run_for_threads},
};

/// A file whose functions are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(pub(crate) u64);

/// Where to probe a function: at this offset of its file, with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Offset in the file.
    pub offset: u64,
    /// The function's number.
    pub function: u32,
    /// Its calls repeat each other: if the kernel supports it, most of their returns are not watched.
    pub repeats: Option<Repeats>,
}

/// A function whose calls repeat each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// A function of the CUDA runtime, with this many bytes of the runtime's code before and after the probe. What that
    /// code calls is nested in its calls.
    Runtime {
        /// Bytes before the probe.
        before: u64,
        /// Bytes from the probe on.
        after: u64,
    },
    /// Another function.
    Other,
}

impl Repeats {
    /// Returns the part of a session probe's cookie: see `enter_session` in bpf/call_probes.h. 0 if the code is too large.
    fn cookie(self) -> Option<u64> {
        const MOST: u64 = 0xff_ffff;
        match self {
            Self::Other => Some(0),
            Self::Runtime { before, after } => {
                let (before, after) = (before >> 4, after >> 4);
                (before <= MOST && after <= MOST && after > 0).then_some(before << 16 | after << 40)
            }
        }
    }
}

impl Probe {
    /// Returns the cookie of a session probe; `None` if all returns are to be watched.
    fn session_cookie(&self) -> Option<u64> {
        self.repeats?.cookie().map(|repeats| u64::from(self.function) | repeats)
    }
}

impl Recorder {
    /// Whether many functions can be watched at low cost; otherwise each probe is slow to attach and to detach.
    pub fn can_watch_many(&self) -> bool {
        self.multi
    }

    /// Sets what to gather at the calls of the function with this number.
    pub fn describe(&self, function: u32, gather: Gather) -> Result<()> {
        self.skel
            .maps
            .functions
            .update(&function.to_ne_bytes(), bytes_of(&gather.to_function()), MapFlags::ANY)
            .map_err(|source| Error::Map { what: "describe a function", source })
    }

    /// Watches functions of a file, in every process that maps it. Returns a handle, and how long it took.
    pub fn watch(&mut self, file: &Path, probes: &[Probe]) -> Result<(Watch, Duration)> {
        let begun = Instant::now();
        let what = "function probes";
        // Returns first: an entry whose return is not watched would stay open.
        let links = if self.multi { self.watch_many(file, probes) } else { self.watch_each(file, probes) };
        let links = links.map_err(|source| Error::Attach { what, source })?;
        let watch = self.new_watch();
        self.watches.insert(watch.0, links);
        Ok((watch, begun.elapsed()))
    }

    /// Creates a handle for the probes of a file, of which there are none yet.
    pub fn new_watch(&mut self) -> Watch {
        self.next_watch += 1;
        Watch(self.next_watch - 1)
    }

    /// Stops watching files. The kernel takes tens of milliseconds for each, so a separate thread waits for it, which is returned.
    pub fn unwatch(&mut self, watches: &[Watch]) -> Option<JoinHandle<()>> {
        let links: Vec<Vec<Link>> = watches.iter().filter_map(|watch| self.watches.remove(&watch.0)).collect();
        if links.is_empty() {
            return None;
        }
        // If no thread can be started, they are detached here.
        std::thread::Builder::new().name("unwatch".into()).spawn(|| detach(links)).ok()
    }

    fn watch_many(&self, file: &Path, probes: &[Probe]) -> libbpf_rs::Result<Vec<Link>> {
        let cookie = |probe: &Probe| probe.session_cookie().filter(|_| self.session);
        let (repeating, others): (Vec<Probe>, Vec<Probe>) = probes.iter().partition(|probe| cookie(probe).is_some());
        let opts = |probes: &[Probe]| UprobeMultiOpts {
            offsets: probes.iter().map(|probe| probe.offset as usize).collect(),
            cookies: probes.iter().map(|probe| cookie(probe).unwrap_or(probe.function.into())).collect(),
            ..Default::default()
        };
        let progs = &self.skel.progs;
        let mut links = Vec::new();
        if !others.is_empty() {
            let returns = UprobeMultiOpts { retprobe: true, ..opts(&others) };
            links.push(progs.leave_multi.attach_uprobe_multi_with_opts(-1, file, "", returns)?);
            links.push(progs.enter_multi.attach_uprobe_multi_with_opts(-1, file, "", opts(&others))?);
        }
        if !repeating.is_empty() {
            let session = UprobeMultiOpts { session: true, ..opts(&repeating) };
            links.push(progs.call_session.attach_uprobe_multi_with_opts(-1, file, "", session)?);
        }
        Ok(links)
    }

    fn watch_each(&self, file: &Path, probes: &[Probe]) -> libbpf_rs::Result<Vec<Link>> {
        let mut links = Vec::new();
        for (program, retprobe) in [(&self.skel.progs.leave_single, true), (&self.skel.progs.enter_single, false)] {
            for probe in probes {
                let opts = UprobeOpts { cookie: probe.function.into(), retprobe, ..Default::default() };
                links.push(program.attach_uprobe_with_opts(-1, file, probe.offset as usize, opts)?);
            }
        }
        Ok(links)
    }

    /// Watches kernel functions by name: all at once, or one by one if the kernel does not support that.
    pub fn watch_kernel(&mut self, functions: &[(String, u32)]) -> Result<()> {
        /// Each of these is slow to attach and to detach.
        const MOST_SINGLE: usize = 100;
        let links = match self.watch_kernel_many(functions) {
            Err(_) if functions.len() <= MOST_SINGLE => self.watch_kernel_each(functions),
            other => other,
        };
        self.links.extend(links.map_err(|source| Error::Attach { what: "kernel function probes", source })?);
        Ok(())
    }

    fn watch_kernel_many(&self, functions: &[(String, u32)]) -> libbpf_rs::Result<Vec<Link>> {
        let opts = |retprobe| KprobeMultiOpts {
            symbols: functions.iter().map(|(name, _)| name.clone()).collect(),
            cookies: functions.iter().map(|(_, number)| (*number).into()).collect(),
            retprobe,
            ..Default::default()
        };
        let progs = &self.skel.progs;
        Ok(vec![
            progs.leave_kernel.attach_kprobe_multi_with_opts(opts(true))?,
            progs.enter_kernel.attach_kprobe_multi_with_opts(opts(false))?,
        ])
    }

    fn watch_kernel_each(&self, functions: &[(String, u32)]) -> libbpf_rs::Result<Vec<Link>> {
        let progs = &self.skel.progs;
        let mut links = Vec::new();
        for (program, retprobe) in [(&progs.leave_kernel_single, true), (&progs.enter_kernel_single, false)] {
            for (name, number) in functions {
                let opts = KprobeOpts { cookie: (*number).into(), ..Default::default() };
                links.push(program.attach_kprobe_with_opts(retprobe, name, opts)?);
            }
        }
        Ok(links)
    }

    /// Watches kernel functions, each with its number. Returns those that were rejected; all others are watched.
    pub fn hook(&mut self, functions: &[(KernelFunction, u32)]) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut modules = Modules::default();
        let progs = &self.skel.progs;
        for (function, number) in functions {
            let mut hook =
                |template: &Program<'_>, end| Hook::new(template.insns(), end, function, *number, &mut modules);
            // Returns first: an entry whose return is not watched would stay open.
            let hooks = hook(&progs.leave_hook, sys::BPF_TRACE_FEXIT)
                .and_then(|leave| Ok([leave, hook(&progs.enter_hook, sys::BPF_TRACE_FENTRY)?]));
            match hooks {
                Ok(hooks) => self.hooks.extend(hooks),
                Err(error) => refused.push(Refused { name: function.name.clone(), error }),
            }
        }
        refused
    }

    /// Returns the number of calls that were not seen: made while the same program was running on the same CPU, by the
    /// kernel on the program's behalf or in an interrupt.
    pub fn missed_by_hooks(&self) -> u64 {
        self.hooks.iter().map(Hook::missed).sum()
    }

    /// Watches a tracepoint, by its number in tracefs.
    pub fn watch_point(&mut self, id: u64, number: u32) -> Result<()> {
        self.links.push(attach_tracepoint(&self.skel.progs.point, id, number)?);
        Ok(())
    }

    /// While not `open`, no new outermost call is watched; calls that have begun are watched to their end. Probes are
    /// attached and removed file by file: without this, a driver call would look like the program's own while the
    /// runtime that made it is not watched.
    pub fn open_calls(&mut self, open: bool) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.calls_open = open;
        }
    }

    /// Stops watching. Calls that have not returned are sent; drain them afterwards.
    pub fn end_trace(&mut self) -> Result<()> {
        self.open_calls(false);
        // In reverse order: if entries were watched longer than returns, every call would appear unfinished.
        for links in self.watches.values_mut() {
            while links.pop().is_some() {}
        }
        self.watches.clear();
        while self.links.pop().is_some() {}
        for hook in self.hooks.iter_mut().rev() {
            hook.link = None;
        }
        run_for_threads(&self.skel.progs.unfinished)
    }

    /// Detaches all programs: from now on there are no new records.
    pub fn stop(&mut self) {
        let single = self.links.drain(..).chain(self.waits.take()).map(|link| vec![link]);
        detach(single.chain(self.watches.drain().map(|(_, links)| links)).collect());
        self.hooks.iter_mut().for_each(|hook| hook.link = None);
    }

    /// Adds what threads have counted by themselves to the sums.
    pub fn add_repeated(&self) -> Result<()> {
        if self.session { run_for_threads(&self.skel.progs.add_repeated) } else { Ok(()) }
    }
}
