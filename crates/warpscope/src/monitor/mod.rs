//! `monitor`: a daemon that watches every process that uses CUDA. Everything is summed up in the kernel; here the sums are
//! read when somebody looks, and what has ended is forgotten.

mod calls;
mod cgroup;
mod choice;
mod display;
mod forget;
mod gather;
mod health;
mod kernels;
mod labels;
mod map;
mod namer;
mod rescan;
mod scrape;
mod state;
mod suspects;
pub mod top;

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bpf::Tracing;
use collect::{
    Collector, Limits, Prepared,
    calls::{libraries::Libraries, tracer::Tracer},
    command::{priority, signals::Signals},
    process::procfs,
    sink::Sink as _,
};
use metrics::{
    config::{Options, Settings},
    http::{self, Server},
};
use model::event::ProcessId;
use text::pattern::Selection;

use crate::args;
use display::Display;
use forget::Times;
use namer::{Named, Namer};
use rescan::Rescan;
use scrape::Scrapes;
use state::State;
use suspects::Growth;

/// Rings are small: sums need none, and stacks and names come once.
const RING_BYTES: u32 = 2 << 20;
const RAW_RING_BYTES: u32 = 1 << 20;
/// How long the loop sleeps at most, and at least.
const IDLE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);

/// Everything that is watched and told.
pub struct Monitor {
    collector: Collector<State>,
    options: Options,
    namer: Namer,
    nvml: Option<nvml::Sampler>,
    scrapes: Option<Arc<Scrapes>>,
    growth: Growth,
    growth_marked: u64,
    /// Kernels that were thrown out of the kernel's map.
    evicted: u64,
    times: Times,
    rescan: Rescan,
}

/// Runs the command.
pub fn run(options: args::Monitor) -> anyhow::Result<ExitCode> {
    let (quiet, verbose, map) = (options.quiet, options.verbose, options.map);
    let options = settings(options)?;
    if let Some(pid) = map {
        let Some(address) = &options.metrics_addr else { bail!("--map wants the address of a monitor that runs") };
        return map::print(pid, address);
    }
    check(&options)?;
    health::keep_heaps_few();
    // Whoever answers scrapes is served soon, as this thread is; names can wait.
    priority::raise();
    // Before any thread starts: all of them are to leave signals to us.
    let signals = Signals::take().context("cannot take signals")?;
    let scrapes = match &options.metrics_addr {
        Some(_) => Some(Arc::new(Scrapes::new(options.limits).context("cannot serve metrics")?)),
        None => None,
    };
    let server = match (&options.metrics_addr, &scrapes) {
        (Some(address), Some(scrapes)) => Some(serve(address, scrapes.clone())?),
        _ => None,
    };
    let display = if options.display_interval.is_some() && !quiet {
        Some(Display::start().context("cannot start the thread for the console")?)
    } else {
        None
    };
    let mut monitor = Monitor::start(options, signals, scrapes)?;
    if let (Some(server), false) = (&server, quiet) {
        eprintln!("warpscope: metrics on http://{}/metrics", server.address());
    }
    monitor.collector.sink.notes.write_to_log();
    if verbose && let Some(trace) = &monitor.collector.trace {
        let libraries = &trace.libraries;
        eprintln!("warpscope: watching {}, attached in {:.1} ms", libraries.costs, libraries.spent.as_secs_f64() * 1e3);
    }
    health::give_memory_back();
    monitor.watch(display.as_ref());
    // What was lost in the last moments, too.
    monitor.tell_losses();
    Ok(ExitCode::SUCCESS)
}

/// What would fail later is refused now.
fn check(options: &Options) -> anyhow::Result<()> {
    for pid in &options.pids {
        if procfs::comm(*pid).is_none() {
            bail!("there is no process {pid}");
        }
    }
    bpf::features::require_privileges()?;
    // Under the pids that the kernel tells we would find nobody, or somebody else.
    if !bpf::features::initial_pid_namespace() {
        bail!(
            "this is a pid namespace of its own, where processes have other pids than on the machine: \
             run the monitor in the machine's (docker run --pid=host, hostPID: true in Kubernetes)"
        );
    }
    Ok(())
}

/// The options that hold: those given, over those of a file.
fn settings(options: args::Monitor) -> anyhow::Result<Options> {
    let file = match &options.config {
        Some(path) => Settings::read(path).map_err(anyhow::Error::msg)?,
        None => Settings::default(),
    };
    let flag = |given: bool| given.then_some(true);
    let given = Settings {
        memleak: flag(options.memleak),
        cudatrace: flag(options.cudatrace),
        bandwidth: flag(options.bandwidth),
        errors: flag(options.errors),
        metrics_addr: options.metrics_addr,
        display_interval: options.display_interval,
        pid: Some(options.pid).filter(|pids| !pids.is_empty()),
        cgroup: options.cgroup,
        max_series: options.max_series,
        top_kernels: options.top_kernels,
        keep_ended: options.keep_ended,
        lib: Some(options.lib).filter(|libraries| !libraries.is_empty()),
        nvml: options.no_nvml.then_some(false),
        stacks: options.no_stacks.then_some(false),
        allocations: flag(options.allocations),
    };
    given.over(file).options().map_err(anyhow::Error::msg)
}

fn serve(address: &str, scrapes: Arc<Scrapes>) -> anyhow::Result<Server> {
    Server::start(address, Arc::new(move |request| http::answer(request, &*scrapes))).map_err(anyhow::Error::msg)
}

