//! Selects a part of a recording, event by event: `--pid`, `--kernel`, `--from` and the like.
//!
//! Processes are selected by their events. GPU work is selected together with its launch: a first pass joins the two and
//! notes which launches to keep, so that no work loses its launch and no launch its work. Stacks, symbols and mappings are
//! kept: only the events that are left use them.

mod error;
mod filters;
mod launches;
pub mod patterns;
mod ranges;

use std::collections::{HashMap, HashSet};

use text::units;

pub use self::{
    error::Error,
    filters::{Filters, PhaseSelection},
};
use self::{launches::Launches, patterns::Patterns, ranges::Ranges};
use crate::{
    causes::{Cause, Causes, Joined},
    event::{Activity, Event, Launch, Owner, ProcessId, Range, SessionId, StackId, Sync, Totals, Wait, Work},
    fold::TimeRange,
    profile::Profile,
    ranks::Selection,
};

/// A filter of events.
#[derive(Debug, Default)]
pub struct Filter {
    processes: Option<Selection>,
    parts: Option<Parts>,
}

/// What is selected within processes. An absent condition selects everything.
#[derive(Debug, Default)]
struct Parts {
    tids: Option<HashSet<u32>>,
    /// Devices as sessions number them.
    devices: Option<HashSet<(SessionId, u32)>>,
    streams: Option<HashSet<u32>>,
    /// The ids of matching kernel names.
    kernels: Option<HashSet<(SessionId, u32)>>,
    stacks: Option<HashSet<StackId>>,
    ranges: Option<Ranges>,
    phases: Option<PhaseSelection>,
    /// The ids of the names of kernels that communicate, which are a phase of their own.
    communicating: HashSet<(SessionId, u32)>,
    times: TimeRange,
    /// The calls of a recording are allocations; those of a trace are what it shows.
    is_trace: bool,
    /// Launches with work that is selected.
    launches: Launches,
    /// Nodes of graphs that are selected by the stack that created them.
    nodes: HashSet<(SessionId, u64)>,
}

impl Filter {
    /// Builds a filter, or returns `None` if nothing is filtered. `profile` is that of the whole recording; `events` opens it
    /// from its beginning.
    pub fn new<I: Iterator<Item = Event>, E: From<Error>>(
        options: &Filters,
        profile: &Profile,
        mut events: impl FnMut() -> Result<I, E>,
    ) -> Result<Option<Self>, E> {
        let processes = processes(options, profile)?;
        let parts = Parts::new(options, profile)?;
        let parts = match parts {
            Some(parts) => Some(parts.learn(profile, options, &mut events)?),
            None => None,
        };
        Ok((processes.is_some() || parts.is_some()).then_some(Self { processes, parts }))
    }

    /// Returns the time that is selected.
    pub fn times(&self) -> TimeRange {
        self.parts.as_ref().map(|parts| parts.times).unwrap_or_default()
    }

    /// Whether a process is selected.
    pub fn has_process(&self, process: ProcessId) -> bool {
        self.processes.as_ref().is_none_or(|processes| processes.has_process(process))
    }

    /// Returns an event as the selected part has it, or `None` if it is not in it.
    pub fn apply(&self, event: Event) -> Option<Event> {
        if self.processes.as_ref().is_some_and(|processes| !processes.includes(&event)) {
            return None;
        }
        // They are of whole GPUs: energy that is not selected would count as idle.
        if event.owner() == Some(Owner::Gpu) {
            return None;
        }
        match &self.parts {
            Some(parts) => parts.apply(event),
            None => Some(event),
        }
    }
}

