//! Ranges and marks of a program (NVTX), added up by path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::event::{Activity, Range, RangeName, RangedLaunch, SessionId};

/// The maximum number of paths, of all processes.
const MAX_PATHS: usize = 262_144;
/// The maximum number of launches whose range is remembered. A launch is followed by its activities much sooner.
const MAX_LAUNCHES: usize = 1 << 20;
/// The maximum depth of a path.
const MAX_DEPTH: usize = 65;

/// All ranges of a recording. Paths are numbered from 1; 0 stands for none.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Each path at its number less 1, after the path around it.
    all: Vec<RangeInfo>,
    /// The number of each process's paths.
    numbers: FxHashMap<(SessionId, u32), u32>,
}

/// A path: a range within others, or a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RangeInfo {
    parent: u32,
    depth: usize,
    category: String,
    name: String,
    sums: NamedRange,
}

/// The path of each launch. If there are too many, the oldest are forgotten.
#[derive(Clone, Debug, Default)]
pub struct RangedLaunches {
    paths: FxHashMap<(SessionId, u32), u32>,
    order: VecDeque<(SessionId, u32)>,
}

/// What is known of the ranges of one path, or with one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedRange {
    /// How often they occurred.
    pub count: u64,
    /// Their time in all.
    pub ns: u64,
    /// Marks.
    pub marks: u64,
    /// Kernels, copies and memsets that were launched in them: by path, not in a range within; by name, at any depth.
    pub operations: u64,
    /// Their time.
    pub gpu_ns: u64,
}

impl Ranges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a path. Only the first declaration of a number counts.
    pub fn declare(&mut self, name: &RangeName) {
        let parent = self.number(name.session, name.parent);
        let depth = self.info(parent).map_or(1, |around| around.depth + 1);
        if self.all.len() >= MAX_PATHS || depth > MAX_DEPTH || name.id == 0 {
            return;
        }
        self.numbers.entry((name.session, name.id)).or_insert_with(|| {
            let (category, name) = (name.category.clone(), name.name.clone());
            self.all.push(RangeInfo { parent, depth, category, name, sums: NamedRange::default() });
            self.all.len() as u32
        });
    }

    /// Returns the number of a process's path; 0 if it is not known.
    pub fn number(&self, session: SessionId, path: u32) -> u32 {
        self.numbers.get(&(session, path)).copied().unwrap_or(0)
    }

    fn info(&self, number: u32) -> Option<&RangeInfo> {
        self.all.get(number.checked_sub(1)? as usize)
    }

    fn sums(&mut self, number: u32) -> Option<&mut NamedRange> {
        self.all.get_mut(number.checked_sub(1)? as usize).map(|info| &mut info.sums)
    }

    /// Adds a range or a mark.
    pub fn add(&mut self, range: &Range) {
        let Some(sums) = self.sums(self.number(range.session, range.path)) else { return };
        if range.mark {
            sums.marks += 1;
        } else {
            sums.count += 1;
            sums.ns = sums.ns.saturating_add(range.end.saturating_sub(range.start));
        }
    }

    /// Adds an activity that was launched in a path.
    pub fn activity(&mut self, number: u32, activity: &Activity) {
        if let Some(sums) = self.sums(number) {
            sums.operations += 1;
            sums.gpu_ns = sums.gpu_ns.saturating_add(activity.duration());
        }
    }

    /// Returns the names of a path, outermost first.
    pub fn path(&self, number: u32) -> Vec<&str> {
        let mut names = Vec::new();
        let mut at = number;
        while let Some(info) = self.info(at) {
            names.push(info.name.as_str());
            at = info.parent;
        }
        names.reverse();
        names
    }

    /// Returns the category of a path; empty if it has none.
    pub fn category(&self, number: u32) -> &str {
        self.info(number).map_or("", |info| &info.category)
    }

    /// Adds up the ranges of the same name. A range within one of the same name counts the GPU work once.
    pub fn by_name(&self) -> BTreeMap<&str, NamedRange> {
        let mut names: BTreeMap<&str, NamedRange> = BTreeMap::new();
        for (info, number) in self.all.iter().zip(1..) {
            let sums = info.sums;
            let named = names.entry(&info.name).or_default();
            named.count += sums.count;
            named.ns = named.ns.saturating_add(sums.ns);
            named.marks += sums.marks;
            if sums.operations == 0 {
                continue;
            }
            for name in self.path(number).into_iter().collect::<BTreeSet<_>>() {
                let named = names.entry(name).or_default();
                named.operations += sums.operations;
                named.gpu_ns = named.gpu_ns.saturating_add(sums.gpu_ns);
            }
        }
        names
    }
}

