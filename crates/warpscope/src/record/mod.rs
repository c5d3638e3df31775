//! `record`: records a command and writes a flame graph of CPU and GPU work.

mod events;
mod plan;
mod status;

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::Context;
use collect::{
    Collected, Collector, Cost, INJECTOR, Prepared, Until,
    calls::search,
    command::{
        setup::Setup,
        signals::Signals,
        target::{self, Ending, Injection, NVTX_LIBRARY},
        user::User,
    },
    sink::{Recording, Sink as _},
};
use export::{Flames, View};
use model::{
    event::{End, Event, Note},
    profile::Profile,
};
use symbols::DebugFiles;

use crate::{
    args,
    outputs::{Outputs, view},
    say::say,
    summary,
};
use plan::Plan;
use status::Status;

/// Runs the command.
pub fn run(mut options: args::Record) -> anyhow::Result<ExitCode> {
    plan::select(&mut options)?;
    let plan = Plan::new(&options)?;
    let user = if options.as_root { None } else { User::behind_sudo() };
    let mut outputs = Outputs::open(&options.output, plan.default_outputs(), User::behind_sudo().as_ref())?;
    bpf::features::require_privileges()?;
    let signals = Signals::take().context("cannot set up signal handling")?;
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

    let prepared = Prepared::new(plan.collect(&options, &injection, sessions, marker))?;
    let (file, path) = outputs.recording()?;
    let mut sink = Recording::new(file, path).context("cannot start the recording")?;
    sink.push(&Event::Start(plan.start(&options)));
    if let Some(path) = other_nvtx {
        let text = format!("no NVTX ranges: the command uses the library of {NVTX_LIBRARY}: {}", path.display());
        sink.push(&Event::Note(Note { text }));
    }
    if options.command.is_empty()
        && !options.quiet
        && let Some(status) = Status::new()
    {
        sink.print(Box::new(status));
    }
    let mut collector = prepared.collect(signals, sink);
    let started = start(&mut collector, plan, &options, &injection, user.as_ref());
    let mut child = started.inspect_err(|_| outputs.remove_recording())?;

    let deadline = options.duration.map(|d| Instant::now() + Duration::from_secs_f64(d));
    let until = match &mut child {
        Some(child) => Until::CommandEnds(child),
        None => Until::ProcessesEnd(&options.pid),
    };
    let status = collector.run(until, deadline).context("cannot wait for the command")?;
    let (ended, ended_at) = (Instant::now(), bpf::now());
    if let (Some(child), None) = (&child, status) {
        collector.note_stop(options.duration.unwrap_or(0.0), child);
    }
    let Collected { sink, signals, mut kept, cost, .. } = collector.finish();
    let ending = child.as_ref().filter(|_| options.kill && status.is_none()).map(Ending::begin);

    let end = End { time: ended_at, status: status.map(ExitStatusExt::into_raw) };
    let (mut profile, failure) = sink.finish(end, &mut kept, &naming(&options));
    drop(kept);
    options.graph_stacks.apply(&mut profile);
    let recorded = failure.is_none();
    if let Some(failure) = failure {
        say(failure);
    }
    let view = View { unfold_recursion: options.unfold_recursion, ..view::default(&profile) };
    let flames = Flames::new(&profile);
    if recorded_nothing(&profile, status) {
        outputs.keep_existing();
    }
    let whole = outputs.write(&flames, view, recorded) && recorded;
    if options.verbose {
        print_cost(&cost, &profile, ended);
    }
    if !options.quiet {
        summary::print(&flames, &mut || outputs.events())?;
        outputs.announce(&mut std::io::stderr())?;
        events::announce(&profile, view, outputs.recording_path());
    }
    if let Some(library) = missing_library(&options, status) {
        say(format_args!(
            "the loader did not find {library}, which the command needs: add its directory to LD_LIBRARY_PATH, or use --sim to record on the simulated GPU"
        ));
    }
    let status = match (status, ending, &mut child) {
        (Some(status), _, _) => status,
        // Without a command, the recording succeeded.
        (None, _, None) => ExitStatus::default(),
        (None, Some(ending), Some(child)) => match ending
            .wait(child, &signals)
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
            signals.wait_for(child).context("cannot wait for the command")?
        }
    };
    // Only now: processes started by the command may still need the libraries that its environment names.
    drop(workspace);
    Ok(if status.success() { ExitCode::from(u8::from(!whole)) } else { target::exit_like(status) })
}

/// Watches the events, and starts the command or follows the processes.
fn start(
    collector: &mut Collector<Recording>,
    plan: Plan,
    options: &args::Record,
    injection: &Injection,
    user: Option<&User>,
) -> anyhow::Result<Option<Child>> {
    let injects = plan.injects();
    let program = match (options.command.first(), options.pid.first()) {
        (Some(program), _) => program.clone(),
        (None, pid) => format!("/proc/{}/exe", pid.copied().unwrap_or(0)).into(),
    };
    collector.count_events(plan.events, plan.off_cpu.is_some(), &program, injection.simulator.as_deref())?;
    if options.memory {
        collector.record_memory(&program, injection.simulator.as_deref())?;
    }
    if options.command.is_empty() {
        if options.verbose {
            collector.on_attached = print_stop;
        }
        collector.follow(&options.pid, injects.then_some(injection));
        return Ok(None);
    }
    let child = collector.start(&options.command, injection, user)?;
    if options.verbose {
        eprintln!("warpscope: recording process {}", child.id());
    }
    Ok(Some(child))
}

/// Whether a run is not worth replacing an earlier one: it has no GPU work and no events, and the command failed or was not
/// sampled either.
fn recorded_nothing(profile: &Profile, status: Option<ExitStatus>) -> bool {
    let ledger = &profile.ledger;
    let failed = status.is_some_and(|status| !status.success());
    ledger.launches + ledger.activities_delivered + ledger.hits == 0
        && profile.gpu.is_empty()
        && profile.memory.is_empty()
        && (failed || ledger.samples == 0)
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

/// Returns how addresses are resolved.
fn naming(options: &args::Record) -> symbols::Options {
    let homes =
        [std::env::var_os("HOME").map(PathBuf::from), User::behind_sudo().and_then(|u| u.home).map(PathBuf::from)];
    let debug_files = DebugFiles::new(&options.debug_dir, &homes.into_iter().flatten().collect::<Vec<_>>());
    symbols::Options { injector: INJECTOR, lines: options.lines, debug_files, ..symbols::Options::default() }
}

/// `--verbose`: prints how long a thread of a process was stopped.
fn print_stop(pid: u32, stopped: Duration) {
    let milliseconds = stopped.as_secs_f64() * 1e3;
    eprintln!("warpscope: attached to process {pid}; one of its threads was stopped for {milliseconds:.2} ms");
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
    eprintln!("warpscope: outputs were ready {:.3} s after the command exited", ended.elapsed().as_secs_f64());
}
