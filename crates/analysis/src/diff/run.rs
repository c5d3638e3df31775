//! What a comparison needs of one recording.

use std::collections::BTreeMap;

use model::{
    idle::{Cause, Phase},
    profile::{DeviceInfo, Profile},
};
use serde::Serialize;

use crate::tables::{by_direction, by_kernel, by_user_path};
use crate::{
    collectives, cpu,
    host_waits::HostWaits,
    idle, names,
    user_code::{UserCode, without_line},
    waits,
};

/// An amount, and how many things it is the sum of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub amount: u64,
    pub count: u64,
}

/// Amounts by name.
pub(super) type Amounts = BTreeMap<String, Amount>;

/// The unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
}

/// A total of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// From the start of the first process to the end of the recording.
    Wall,
    /// Durations of all kernels, copies and memsets.
    Gpu,
    /// Time in which the GPUs that worked did something.
    Busy,
    /// Time in which they did nothing.
    Idle,
    /// CPU time of the program.
    Cpu,
    /// Time that host threads waited for GPUs.
    HostWaits,
    /// Time off the CPU, if it was recorded.
    OffCpu,
    /// The most GPU memory that a process used at one time on one GPU, if it was recorded.
    Memory,
}

impl Total {
    /// All totals, in the order in which they are shown.
    pub const ALL: [Self; 8] =
        [Self::Wall, Self::Gpu, Self::Busy, Self::Idle, Self::Cpu, Self::HostWaits, Self::OffCpu, Self::Memory];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall time",
            Self::Gpu => "GPU time",
            Self::Busy => "GPU busy time",
            Self::Idle => "GPU idle time",
            Self::Cpu => "CPU time",
            Self::HostWaits => "waits for the GPU",
            Self::OffCpu => "time off the CPU",
            Self::Memory => "GPU memory peak",
        }
    }

    /// Returns the unit of its amount.
    pub fn unit(self) -> Unit {
        if self == Self::Memory { Unit::Bytes } else { Unit::Ns }
    }
}

/// What is compared by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Idle time of the GPUs, by what the thread that feeds them did, and where.
    Idle,
    /// GPU time by kernel.
    Kernels,
    /// GPU time by path of user code.
    Paths,
    /// GPU time of copies by direction.
    Copies,
    /// CPU time by function.
    Functions,
    /// CPU time by line of user code.
    Lines,
    /// Time off the CPU by reason and function of user code.
    Waits,
    /// Operations of communicators: how long members waited for the last one, and how long all took part.
    Communication,
    /// GPU memory at its peak, by line of user code.
    Memory,
}

impl Subject {
    /// All subjects, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Kernels,
        Self::Paths,
        Self::Copies,
        Self::Functions,
        Self::Lines,
        Self::Waits,
        Self::Communication,
        Self::Memory,
    ];

    /// Returns the title of its table, and what it counts.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Self::Idle => ("GPU idle", "samples"),
            Self::Kernels => ("Kernels", "runs"),
            Self::Paths => ("Paths", "runs"),
            Self::Copies => ("Copies", "copies"),
            Self::Functions => ("Functions", "samples"),
            Self::Lines => ("CPU lines", "samples"),
            Self::Waits => ("Off CPU", "waits"),
            Self::Communication => ("Communication", "operations"),
            Self::Memory => ("Memory", "allocations"),
        }
    }

    /// Returns the unit of its amounts.
    pub fn unit(self) -> Unit {
        if self == Self::Memory { Unit::Bytes } else { Unit::Ns }
    }
}

/// What a comparison needs of one recording.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub(super) filters: Vec<String>,
    totals: [Amount; Total::ALL.len()],
    subjects: BTreeMap<Subject, Amounts>,
    /// Its steps, if they were found.
    pub(super) steps: Option<RunSteps>,
    /// How each GPU spent the wall time, by its label: the parts add up to the wall time.
    pub(super) gpus: BTreeMap<String, Amounts>,
}

