//! `.json`: a timeline in the Chrome trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing.
//!
//! Threads show launches, CPU samples and traced calls; GPUs show one track per stream; arrows connect each launch to
//! the work it caused. Times are microseconds from the recording's start. The file is written while the recording is
//! read: only events that wait for their launch are kept.

use std::io::{self, Write};

use analysis::trace::reading::Reader;
use analysis::{
    Events,
    flame_tree::View,
    names::{self, SessionKernels},
};
use model::{
    causes::Joined,
    event::{
        Energy, Event, Gpm, Launch, LaunchKind, Pause, PmSamples, ProcessId, Range, Sample, SessionId, Sync, Uuid, Work,
    },
    gpu_counters::Source,
    profile::Profile,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{
    formats::chrome::{
        json::Json,
        stacks::Stacks,
        tracks::{Tracks, gpu_pid},
    },
    formats::json_object::Object,
    lanes::Lanes,
    launch_lengths::Launched,
    moments::{Moment, each_moment},
    power::Power,
};

mod calls;
mod json;
mod stacks;
mod tracks;

/// The displayed length of a launch: its start is known, its end is not.
const LAUNCH_NS: u64 = 1_000;

/// Writes the timeline of a recording.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace {
        profile,
        origin: profile.start.as_ref().map_or(0, |start| start.time),
        tracks: Tracks::new(profile),
        kernels: SessionKernels::new(profile),
        stacks: Stacks::new(profile),
        lanes: FxHashMap::default(),
        is_trace: profile.is_trace(),
        power: Power::new(profile),
        reader: Reader::for_second_pass(profile),
        json: Json::new(out),
    };
    trace.json.file()?.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    trace.events(view, events)?;
    trace.tracks.write(profile, &trace.lanes, &mut trace.json)?;
    let out = trace.json.file()?;
    out.write_all(b"\n],\"stackFrames\":")?;
    trace.stacks.write(out)?;
    out.write_all(b",\"otherData\":")?;
    serde_json::to_writer(&mut *out, &Other::of(profile))?;
    out.write_all(b"}\n")?;
    out.flush()
}

/// Metadata of the whole trace.
#[derive(Serialize)]
struct Other<'a> {
    version: &'a str,
    host: &'a str,
    command: String,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    filters: &'a [String],
    unix_ns: u64,
    ledger: &'a model::ledger::Ledger,
    notes: &'a [String],
}

impl<'a> Other<'a> {
    fn of(profile: &'a Profile) -> Self {
        let start = profile.start.as_ref();
        Self {
            version: start.map_or("", |s| &s.version),
            host: start.map_or("", |s| &s.host),
            command: start.map(|s| s.command.join(" ")).unwrap_or_default(),
            filters: profile.filters(),
            unix_ns: start.map_or(0, |s| s.wall_clock),
            ledger: &profile.ledger,
            notes: &profile.notes,
        }
    }
}

/// One event of the format. `ph`: X is a slice, i an instant, C the value of a counter. An arrow leads from the slice with
/// `flow_out` to those with `flow_in` and the same `bind_id`.
struct Entry<'a> {
    ph: &'static str,
    name: &'a str,
    cat: &'static str,
    track: (u32, u32),
    /// Microseconds of both are written.
    ts: Time,
    dur: Option<u64>,
    arrow: Option<Arrow>,
    /// An instant belongs to its thread (t), or to all (g).
    s: Option<&'static str>,
    /// The innermost frame of its stack.
    sf: Option<u32>,
}

/// Whether it is before the start of the recording, and the nanoseconds between both.
type Time = (bool, u64);

/// The arrow from a launch to its work, and which end of it this is.
#[derive(Clone, Copy)]
struct Arrow {
    session: SessionId,
    correlation: u32,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Launch,
    Work,
}

impl<'a> Entry<'a> {
    fn new(ph: &'static str, name: &'a str, cat: &'static str, track: (u32, u32), ts: Time) -> Self {
        Self { ph, name, cat, track, ts, dur: None, arrow: None, s: None, sf: None }
    }

    /// Begins the arrow to the work of a launch.
    fn launches(&mut self, session: SessionId, correlation: u32) {
        self.arrow = Some(Arrow { session, correlation, end: End::Launch });
    }

    fn write(&self, object: &mut Object<'_>) {
        object.word(b"ph", self.ph);
        object.text(b"name", self.name);
        object.word(b"cat", self.cat);
        object.number(b"pid", self.track.0);
        object.number(b"tid", self.track.1);
        object.micros(b"ts", self.ts);
        if let Some(dur) = self.dur {
            object.micros(b"dur", (false, dur));
        }
        if let Some(Arrow { session, correlation, end }) = self.arrow {
            object.number(b"bind_id", u64::from(session.0) << 32 | u64::from(correlation));
            match end {
                End::Launch => object.flag(b"flow_out"),
                End::Work => object.flag(b"flow_in"),
            }
        }
        if let Some(s) = self.s {
            object.word(b"s", s);
        }
        if let Some(sf) = self.sf {
            object.number(b"sf", sf);
        }
    }
}

