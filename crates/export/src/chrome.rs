//! `.json`: a timeline in the Chrome trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing.
//!
//! Threads show launches, CPU samples and traced calls; GPUs show one track per stream; arrows connect each launch to
//! the work it caused. Times are microseconds from the recording's start. The file is written while the recording is
//! read: only events that wait for their launch are kept.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
};

use model::{
    causes::Joined,
    event::{Energy, Gpm, Launch, LaunchKind, Pause, PmSamples, ProcessId, Range, Sample, SessionId, Sync, Uuid, Work},
    gpu_counters::Source,
    profile::Profile,
};
use serde::Serialize;

use crate::{
    chrome::{
        json::Json,
        stacks::Stacks,
        tracks::{Tracks, gpu_pid},
    },
    events::Events,
    flame::View,
    lanes::Lanes,
    launch_lengths::Launched,
    moments::{Moment, each_moment},
    names,
    names::SessionKernels,
    power::Power,
    trace::{is_trace, reading::Reader},
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
        lanes: HashMap::new(),
        flows: 0,
        is_trace: is_trace(profile),
        power: Power::new(profile),
        reader: Reader::again(profile),
        json: Json { out, buffer: Vec::new(), first: true },
    };
    trace.json.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    trace.events(view, events)?;
    trace.tracks.write(profile, &trace.lanes, &mut trace.json)?;
    trace.json.out.write_all(b"\n],\"stackFrames\":")?;
    trace.stacks.write(trace.json.out)?;
    trace.json.out.write_all(b",\"otherData\":")?;
    serde_json::to_writer(&mut *trace.json.out, &Other::of(profile))?;
    trace.json.out.write_all(b"}\n")?;
    trace.json.out.flush()
}

/// Metadata of the whole trace.
#[derive(Serialize)]
struct Other<'a> {
    version: &'a str,
    host: &'a str,
    command: String,
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
            unix_ns: start.map_or(0, |s| s.wall_clock),
            ledger: &profile.ledger,
            notes: &profile.notes,
        }
    }
}

/// One event of the format. `ph`: X is a slice, i an instant, s and f the ends of an arrow, C the value of a counter.
#[derive(Serialize)]
struct Entry<'a, A: Serialize> {
    ph: char,
    name: &'a str,
    cat: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// An arrow ends at the enclosing slice, not at the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<char>,
    /// An instant belongs to its thread (t), or to all (g).
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<char>,
    /// The innermost frame of its stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    sf: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
}

type NoArgs = ();

impl<'a, A: Serialize> Entry<'a, A> {
    fn new(ph: char, name: &'a str, cat: &'static str, (pid, tid): (u32, u32), ts: f64) -> Self {
        Self { ph, name, cat, pid, tid, ts, dur: None, id: None, bp: None, s: None, sf: None, args: None }
    }
}

#[derive(Serialize)]
struct LaunchArgs {
    correlation: u32,
    session: SessionId,
    cpu: u32,
}

#[derive(Serialize)]
struct SampleArgs {
    cpu: u32,
}

#[derive(Serialize)]
struct PowerArgs {
    #[serde(rename = "W")]
    watts: f64,
}

#[derive(Serialize)]
struct SyncArgs {
    correlation: u32,
    context: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<u32>,
}

#[derive(Default, Serialize)]
struct ActivityArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registers: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_memory: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(rename = "GB/s", skip_serializing_if = "Option::is_none")]
    gb_per_s: Option<f64>,
    correlation: u32,
    session: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_node: Option<u64>,
    /// The innermost frame of the stack that created the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<u32>,
}

