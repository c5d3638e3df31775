//! Metric families of processes: memory, launches, copies, errors, calls.

use super::{
    Format,
    bounds::{DURATION_BOUNDS, SIZE_BOUNDS},
    other::OTHER,
    selection::{SPACES, Selected},
    text::{Buckets, Definition, Family, Kind, Labels, Number},
};
use crate::snapshot::{
    Copies, Kinds, Memory, Process,
    site::{site, stack_id},
};

macro_rules! define {
    ($($constant:ident = $kind:ident $name:literal, $unit:literal, $help:literal;)*) => {
        $(static $constant: Definition = Definition { name: $name, kind: Kind::$kind, unit: $unit, help: $help };)*
        /// All families of this file.
        pub static ALL: &[&Definition] = &[$(&$constant),*];
    };
}
pub(super) use define;

define! {
    WATCHED = Maximum "warpscope_process_watched_seconds", "seconds", "How long the process has been monitored.";
    UNWATCHED = Maximum "warpscope_process_unwatched_seconds", "seconds",
        "How long the process used a CUDA library before it was monitored: calls in that time are missing.";
    LIVE_BYTES = Gauge "warpscope_memory_live_bytes", "bytes", "Memory allocated through CUDA and not yet freed.";
    LIVE = Gauge "warpscope_memory_live_allocations", "", "Allocations not yet freed.";
    PEAK = Maximum "warpscope_memory_peak_bytes", "bytes", "Peak memory of one process.";
    ALLOCATIONS = Counter "warpscope_memory_allocations", "", "Successful allocations.";
    ALLOCATED = Counter "warpscope_memory_allocated_bytes", "bytes", "Bytes of successful allocations.";
    FREES = Counter "warpscope_memory_frees", "", "Successful frees.";
    FAILED = Counter "warpscope_memory_failed_allocations", "", "Failed allocations.";
    FAILED_FREES = Counter "warpscope_memory_failed_frees", "", "Failed frees.";
    UNKNOWN_FREES = Counter "warpscope_memory_unknown_frees", "",
        "Successful frees of memory whose allocation was not seen, such as memory allocated before the monitor started.";
    MISSED_FREES = Counter "warpscope_memory_missed_frees", "",
        "Allocations whose address was reused although no free of it was seen.";
    RELEASED = Counter "warpscope_memory_released_allocations", "",
        "Allocations released with their context, for example by cudaDeviceReset or cuCtxDestroy.";
    UNTRACKED = Counter "warpscope_memory_untracked_allocations", "",
        "Allocations that are not tracked because the process or its user has used up its share of the map.";
    SUSPECT_BYTES = Gauge "warpscope_memory_suspect_bytes", "bytes",
        "Live memory by the line of the program that allocated it, only the most suspicious lines.";
    SUSPECT_COUNT = Gauge "warpscope_memory_suspect_allocations", "", "Live allocations of a suspicious line.";
    SUSPECT_AGE = Maximum "warpscope_memory_suspect_age_seconds", "seconds",
        "How long a suspicious line has continuously had live allocations.";
    LAUNCHES = Counter "warpscope_launches", "", "Kernel launches, excluding graphs.";
    KERNEL_LAUNCHES = Counter "warpscope_kernel_launches", "", "Kernel launches by kernel.";
    GRAPH_LAUNCHES = Counter "warpscope_graph_launches", "", "Launches of whole graphs.";
    COPIES = Counter "warpscope_copies", "", "Copies.";
    COPIED = Counter "warpscope_copied_bytes", "bytes", "Bytes copied.";
    COPY_SIZE = Histogram "warpscope_copy_size_bytes", "bytes", "Copies by size.";
    COPY_DURATION = Histogram "warpscope_copy_duration_seconds", "seconds",
        "Synchronous copies by the duration of the call, including its wait for earlier work. Asynchronous copies return early and are not timed.";
    SETS = Counter "warpscope_memsets", "", "Memsets.";
    SET = Counter "warpscope_memset_bytes", "bytes", "Bytes set.";
    ERRORS = Counter "warpscope_errors", "", "Failed CUDA calls by function and result.";
    CALLS = Histogram "warpscope_call_duration_seconds", "seconds", "CUDA calls by function and duration. Of launches that repeat each other, one in 16 is timed, and stands for the others.";
}

