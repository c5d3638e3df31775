//! `record`: records a command and writes a flame graph of CPU and GPU work.

mod events;
mod flight;
mod plan;
mod write;

use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use collect::{
    Collected, Collector, Cost, Prepared, Until,
    calls::search,
    command::{
        setup::Setup,
        signals::Signals,
        target::{self, Ending, Injection, NVTX_LIBRARY},
        user::User,
    },
    flight::{Flight, slow},
    gpu_counters::used_by_others,
    process::procfs,
    sink::{Recording, Sink},
};
use export::Flames;
use model::{
    event::{End, Event, Note},
    profile::Profile,
};

use crate::{args, outputs::Outputs, say::say, status::Status, summary};
use flight::Background;
use plan::Plan;
use write::Style;

/// Runs the command.
pub fn run(mut options: args::Record) -> anyhow::Result<ExitCode> {
    plan::select(&mut options)?;
    let plan = Plan::new(&options)?;
    let user = if options.as_root { None } else { User::behind_sudo() };
    let owner = User::behind_sudo();
    let recorder = flight::options(&options, &program(&options).to_string_lossy())?;
    let (paths, defaults) = (&options.output, plan.default_outputs());
    let mut outputs = match &recorder {
        None => Outputs::open(paths, defaults, owner.as_ref())?,
        Some(_) => Outputs::open_numbered(paths, defaults, owner.as_ref())?,
    };
    bpf::features::require_privileges()?;
    let signals = if recorder.is_some() { Signals::take_with_dumps() } else { Signals::take() };
    let signals = signals.context("cannot set up signal handling")?;
    let setup = match options.pid.as_slice() {
        [] => Setup::new(plan.injects(), options.sim, user.as_ref())?,
        pids => Setup::running(plan.injects(), pids),
    };
    let Setup { workspace, mut injection, sessions, marker } = setup;
    injection.max_overhead = options.max_overhead;
    injection.graph_level = options.graph_level;
    injection.stalls = options.stalls;
    let other_nvtx = std::env::var_os(NVTX_LIBRARY).filter(|path| options.nvtx && !path.is_empty());
    injection.nvtx = options.nvtx && other_nvtx.is_none();

    // CUPTI would report nothing at all, without an error, after the first kernel.
    let stalls_refused =
        injection.stalls.and_then(|_| used_by_others(&program(&options), injection.simulator.as_deref()));
    if stalls_refused.is_some() {
        injection.stalls = None;
    }

    let prepared = Prepared::new(plan.collect(&options, &injection, sessions, marker))?;
    let mut first = vec![Event::Start(plan.start(&options))];
    if let Some(why) = stalls_refused {
        first.push(Event::Note(Note { text: format!("no stall reasons: {why}") }));
    }
    if let Some(path) = other_nvtx {
        let text = format!("no NVTX ranges: the command uses the library of {NVTX_LIBRARY}: {}", path.display());
        first.push(Event::Note(Note { text }));
    }
    if options.no_inject {
        first.push(Event::Note(Note { text: plan::NO_INJECT.into() }));
    }
    let recording = Recorded { plan, options: &options, injection, user, first };
    let mut style = Style::new(&options);
    let shows_status = options.command.is_empty() && !options.quiet;
    let status_line = shows_status.then(Status::of_recording).flatten();
    let mut recorded = None;
    let (status, mut rest, whole) = match recorder {
        None => {
            let (file, path) = outputs.recording()?;
            let mut sink = Recording::new(file, path).context("cannot start the recording")?;
            if let Some(status) = status_line {
                sink.print(Box::new(status));
            }
            let ended = recording.collect(prepared, signals, sink, |_| Ok(()));
            let Ended { sink, status, time, mut rest } = ended.inspect_err(|_| outputs.remove_recording())?;
            style.shows_progress &= rest.child.is_none() || status.is_some();
            let end = End { time, status: status.map(ExitStatusExt::into_raw) };
            let (profile, complete) = style.finish(sink, end, &mut rest.kept);
            if recorded_nothing(&profile, status) {
                outputs.keep_existing();
            }
            let whole = style.write(&Flames::new(&profile), &mut outputs, complete);
            recorded = Some(profile);
            (status, rest, whole)
        }
        Some(recorder) => {
            let tracer = slow::tracer(&recorder.on_slow);
            let (paths, quiet) = (paths.clone(), options.quiet);
            let mut place = flight::Place { paths, defaults, user: owner, style: style.clone(), quiet };
            let mut sink = Flight::new(recorder, Background::new(place.clone()));
            if let Some(status) = status_line {
                sink.print(Box::new(status));
            }
            let watch = |collector: &mut Collector<_>| watch_slow(collector, tracer, &recording);
            let Ended { sink, status, time, rest } = recording.collect(prepared, signals, sink, watch)?;
            let why = why_ended(&options, status);
            place.style.shows_progress &= rest.child.is_none() || status.is_some();
            let (cut, background) = flight::finish(sink, time, status, why);
            let whole = match place.write(&cut, rest.kept.clone()) {
                Ok(flight::Written { profile, outputs: written, whole }) => {
                    outputs = written;
                    recorded = Some(profile);
                    whole
                }
                Err(error) => {
                    flight::not_written(&cut.dump, &error);
                    false
                }
            };
            (status, rest, whole && background.whole)
        }
    };
    if let Some(profile) = &recorded {
        if options.verbose {
            print_cost(&rest.cost, profile, rest.ended);
        }
        if !options.quiet {
            summary::print(&Flames::new(profile), &mut || outputs.events())?;
            outputs.announce(&mut std::io::stderr())?;
            events::announce(profile, style.view(profile), outputs.recording_path());
        }
    }
    if let Some(library) = missing_library(&options, status) {
        say(format_args!(
            "the loader did not find {library}, which the command needs: add its directory to LD_LIBRARY_PATH, or use --sim to record on the simulated GPU"
        ));
    }
    let status = match (status, rest.ending, &mut rest.child) {
        (Some(status), _, _) => status,
        // Without a command, the recording succeeded.
        (None, _, None) => ExitStatus::default(),
        (None, Some(ending), Some(child)) => match ending
            .wait(child, &rest.signals)
            .context("cannot wait for the command")?
        {
            // It ended on request.
            ended if ended.signal().is_some_and(|signal| Ending::SIGNALS.contains(&signal)) => ExitStatus::default(),
            ended => ended,
        },
        (None, None, Some(child)) => {
            if !options.quiet {
                let seconds = options.duration.unwrap_or(0.0);
                eprintln!("warpscope: recording ended after {seconds} s; the command keeps running");
            }
            rest.signals.wait_for(child).context("cannot wait for the command")?
        }
    };
    // Only now: processes started by the command may still need the libraries that its environment names.
    drop(workspace);
    Ok(if status.success() { ExitCode::from(u8::from(!whole)) } else { target::exit_like(status) })
}