struct Trace<'a> {
    profile: &'a Profile,
    origin: u64,
    tracks: Tracks,
    kernels: SessionKernels<'a>,
    stacks: Stacks<'a>,
    lanes: FxHashMap<u32, Lanes>,
    /// Launches are inside the calls that made them, and need no slices of their own.
    is_trace: bool,
    power: Power,
    reader: Reader,
    json: Json<'a>,
}

impl Trace<'_> {
    fn events(&mut self, view: View, events: Events<'_>) -> io::Result<()> {
        each_moment(view, events, |moment| match moment {
            Moment::Seen(event) => {
                self.reader.learn(event);
                Ok(())
            }
            Moment::Shown(Event::KernelName(name)) => {
                self.kernels.learn(name);
                Ok(())
            }
            Moment::Launch(launch) if !self.is_trace => self.launch(launch),
            Moment::Ran(joined) => self.activity(joined),
            Moment::Shown(Event::Sync(sync)) => self.sync(sync),
            Moment::Shown(Event::Pause(pause)) => self.pause(pause),
            Moment::Shown(Event::Energy(reading)) => self.energy(reading),
            Moment::Shown(Event::Gpm(gpm)) => self.gpm(gpm),
            Moment::Shown(Event::PmSamples(samples)) => self.pm(samples),
            Moment::Shown(Event::Sample(sample)) => self.sample(sample),
            Moment::Shown(Event::Call(call)) => self.call(call),
            Moment::Shown(Event::Switch(switch)) => self.switch(switch),
            Moment::Shown(Event::Range(range)) => self.range(range),
            Moment::Shown(Event::Dump(dump)) => {
                let mut mark = Entry::new("i", &dump.text, "dump", (0, 0), self.at(dump.time));
                mark.s = Some("g");
                self.json.event(|event| mark.write(event))
            }
            Moment::Launch(_) | Moment::Shown(_) => Ok(()),
        })?;
        Ok(())
    }

    /// Launches of a thread must not overlap, or viewers drop them: one of unknown length ends where the next begins.
    fn launch(&mut self, &Launched { launch, end, next }: &Launched) -> io::Result<()> {
        let to_next = next.map_or(LAUNCH_NS, |next| next.saturating_sub(launch.time));
        let length = end.map_or(LAUNCH_NS.min(to_next), |end| end - launch.time);
        let name = match launch.kind {
            LaunchKind::Kernel => "launch kernel",
            LaunchKind::Copy => "launch copy",
            LaunchKind::Memset => "launch memset",
            LaunchKind::Graph => "launch graph",
        };
        let track = self.thread(launch.process, launch.tid);
        let mut slice = Entry::new("X", name, "launch", track, self.at(launch.time));
        slice.dur = Some(length);
        slice.sf = Some(self.stacks.get(launch.stack));
        slice.launches(launch.session, launch.correlation);
        self.json.event(|event| {
            slice.write(event);
            event.object(b"args", |args| {
                args.number(b"correlation", launch.correlation);
                args.number(b"session", launch.session.0);
                args.number(b"cpu", launch.cpu);
            });
        })
    }

    fn activity(&mut self, joined: &Joined<'_>) -> io::Result<()> {
        let &Joined { launch, activity, capture } = joined;
        // Without times it has no position on a timeline; the ledger counts it.
        if activity.start == 0 || activity.end < activity.start {
            return Ok(());
        }
        let duration = activity.duration();
        let category = match activity.work {
            Work::Kernel { .. } => "kernel",
            Work::Copy { .. } => "copy",
            Work::Memset { .. } => "memset",
        };
        let capture = capture.map(|capture| self.stacks.get(capture));
        let (pid, first) = self.tracks.stream(self.profile, activity);
        let track = (pid, self.lanes.entry(first).or_default().place(first, activity.start, activity.end));
        let mut slice = Entry::new("X", self.kernels.operation(activity), category, track, self.at(activity.start));
        slice.dur = Some(duration);
        if let Some(&Launch { session, correlation, stack, .. }) = launch {
            slice.sf = Some(self.stacks.get(stack));
            slice.arrow = Some(Arrow { session, correlation, end: End::Work });
        }
        self.json.event(|event| {
            slice.write(event);
            event.object(b"args", |args| {
                match activity.work {
                    Work::Kernel { grid, block, registers, shared_memory, .. } => {
                        args.numbers(b"grid", grid);
                        args.numbers(b"block", block);
                        args.number(b"registers", registers);
                        args.number(b"shared_memory", shared_memory);
                    }
                    Work::Copy { bytes, .. } | Work::Memset { bytes, .. } => {
                        args.number(b"bytes", bytes);
                        if duration > 0 {
                            args.value("GB/s", &round(bytes as f64 / duration as f64));
                        }
                    }
                }
                args.number(b"correlation", activity.correlation);
                args.number(b"session", activity.session.0);
                if activity.graph_node != 0 {
                    args.number(b"graph_node", activity.graph_node);
                }
                // The innermost frame of the stack that created the node.
                if let Some(capture) = capture {
                    args.number(b"capture", capture);
                }
            });
        })
    }

    fn sync(&mut self, sync: &Sync) -> io::Result<()> {
        if sync.start == 0 || sync.end < sync.start {
            return Ok(());
        }
        let (pid, first) = self.tracks.waits(self.profile, sync.session);
        let track = (pid, self.lanes.entry(first).or_default().place(first, sync.start, sync.end));
        let mut slice = Entry::new("X", names::sync(sync.kind), "wait", track, self.at(sync.start));
        slice.dur = Some(sync.end - sync.start);
        self.json.event(|event| {
            slice.write(event);
            event.object(b"args", |args| {
                args.number(b"correlation", sync.correlation);
                args.number(b"context", sync.context);
                if sync.stream != u32::MAX {
                    args.number(b"stream", sync.stream);
                }
            });
        })
    }

    /// Writes a time without records, once its end is known.
    fn pause(&mut self, pause: &Pause) -> io::Result<()> {
        if pause.to == u64::MAX {
            return Ok(());
        }
        let (pid, first) = self.tracks.waits(self.profile, pause.session);
        let track = (pid, self.lanes.entry(first).or_default().place(first, pause.from, pause.to));
        let name = names::pause(pause);
        let mut slice = Entry::new("X", &name, "pause", track, self.at(pause.from));
        slice.dur = Some(pause.to.saturating_sub(pause.from));
        self.json.event(|event| slice.write(event))
    }

    /// Writes the power up to a reading, from the one before on.
    fn energy(&mut self, reading: &Energy) -> io::Result<()> {
        let Some((device, start, watts)) = self.power.read(reading) else { return Ok(()) };
        let value = Entry::new("C", "power (NVML)", "power", (gpu_pid(device), 0), self.at(start));
        self.json.event(|event| {
            value.write(event);
            event.object(b"args", |args| args.value("W", &round(watts)));
        })
    }

    /// Writes what a performance monitor measured between two samples, from the first on.
    fn gpm(&mut self, gpm: &Gpm) -> io::Result<()> {
        self.counters(Source::Gpm, gpm.gpu, gpm.start, gpm.readings())
    }

    /// Writes samples of counters, each from its beginning on.
    fn pm(&mut self, samples: &PmSamples) -> io::Result<()> {
        for (start, _, readings) in samples.readings() {
            self.counters(Source::Pm, samples.gpu, start, readings)?;
        }
        Ok(())
    }

    fn counters(
        &mut self,
        source: Source,
        gpu: Uuid,
        time: u64,
        values: impl Iterator<Item = (u32, f64)>,
    ) -> io::Result<()> {
        let Some(device) = self.profile.device_of_gpu(gpu) else { return Ok(()) };
        for (number, value) in values {
            let Some((name, unit)) = source.metric(number) else { continue };
            let name = format!("{name} ({})", source.text());
            let category = if source == Source::Gpm { "gpm" } else { "pm" };
            let entry = Entry::new("C", &name, category, (gpu_pid(device), 0), self.at(time));
            self.json.event(|event| {
                entry.write(event);
                event.object(b"args", |args| args.value(unit.text(), &value));
            })?;
        }
        Ok(())
    }

    fn range(&mut self, range: &Range) -> io::Result<()> {
        let track = self.tracks.ranges(self.profile, range.session, range.tid);
        let ranges = &self.profile.ranges;
        let name = ranges.path(ranges.number(range.session, range.path)).pop().unwrap_or("[unknown]");
        let ts = self.at(range.start);
        let mut entry = Entry::new(if range.mark { "i" } else { "X" }, name, "nvtx", track, ts);
        if range.mark {
            entry.s = Some("t");
        } else {
            entry.dur = Some(range.end.saturating_sub(range.start));
        }
        self.json.event(|event| entry.write(event))
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let track = self.thread(sample.process, sample.tid);
        let ts = self.at(sample.time);
        let innermost = self.stacks.get(sample.stack);
        let name = self.stacks.name(innermost);
        let mut instant = Entry::new("i", &name, "sample", track, ts);
        (instant.s, instant.sf) = (Some("t"), Some(innermost));
        self.json.event(|event| {
            instant.write(event);
            event.object(b"args", |args| args.number(b"cpu", sample.cpu));
        })
    }

    fn thread(&mut self, process: ProcessId, tid: u32) -> (u32, u32) {
        self.tracks.thread(self.profile, process, tid)
    }

    fn at(&self, time: u64) -> Time {
        (time < self.origin, time.abs_diff(self.origin))
    }
}

fn round(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}
