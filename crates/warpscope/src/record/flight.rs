//! `record --last`: the flight recorder. Each dump is written by a thread of its own, while events continue to arrive.

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitStatus,
    thread::{self, JoinHandle},
};

use analysis::Flames;
use anyhow::bail;
use collect::{
    command::user::User,
    flight::{self, Dumper, Flight, slow::Slow},
    sink::{Recording, Sink as _},
};
use model::{
    event::{Dump, DumpReason, Event},
    window::{Cut, Limits, Reason},
};
use symbols::Kept;
use text::units::time;

use super::write::Style;
use crate::{
    args,
    outputs::Outputs,
    say::{say, sentence},
    steps,
};

/// The most limits on functions.
const MOST_SLOW: usize = 16;

/// Adds what the flight recorder needs: whoever asks for failed allocations wants to know who held the memory.
pub fn imply(options: &mut args::Record) {
    options.memory |= options.flight.on_error;
}

/// Returns what the options select. `program` is the recorded program.
pub fn options(options: &args::Record, program: &str) -> anyhow::Result<Option<flight::Options>> {
    let args::Flight { last, last_size, on_error, on_idle, on_slow, dumps } = &options.flight;
    let Some(last) = last else { return Ok(None) };
    let ns = |name: &str, seconds: f64| -> anyhow::Result<u64> {
        if !seconds.is_finite() || !(0.1..=86_400.0).contains(&seconds) {
            bail!("{name} expects a time between 0.1 and 86400 seconds, such as 30s");
        }
        Ok((seconds * 1e9) as u64)
    };
    if on_slow.len() > MOST_SLOW {
        bail!("--on-slow can be given at most {MOST_SLOW} times");
    }
    if (*on_error || on_idle.is_some()) && (options.cpu_only || options.events_only) {
        bail!("--on-error and --on-idle need GPU activity, which --cpu-only and --events-only do not record");
    }
    Ok(Some(flight::Options {
        limits: Limits { ns: ns("--last", *last)?, bytes: *last_size },
        dumps: *dumps,
        memory: options.memory,
        on_error: *on_error,
        on_idle: on_idle.map(|seconds| ns("--on-idle", seconds)).transpose()?,
        on_slow: on_slow.iter().map(|text| Slow::parse(text, program)).collect::<anyhow::Result<_>>()?,
    }))
}

/// Where dumps are written, and how.
#[derive(Clone)]
pub struct Place {
    pub paths: Vec<PathBuf>,
    pub defaults: &'static [&'static str],
    pub user: Option<User>,
    pub style: Style,
    pub quiet: bool,
}

impl Place {
    /// Writes a dump to files with the next free number, and calls `then` with it. Returns whether it is whole.
    pub fn write(&self, cut: &Cut, mut kept: Kept, then: impl FnOnce(&Flames<'_>, &Outputs)) -> anyhow::Result<bool> {
        let mut outputs = Outputs::open_numbered(&self.paths, self.defaults, self.user.as_ref())?;
        let (file, path) = outputs.recording()?;
        let mut sink = Recording::new(file, path).inspect_err(|_| outputs.remove_recording())?;
        cut.events(|event: &Event| sink.push(event));
        let (mut profile, recorded) = self.style.finish(sink, cut.end, &mut kept);
        if !self.quiet || outputs.has_steps() {
            steps::complete(&mut profile, &mut || outputs.events());
        }
        let flames = Flames::new(&profile);
        let whole = self.style.write(&flames, &mut outputs, recorded);
        then(&flames, &outputs);
        Ok(whole)
    }
}

/// Writes dumps in the background, one at a time.
pub struct Background {
    place: Place,
    running: Option<JoinHandle<bool>>,
    /// All dumps are whole.
    pub whole: bool,
}

impl Background {
    /// Creates a writer that has nothing to do yet.
    pub fn new(mut place: Place) -> Self {
        // The terminal belongs to the command, or to the status of the recording.
        place.style.shows_progress = false;
        Self { place, running: None, whole: true }
    }

    /// Waits for the dump that is being written.
    pub fn wait(&mut self) {
        let Some(running) = self.running.take() else { return };
        self.whole &= running.join().unwrap_or_else(|_| {
            say("a dump was not written, because of an error in warpscope");
            false
        });
    }
}

impl Dumper for Background {
    fn is_busy(&mut self) -> bool {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait();
        }
        self.running.is_some()
    }

    fn write(&mut self, cut: Cut, kept: Kept) {
        let place = self.place.clone();
        let write = move || {
            let announce = |_: &Flames<'_>, outputs: &Outputs| {
                if !place.quiet {
                    say(announcement(&cut.dump));
                    // Nothing can be done if the terminal is gone.
                    let _ = outputs.announce(&mut std::io::stderr());
                }
            };
            place.write(&cut, kept, announce).unwrap_or_else(|error| {
                not_written(&cut.dump, &error);
                false
            })
        };
        match thread::Builder::new().name("dump".into()).spawn(write) {
            Ok(thread) => self.running = Some(thread),
            Err(error) => {
                say(format_args!("the dump was not written: cannot start a thread: {error}"));
                self.whole = false;
            }
        }
    }
}

/// Says that a dump is missing.
pub fn not_written(dump: &Dump, error: &anyhow::Error) {
    say(format_args!("the dump was not written ({}): {}", dump.text, sentence(error)));
}

/// Describes a dump in one line.
fn announcement(dump: &Dump) -> String {
    format!("dump of the last {}: {}", time(dump.time.saturating_sub(dump.from)), dump.text)
}

/// Ends the flight recorder: returns its last dump, once all others are written.
pub fn finish(flight: Flight<Background>, end: u64, status: Option<ExitStatus>, why: String) -> (Cut, Background) {
    let reason = Reason { time: end, kind: DumpReason::End, text: why };
    let (cut, mut background) = flight.finish(reason, status.map(ExitStatusExt::into_raw));
    background.wait();
    (cut, background)
}
