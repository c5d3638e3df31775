//! `.profile.json`: a profile for the Firefox Profiler (<https://profiler.firefox.com>), the viewer of samply.
//!
//! Threads have CPU samples with their stacks; each stream of a GPU is a thread whose work is markers, with the stack of the
//! launch. The library that samply uses writes the format. It keeps the whole profile in memory.

use std::{
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

use analysis::{
    Events,
    flame_tree::View,
    names::{self, SessionKernels},
};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming, ProcessHandle,
    SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use markers::{About, GpuWork, Notice, NvtxRange};
use model::{
    causes::Joined,
    event::{Event, FrameKind, Pause, ProcessId, Range, Sample, SessionId, StackId, Work},
    profile::Profile,
};
use rustc_hash::FxHashMap;

use crate::moments::{Moment, each_moment};

mod markers;

/// Writes a profile.
pub fn write(profile: &Profile, view: View, events: Events<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut firefox = Firefox::new(profile);
    each_moment(view, events, |moment| {
        match moment {
            Moment::Shown(Event::KernelName(name)) => firefox.kernels.learn(name),
            Moment::Ran(joined) => firefox.work(joined),
            Moment::Shown(Event::Sample(sample)) => firefox.sample(sample),
            Moment::Shown(Event::Range(range)) => firefox.range(range),
            Moment::Shown(Event::Pause(pause)) => firefox.pause(pause),
            Moment::Shown(Event::Dump(dump)) => {
                let row = firefox.first_row();
                firefox.notice(row, MarkerTiming::Instant(firefox.at(dump.time)), &dump.text);
            }
            _ => {}
        }
        Ok(())
    })?;
    firefox.about()?;
    serde_json::to_writer(&mut *out, &firefox.made)?;
    out.flush()
}

/// A row of the viewer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Thread(ProcessId, u32),
    /// A stream: device, session, context, stream.
    Stream(u32, SessionId, u32, u32),
}

struct Firefox<'a> {
    profile: &'a Profile,
    made: fxprof_processed_profile::Profile,
    origin: u64,
    kernels: SessionKernels<'a>,
    processes: FxHashMap<ProcessId, ProcessHandle>,
    rows: FxHashMap<Row, ThreadHandle>,
    stacks: FxHashMap<(ThreadHandle, StackId), Option<StackHandle>>,
    categories: Categories,
}

struct Categories {
    python: CategoryHandle,
    native: CategoryHandle,
    kernel: CategoryHandle,
    gpu: CategoryHandle,
}

impl<'a> Firefox<'a> {
    fn new(profile: &'a Profile) -> Self {
        let start = profile.start.as_ref();
        let name = names::title(profile);
        let begin = UNIX_EPOCH + Duration::from_nanos(start.map_or(0, |start| start.wall_clock));
        let frequency = start.map_or(0, |start| start.frequency).max(1);
        let interval = SamplingInterval::from_nanos(1_000_000_000 / u64::from(frequency));
        let mut made = fxprof_processed_profile::Profile::new(&name, begin.into(), interval);
        made.set_symbolicated(true);
        let categories = Categories {
            python: made.add_category("Python", CategoryColor::Green),
            native: made.add_category("Native", CategoryColor::Orange),
            kernel: made.add_category("Operating system", CategoryColor::Red),
            gpu: made.add_category("GPU", CategoryColor::Blue),
        };
        Self {
            profile,
            made,
            origin: start.map_or(0, |start| start.time),
            kernels: SessionKernels::new(profile),
            processes: FxHashMap::default(),
            rows: FxHashMap::default(),
            stacks: FxHashMap::default(),
            categories,
        }
    }

    fn at(&self, time: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(time.saturating_sub(self.origin))
    }

    fn process(&mut self, id: ProcessId) -> ProcessHandle {
        if let Some(&known) = self.processes.get(&id) {
            return known;
        }
        let info = self.profile.processes.get(&id);
        let (name, pid) = info.map_or(("[unknown]", 0), |info| (info.comm.as_str(), info.pid));
        let start = self.at(info.map_or(0, |info| info.start));
        let handle = self.made.add_process(name, pid, start);
        self.processes.insert(id, handle);
        handle
    }

    fn row(&mut self, row: Row) -> ThreadHandle {
        if let Some(&known) = self.rows.get(&row) {
            return known;
        }
        let start = self.at(0);
        let handle = match row {
            Row::Thread(process, tid) => {
                let main = self.profile.processes.get(&process).is_some_and(|info| info.pid == tid);
                let owner = self.process(process);
                let handle = self.made.add_thread(owner, tid, start, main);
                let name = self.profile.threads.get(&(process, tid)).map_or("", String::as_str);
                self.made.set_thread_name(handle, name);
                handle
            }
            Row::Stream(device, session, _, stream) => {
                let process = self.profile.sessions.get(&session).map_or(ProcessId(0), |info| info.process);
                let owner = self.process(process);
                let handle = self.made.add_thread(owner, stream, start, false);
                let name = format!("GPU {}, stream {stream}", self.profile.device_label(device));
                self.made.set_thread_name(handle, &name);
                self.made.set_thread_show_markers_in_timeline(handle, true);
                handle
            }
        };
        self.rows.insert(row, handle);
        handle
    }

