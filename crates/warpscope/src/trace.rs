//! `trace`: traces every CUDA call and every driver request, one by one or summed.

mod list;
mod plan;

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ExitCode},
    time::{Duration, Instant},
};

use analysis::{Flames, View};
use anyhow::{Context, bail};
use bpf::tracefs;
use collect::{
    Collected, Collector, INJECTOR, Prepared, Until,
    calls::{search, tracer::Tracer},
    command::{setup::Setup, signals::Signals, target::Injection, user::User},
    process::procfs,
    sink::{self, Recording, Sink as _},
};
use export::Format;
use model::event::{End, Event, Mode, Note, ProcessId};
use text::did_you_mean;

use crate::{
    args,
    live::{Live, Wanted},
    outputs::Outputs,
    privileges::keep_for_recording,
    progress::Progress,
    running_command::{RunningCommand, exit_code},
    say::say,
    status::Status,
    summary,
};
use plan::{Kernel, Plan};

/// The tracepoint for Xid errors, if the driver has it.
const XID: &str = "nvidia:nvidia_dev_xid";

/// Runs the command.
pub fn run(options: args::Trace) -> anyhow::Result<ExitCode> {
    let plan = Plan::new(&options)?;
    if let Some(patterns) = &options.list {
        return list::run(patterns, &options, plan);
    }
    plan.check(&options)?;
    let calls = options.calls();
    let to_stdout = options.output.is_empty() && options.command.is_empty();
    let live = options.live.as_deref().map(|pattern| Wanted::new(pattern, calls, to_stdout)).transpose()?;
    let user = if options.as_root { None } else { User::behind_sudo() };
    let mut outputs = Outputs::open(&options.output, &["trace.wscope"], User::behind_sudo().as_ref())?;
    bpf::features::require_privileges()?;
    let kernel = Kernel::choose(&options)?;
    let signals = Signals::take().context("cannot set up signal handling")?;
    let inject = !options.command.is_empty() && !options.no_gpu && !options.summary_only;
    let Setup { workspace, mut injection, mut sessions, marker } = Setup::new(inject, options.sim, user.as_ref())?;
    if let Some(sessions) = sessions.as_mut().filter(|_| plan.uses_callbacks(&options)) {
        sessions.expect_calls();
        injection.calls = true;
    }

    let prepared = Prepared::new(plan::collect(&options, &kernel, &injection, sessions, marker))?.require_mappings()?;
    let all_calls = plan.traces_queries(&options);
    let tracer = plan.tracer(&options, prepared.can_watch_many())?;
    let (file, path) = outputs.recording()?;
    let mut sink = Recording::new(file, path).context("cannot start the recording")?;
    begin(&mut sink, live, &options);
    let mut collector = prepared.collect(signals, sink);
    collector.trace = Some(Box::new(tracer));
    let started = start(&mut collector, &options, &injection, kernel, user.as_ref());
    let child = started.inspect_err(|_| outputs.remove_recording())?;
    // Not before: the command must have the rights that it has without warpscope.
    for text in keep_for_recording(false, false) {
        collector.sink.push(&Event::Note(Note { text }));
    }

    let ended = trace(collector, child, &options, all_calls)?;
    let (command, whole) = ended.write(outputs, &options)?;
    let seconds = options.duration.unwrap_or(0.0);
    let status = command.wait((!options.quiet).then(|| format!("the trace ended after {seconds} s")))?;
    drop(workspace);
    Ok(exit_code(status, whole))
}

/// A trace that has ended.
struct Ended {
    sink: Recording,
    time: u64,
    kept: symbols::Kept,
    command: RunningCommand,
}

