//! The tables of a recording, with all their rows: for `.csv`, `report --by` and [`crate::diff`].

use std::{collections::BTreeMap, io};

use model::{
    event::ProcessId,
    gpu_counters::CounterSum,
    profile::{CpuWeight, GpuWeight, Profile, What},
    ranks::RankInfo,
};
use text::units::share;

use crate::weighted::Weighted;
use crate::{
    Events, Flames, Table, View, classes, collectives, cpu, energy,
    limits::{self, KernelLimit},
    names,
    occupancy::{self, ShapeOccupancy},
    phases::Phases,
    stalls::{self, StallInstruction, StallLine, Stalled},
    user_code::user_path,
    verdicts::{self, KernelVerdict},
};

mod lines;
mod reasons;
mod rows;
mod steps;

pub use self::rows::{Cell, Rows};

impl Table {
    /// Returns the table of a profile. `events` opens the recording from its beginning; it is called at most once.
    pub fn rows<'a>(self, flames: &Flames<'_>, events: &mut dyn FnMut() -> io::Result<Events<'a>>) -> io::Result<Rows> {
        let profile = flames.profile;
        Ok(match self {
            Self::Kernels => gpu(&["kernel"], true, true, profile, by_kernel(profile)),
            Self::Classes => gpu(&["class"], false, true, profile, by_class(profile)),
            Self::Phases => gpu(&["phase"], false, true, profile, by_phase(profile)?),
            Self::Paths => gpu(&["path"], false, false, profile, by_path(flames)),
            Self::UserPaths => gpu(&["path"], false, true, profile, by_user_path(profile)),
            Self::Lines => lines::lines(profile),
            Self::Streams => gpu(&["device", "stream", "process", "pid"], false, true, profile, by_stream(profile)),
            Self::Copies => gpu(&["direction"], false, false, profile, by_direction(profile)),
            Self::Steps => steps::steps(profile),
            Self::Functions => functions(profile),
            Self::Threads => threads(profile, events()?),
            Self::Ranks => ranks(profile),
            Self::Collectives => collectives(profile),
            Self::Devices => devices(profile),
            Self::Occupancy => occupancy(profile),
            Self::Energy => energy(profile),
            Self::Counters => counters(profile),
            Self::Verdicts => verdicts(profile),
            Self::Limits => limits(profile),
            Self::Stalls => stalls(profile),
            Self::Instructions => instructions(profile),
            Self::Idle => reasons::idle(profile),
            Self::Waits => reasons::waits(profile),
            Self::Memory => reasons::memory(profile),
            Self::Calls => reasons::calls(profile),
            Self::Requests => reasons::requests(profile),
            Self::Ledger => ledger(profile)?,
        })
    }
}

/// GPU work by one or more names.
type Sums = BTreeMap<Vec<String>, GpuWeight>;

/// Returns GPU work by kernel.
pub(crate) fn by_kernel(profile: &Profile) -> Sums {
    let name = |what| match what {
        What::Kernel(index) => Some(vec![names::kernel(profile, index).to_owned()]),
        What::Copy(..) | What::Memset => None,
    };
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        if let Some(name) = name(key.what) {
            sums.entry(name).or_default().add(weight);
        }
    }
    sums
}

fn by_phase(profile: &Profile) -> io::Result<Sums> {
    let phases = Phases::new(profile).map_err(io::Error::other)?;
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        sums.entry(vec![phases.of(key)]).or_default().add(weight);
    }
    Ok(sums)
}

fn by_class(profile: &Profile) -> Sums {
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        sums.entry(vec![classes::of(profile, key.what).to_owned()]).or_default().add(weight);
    }
    sums
}

fn by_path(flames: &Flames<'_>) -> Sums {
    let mut sums = Sums::new();
    for line in &flames.gpu().lines {
        let weight = GpuWeight { count: line.weight.operations, ns: line.weight.amount, ..GpuWeight::default() };
        sums.entry(vec![line.frames.join(";")]).or_default().add(&weight);
    }
    sums
}

/// Returns GPU work by the path of user code.
pub(crate) fn by_user_path(profile: &Profile) -> Sums {
    let path = user_path(profile);
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        sums.entry(vec![path(key)]).or_default().add(weight);
    }
    sums
}

fn by_stream(profile: &Profile) -> Sums {
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        let (process, pid) = process(profile, key.process);
        let device = profile.device_label(key.device).to_owned();
        sums.entry(vec![device, key.stream.to_string(), process, pid]).or_default().add(weight);
    }
    sums
}