/// Returns the processes that `--pid`, `--comm` and `--rank` select.
pub fn processes(options: &Filters, profile: &Profile) -> Result<Option<Selection>, Error> {
    if options.pid.is_empty() && options.comm.is_empty() && options.rank.is_none() {
        return Ok(None);
    }
    let comms = Patterns::parse(&options.comm)?;
    if let Some(rank) = options.rank
        && !profile.ranks.all.contains_key(&rank)
    {
        let all: Vec<String> = profile.ranks.all.keys().take(20).map(u32::to_string).collect();
        return Err(match &all[..] {
            [] => Error::NoRanks,
            _ => Error::Unknown { what: format!("rank {rank}"), known: all.join(", ") },
        });
    }
    let selected = |id: ProcessId| {
        let Some(info) = profile.processes.get(&id) else { return false };
        (options.pid.is_empty() || options.pid.contains(&info.pid))
            && (options.comm.is_empty() || comms.matches(&info.comm))
            && options.rank.is_none_or(|rank| profile.rank(id) == Some(rank))
    };
    let processes: HashSet<ProcessId> = profile.processes.keys().copied().filter(|id| selected(*id)).collect();
    if processes.is_empty() {
        let mut known: Vec<String> =
            profile.processes.values().map(|info| format!("{} ({})", info.pid, info.comm)).collect();
        known.dedup();
        known.truncate(20);
        return Err(Error::Unknown { what: "such process".to_owned(), known: known.join(", ") });
    }
    let sessions = profile.sessions.iter().filter(|(_, info)| processes.contains(&info.process)).map(|(id, _)| *id);
    Ok(Some(Selection::of_processes(processes.iter().copied(), sessions)))
}