/// Collects events until the end.
fn trace(
    mut collector: Collector<Recording>,
    mut child: Option<Child>,
    options: &args::Trace,
    all_calls: bool,
) -> anyhow::Result<Ended> {
    let deadline = options.duration.map(|d| Instant::now() + Duration::from_secs_f64(d));
    let until = match &mut child {
        Some(child) => Until::CommandEnds(child),
        None if options.all => Until::Stopped,
        None => Until::ProcessesEnd(&options.pid),
    };
    let status = collector.run(until, deadline).context("cannot wait for the command")?;
    let time = bpf::now();
    if let (Some(child), None) = (&child, status) {
        collector.note_stop(options.duration.unwrap_or(0.0), child);
    }
    let Collected { mut sink, signals, trace, kept, .. } = collector.finish();
    if let Some(trace) = &trace {
        note_missed(trace, all_calls, &mut sink);
        if options.verbose {
            print_probes(trace);
        }
    }
    Ok(Ended { sink, time, kept, command: RunningCommand { child, status, ending: None, signals } })
}

impl Ended {
    /// Writes and prints what was traced. Returns the command, and whether the outputs are whole.
    fn write(self, mut outputs: Outputs, options: &args::Trace) -> anyhow::Result<(RunningCommand, bool)> {
        let Self { sink, time, mut kept, command } = self;
        let end = End { time, status: command.status.map(ExitStatusExt::into_raw) };
        let naming = symbols::Options { injector: INJECTOR, ..symbols::Options::default() };
        let shows_progress = !options.quiet && !command.runs();
        let progress = shows_progress.then(|| Progress::begin("resolving names".to_owned(), None));
        let (mut profile, failure) = sink.finish(end, &mut kept, &naming);
        drop(progress);
        let calls = options.calls();
        profile.notes.extend(calls.note(None));
        let recorded = failure.is_none();
        if let Some(failure) = failure {
            say(failure);
        }
        let flames = Flames::new(&profile);
        if !shows_progress {
            outputs.hide_progress();
        }
        let whole = outputs.write(&flames, View { calls, ..View::default() }, recorded) && recorded;
        if !options.quiet {
            summary::print(&flames, &mut || outputs.events())?;
            outputs.announce(&mut std::io::stderr())?;
        }
        Ok((command, whole))
    }
}

/// Writes what is known before anything runs, and starts printing: calls with `--live`, otherwise the status of a trace of
/// running processes.
fn begin(sink: &mut Recording, live: Option<Wanted>, options: &args::Trace) {
    let command = options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let mode = if options.summary_only { Mode::TraceSums } else { Mode::Trace };
    let start = sink::start(command, mode, 0);
    if let Some(wanted) = live {
        sink.print(Box::new(Live::new(start.time, wanted)));
    } else if options.command.is_empty()
        && !options.quiet
        && let Some(status) = Status::of_trace()
    {
        sink.print(Box::new(status));
    }
    sink.push(&Event::Start(start));
    let draws = |path: &PathBuf| matches!(Format::from_path(path), Ok(Format::Svg | Format::Folded));
    if !options.stacks && options.output.iter().any(draws) {
        let text =
            "call stacks were not requested: GPU work is drawn by process and kernel only (--stacks adds call stacks)";
        sink.push(&Event::Note(Note { text: text.into() }));
    }
}

/// Attaches the probes, and starts the command if there is one.
fn start(
    collector: &mut Collector<Recording>,
    options: &args::Trace,
    injection: &Injection,
    kernel: Kernel,
    user: Option<&User>,
) -> anyhow::Result<Option<Child>> {
    collector.recorder.open_calls(false);
    let watched = watch(collector, options, injection, kernel);
    collector.recorder.open_calls(true);
    watched?;
    if options.command.is_empty() {
        return Ok(None);
    }
    collector.start(&options.command, injection, user).map(Some)
}

