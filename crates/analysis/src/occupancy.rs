//! The occupancy of kernels: how many warps a multiprocessor can hold, what limits them, and how grids fill the device.

use std::collections::BTreeMap;

use cuda::occupancy::{Limiter, Occupancy, Shape};
use model::profile::{GpuWeight, Profile};
use serde::Serialize;

use crate::names;

/// The most rows of the table in a summary.
const MOST_ROWS: usize = 100;

/// All runs of a kernel with one shape on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapeOccupancy {
    /// The kernel.
    pub kernel: String,
    /// Its index in the profile.
    #[serde(skip)]
    pub index: u32,
    /// The device, as shown.
    pub device: String,
    /// The device's number.
    #[serde(skip)]
    pub device_number: u32,
    /// Runs.
    pub count: u64,
    /// Their time.
    pub ns: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared_memory: u32,
    /// The warps that a multiprocessor can hold, as a share of those that fit: 0 to 1.
    pub occupancy: f64,
    /// What limits them.
    pub limiter: &'static str,
    /// The grid, as a multiple of the blocks that the device holds at once.
    pub waves: f64,
    /// Multiprocessors that get a block.
    pub multiprocessors_used: u32,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// The numbers behind it.
    #[serde(skip)]
    pub fill: Occupancy,
}

/// Returns the occupancy of all kernels whose device is known, those with the most time first.
pub(crate) fn all(profile: &Profile) -> Vec<ShapeOccupancy> {
    let mut rows = Vec::new();
    for ((number, index), shapes) in &profile.shapes {
        let Some(device) = profile.devices.get(number) else { continue };
        let row = |(shape, weight): (&Shape, &GpuWeight)| {
            let fill = Occupancy::of(&device.limits, shape)?;
            Some(ShapeOccupancy {
                kernel: names::kernel(profile, *index).to_owned(),
                index: *index,
                device: device.label.clone(),
                device_number: *number,
                count: weight.count,
                ns: weight.ns,
                blocks: shape.blocks,
                threads: shape.threads,
                registers: shape.registers,
                shared_memory: shape.shared_memory,
                occupancy: fill.share(),
                limiter: fill.limiter.text(),
                waves: shape.blocks as f64 / fill.wave as f64,
                multiprocessors_used: fill.multiprocessors,
                multiprocessors: device.limits.multiprocessors,
                fill,
            })
        };
        rows.extend(shapes.iter().filter_map(row));
    }
    rows.sort_by(|a, b| {
        let key = |row: &ShapeOccupancy| (row.device_number, row.blocks, row.threads, row.registers, row.shared_memory);
        b.ns.cmp(&a.ns).then_with(|| a.kernel.cmp(&b.kernel)).then_with(|| key(a).cmp(&key(b)))
    });
    rows
}

/// Returns the rows of a summary.
pub(crate) fn summary(all: &[ShapeOccupancy]) -> Vec<ShapeOccupancy> {
    all.iter().take(MOST_ROWS).cloned().collect()
}

/// The occupancy of a kernel over all its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mean {
    /// The mean over time.
    pub occupancy: f64,
    /// What limits most of the time.
    pub limiter: Limiter,
}

/// Returns the mean occupancy of each kernel, by its name.
pub(crate) fn means(all: &[ShapeOccupancy]) -> BTreeMap<&str, Mean> {
    // Time that counts, the occupancy in it, and the time of each limiter. A run without a time counts a little.
    let mut sums: BTreeMap<&str, (f64, f64, BTreeMap<Limiter, f64>)> = BTreeMap::new();
    for row in all {
        let (time, warps, limiters) = sums.entry(&row.kernel).or_default();
        let weight = row.ns as f64 + f64::MIN_POSITIVE;
        *time += weight;
        *warps += weight * row.occupancy;
        *limiters.entry(row.fill.limiter).or_default() += weight;
    }
    let mean = |(kernel, (time, warps, limiters)): (_, (f64, f64, BTreeMap<Limiter, f64>))| {
        let most = limiters.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        (kernel, Mean { occupancy: warps / time, limiter: most.map_or(Limiter::None, |(limiter, _)| limiter) })
    };
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use cuda::occupancy::Limits;
    use model::profile::{DeviceInfo, KernelText};

    use super::*;

    /// An H200.
    pub(crate) fn h200() -> Limits {
        Limits {
            capability: (9, 0),
            multiprocessors: 132,
            threads: 2048,
            blocks: 32,
            registers: 65_536,
            shared_memory: 233_472,
            reserved_shared_memory: 1024,
        }
    }

    /// Check that shapes have their own rows by time, that unknown devices have none, and the mean over time.
    #[test]
    fn shapes_have_rows_and_kernels_a_mean() {
        let mut profile = Profile::default();
        for (number, limits) in [(0, h200()), (1, Limits::default())] {
            let label = number.to_string();
            profile.devices.insert(number, DeviceInfo { label, limits, ..DeviceInfo::default() });
        }
        profile.kernel_names.push(KernelText { mangled: "work".into(), text: "work".into() });
        let shape = Shape { blocks: 1584, threads: 256, registers: 32, shared_memory: 0 };
        let weight = |ns| GpuWeight { count: 2, ns, max_ns: ns, ..GpuWeight::default() };
        let shapes = [(shape, weight(100)), (Shape { registers: 128, ..shape }, weight(300))];
        profile.shapes.insert((0, 0), shapes.into_iter().collect());
        profile.shapes.insert((1, 0), shapes.into_iter().collect());
        let rows = all(&profile);
        let seen: Vec<_> = rows.iter().map(|row| (row.ns, row.occupancy, row.limiter, row.waves)).collect();
        assert_eq!(seen, [(300, 0.25, "registers", 6.0), (100, 1.0, "nothing", 1.5)]);
        let mean = means(&rows)["work"];
        assert_eq!((mean.occupancy, mean.limiter), (0.4375, Limiter::Registers));
        assert_eq!(summary(&rows).len(), 2);
    }
}