impl Parts {
    /// Resolves the options by the names of the profile.
    fn new(options: &Filters, profile: &Profile) -> Result<Option<Self>, Error> {
        let start = profile.start.as_ref().map_or(0, |start| start.time);
        let time = |option: &'static str, text: &Option<String>| -> Result<Option<u64>, Error> {
            let Some(text) = text else { return Ok(None) };
            let ns = units::parse_seconds(text).filter(|ns| ns.is_finite() && *ns >= 0.0);
            let ns = ns.ok_or_else(|| Error::Time { option, text: text.clone() })?;
            Ok(Some(start.saturating_add(ns as u64)))
        };
        let (mut from, mut to) = (time("from", &options.from)?, time("to", &options.to)?);
        if let Some(times) = options.step_time {
            (from, to) = (Some(times.0), Some(times.1));
        }
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            return Err(Error::Range);
        }
        let set = |numbers: &[u32]| (!numbers.is_empty()).then(|| numbers.iter().copied().collect());
        let parts = Self {
            tids: set(&options.tid),
            streams: set(&options.stream),
            devices: devices(&options.device, profile)?,
            stacks: stacks(&options.path, profile)?,
            phases: options.of_phase.clone(),
            times: TimeRange { from: from.unwrap_or(0), to: to.unwrap_or(u64::MAX) },
            is_trace: profile.is_trace(),
            ..Self::default()
        };
        let used = parts.tids.is_some() || parts.streams.is_some() || parts.devices.is_some() || parts.stacks.is_some();
        let used = used || parts.phases.is_some();
        Ok((used || from.is_some() || to.is_some() || !options.kernel.is_empty() || !options.nvtx.is_empty())
            .then_some(parts))
    }

    /// Finds the kernels by name, and the launches of the work that is selected.
    fn learn<I: Iterator<Item = Event>, E: From<Error>>(
        mut self,
        profile: &Profile,
        options: &Filters,
        events: &mut impl FnMut() -> Result<I, E>,
    ) -> Result<Self, E> {
        if !options.kernel.is_empty() {
            let patterns = Patterns::parse(&options.kernel).map_err(Error::from)?;
            let names: HashMap<&str, &str> =
                profile.kernel_names.iter().map(|kernel| (&*kernel.mangled, &*kernel.text)).collect();
            let is = |name: &str| patterns.matches(name) || names.get(name).is_some_and(|text| patterns.matches(text));
            let ids = events()?.filter_map(|event| match event {
                Event::KernelName(kernel) if is(&kernel.name) => Some((kernel.session, kernel.id)),
                _ => None,
            });
            let ids: HashSet<(SessionId, u32)> = ids.collect();
            if ids.is_empty() {
                return Err(Error::NoMatch { what: "kernel", patterns: options.kernel.clone() }.into());
            }
            self.kernels = Some(ids);
        }
        if !options.nvtx.is_empty() {
            self.ranges = Some(Ranges::learn(&options.nvtx, events)?);
        }
        if let Some(phases) = self.phases.as_ref().filter(|phases| !phases.communicating.is_empty()) {
            let ids = events()?.filter_map(|event| match event {
                Event::KernelName(kernel) if phases.communicating.contains(&kernel.name) => {
                    Some((kernel.session, kernel.id))
                }
                _ => None,
            });
            self.communicating = ids.collect();
        }
        let mut causes = Causes::default();
        for event in events()? {
            match &event {
                Event::Launch(launch) => {
                    if !self.needs_work() && self.has_launch(launch) {
                        self.launches.insert(launch.session, launch.correlation);
                    }
                    causes.launch(launch, |cause| self.decide(cause));
                }
                Event::Activity(activity) => causes.activity(activity, |cause| self.decide(cause)),
                Event::Captured(captured) => {
                    // Graphs need the stacks of their nodes.
                    self.launches.insert(captured.session, captured.correlation);
                    causes.note(&event);
                }
                other => causes.note(other),
            }
        }
        causes.finish(|cause| self.decide(cause));
        Ok(self)
    }

    /// Whether a launch is selected only because of its work.
    fn needs_work(&self) -> bool {
        let of_work = self.devices.is_some() || self.streams.is_some() || self.kernels.is_some();
        of_work || self.phases.is_some() || self.is_range()
    }

    fn decide(&mut self, cause: Cause<'_>) {
        let Cause::Ran(Joined { launch: Some(launch), activity, capture }) = cause else { return };
        if self.has_thread_and_range(launch)
            && self.has_path(capture.unwrap_or(launch.stack))
            && self.is_in_phase(capture.unwrap_or(launch.stack), activity)
            && self.has_work(activity)
        {
            self.launches.insert(launch.session, launch.correlation);
            if activity.graph_node != 0 {
                self.nodes.insert((activity.session, activity.graph_node));
            }
        }
    }

    fn has_launch(&self, launch: &Launch) -> bool {
        self.has_thread_and_range(launch) && self.has_stack(launch.stack)
    }

    fn has_thread_and_range(&self, launch: &Launch) -> bool {
        self.tids.as_ref().is_none_or(|tids| tids.contains(&launch.tid))
            && self.ranges.as_ref().is_none_or(|ranges| ranges.contain(launch.session, launch.correlation))
    }

    fn has_path(&self, stack: StackId) -> bool {
        self.stacks.as_ref().is_none_or(|stacks| stacks.contains(&stack))
    }

    /// Whether what the CPU did is selected by its stack.
    fn has_stack(&self, stack: StackId) -> bool {
        self.has_path(stack) && self.phases.as_ref().is_none_or(|phases| phases.stacks.contains(&stack))
    }

    /// Whether GPU work is in a phase that is selected.
    fn is_in_phase(&self, stack: StackId, activity: &Activity) -> bool {
        let Some(phases) = &self.phases else { return true };
        let communicates = |name| self.communicating.contains(&(activity.session, name));
        match activity.work {
            Work::Kernel { name, .. } if communicates(name) => phases.communication,
            _ => phases.stacks.contains(&stack),
        }
    }

    /// Whether GPU work is selected, apart from its launch.
    fn has_work(&self, activity: &Activity) -> bool {
        let kernel = match (activity.work, &self.kernels) {
            (_, None) => true,
            (Work::Kernel { name, .. }, Some(kernels)) => kernels.contains(&(activity.session, name)),
            (_, Some(_)) => false,
        };
        kernel
            && self.devices.as_ref().is_none_or(|devices| devices.contains(&(activity.session, activity.device)))
            && self.streams.as_ref().is_none_or(|streams| streams.contains(&activity.stream))
            && self.overlaps(activity.start, activity.end)
    }

    /// Whether the memory of the selected processes is selected. That of a time range would lack what was allocated
    /// before; work and threads do not matter.
    fn has_memory(&self) -> bool {
        !self.is_range()
    }

    fn is_range(&self) -> bool {
        self.times != TimeRange::default()
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        start < self.times.to && end.max(start) >= self.times.from
    }

    /// Returns the part of an interval that is selected. Times that were lost stay lost.
    fn cut(&self, start: u64, end: u64) -> (u64, u64) {
        if start == 0 || end < start { (start, end) } else { self.times.cut(start, end) }
    }

    /// Whether an activity is selected. One without a launch has no thread and no stack.
    fn has_activity(&self, activity: &Activity) -> bool {
        let by_launch = self.tids.is_some() || self.stacks.is_some() || self.ranges.is_some() || self.phases.is_some();
        let launched = || self.launches.contains(activity.session, activity.correlation);
        let node = || activity.graph_node == 0 || self.nodes.contains(&(activity.session, activity.graph_node));
        self.has_work(activity) && (!by_launch || (launched() && node()))
    }

    fn apply(&self, mut event: Event) -> Option<Event> {
        let thread = |tid: u32| self.tids.as_ref().is_none_or(|tids| tids.contains(&tid));
        // Conditions on GPU work leave out what the CPU did.
        let gpu_only = [self.devices.is_some(), self.streams.is_some(), self.kernels.is_some(), self.ranges.is_some()];
        let cpu = gpu_only.iter().all(|used| !used);
        let keep = match &event {
            Event::Activity(e) => self.has_activity(e),
            Event::Range(e) => {
                self.ranges.as_ref().is_none_or(|ranges| ranges.has_path(e.session, e.path))
                    && self.overlaps(e.start, e.end)
            }
            Event::Call(_) if !self.is_trace => self.has_memory(),
            Event::Tensor(_) | Event::TensorFreed(_) | Event::Shutdown(_) => self.has_memory(),
            Event::HeldMemory(_) | Event::MemoryHolder(_) => self.has_memory(),
            Event::Switch(e) => cpu && thread(e.tid) && self.overlaps(e.start, e.end),
            Event::Sync(e) => {
                let by_thread = self.tids.is_some() || self.stacks.is_some() || self.phases.is_some();
                cpu && !by_thread && self.overlaps(e.start, e.end)
            }
            // These have no thread and no time.
            Event::Hits(e) => cpu && self.tids.is_none() && !self.is_range() && self.has_stack(e.stack),
            // Those of other launches do no harm.
            Event::RangedLaunch(_) | Event::KernelCounter(_) => true,
            other => match (other.launch(), other.thread()) {
                (Some((session, correlation)), _) => self.launches.contains(session, correlation),
                (None, Some(tid)) => {
                    cpu && thread(tid)
                        && other.stack().is_none_or(|stack| self.has_stack(stack))
                        && other.span().is_none_or(|(start, end)| self.overlaps(start, end))
                }
                (None, None) => true,
            },
        };
        if !keep {
            return None;
        }
        match &mut event {
            // What the session counted is more than what is selected.
            Event::Totals(totals) => {
                let (launches, kernels, kernel_ns, copies, memsets, syncs) = (0, 0, 0, 0, 0, 0);
                *totals = Totals { launches, kernels, kernel_ns, copies, memsets, syncs, ..*totals };
            }
            // The selected time is the whole.
            Event::Start(start) => {
                let later = self.times.from.saturating_sub(start.time);
                (start.time, start.wall_clock) = (start.time + later, start.wall_clock.saturating_add(later));
            }
            Event::End(end) => end.time = end.time.min(self.times.to),
            // What began before, or ended later, has its part of the time.
            Event::Activity(Activity { start, end, .. })
            | Event::Sync(Sync { start, end, .. })
            | Event::Wait(Wait { start, end, .. })
            | Event::Range(Range { start, end, .. }) => (*start, *end) = self.cut(*start, *end),
            _ => {}
        }
        Some(event)
    }
}

