//! `record`: records a command and writes a flame graph of CPU and GPU work.

mod events;
mod flight;
mod plan;
mod write;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::process::ExitStatusExt,
    process::{Child, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use analysis::{CallView, Flames};
use anyhow::{Context, bail};
use collect::{
    Collected, Collector, Cost, Prepared, Until,
    calls::search,
    command::{
        setup::Setup,
        signals::Signals,
        target::{Ending, Injection, NVTX_LIBRARY},
        user::User,
        workspace::Workspace,
    },
    flight::{
        Flight,
        slow::{self, Slow},
    },
    process::procfs,
    sink::{Recording, Sink},
};
use gpu_counters::used_by_others;
use model::{
    event::{End, Event, Note},
    profile::Profile,
};

use crate::{
    args,
    live::{Live, Wanted},
    outputs::Outputs,
    privileges::keep_for_recording,
    push::Pushes,
    result,
    running_command::{RunningCommand, exit_code},
    say::say,
    status::Status,
    steps, summary,
};
use flight::Background;
use plan::Plan;
use write::Style;

/// Runs the command.
pub fn run(mut options: args::Record) -> anyhow::Result<ExitCode> {
    plan::select(&mut options)?;
    flight::imply(&mut options);
    let plan = Plan::new(&options)?;
    let owner = User::behind_sudo();
    let recorder = flight::options(&options, &program(&options).to_string_lossy())?;
    let (paths, defaults) = (&options.output, plan.default_outputs());
    let outputs = match &recorder {
        None => Outputs::open(paths, defaults, owner.as_ref())?,
        Some(_) => Outputs::open_numbered(paths, defaults, owner.as_ref())?,
    };
    let pushes = Pushes::prepare(&options.push, Some(&options.pid), options.quiet)?;
    if pushes.any() && recorder.is_some() {
        bail!("--push cannot be combined with --last: push a dump with `warpscope export --push`");
    }
    bpf::features::require_privileges()?;
    let signals = if recorder.is_some() { Signals::take_with_dumps() } else { Signals::take() };
    let signals = signals.context("cannot set up signal handling")?;
    let (workspace, recording, prepared) = prepare(&options, plan)?;

    let (command, whole) = match recorder {
        None => recording.record_all(prepared, signals, outputs, &pushes)?,
        Some(recorder) => recording.record_last(prepared, signals, outputs, recorder, owner)?,
    };
    if let Some(library) = missing_library(&options, command.status) {
        say(format_args!(
            "the loader did not find {library}, which the command needs: add its directory to LD_LIBRARY_PATH, or use --sim to record on the simulated GPU"
        ));
    }
    let seconds = options.duration.unwrap_or(0.0);
    let status = command.wait((!options.quiet).then(|| format!("recording ended after {seconds} s")))?;
    // Only now: processes started by the command may still need the libraries that its environment names.
    drop(workspace);
    Ok(exit_code(status, whole))
}

/// Sets up the injection and loads the BPF programs.
fn prepare(options: &args::Record, plan: Plan) -> anyhow::Result<(Option<Workspace>, Recorded<'_>, Prepared)> {
    let user = if options.as_root { None } else { User::behind_sudo() };
    let setup = match options.pid.as_slice() {
        [] => Setup::new(plan.injects(), options.sim, user.as_ref())?,
        pids => Setup::running(plan.injects(), pids),
    };
    let Setup { workspace, mut injection, sessions, marker } = setup;
    injection.max_overhead = options.max_overhead;
    injection.graph_level = options.graph_level;
    injection.stalls = options.stalls;
    injection.limits.clone_from(&options.limits);
    let other_nvtx = std::env::var_os(NVTX_LIBRARY).filter(|path| options.nvtx && !path.is_empty());
    injection.nvtx = options.nvtx && other_nvtx.is_none();

    // CUPTI would report nothing at all, without an error, after the first kernel.
    let stalls_refused = injection
        .stalls
        .and_then(|_| used_by_others(search::program(&program(options)).as_deref(), injection.simulator.as_deref()));
    if stalls_refused.is_some() {
        injection.stalls = None;
    }

    let prepared = Prepared::new(plan.collect(options, &injection, sessions, marker))?;
    let mut first = vec![Event::Start(plan.start(options))];
    let mut note = |text: String| first.push(Event::Note(Note { text }));
    if let Some(why) = stalls_refused {
        note(format!("no stall reasons: {why}"));
    }
    if let Some(path) = other_nvtx {
        note(format!("no NVTX ranges: the command uses the library of {NVTX_LIBRARY}: {}", path.display()));
    }
    if options.no_inject {
        note(plan::NO_INJECT.into());
    }
    Ok((workspace, Recorded { plan, options, injection, user, first, style: Style::new(options) }, prepared))
}

/// What is recorded.
struct Recorded<'a> {
    plan: Plan,
    options: &'a args::Record,
    injection: Injection,
    user: Option<User>,
    /// The first events.
    first: Vec<Event>,
    style: Style,
}