    fn stack(&mut self, row: ThreadHandle, id: StackId) -> Option<StackHandle> {
        if let Some(known) = self.stacks.get(&(row, id)) {
            return *known;
        }
        let mut frames = Vec::new();
        for frame in self.profile.frames(id) {
            let category = match frame.kind {
                FrameKind::Python => self.categories.python,
                FrameKind::Native | FrameKind::Probe => self.categories.native,
                FrameKind::Kernel => self.categories.kernel,
            };
            let label = self.made.intern_string(&names::raw_frame(&frame));
            frames.push(FrameInfo {
                frame: Frame::Label(label),
                category_pair: category.into(),
                flags: FrameFlags::empty(),
            });
        }
        let stack = self.made.intern_stack_frames(row, frames.into_iter());
        self.stacks.insert((row, id), stack);
        stack
    }

    fn sample(&mut self, sample: &Sample) {
        let row = self.row(Row::Thread(sample.process, sample.tid));
        let stack = self.stack(row, sample.stack);
        self.made.add_sample(row, self.at(sample.time), stack, CpuDelta::from_nanos(sample.weight), 1);
    }

    fn work(&mut self, joined: &Joined<'_>) {
        let &Joined { launch, activity, capture } = joined;
        // Without times it has no position on a timeline; the ledger counts it.
        if activity.start == 0 || activity.end < activity.start {
            return;
        }
        let device = self.profile.device(activity.session, activity.device);
        let row = self.row(Row::Stream(device, activity.session, activity.context, activity.stream));
        let details = match activity.work {
            Work::Kernel { grid, block, .. } => {
                let three = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
                format!("grid {}, block {}", three(grid), three(block))
            }
            Work::Copy { bytes, .. } | Work::Memset { bytes, .. } => text::units::bytes(bytes),
        };
        let marker = GpuWork {
            name: self.made.intern_string(self.kernels.operation(activity)),
            details: self.made.intern_string(&details),
            category: self.categories.gpu,
        };
        let timing = MarkerTiming::Interval(self.at(activity.start), self.at(activity.end));
        let marker = self.made.add_marker(row, timing, marker);
        let stack = capture.or_else(|| launch.map(|launch| launch.stack));
        let stack = stack.and_then(|stack| self.stack(row, stack));
        self.made.set_marker_stack(row, marker, stack);
    }

    fn range(&mut self, range: &Range) {
        let process = self.profile.sessions.get(&range.session).map_or(ProcessId(0), |info| info.process);
        let row = self.row(Row::Thread(process, range.tid));
        let ranges = &self.profile.ranges;
        let name = ranges.path(ranges.number(range.session, range.path)).pop().unwrap_or("[unknown]");
        let name = self.made.intern_string(name);
        let timing = match range.mark {
            true => MarkerTiming::Instant(self.at(range.start)),
            false => MarkerTiming::Interval(self.at(range.start), self.at(range.end)),
        };
        self.made.add_marker(row, timing, NvtxRange(name));
    }

    /// Adds a time without records to the main thread of its process, once its end is known.
    fn pause(&mut self, pause: &Pause) {
        if pause.to == u64::MAX {
            return;
        }
        let process = self.profile.sessions.get(&pause.session).map_or(ProcessId(0), |info| info.process);
        let row = self.main_row(process);
        self.notice(row, MarkerTiming::Interval(self.at(pause.from), self.at(pause.to)), &names::pause(pause));
    }

    fn notice(&mut self, row: ThreadHandle, timing: MarkerTiming, text: &str) {
        let text = self.made.intern_string(text);
        self.made.add_marker(row, timing, Notice(text));
    }

    fn main_row(&mut self, process: ProcessId) -> ThreadHandle {
        let tid = self.profile.processes.get(&process).map_or(0, |info| info.pid);
        self.row(Row::Thread(process, tid))
    }

    fn first_row(&mut self) -> ThreadHandle {
        self.main_row(self.profile.processes.keys().next().copied().unwrap_or(ProcessId(0)))
    }

    /// Adds what concerns the whole recording, as a marker of the first row.
    fn about(&mut self) -> io::Result<()> {
        let row = self.first_row();
        let ledger = serde_json::to_string(&self.profile.ledger)?;
        let marker = About { name: self.made.intern_string("recording"), ledger: self.made.intern_string(&ledger) };
        self.made.add_marker(row, MarkerTiming::Instant(self.at(0)), marker);
        Ok(())
    }
}
