//! The summary of a recording: the numbers of `report --json`, from which the text after `record` is made.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
};

use model::{
    event::{Direction, LossCause, Mode, Origin},
    profile::{GpuWeight, ProcessInfo, Profile, What},
    ranks::is_communication,
};
use text::units::{hundredths, share};

use crate::trace::TraceSummary;
use crate::{
    Events, Flames, collectives, cpu, energy, findings,
    flame_tree::Flame,
    host_waits::HostWaits,
    idle, limits, losses, memory,
    names::{self, GpuFrames},
    occupancy::{self, ShapeOccupancy},
    stalls,
    steps::StepSummary,
    user_code::UserCode,
    verdicts,
};

mod clocks;
mod cost;
mod events;
mod numbers;
mod ranges;
mod ranks;
mod sampling;
mod top;

pub use clocks::Clock;
pub use cost::Cost;
pub use events::EventSummary;
pub use numbers::{Copies, Device, Dumped, Function, Graphs, Kernel, Path, Summary};
pub use ranges::Range;
pub use ranks::{Communication, Rank};
pub use sampling::Sampling;
pub use top::TOP;
use top::top;

impl Summary {
    /// Sums up a profile.
    pub fn of(flames: &Flames<'_>) -> Self {
        let profile = flames.profile;
        let ledger = &profile.ledger;
        let start = profile.start.as_ref();
        let wall_ns = profile.wall_ns();
        let gpu_time_ns = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
        let cpu = flames.cpu();
        let cpu_time_ns = cpu.lines.iter().fold(0_u64, |sum, line| sum.saturating_add(line.weight.amount));
        let devices = devices(profile, wall_ns);
        let working = || devices.iter().filter(|device| device.streams > 0);
        let estimated = profile.sampled.estimated;
        let launches = ledger.launches.saturating_add(estimated.launches);
        let code = UserCode::new(profile);
        let idle = idle::of(profile, &UserCode::new(profile.whole()));
        let memory = memory::of(profile, &code);
        let occupancy = occupancy::all(profile);
        let late = collectives::late(profile, &code);
        let sampling = Sampling::of(profile);
        let trace = TraceSummary::of(profile);
        let waits = HostWaits::of(profile.whole());
        let recording = profile.recording();
        let recorded_calls = TraceSummary::of(recording).map(|trace| trace.calls);
        let mut lost = ledger.lost.clone();
        for cause in LossCause::ALL {
            lost.causes.entry(cause).or_default();
        }
        Self {
            command: start.map(|s| s.command.clone()).unwrap_or_default(),
            filters: profile.filters().to_vec(),
            part_note: profile.part_note(),
            mode: start.map(|s| s.mode).unwrap_or_default(),
            wall_ns,
            cut_off: profile.end.is_none(),
            dump: profile.dump.as_ref().map(|dump| Dumped {
                reason: dump.reason,
                text: dump.text.clone(),
                at_ns: dump.time.saturating_sub(start.map_or(dump.from, |start| start.time)),
                window_ns: dump.window_ns,
                discarded: dump.discarded,
                full: dump.full,
            }),
            status: profile.end.and_then(|end| end.status),
            findings: findings::findings(profile, &code, &idle, &memory, &occupancy, &late),
            idle,
            memory,
            occupancy: occupancy::summary(&occupancy),
            energy: energy::summary(profile),
            counters: profile.gpu_counters.clone(),
            kernels_by_counters: verdicts::summary(profile),
            limits: limits::summary(profile),
            stalls: stalls::summary(profile),
            gpu_time_ns,
            kernel_time_ns: ledger.kernel_ns.saturating_add(estimated.kernel_ns),
            kernel_time_delivered_ns: ledger.kernel_ns_delivered,
            gpu_busy_ns: working().fold(0, |sum, device| sum.saturating_add(device.busy_ns)),
            gpu_idle_ns: working().fold(0, |sum, d| sum.saturating_add(wall_ns.saturating_sub(d.busy_ns))),
            host_wait_ns: waits.all.ns,
            host_waits: waits.all.count,
            copy_wait_ns: waits.copies.ns,
            copy_waits: waits.copies.count,
            launches,
            launches_per_second: if wall_ns == 0 { 0.0 } else { launches as f64 * 1e9 / wall_ns as f64 },
            launch_each_ns: waits.launch_each_ns(),
            kernels: ledger.kernels.saturating_add(estimated.kernels),
            copies: ledger.copies,
            memsets: ledger.memsets,
            matched: ledger.activities_matched,
            matched_percent: hundredths(
                ledger.activities_matched,
                ledger.activities_matched + ledger.activities_unmatched,
            ) as f64
                / 100.0,
            unmatched_activities: ledger.activities_unmatched,
            pending_launches: ledger.launches_pending,
            failed_launches: ledger.launches_failed,
            captured_launches: ledger.launches_captured,
            empty_launches: ledger.launches_empty,
            steps: profile.steps.as_ref().filter(|_| profile.part.is_none()).and_then(|s| StepSummary::of(s, profile)),
            graphs: (ledger.graph_operations > 0).then_some(Graphs {
                operations: ledger.graph_operations,
                operations_unknown: ledger.graph_operations_unknown,
                nodes_unknown: ledger.graph_nodes_unknown,
            }),
            zero_time: ledger.zero_time,
            unfinished: ledger.unfinished,
            stacks_missing: ledger.stacks_missing,
            gpu_stack_ends: ledger.gpu_stack_ends.clone(),
            cpu_stack_ends: ledger.cpu_stack_ends.clone(),
            sessions_cut_off: ledger.sessions_cut_off,
            sessions_left: ledger.sessions_left,
            lost,
            stacks: stacks(profile),
            cpu_samples: ledger.samples.saturating_sub(cpu.own.samples),
            cpu_time_ns,
            own_samples: cpu.own.samples,
            own_time_ns: cpu.own.amount,
            processes: processes(profile),
            images: profile.processes.len() as u64,
            threads: profile.threads.len() as u64,
            top_kernels: top_kernels(profile, &occupancy, gpu_time_ns),
            top_paths: top_paths(&flames.gpu(), gpu_time_ns),
            top_lines: top_lines(profile, &code, gpu_time_ns),
            top_functions: top_functions(profile, cpu_time_ns),
            copies_by_direction: copies(profile),
            // That of selected GPUs would depend on the selection.
            gpu_imbalance: imbalance(&devices).filter(|_| !profile.is_part()),
            devices,
            device_numbering: profile.numbering,
            ranks: Rank::of(profile, wall_ns),
            ranges: Range::of(profile, gpu_time_ns),
            communication: Communication::of(profile, gpu_time_ns),
            collectives: collectives::by_communicator(profile),
            waits: late,
            clocks: Clock::all(profile),
            mps_processes: profile.sessions.values().filter(|session| session.mps).count() as u64,
            events: events::of(flames),
            sampling: sampling.clone(),
            cost: Cost::of(recording, recorded_calls),
            trace,
            no_gpu_work: no_gpu_work(profile),
            notes: profile.notes.clone(),
            pauses: ledger.pauses.clone(),
            ledger: losses::matched(ledger)
                .into_iter()
                .chain(losses::captured(ledger.launches_captured))
                .chain(losses::graph_nodes(ledger))
                .chain(losses::own_cost(cpu.own))
                .chain(losses::empty(ledger.launches_empty))
                .chain(ledger.stalls.iter().flat_map(losses::sampled))
                .chain(ledger.stalls.iter().filter_map(losses::not_sampled))
                .chain(sampling.iter().flat_map(Sampling::sentences))
                .chain(losses::sentences(ledger))
                .collect(),
        }
    }

