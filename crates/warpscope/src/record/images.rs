//! Which process image a mapping belongs to.
//!
//! Forks and execs come from our own probes, mappings from the kernel's mapping records, over two channels. At an exec the
//! kernel announces the new program, maps its files, and only then runs the exec tracepoint:
//!
//! ```text
//!   kernel's records     Exec(t1)  Mapped  Mapped ................. Mapped
//!   our probe                                      Process(t2)
//!   belongs to           ------------- the new image -------------------->
//! ```
//!
//! So a mapping belongs to the first image exec'ed after the last announcement before it.

use std::collections::HashMap;

use bpf::{MapEvent, Mapped};
use model::event::{Mapping, ProcessId};

/// Images of each followed process, and mappings that await theirs.
#[derive(Debug, Default)]
pub struct Images {
    by_pid: HashMap<u32, Lives>,
    waiting: Vec<Mapped>,
    /// Processes that are gone; they are forgotten once mappings that were under way have had their turn.
    gone: Vec<(u32, u64)>,
}

/// The images of one pid, oldest first, and the times of announced execs.
#[derive(Debug, Default)]
struct Lives {
    images: Vec<(u64, ProcessId, bool)>,
    announced: Vec<u64>,
}

impl Lives {
    /// The image that a mapping made at `time` belongs to; `None` if its exec has not reported yet.
    fn at(&self, time: u64) -> Option<ProcessId> {
        match self.announced.iter().rev().find(|t| **t <= time) {
            Some(announced) => {
                self.images.iter().find(|(start, _, exec)| *exec && start >= announced).map(|(_, image, _)| *image)
            }
            None => {
                self.images.iter().rev().find(|(start, ..)| *start <= time).or(self.images.first()).map(|(_, i, _)| *i)
            }
        }
    }
}

impl Images {
    /// A new image.
    pub fn born(&mut self, pid: u32, image: ProcessId, time: u64, exec: bool) {
        self.by_pid.entry(pid).or_default().images.push((time, image, exec));
    }

    /// A process that was running before we knew of it; what was known of its pid was of others.
    pub fn found(&mut self, pid: u32, image: ProcessId, time: u64) {
        self.waiting.retain(|mapped| mapped.pid != pid || mapped.time > time);
        self.by_pid.insert(pid, Lives { images: vec![(time, image, false)], announced: Vec::new() });
    }

    /// A process ended.
    pub fn died(&mut self, pid: u32, time: u64) {
        self.gone.push((pid, time));
    }

    /// The image that `pid` runs now.
    pub fn current(&self, pid: u32) -> Option<ProcessId> {
        self.by_pid.get(&pid).and_then(|lives| lives.images.last()).map(|(_, image, _)| *image)
    }

    /// Takes the kernel's mapping records. Call [`Self::settle`] after the probes' records have been taken too.
    pub fn take(&mut self, events: Vec<MapEvent>) {
        for event in events {
            match event {
                MapEvent::Exec { pid, time } => {
                    // Followed or not is known only after the probes' records: keep it, `settle` throws it out.
                    self.by_pid.entry(pid).or_default().announced.push(time);
                }
                MapEvent::Mapped(mapped) => self.waiting.push(mapped),
            }
        }
    }

    /// Hands over the mappings whose image is known now, with their pid, and forgets processes that are not followed or gone.
    pub fn settle(&mut self, mut each: impl FnMut(u32, Mapping)) {
        let by_pid = &self.by_pid;
        self.waiting.retain(|mapped| {
            let Some(lives) = by_pid.get(&mapped.pid).filter(|lives| !lives.images.is_empty()) else { return false };
            let Some(process) = lives.at(mapped.time) else { return true };
            let mapping = Mapping {
                process,
                time: mapped.time,
                start: mapped.start,
                end: mapped.start.saturating_add(mapped.length),
                offset: mapped.offset,
                path: mapped.path.clone(),
                build_id: mapped.build_id.clone(),
            };
            each(mapped.pid, mapping);
            false
        });
        self.by_pid.retain(|_, lives| !lives.images.is_empty());
        for (pid, time) in self.gone.drain(..) {
            if self.by_pid.get(&pid).and_then(|l| l.images.last()).is_some_and(|(start, ..)| *start <= time) {
                self.by_pid.remove(&pid);
                // Of an exec that never came to its end.
                self.waiting.retain(|mapped| mapped.pid != pid);
            }
        }
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
        images.settle(|_, m| found.push((m.process.0, m.path)));
        found
    }

    /// Mappings between the announcement of an exec and its tracepoint belong to the new image, whichever channel is read
    /// first.
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

    /// Other processes' mappings are thrown away, and gone ones forgotten.
    #[test]
    fn strangers_and_the_dead_are_forgotten() {
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
}
