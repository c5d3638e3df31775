//! The daemon's main loop: reads the kernel maps, answers scrapes, and removes state that is no longer needed.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bpf::Tracing;
use collect::{
    Collector, Limits, Prepared,
    calls::{libraries::Libraries, tracer::Tracer, wanted::Wanted},
    command::signals::Signals,
    process::procfs,
    sink::Sink as _,
};
use gpu_counters::nvml::{Nvml, Sampler};
use model::event::ProcessId;
use text::pattern::Selection;

use super::{
    cgroup, choice,
    limit::Limit,
    namer::{Named, Namer},
    periodic::Periodic,
    rescan::Rescan,
    state::State,
    suspects::Growth,
};
use crate::{config::Options, console::display::Display, serve::Scrapes, snapshot::site::UNKNOWN_PYTHON};

/// Rings are small: sums do not use them, and each stack and name is sent only once.
const RING_BYTES: u32 = 2 << 20;
const RAW_RING_BYTES: u32 = 1 << 20;
/// The maximum and the minimum sleep of the loop.
const IDLE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);
/// How long the end waits for the last records and names: on a busy machine other processes fill the rings too.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// Everything that is watched and reported.
pub struct Monitor {
    pub collector: Collector<State>,
    pub options: Options,
    pub namer: Namer,
    pub nvml: Option<Sampler>,
    pub scrapes: Arc<Scrapes>,
    pub display: Option<Display>,
    pub growth: Growth,
    /// Kernels evicted from the kernel's map.
    pub evicted: u64,
    pub periodic: Periodic,
    pub rescan: Rescan,
    pub limit: Option<Limit>,
}

/// Rejects options that would fail later.
pub fn check(options: &Options) -> anyhow::Result<()> {
    for pid in &options.pids {
        if procfs::comm(*pid).is_none() {
            bail!("there is no process {pid}");
        }
    }
    bpf::features::require_privileges()?;
    // The pids that the kernel reports would not exist here, or would belong to other processes.
    if !bpf::features::initial_pid_namespace() {
        bail!(
            "this is a pid namespace of its own, where processes have other pids than on the machine: \
             run the monitor in the machine's (docker run --pid=host, hostPID: true in Kubernetes)"
        );
    }
    Ok(())
}

impl Monitor {
    /// Starts watching what is running now.
    pub fn start(options: Options, signals: Signals, scrapes: Arc<Scrapes>) -> anyhow::Result<Self> {
        let all = options.pids.is_empty();
        let tracing = Tracing {
            sums_only: true,
            shared_sums: true,
            skip_returns: true,
            stacks: options.memleak && options.stacks,
            names: options.cudatrace,
            all,
            callers_only: all,
            cgroup: options.cgroup.as_deref().map(cgroup::find).transpose()?,
            ..Tracing::default()
        };
        let programs = bpf::Options {
            ring_bytes: RING_BYTES,
            raw_ring_bytes: Some(RAW_RING_BYTES),
            tracing: Some(tracing),
            found: options.pids.clone(),
            ..bpf::Options::default()
        };
        let prepared = Prepared::new(collect::Options {
            programs,
            python: true,
            expected: None,
            limits: Limits::DAEMON,
            sessions: None,
        })?
        .require_mappings()?;
        let wanted = Wanted::new(Selection::default(), Vec::new(), Vec::new());
        let mut libraries = Libraries::new(wanted, choice::choice(&options)).for_daemon();
        let limit = options.max_overhead.map(Limit::new);
        if limit.is_some() {
            libraries = libraries.pausable();
        }
        if !prepared.can_watch_many() {
            libraries.wanted.shorten()?;
        }
        let mut collector = prepared.collect(signals, State::default());
        collector.trace = Some(Box::new(Tracer::by_name(libraries, all)));
        let namer = Namer::start().context("cannot start the thread for names")?;
        let mut monitor = Self {
            collector,
            options,
            namer,
            nvml: None,
            scrapes,
            display: None,
            growth: Growth::default(),
            evicted: 0,
            periodic: Periodic::new(),
            rescan: Rescan::new(),
            limit,
        };
        monitor.ask_nvml();
        monitor.watch_given()?;
        monitor.find_processes();
        monitor.scrapes.set_problem(None);
        Ok(monitor)
    }

    fn ask_nvml(&mut self) {
        if !self.options.nvml {
            return;
        }
        match Nvml::open().and_then(|nvml| Sampler::start(nvml, Duration::from_secs(1))) {
            Ok(sampler) => self.nvml = Some(sampler),
            Err(error) => self.collector.sink.notes.add(format!("GPU metrics are not available: {error}")),
        }
    }