pub(crate) fn by_direction(profile: &Profile) -> Sums {
    let mut sums = Sums::new();
    for (key, weight) in &profile.gpu {
        if let What::Copy(direction, _) = key.what {
            sums.entry(vec![direction.to_string()]).or_default().add(weight);
        }
    }
    sums
}

fn process(profile: &Profile, id: ProcessId) -> (String, String) {
    let info = profile.processes.get(&id);
    (info.map(|info| info.comm.clone()).unwrap_or_default(), info.map(|info| info.pid.to_string()).unwrap_or_default())
}

/// Returns a table of GPU work. Only exact sums of single kernels have a longest run.
fn gpu(keys: &[&'static str], with_longest: bool, with_energy: bool, profile: &Profile, sums: Sums) -> Rows {
    let whole = profile.gpu.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.ns));
    let has_bytes = keys == ["direction"];
    // Only sums of kernels, or of all work, have an energy of their own.
    let has_energy = with_energy && !profile.energy.is_empty();
    let mut columns = keys.to_vec();
    columns.extend(["count", "ns", "mean_ns"]);
    columns.extend(with_longest.then_some("max_ns"));
    columns.extend(has_bytes.then_some("bytes"));
    columns.extend(has_energy.then_some("energy_uj"));
    columns.push("gpu_share");
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.ns));
    let rows = sums.into_iter().map(|(names, weight)| {
        let mut row: Vec<Cell> = names.into_iter().map(Cell::Text).collect();
        row.extend([Cell::Count(weight.count), Cell::Ns(weight.ns), Cell::Ns(weight.ns / weight.count.max(1))]);
        row.extend(with_longest.then_some(Cell::Ns(weight.max_ns)));
        row.extend(has_bytes.then_some(Cell::Bytes(weight.bytes)));
        row.extend(has_energy.then_some(Cell::Microjoules(weight.microjoules)));
        row.push(Cell::Share(share(weight.ns, whole)));
        row
    });
    Rows { columns, rows: rows.collect() }
}

fn functions(profile: &Profile) -> Rows {
    let mut sums: Vec<_> = cpu::by_function(profile).into_iter().collect();
    let whole = sums.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(weight.ns));
    sums.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.ns));
    let row = |(name, weight): (String, CpuWeight)| {
        vec![Cell::Text(name), Cell::Count(weight.count), Cell::Ns(weight.ns), Cell::Share(share(weight.ns, whole))]
    };
    Rows { columns: vec!["function", "samples", "ns", "cpu_share"], rows: sums.into_iter().map(row).collect() }
}