    /// The same, with the parts that require the events of a trace. `events` opens the recording from its beginning; it
    /// is called once, and only for traces of single calls.
    pub fn with_events<'a>(
        flames: &Flames<'_>,
        events: &mut dyn FnMut() -> io::Result<Events<'a>>,
    ) -> io::Result<Self> {
        let mut summary = Self::of(flames);
        let has_calls = summary.mode != Mode::TraceSums;
        if let Some(trace) = summary.trace.as_mut().filter(|_| has_calls) {
            trace.add_events(flames.profile, events()?);
        }
        Ok(summary)
    }
}

/// Counts processes. A process that runs another program has another image, but is the same process.
fn processes(profile: &Profile) -> u64 {
    let before = |image: &ProcessInfo| image.parent.is_some_and(|before| profile.processes.contains_key(&before));
    profile.processes.values().filter(|image| image.origin != Origin::Exec || !before(image)).count() as u64
}

fn stacks(profile: &Profile) -> u64 {
    let cpu = profile.cpu.keys().map(|(_, stack)| *stack);
    let gpu = profile.gpu.keys().flat_map(|key| key.stack.into_iter().chain(key.capture));
    cpu.chain(gpu).filter(|stack| profile.stacks.contains(*stack)).collect::<HashSet<_>>().len() as u64
}

/// Returns the GPUs with selected work, and all that they did.
fn devices(profile: &Profile, wall_ns: u64) -> Vec<Device> {
    let device = |(&index, info): (&u32, &model::profile::DeviceInfo)| Device {
        index,
        label: info.label.clone(),
        uuid: info.uuid.clone(),
        gpu_uuid: info.gpu_uuid.clone(),
        name: info.name.clone(),
        busy_ns: info.busy_ns,
        busy_share: share(info.busy_ns, wall_ns),
        streams: info.streams.len() as u64,
        time_ns: 0,
        kernels: 0,
        copies: 0,
        memsets: 0,
    };
    let mut devices: BTreeMap<u32, Device> = profile.devices.iter().map(|of| (*of.0, device(of))).collect();
    for (key, weight) in &profile.whole().gpu {
        let Some(device) = devices.get_mut(&key.device).filter(|device| device.streams > 0) else { continue };
        device.time_ns = device.time_ns.saturating_add(weight.ns);
        let count = match key.what {
            What::Kernel(_) => &mut device.kernels,
            What::Copy(..) => &mut device.copies,
            What::Memset => &mut device.memsets,
        };
        *count = count.saturating_add(weight.count);
    }
    devices.into_values().collect()
}

