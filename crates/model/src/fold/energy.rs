//! Divides the energy of GPUs among kernels, while readings and kernels arrive.
//!
//! ```text
//!            closed      |             open             | ahead
//!   ---------------------|---------|---------|----------|-------
//!   readings ........... r         r         r          r  (the last one that differs)
//! ```
//!
//! Kernels arrive later than the readings around them, so intervals stay open until there are too many kernels in them. A
//! kernel may also arrive before the reading that ends its interval: it waits ahead.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::{busy::BusyTime, divide::divide};
use crate::{
    energy::GpuEnergy,
    event::{Energy, Uuid},
    profile::GpuKey,
};

/// The maximum number of GPUs.
const MAX_GPUS: usize = 64;
/// The maximum number of parts of kernels in the open intervals of a GPU: about 10 MB.
const MAX_PARTS: usize = 1 << 18;
/// The maximum number of open intervals of a GPU: seven minutes of them.
const MAX_OPEN: usize = 4096;
/// The maximum number of kernels of a GPU that wait for a reading.
const MAX_AHEAD: usize = 1 << 16;

/// The energy counters of all GPUs.
#[derive(Default)]
pub struct Meters {
    gpus: BTreeMap<Uuid, Meter>,
}

impl Meters {
    /// Whether no energy was recorded.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Adds a reading.
    pub fn read(&mut self, reading: &Energy) {
        if self.gpus.len() < MAX_GPUS || self.gpus.contains_key(&reading.gpu) {
            self.gpus.entry(reading.gpu).or_default().read(reading.time, reading.millijoules);
        }
    }

    /// Adds a kernel.
    pub fn add(&mut self, gpu: Uuid, start: u64, end: u64, key: GpuKey) {
        if let Some(meter) = self.gpus.get_mut(&gpu) {
            meter.add(start, end, key);
        }
    }

    /// Returns the microjoules of each key, and the energy of each GPU that `used` selects.
    pub fn finish(self, used: impl Fn(Uuid) -> bool) -> (FxHashMap<GpuKey, u64>, BTreeMap<Uuid, GpuEnergy>) {
        let (mut of_keys, mut of_gpus) = (FxHashMap::default(), BTreeMap::new());
        for (gpu, meter) in self.gpus.into_iter().filter(|(gpu, _)| used(*gpu)) {
            let (keys, energy) = meter.finish();
            of_keys.extend(keys);
            of_gpus.insert(gpu, energy);
        }
        (of_keys, of_gpus)
    }
}

/// The counter of one GPU. A key belongs to one GPU.
#[derive(Default)]
struct Meter {
    /// The last reading that differs from the one before, or the first.
    last: Option<(u64, u64)>,
    /// The time of the first reading, and of the last.
    span: (u64, u64),
    open: VecDeque<Interval>,
    /// Parts of kernels in the open intervals.
    parts: usize,
    ahead: Vec<(u64, u64, GpuKey)>,
    sums: FxHashMap<GpuKey, u64>,
    energy: GpuEnergy,
}

/// The time between two readings.
struct Interval {
    start: u64,
    end: u64,
    microjoules: u64,
    busy: BusyTime,
    kernels: FxHashMap<GpuKey, u64>,
    parts: usize,
}

impl Interval {
    fn add(&mut self, start: u64, end: u64, key: GpuKey) {
        let (start, end) = (start.max(self.start), end.min(self.end));
        if start < end {
            self.busy.add(start, end);
            add(self.kernels.entry(key).or_default(), end - start);
            self.parts += 1;
        }
    }
}

