//! Processes that ended in snapshots which were not shown: they are in no later one.

use crate::snapshot::{Process, Snapshot};

/// The maximum number of processes kept.
const MAX_ENDED: usize = 1024;

/// Keeps such processes for the next snapshot that is shown.
#[derive(Debug, Default)]
pub struct Ended {
    processes: Vec<Process>,
    /// Those that did not fit.
    omitted: u64,
}

impl Ended {
    /// Keeps the processes that end in a snapshot.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        for process in snapshot.processes.iter().filter(|process| process.ended) {
            if self.processes.len() < MAX_ENDED {
                self.processes.push(Process { suspects: Vec::new(), ..process.clone() });
            } else {
                self.omitted += 1;
            }
        }
    }

    /// Adds them to a snapshot.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.processes.extend(self.processes.iter().cloned());
        snapshot.processes.sort_by_key(|process| (process.pid, process.id));
        if self.omitted > 0 {
            snapshot.health.notes.push(format!("{} processes that have ended are not shown: too many", self.omitted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the processes that ended in earlier snapshots are in the next one, up to a limit that is reported.
    #[test]
    fn ended_processes_are_kept_up_to_a_limit() {
        let process = |pid, ended| Process { pid, ended, ..Process::default() };
        let of = |processes| Snapshot { processes, ..Snapshot::default() };
        let mut ended = Ended::default();
        ended.keep(&of(vec![process(3, true), process(2, false)]));
        let mut next = of(vec![process(2, false), process(9, true)]);
        ended.add_to(&mut next);
        let shown: Vec<_> = next.processes.iter().map(|process| (process.pid, process.ended)).collect();
        assert_eq!(shown, [(2, false), (3, true), (9, true)]);
        ended.keep(&of((0..MAX_ENDED as u32).map(|pid| process(pid, true)).collect()));
        ended.add_to(&mut next);
        assert_eq!(next.health.notes, ["1 processes that have ended are not shown: too many"]);
    }
}
