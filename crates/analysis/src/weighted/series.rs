//! Stacks as services of continuous profiles keep them: series of one type each, told apart by rank and GPU.
//!
//! Two runs of a program must have the same frames and the same labels, so that their stacks add up. So neither contains a pid,
//! a thread or a stream, and the rank and the GPU are labels instead of frames.

use std::collections::BTreeMap;

use model::{
    event::CounterId,
    idle::{Cause, Phase},
    profile::Profile,
    ranks::is_communication,
};

use super::{Frame, Gather, Origin};
use crate::{
    Events,
    flame_tree::{Measure, View},
    idle, memory,
    names::{self, GpuFrames},
    waits,
};

/// What a series measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// Time of kernels, copies and memsets, under the code that launched them.
    GpuTime,
    /// Launches, by the code that made them.
    GpuLaunches,
    /// GPU memory at its peak, under the code that allocated it.
    GpuMemory,
    /// CPU samples.
    Cpu,
    /// Time off the CPU.
    OffCpu,
    /// The idle time of GPUs, under what the threads that feed them did.
    GpuIdle,
    /// The part of [`Self::GpuTime`] that communication between GPUs takes.
    Communication,
}

impl Type {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::GpuTime => "gpu_time",
            Self::GpuLaunches => "gpu_launches",
            Self::GpuMemory => "gpu_memory",
            Self::Cpu => "cpu",
            Self::OffCpu => "off_cpu",
            Self::GpuIdle => "gpu_idle",
            Self::Communication => "communication",
        }
    }

    /// Returns the unit of its amounts.
    pub fn measure(self) -> Measure {
        match self {
            Self::GpuLaunches => Measure::Number,
            Self::GpuMemory => Measure::Bytes,
            Self::GpuTime | Self::Cpu | Self::OffCpu | Self::GpuIdle | Self::Communication => Measure::Time,
        }
    }
}

/// The stacks of one type, rank and GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// What is measured.
    pub kind: Type,
    /// The rank, in a distributed program.
    pub rank: Option<u32>,
    /// The UUID of the GPU, or its number if that is not known; absent for what does not belong to one.
    pub device: Option<String>,
    /// Indexes of frames, outermost first, and amounts above 0; each stack once, in a fixed order.
    pub stacks: Vec<(Vec<u32>, u64)>,
}

impl Series {
    /// Returns the sum of its amounts.
    pub fn total(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, (_, amount)| sum.saturating_add(*amount))
    }
}

/// What tells series apart: the type, the rank and the number of the GPU.
type Key = (Type, Option<u32>, Option<u32>);

/// All series of a recording.
#[derive(Clone, Debug, Default)]
pub struct AllSeries {
    /// The frames of all stacks, each once.
    pub frames: Vec<Frame>,
    /// Sorted by type, rank and GPU; none is empty.
    pub series: Vec<Series>,
}

impl AllSeries {
    /// Gathers what a recording has, and the view includes.
    pub fn of(profile: &Profile, view: View, events: Events<'_>) -> Self {
        let mut gather = Gather::new(profile, GpuFrames::without_numbers(profile));
        gather.has_ranks = false;
        let mut types = Vec::new();
        if view.gpu {
            gather.gpu("gpu", None, |_| true);
            let communicates = |kernel: u32| {
                profile.kernel_names.get(kernel as usize).is_some_and(|kernel| is_communication(&kernel.mangled))
            };
            gather.gpu("communication", None, |what| what.kernel().is_some_and(communicates));
            types.extend([Type::GpuTime, Type::Communication]);
        }
        if view.cpu || view.gpu {
            gather.by_thread(view, events);
            types.extend(view.cpu.then_some(Type::Cpu));
            types.extend(view.gpu.then_some(Type::GpuLaunches));
        }
        if view.waits
            && let Some(counter) = off_cpu(profile)
        {
            gather.event(counter, false);
            types.push(Type::OffCpu);
        }
        if view.gpu {
            gather.memory();
            gather.idle();
            types.extend([Type::GpuMemory, Type::GpuIdle]);
        }
        let weighted = gather.finish();
        let mut series: BTreeMap<Key, BTreeMap<Vec<u32>, u64>> = BTreeMap::new();
        for row in weighted.rows {
            let rank = profile.whole().rank(row.origin.process);
            for (kind, amount) in types.iter().zip(row.amounts).filter(|(_, amount)| *amount > 0) {
                let stacks = series.entry((*kind, rank, row.origin.device)).or_default();
                let sum = stacks.entry(row.frames.clone()).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        let device = |number: u32| match profile.devices.get(&number) {
            Some(info) if !info.uuid.is_empty() => info.uuid.clone(),
            _ => profile.device_label(number).to_owned(),
        };
        let series = series.into_iter().map(|((kind, rank, number), stacks)| Series {
            kind,
            rank,
            device: number.map(device),
            stacks: stacks.into_iter().collect(),
        });
        Self { series: series.collect(), frames: weighted.frames }
    }
}

/// Returns the counter of the time off the CPU, if that was recorded.
fn off_cpu(profile: &Profile) -> Option<CounterId> {
    profile.counters.all.values().find(|counter| waits::is_off_cpu(counter)).map(|counter| counter.id)
}

impl Gather<'_> {
    /// Adds GPU memory at the peak of each process and GPU.
    fn memory(&mut self) {
        let kind = self.kind("memory", Measure::Bytes);
        let profile = self.profile;
        for (&(process, index), memory) in &profile.memory.devices {
            let device = memory::device(profile, process, index);
            for (what, stack, amount) in &memory.peak.holders {
                let mut frames = self.stack(process, Some(*stack));
                frames.push(self.own(names::memory(*what).to_owned()));
                self.add(Origin { process, device, ..Origin::default() }, frames, kind, amount.bytes);
            }
        }
    }

    /// Adds the idle time of the GPUs: its causes are the innermost frames. Nothing is added if GPU work was recorded only part of
    /// the time, because the gaps are not known.
    fn idle(&mut self) {
        let kind = self.kind("idle", Measure::Time);
        let devices = &self.profile.devices;
        if self.profile.sampled.estimated.launches > 0 {
            return;
        }
        // What feeds the GPUs need not be selected.
        self.profile = self.profile.whole();
        let profile = self.profile;
        for (number, info) in devices {
            for (charge, weight) in &info.idle.parts {
                let charge = &idle::explained(profile, charge);
                let mut frames = match charge.stack {
                    Some(stack) => self.stack(charge.process, Some(stack)),
                    None => self.root(charge.process),
                };
                let phase = match charge.phase {
                    Phase::Before => Some(names::BEFORE_GPU_WORK),
                    Phase::Between => None,
                    Phase::After => Some(names::AFTER_GPU_WORK),
                };
                if let Some(phase) = phase {
                    frames.insert(0, self.own(phase.to_owned()));
                }
                let doing = match charge.cause {
                    Cause::Launching => Some(names::LAUNCHING.to_owned()),
                    Cause::Waiting(_) => Some(idle::wait_reason(profile, charge)),
                    Cause::Running => None,
                    Cause::Meanwhile => Some(names::MEANWHILE.to_owned()),
                    Cause::Unknown => Some("[unknown]".to_owned()),
                };
                frames.extend(doing.map(|doing| self.own(doing)));
                let origin = Origin { process: charge.process, device: Some(*number), ..Origin::default() };
                self.add(origin, frames, kind, weight.ns);
            }
        }
    }
}