/// The steps of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunSteps {
    /// What they are steps of, without its line: lines move when code is changed.
    pub(super) place: String,
    /// Their durations in order, without those of the warm-up.
    pub(super) times: Vec<u64>,
    /// The GPU that worked most in them.
    pub(super) gpu: String,
    /// What it did in them, and what it waited for; their parts add up to the time from the first step to the last.
    pub(super) parts: Amounts,
    /// Its kernels in this time.
    pub(super) kernels: Amounts,
}

/// The part of a GPU's time in which it worked.
pub(super) const BUSY: &str = "[GPU busy]";

impl Run {
    /// Sums up a recording.
    pub fn of(profile: &Profile) -> Self {
        let code = UserCode::new(profile);
        let mut run = Self { filters: profile.filters().to_vec(), ..Self::default() };
        let mut gpu = Amount::default();
        profile.gpu.values().for_each(|weight| gpu.add(weight.ns, weight.count));
        let mut cpu = Amount::default();
        cpu::stacks(profile).for_each(|(.., weight)| cpu.add(weight.ns, weight.count));
        run.set(Total::Wall, profile.wall_ns().saturating_sub(preparing_ns(profile)));
        run.set(Total::Gpu, gpu.amount);
        run.set(Total::Cpu, cpu.amount);
        run.set(Total::HostWaits, HostWaits::of(profile.whole()).all.ns);
        run.devices(profile, &code);
        run.work(profile);
        run.processors(profile, &code);
        run.off_cpu(profile, &code);
        run.memory(profile, &code);
        run.communication(profile);
        run
    }

    /// Returns a total.
    pub(super) fn total(&self, total: Total) -> Amount {
        self.totals[total as usize]
    }

    /// Returns the amounts of a subject.
    pub(super) fn of_subject(&self, subject: Subject) -> &Amounts {
        static NOTHING: Amounts = Amounts::new();
        self.subjects.get(&subject).unwrap_or(&NOTHING)
    }

    pub(super) fn set(&mut self, total: Total, amount: u64) {
        self.totals[total as usize] = Amount { amount, count: 0 };
    }

    /// Adds to an amount of a subject.
    pub(super) fn add(&mut self, subject: Subject, name: String, amount: u64, count: u64) {
        self.subjects.entry(subject).or_default().entry(name).or_default().add(amount, count);
    }

    /// Adds how the GPUs that worked spent their time.
    fn devices(&mut self, profile: &Profile, code: &UserCode<'_>) {
        let wall = self.total(Total::Wall).amount;
        let (mut busy, mut idle) = (0_u64, 0_u64);
        for info in profile.devices.values().filter(|info| info.busy_ns > 0) {
            busy = busy.saturating_add(info.busy_ns);
            idle = idle.saturating_add(wall.saturating_sub(info.busy_ns));
            // The gaps between recorded parts are not idle time.
            if !profile.is_trace() && profile.sampled.estimated.launches == 0 {
                self.device(profile, code, info);
            }
        }
        self.set(Total::Busy, busy);
        self.set(Total::Idle, idle);
    }