struct Trace<'a> {
    profile: &'a Profile,
    origin: u64,
    tracks: Tracks,
    kernels: SessionKernels<'a>,
    stacks: Stacks<'a>,
    lanes: HashMap<u32, Lanes>,
    flows: u64,
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
            Moment::KernelName(name) => {
                self.kernels.learn(name);
                Ok(())
            }
            Moment::Launch(launch) if !self.is_trace => self.launch(launch),
            Moment::Ran(joined) => self.activity(joined),
            Moment::Sync(sync) => self.sync(sync),
            Moment::Pause(pause) => self.pause(pause),
            Moment::Energy(reading) => self.energy(reading),
            Moment::Gpm(gpm) => self.gpm(gpm),
            Moment::PmSamples(samples) => self.pm(samples),
            Moment::Sample(sample) => self.sample(sample),
            Moment::Call(call) => self.call(call),
            Moment::Switch(switch) => self.switch(switch),
            Moment::Range(range) => self.range(range),
            Moment::Dump(dump) => {
                let mut mark = Entry::<NoArgs>::new('i', &dump.text, "dump", (0, 0), self.at(dump.time));
                mark.s = Some('g');
                self.json.event(&mark)
            }
            Moment::Launch(_) | Moment::Wait(_) => Ok(()),
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
        let mut slice = Entry::new('X', name, "launch", track, self.at(launch.time));
        slice.dur = Some(micros(length));
        slice.sf = Some(self.stacks.get(launch.stack));
        slice.args = Some(LaunchArgs { correlation: launch.correlation, session: launch.session, cpu: launch.cpu });
        self.json.event(&slice)
    }

    fn activity(&mut self, joined: &Joined<'_>) -> io::Result<()> {
        let &Joined { launch, activity, capture } = joined;
        // Without times it has no position on a timeline; the ledger counts it.
        if activity.start == 0 || activity.end < activity.start {
            return Ok(());
        }
        let duration = activity.duration();
        let rate = |bytes: u64| (duration > 0).then(|| round(bytes as f64 / duration as f64));
        let mut args = ActivityArgs {
            correlation: activity.correlation,
            session: activity.session.0,
            graph_node: (activity.graph_node != 0).then_some(activity.graph_node),
            ..ActivityArgs::default()
        };
        let (name, category) = match activity.work {
            Work::Kernel { name, grid, block, registers, shared_memory } => {
                (args.grid, args.block) = (Some(grid), Some(block));
                (args.registers, args.shared_memory) = (Some(registers), Some(shared_memory));
                (self.kernels.name(activity.session, name).to_string(), "kernel")
            }
            Work::Copy { direction, bytes, .. } => {
                (args.bytes, args.gb_per_s) = (Some(bytes), rate(bytes));
                (format!("Memcpy {direction}"), "copy")
            }
            Work::Memset { bytes, .. } => {
                (args.bytes, args.gb_per_s) = (Some(bytes), rate(bytes));
                ("Memset".to_owned(), "memset")
            }
        };
        args.capture = capture.map(|capture| self.stacks.get(capture));
        let (pid, first) = self.tracks.stream(self.profile, activity);
        let track = (pid, self.lanes.entry(first).or_default().place(first, activity.start, activity.end));
        let mut slice = Entry::new('X', &name, category, track, relative(activity.start, self.origin));
        slice.dur = Some(micros(duration));
        slice.sf = launch.map(|launch| self.stacks.get(launch.stack));
        slice.args = Some(args);
        self.json.event(&slice)?;
        launch.map_or(Ok(()), |launch| self.arrow(launch, track, activity.start))
    }

    fn arrow(&mut self, launch: &Launch, to: (u32, u32), start: u64) -> io::Result<()> {
        self.flows += 1;
        let from = self.thread(launch.process, launch.tid);
        // One nanosecond into both slices, so that the ends are inside them whatever order viewers read them in.
        let mut tail = Entry::<NoArgs>::new('s', "launch", "flow", from, self.at(launch.time.saturating_add(1)));
        tail.id = Some(self.flows);
        self.json.event(&tail)?;
        let mut head = Entry::<NoArgs>::new('f', "launch", "flow", to, self.at(start.saturating_add(1)));
        (head.id, head.bp) = (Some(self.flows), Some('e'));
        self.json.event(&head)
    }

    fn sync(&mut self, sync: &Sync) -> io::Result<()> {
        if sync.start == 0 || sync.end < sync.start {
            return Ok(());
        }
        let (pid, first) = self.tracks.waits(self.profile, sync.session);
        let track = (pid, self.lanes.entry(first).or_default().place(first, sync.start, sync.end));
        let mut slice = Entry::new('X', names::sync(sync.kind), "wait", track, self.at(sync.start));
        slice.dur = Some(micros(sync.end - sync.start));
        let stream = (sync.stream != u32::MAX).then_some(sync.stream);
        slice.args = Some(SyncArgs { correlation: sync.correlation, context: sync.context, stream });
        self.json.event(&slice)
    }

    /// Writes a time without records, once its end is known.
    fn pause(&mut self, pause: &Pause) -> io::Result<()> {
        if pause.to == u64::MAX {
            return Ok(());
        }
        let (pid, first) = self.tracks.waits(self.profile, pause.session);
        let track = (pid, self.lanes.entry(first).or_default().place(first, pause.from, pause.to));
        let name = names::pause(pause);
        let mut slice = Entry::<NoArgs>::new('X', &name, "pause", track, self.at(pause.from));
        slice.dur = Some(micros(pause.to.saturating_sub(pause.from)));
        self.json.event(&slice)
    }

    /// Writes the power up to a reading, from the one before on.
    fn energy(&mut self, reading: &Energy) -> io::Result<()> {
        let Some((device, start, watts)) = self.power.read(reading) else { return Ok(()) };
        let mut value = Entry::new('C', "power (NVML)", "power", (gpu_pid(device), 0), self.at(start));
        value.args = Some(PowerArgs { watts: round(watts) });
        self.json.event(&value)
    }

    /// Writes what a performance monitor measured between two samples, from the first on.
    fn gpm(&mut self, gpm: &Gpm) -> io::Result<()> {
        let values = gpm.values.iter().map(|&(number, value)| (number, value as f64 / 1e3));
        self.counters(Source::Gpm, gpm.gpu, gpm.start, values)
    }

    /// Writes samples of counters, each from its beginning on.
    fn pm(&mut self, samples: &PmSamples) -> io::Result<()> {
        for (start, _, values) in samples.samples() {
            let values = values.iter().map(|value| f64::from(*value) / 1e2);
            self.counters(Source::Pm, samples.gpu, start, samples.metrics.iter().copied().zip(values))?;
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
            let mut entry = Entry::new('C', &name, category, (gpu_pid(device), 0), self.at(time));
            entry.args = Some(BTreeMap::from([(unit.text(), value)]));
            self.json.event(&entry)?;
        }
        Ok(())
    }

    fn range(&mut self, range: &Range) -> io::Result<()> {
        let track = self.tracks.ranges(self.profile, range.session, range.tid);
        let ranges = &self.profile.ranges;
        let name = ranges.path(ranges.number(range.session, range.path)).pop().unwrap_or("[unknown]");
        let ts = self.at(range.start);
        let mut entry = Entry::<NoArgs>::new(if range.mark { 'i' } else { 'X' }, name, "nvtx", track, ts);
        if range.mark {
            entry.s = Some('t');
        } else {
            entry.dur = Some(micros(range.end.saturating_sub(range.start)));
        }
        self.json.event(&entry)
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let track = self.thread(sample.process, sample.tid);
        let ts = self.at(sample.time);
        let innermost = self.stacks.get(sample.stack);
        let name = self.stacks.name(innermost);
        let mut instant = Entry::new('i', &name, "sample", track, ts);
        (instant.s, instant.sf) = (Some('t'), Some(innermost));
        instant.args = Some(SampleArgs { cpu: sample.cpu });
        self.json.event(&instant)
    }

    fn thread(&mut self, process: ProcessId, tid: u32) -> (u32, u32) {
        self.tracks.thread(self.profile, process, tid)
    }

    fn at(&self, time: u64) -> f64 {
        relative(time, self.origin)
    }
}

/// Microseconds from the start; negative before it.
fn relative(time: u64, origin: u64) -> f64 {
    if time >= origin { micros(time - origin) } else { -micros(origin - time) }
}

/// Microseconds: a double is exact to the nanosecond for 104 days.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn round(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}
