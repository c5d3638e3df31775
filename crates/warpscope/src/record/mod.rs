//! `record`: one command turns a program into an exact flame graph of CPUs and GPUs.

mod events;

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use bpf::{MAX_HITS, Mappings, Options, Recorder, Share};
use collect::{
    Collector, INJECTOR, RING_BYTES, Until,
    command::{
        limits, priority,
        signals::Signals,
        stage::{Stage, sure_to_be_mapped},
        target::{self, Ending},
        user::User,
    },
    events::spec,
    process::{found, images::Images, reused::Reused},
    sessions::Sessions,
    sink::{Recording, Sink as _},
    stacks::{
        python::Pythons,
        unwinding::{MOST_RAW, Unwinding},
    },
};
use model::event::{End, Event, Mode, Note, Start};
use symbols::{DebugFiles, Kept, Wishes};

use crate::{
    args,
    outputs::{Outputs, view},
    say::say,
    summary,
};

/// What is written where no output is named.
const DEFAULT_OUTPUTS: [&str; 2] = ["warpscope.svg", "warpscope.wscope"];

/// Runs the command.
pub fn run(options: args::Record) -> anyhow::Result<ExitCode> {
    let mode = match (options.gpu_only, options.cpu_only, options.events_only) {
        (true, _, _) => Mode::GpuOnly,
        (_, true, _) => Mode::CpuOnly,
        (_, _, true) => Mode::EventsOnly,
        _ => Mode::Merged,
    };
    let (samples, inject) =
        (!matches!(mode, Mode::GpuOnly | Mode::EventsOnly), matches!(mode, Mode::GpuOnly | Mode::Merged));
    let specs = spec::parse(&options.event)?;
    events::check_outputs(&options, &specs)?;
    if options.frequency == 0 && samples {
        bail!("-F 0 would take no samples: give a frequency of at least 1, or --gpu-only for none");
    }
    if options.duration.is_some_and(|d| !d.is_finite() || d <= 0.0) {
        bail!("-d wants a number of seconds greater than 0");
    }
    let user = if options.as_root { None } else { User::behind_sudo() };
    let mut outputs = Outputs::open(
        &options.output,
        if specs.len() > 1 && mode == Mode::EventsOnly { &DEFAULT_OUTPUTS[1..] } else { &DEFAULT_OUTPUTS },
        User::behind_sudo().as_ref(),
    )?;
    if !bpf::features::privileged() {
        return Err(bpf::Error::NotPermitted.into());
    }

    let signals = Signals::take().context("cannot take signals")?;
    let Stage { workspace, injection, sessions, silent, marker } = Stage::set(inject, options.sim, user.as_ref())?;

    let sample_hz = samples.then_some(options.frequency);
    let hits = (!specs.is_empty()).then_some(MAX_HITS);
    let mut recorder =
        Recorder::start(&Options { sample_hz, marker, hits, ring_bytes: RING_BYTES, ..Options::default() })?;
    let mut unwinding =
        Unwinding::start(recorder.unwind_maps()?, MOST_RAW).context("cannot start the thread for unwind tables")?;
    let mut kept = Kept::new(limits::raise());
    unwinding.prepare(&mut kept.files, &sure_to_be_mapped(&options.command[0], &injection));
    let pythons = if options.no_python { None } else { Some(Pythons::new(recorder.python_maps()?)) };
    let (file, path) = outputs.recording()?;
    let mut sink = Recording::new(file, path).context("cannot begin the recording")?;
    sink.push(&Event::Start(start(&options, mode)));
    let events = match events::start(specs, &options, &injection, &mut recorder, &mut |event| sink.push(&event)) {
        Ok(events) => events,
        Err(error) => {
            outputs.remove_recording();
            return Err(error);
        }
    };
    if let Some(events) = &events {
        unwinding.prepare(&mut kept.files, events.watched_files());
    }
    if !found::proc_is_own() {
        sink.push(&Event::Note(Note { text: found::FOREIGN_PROC.into() }));
    }
    let mappings = match Mappings::watch(Share::RECORDING) {
        Ok(mappings) => Some(mappings),
        Err(error) => {
            sink.push(&Event::Note(Note { text: format!("functions cannot be named: {error}") }));
            None
        }
    };
    let mut collector = Collector {
        recorder,
        mappings,
        sessions,
        silent,
        signals,
        sink,
        images: Images::default(),
        kept,
        unwinding,
        reused: Reused::default(),
        pythons,
        trace: None,
        events,
        period: 1_000_000_000 / u64::from(options.frequency.max(1)),
    };

    collector.recorder.follow_children()?;
    let child = target::start(&options.command, &injection, user.as_ref());
    collector.recorder.forget_children()?;
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            outputs.remove_recording();
            return Err(error.into());
        }
    };
    priority::raise();
    if options.verbose {
        eprintln!("warpscope: recording process {}", child.id());
    }
    let deadline = options.duration.map(|d| Instant::now() + Duration::from_secs_f64(d));
    let mut status = collector.run(Until::CommandEnds(&mut child), deadline).context("cannot wait for the command")?;
    let (ended, ended_at) = (Instant::now(), bpf::now());
    if status.is_none() {
        collector.note_stop(options.duration.unwrap_or(0.0), &child);
    }
    collector.end_sessions();
    collector.drain();
    if sample_hz.is_some() {
        collector.kept.keep_bpf_programs();
    }
    let Collector { sink, recorder, sessions, unwinding, signals, mut kept, .. } = collector;
    let tables = unwinding.made();
    let recognised = sessions.as_ref().map_or(0, Sessions::recognised);
    // Detached before the outputs are made: whoever still runs is rid of us.
    drop((recorder, sessions, unwinding));
    let ending = (options.kill && status.is_none()).then(|| Ending::begin(&child));
    let end = End { time: ended_at, status: status.map(ExitStatusExt::into_raw) };
    let (profile, failure) = sink.finish(end, &mut kept, &wishes(&options));
    drop(kept);
    let mut whole = failure.is_none();
    if let Some(failure) = failure {
        say(failure);
    }
    let view = view::default(&profile);
    whole &= outputs.write(&profile, view, whole);
    if options.verbose {
        eprintln!(
            "warpscope: unwind tables of {} files have {} rows ({:.1} MiB) and took {:.3} s of CPU time",
            tables.files,
            tables.rows,
            (tables.rows * size_of::<unwind::Row>() as u64) as f64 / f64::from(1 << 20),
            tables.time.as_secs_f64()
        );
        eprintln!(
            "warpscope: the program recognised the stacks of {recognised} of {} launches",
            profile.ledger.launches
        );
        eprintln!("warpscope: outputs were ready {:.3} s after the command's end", ended.elapsed().as_secs_f64());
    }
    if !options.quiet {
        summary::print(&profile, &mut || outputs.events())?;
        outputs.announce(&mut std::io::stderr())?;
        events::announce(&profile, view, outputs.recording_path());
    }
    let mut ended_by_us = false;
    if let Some(ending) = ending {
        let ended = ending.wait(&mut child, &signals).context("cannot wait for the command")?;
        ended_by_us = ended.signal().is_some_and(|signal| Ending::SIGNALS.contains(&signal));
        status = Some(ended);
    } else if status.is_none() {
        if !options.quiet {
            eprintln!("warpscope: recording ended after {} s; the command runs on", options.duration.unwrap_or(0.0));
        }
        status = Some(signals.wait_for(&mut child).context("cannot wait for the command")?);
    }
    // Not before: what the command starts still finds the libraries that its environment names.
    drop(workspace);
    let status = status.expect("waited for");
    Ok(match status.success() || ended_by_us {
        true => ExitCode::from(u8::from(!whole)),
        false => target::end_like(status),
    })
}

/// How names are to be.
fn wishes(options: &args::Record) -> Wishes {
    let homes =
        [std::env::var_os("HOME").map(PathBuf::from), User::behind_sudo().and_then(|u| u.home).map(PathBuf::from)];
    let debug_files = DebugFiles::new(&options.debug_dir, &homes.into_iter().flatten().collect::<Vec<_>>());
    Wishes { injector: INJECTOR, lines: options.lines, debug_files, ..Wishes::default() }
}

fn start(options: &args::Record, mode: Mode) -> Start {
    Start {
        time: bpf::now(),
        wall_clock: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
        version: env!("CARGO_PKG_VERSION").into(),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        command: match &options.title {
            Some(title) => vec![title.clone()],
            None => options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        },
        mode,
        frequency: if matches!(mode, Mode::GpuOnly | Mode::EventsOnly) { 0 } else { options.frequency },
    }
}
