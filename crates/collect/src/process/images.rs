//! Assigns mappings to process images.
//!
//! Forks and execs are reported by our own probes, mappings by the kernel's mapping records, on two channels. At an
//! exec the kernel announces the new program, maps its files, and only then runs the exec tracepoint:
//!
//! ```text
//!   kernel's records     Exec(t1)  Mapped  Mapped ................. Mapped
//!   our probe                                      Process(t2)
//!   belongs to           ------------- the new image -------------------->
//! ```
//!
//! So a mapping belongs to the first image exec'ed after the last announcement before it.

use std::collections::{HashMap, VecDeque};

use bpf::{MapEvent, Mapped};
use model::event::{Mapping, ProcessId};

/// The images of each followed process, and mappings that wait for theirs.
#[derive(Debug, Default)]
pub struct Images {
    by_pid: HashMap<u32, Lives>,
    /// By time. There may be tens of thousands beside thousands of records, each of which asks what was mapped before it.
    waiting: VecDeque<Mapped>,
    /// Mappings of processes that are not followed, or not known yet, by pid, each with the round in which it arrived.
    /// There may be many on a busy machine.
    unassigned: HashMap<u32, Vec<(u64, Mapped)>>,
    /// How many there are of these.
    unassigned_count: usize,
    /// Counts the times that the probes' records were read to the end. The record of a process may arrive a round after its
    /// mappings.
    round: u64,
    /// Mappings that did not fit.
    dropped: u64,
    /// Ended processes: pid, when, and the round in which the end was reported. They are removed after pending mappings
    /// have been handled, a round later at the latest: an exec may have been announced and then failed.
    gone: Vec<(u32, u64, u64)>,
    /// Removed processes: pid, last image, and the round. They may have connected before they ended.
    ended: Vec<(u32, ProcessId, u64)>,
}

/// The most mappings of unknown processes kept.
const MOST_UNASSIGNED: usize = 1 << 15;
/// The most ended processes kept.
const MOST_ENDED: usize = 4096;

/// The images of one pid, oldest first, and the times of announced execs.
#[derive(Debug, Default)]
struct Lives {
    images: Vec<(u64, ProcessId, bool)>,
    announced: Vec<u64>,
    /// The round of the last announcement.
    round: u64,
}

impl Lives {
    /// Returns the image that a mapping made at `time` belongs to; `None` if its exec has not been reported yet.
    fn at(&self, time: u64) -> Option<ProcessId> {
        let begun = self.images.iter().rev().find(|(start, ..)| *start <= time);
        let image = match self.announced.iter().rev().find(|t| **t <= time) {
            // A later image has begun if the announcement of its exec was lost.
            Some(announced) => begun
                .filter(|(start, ..)| start >= announced)
                .or_else(|| self.images.iter().find(|(start, _, exec)| *exec && start >= announced)),
            None => begun.or(self.images.first()),
        };
        image.map(|(_, image, _)| *image)
    }
}

impl Images {
    /// Adds a new image.
    pub fn born(&mut self, pid: u32, image: ProcessId, time: u64, exec: bool) {
        if self.by_pid.get(&pid).is_none_or(|lives| lives.images.is_empty()) {
            let own = self.unassigned_of(pid);
            wait(&mut self.waiting, own);
        }
        self.by_pid.entry(pid).or_default().images.push((time, image, exec));
    }

    /// Adds a process that was running before it was followed; earlier data of its pid belonged to other processes.
    pub fn found(&mut self, pid: u32, image: ProcessId, time: u64) {
        self.waiting.retain(|mapped| mapped.pid != pid || mapped.time > time);
        let own = self.unassigned_of(pid).filter(|mapped| mapped.time > time);
        wait(&mut self.waiting, own);
        self.by_pid.insert(pid, Lives { images: vec![(time, image, false)], announced: Vec::new(), round: 0 });
    }

    /// Removes the mappings that arrived before their process was known.
    fn unassigned_of(&mut self, pid: u32) -> impl Iterator<Item = Mapped> + use<> {
        let own = self.unassigned.remove(&pid).unwrap_or_default();
        self.unassigned_count -= own.len();
        own.into_iter().map(|(_, mapped)| mapped)
    }

    /// Handles the end of a process.
    pub fn died(&mut self, pid: u32, time: u64) {
        self.gone.push((pid, time, self.round));
    }

    /// Returns the image that `pid` runs now.
    pub fn current(&self, pid: u32) -> Option<ProcessId> {
        self.by_pid.get(&pid).and_then(|lives| lives.images.last()).map(|(_, image, _)| *image)
    }

    /// Returns the image of a process that has connected, also if it has ended since.
    pub fn of_peer(&self, pid: u32) -> Option<ProcessId> {
        let ended = || self.ended.iter().rev().find(|(of, ..)| *of == pid).map(|(_, image, _)| *image);
        self.current(pid).or_else(ended)
    }