/// Returns the devices with these numbers, as sessions number them.
fn devices(wanted: &[String], profile: &Profile) -> Result<Option<HashSet<(SessionId, u32)>>, Error> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let label = |number: u32| profile.device_label(number).to_owned();
    if let Some(unknown) = wanted.iter().find(|label| profile.devices.values().all(|info| info.label != **label)) {
        let known: Vec<&str> = profile.devices.values().map(|info| info.label.as_str()).collect();
        return Err(Error::Unknown { what: format!("GPU {unknown}"), known: known.join(", ") });
    }
    let all = profile.device_numbers.iter().filter(|(_, number)| wanted.contains(&label(**number)));
    Ok(Some(all.map(|(device, _)| *device).collect()))
}

/// Returns the stacks with a frame that matches.
fn stacks(patterns: &[String], profile: &Profile) -> Result<Option<HashSet<StackId>>, Error> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let matching = Patterns::parse(patterns)?;
    let is = |id: &StackId| profile.frames(*id).iter().any(|frame| matching.matches(&frame.name));
    let stacks: HashSet<StackId> = profile.stacks.iter().map(|stack| stack.id).filter(is).collect();
    if stacks.is_empty() {
        return Err(Error::NoMatch { what: "stack with a frame", patterns: patterns.to_vec() });
    }
    Ok(Some(stacks))
}
