//! Current rates: the difference between two snapshots.

use std::collections::HashMap;

use crate::snapshot::{Copies, Kernel, Process, Snapshot, Space};

/// A process and its rates.
#[derive(Clone, Debug)]
pub struct Pace<'a> {
    /// The process.
    pub process: &'a Process,
    /// The same process in the previous snapshot.
    pub before: Option<&'a Process>,
    /// Seconds between the two; without a previous snapshot, the time the process has been watched.
    pub seconds: f64,
    /// GPU memory of the process as the driver counts it; `None` if NVML does not know.
    pub driver_bytes: Option<u64>,
}

impl<'a> Pace<'a> {
    /// Returns the rates of all processes of `now`.
    pub fn of(now: &'a Snapshot, before: Option<&'a Snapshot>) -> Vec<Self> {
        let elapsed = before.map(|before| now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9);
        let pace = |process: &'a Process| {
            let known = before.and_then(|before| before.processes.iter().find(|known| known.id == process.id));
            let seconds = elapsed.filter(|_| known.is_some()).unwrap_or(process.watched.as_secs_f64());
            Self { process, before: known, seconds, driver_bytes: driver_bytes(now, process.pid) }
        };
        now.processes.iter().map(pace).collect()
    }

    /// Returns GPU memory as the driver counts it, and the part whose allocation was not seen, of a process that used CUDA
    /// before it was watched.
    pub fn unseen_memory(&self) -> Option<(u64, u64)> {
        let late = self.process.unwatched.is_some() && !self.process.ended;
        let bytes = self.driver_bytes.filter(|_| late)?;
        let device = self.process.memory.iter().filter(|memory| memory.space == Space::Device);
        let seen = device.fold(0_u64, |sum, memory| sum.saturating_add(memory.live_bytes));
        Some((bytes, bytes.checked_sub(seen).filter(|unseen| *unseen > 0)?))
    }

    /// Returns the rate of a counter per second; 0 if no time has passed.
    pub fn per_second(&self, count: impl Fn(&Process) -> u64) -> f64 {
        if self.seconds > 0.0 { self.gained(count) as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the increase of a counter since the previous snapshot.
    pub fn gained(&self, count: impl Fn(&Process) -> u64) -> u64 {
        count(self.process).saturating_sub(self.before.map_or(0, count))
    }

    /// Launches per second, including graphs.
    pub fn launches(&self) -> f64 {
        self.per_second(launches)
    }

    /// Returns the kernels with their launches per second. Launches are compared by address: a kernel may have had no name,
    /// or been among others, in the previous snapshot.
    pub fn kernels(&self) -> Vec<(&'a Kernel, f64)> {
        let listed = self.before.iter().flat_map(|process| &process.kernels).flat_map(|kernel| &kernel.by_address);
        let unlisted = self.before.iter().flat_map(|process| &process.unlisted);
        let before: HashMap<u64, u64> = listed.chain(unlisted).copied().collect();
        let new = |(address, launches): &(u64, u64)| launches.saturating_sub(before.get(address).copied().unwrap_or(0));
        let per_second = |kernel: &Kernel| {
            let new: u64 = kernel.by_address.iter().map(new).sum();
            if self.seconds > 0.0 { new as f64 / self.seconds } else { 0.0 }
        };
        self.process.kernels.iter().map(|kernel| (kernel, per_second(kernel))).collect()
    }

    /// Returns bytes and copies per second in the direction and mode of `copies`.
    pub fn copies(&self, copies: &Copies) -> (f64, f64) {
        let sum = |process: &Process, number: fn(&Copies) -> u64| {
            let same =
                |known: &&Copies| known.direction == copies.direction && known.asynchronous == copies.asynchronous;
            process.copies.iter().filter(same).map(number).sum()
        };
        let bytes = self.per_second(|process| sum(process, |copies| copies.moved.bytes));
        (bytes, self.per_second(|process| sum(process, |copies| copies.moved.count)))
    }

    /// Bytes per second to GPUs.
    pub fn to_device(&self) -> f64 {
        self.per_second(|process| copied(process, "HtoD"))
    }

    /// Bytes per second from GPUs.
    pub fn to_host(&self) -> f64 {
        self.per_second(|process| copied(process, "DtoH"))
    }
}

/// Returns the memory of a process on all GPUs.
fn driver_bytes(now: &Snapshot, pid: u32) -> Option<u64> {
    let all = now.devices.iter().flat_map(|device| &device.processes);
    all.filter(|(user, _)| *user == pid).map(|(_, bytes)| *bytes).reduce(u64::saturating_add)
}

/// Returns all launches of a process, including graphs.
pub fn launches(process: &Process) -> u64 {
    let named = process.kernels.iter().fold(0_u64, |sum, kernel| sum.saturating_add(kernel.launches));
    let others = process.other_launches.saturating_add(process.unnamed_launches);
    named.saturating_add(others).saturating_add(process.graph_launches)
}

/// Returns the bytes that a process copied in one direction.
pub fn copied(process: &Process, direction: &str) -> u64 {
    let copies = process.copies.iter().filter(|copies| copies.direction == direction);
    copies.fold(0, |sum, copies| sum.saturating_add(copies.moved.bytes))
}

/// Returns all live bytes of a process, in all spaces.
pub fn live_bytes(process: &Process) -> u64 {
    process.memory.iter().fold(0, |sum, memory| sum.saturating_add(memory.live_bytes))
}

/// Returns the sum of a process's peak bytes over all spaces.
pub fn peak_bytes(process: &Process) -> u64 {
    process.memory.iter().fold(0, |sum, memory| sum.saturating_add(memory.peak_bytes))
}

/// Returns all failed calls of a process.
pub fn errors(process: &Process) -> u64 {
    process.errors.iter().fold(0, |sum, errors| sum.saturating_add(errors.count))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::{Device, Memory};

    /// Check that a rate is measured between snapshots, and for a new process over the time it has been watched.
    #[test]
    fn rates_are_measured_between_snapshots() {
        let process = |id, launches| Process {
            id,
            other_launches: launches,
            watched: Duration::from_secs(2),
            ..Process::default()
        };
        let before = Snapshot { time_ns: 1_000_000_000, processes: vec![process(1, 100)], ..Snapshot::default() };
        let now = Snapshot {
            time_ns: 6_000_000_000,
            processes: vec![process(1, 600), process(2, 10)],
            ..Snapshot::default()
        };
        let launches = |before| Pace::of(&now, before).iter().map(Pace::launches).collect::<Vec<_>>();
        assert_eq!(launches(Some(&before)), [100.0, 5.0]);
        assert_eq!(launches(None), [300.0, 5.0]);
        // The same snapshot again, or a counter that decreased, has a rate of 0.
        assert_eq!(Pace::of(&now, Some(&now))[0].launches(), 0.0);
        assert_eq!(Pace::of(&before, Some(&now))[0].launches(), 0.0);
    }

    /// Check that a kernel that gets its name between two snapshots has the rate of the time between them, also if it
    /// joins others of the same name.
    #[test]
    fn kernels_that_get_a_name_have_the_rate_of_the_interval() {
        let kernel = |by_address: &[(u64, u64)]| Kernel {
            name: "k".into(),
            launches: by_address.iter().map(|(_, launches)| launches).sum(),
            by_address: by_address.to_vec(),
            ..Kernel::default()
        };
        let at = |seconds: u64, kernels, unlisted: &[(u64, u64)]| Snapshot {
            time_ns: seconds * 1_000_000_000,
            processes: vec![Process { id: 1, kernels, unlisted: unlisted.to_vec(), ..Process::default() }],
            ..Snapshot::default()
        };
        let before = at(10, vec![kernel(&[(0x1, 100)])], &[(0x2, 5_000), (0x3, 7)]);
        let now = at(12, vec![kernel(&[(0x1, 120), (0x2, 5_100), (0x4, 8)])], &[]);
        let rates: Vec<f64> = Pace::of(&now, Some(&before))[0].kernels().iter().map(|(_, rate)| *rate).collect();
        assert_eq!(rates, [64.0], "20, 100 and 8 launches in two seconds");
    }

    /// Check that memory on all GPUs is compared with what was seen, only for processes that used CUDA before.
    #[test]
    fn memory_from_before_is_what_the_driver_counts_beyond_the_seen() {
        let seen = Memory { space: Space::Device, live_bytes: 300, ..Memory::default() };
        let pinned = Memory { space: Space::Host, live_bytes: 5_000, ..Memory::default() };
        let process = |pid, late: bool| Process {
            pid,
            unwatched: late.then_some(Duration::from_secs(60)),
            memory: vec![seen, pinned],
            ..Process::default()
        };
        let device = |processes| Device { processes, ..Device::default() };
        let now = Snapshot {
            processes: vec![process(1, true), process(2, false), process(3, true), process(4, true)],
            devices: vec![device(vec![(1, 400), (2, 900), (3, 300)]), device(vec![(1, 600)])],
            ..Snapshot::default()
        };
        let unseen: Vec<_> = Pace::of(&now, None).iter().map(Pace::unseen_memory).collect();
        assert_eq!(unseen, [Some((1_000, 700)), None, None, None]);
    }
}