    /// Watches the libraries that the user named: processes that load them are watched from their first call.
    fn watch_given(&mut self) -> anyhow::Result<()> {
        let Collector { recorder, sink, trace: Some(trace), .. } = &mut self.collector else { return Ok(()) };
        for file in &self.options.libraries {
            if !trace.watch(file, recorder, &mut |event| sink.push(&event))? {
                bail!("--lib {}: this file has no CUDA functions", file.display());
            }
        }
        Ok(())
    }

    /// Finds processes that were running before the monitor started.
    fn find_processes(&mut self) {
        let Collector { recorder, sink, trace: Some(trace), pythons, .. } = &mut self.collector else { return };
        if self.options.pids.is_empty() {
            for pid in trace.watch_machine(recorder, &mut |event| sink.push(&event)) {
                pythons.iter_mut().for_each(|pythons| pythons.loaded(pid));
            }
        }
        for (pid, image) in self.options.pids.clone().into_iter().zip(1..) {
            self.collector.adopt(pid, ProcessId(image), bpf::now(), "");
        }
    }

    /// Runs until a signal arrives or all selected processes have ended.
    pub fn watch(&mut self) {
        let mut next_display = Instant::now();
        let mut ended_since = None;
        loop {
            // Read before gathering: a reply must include everything that a program did before the request, and the last
            // display everything that happened. A request that arrives during gathering waits for the next round.
            let waiting = self.scrapes.waiting();
            if self.all_ended() {
                ended_since.get_or_insert_with(Instant::now);
            }
            let busy = self.collector.gather();
            self.accept_names();
            for wanted in self.scrapes.map_requests() {
                let _ = wanted.answer.try_send(self.map(wanted.pid));
            }
            let stop = self.collector.signals.stop_requested() || self.scrapes.is_closed();
            let display_due = self.options.display_interval.is_some_and(|_| stop || Instant::now() >= next_display);
            let mut complete = false;
            if display_due || ended_since.is_some() || !waiting.is_empty() {
                let begun = Instant::now();
                let snapshot = Arc::new(self.snapshot());
                let took = begun.elapsed();
                complete = ended_since.is_some_and(|since| {
                    let unnamed = snapshot.processes.iter().any(|process| process.unnamed_launches > 0);
                    !(busy || unnamed) || since.elapsed() >= LAST_RECORDS
                });
                match &mut self.display {
                    Some(display) if display_due || complete => display.show(&snapshot),
                    Some(display) => display.observe(&snapshot),
                    None => {}
                }
                if waiting.is_empty() {
                    self.scrapes.observe(&snapshot);
                }
                for scrape in waiting {
                    let _ = scrape.try_send((snapshot.clone(), took));
                }
            }
            if let (true, Some(interval)) = (display_due, self.options.display_interval) {
                next_display = Instant::now() + interval;
            }
            if stop {
                return;
            }
            if complete {
                self.collector.sink.notes.add("all monitored processes have exited".into());
                return;
            }
            self.forget();
            self.rescan.advance(&mut self.collector);
            if let Some(limit) = &mut self.limit {
                limit.advance(&mut self.collector);
            }
            if !busy {
                let next = if self.options.display_interval.is_some() { next_display } else { self.periodic.next() };
                let left = next.min(self.periodic.next()).saturating_duration_since(Instant::now());
                // Handle bursts together.
                self.pause();
                self.collector.sleep(left.min(IDLE), Some(self.scrapes.descriptor()));
            }
        }
    }

    /// Waits briefly so that bursts are read together: on a busy machine files are mapped all the time. Only a scrape
    /// ends the wait.
    fn pause(&self) {
        let mut wait_on = libc::pollfd { fd: self.scrapes.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor of our own.
        unsafe { libc::poll(&raw mut wait_on, 1, PAUSE.as_millis() as libc::c_int) };
    }

    /// Whether nothing is left to watch.
    fn all_ended(&self) -> bool {
        let pids = &self.options.pids;
        !pids.is_empty() && pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Accepts resolved names.
    fn accept_names(&mut self) {
        let Collector { sink: state, pythons, .. } = &mut self.collector;
        for named in self.namer.done() {
            match named {
                Named::Note(note) => state.notes.add(note),
                Named::Stack(process, stack, mut frames) => {
                    let pythons = pythons.as_ref().zip(state.stack(stack));
                    if pythons.is_some_and(|(pythons, stack)| pythons.lacks_frames(&stack)) {
                        frames = frames.iter().cloned().chain([UNKNOWN_PYTHON.into()]).collect();
                    }
                    if let Some(known) = state.processes.get_mut(&process) {
                        known.stack_names.insert(stack, frames);
                    }
                }
                Named::Handles(process, requested, kernels) => state.learn_handles(process, &requested, kernels),
                Named::Stub(process, address, name) => {
                    if let Some(known) = state.processes.get_mut(&process) {
                        known.awaited_stubs.remove(&address);
                        if let Some(name) = name {
                            state.names.name_stub(process, address, &name);
                        }
                    }
                }
            }
        }
    }
}
