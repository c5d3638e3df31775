//! `.parquet/`: a directory of tables for SQL (DuckDB, pandas, Polars, Spark): one file per kind of event, and the stacks,
//! processes and totals that they refer to.
//!
//! All files are written at the same time, while the recording is read. Each row has the recording's name, so the tables of
//! many recordings can be read as one. The columns are listed in `docs/sql.md`.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
};

use analysis::names::{library, off_cpu};
use analysis::{
    Events,
    flame_tree::View,
    names::{self, SessionKernels},
    steps::warm_up_of,
    user_code::UserCode,
    waits,
};
use analysis::{tables, trace::reading::Reader};
use model::{
    causes::Joined,
    communication::Operation,
    event::{Call, Event, FrameKind, KernelCounter, LaunchKind, Layer, Pause, ProcessId, Range, Sample, SessionId},
    event::{StackId, Switch, Sync, Wait, Work},
    limits::METRICS,
    profile::Profile,
    ranges::RangedLaunches,
    steps::{Series, StepIndex},
};
use schema::Tables;
use table::Cell;

use crate::{
    launch_lengths::Launched,
    moments::{Moment, each_moment},
};

mod encoding;
mod schema;
mod table;
mod thrift;

pub use schema::FILES;

/// Writes the tables of a recording. `create` creates a file of the directory by its name, one of [`FILES`].
pub fn write<'a>(
    profile: &Profile,
    view: View,
    events: Events<'_>,
    create: &mut dyn FnMut(&str) -> io::Result<Box<dyn Write + 'a>>,
) -> io::Result<()> {
    let start = profile.start.as_ref();
    let recording = start.map_or_else(String::new, |start| format!("{}-{}", start.host, start.wall_clock));
    let mut writer = Recorded {
        profile,
        tables: Tables::create(create)?,
        recording,
        owners: HashMap::new(),
        kernels: SessionKernels::new(profile),
        ranged: RangedLaunches::default(),
        range_paths: HashMap::new(),
        stacks: HashMap::new(),
        own: HashSet::new(),
        user_code: UserCode::new(profile),
        reader: Reader::for_second_pass(profile),
        steps: StepIndex::new(profile_steps(profile)),
    };
    each_moment(view, events, |moment| writer.moment(&moment))?;
    writer.profile()?;
    writer.tables.finish()
}

struct Recorded<'a, 'b> {
    profile: &'a Profile,
    tables: Tables<'b>,
    /// The recording's name.
    recording: String,
    owners: HashMap<ProcessId, Owner>,
    kernels: SessionKernels<'a>,
    ranged: RangedLaunches,
    /// Paths of NVTX ranges as text, by their number.
    range_paths: HashMap<u32, String>,
    /// The number of each stack that is in the table of stacks.
    stacks: HashMap<StackId, u64>,
    /// Of these, those in warpscope's own code.
    own: HashSet<StackId>,
    user_code: UserCode<'a>,
    reader: Reader,
    steps: StepIndex,
}

/// What the columns `process`, `pid` and `rank` of a process contain.
#[derive(Clone, Copy)]
struct Owner {
    process: u32,
    pid: Option<u32>,
    rank: Option<u32>,
}

impl Recorded<'_, '_> {
    fn moment(&mut self, moment: &Moment<'_>) -> io::Result<()> {
        match *moment {
            Moment::Seen(Event::RangedLaunch(launch)) => self.ranged.note(launch, &self.profile.ranges),
            Moment::Seen(event) => self.reader.learn(event),
            Moment::Shown(Event::KernelName(name)) => self.kernels.learn(name),
            Moment::Launch(launch) => return self.launch(launch),
            Moment::Ran(joined) => return self.activity(joined),
            Moment::Shown(Event::Sync(sync)) => return self.sync(sync),
            Moment::Shown(Event::Pause(pause)) => return self.pause(pause),
            Moment::Shown(Event::Sample(sample)) => return self.sample(sample),
            Moment::Shown(Event::Call(call)) => return self.call(call),
            Moment::Shown(Event::Switch(switch)) => return self.switch(switch),
            Moment::Shown(Event::Wait(wait)) => return self.wait(wait),
            Moment::Shown(Event::Range(range)) => return self.range(range),
            Moment::Shown(Event::KernelCounter(counter)) => return self.counter(counter),
            Moment::Shown(_) => {}
        }
        Ok(())
    }