/// Returns the labels shared by all series of a process.
pub fn labels(process: &Process) -> Labels {
    if process.id == 0 && process.pid == 0 {
        return Labels::default().with("pid", OTHER);
    }
    Labels::default()
        .with("pid", &process.pid.to_string())
        .with("comm", &process.comm)
        .with("user", &process.user)
        .with("container", &process.container)
}

/// Writes the counted families of the selected processes.
pub fn write(selected: &Selected, kinds: Kinds, format: Format, text: &mut String) {
    let labelled: Vec<(Labels, &Process)> =
        selected.processes.iter().map(|process| (labels(process), process)).collect();
    let each = |definition: &'static Definition, add: &dyn Fn(&mut Family, &Labels, &Process)| {
        let mut family = Family::new(definition);
        for (labels, process) in &labelled {
            add(&mut family, labels, process);
        }
        family.write(format, &mut *text);
    };
    write_with(kinds, each);

    let histogram = |definition, bounds: &[u64], unit: f64, add: &dyn Fn(&mut Family, &Labels, &Process)| {
        let mut family = Family::with_bounds(definition, bounds.iter().map(|bound| *bound as f64 / unit));
        for (labels, process) in &labelled {
            add(&mut family, labels, process);
        }
        family.write(format, text);
    };
    write_histograms(kinds, histogram);
}

type WriteSamples<'a> = &'a dyn Fn(&mut Family, &Labels, &Process);

fn write_with(kinds: Kinds, mut each: impl FnMut(&'static Definition, WriteSamples<'_>)) {
    each(&WATCHED, &|family, labels, process| {
        // The sum over the processes in "other" would be meaningless.
        if process.id != 0 {
            family.push(labels.clone(), process.watched.as_secs_f64());
        }
    });
    each(&UNWATCHED, &|family, labels, process| {
        family.push_some(labels, process.unwatched.map(|time| time.as_secs_f64()));
    });
    if kinds.memory {
        memory(&mut each);
        suspects(&mut each);
    }
    if kinds.launches {
        launches(&mut each);
    }
    if kinds.graphs {
        each(&GRAPH_LAUNCHES, &|family, labels, process| family.push(labels.clone(), process.graph_launches));
    }
    if kinds.copies {
        each(&COPIES, &|family, labels, process| {
            for copies in &process.copies {
                family.push(direction(labels, copies), copies.moved.count);
            }
        });
        each(&COPIED, &|family, labels, process| {
            for copies in &process.copies {
                family.push(direction(labels, copies), copies.moved.bytes);
            }
        });
    }
    if kinds.sets {
        each(&SETS, &|family, labels, process| family.push(labels.clone(), process.sets.count));
        each(&SET, &|family, labels, process| family.push(labels.clone(), process.sets.bytes));
    }
    if kinds.errors {
        each(&ERRORS, &|family, labels, process| {
            for errors in &process.errors {
                family.push(labels.with("function", &errors.function).with("code", &errors.code), errors.count);
            }
        });
    }
}

