//! `trace`: every CUDA call and every request to the driver, one by one or summed up.

mod list;

use std::{
    io::IsTerminal,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use bpf::{
    KernelFunction, Mappings, Options, Recorder, Share, Tracing,
    calls::{ErrorSum as ErrorCount, Gather},
    tracefs,
};
use collect::{
    Collector, INJECTOR, RING_BYTES, Until,
    calls::{
        kernel,
        libraries::{Libraries, did_you_mean},
        named::Named,
        search,
        tracer::Tracer,
    },
    command::{
        limits, priority,
        signals::Signals,
        stage::{Stage, sure_to_be_mapped},
        target,
        user::User,
    },
    process::{found, images::Images, reused::Reused},
    sink::{Recording, Sink as _},
    stacks::{
        python::Pythons,
        unwinding::{MOST_RAW, Unwinding},
    },
};
use cuda::calls::KernelRef;
use export::{Format, View, trace::Lines};
use model::{
    calls::Memory,
    event::{
        End, ErrorSum, Event, FunctionId, KernelSum, Loss, LossCause, MemorySum, Mode, Note, ProcessId, Start, Sum,
    },
};
use symbols::{Kept, Wishes};
use text::pattern::Selection;

use crate::{args, outputs::Outputs, say::say, summary};

/// Xid errors, where the driver tells of them.
const XID: &str = "nvidia:nvidia_dev_xid";

/// Runs the command.
pub fn run(options: args::Trace) -> anyhow::Result<ExitCode> {
    let selection = Selection::parse(&options.r#match, &options.exclude)?;
    let live =
        options.live.as_ref().map(|patterns| Selection::parse(std::slice::from_ref(patterns), &[])).transpose()?;
    let functions = options.uprobe.iter().map(|text| Named::parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(patterns) = &options.list {
        return list::run(patterns, &options, selection, functions);
    }
    if options.pid.is_empty() && !options.all && options.command.is_empty() {
        bail!("specify what to trace: -p PID, -a for every process, or -- COMMAND");
    }
    if options.duration.is_some_and(|d| !d.is_finite() || d <= 0.0) {
        bail!("-d expects a number of seconds greater than 0");
    }
    for pid in &options.pid {
        if found::comm(*pid).is_none() {
            bail!("there is no process {pid}");
        }
    }
    let user = if options.as_root { None } else { User::behind_sudo() };
    let mut outputs = Outputs::open(&options.output, &["trace.wscope"], User::behind_sudo().as_ref())?;
    if !bpf::features::privileged() {
        return Err(bpf::Error::NotPermitted.into());
    }
    let (probed, hooked) = (kernel::probed(&options.kprobe)?, kernel::hooked(&options.fentry)?);

    let signals = Signals::take().context("cannot take signals")?;
    let inject = !options.command.is_empty() && !options.no_gpu && !options.summary_only;
    let Stage { workspace, injection, sessions, silent, marker } = Stage::set(inject, options.sim, user.as_ref())?;
    let tracing = Tracing {
        sums_only: options.summary_only,
        stacks: options.stacks,
        names: options.summary_only,
        all: options.all,
        driver: options.driver,
        switches: options.sched,
        kernel_functions: !probed.is_empty(),
        hooks: !hooked.is_empty(),
        points: options.driver || !options.tracepoint.is_empty(),
        ..Tracing::default()
    };
    let recorder = Recorder::start(&Options {
        sample_hz: None,
        marker,
        ring_bytes: RING_BYTES,
        raw_ring_bytes: None,
        hits: None,
        tracing: Some(tracing),
        found: options.pid.clone(),
    })?;
    let mut unwinding =
        Unwinding::start(recorder.unwind_maps()?, MOST_RAW).context("cannot start the thread for unwind tables")?;
    let mut kept = Kept::new(limits::raise());
    if options.stacks
        && let Some(program) = options.command.first()
    {
        unwinding.prepare(&mut kept.files, &sure_to_be_mapped(program, &injection));
    }
    let pythons = if options.no_python { None } else { Some(Pythons::new(recorder.python_maps()?)) };
    let (file, path) = outputs.recording()?;
    let mut sink = Recording::new(file, path).context("cannot begin the recording")?;
    let start = start(&options);
    if let Some(filter) = live {
        let colour = std::io::stderr().is_terminal();
        sink.print(Lines::new(colour, start.time, symbols::demangle).filtered(filter));
    }
    sink.push(&Event::Start(start));
    if !found::proc_is_own() {
        sink.push(&Event::Note(Note { text: found::FOREIGN_PROC.into() }));
    }

    let draws = |path: &PathBuf| matches!(Format::from_path(path), Ok(Format::Svg | Format::Folded));
    if !options.stacks && options.output.iter().any(draws) {
        let text =
            "call stacks were not requested: GPU work is drawn by process and kernel only (--stacks adds the calls)";
        sink.push(&Event::Note(Note { text: text.into() }));
    }
    let stack = options.stacks;
    let choice = Box::new(move |_: &str, gather| Some(Gather { stack, ..gather }));
    let mut libraries = Libraries::new(selection, options.lib.clone(), functions, choice);
    if !recorder.can_watch_many() {
        libraries.shorten()?;
    }
    let mut collector = Collector {
        recorder,
        mappings: Some(Mappings::watch(Share::RECORDING)?),
        sessions,
        silent,
        signals,
        sink,
        images: Images::default(),
        kept,
        unwinding,
        reused: Reused::default(),
        pythons,
        trace: Some(Tracer::new(libraries, options.all)),
        events: None,
        period: 0,
    };
    collector.recorder.open_calls(false);
    let watched = watch(&mut collector, &options, &injection, probed, hooked);
    collector.recorder.open_calls(true);
    if let Err(error) = watched {
        outputs.remove_recording();
        return Err(error);
    }

    let mut child = None;
    if !options.command.is_empty() {
        collector.recorder.follow_children()?;
        let started = target::start(&options.command, &injection, user.as_ref());
        collector.recorder.forget_children()?;
        match started {
            Ok(started) => child = Some(started),
            Err(error) => {
                outputs.remove_recording();
                return Err(error.into());
            }
        }
    }
    priority::raise();
    let deadline = options.duration.map(|d| Instant::now() + Duration::from_secs_f64(d));
    let until = match &mut child {
        Some(child) => Until::CommandEnds(child),
        None if options.all => Until::Stopped,
        None => Until::ProcessesEnd(&options.pid),
    };
    let mut status = collector.run(until, deadline).context("cannot wait for the command")?;
    let ended_at = bpf::now();
    if let (Some(child), None) = (&child, status) {
        collector.note_stop(options.duration.unwrap_or(0.0), child);
    }
    collector.end_sessions();
    collector.end_trace();
    collector.drain();
    take_sums(&mut collector);
    let Collector { mut sink, recorder, sessions, unwinding, signals, trace, mut kept, .. } = collector;
    let missed = recorder.missed_by_hooks();
    if missed > 0 {
        let text =
            format!("{missed} calls of kernel functions were missed (fentry): they were made inside another hook");
        sink.push(&Event::Note(Note { text }));
    }
    // Detached before the outputs are made: whoever still runs is rid of us.
    drop((recorder, sessions, unwinding));
    if let Some(trace) = &trace {
        note_what_was_missed(&trace.libraries, &mut sink);
        if options.verbose {
            let libraries = &trace.libraries;
            eprintln!(
                "warpscope: traced {}, attached in {:.1} ms",
                libraries.costs,
                libraries.spent.as_secs_f64() * 1e3
            );
        }
    }
    let end = End { time: ended_at, status: status.map(std::os::unix::process::ExitStatusExt::into_raw) };
    let wishes = Wishes { injector: INJECTOR, ..Wishes::default() };
    let (profile, failure) = sink.finish(end, &mut kept, &wishes);
    let mut whole = failure.is_none();
    if let Some(failure) = failure {
        say(failure);
    }
    whole &= outputs.write(&profile, View::default(), whole);
    if !options.quiet {
        summary::print(&profile, &mut || outputs.events())?;
        outputs.announce(&mut std::io::stderr())?;
    }
    let Some(mut child) = child else { return Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }) };
    if status.is_none() {
        if !options.quiet {
            eprintln!(
                "warpscope: the trace ended after {} s; the command is still running",
                options.duration.unwrap_or(0.0)
            );
        }
        status = Some(signals.wait_for(&mut child).context("cannot wait for the command")?);
    }
    drop(workspace);
    let status = status.expect("waited for");
    Ok(if status.success() && !whole { ExitCode::FAILURE } else { target::end_like(status) })
}

/// Watches what can be watched before anything runs.
fn watch(
    collector: &mut Collector<Recording>,
    options: &args::Trace,
    injection: &target::Injection,
    probed: Vec<String>,
    hooked: Vec<KernelFunction>,
) -> anyhow::Result<()> {
    let Collector { recorder, sink, trace: Some(trace), .. } = &mut *collector else { return Ok(()) };
    let mut push = |event| sink.push(&event);
    for file in trace.libraries.given_paths().map(PathBuf::from).collect::<Vec<_>>() {
        trace.watch(&file, recorder, &mut push)?;
    }
    for point in &options.tracepoint {
        trace.watch_point(point, recorder, &mut push)?;
    }
    if options.driver && tracefs::tracepoints().is_ok_and(|all| all.iter().any(|point| point == XID)) {
        trace.watch_point(XID, recorder, &mut push)?;
    }
    if !probed.is_empty() {
        trace.watch_kernel(probed, recorder, &mut push)?;
    }
    if !hooked.is_empty() {
        trace.hook_kernel(hooked, recorder, &mut push)?;
    }
    if let Some(program) = options.command.first() {
        let program = search::program(program);
        let directories = search::directories(program.as_deref(), injection.simulator.as_deref());
        for file in search::files(&directories, |name| trace.libraries.wants(name)) {
            trace.watch(&file, recorder, &mut push)?;
        }
        // A program that cannot be read or is a script has no functions of its own.
        if let Some(program) = program {
            let _ = trace.watch(&program, recorder, &mut push);
        }
    }
    if options.all {
        trace.watch_machine(recorder, &mut push);
    }
    for (pid, image) in options.pid.iter().zip(1..) {
        collector.adopt(*pid, ProcessId(image), 0, "");
    }
    check(collector, options)
}

/// What would be an empty trace is refused, if that is certain.
fn check(collector: &Collector<Recording>, options: &args::Trace) -> anyhow::Result<()> {
    let Some(trace) = &collector.trace else { return Ok(()) };
    let libraries = &trace.libraries;
    let kernel = !options.tracepoint.is_empty() || !options.kprobe.is_empty() || !options.fentry.is_empty();
    let others = options.driver || options.sched || kernel;
    if !options.pid.is_empty() && libraries.costs.total() == 0 && !libraries.any() && !others {
        let names: Vec<_> =
            options.pid.iter().map(|pid| format!("{pid} ({})", found::comm(*pid).unwrap_or_default())).collect();
        bail!(
            "process {} has not loaded CUDA (neither libcuda nor libcudart is mapped): trace it later, or start it with -- COMMAND",
            names.join(", ")
        );
    }
    // Libraries that are named but not here yet may have what a pattern means.
    let all_here = options.lib.iter().all(|l| l.as_os_str().as_encoded_bytes().contains(&b'/'));
    if libraries.any()
        && all_here
        && let Some((pattern, near)) = libraries.idle_patterns().first()
    {
        bail!("--match {pattern} matches no function{}", did_you_mean(near));
    }
    Ok(())
}

/// What could only be told at the end.
fn note_what_was_missed(libraries: &Libraries, sink: &mut Recording) {
    let mut note = |text| sink.push(&Event::Note(Note { text }));
    if !libraries.any() {
        note("no CUDA library was loaded: neither libcuda nor libcudart".into());
    } else {
        if libraries.shortened {
            note("this kernel has no multi-uprobes (Linux 6.6 and later do): only the most important functions are traced; use --match to choose others".into());
        }
        for (pattern, near) in libraries.idle_patterns() {
            note(format!("--match {pattern} matched no function{}", did_you_mean(&near)));
        }
    }
}

/// What was summed up in the kernel becomes events.
fn take_sums(collector: &mut Collector<Recording>) {
    let unread_before = collector.recorder.losses().unread;
    for sum in collector.recorder.sums() {
        collector.sink.push(&Event::Sum(Sum {
            function: FunctionId(sum.function),
            process: ProcessId(sum.image),
            class: sum.class,
            nested: sum.nested,
            count: sum.count,
            errors: sum.errors,
            ns: sum.ns,
            max_ns: sum.max_ns,
            min_ns: sum.min_ns,
            bytes: sum.bytes,
            self_ns: sum.self_ns,
            outer_ns: sum.outer_ns,
            buckets: sum.buckets,
        }));
    }
    for sum in collector.recorder.error_sums() {
        let function = FunctionId(sum.function);
        let ErrorCount { code, enclosed, count, .. } = sum;
        collector.sink.push(&Event::ErrorSum(ErrorSum { function, code, enclosed, count }));
    }
    for sum in collector.recorder.memory_sums() {
        let memory = Memory {
            allocations: sum.allocations,
            bytes: sum.allocated_bytes,
            failed: sum.failed,
            frees: sum.frees,
            failed_frees: sum.failed_frees,
            unknown_frees: sum.unknown_frees,
            missed_frees: sum.missed_frees,
            released: sum.released,
            untracked: sum.untracked,
            live: sum.live,
            live_bytes: sum.live_bytes,
            peak_bytes: sum.peak_bytes,
        };
        let (process, space) = (ProcessId(sum.image), sum.space as u8);
        collector.sink.push(&Event::MemorySum(MemorySum { process, space, memory }));
    }
    for sum in collector.recorder.kernel_sums() {
        let kernel = match (sum.address, sum.handle) {
            (0, _) => None,
            (address, true) => Some(KernelRef::Handle(address)),
            (address, false) => Some(KernelRef::HostStub(address)),
        };
        let process = ProcessId(sum.image);
        collector.sink.push(&Event::KernelSum(KernelSum { process, kernel, count: sum.count }));
    }
    let count = collector.recorder.losses().unread - unread_before;
    if count > 0 {
        collector.sink.push(&Event::Loss(Loss { cause: LossCause::MapsUnread, count }));
    }
}

fn start(options: &args::Trace) -> Start {
    Start {
        time: bpf::now(),
        wall_clock: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
        version: env!("CARGO_PKG_VERSION").into(),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        command: options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        mode: if options.summary_only { Mode::TraceSums } else { Mode::Trace },
        frequency: 0,
    }
}
