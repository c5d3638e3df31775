//! `.pftrace`: a timeline in Perfetto's native format (ui.perfetto.dev, trace_processor).
//!
//! The schema is Perfetto's `protos/perfetto/trace`; the field numbers below are its numbers. Threads show launches, calls and
//! CPU samples with their stacks; GPUs show one track per stream; arrows (flows) connect each launch to the work it caused, and
//! the ranks' kernels of an operation of a communicator, in the order of their starts. Names and stacks are written once and then referred to by number. The file is written while the recording is read; viewers
//! sort it by time.

use std::io::{self, Write};

use analysis::trace::reading::Reader;
use analysis::{
    Events,
    flame_tree::View,
    names::{self, SessionKernels},
};
use interned::Interned;
use model::{
    causes::Joined,
    event::{
        Energy, Event, Gpm, KernelName, Launch, LaunchKind, Pause, PmSamples, ProcessId, Sample, SessionId, Sync, Uuid,
        Work,
    },
    gpu_counters::Source,
    profile::Profile,
};
use packets::{Packets, Point};
use rustc_hash::FxHashMap;
use tracks::{Track, Tracks};

use crate::{
    formats::html::overview::Overview,
    formats::proto::Message,
    lanes::Lanes,
    launch_lengths::Launched,
    moments::{Moment, each_moment},
    power::Power,
};

mod calls;
mod interned;
mod packets;
mod tracks;

/// Writes the timeline of a recording.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace {
        profile,
        packets: Packets::new(profile, out)?,
        interned: Interned::new(profile),
        tracks: Tracks::default(),
        kernels: SessionKernels::new(profile),
        kernel_names: FxHashMap::default(),
        lanes: FxHashMap::default(),
        overview: Overview::new(profile),
        power: Power::new(profile),
        collectives: collectives(profile),
        reader: Reader::for_second_pass(profile),
    };
    trace.about()?;
    trace.events(view, events)?;
    trace.counters()?;
    trace.packets.flush()
}

struct Trace<'a> {
    profile: &'a Profile,
    packets: Packets<'a>,
    interned: Interned<'a>,
    tracks: Tracks,
    kernels: SessionKernels<'a>,
    /// Numbers of names that are already interned.
    kernel_names: FxHashMap<(SessionId, u32), u64>,
    lanes: FxHashMap<Track, Lanes>,
    overview: Overview,
    power: Power,
    /// The arrows between kernels of an operation of a communicator.
    collectives: FxHashMap<(SessionId, u64), (u64, bool)>,
    reader: Reader,
}