impl Monitor {
    fn start(options: Options, signals: Signals, scrapes: Option<Arc<Scrapes>>) -> anyhow::Result<Self> {
        let all = options.pids.is_empty();
        let tracing = Tracing {
            sums_only: true,
            shared_sums: true,
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
            expected: Some(Vec::new()),
            limits: Limits::DAEMON,
            sessions: None,
        })?
        .require_mappings()?;
        let mut libraries =
            Libraries::new(Selection::default(), Vec::new(), Vec::new(), choice::choice(&options)).for_daemon();
        if !prepared.can_watch_many() {
            libraries.shorten()?;
        }
        let mut collector = prepared.collect(signals, State::default());
        collector.trace = Some(Tracer::by_name(libraries, all));
        let namer = Namer::start().context("cannot start the thread for names")?;
        let mut monitor = Self {
            collector,
            options,
            namer,
            nvml: None,
            scrapes,
            growth: Growth::default(),
            growth_marked: 0,
            evicted: 0,
            times: Times::new(),
            rescan: Rescan::new(),
        };
        monitor.ask_nvml();
        monitor.watch_given()?;
        monitor.find_processes();
        Ok(monitor)
    }

    fn ask_nvml(&mut self) {
        if !self.options.nvml {
            return;
        }
        match nvml::Nvml::open().and_then(|nvml| nvml::Sampler::start(nvml, Duration::from_secs(1))) {
            Ok(sampler) => self.nvml = Some(sampler),
            Err(error) => self.collector.sink.notes.add(format!("GPUs themselves are not watched: {error}")),
        }
    }

    /// Libraries that the user named: whoever loads them is watched from the first call on.
    fn watch_given(&mut self) -> anyhow::Result<()> {
        let Collector { recorder, sink, trace: Some(trace), .. } = &mut self.collector else { return Ok(()) };
        for file in &self.options.libraries {
            if !trace.watch(file, recorder, &mut |event| sink.push(&event))? {
                bail!("--lib {}: this file has no CUDA functions to watch", file.display());
            }
        }
        Ok(())
    }

    /// Processes that were there before us.
    fn find_processes(&mut self) {
        let Collector { recorder, sink, trace: Some(trace), .. } = &mut self.collector else { return };
        if self.options.pids.is_empty() {
            trace.watch_machine(recorder, &mut |event| sink.push(&event));
        }
        for (pid, image) in self.options.pids.clone().into_iter().zip(1..) {
            self.collector.adopt(pid, ProcessId(image), bpf::now(), "");
        }
    }

    /// Until a signal, or the end of all processes that were asked for.
    fn watch(&mut self, display: Option<&Display>) {
        let mut next_display = Instant::now();
        loop {
            // Before gathering: what a program did before somebody asked is to be in the answer, so that whoever asks while
            // we gather waits for the next turn.
            let waiting = self.scrapes.as_ref().map(|scrapes| scrapes.waiting()).unwrap_or_default();
            let busy = self.collector.gather();
            let all_ended = self.take_what_came();
            for wanted in self.scrapes.as_ref().map(|scrapes| scrapes.wanted_maps()).unwrap_or_default() {
                let _ = wanted.answer.try_send(self.map(wanted.pid));
            }
            let display_due = self.options.display_interval.is_some() && Instant::now() >= next_display;
            if display_due || all_ended || !waiting.is_empty() {
                let begun = Instant::now();
                let snapshot = Arc::new(self.snapshot());
                let took = begun.elapsed();
                if waiting.is_empty()
                    && let Some(scrapes) = &self.scrapes
                {
                    scrapes.observe(&snapshot);
                }
                for scrape in waiting {
                    let _ = scrape.try_send((snapshot.clone(), took));
                }
                if (display_due || all_ended)
                    && let Some(display) = display
                {
                    display.show(snapshot);
                }
            }
            if let (true, Some(interval)) = (display_due, self.options.display_interval) {
                next_display = Instant::now() + interval;
            }
            if self.collector.signals.stop_wanted() || self.scrapes.as_ref().is_some_and(|s| s.is_closed()) {
                return;
            }
            if all_ended {
                self.collector.sink.notes.add("all processes that were watched have ended".into());
                return;
            }
            self.forget();
            self.rescan();
            if !busy {
                let next = if self.options.display_interval.is_some() { next_display } else { self.times.next() };
                let left = next.min(self.times.next()).saturating_duration_since(Instant::now());
                // Whatever comes in a burst is taken together.
                self.pause();
                self.collector.sleep(left.min(IDLE), self.scrapes.as_ref().map(|scrapes| scrapes.descriptor()));
            }
        }
    }

    /// Waits for a moment, so that what comes in a burst is read together: on a busy machine files are mapped all the time. Only
    /// a scrape ends the wait.
    fn pause(&self) {
        let wakeup = self.scrapes.as_ref().map_or(-1, |scrapes| scrapes.descriptor());
        let mut wait_on = libc::pollfd { fd: wakeup, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor of our own, or none.
        unsafe { libc::poll(&raw mut wait_on, 1, PAUSE.as_millis() as libc::c_int) };
    }

    /// Takes names that were found; `true` if nothing is left to be watched.
    fn take_what_came(&mut self) -> bool {
        let state = &mut self.collector.sink;
        for named in self.namer.done() {
            match named {
                Named::Note(note) => state.notes.add(note),
                Named::Stack(process, stack, frames) => {
                    if let Some(known) = state.processes.get_mut(&process) {
                        known.stack_names.insert(stack, frames);
                    }
                }
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
        let pids = &self.options.pids;
        !pids.is_empty() && pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    }
}
