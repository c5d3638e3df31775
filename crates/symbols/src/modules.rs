//! Finds the file mapped at an address of a process image at a given time.
//!
//! A forked image remembers its parent: an address is looked up in the image itself, then in its parent as it was at
//! the time of the fork.

use model::{
    event::{Mapping, Origin, ProcessId},
    profile::Profile,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Files;

/// The mappings of every process image.
pub(crate) struct Modules<'a> {
    profile: &'a Profile,
    by_process: FxHashMap<ProcessId, Vec<&'a Mapping>>,
    /// Images in which an address has had more than one meaning.
    reused: FxHashSet<ProcessId>,
}

/// The meaning of an address in a mapping: the file and the offset in it. All anonymous memory has the same meaning.
pub(crate) fn meaning(mapping: &Mapping) -> (&str, &[u8], u64) {
    match Files::is_file(&mapping.path) {
        true => (&mapping.path, &mapping.build_id, mapping.start.wrapping_sub(mapping.offset)),
        false => (&mapping.path, &[], 0),
    }
}

impl<'a> Modules<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut by_process = FxHashMap::<_, Vec<_>>::default();
        for mapping in &profile.mappings {
            by_process.entry(mapping.process).or_default().push(mapping);
        }
        for mappings in by_process.values_mut() {
            mappings.sort_by_key(|m| m.time);
        }
        let mut reused = FxHashSet::default();
        // Parents come before their children.
        for (id, info) in &profile.processes {
            let inherited = info.origin == Origin::Fork && info.parent.is_some_and(|parent| reused.contains(&parent));
            if inherited || by_process.get(id).is_some_and(|mappings| has_reused_addresses(mappings)) {
                reused.insert(*id);
            }
        }
        Self { profile, by_process, reused }
    }

    /// Whether an address of the image may have had more than one meaning.
    pub(crate) fn has_reused_addresses(&self, process: ProcessId) -> bool {
        self.reused.contains(&process)
    }

    /// Returns the mapping at `address` of `process` at `time`: the latest by then, in the image itself or, if it was
    /// forked, in its parent image as of the fork.
    pub(crate) fn find(&self, process: ProcessId, address: u64, time: u64) -> Option<&'a Mapping> {
        let (mut process, mut time) = (process, time);
        // The bound protects against a malformed recording; a chain of forks is as long as its generations.
        for _ in 0..1024 {
            let covers = |m: &&&'a Mapping| (m.start..m.end).contains(&address);
            let mappings = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
            let known = mappings.partition_point(|m| m.time <= time);
            if let Some(found) = mappings[..known].iter().rev().find(covers) {
                return Some(found);
            }
            let info = self.profile.processes.get(&process)?;
            if info.origin != Origin::Fork {
                // A mapping record may have a time just after the first stack seen in it.
                return mappings[known..].iter().find(covers).copied();
            }
            (process, time) = (info.parent?, info.start);
        }
        None
    }
}

/// Whether some of the mappings overlap others with a different meaning.
fn has_reused_addresses(mappings: &[&Mapping]) -> bool {
    let mut mappings = mappings.to_vec();
    mappings.sort_by_key(|mapping| mapping.start);
    let mut widest: Option<&Mapping> = None;
    for mapping in mappings {
        if widest.is_some_and(|widest| mapping.start < widest.end && meaning(mapping) != meaning(widest)) {
            return true;
        }
        if widest.is_none_or(|widest| mapping.end > widest.end) {
            widest = Some(mapping);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::profile::ProcessInfo;

    fn mapping(process: u32, time: u64, start: u64, path: &str) -> Mapping {
        Mapping {
            process: ProcessId(process),
            time,
            start,
            end: start + 0x1000,
            offset: 0,
            path: path.into(),
            build_id: Vec::new(),
        }
    }

    /// ```text
    /// image 1   a at 10 ...... b over it at 30
    /// image 2         forked at 20 ............
    /// ```
    /// The child has the mappings of its parent at the time of the fork, not later ones.
    #[test]
    fn a_fork_has_its_parents_mappings() {
        let mappings = vec![mapping(1, 10, 0x1000, "a"), mapping(1, 30, 0x1000, "b")];
        let mut profile = Profile { mappings, ..Default::default() };
        profile.processes.insert(ProcessId(1), ProcessInfo { origin: Origin::Exec, ..Default::default() });
        let child = ProcessInfo { parent: Some(ProcessId(1)), origin: Origin::Fork, start: 20, ..Default::default() };
        profile.processes.insert(ProcessId(2), child);
        let modules = Modules::of(&profile);
        let path = |process, time| modules.find(ProcessId(process), 0x1800, time).map(|m| m.path.as_str());
        assert_eq!(path(1, 20), Some("a"));
        assert_eq!(path(1, 40), Some("b"));
        assert_eq!(path(2, 40), Some("a"));
        assert!(modules.has_reused_addresses(ProcessId(1)) && modules.has_reused_addresses(ProcessId(2)));
        assert_eq!(modules.find(ProcessId(2), 0x9000, 40), None);
    }
}
