//! Metric families about warpscope itself: its coverage, losses and cost.

use std::time::Duration;

use super::{
    Format,
    process::define,
    text::{Definition, Family, Kind, Labels, Number},
};
use crate::snapshot::Snapshot;

define! {
    BUILD = Info "warpscope_build", "", "The version of warpscope.";
    PROCESSES = Maximum "warpscope_processes", "", "Processes that use CUDA.";
    LIBRARIES = Maximum "warpscope_watched_libraries", "", "Monitored CUDA libraries.";
    FUNCTIONS = Maximum "warpscope_watched_functions", "", "Monitored functions of those libraries.";
    LATE = Counter "warpscope_late_processes", "",
        "Processes that loaded a CUDA library before it was monitored: their first calls are missing.";
    LATE_TIME = Counter "warpscope_late_seconds", "seconds",
        "Time from loading a CUDA library until it was monitored, summed over the affected processes.";
    MISSED = Counter "warpscope_missed_processes", "",
        "Processes that exited before their CUDA library was monitored: all their calls are missing.";
    LOST = Counter "warpscope_lost_calls", "", "Calls not counted because a BPF map was full.";
    MAP_ENTRIES = Gauge "warpscope_map_entries", "", "Entries in a BPF map.";
    MAP_ROOM = Gauge "warpscope_map_max_entries", "", "Capacity of a BPF map.";
    SUMMED = Gauge "warpscope_summed_series", "",
        "Series summed into \"other\" because of max-series and top-kernels.";
    PAUSED = Counter "warpscope_paused_seconds", "seconds",
        "Time in which launches, copies and errors were not counted, because of max-overhead.";
    CPU = Counter "warpscope_cpu_seconds", "seconds", "CPU time used by warpscope.";
    BPF_TIME = Counter "warpscope_bpf_seconds", "seconds",
        "Time in warpscope's BPF programs, by program; estimated from a sample of their runs, without the kernel's traps.";
    BPF_RUNS = Counter "warpscope_bpf_runs", "", "Estimated runs of warpscope's BPF programs, by program.";
    RESIDENT = Maximum "warpscope_resident_memory_bytes", "bytes", "Resident memory of warpscope.";
    SCRAPE = Maximum "warpscope_scrape_duration_seconds", "seconds", "Time taken to gather this snapshot.";
}

/// Writes the families. `summed` series are not shown individually; the snapshot took `took`.
pub fn write(snapshot: &Snapshot, summed: u64, took: Duration, format: Format, text: &mut String) {
    let health = &snapshot.health;
    let mut one = |definition, labels: Labels, number: Number| {
        let mut family = Family::new(definition);
        family.push(labels, number);
        family.write(format, text);
    };
    one(&BUILD, Labels::default().with("version", env!("CARGO_PKG_VERSION")), Number::Whole(1));
    let living = snapshot.processes.iter().filter(|process| !process.ended).count();
    one(&PROCESSES, Labels::default(), Number::Whole(living as u64));
    one(&LIBRARIES, Labels::default(), health.libraries.into());
    one(&FUNCTIONS, Labels::default(), health.functions.into());
    one(&LATE, Labels::default(), health.late_processes.into());
    one(&LATE_TIME, Labels::default(), health.late.as_secs_f64().into());
    one(&MISSED, Labels::default(), health.missed_processes.into());
    one(&SUMMED, Labels::default(), (summed + health.series_dropped).into());
    if let Some(paused) = health.paused {
        one(&PAUSED, Labels::default(), paused.as_secs_f64().into());
    }
    one(&CPU, Labels::default(), health.cpu_seconds.into());
    one(&RESIDENT, Labels::default(), health.resident_bytes.into());
    one(&SCRAPE, Labels::default(), took.as_secs_f64().into());

    let (mut time, mut runs) = (Family::new(&BPF_TIME), Family::new(&BPF_RUNS));
    for (program, ran, seconds) in &health.programs {
        time.push(Labels::default().with("program", program), *seconds);
        runs.push(Labels::default().with("program", program), *ran);
    }
    for family in [time, runs] {
        family.write(format, text);
    }

    let map = |name: &str| Labels::default().with("map", name);
    let (mut lost, mut entries, mut room) = (Family::new(&LOST), Family::new(&MAP_ENTRIES), Family::new(&MAP_ROOM));
    for (name, count) in &health.lost {
        lost.push(map(name), *count);
    }
    for (name, used, most) in &health.maps {
        entries.push(map(name), *used);
        room.push(map(name), *most);
    }
    for family in [lost, entries, room] {
        family.write(format, text);
    }
}
