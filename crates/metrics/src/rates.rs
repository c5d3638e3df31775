//! What happens now: the difference between two snapshots.

use std::collections::HashMap;

use crate::snapshot::{Copies, Kernel, Process, Snapshot};

/// A process, and how fast it does what it does.
#[derive(Clone, Debug)]
pub struct Pace<'a> {
    /// The process.
    pub process: &'a Process,
    /// As it was in the snapshot before.
    pub before: Option<&'a Process>,
    /// Seconds between the two; where there was none before, for how long it has been watched.
    pub seconds: f64,
}

impl<'a> Pace<'a> {
    /// All processes of `now`.
    pub fn of(now: &'a Snapshot, before: Option<&'a Snapshot>) -> Vec<Self> {
        let elapsed = before.map(|before| now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9);
        let pace = |process: &'a Process| {
            let known = before.and_then(|before| before.processes.iter().find(|known| known.id == process.id));
            let seconds = elapsed.filter(|_| known.is_some()).unwrap_or(process.watched.as_secs_f64());
            Self { process, before: known, seconds }
        };
        now.processes.iter().map(pace).collect()
    }

    /// How much of something there was per second. 0 where no time has passed.
    pub fn per_second(&self, count: impl Fn(&Process) -> u64) -> f64 {
        if self.seconds > 0.0 { self.gained(count) as f64 / self.seconds } else { 0.0 }
    }

    /// How much of something has come since the snapshot before.
    pub fn gained(&self, count: impl Fn(&Process) -> u64) -> u64 {
        count(self.process).saturating_sub(self.before.map_or(0, count))
    }

    /// Launches per second, graphs included.
    pub fn launches(&self) -> f64 {
        self.per_second(launches)
    }

    /// Kernels with their launches per second.
    pub fn kernels(&self) -> Vec<(&'a Kernel, f64)> {
        let before: HashMap<&str, u64> = self
            .before
            .iter()
            .flat_map(|process| &process.kernels)
            .map(|kernel| (&*kernel.name, kernel.launches))
            .collect();
        let per_second = |kernel: &Kernel| {
            let new = kernel.launches.saturating_sub(before.get(&*kernel.name).copied().unwrap_or(0));
            if self.seconds > 0.0 { new as f64 / self.seconds } else { 0.0 }
        };
        self.process.kernels.iter().map(|kernel| (kernel, per_second(kernel))).collect()
    }

    /// Bytes and copies per second in the direction and mode of `copies`.
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

/// All launches of a process, graphs included.
pub fn launches(process: &Process) -> u64 {
    let named = process.kernels.iter().fold(0_u64, |sum, kernel| sum.saturating_add(kernel.launches));
    let others = process.other_launches.saturating_add(process.unnamed_launches);
    named.saturating_add(others).saturating_add(process.graph_launches)
}

/// All bytes of a process copied in one direction.
pub fn copied(process: &Process, direction: &str) -> u64 {
    let copies = process.copies.iter().filter(|copies| copies.direction == direction);
    copies.fold(0, |sum, copies| sum.saturating_add(copies.moved.bytes))
}

/// All live bytes of a process, wherever they lie.
pub fn live_bytes(process: &Process) -> u64 {
    process.memory.iter().fold(0, |sum, memory| sum.saturating_add(memory.live_bytes))
}

/// The most live bytes of a process in each space, added up.
pub fn peak_bytes(process: &Process) -> u64 {
    process.memory.iter().fold(0, |sum, memory| sum.saturating_add(memory.peak_bytes))
}

/// All failed calls of a process.
pub fn errors(process: &Process) -> u64 {
    process.errors.iter().fold(0, |sum, errors| sum.saturating_add(errors.count))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that a rate is over the time between snapshots, and for a new process over its own.
    #[test]
    fn rates() {
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
        // The same moment again, or a counter that fell: nothing happened.
        assert_eq!(Pace::of(&now, Some(&now))[0].launches(), 0.0);
        assert_eq!(Pace::of(&before, Some(&now))[0].launches(), 0.0);
    }
}
