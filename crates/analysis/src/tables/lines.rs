//! Totals by line of user code: a line has one row, whatever it launches.

use std::collections::BTreeMap;

use model::profile::{CpuWeight, GpuWeight, Profile};
use text::units::share;

use super::rows::{Cell, Rows};
use crate::{
    cpu, names,
    user_code::{Place, UserCode},
};

/// Returns the lines of user code: the GPU time of the work that they launched, and their CPU time. The rows add up to the
/// totals of the recording.
pub fn lines(profile: &Profile) -> Rows {
    let code = UserCode::new(profile);
    let mut sums: BTreeMap<Place, (GpuWeight, CpuWeight)> = BTreeMap::new();
    for (key, weight) in &profile.gpu {
        let place = key.capture.or(key.stack).map(|stack| code.place(key.process, stack));
        let not_seen = || Place { frame: names::LAUNCH_NOT_SEEN.to_owned(), file: String::new() };
        sums.entry(place.unwrap_or_else(not_seen)).or_default().0.add(weight);
    }
    for (place, weight) in cpu::by_line(profile, &code) {
        sums.entry(place).or_default().1 = weight;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (gpu, cpu))| std::cmp::Reverse((gpu.ns, cpu.ns)));
    let gpu_ns = sums.iter().fold(0_u64, |sum, (_, (gpu, _))| sum.saturating_add(gpu.ns));
    let cpu_ns = sums.iter().fold(0_u64, |sum, (_, (_, cpu))| sum.saturating_add(cpu.ns));
    let has_energy = !profile.energy.is_empty();
    let row = |(place, (gpu, cpu)): (Place, (GpuWeight, CpuWeight))| {
        let mut row = vec![
            Cell::Text(place.frame),
            Cell::Text(place.file),
            Cell::Count(gpu.count),
            Cell::Ns(gpu.ns),
            Cell::Share(share(gpu.ns, gpu_ns)),
        ];
        row.extend(has_energy.then_some(Cell::Microjoules(gpu.microjoules)));
        row.extend([Cell::Count(cpu.count), Cell::Ns(cpu.ns), Cell::Share(share(cpu.ns, cpu_ns))]);
        row
    };
    let mut columns = vec!["line", "file", "count", "gpu_ns", "gpu_share"];
    columns.extend(has_energy.then_some("energy_uj"));
    columns.extend(["samples", "cpu_ns", "cpu_share"]);
    Rows { columns, rows: sums.into_iter().map(row).collect() }
}