    fn device(&mut self, profile: &Profile, code: &UserCode<'_>, info: &DeviceInfo) {
        let mut parts = Amounts::new();
        parts.entry(BUSY.to_owned()).or_default().add(info.busy_ns, 0);
        let mut preparing = preparing_ns(profile);
        for (charge, weight) in &info.idle.parts {
            let charge = &idle::explained(profile, charge);
            let phase = match charge.phase {
                Phase::Before => Some(names::BEFORE_GPU_WORK.to_owned()),
                Phase::Between => None,
                Phase::After => Some(names::AFTER_GPU_WORK.to_owned()),
            };
            // Lines move when code is changed, functions do not.
            let place = charge.stack.map(|stack| without_line(&code.place(charge.process, stack).frame));
            let (place, doing) = match charge.cause {
                Cause::Running => (place, None),
                Cause::Waiting(_) => (place, Some(idle::wait_reason(profile, charge))),
                Cause::Launching => (None, Some(names::LAUNCHING.to_owned())),
                Cause::Meanwhile => (place, Some(names::MEANWHILE.to_owned())),
                Cause::Unknown => (place, Some("[unknown]".to_owned())),
            };
            let mut ns = weight.ns;
            if (charge.phase, charge.cause) == (Phase::Before, Cause::Unknown) {
                let before = preparing.min(ns);
                (preparing, ns) = (preparing - before, ns - before);
            }
            let name = phase.into_iter().chain(place).chain(doing).collect::<Vec<_>>().join(" ");
            parts.entry(name.clone()).or_default().add(ns, weight.samples);
            self.add(Subject::Idle, name, ns, weight.samples);
        }
        self.gpus.insert(info.label.clone(), parts);
    }

    /// Adds GPU work.
    fn work(&mut self, profile: &Profile) {
        let tables = [
            (Subject::Kernels, by_kernel(profile)),
            (Subject::Paths, by_user_path(profile)),
            (Subject::Copies, by_direction(profile)),
        ];
        for (subject, sums) in tables {
            for (mut names, weight) in sums {
                self.add(subject, names.pop().unwrap_or_default(), weight.ns, weight.count);
            }
        }
    }

    /// Adds CPU time.
    fn processors(&mut self, profile: &Profile, code: &UserCode<'_>) {
        for (name, weight) in cpu::by_function(profile) {
            self.add(Subject::Functions, name, weight.ns, weight.count);
        }
        for (place, weight) in cpu::by_line(profile, code) {
            self.add(Subject::Lines, place.frame, weight.ns, weight.count);
        }
    }

    /// Adds time off the CPU.
    fn off_cpu(&mut self, profile: &Profile, code: &UserCode<'_>) {
        let mut all = 0_u64;
        for wait in waits::all(profile) {
            all = all.saturating_add(wait.ns);
            let place = wait.stack.map(|stack| without_line(&code.place(wait.process, stack).frame));
            let name = place.as_deref().into_iter().chain([wait.reason]).collect::<Vec<_>>().join(" ");
            self.add(Subject::Waits, name, wait.ns, wait.count);
        }
        self.set(Total::OffCpu, all);
    }

    /// Adds what communicators did: these have other numbers in each run, so it is added up by their size.
    fn communication(&mut self, profile: &Profile) {
        for row in collectives::by_communicator(profile) {
            let name = format!("{} of {} members", row.operation.name(), row.members);
            self.add(Subject::Communication, format!("{name}: waited"), row.waited_ns, row.count);
            self.add(Subject::Communication, format!("{name}: transfer"), row.transfer_ns, row.count);
        }
    }

    /// Adds who held GPU memory at the largest peak.
    fn memory(&mut self, profile: &Profile, code: &UserCode<'_>) {
        let peak = profile.memory.devices.iter().max_by_key(|(_, memory)| memory.peak.in_use());
        let Some((&(process, _), memory)) = peak else { return };
        self.set(Total::Memory, memory.peak.in_use());
        for (what, stack, amount) in &memory.peak.holders {
            let name = format!("{} {}", code.place(process, *stack).frame, names::memory(*what));
            self.add(Subject::Memory, name, amount.bytes, amount.count);
        }
    }
}

/// Returns the time before the first process: warpscope was preparing, which is not the program's time.
fn preparing_ns(profile: &Profile) -> u64 {
    let start = profile.start.as_ref().map_or(u64::MAX, |start| start.time);
    let first = profile.processes.values().map(|process| process.start).min();
    first.map_or(0, |first| first.saturating_sub(start)).min(profile.wall_ns())
}

impl Amount {
    fn add(&mut self, amount: u64, count: u64) {
        self.amount = self.amount.saturating_add(amount);
        self.count = self.count.saturating_add(count);
    }
}