impl RangedLaunches {
    /// Notes the range of a launch. It arrives before the activities of the launch.
    pub fn note(&mut self, launch: &RangedLaunch, ranges: &Ranges) {
        let key = (launch.session, launch.correlation);
        if self.paths.insert(key, ranges.number(launch.session, launch.path)).is_none() {
            self.order.push_back(key);
            if self.order.len() > MAX_LAUNCHES
                && let Some(oldest) = self.order.pop_front()
            {
                self.paths.remove(&oldest);
            }
        }
    }

    /// Returns the path that an activity was launched in; 0 if there is none.
    #[inline]
    pub fn of(&self, activity: &Activity) -> u32 {
        if self.paths.is_empty() {
            return 0;
        }
        self.paths.get(&(activity.session, activity.correlation)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn ranges(names: &[(u32, u32, &str)]) -> Ranges {
        let mut ranges = Ranges::default();
        for &(id, parent, name) in names {
            let category = String::new();
            ranges.declare(&RangeName { session: SESSION, id, parent, category, name: name.to_owned() });
        }
        ranges
    }

    fn work(ranges: &mut Ranges, correlation: u32, path: u32, ns: u64) {
        let mut launches = RangedLaunches::default();
        launches.note(&RangedLaunch { session: SESSION, correlation, path }, ranges);
        let activity = Activity { session: SESSION, correlation, start: 10, end: 10 + ns, ..Activity::default() };
        assert_eq!(launches.of(&Activity { correlation: correlation + 1, ..activity }), 0);
        ranges.activity(launches.of(&activity), &activity);
    }

    /// Check that GPU work counts for all ranges around its launch, and once for each name.
    #[test]
    fn gpu_work_counts_for_all_ranges_around_it() {
        let mut ranges = ranges(&[(1, 0, "step"), (2, 1, "forward"), (3, 2, "forward"), (4, 0, "save")]);
        work(&mut ranges, 1, 3, 100);
        work(&mut ranges, 2, 1, 7);
        for (path, start, end, mark) in [(3, 0, 10, false), (2, 0, 20, false), (1, 0, 30, false), (4, 5, 5, true)] {
            ranges.add(&Range { session: SESSION, path, tid: 1, start, end, mark });
        }
        let names = ranges.by_name();
        let row = |name: &str| (names[name].count, names[name].ns, names[name].operations, names[name].gpu_ns);
        assert_eq!((row("step"), row("forward")), ((1, 30, 2, 107), (2, 30, 1, 100)));
        assert_eq!((row("save"), names["save"].marks), ((0, 0, 0, 0), 1));
        assert_eq!(ranges.path(ranges.number(SESSION, 3)), ["step", "forward", "forward"]);
    }

    /// Check that paths that a damaged recording declares in a circle, or too deep, end.
    #[test]
    fn circles_end() {
        let circle = ranges(&[(1, 2, "a"), (2, 1, "b"), (1, 2, "c")]);
        assert_eq!((circle.path(1), circle.path(2)), (vec!["a"], vec!["a", "b"]));
        let deep: Vec<_> = (0..100).map(|depth| (depth + 1, depth, "x")).collect();
        let deep = ranges(&deep);
        assert_eq!((deep.path(MAX_DEPTH as u32).len(), deep.all.len()), (MAX_DEPTH, 99), "one is too deep");
    }
}