fn threads(profile: &Profile, events: Events<'_>) -> Rows {
    let weighted = Weighted::of(profile, View::default(), events);
    let at = |name: &str| weighted.kinds.iter().position(|kind| kind.name == name);
    let (cpu, launches) = (at("cpu"), at("launches"));
    let mut sums: BTreeMap<(ProcessId, u32), (u64, u64)> = BTreeMap::new();
    for row in &weighted.rows {
        let Some(tid) = row.origin.tid else { continue };
        let amount = |kind: Option<usize>| kind.map_or(0, |kind| row.amounts[kind]);
        let sum = sums.entry((row.origin.process, tid)).or_default();
        *sum = (sum.0.saturating_add(amount(cpu)), sum.1.saturating_add(amount(launches)));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    let row = |((id, tid), (ns, launches)): ((ProcessId, u32), (u64, u64))| {
        let (process, pid) = process(profile, id);
        let thread = profile.threads.get(&(id, tid)).unwrap_or(&process).clone();
        let texts = [process, pid, thread, tid.to_string()].map(Cell::Text);
        texts.into_iter().chain([Cell::Ns(ns), Cell::Count(launches)]).collect()
    };
    Rows {
        columns: vec!["process", "pid", "thread", "tid", "cpu_ns", "launches"],
        rows: sums.into_iter().map(row).collect(),
    }
}

fn ranks(profile: &Profile) -> Rows {
    let whole = profile.whole().ranks.all.iter();
    let row = |(rank, info): (&u32, &RankInfo)| {
        let text = Cell::Text(rank.to_string());
        let times = [info.gpu_ns, info.busy_ns, info.communication_ns, info.exposed_ns, info.waited_ns()].map(Cell::Ns);
        [text, Cell::Count(info.launches), Cell::Count(info.operations)].into_iter().chain(times).collect()
    };
    Rows {
        columns: vec![
            "rank",
            "launches",
            "operations",
            "gpu_ns",
            "busy_ns",
            "communication_ns",
            "exposed_ns",
            "waited_ns",
        ],
        rows: whole.filter(|(rank, _)| profile.ranks.all.contains_key(rank)).map(row).collect(),
    }
}

/// Returns the operations of communicators. A bandwidth that is not defined is empty.
fn collectives(profile: &Profile) -> Rows {
    let row = |row: collectives::Collective| {
        let bandwidth = row.bus_bytes_per_second.map_or_else(|| Cell::Text(String::new()), Cell::Number);
        vec![
            Cell::Text(row.communicator),
            Cell::Text(row.operation.name().to_owned()),
            Cell::Count(row.members.into()),
            Cell::Count(row.count),
            Cell::Bytes(row.bytes),
            Cell::Ns(row.transfer_ns),
            Cell::Ns(row.waited_ns),
            bandwidth,
        ]
    };
    Rows {
        columns: vec![
            "communicator",
            "operation",
            "members",
            "count",
            "bytes",
            "transfer_ns",
            "waited_ns",
            "bus_bytes_per_second",
        ],
        rows: collectives::by_communicator(profile).into_iter().map(row).collect(),
    }
}

fn devices(profile: &Profile) -> Rows {
    let wall = profile.wall_ns();
    let rows = profile.devices.iter().map(|(number, info)| {
        let of = profile.whole().gpu.iter().filter(|(key, _)| key.device == *number && !info.streams.is_empty());
        let (count, ns) = of.fold((0_u64, 0_u64), |(count, ns), (_, weight)| {
            (count.saturating_add(weight.count), ns.saturating_add(weight.ns))
        });
        let texts = [&info.label, &info.name, &info.uuid].map(|text| Cell::Text(text.clone()));
        let numbers =
            [Cell::Count(count), Cell::Ns(ns), Cell::Ns(info.busy_ns), Cell::Share(share(info.busy_ns, wall))];
        texts.into_iter().chain(numbers).collect()
    });
    Rows { columns: vec!["device", "name", "uuid", "count", "ns", "busy_ns", "busy_share"], rows: rows.collect() }
}

/// Returns how kernels fill the device, by kernel and shape. Waves are rounded to hundredths.
fn occupancy(profile: &Profile) -> Rows {
    let row = |row: ShapeOccupancy| {
        vec![
            Cell::Text(row.kernel),
            Cell::Text(row.device),
            Cell::Count(row.count),
            Cell::Ns(row.ns),
            Cell::Share(row.occupancy),
            Cell::Text(row.limiter.to_owned()),
            Cell::Text(format!("{:.2}", row.waves)),
            Cell::Count(row.multiprocessors_used.into()),
            Cell::Count(row.multiprocessors.into()),
            Cell::Count(row.blocks),
            Cell::Count(row.threads.into()),
            Cell::Count(row.registers.into()),
            Cell::Bytes(row.shared_memory.into()),
        ]
    };
    Rows {
        columns: vec![
            "kernel",
            "device",
            "count",
            "ns",
            "occupancy",
            "limiter",
            "waves",
            "sms_used",
            "sms",
            "blocks",
            "threads",
            "registers",
            "shared_memory",
        ],
        rows: occupancy::all(profile).into_iter().map(row).collect(),
    }
}

/// Returns energy by user code and kernel, and that of idle time. The rows add up to what NVML counted.
fn energy(profile: &Profile) -> Rows {
    let row = |row: energy::EnergyRow| {
        let watts = row.watts().unwrap_or(0.0);
        vec![
            Cell::Text(row.gpu),
            Cell::Text(row.name),
            Cell::Count(row.count),
            Cell::Ns(row.ns),
            Cell::Microjoules(row.energy_uj),
            Cell::Watts(watts),
            Cell::Share(row.share),
        ]
    };
    Rows {
        columns: vec!["gpu", "path", "count", "ns", "energy_uj", "watts", "energy_share"],
        rows: energy::by_line(profile).into_iter().map(row).collect(),
    }
}

/// Returns the metrics of the counters of GPUs.
fn counters(profile: &Profile) -> Rows {
    let row = |sum: &CounterSum| {
        let texts = [&sum.gpu, sum.source.text(), sum.metric, sum.unit.text()].map(|text| Cell::Text(text.to_owned()));
        let numbers =
            [Cell::Number(sum.mean), Cell::Number(sum.max), Cell::Count(sum.intervals), Cell::Ns(sum.interval_ns)];
        texts.into_iter().chain(numbers).collect()
    };
    Rows {
        columns: vec!["gpu", "source", "metric", "unit", "mean", "max", "intervals", "interval_ns"],
        rows: profile.gpu_counters.iter().map(row).collect(),
    }
}

/// Returns what limits each kernel. A value that was not measured is empty.
fn verdicts(profile: &Profile) -> Rows {
    let row = |row: KernelVerdict| {
        let number = |value: Option<f64>| value.map_or_else(|| Cell::Text(String::new()), Cell::Number);
        vec![
            Cell::Text(row.kernel),
            Cell::Text(row.verdict.text().to_owned()),
            Cell::Ns(row.ns),
            Cell::Share(row.share),
            Cell::Count(row.samples),
            number(row.sm_active),
            number(row.tensor),
            number(row.dram),
            number(row.dram_bytes_per_second),
            number(row.issued),
        ]
    };
    Rows {
        columns: vec![
            "kernel",
            "verdict",
            "ns",
            "gpu_share",
            "samples",
            "sm_active",
            "tensor",
            "dram",
            "dram_bytes_per_second",
            "issued",
        ],
        rows: verdicts::all(profile).into_iter().map(row).collect(),
    }
}

/// Returns what limits each kernel at each line. A value that was not measured is empty.
fn limits(profile: &Profile) -> Rows {
    let row = |row: KernelLimit| {
        let number = |value: Option<f64>| value.map_or_else(|| Cell::Text(String::new()), Cell::Number);
        let mut cells =
            vec![Cell::Ns(row.ns), Cell::Share(row.share), Cell::Count(row.runs), Cell::Count(row.measured)];
        cells.extend([row.of_peak, row.sm_active, row.warps, row.tensor, row.dram, row.l2, row.l1].map(number));
        cells.extend([row.threads, row.sectors].map(number));
        cells.extend([row.limit.text().to_owned(), row.line.frame, row.kernel, row.meaning].map(Cell::Text));
        cells
    };
    let numbers = [
        "ns",
        "gpu_share",
        "runs",
        "measured",
        "of_peak",
        "sm_active",
        "warps",
        "tensor",
        "dram",
        "l2",
        "l1",
        "threads",
        "sectors",
    ];
    Rows {
        columns: numbers.into_iter().chain(["limit", "line", "kernel", "meaning"]).collect(),
        rows: limits::all(profile).into_iter().map(row).collect(),
    }
}

/// Returns the lines of kernels.
fn stalls(profile: &Profile) -> Rows {
    let row = |line: StallLine| stalled([line.kernel, line.line], line.stalled);
    Rows {
        columns: ["kernel", "line"].into_iter().chain(STALLED).collect(),
        rows: stalls::lines(profile).into_iter().map(row).collect(),
    }
}

/// Returns the instructions of kernels.
fn instructions(profile: &Profile) -> Rows {
    let row = |at: StallInstruction| stalled([at.kernel, at.instruction, at.line], at.stalled);
    Rows {
        columns: ["kernel", "instruction", "line"].into_iter().chain(STALLED).collect(),
        rows: stalls::instructions(profile).into_iter().map(row).collect(),
    }
}

/// The share is that of the kernel's samples, the stall's that of the line's or instruction's.
const STALLED: [&str; 6] = ["samples", "ns", "kernel_share", "stall", "stall_share", "meaning"];

fn stalled<const N: usize>(names: [String; N], stalled: Stalled) -> Vec<Cell> {
    let cells = [
        Cell::Count(stalled.samples),
        Cell::Ns(stalled.ns),
        Cell::Share(stalled.share),
        Cell::Text(stalled.stall),
        Cell::Share(stalled.stall_share),
        Cell::Text(stalled.meaning.to_owned()),
    ];
    names.into_iter().map(Cell::Text).chain(cells).collect()
}

fn ledger(profile: &Profile) -> io::Result<Rows> {
    let row = |(name, count)| vec![Cell::Text(name), Cell::Count(count)];
    Ok(Rows { columns: vec!["name", "count"], rows: ledger_counts(profile)?.into_iter().map(row).collect() })
}

/// Returns every count of the ledger, and its name.
pub fn ledger_counts(profile: &Profile) -> io::Result<Vec<(String, u64)>> {
    let mut counts = Vec::new();
    flatten("", &serde_json::to_value(&profile.ledger)?, &mut counts);
    Ok(counts)
}

/// Adds the numbers of an object, those of objects within it with the outer name first.
fn flatten(prefix: &str, value: &serde_json::Value, counts: &mut Vec<(String, u64)>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, counts);
            }
        }
        value => counts.push((prefix.to_owned(), value.as_u64().unwrap_or(0))),
    }
}