    fn owner(&mut self, process: ProcessId) -> Owner {
        let profile = self.profile;
        *self.owners.entry(process).or_insert_with(|| Owner {
            process: process.0,
            pid: profile.processes.get(&process).map(|info| info.pid),
            rank: profile.rank(process),
        })
    }

    fn session_process(&self, session: SessionId) -> ProcessId {
        self.profile.sessions.get(&session).map_or(ProcessId(0), |info| info.process)
    }

    fn launch(&mut self, &Launched { ref launch, end, .. }: &Launched) -> io::Result<()> {
        let (owner, stack) = (self.owner(launch.process), self.stack(launch.process, launch.stack)?);
        let kind = match launch.kind {
            LaunchKind::Kernel => "kernel",
            LaunchKind::Copy => "copy",
            LaunchKind::Memset => "memset",
            LaunchKind::Graph => "graph",
        };
        self.tables.launches.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            launch.tid.into(),
            launch.cpu.into(),
            launch.time.into(),
            end.into(),
            kind.into(),
            launch.session.0.into(),
            launch.correlation.into(),
            stack.into(),
        ])
    }

    fn activity(&mut self, joined: &Joined<'_>) -> io::Result<()> {
        let &Joined { launch, activity, capture } = joined;
        let process = launch.map_or_else(|| self.session_process(activity.session), |launch| launch.process);
        let owner = self.owner(process);
        let stack = capture.or(launch.map(|launch| launch.stack));
        let stack = stack.map(|stack| self.stack(process, stack)).transpose()?;
        let range = self.ranged.of(activity);
        let range = (range != 0).then(|| {
            let ranges = &self.profile.ranges;
            self.range_paths.entry(range).or_insert_with(|| ranges.path(range).join("/")).as_str()
        });
        let timed = activity.start != 0 && activity.end >= activity.start;
        let time = |time: u64| Cell::from(timed.then_some(time));
        let device = self.profile.device(activity.session, activity.device);
        let node = (activity.graph_node != 0).then_some(activity.graph_node);
        let series = profile_steps(self.profile);
        let step = launch.and_then(|launch| self.steps.find(series, process, launch.tid, launch.time));
        let place: [Cell<'_>; 18] = [
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            launch.map(|launch| launch.tid).into(),
            device.into(),
            activity.context.into(),
            activity.stream.into(),
            activity.session.0.into(),
            activity.correlation.into(),
            launch.map(|launch| launch.time).into(),
            time(activity.start),
            time(activity.end),
            stack.into(),
            range.into(),
            node.into(),
            step.map(|(of, index)| series[of].steps[index].number).into(),
            step.map(|(of, _)| series[of].tid).into(),
        ];
        match activity.work {
            Work::Kernel { name, grid, block, registers, shared_memory } => {
                let name = self.kernels.name(activity.session, name);
                let [x, y, z] = grid.map(Cell::from);
                let [u, v, w] = block.map(Cell::from);
                let rest = [name.into(), x, y, z, u, v, w, u32::from(registers).into(), shared_memory.into()];
                self.tables.kernels.row_of(&place, &rest)
            }
            Work::Copy { direction, bytes, source, destination, peer } => {
                let direction = direction.to_string();
                let peer = peer.map(|peer| self.profile.device(activity.session, peer));
                let (source, destination) = (memory(source), memory(destination));
                let rest = ["copy".into(), direction.as_str().into(), bytes.into(), source, destination, peer.into()];
                self.tables.copies.row_of(&place, &rest)
            }
            Work::Memset { bytes, memory: kind, .. } => {
                let rest = ["memset".into(), Cell::Null, bytes.into(), Cell::Null, memory(kind), Cell::Null];
                self.tables.copies.row_of(&place, &rest)
            }
        }
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let (owner, stack) = (self.owner(sample.process), self.stack(sample.process, sample.stack)?);
        self.tables.samples.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            sample.tid.into(),
            sample.cpu.into(),
            sample.time.into(),
            sample.weight.into(),
            stack.into(),
            u32::from(self.own.contains(&sample.stack)).into(),
        ])
    }

    fn sync(&mut self, sync: &Sync) -> io::Result<()> {
        let process = self.session_process(sync.session);
        let stream = (sync.stream != u32::MAX).then_some(sync.stream);
        let times = (sync.start, Some(sync.end));
        self.waited("synchronize", process, None, times, names::sync(sync.kind), stream, None)
    }

    fn pause(&mut self, pause: &Pause) -> io::Result<()> {
        // It is reported again when it ends.
        if pause.to == u64::MAX {
            return Ok(());
        }
        let process = self.session_process(pause.session);
        self.waited("no GPU records", process, None, (pause.from, Some(pause.to)), &pause.client, None, None)
    }

    fn wait(&mut self, wait: &Wait) -> io::Result<()> {
        let reason = waits::reason_of(self.profile, wait.reason, Some(wait.stack));
        let stack = Some(self.stack(wait.process, wait.stack)?);
        self.waited("off CPU", wait.process, Some(wait.tid), (wait.start, Some(wait.end)), reason, None, stack)
    }

    fn switch(&mut self, switch: &Switch) -> io::Result<()> {
        let stack = switch.stack.map(|stack| self.stack(switch.process, stack)).transpose()?;
        let times = (switch.start, Some(switch.end));
        self.waited("off CPU", switch.process, Some(switch.tid), times, off_cpu(switch), None, stack)
    }

    #[allow(clippy::too_many_arguments, reason = "the columns of a row")]
    fn waited(
        &mut self,
        kind: &str,
        process: ProcessId,
        tid: Option<u32>,
        (start, end): (u64, Option<u64>),
        reason: &str,
        stream: Option<u32>,
        stack: Option<u64>,
    ) -> io::Result<()> {
        let owner = self.owner(process);
        self.tables.waits.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            tid.into(),
            start.into(),
            end.into(),
            kind.into(),
            reason.into(),
            stream.into(),
            stack.into(),
        ])
    }

    fn counter(&mut self, counter: &KernelCounter) -> io::Result<()> {
        // An announcement has no value.
        let Some(metric) = METRICS.get(counter.metric as usize) else { return Ok(()) };
        let owner = self.owner(self.session_process(counter.session));
        // Saturates: a damaged recording may contain any number.
        let thousandths = (f64::from_bits(counter.value) * 1000.0).round() as u64;
        self.tables.kernel_counters.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            counter.session.0.into(),
            counter.correlation.into(),
            (*metric).into(),
            thousandths.into(),
        ])
    }

    fn range(&mut self, range: &Range) -> io::Result<()> {
        let owner = self.owner(self.session_process(range.session));
        let ranges = &self.profile.ranges;
        let number = ranges.number(range.session, range.path);
        let path = ranges.path(number);
        let joined = path.join("/");
        self.tables.ranges.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            range.tid.into(),
            range.start.into(),
            (!range.mark).then_some(range.end).into(),
            path.last().copied().into(),
            joined.as_str().into(),
            Some(ranges.category(number)).filter(|category| !category.is_empty()).into(),
        ])
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let stack = call.stack.filter(|stack| *stack != StackId(0));
        let stack = stack.map(|stack| self.stack(call.process, stack)).transpose()?;
        let owner = self.owner(call.process);
        let Some(reading) = self.reader.read(call) else { return Ok(()) };
        let layer = match reading.function.layer {
            Layer::Library => "library",
            Layer::Driver => "driver",
            Layer::Kernel => "kernel function",
            Layer::Point => "tracepoint",
        };
        let arguments = serde_json::to_string(&reading.args)?;
        let result = reading.result.as_ref().map(ToString::to_string);
        self.tables.calls.row(&[
            self.recording.as_str().into(),
            owner.process.into(),
            owner.pid.into(),
            owner.rank.into(),
            call.tid.into(),
            call.cpu.into(),
            call.start.into(),
            (call.end != 0).then_some(call.end).into(),
            layer.into(),
            library(reading.function).into(),
            reading.function.name.as_str().into(),
            u32::from(call.depth).into(),
            result.as_deref().into(),
            u32::from(reading.failed).into(),
            arguments.as_str().into(),
            call.launch.map(|(session, _)| session.0).into(),
            call.launch.map(|(_, correlation)| correlation).into(),
            stack.into(),
        ])
    }

    /// Returns the number of a stack, and writes the stack if it is new.
    fn stack(&mut self, process: ProcessId, id: StackId) -> io::Result<u64> {
        if let Some(&number) = self.stacks.get(&id) {
            return Ok(number);
        }
        let number = self.stacks.len() as u64 + 1;
        self.stacks.insert(id, number);
        if self.profile.is_own_cost(id) {
            self.own.insert(id);
        }
        let frames = self.profile.frames(id);
        let recording = Cell::from(self.recording.as_str());
        for (depth, frame) in (0_u32..).zip(&frames) {
            let kind = match frame.kind {
                FrameKind::Native => "native",
                FrameKind::Kernel => "kernel",
                FrameKind::Probe => "warpscope",
                FrameKind::Python => "python",
            };
            let module = Some(&*frame.module).filter(|module| !module.is_empty());
            self.tables.frames.row(&[
                recording,
                number.into(),
                depth.into(),
                (&*frame.name).into(),
                kind.into(),
                module.into(),
            ])?;
        }
        let path = frames.iter().map(names::frame).collect::<Vec<_>>().join(";");
        let place = self.user_code.place(process, id);
        let file = Some(place.file.as_str()).filter(|file| !file.is_empty());
        let line = Cell::from(place.frame.as_str());
        let cells = [recording, number.into(), process.0.into(), path.as_str().into(), line, file.into()];
        self.tables.stacks.row(&cells)?;
        Ok(number)
    }

    /// Writes the operations of communicators, and their members.
    fn collectives(&mut self) -> io::Result<()> {
        let profile = self.profile;
        let recording = self.recording.clone();
        let recording = Cell::from(recording.as_str());
        let all = &profile.communication;
        for (number, operation) in (1_u64..).zip(&all.operations) {
            let members = all.members_of(operation);
            let owners: Vec<Owner> =
                members.iter().map(|member| self.owner(self.session_process(member.session))).collect();
            let there = Operation::all_there(members);
            let last = members.iter().zip(&owners).max_by_key(|(member, _)| member.start);
            let communicator = format!("{:016x}", operation.communicator);
            self.tables.collectives.row(&[
                recording,
                number.into(),
                communicator.as_str().into(),
                operation.operation.name().into(),
                operation.number.into(),
                (members.len() as u64).into(),
                operation.bytes.into(),
                members.iter().map(|member| member.start).min().into(),
                there.into(),
                members.iter().map(|member| member.end).min().into(),
                Operation::transfer(members).into(),
                members.iter().fold(0_u64, |sum, member| sum.saturating_add(member.waited)).into(),
                last.and_then(|(_, owner)| owner.rank).into(),
            ])?;
            for (member, owner) in members.iter().zip(&owners) {
                let stack = self.stack(ProcessId(owner.process), member.stack)?;
                let other = (member.waited > 0).then(|| owners.get(member.waited_for as usize)?.rank).flatten();
                self.tables.collective_members.row(&[
                    recording,
                    owner.process.into(),
                    owner.pid.into(),
                    owner.rank.into(),
                    number.into(),
                    member.tid.into(),
                    member.session.0.into(),
                    member.launched.into(),
                    member.start.into(),
                    member.end.into(),
                    member.waited.into(),
                    other.into(),
                    stack.into(),
                ])?;
            }
        }
        Ok(())
    }

    /// Writes the tables that need no events.
    fn profile(&mut self) -> io::Result<()> {
        self.collectives()?;
        let profile = self.profile;
        let recording = self.recording.clone();
        let recording = Cell::from(recording.as_str());
        for (id, info) in &profile.processes {
            let rank = self.owner(*id).rank;
            self.tables.processes.row(&[
                recording,
                id.0.into(),
                info.parent.map(|parent| parent.0).into(),
                info.pid.into(),
                info.comm.as_str().into(),
                rank.into(),
                info.start.into(),
                (info.end != 0).then_some(info.end).into(),
            ])?;
        }
        for ((process, tid), comm) in &profile.threads {
            let pid = self.owner(*process).pid;
            self.tables.threads.row(&[recording, process.0.into(), pid.into(), (*tid).into(), comm.as_str().into()])?;
        }
        for (number, info) in &profile.devices {
            let texts = [info.label.as_str(), &info.name, &info.uuid].map(Cell::from);
            let [label, name, uuid] = texts;
            self.tables.devices.row(&[recording, (*number).into(), label, name, uuid, info.busy_ns.into()])?;
        }
        for series in profile_steps(profile) {
            let (owner, warm_up) = (self.owner(series.process), warm_up_of(series));
            for (index, step) in series.steps.iter().enumerate() {
                let work = &step.work;
                self.tables.steps.row(&[
                    recording,
                    owner.process.into(),
                    owner.pid.into(),
                    owner.rank.into(),
                    series.tid.into(),
                    step.number.into(),
                    step.start.into(),
                    step.end.into(),
                    series.place.as_str().into(),
                    u32::from(index < warm_up).into(),
                    u32::from(step.is_followed).into(),
                    step.busy_ns.into(),
                    step.launching_ns.into(),
                    step.waiting_ns.into(),
                    work.kernel_ns.into(),
                    work.communication_ns.into(),
                    work.copy_ns.into(),
                    work.copy_bytes.into(),
                    step.cpu_ns.into(),
                    step.memory_bytes.into(),
                    work.launches.into(),
                    work.kernels.into(),
                ])?;
            }
        }
        for (name, count) in tables::ledger_counts(profile)? {
            self.tables.ledger.row(&[recording, name.as_str().into(), count.into()])?;
        }
        let Some(start) = &profile.start else { return Ok(()) };
        let (command, notes) = (start.command.join(" "), profile.notes.join("\n"));
        let mode = serde_json::to_value(start.mode)?;
        self.tables.recordings.row(&[
            recording,
            start.host.as_str().into(),
            command.as_str().into(),
            start.version.as_str().into(),
            mode.as_str().into(),
            start.time.into(),
            start.time.saturating_add(profile.wall_ns()).into(),
            start.wall_clock.into(),
            profile.end.and_then(|end| end.status).map_or(Cell::Null, |status| Cell::Number(status.into())),
            Some(notes.as_str()).filter(|notes| !notes.is_empty()).into(),
        ])
    }
}

/// Returns the steps of a profile.
fn profile_steps(profile: &Profile) -> &[Series] {
    profile.steps.as_ref().map_or(&[], |steps| &steps.series)
}

/// A kind of memory; numbers as in `CUpti_ActivityMemoryKind`.
fn memory(kind: u8) -> Cell<'static> {
    let names = ["pageable", "pinned", "device", "array", "managed", "device static", "managed static"];
    usize::from(kind).checked_sub(1).and_then(|at| names.get(at)).copied().into()
}