fn memory(each: &mut impl FnMut(&'static Definition, WriteSamples<'_>)) {
    type Part = (&'static Definition, fn(&Memory) -> u64);
    let parts: [Part; 8] = [
        (&LIVE_BYTES, |memory| memory.live_bytes),
        (&LIVE, |memory| memory.live),
        (&PEAK, |memory| memory.peak_bytes),
        (&ALLOCATIONS, |memory| memory.allocations),
        (&ALLOCATED, |memory| memory.allocated_bytes),
        (&FREES, |memory| memory.frees),
        (&FAILED, |memory| memory.failed),
        (&FAILED_FREES, |memory| memory.failed_frees),
    ];
    // Rare: one series each, for all memory spaces together.
    let totals: [Part; 4] = [
        (&UNKNOWN_FREES, |memory| memory.unknown_frees),
        (&MISSED_FREES, |memory| memory.missed_frees),
        (&RELEASED, |memory| memory.released),
        (&UNTRACKED, |memory| memory.untracked),
    ];
    for (definition, part) in parts {
        let now = definition.name == LIVE.name || definition.name == LIVE_BYTES.name;
        // An ended process holds no memory.
        each(definition, &|family, labels, process| {
            for space in SPACES.into_iter().filter(|_| !(now && process.ended)) {
                if let Some(memory) = process.memory.iter().find(|memory| memory.space == space) {
                    family.push(labels.with("space", space.name()), part(memory));
                }
            }
        });
    }
    for (definition, part) in totals {
        each(definition, &|family, labels, process| {
            if !process.memory.is_empty() {
                family.push(labels.clone(), process.memory.iter().map(part).fold(0, u64::saturating_add));
            }
        });
    }
}

fn suspects(each: &mut impl FnMut(&'static Definition, WriteSamples<'_>)) {
    let mut part = |definition, number: fn(&crate::snapshot::Suspect) -> Number| {
        each(definition, &|family, labels, process| {
            for suspect in &process.suspects {
                let site = site(&suspect.stack).unwrap_or_default();
                let id =
                    if suspect.stack.is_empty() { String::new() } else { format!("{:016x}", stack_id(&suspect.stack)) };
                let labels = labels
                    .with("function", &suspect.function)
                    .with("site", &site)
                    .with("stack_id", &id)
                    .with("remark", suspect.remark);
                family.push(labels, number(suspect));
            }
        });
    };
    part(&SUSPECT_BYTES, |suspect| suspect.bytes.into());
    part(&SUSPECT_COUNT, |suspect| suspect.count.into());
    part(&SUSPECT_AGE, |suspect| suspect.oldest.as_secs_f64().into());
}

fn launches(each: &mut impl FnMut(&'static Definition, WriteSamples<'_>)) {
    each(&LAUNCHES, &|family, labels, process| {
        let named: u64 = process.kernels.iter().map(|kernel| kernel.launches).sum();
        let others = process.other_launches.saturating_add(process.unnamed_launches);
        family.push(labels.clone(), named.saturating_add(others));
    });
    each(&KERNEL_LAUNCHES, &|family, labels, process| {
        for kernel in &process.kernels {
            family.push(labels.with("kernel", &kernel.name), kernel.launches);
        }
        if process.other_launches > 0 {
            family.push(labels.with("kernel", OTHER), process.other_launches);
        }
    });
}

fn write_histograms(kinds: Kinds, mut each: impl FnMut(&'static Definition, &[u64], f64, WriteSamples<'_>)) {
    if kinds.copies {
        each(&COPY_SIZE, &SIZE_BOUNDS, 1.0, &|family, labels, process| {
            for copies in process.copies.iter().filter(|copies| !copies.sizes.is_empty()) {
                let buckets = Buckets::sort(&copies.sizes, &SIZE_BOUNDS, copies.moved.bytes.into());
                family.push_buckets(direction(labels, copies), buckets);
            }
        });
        each(&COPY_DURATION, &DURATION_BOUNDS, 1e9, &|family, labels, process| {
            let timed = |copies: &&Copies| !copies.asynchronous && !copies.durations.is_empty();
            for copies in process.copies.iter().filter(timed) {
                let seconds = Number::Real(copies.moved.ns as f64 / 1e9);
                let buckets = Buckets::sort(&copies.durations, &DURATION_BOUNDS, seconds);
                family.push_buckets(labels.with("direction", copies.direction), buckets);
            }
        });
    }
    each(&CALLS, &DURATION_BOUNDS, 1e9, &|family, labels, process| {
        for calls in process.calls.iter().filter(|calls| !calls.durations.is_empty()) {
            let seconds = Number::Real(calls.ns as f64 / 1e9);
            let buckets = Buckets::sort(&calls.durations, &DURATION_BOUNDS, seconds);
            family.push_buckets(labels.with("function", &calls.function), buckets);
        }
    });
}

fn direction(labels: &Labels, copies: &Copies) -> Labels {
    let mode = match (copies.direction, copies.asynchronous) {
        (OTHER, _) => OTHER,
        (_, true) => "asynchronous",
        (_, false) => "synchronous",
    };
    labels.with("direction", copies.direction).with("mode", mode)
}