/// Returns the busy time of the busiest GPU over the mean, less 1.
fn imbalance(devices: &[Device]) -> Option<f64> {
    let busy: Vec<f64> = devices.iter().filter(|d| d.streams > 0).map(|d| d.busy_ns as f64).collect();
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    let most = busy.iter().copied().fold(0.0, f64::max);
    (busy.len() > 1 && mean > 0.0).then(|| most / mean - 1.0)
}

/// Returns why a recording has no GPU work. If a process that uses CUDA could not report, the notes say why.
fn no_gpu_work(profile: &Profile) -> Option<&'static str> {
    let mode = profile.start.as_ref().map_or(Mode::Merged, |start| start.mode);
    if !matches!(mode, Mode::Merged | Mode::GpuOnly) || !profile.gpu.is_empty() {
        return None;
    }
    if !profile.recording().gpu.is_empty() {
        return Some("there is none in the selected part");
    }
    let is_libcuda = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so"));
    let explains =
        |note: &str| ["no GPU activity", "GPU activity was not recorded"].iter().any(|start| note.starts_with(start));
    Some(if profile.notes.iter().any(|note| explains(note)) {
        "see the notes above"
    } else if !profile.sessions.is_empty() && profile.ledger.launches == 0 {
        "CUDA was initialised, but nothing was launched"
    } else if !profile.sessions.is_empty() {
        "see the ledger below"
    } else if profile.mappings.is_empty() {
        "which libraries were loaded is unknown"
    } else if profile.mappings.iter().any(|mapping| is_libcuda(&mapping.path)) {
        "libcuda was loaded, but nothing was reported"
    } else {
        "no process loaded libcuda"
    })
}

fn top_kernels(profile: &Profile, occupancy: &[ShapeOccupancy], gpu_time_ns: u64) -> Vec<Kernel> {
    let means = occupancy::means(occupancy);
    let mut kernels: BTreeMap<&str, GpuWeight> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let What::Kernel(index) = key.what {
            kernels.entry(names::kernel(profile, index)).or_default().add(weight);
        }
    }
    let kernel = |(name, weight): (&str, GpuWeight)| Kernel {
        name: name.to_owned(),
        communication: is_communication(name),
        count: weight.count,
        ns: weight.ns,
        mean_ns: weight.ns / weight.count.max(1),
        max_ns: weight.max_ns,
        share: share(weight.ns, gpu_time_ns),
        occupancy: means.get(name).map(|mean| mean.occupancy),
        limiter: means.get(name).map(|mean| mean.limiter.text()),
    };
    top(kernels, |weight| weight.ns).map(kernel).collect()
}

fn top_paths(flame: &Flame, gpu_time_ns: u64) -> Vec<Path> {
    let lines = flame.lines.iter().map(|line| (&line.frames, line.weight)).collect();
    top(lines, |weight| weight.amount)
        .map(|(frames, weight)| Path {
            path: frames.iter().map(ToString::to_string).collect(),
            ns: weight.amount,
            count: weight.operations,
            share: share(weight.amount, gpu_time_ns),
        })
        .collect()
}

/// Sums GPU work by user code.
fn top_lines(profile: &Profile, code: &UserCode<'_>, gpu_time_ns: u64) -> Vec<Path> {
    let gpu_frames = GpuFrames::new(profile);
    let mut paths = HashMap::new();
    let mut sums: BTreeMap<Vec<String>, GpuWeight> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let stack = key.capture.or(key.stack);
        let frames = paths.entry((key.process, stack)).or_insert_with(|| {
            let mut frames = vec![names::process(profile, key.process)];
            match stack {
                Some(stack) => frames.extend(code.path(key.process, stack)),
                None => frames.push(names::LAUNCH_NOT_SEEN.to_owned()),
            }
            frames
        });
        let replay = key.capture.is_some().then(|| names::GRAPH_REPLAY.to_owned());
        let operation = gpu_frames.name(key.device, key.what);
        sums.entry(frames.iter().cloned().chain(replay).chain([operation]).collect()).or_default().add(weight);
    }
    top(sums, |weight| weight.ns)
        .map(|(path, weight)| Path { path, ns: weight.ns, count: weight.count, share: share(weight.ns, gpu_time_ns) })
        .collect()
}

fn top_functions(profile: &Profile, cpu_time_ns: u64) -> Vec<Function> {
    top(cpu::by_function(profile), |weight| weight.ns)
        .map(|(name, weight)| Function {
            name,
            ns: weight.ns,
            samples: weight.count,
            share: share(weight.ns, cpu_time_ns),
        })
        .collect()
}

fn copies(profile: &Profile) -> Vec<Copies> {
    let mut directions: BTreeMap<Direction, GpuWeight> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        if let What::Copy(direction, _) = key.what {
            directions.entry(direction).or_default().add(weight);
        }
    }
    let copies = |(direction, weight): (Direction, GpuWeight)| Copies {
        direction,
        count: weight.count,
        bytes: weight.bytes,
        ns: weight.ns,
        gb_per_s: share(weight.bytes, weight.ns),
    };
    top(directions, |weight| weight.bytes).map(copies).collect()
}
