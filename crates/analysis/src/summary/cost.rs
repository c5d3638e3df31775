//! The cost of collecting, relative to the program.
//!
//! Each figure is measured during the run. What is not measured is named, not estimated.
//!
//! | part | measured by | included |
//! | --- | --- | --- |
//! | stacks | the library: one marker call in 32, at random | the search for a known stack, the trap, the program |
//! | callbacks | the same way: the rest of CUPTI's callbacks | |
//! | sending | CPU time of the library's thread; reading records on other threads | CUPTI's work while it is flushed |
//! | CUPTI | CPU samples in libcupti outside our own calls | its hooks, not what the driver does differently |
//! | CUPTI's threads | the same on threads that CUPTI created | they do not delay the program |
//! | CPU samples | the sampler measures each of its runs | not the interrupt |
//! | probes, events | BPF programs measure one run in 32 | not the kernel's trap, which takes about as long |
//!
//! The program's CPU time is that of the CUDA processes since they initialised CUDA, as they read it themselves;
//! without such processes it is that of the command (`getrusage`). warpscope's own CPU time is separate: it runs on
//! other CPUs. Only stacks, callbacks and CUPTI delay launches (`delay_ns`). In a program that waits for the GPU anyway
//! the cost is hidden: its measured ratio in `bench/programs` may be lower than the estimate.

use model::{
    event::{CostProgram, FrameKind, StackId},
    profile::Profile,
};
use serde::Serialize;
use text::units::{percent, share, time};

/// The cost of collecting, as measured while collecting. The parts add up to `total_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time of the CUDA processes since they initialised CUDA; without such processes, of the command. 0 if unknown.
    pub program_cpu_ns: u64,
    /// The time that warpscope took within the program.
    pub total_ns: u64,
    /// The part of it on the program's own threads, within its launches: it delays them. The rest runs beside them.
    pub delay_ns: u64,
    /// `total_ns` as a share of `program_cpu_ns`, 0 to 1.
    pub share: f64,
    /// The unit of `each_ns`: a launch, or a call in a trace.
    pub unit: &'static str,
    /// The number of launches or calls.
    pub units: u64,
    /// `total_ns` by launch or call.
    pub each_ns: u64,
    /// What the time was spent on.
    pub parts: Vec<Part>,
    /// What is not included because it was not measured.
    pub not_measured: Vec<&'static str>,
    /// CPU time of warpscope itself, which runs beside the program.
    pub collector_cpu_ns: u64,
    /// Time in the BPF programs. That of the launch marker is part of `stacks`.
    pub programs: Vec<Program>,
}

/// A part of the cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What the time was spent on.
    pub name: &'static str,
    /// The time.
    pub ns: u64,
}

/// Time in a BPF program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The program.
    pub name: CostProgram,
    /// Estimated number of runs.
    pub runs: u64,
    /// Estimated time of these runs.
    pub ns: u64,
}

