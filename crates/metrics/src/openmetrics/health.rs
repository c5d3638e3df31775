//! Families about warpscope itself: what it watches, what it lost, what it costs.

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
    LIBRARIES = Maximum "warpscope_watched_libraries", "", "CUDA libraries that are watched.";
    FUNCTIONS = Maximum "warpscope_watched_functions", "", "Functions of those libraries that are watched.";
    LATE = Counter "warpscope_late_processes", "",
        "Processes that loaded a CUDA library before it was watched: their first calls are missing.";
    LATE_TIME = Counter "warpscope_late_seconds", "seconds",
        "Time between the loading of a CUDA library and its watching, over all late processes.";
    MISSED = Counter "warpscope_missed_processes", "",
        "Processes that ended before their CUDA library was watched: all their calls are missing.";
    LOST = Counter "warpscope_lost_calls", "", "Calls that found no room in a map of the kernel.";
    MAP_ENTRIES = Gauge "warpscope_map_entries", "", "Entries in a map of the kernel.";
    MAP_ROOM = Gauge "warpscope_map_max_entries", "", "Entries that a map of the kernel has room for.";
    SUMMED = Gauge "warpscope_summed_series", "",
        "Series that are summed into \"other\" rather than shown, because of max-series and top-kernels.";
    CPU = Counter "warpscope_cpu_seconds", "seconds", "CPU time that warpscope has used.";
    RESIDENT = Maximum "warpscope_resident_memory_bytes", "bytes", "Memory that warpscope has resident.";
    SCRAPE = Maximum "warpscope_scrape_duration_seconds", "seconds", "Time it took to gather these numbers.";
}

/// Writes how warpscope fares. `summed` series are not shown for themselves; the snapshot took `took`.
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
    one(&CPU, Labels::default(), health.cpu_seconds.into());
    one(&RESIDENT, Labels::default(), health.resident_bytes.into());
    one(&SCRAPE, Labels::default(), took.as_secs_f64().into());

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