/// Attaches everything that can be watched before the command runs.
fn watch(
    collector: &mut Collector<Recording>,
    options: &args::Trace,
    injection: &Injection,
    kernel: Kernel,
) -> anyhow::Result<()> {
    let Collector { recorder, sink, trace: Some(trace), .. } = &mut *collector else { return Ok(()) };
    let mut push = |event| sink.push(&event);
    for file in trace.libraries.wanted.given_paths().map(PathBuf::from).collect::<Vec<_>>() {
        trace.watch(&file, recorder, &mut push)?;
    }
    for point in &options.tracepoint {
        trace.watch_point(point, recorder, &mut push)?;
    }
    if options.driver && tracefs::tracepoints().is_ok_and(|all| all.iter().any(|point| point == XID)) {
        trace.watch_point(XID, recorder, &mut push)?;
    }
    if !kernel.probed.is_empty() {
        trace.watch_kernel(kernel.probed, recorder, &mut push)?;
    }
    if !kernel.hooked.is_empty() {
        trace.hook_kernel(kernel.hooked, recorder, &mut push)?;
    }
    if let Some(program) = options.command.first() {
        let program = search::program(program);
        let directories = search::directories(program.as_deref(), injection.simulator.as_deref());
        for file in search::files(&directories, |name| trace.libraries.wanted.wants(name)) {
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

/// Rejects a trace that is certain to be empty.
fn check(collector: &Collector<Recording>, options: &args::Trace) -> anyhow::Result<()> {
    let Some(trace) = &collector.trace else { return Ok(()) };
    let libraries = &trace.libraries;
    let kernel = !options.tracepoint.is_empty() || !options.kprobe.is_empty() || !options.fentry.is_empty();
    let others = options.driver || options.sched || kernel;
    if !options.pid.is_empty() && libraries.costs.total() == 0 && !libraries.wanted.any() && !others {
        let names: Vec<_> =
            options.pid.iter().map(|pid| format!("{pid} ({})", procfs::comm(*pid).unwrap_or_default())).collect();
        bail!(
            "process {} has not loaded CUDA (neither libcuda nor libcudart is mapped): trace it later, or start it with -- COMMAND",
            names.join(", ")
        );
    }
    // A pattern may match functions of libraries that are named but not loaded yet.
    let all_here = options.lib.iter().all(|l| l.as_os_str().as_encoded_bytes().contains(&b'/'));
    if libraries.wanted.any()
        && all_here
        && let Some((pattern, near)) = libraries.wanted.unmatched_patterns().first()
    {
        bail!("--match {pattern} matches no function{}", did_you_mean(near));
    }
    Ok(())
}

/// Adds notes that are only known at the end.
fn note_missed(trace: &Tracer, all_calls: bool, sink: &mut Recording) {
    let mut note = |text| sink.push(&Event::Note(Note { text }));
    let libraries = &trace.libraries;
    let unreported = libraries.expects_reports() && trace.callbacks.as_ref().is_some_and(|calls| calls.count == 0);
    if !libraries.wanted.any() {
        note("no CUDA library was loaded: neither libcuda nor libcudart".into());
    } else {
        if libraries.wanted.shortened {
            note("this kernel has no multi-uprobes (Linux 6.6 and later do): only the most important functions are traced; use --match to choose others".into());
        }
        if !all_calls {
            note("query functions such as cudaGetDevice are not traced: use --all-calls".into());
        }
        for (pattern, near) in libraries.wanted.unmatched_patterns() {
            note(format!("--match {pattern} matched no function{}", did_you_mean(&near)));
        }
        if unreported {
            note("no process initialised CUDA (cuInit), so CUPTI reported no calls; --calls-from probes traces other functions".into());
        }
    }
}

/// `--verbose`: prints how calls were traced.
fn print_probes(trace: &Tracer) {
    if let Some(callbacks) = &trace.callbacks {
        let processes = match callbacks.count {
            1 => "1 process was".to_owned(),
            count => format!("{count} processes were"),
        };
        eprintln!("warpscope: the calls of {processes} reported by CUPTI, without probes");
    }
    let milliseconds = trace.libraries.spent.as_secs_f64() * 1e3;
    eprintln!("warpscope: probed {}, attached in {milliseconds:.1} ms", trace.libraries.costs);
}