/// What is recorded.
struct Recorded<'a> {
    plan: Plan,
    options: &'a args::Record,
    injection: Injection,
    user: Option<User>,
    /// The first events.
    first: Vec<Event>,
}

/// A recording that has ended.
struct Ended<S> {
    sink: S,
    /// The exit status of a command that has ended.
    status: Option<ExitStatus>,
    /// When it ended.
    time: u64,
    rest: Rest,
}

/// What is left of it.
struct Rest {
    kept: symbols::Kept,
    signals: Signals,
    cost: Cost,
    child: Option<Child>,
    /// The end of a command that is terminated.
    ending: Option<Ending>,
    ended: Instant,
}

impl Recorded<'_> {
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
        Ok(Ended { sink, status, time, rest: Rest { kept, signals, cost, child, ending, ended } })
    }

    /// Watches the events, and starts the command or follows the processes.
    fn start<S: Sink>(&self, collector: &mut Collector<S>) -> anyhow::Result<Option<Child>> {
        let Self { plan, options, injection, user, .. } = self;
        let (program, simulator) = (program(options), injection.simulator.as_deref());
        collector.recorder.open_hits(!options.command.is_empty());
        collector.count_events(plan.events.clone(), plan.off_cpu.is_some(), &program, simulator)?;
        if options.memory {
            collector.record_memory(&program, simulator)?;
        }
        if options.energy {
            collector.record_energy(simulator);
        }
        if options.counters {
            collector.record_counters(&program, simulator);
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

/// Watches the functions of `--on-slow`.
fn watch_slow(
    collector: &mut Collector<Flight<Background>>,
    tracer: Option<collect::calls::tracer::Tracer>,
    recording: &Recorded<'_>,
) -> anyhow::Result<()> {
    let Some(tracer) = tracer else { return Ok(()) };
    let program = program(recording.options);
    collector.watch_calls(tracer, &program, recording.injection.simulator.as_deref())?;
    if let Some(missing) = collector.sink.missing_in(&program.to_string_lossy()) {
        bail!(
            "--on-slow: neither {} nor CUDA has a function {missing}; name a function of a library as LIB:FUNCTION, and a \
             Python function by an NVTX range around it (nvtx:NAME, with --nvtx)",
            program.display()
        );
    }
    Ok(())
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
    let file = File::open(&program).ok()?;
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
    eprintln!("warpscope: the program reported {} launches without a probe", recognised.unprobed);
    eprintln!("warpscope: outputs were ready {:.3} s after the command exited", ended.elapsed().as_secs_f64());
}