impl Cost {
    /// Returns the cost of a recording, by launch or by one of the traced `calls`; `None` if it was not measured.
    pub fn of(profile: &Profile, calls: Option<u64>) -> Option<Self> {
        let cost = &profile.cost;
        let own = cost.own?;
        let sampled = profile.start.as_ref().is_some_and(|start| start.frequency > 0);
        let injected = !cost.sessions.is_empty();
        let sum =
            |of: fn(&model::event::SessionCost) -> u64| cost.sessions.values().map(of).fold(0, u64::saturating_add);
        let program = |program| cost.programs.get(&program).map_or(0, |(_, ns)| *ns);
        let stacks = sum(|cost| cost.stacks_ns);
        let callbacks = sum(|cost| cost.callbacks_ns).max(stacks);
        let cupti = if injected && sampled { cupti(profile) } else { Cupti::default() };
        let parts = [
            (if calls.is_some() { "markers" } else { "stacks" }, stacks),
            ("CUPTI", cupti.in_program),
            ("CUPTI's threads", cupti.in_own_threads),
            ("callbacks", callbacks - stacks),
            ("sending", sum(|cost| cost.sender_ns)),
            ("CPU samples", program(CostProgram::Sample)),
            ("probes", program(CostProgram::Enter).saturating_add(program(CostProgram::Leave))),
            ("events", program(CostProgram::Hit)),
        ];
        let parts: Vec<Part> =
            parts.into_iter().filter(|(_, ns)| *ns > 0).map(|(name, ns)| Part { name, ns }).collect();
        let probed = parts.iter().any(|part| matches!(part.name, "probes" | "events"));
        let total_ns = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.ns));
        let program_cpu_ns = if injected { sum(|cost| cost.process_ns) } else { own.program_ns };
        let (unit, units) = calls
            .map_or(("launch", profile.ledger.launches.saturating_add(profile.sampled.estimated.launches)), |calls| {
                ("call", calls)
            });
        let not_measured = [
            (injected && !sampled).then_some("CUPTI's own time, which only CPU samples show"),
            probed.then_some("the kernel's traps at probes"),
        ];
        Some(Self {
            program_cpu_ns,
            total_ns,
            delay_ns: callbacks.saturating_add(cupti.in_program),
            share: share(total_ns, program_cpu_ns),
            unit,
            units,
            each_ns: total_ns / units.max(1),
            parts,
            not_measured: not_measured.into_iter().flatten().collect(),
            collector_cpu_ns: own.collector_ns,
            programs: cost
                .programs
                .iter()
                .map(|(name, (runs, ns))| Program { name: *name, runs: *runs, ns: *ns })
                .collect(),
        })
    }

    /// Returns the cost in one sentence; `None` if there was none.
    pub fn sentence(&self) -> Option<String> {
        if self.total_ns == 0 {
            return None;
        }
        let whole = match self.program_cpu_ns {
            0 => time(self.total_ns),
            program => format!("{} of the program's CPU time", percent(self.total_ns, program)),
        };
        let each = |ns: u64| time(ns.checked_div(self.units).unwrap_or(ns));
        let parts: Vec<_> = self.parts.iter().map(|part| format!("{} {}", part.name, each(part.ns))).collect();
        let parts = parts.join(", ");
        let detail =
            if self.units == 0 { parts } else { format!("{} per {} ({parts})", each(self.total_ns), self.unit) };
        let missing = match self.not_measured.as_slice() {
            [] => String::new(),
            missing => format!("; not measured: {}", missing.join(", ")),
        };
        Some(format!("warpscope took {whole}: {detail}{missing}"))
    }
}

/// CPU time in CUPTI that the injected library does not measure itself.
#[derive(Default)]
struct Cupti {
    /// On threads of the program.
    in_program: u64,
    /// On threads that CUPTI created.
    in_own_threads: u64,
}

/// Returns the CPU time in CUPTI, from CPU samples.
fn cupti(profile: &Profile) -> Cupti {
    let mut sums = Cupti::default();
    for ((_, stack), weight) in &profile.cpu {
        match cupti_thread(profile, *stack) {
            Some(true) => sums.in_own_threads = sums.in_own_threads.saturating_add(weight.ns),
            Some(false) => sums.in_program = sums.in_program.saturating_add(weight.ns),
            None => {}
        }
    }
    sums
}

/// Whether a stack is that of a thread that CUPTI created. `None` if it is not in CUPTI, or if the injected library calls
/// CUPTI there or is called by it.
fn cupti_thread(profile: &Profile, stack: StackId) -> Option<bool> {
    let stack = profile.stacks.get(stack)?;
    let (mut cupti, mut own_thread) = (false, None);
    // Outermost first.
    for frame in stack.frames().collect::<Vec<_>>().into_iter().rev() {
        let names = profile.symbols.at(frame.named_in(stack.process), frame, stack.time);
        for name in names.into_iter().flat_map(|names| names.iter()) {
            let is_cupti = name.kind == FrameKind::Probe && name.module.starts_with("libcupti.so");
            if name.kind == FrameKind::Probe && !is_cupti {
                return None;
            }
            cupti |= is_cupti;
            // A thread begins in the C library.
            if name.kind != FrameKind::Kernel
                && !name.module.starts_with("libc.so")
                && !name.module.starts_with("libpthread")
            {
                own_thread.get_or_insert(is_cupti);
            }
        }
    }
    own_thread.filter(|_| cupti)
}