impl Trace<'_> {
    fn events(&mut self, view: View, events: Events<'_>) -> io::Result<()> {
        each_moment(view, events, |moment| match moment {
            Moment::Seen(event) => {
                self.reader.learn(event);
                Ok(())
            }
            Moment::Shown(Event::KernelName(name)) => {
                self.learn(name);
                Ok(())
            }
            Moment::Launch(launch) => self.launch(launch),
            Moment::Ran(joined) => self.activity(joined),
            Moment::Shown(Event::Sync(sync)) => self.sync(sync),
            Moment::Shown(Event::Pause(pause)) => self.pause(pause),
            Moment::Shown(Event::Energy(reading)) => self.energy(reading),
            Moment::Shown(Event::Gpm(gpm)) => self.gpm(gpm),
            Moment::Shown(Event::PmSamples(samples)) => self.pm(samples),
            Moment::Shown(Event::Sample(sample)) => self.sample(sample),
            Moment::Shown(Event::Call(call)) => self.call(call),
            Moment::Shown(Event::Switch(switch)) => self.switch(switch),
            Moment::Shown(Event::Wait(wait)) => self.wait(wait),
            Moment::Shown(Event::Range(range)) => self.range(range),
            Moment::Shown(Event::Dump(dump)) => {
                let (track, name) = (self.track(Track::About)?, self.interned.name(&dump.text));
                self.packets.instant(&mut self.interned, Point { time: dump.time, track, name }, |_| {})
            }
            Moment::Shown(_) => Ok(()),
        })
    }

    fn learn(&mut self, name: &KernelName) {
        self.kernels.learn(name);
        self.kernel_names.remove(&(name.session, name.id));
    }

    /// Writes a launch: an instant if its end was not recorded.
    fn launch(&mut self, &Launched { launch, end, .. }: &Launched) -> io::Result<()> {
        let name = match launch.kind {
            LaunchKind::Kernel => "launch kernel",
            LaunchKind::Copy => "launch copy",
            LaunchKind::Memset => "launch memset",
            LaunchKind::Graph => "launch graph",
        };
        let track = self.thread(launch.process, launch.tid)?;
        let name = self.interned.fixed_name(name);
        let stack = self.interned.stack(launch.stack);
        let point = Point { time: launch.time, track, name };
        let add = |event: &mut Message| {
            event.fixed(47, flow(&launch));
            event.number(56, stack);
        };
        match end {
            Some(end) => self.packets.slice(&mut self.interned, point, Some(end), add),
            None => self.packets.instant(&mut self.interned, point, add),
        }
    }

    fn activity(&mut self, joined: &Joined<'_>) -> io::Result<()> {
        let &Joined { launch, activity, capture } = joined;
        // Without times it has no position on a timeline; the ledger counts it.
        if activity.start == 0 || activity.end < activity.start {
            return Ok(());
        }
        let device = self.profile.device(activity.session, activity.device);
        let name = match activity.work {
            Work::Kernel { name, .. } => self.kernel(activity.session, name),
            Work::Copy { direction, .. } => self.interned.copy(direction),
            Work::Memset { .. } => self.interned.fixed_name("Memset"),
        };
        let capture = capture.map(|stack| self.interned.stack(stack));
        let collective = self.collectives.get(&(activity.session, activity.start)).copied();
        let details = Details::of(&activity.work, &mut self.interned);
        let stream = Track::Stream(device, activity.session, activity.context, activity.stream, 0);
        let track = self.lane(stream, activity.start, activity.end)?;
        let point = Point { time: activity.start, track, name };
        self.packets.slice(&mut self.interned, point, Some(activity.end), |event| {
            if let Some(launch) = launch {
                // One launch of a graph leads to many operations: none of them ends the flow.
                event.fixed(if activity.graph_node == 0 { 48 } else { 47 }, flow(launch));
            }
            if let Some((id, is_last)) = collective {
                event.fixed(if is_last { 48 } else { 47 }, id);
            }
            details.add(event);
            if let Some(stack) = capture {
                event.number(56, stack);
            }
        })?;
        let start = self.packets.relative(activity.start);
        self.overview.gpu(device, start, activity.duration());
        Ok(())
    }

    fn kernel(&mut self, session: SessionId, id: u32) -> u64 {
        if let Some(&known) = self.kernel_names.get(&(session, id)) {
            return known;
        }
        let name = self.interned.name(self.kernels.name(session, id));
        self.kernel_names.insert((session, id), name);
        name
    }

    fn sync(&mut self, sync: &Sync) -> io::Result<()> {
        if sync.start == 0 || sync.end < sync.start {
            return Ok(());
        }
        let name = self.interned.fixed_name(names::sync(sync.kind));
        let track = self.lane(Track::Waits(sync.session, 0), sync.start, sync.end)?;
        let point = Point { time: sync.start, track, name };
        self.packets.slice(&mut self.interned, point, Some(sync.end), |_| {})
    }

    /// Writes a time without records, once its end is known.
    fn pause(&mut self, pause: &Pause) -> io::Result<()> {
        if pause.to == u64::MAX {
            return Ok(());
        }
        let name = self.interned.name(&names::pause(pause));
        let track = self.lane(Track::Waits(pause.session, 0), pause.from, pause.to)?;
        let point = Point { time: pause.from, track, name };
        self.packets.slice(&mut self.interned, point, Some(pause.to), |_| {})
    }

    /// Writes the power up to a reading, from the one before on.
    fn energy(&mut self, reading: &Energy) -> io::Result<()> {
        let Some((device, start, watts)) = self.power.read(reading) else { return Ok(()) };
        let track = self.track(Track::Power(device))?;
        self.packets.counter(start, track, watts)
    }

    /// Writes what a performance monitor measured between two samples, from the first on.
    fn gpm(&mut self, gpm: &Gpm) -> io::Result<()> {
        self.gpu_counters(Source::Gpm, gpm.gpu, gpm.start, gpm.readings())
    }

    /// Writes samples of counters, each from its beginning on.
    fn pm(&mut self, samples: &PmSamples) -> io::Result<()> {
        for (start, _, readings) in samples.readings() {
            self.gpu_counters(Source::Pm, samples.gpu, start, readings)?;
        }
        Ok(())
    }

    fn gpu_counters(
        &mut self,
        source: Source,
        gpu: Uuid,
        time: u64,
        values: impl Iterator<Item = (u32, f64)>,
    ) -> io::Result<()> {
        let Some(device) = self.profile.device_of_gpu(gpu) else { return Ok(()) };
        for (number, value) in values.filter(|(number, _)| source.metric(*number).is_some()) {
            let track = self.track(Track::Counter(device, source, number))?;
            self.packets.counter(time, track, value)?;
        }
        Ok(())
    }

    /// Writes a CPU sample. Its weight is the time that it stands for, in nanoseconds.
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        // Names the thread, which the sample refers to by its numbers.
        self.thread(sample.process, sample.tid)?;
        let pid = self.pid(sample.process);
        let stack = self.interned.stack(sample.stack);
        self.packets.with_state(&mut self.interned, sample.time, |packet| {
            packet.message(66, |perf| {
                perf.number(1, sample.cpu.into());
                perf.number(2, pid.into());
                perf.number(3, sample.tid.into());
                perf.number(4, stack);
                perf.number(6, sample.weight);
            });
        })?;
        let time = self.packets.relative(sample.time);
        self.overview.cpu(time, sample.weight);
        Ok(())
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.profile.processes.get(&process).map_or(0, |info| info.pid)
    }

    fn thread(&mut self, process: ProcessId, tid: u32) -> io::Result<u64> {
        self.track(Track::Thread(process, tid))
    }

    fn track(&mut self, track: Track) -> io::Result<u64> {
        self.tracks.id(self.profile, track, &mut self.packets)
    }

    /// Returns the track for a slice that may overlap others on its track: lanes with one name, which viewers show as one.
    fn lane(&mut self, track: Track, start: u64, end: u64) -> io::Result<u64> {
        let lane = self.lanes.entry(track).or_default().place(0, start, end);
        self.track(track.lane(lane))
    }

    /// Writes the averages of running operations and threads.
    fn counters(&mut self) -> io::Result<()> {
        let interval = self.overview.interval_ns;
        let origin = self.profile.start.as_ref().map_or(0, |start| start.time);
        let (gpus, cpu) = self.overview.bins();
        let counters = gpus.iter().map(|(device, bins)| (Track::Running(*device), bins));
        let all: Vec<(Track, Vec<u64>)> =
            counters.chain([(Track::OnCpu, cpu)]).map(|(track, bins)| (track, bins.clone())).collect();
        for (track, bins) in all {
            if bins.iter().all(|ns| *ns == 0) {
                continue;
            }
            let id = self.track(track)?;
            let mut last = None;
            for (bin, ns) in bins.into_iter().enumerate() {
                if last.replace(ns) != Some(ns) {
                    let time = origin.saturating_add(bin as u64 * interval);
                    self.packets.counter(time, id, ns as f64 / interval as f64)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what concerns the whole recording, as an instant with arguments.
    fn about(&mut self) -> io::Result<()> {
        let profile = self.profile;
        let track = self.track(Track::About)?;
        let name = self.interned.name("recording");
        let ledger = serde_json::to_string(&profile.ledger)?;
        let start = profile.start.as_ref();
        let command = start.map(|start| start.command.join(" ")).unwrap_or_default();
        let notes = profile.notes.join("\n");
        let texts = [
            ("command", command.as_str()),
            ("host", start.map_or("", |start| &start.host)),
            ("version", start.map_or("", |start| &start.version)),
            ("notes", &notes),
        ];
        let point = Point { time: start.map_or(0, |start| start.time), track, name };
        self.packets.instant(&mut self.interned, point, |event| {
            for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                annotation(event, name, |value| value.text(6, text));
            }
            annotation(event, "ledger", |value| value.text(9, &ledger));
        })
    }
}

/// Adds an argument whose name is not interned.
fn annotation(event: &mut Message, name: &str, value: impl FnOnce(&mut Message)) {
    event.message(4, |annotation| {
        annotation.text(10, name);
        value(annotation);
    });
}

/// The arguments of GPU work.
enum Details {
    /// The number of a kernel's shape.
    Shape(u64, u64),
    /// The size of a copy or memset.
    Bytes(u64, u64),
}

impl Details {
    fn of(work: &Work, interned: &mut Interned<'_>) -> Self {
        match *work {
            Work::Kernel { .. } => Self::Shape(interned.argument("shape"), interned.shape(work)),
            Work::Copy { bytes, .. } | Work::Memset { bytes, .. } => Self::Bytes(interned.argument("bytes"), bytes),
        }
    }

    fn add(&self, event: &mut Message) {
        event.message(4, |annotation| match *self {
            Self::Shape(name, shape) => {
                annotation.number(1, name);
                annotation.number(17, shape);
            }
            Self::Bytes(name, bytes) => {
                annotation.number(1, name);
                annotation.number(3, bytes);
            }
        });
    }
}

/// Returns the arrows between the kernels of each operation of a communicator, by the start of each member's first kernel: the number
/// that all have in common, and whether it is the last one to begin, where the arrows end.
fn collectives(profile: &Profile) -> FxHashMap<(SessionId, u64), (u64, bool)> {
    let all = &profile.communication;
    let mut arrows = FxHashMap::default();
    for (number, operation) in (1_u64..).zip(&all.operations) {
        let members = all.members_of(operation);
        let last = members.iter().max_by_key(|member| (member.start, member.session));
        for member in members {
            let id = number.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ operation.communicator;
            arrows.insert((member.session, member.start), (id, last == Some(member)));
        }
    }
    arrows
}

/// Returns the number of the arrows from a launch. Correlation ids wrap around, so the time is a part of it.
fn flow(launch: &Launch) -> u64 {
    let id = u64::from(launch.session.0) << 32 | u64::from(launch.correlation);
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ launch.time
}