impl Meter {
    fn read(&mut self, time: u64, millijoules: u64) {
        let energy = &mut self.energy;
        let Some((start, before)) = self.last else {
            (self.last, self.span) = (Some((time, millijoules)), (time, time));
            energy.readings = 1;
            return;
        };
        // Of recordings that are read as one, each may have readings of the same counter.
        if time <= self.span.1 {
            return;
        }
        let since_last = time - self.span.1;
        self.span.1 = time;
        energy.readings += 1;
        // The counter has not been updated: the next difference is that of the whole time.
        if millijoules == before {
            return;
        }
        energy.changes += 1;
        energy.resets += u64::from(millijoules < before);
        let microjoules = millijoules.saturating_sub(before).saturating_mul(1000);
        if microjoules > 0 {
            let smallest = |known: u64, new: u64| if known == 0 { new } else { known.min(new) };
            energy.shortest_change_ns = smallest(energy.shortest_change_ns, since_last.max(1));
            energy.smallest_change_uj = smallest(energy.smallest_change_uj, microjoules);
        }
        self.last = Some((time, millijoules));
        let (busy, kernels) = (BusyTime::default(), FxHashMap::default());
        let mut interval = Interval { start, end: time, microjoules, busy, kernels, parts: 0 };
        self.ahead.retain_mut(|(from, to, key)| {
            interval.add(*from, *to, *key);
            *from = (*from).max(time);
            *from < *to
        });
        self.parts += interval.parts;
        self.open.push_back(interval);
        self.close();
    }

    fn add(&mut self, start: u64, end: u64, key: GpuKey) {
        let Some((last, _)) = self.last else { return };
        let first = self.span.0;
        add(&mut self.energy.outside_ns, first.min(end).saturating_sub(start));
        let open = self.open.front().map_or(last, |interval| interval.start);
        add(&mut self.energy.late_ns, open.min(end).saturating_sub(start.max(first)));
        let at = self.open.partition_point(|interval| interval.end <= start);
        for interval in self.open.iter_mut().skip(at).take_while(|interval| interval.start < end) {
            let before = interval.parts;
            interval.add(start, end, key);
            self.parts += interval.parts - before;
        }
        if end > last {
            if self.ahead.len() < MAX_AHEAD {
                self.ahead.push((start.max(last), end, key));
            } else {
                add(&mut self.energy.late_ns, end - start.max(last));
            }
        }
        self.close();
    }

    /// Closes the oldest intervals if there are too many.
    fn close(&mut self) {
        while self.parts > MAX_PARTS || self.open.len() > MAX_OPEN {
            self.close_oldest();
        }
    }

    /// Divides the energy of the oldest interval. Each part is rounded so that the sum up to it is rounded down, in the
    /// order of the keys: what is left of a microjoule goes to the next part.
    fn close_oldest(&mut self) {
        let Some(mut interval) = self.open.pop_front() else { return };
        self.parts -= interval.parts;
        let (length, busy_ns) = (interval.end - interval.start, interval.busy.total());
        let shares = divide(interval.microjoules, &[busy_ns, length - busy_ns]);
        let mut kernels: Vec<(GpuKey, u64)> = interval.kernels.into_iter().collect();
        kernels.sort_unstable_by_key(|(key, _)| *key);
        let times: Vec<u64> = kernels.iter().map(|(_, ns)| *ns).collect();
        for ((key, _), microjoules) in kernels.iter().zip(divide(shares[0], &times)) {
            add(self.sums.entry(*key).or_default(), microjoules);
        }
        add(&mut self.energy.busy_ns, busy_ns);
        add(&mut self.energy.kernels_uj, shares[0]);
        add(&mut self.energy.idle_uj, shares[1]);
        add(&mut self.energy.total_uj, interval.microjoules);
    }

    fn finish(mut self) -> (FxHashMap<GpuKey, u64>, GpuEnergy) {
        while !self.open.is_empty() {
            self.close_oldest();
        }
        self.ahead.iter().for_each(|(start, end, _)| add(&mut self.energy.outside_ns, end - start));
        self.energy.ns = self.span.1 - self.span.0;
        (self.sums, self.energy)
    }
}

/// Sums saturate: a recording may contain any numbers.
fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}