    /// Removes the processes that ended before this round, when all connections made before it have been read.
    pub fn forget_ended(&mut self) {
        self.ended.retain(|(.., round)| *round == self.round);
    }

    /// Returns every followed process, with the image that it runs now.
    pub fn all(&self) -> Vec<(u32, ProcessId)> {
        let current = |(pid, lives): (&u32, &Lives)| lives.images.last().map(|(_, image, _)| (*pid, *image));
        self.by_pid.iter().filter_map(current).collect()
    }

    /// Adds the kernel's mapping records. Call [`Self::settle`] after the probes' records have been read too.
    pub fn take(&mut self, events: Vec<MapEvent>) {
        let mut waiting = Vec::new();
        for event in events {
            match event {
                MapEvent::Exec { pid, time } => {
                    // Whether it is followed is known only after the probes' records: keep it, `settle` removes it.
                    let lives = self.by_pid.entry(pid).or_default();
                    lives.announced.push(time);
                    lives.round = self.round;
                }
                MapEvent::Mapped(mapped) => match self.by_pid.get(&mapped.pid) {
                    Some(lives) if !lives.images.is_empty() => waiting.push(mapped),
                    _ if self.unassigned_count < MOST_UNASSIGNED => {
                        self.unassigned_count += 1;
                        self.unassigned.entry(mapped.pid).or_default().push((self.round, mapped));
                    }
                    _ => self.dropped += 1,
                },
            }
        }
        wait(&mut self.waiting, waiting);
    }

    /// Returns the mappings made up to `time` whose image is already known, with their pid.
    pub fn up_to(&mut self, time: u64) -> Vec<(u32, Mapping)> {
        let due = self.waiting.partition_point(|mapped| mapped.time <= time);
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for mapped in self.waiting.drain(..due) {
            match self.by_pid.get(&mapped.pid).and_then(|lives| lives.at(mapped.time)) {
                Some(process) => known.push((mapped.pid, mapping(&mapped, process))),
                None => unknown.push(mapped),
            }
        }
        for mapped in unknown.into_iter().rev() {
            self.waiting.push_front(mapped);
        }
        known
    }

    /// Returns the number of mappings that did not fit. Most were of processes that are not followed.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Passes on the mappings whose image is now known, with their pid, and removes processes that are not followed or
    /// have ended, once all records of the probes have been read (`all_read`).
    pub fn settle(&mut self, all_read: bool, mut each: impl FnMut(u32, Mapping)) {
        let (by_pid, this) = (&self.by_pid, self.round);
        self.waiting.retain(|mapped| {
            let Some(lives) = by_pid.get(&mapped.pid) else { return false };
            let Some(process) = lives.at(mapped.time) else { return true };
            each(mapped.pid, mapping(mapped, process));
            false
        });
        if !all_read {
            return;
        }
        self.unassigned.retain(|_, mappings| {
            mappings.retain(|(round, _)| *round == this);
            !mappings.is_empty()
        });
        self.unassigned_count = self.unassigned.values().map(Vec::len).sum();
        self.by_pid.retain(|_, lives| !lives.images.is_empty() || lives.round == this);
        self.round += 1;
        let (by_pid, waiting, ended, now) = (&mut self.by_pid, &mut self.waiting, &mut self.ended, self.round);
        self.gone.retain(|&(pid, time, round)| {
            let last = by_pid.get(&pid).and_then(|lives| lives.images.last());
            let Some(&(_, image, _)) = last.filter(|(start, ..)| *start <= time) else { return false };
            let awaited = round == this && waiting.iter().any(|mapped| mapped.pid == pid);
            if !awaited {
                by_pid.remove(&pid);
                waiting.retain(|mapped| mapped.pid != pid);
                ended.push((pid, image, now));
            }
            awaited
        });
        ended.drain(..ended.len().saturating_sub(MOST_ENDED));
    }
}

/// Adds mappings to those that wait, which stay in order of time.
fn wait(waiting: &mut VecDeque<Mapped>, new: impl IntoIterator<Item = Mapped>) {
    let before = waiting.len();
    waiting.extend(new);
    let in_order = waiting.iter().skip(before.saturating_sub(1)).is_sorted_by_key(|mapped| mapped.time);
    if !in_order {
        waiting.make_contiguous().sort_by_key(|mapped| mapped.time);
    }
}

