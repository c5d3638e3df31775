//! Watching functions, system calls, the scheduler and tracepoints.

use std::{
    io::Read,
    os::fd::{AsRawFd, IntoRawFd},
    path::Path,
    time::{Duration, Instant},
};

use libbpf_rs::{
    Iter, KprobeMultiOpts, KprobeOpts, Link, MapCore, MapFlags, PerfEventOpts, UprobeMultiOpts, UprobeOpts,
};

use crate::{
    Error, Recorder, Result,
    calls::{ErrorSum, Gather, KernelSum, MemorySum, Site, Sum},
    perf,
    record::Fields,
    recorder::skeleton::{OpenRecordSkel, RecordSkel},
};

/// What a trace watches besides functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing {
    /// Only sum calls up, in the kernel.
    pub sums_only: bool,
    /// Take stacks at the functions that say so.
    pub stacks: bool,
    /// Where calls are only summed up, tell of those that teach names all the same.
    pub names: bool,
    /// Follow every process, from its first watched call on.
    pub all: bool,
    /// System calls on device files.
    pub driver: bool,
    /// Followed threads leaving CPUs.
    pub switches: bool,
    /// Functions of the kernel.
    pub kernel_functions: bool,
    /// Tracepoints by name.
    pub points: bool,
}

/// Where a function is to be probed: at this offset of its file, with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Offset in the file.
    pub offset: u64,
    /// The function's number.
    pub function: u32,
}

/// Switches on what `tracing` needs, before anything is loaded.
pub(crate) fn prepare(open: &mut OpenRecordSkel<'_>, tracing: Option<&Tracing>, multi: bool) {
    let off = Tracing::default();
    let on = tracing.is_some();
    let tracing = tracing.unwrap_or(&off);
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.calls_traced = on;
        data.call_records = !tracing.sums_only;
        data.call_stacks = tracing.stacks;
        data.call_names = tracing.names;
        data.follow_all = tracing.all;
        data.points_of_all = tracing.all;
    }
    let programs = &mut open.progs;
    for program in [&mut programs.enter_multi, &mut programs.leave_multi] {
        program.set_autoload(on && multi);
    }
    for program in [&mut programs.enter_single, &mut programs.leave_single] {
        program.set_autoload(on && !multi);
    }
    for program in [
        &mut programs.enter_kernel,
        &mut programs.leave_kernel,
        &mut programs.enter_kernel_single,
        &mut programs.leave_kernel_single,
    ] {
        program.set_autoload(tracing.kernel_functions);
    }
    for program in [&mut programs.syscall_enter, &mut programs.syscall_exit] {
        program.set_autoload(tracing.driver);
    }
    programs.thread_switch.set_autoload(tracing.switches);
    programs.point.set_autoload(tracing.points);
    programs.unfinished.set_autoload(on);
}

/// Attaches what needs no name.
pub(crate) fn attach(skel: &RecordSkel<'_>, tracing: &Tracing) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut add = |what, link: libbpf_rs::Result<Link>| {
        links.push(link.map_err(|source| Error::Attach { what, source })?);
        Ok(())
    };
    if tracing.driver {
        add("system call tracepoints", skel.progs.syscall_exit.attach_trace())?;
        add("system call tracepoints", skel.progs.syscall_enter.attach_trace())?;
    }
    if tracing.switches {
        add("scheduler tracepoint", skel.progs.thread_switch.attach_trace())?;
    }
    Ok(links)
}

impl Recorder {
    /// Many functions can be watched at little cost; without it each probe takes long to attach and to detach.
    pub fn can_watch_many(&self) -> bool {
        self.multi
    }

    /// Says what to gather at the calls of the function with this number.
    pub fn describe(&self, function: u32, gather: Gather) -> Result<()> {
        self.skel
            .maps
            .functions
            .update(&function.to_ne_bytes(), &gather.to_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { what: "describe a function", source })
    }

    /// Watches functions of a file, in every process that maps it. Returns how long it took.
    pub fn watch(&mut self, file: &Path, probes: &[Probe]) -> Result<Duration> {
        let begun = Instant::now();
        let what = "function probes";
        // Returns first: an entry whose return is not watched would stay open.
        let links = if self.multi { self.watch_many(file, probes) } else { self.watch_each(file, probes) };
        self.links.extend(links.map_err(|source| Error::Attach { what, source })?);
        Ok(begun.elapsed())
    }

