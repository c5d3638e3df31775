//! The utilisation of GPUs and CPUs over time, in equal intervals.

use std::collections::BTreeMap;

use model::profile::Profile;

use super::block::Column;

/// Number of intervals.
const INTERVALS: u64 = 1024;

/// Utilisation by interval.
pub struct Overview {
    /// The length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Durations of operations by device: concurrent operations are added.
    gpus: BTreeMap<u32, Vec<u64>>,
    /// CPU time.
    cpu: Vec<u64>,
}

impl Overview {
    pub fn new(profile: &Profile) -> Self {
        let interval_ns = profile.wall_ns().div_ceil(INTERVALS).max(1);
        Self { interval_ns, gpus: BTreeMap::new(), cpu: vec![0; INTERVALS as usize] }
    }

    /// Adds an operation.
    pub fn gpu(&mut self, device: u32, start: u64, duration: u64) {
        let bins = self.gpus.entry(device).or_insert_with(|| vec![0; INTERVALS as usize]);
        spread(bins, self.interval_ns, start, duration);
    }

    /// Adds a CPU sample at the end of the time that it stands for.
    pub fn cpu(&mut self, time: u64, weight: u64) {
        spread(&mut self.cpu, self.interval_ns, time.saturating_sub(weight), weight);
    }

    /// Returns the durations by device, and the CPU time.
    pub fn bins(&self) -> (&BTreeMap<u32, Vec<u64>>, &Vec<u64>) {
        (&self.gpus, &self.cpu)
    }

    /// Returns the columns, and the devices in their order. `busy` is the exact time in which each device was busy,
    /// where all operations are known.
    pub fn columns(self, busy: Option<BTreeMap<u32, Vec<u64>>>) -> (Vec<Column>, Vec<u32>) {
        let gpus = busy.unwrap_or(self.gpus);
        let interval = self.interval_ns;
        let devices = gpus.keys().copied().collect();
        let columns = vec![
            Column::delta("overview.gpu", gpus.into_values().flatten().map(|ns| ns.min(interval))),
            Column::delta("overview.cpu", self.cpu),
        ];
        (columns, devices)
    }
}

/// Returns the time in which each device was busy, from operations in the order of their start.
pub fn busy(interval_ns: u64, operations: impl Iterator<Item = (u32, u64, u64)>) -> BTreeMap<u32, Vec<u64>> {
    let mut devices = BTreeMap::<u32, (u64, Vec<u64>)>::new();
    for (device, start, duration) in operations {
        let (until, bins) = devices.entry(device).or_insert_with(|| (0, vec![0; INTERVALS as usize]));
        let end = start.saturating_add(duration);
        let start = start.max(*until);
        if end > start {
            spread(bins, interval_ns, start, end - start);
            *until = end;
        }
    }
    devices.into_iter().map(|(device, (_, bins))| (device, bins)).collect()
}

/// Divides a duration among the intervals. What is after the last is omitted.
fn spread(bins: &mut [u64], interval: u64, start: u64, duration: u64) {
    let end = start.saturating_add(duration);
    let mut at = start;
    while at < end {
        let bin = at / interval;
        let Some(sum) = usize::try_from(bin).ok().and_then(|bin| bins.get_mut(bin)) else { return };
        let until = end.min((bin + 1) * interval);
        *sum = sum.saturating_add(until - at);
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that overlapping operations are counted once, and that time is divided exactly.
    ///
    /// ```text
    ///   interval   |         0         |         1         |
    ///   stream 1      =====5..13=====                         one operation across both: 8..14
    /// ```
    #[test]
    fn overlapping_work_counts_once() {
        let operations = [(0, 5, 3), (0, 6, 1), (0, 7, 5), (1, 19, 4)];
        let busy = busy(10, operations.into_iter());
        assert_eq!(busy[&0][..3], [5, 2, 0]);
        assert_eq!(busy[&1][..3], [0, 1, 3]);
        let mut bins = [0; 2];
        spread(&mut bins, 10, 15, u64::MAX);
        assert_eq!(bins, [0, 5]);
    }
}