fn mapping(mapped: &Mapped, process: ProcessId) -> Mapping {
    Mapping {
        process,
        time: mapped.time,
        start: mapped.start,
        end: mapped.start.saturating_add(mapped.length),
        offset: mapped.offset,
        path: mapped.path.clone(),
        build_id: mapped.build_id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(pid: u32, time: u64, path: &str) -> MapEvent {
        let (start, length, offset) = (0x1000, 0x1000, 0);
        MapEvent::Mapped(Mapped { pid, time, start, length, offset, path: path.into(), build_id: Vec::new() })
    }

    fn settled(images: &mut Images) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        images.settle(true, |_, m| found.push((m.process.0, m.path)));
        found
    }

    /// Check that mappings between the announcement of an exec and its tracepoint belong to the new image, whichever
    /// channel is read first.
    #[test]
    fn exec_mappings_belong_to_the_new_image() {
        let mut images = Images::default();
        images.born(7, ProcessId(1), 10, false);
        images.take(vec![mapped(7, 15, "old"), MapEvent::Exec { pid: 7, time: 20 }, mapped(7, 21, "new")]);
        assert_eq!(settled(&mut images), [(1, "old".into())]);
        images.born(7, ProcessId(2), 22, true);
        assert_eq!(settled(&mut images), [(2, "new".into())]);
        images.take(vec![mapped(7, 30, "later")]);
        assert_eq!(settled(&mut images), [(2, "later".into())]);
    }

    /// Check that mappings of a program whose announcement was lost belong to it once it has begun.
    #[test]
    fn the_announcement_of_an_exec_may_be_lost() {
        let mut images = Images::default();
        images.take(vec![MapEvent::Exec { pid: 7, time: 20 }]);
        images.born(7, ProcessId(2), 22, true);
        images.born(7, ProcessId(3), 32, true);
        images.take(vec![mapped(7, 25, "first"), mapped(7, 35, "second")]);
        assert_eq!(settled(&mut images), [(2, "first".into()), (3, "second".into())]);
    }

    /// Check that mappings are passed on in time order with the records, and wait a round for an unknown process.
    #[test]
    fn mappings_wait_a_round() {
        let mut images = Images::default();
        images.take(vec![MapEvent::Exec { pid: 7, time: 20 }, mapped(7, 21, "new"), mapped(7, 30, "later")]);
        assert!(images.up_to(25).is_empty());
        assert_eq!(settled(&mut images), []);
        images.born(7, ProcessId(2), 22, true);
        let paths = |known: Vec<(u32, Mapping)>| known.into_iter().map(|(_, mapping)| mapping.path).collect::<Vec<_>>();
        assert_eq!(paths(images.up_to(25)), ["new"]);
        assert_eq!(settled(&mut images), [(2, "later".into())]);
    }

    /// Check that mappings wait for the record of their process as long as the probes' records were not read to the end.
    #[test]
    fn mappings_wait_for_records_that_were_not_read() {
        let mut images = Images::default();
        images.take(vec![MapEvent::Exec { pid: 7, time: 20 }, mapped(7, 21, "new")]);
        for _ in 0..3 {
            images.settle(false, |_, _| panic!("its process is not known"));
        }
        images.born(7, ProcessId(2), 22, true);
        assert_eq!(settled(&mut images), [(2, "new".into())]);
        images.take(vec![mapped(8, 30, "unknown"); MOST_UNASSIGNED + 3]);
        assert_eq!(images.dropped(), 3);
    }

    /// Check that an exec that was announced and then failed leaves nothing behind.
    #[test]
    fn execs_that_fail_are_forgotten() {
        let mut images = Images::default();
        images.born(7, ProcessId(1), 10, false);
        images.take(vec![MapEvent::Exec { pid: 7, time: 20 }, mapped(7, 21, "new")]);
        images.died(7, 22);
        assert_eq!(settled(&mut images), []);
        assert_eq!(settled(&mut images), []);
        assert!(images.by_pid.is_empty() && images.waiting.is_empty() && images.gone.is_empty());
    }

    /// Check that mappings of other processes are dropped, and ended processes removed.
    #[test]
    fn unfollowed_and_ended_processes_are_removed() {
        let mut images = Images::default();
        images.take(vec![MapEvent::Exec { pid: 8, time: 1 }, mapped(8, 2, "stranger")]);
        assert_eq!(settled(&mut images), []);
        images.born(7, ProcessId(1), 10, false);
        images.take(vec![mapped(7, 11, "last")]);
        images.died(7, 12);
        assert_eq!(settled(&mut images), [(1, "last".into())]);
        assert_eq!(images.current(7), None);
        assert!(images.by_pid.is_empty());
    }

    /// Check that a process that connected and ended in one round is found in that round and in the next one.
    #[test]
    fn ended_processes_are_found_for_their_connections() {
        let mut images = Images::default();
        images.born(7, ProcessId(1), 10, false);
        images.died(7, 12);
        assert_eq!(settled(&mut images), []);
        images.forget_ended();
        assert_eq!((images.current(7), images.of_peer(7)), (None, Some(ProcessId(1))));
        assert_eq!(settled(&mut images), []);
        assert_eq!(images.of_peer(7), Some(ProcessId(1)));
        images.forget_ended();
        assert_eq!(images.of_peer(7), None);
    }
}