/// A recording that has ended.
struct Ended<S> {
    sink: S,
    /// When it ended.
    time: u64,
    kept: symbols::Kept,
    cost: Cost,
    ended: Instant,
    command: RunningCommand,
}

impl Recorded<'_> {
    /// Records from the start to the end. Returns the command, and whether the outputs are whole.
    fn record_all(
        mut self,
        prepared: Prepared,
        signals: Signals,
        mut outputs: Outputs,
        pushes: &Pushes,
    ) -> anyhow::Result<(RunningCommand, bool)> {
        let (file, path) = outputs.recording()?;
        let mut sink = Recording::new(file, path).context("cannot start the recording")?;
        if let Some(live) = self.live()? {
            sink.print(Box::new(live));
        } else if let Some(status) = self.status_line() {
            sink.print(Box::new(status));
        }
        let watch = |collector: &mut Collector<_>| match self.options.memory {
            true => self.watch_memory(collector, &[]),
            false => Ok(()),
        };
        let ended = self.collect(prepared, signals, sink, watch);
        let Ended { sink, time, mut kept, cost, ended, command } = ended.inspect_err(|_| outputs.remove_recording())?;
        self.style.shows_progress &= !command.runs();
        let end = End { time, status: command.status.map(ExitStatusExt::into_raw) };
        let (mut profile, complete) = self.style.finish(sink, end, &mut kept);
        if !self.options.quiet || outputs.has_steps() {
            steps::complete(&mut profile, &mut || outputs.events());
        }
        if recorded_nothing(&profile, command.status) {
            outputs.keep_existing();
        }
        let flames = Flames::new(&profile);
        let whole = self.style.write(&flames, &mut outputs, complete);
        self.print(&flames, &outputs, &cost, ended)?;
        let (view, again) = (self.style.view(&profile), outputs.recording_path());
        // The first signal ended the recording.
        let stopped = || command.signals.stop_requested_again();
        let pushed =
            pushes.push(&profile, view, &mut || outputs.events(), again, self.style.shows_progress, &stopped)?;
        Ok((command, whole && pushed))
    }

    /// Keeps the last events, and writes them on request and at the end. Returns the command, and whether all dumps are whole.
    fn record_last(
        self,
        prepared: Prepared,
        signals: Signals,
        outputs: Outputs,
        recorder: collect::flight::Options,
        user: Option<User>,
    ) -> anyhow::Result<(RunningCommand, bool)> {
        let slow = recorder.on_slow.clone();
        let (paths, quiet) = (self.options.output.clone(), self.options.quiet);
        let style = self.style.clone();
        let mut place = flight::Place { paths, defaults: self.plan.default_outputs(), user, style, quiet };
        let mut sink = Flight::new(recorder, Background::new(place.clone()));
        if let Some(status) = self.status_line() {
            sink.print(Box::new(status));
        }
        let watch = |collector: &mut Collector<_>| self.watch_calls(collector, &slow);
        let Ended { sink, time, kept, cost, ended, command } = self.collect(prepared, signals, sink, watch)?;
        place.style.shows_progress &= !command.runs();
        let (cut, background) = flight::finish(sink, time, command.status, why_ended(self.options, command.status));
        let mut printed = Ok(());
        let print = |flames: &Flames<'_>, outputs: &Outputs| printed = self.print(flames, outputs, &cost, ended);
        let whole = place.write(&cut, kept, print).unwrap_or_else(|error| {
            flight::not_written(&cut.dump, &error);
            false
        });
        printed?;
        drop(outputs);
        Ok((command, whole && background.whole))
    }

    /// Returns what prints events as they arrive, if that is requested.
    fn live(&self) -> anyhow::Result<Option<Live>> {
        let Some(form) = &self.options.live else { return Ok(None) };
        let to_stdout = self.options.output.is_empty() && self.options.command.is_empty();
        let wanted = Wanted::new(form, CallView::default(), to_stdout)?;
        let start =
            self.first.iter().find_map(|event| if let Event::Start(start) = event { Some(start.time) } else { None });
        Ok(Some(Live::new(start.unwrap_or(0), wanted)))
    }

    /// Returns the status line of a recording of running processes.
    fn status_line(&self) -> Option<Status> {
        (self.options.command.is_empty() && !self.options.quiet).then(Status::of_recording).flatten()
    }

    /// Prints what was recorded, and where it is.
    fn print(&self, flames: &Flames<'_>, outputs: &Outputs, cost: &Cost, ended: Instant) -> anyhow::Result<()> {
        if self.options.verbose {
            print_cost(cost, flames.profile, ended);
        }
        if self.options.result {
            writeln!(io::stdout(), "{}", result::line(flames.profile, outputs.written()))?;
        }
        if !self.options.quiet {
            summary::print(flames, &mut || outputs.events())?;
            outputs.announce(&mut io::stderr())?;
            events::announce(flames.profile, self.style.view(flames.profile), outputs.recording_path());
        }
        Ok(())
    }

    /// Collects events until the end. `watch` is called before the command starts.
    fn collect<S: Sink>(
        &self,
        prepared: Prepared,
        signals: Signals,
        mut sink: S,
        watch: impl FnOnce(&mut Collector<S>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Ended<S>> {
        let options = self.options;
        self.first.iter().for_each(|event| sink.push(event));
        let mut collector = prepared.collect(signals, sink);
        watch(&mut collector)?;
        let mut child = self.start(&mut collector)?;
        // Not before: the command must have the rights that it has without warpscope.
        for text in keep_for_recording(options.stalls.is_some(), options.command.is_empty()) {
            collector.sink.push(&Event::Note(Note { text }));
        }
        let deadline = options.duration.map(|d| Instant::now() + Duration::from_secs_f64(d));
        let until = match &mut child {
            Some(child) => Until::CommandEnds(child),
            None => Until::ProcessesEnd(&options.pid),
        };
        let status = collector.run(until, deadline).context("cannot wait for the command")?;
        let (ended, time) = (Instant::now(), bpf::now());
        if let (Some(child), None) = (&child, status) {
            collector.note_stop(options.duration.unwrap_or(0.0), child);
        }
        let Collected { sink, signals, kept, cost, .. } = collector.finish();
        let ending = child.as_ref().filter(|_| options.kill && status.is_none()).map(Ending::begin);
        Ok(Ended { sink, time, kept, cost, ended, command: RunningCommand { child, status, ending, signals } })
    }

    /// Watches the functions of `--on-slow`, and those that allocate memory.
    fn watch_calls(&self, collector: &mut Collector<Flight<Background>>, slow: &[Slow]) -> anyhow::Result<()> {
        let program = program(self.options);
        if self.options.memory {
            self.watch_memory(collector, slow)?;
        } else if let Some(tracer) = slow::tracer(slow) {
            collector.watch_calls(tracer, &program, self.injection.simulator.as_deref())?;
        }
        if let Some(missing) = collector.sink.missing_in(&program.to_string_lossy()) {
            bail!(
                "--on-slow: neither {} nor CUDA has a function {missing}; name a function of a library as LIB:FUNCTION, and a \
                 Python function by an NVTX range around it (nvtx:NAME, with --nvtx)",
                program.display()
            );
        }
        Ok(())
    }

    fn watch_memory<S: Sink>(&self, collector: &mut Collector<S>, slow: &[Slow]) -> anyhow::Result<()> {
        collect::memory::record(collector, &program(self.options), self.injection.simulator.as_deref(), slow)
    }

    /// Watches the events, and starts the command or follows the processes.
    fn start<S: Sink>(&self, collector: &mut Collector<S>) -> anyhow::Result<Option<Child>> {
        let Self { plan, options, injection, user, .. } = self;
        let (program, simulator) = (program(options), injection.simulator.as_deref());
        collector.recorder.open_hits(!options.command.is_empty());
        collect::events::count(collector, plan.events.clone(), plan.off_cpu.is_some(), &program, simulator)?;
        if options.energy {
            collect::gpu_counters::record_energy(collector, simulator);
        }
        if options.counters {
            collect::gpu_counters::record_counters(collector, &program, simulator);
        }
        if options.command.is_empty() {
            if options.verbose {
                collector.on_attached = print_stop;
            }
            collector.follow(&options.pid, plan.injects().then_some(injection));
            return Ok(None);
        }
        let child = collector.start(&options.command, injection, user.as_ref())?;
        if options.verbose {
            eprintln!("warpscope: recording process {}", child.id());
        }
        Ok(Some(child))
    }
}

/// Returns the recorded program.
fn program(options: &args::Record) -> OsString {
    match (options.command.first(), options.pid.first()) {
        (Some(program), _) => program.clone(),
        (None, pid) => format!("/proc/{}/exe", pid.copied().unwrap_or(0)).into(),
    }
}

/// Whether a run is not worth replacing an earlier one: it has no GPU work and no events, and the command failed or was not
/// sampled either.
fn recorded_nothing(profile: &Profile, status: Option<ExitStatus>) -> bool {
    let ledger = &profile.ledger;
    let failed = status.is_some_and(|status| !status.success());
    let sampled = profile.start.as_ref().is_some_and(|start| start.frequency > 0);
    ledger.launches + ledger.activities_delivered + ledger.hits == 0
        && profile.gpu.is_empty()
        && profile.memory.is_empty()
        && (failed || !sampled)
}

/// Returns the CUDA library that a command was linked with and that the loader did not find, if that is why it failed.
fn missing_library(options: &args::Record, status: Option<ExitStatus>) -> Option<String> {
    // The loader's exit status.
    if options.sim || status?.code() != Some(127) {
        return None;
    }
    let program = search::program(options.command.first()?)?;
    let file = elf::open(&program).ok()?;
    let needed = elf::Elf::read(&file).and_then(|elf| elf::needed_libraries(&elf, &file)).ok()?;
    let directories = search::directories(Some(&program), None);
    let found = |library: &str| directories.iter().any(|directory| directory.join(library).exists());
    let missing = needed.into_iter().find(|library| library.starts_with("libcud") && !found(library))?;
    Some(text::names::printable(&missing).into_owned())
}

/// Says why a recording ended.
fn why_ended(options: &args::Record, status: Option<ExitStatus>) -> String {
    match (status, options.duration) {
        (Some(status), _) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("the command exited with status {code}"),
            (None, signal) => format!("signal {} ended the command", signal.unwrap_or(0)),
        },
        (None, _) if options.command.is_empty() && !options.pid.iter().any(|pid| procfs::runs(*pid)) => {
            "the recorded processes ended".into()
        }
        (None, Some(seconds)) => format!("the recording ended (-d {seconds}, or a signal)"),
        (None, None) => "the recording was stopped by a signal".into(),
    }
}

/// `--verbose`: prints how long a thread of a process was stopped.
fn print_stop(pid: u32, stopped: Duration) {
    let milliseconds = stopped.as_secs_f64() * 1e3;
    say(format_args!("attached to process {pid}; one of its threads was stopped for {milliseconds:.2} ms"));
}

/// `--verbose`: prints the cost of the recording itself.
fn print_cost(Cost { tables, recognised }: &Cost, profile: &Profile, ended: Instant) {
    eprintln!(
        "warpscope: unwind tables of {} files have {} rows ({:.1} MiB) and took {:.3} s of CPU time",
        tables.files,
        tables.rows,
        (tables.rows * size_of::<unwind::Row>() as u64) as f64 / f64::from(1 << 20),
        tables.time.as_secs_f64()
    );
    eprintln!(
        "warpscope: the program recognised the stacks of {} of {} launches, and the Python stacks of {}",
        recognised.native, profile.ledger.launches, recognised.python
    );
    eprintln!(
        "warpscope: the program reported {} launches without a probe; {} met the probe",
        recognised.unprobed, recognised.probed
    );
    eprintln!("warpscope: outputs were ready {:.3} s after the command exited", ended.elapsed().as_secs_f64());
}