    fn watch_many(&self, file: &Path, probes: &[Probe]) -> libbpf_rs::Result<Vec<Link>> {
        let opts = |retprobe| UprobeMultiOpts {
            offsets: probes.iter().map(|p| p.offset as usize).collect(),
            cookies: probes.iter().map(|p| p.function.into()).collect(),
            retprobe,
            ..Default::default()
        };
        let progs = &self.skel.progs;
        Ok(vec![
            progs.leave_multi.attach_uprobe_multi_with_opts(-1, file, "", opts(true))?,
            progs.enter_multi.attach_uprobe_multi_with_opts(-1, file, "", opts(false))?,
        ])
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

    /// Watches functions of the kernel by name: all at once, or one by one where the kernel cannot do that.
    pub fn watch_kernel(&mut self, functions: &[(String, u32)]) -> Result<()> {
        /// Each of these takes its time to attach and to detach.
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

    /// Watches a tracepoint, by the number it has in tracefs.
    pub fn watch_point(&mut self, id: u64, number: u32) -> Result<()> {
        let what = "tracepoint";
        let point = perf::tracepoint(id).map_err(|source| Error::Attach { what, source: source.into() })?;
        let opts = PerfEventOpts { cookie: number.into(), ..Default::default() };
        let link = self.skel.progs.point.attach_perf_event_with_opts(point.as_raw_fd(), opts);
        self.links.push(link.map_err(|source| Error::Attach { what, source })?);
        // The link owns it now, and closes it.
        let _ = point.into_raw_fd();
        Ok(())
    }

    /// Watches nothing any more. What has not returned is sent, and is to be drained.
    pub fn end_trace(&mut self) -> Result<()> {
        let fail = |source| Error::Attach { what: "search for calls under way", source };
        // In reverse: where entries were watched on without returns, every call would be one that did not return.
        while self.links.pop().is_some() {}
        let link = self.skel.progs.unfinished.attach_trace().map_err(fail)?;
        let mut nothing = Vec::new();
        Iter::new(&link)
            .map_err(fail)?
            .read_to_end(&mut nothing)
            .map(drop)
            .map_err(|source| Error::Read { path: "the kernel's list of threads".into(), source })
    }

    /// What was summed up in the kernel so far.
    pub fn sums(&self) -> Vec<Sum> {
        let map = &self.skel.maps.sums;
        let value = |key: &[u8]| map.lookup_percpu(key, MapFlags::ANY).ok().flatten();
        map.keys().filter_map(|key| Sum::parse(&key, &value(&key)?)).collect()
    }

    /// Failed calls by result.
    pub fn error_sums(&self) -> Vec<ErrorSum> {
        entries(&self.skel.maps.errors, |key, value| {
            let (image, function, code) = (key.u32()?, key.u32()?, key.u64()? as u32);
            Some(ErrorSum { image, function, code, count: value.u64()? })
        })
    }

    /// Memory by process and space.
    pub fn memory_sums(&self) -> Vec<MemorySum> {
        entries(&self.skel.maps.memory_sums, |key, value| {
            Some(MemorySum {
                image: key.u32()?,
                space: key.u32()?,
                live_bytes: not_negative(value.u64()?),
                live: not_negative(value.u64()?),
                peak_bytes: not_negative(value.u64()?),
                allocations: value.u64()?,
                allocated_bytes: value.u64()?,
                frees: value.u64()?,
                failed: value.u64()?,
            })
        })
    }

    /// Live memory by the call stack that allocated it.
    pub fn sites(&self) -> Vec<Site> {
        entries(&self.skel.maps.sites, |key, value| {
            let (stack, python, image, function) = (key.u64()?, key.u64()?, key.u32()?, key.u32()?);
            let (bytes, count, since) = (not_negative(value.u64()?), not_negative(value.u64()?), value.u64()?);
            Some(Site { image, function, stack, python, bytes, count, since })
        })
    }

    /// Launches by kernel.
    pub fn kernel_sums(&self) -> Vec<KernelSum> {
        entries(&self.skel.maps.kernels, |key, value| {
            let (address, image, handle) = (key.u64()?, key.u32()?, key.u32()? != 0);
            let count = value.u64()?;
            let grid = [value.u32()?, value.u32()?, value.u32()?];
            let block = [value.u32()?, value.u32()?, value.u32()?];
            Some(KernelSum { image, address, handle, count, grid, block })
        })
    }

    /// Forgets the sums of process images that are gone.
    pub fn forget_sums(&self, gone: &dyn Fn(u32) -> bool) {
        let maps = &self.skel.maps;
        // Where in each map's key the image stands.
        for (map, at) in [
            (&maps.sums as &dyn MapCore, 0),
            (&maps.errors, 0),
            (&maps.memory_sums, 0),
            (&maps.allocations, 8),
            (&maps.kernels, 8),
            (&maps.sites, 16),
        ] {
            for key in map.keys() {
                let image = key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
                if image.is_some_and(gone) {
                    let _ = map.delete(&key);
                }
            }
        }
    }

    /// Forgets the launches of one kernel.
    pub fn forget_kernel(&self, kernel: &KernelSum) {
        let mut key = kernel.address.to_ne_bytes().to_vec();
        key.extend(kernel.image.to_ne_bytes());
        key.extend(u32::from(kernel.handle).to_ne_bytes());
        let _ = self.skel.maps.kernels.delete(&key);
    }

    /// How full the maps of sums are: name, entries, room.
    pub fn sum_rooms(&self) -> Vec<(&'static str, u64, u64)> {
        let maps = &self.skel.maps;
        let room = |name, map: &dyn MapCore| (name, map.keys().count() as u64, u64::from(map.max_entries()));
        vec![
            room("calls", &maps.sums),
            room("errors", &maps.errors),
            room("memory", &maps.memory_sums),
            room("allocations", &maps.allocations),
            room("sites", &maps.sites),
            room("kernels", &maps.kernels),
        ]
    }
}

/// All entries of a map, read as they are meant; those that go away meanwhile are left out.
fn entries<T>(map: &impl MapCore, read: impl Fn(&mut Fields<'_>, &mut Fields<'_>) -> Option<T>) -> Vec<T> {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
        read(&mut Fields::new(&key), &mut Fields::new(&value))
    };
    map.keys().filter_map(entry).collect()
}

/// A sum that two CPUs change at once may be seen below zero for a moment.
fn not_negative(sum: u64) -> u64 {
    if sum.cast_signed() < 0 { 0 } else { sum }
}
