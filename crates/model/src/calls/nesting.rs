//! How calls are nested, and each call's own time outside nested calls.
//!
//! A call arrives when it returns, after everything within it. It states when the call around it began; on one thread,
//! that identifies a call that has not arrived yet.
//!
//! ```text
//!   cudaMalloc       [=====================]     third
//!     cuMemAlloc        [===============]        second: the call around it began at a
//!       ioctl              [===]                 first: the call around it began at b
//!                    a  b
//! ```
//!
//! If a call never arrives (lost, not shown, or made by the injected library), the calls within it are assigned to the
//! call around it. Which calls are missing is known at the end, for a second pass over the same events.

use rustc_hash::FxHashMap;

use super::Tier;
use crate::event::ProcessId;

/// A thread of a process image.
pub type Thread = (ProcessId, u32);

/// Maximum nesting depth. A valid trace has less.
const DEEPEST: usize = 64;
/// Maximum number of calls remembered as missing. Beyond it, nested calls name a parent that does not exist.
const MAX_MISSING: usize = 1 << 20;

/// Calls in progress, by thread.
#[derive(Clone, Debug, Default)]
pub struct Nesting {
    threads: FxHashMap<Thread, Vec<Open>>,
    /// Calls that never arrived, by thread and start, with the start of the call around each; 0 if there is none.
    missing: FxHashMap<(Thread, u64), u64>,
    /// Time in outermost calls.
    pub outermost: Covered,
    next: u64,
}

/// A call that has not arrived yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    start: u64,
    id: u64,
    inside: Covered,
}

/// Time in which calls were in progress, each moment once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// In any call.
    pub ns: u64,
    /// In calls of each tier.
    pub by_tier: [u64; Tier::ALL.len()],
}

impl Covered {
    fn add(&mut self, other: Self) {
        self.ns = self.ns.saturating_add(other.ns);
        for (sum, part) in self.by_tier.iter_mut().zip(other.by_tier) {
            *sum = sum.saturating_add(part);
        }
    }
}

/// The position of a call or event in the nesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its number.
    pub id: u64,
    /// The number of the innermost call around it, which may arrive later.
    pub parent: Option<u64>,
    /// Time in nested calls.
    pub inside_ns: u64,
}

impl Nesting {
    /// Returns the nesting to use for a second pass over the same events.
    pub fn for_second_pass(&self) -> Self {
        Self { missing: self.missing.clone(), ..Self::default() }
    }

    /// Returns a number for something outside any call.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Places an event without nested calls in the call that began at `around`.
    pub fn moment(&mut self, thread: Thread, around: u64) -> Placed {
        let id = self.number();
        let around = self.resolve(thread, around);
        let parent = self.open_at(thread, around).map(|open| open.id);
        Placed { id, parent, inside_ns: 0 }
    }

    /// Places a call that arrives: it returned after `ns`, or never will.
    pub fn call(&mut self, thread: Thread, tier: Tier, start: u64, around: u64, ns: Option<u64>) -> Placed {
        let mut inside = Covered::default();
        let mut id = None;
        let open = self.threads.entry(thread).or_default();
        while let Some(within) = open.pop_if(|open| open.start >= start) {
            inside.add(within.inside);
            if within.start == start {
                id = Some(within.id);
            } else if self.missing.len() < MAX_MISSING {
                self.missing.insert((thread, within.start), start);
            }
        }
        let id = id.unwrap_or_else(|| self.number());
        let mut covered = inside;
        if let Some(ns) = ns {
            covered.ns = ns;
            covered.by_tier[tier as usize] = ns;
        }
        // A call cannot be nested in one that did not begin before it.
        let around = if around < start { self.resolve(thread, around) } else { 0 };
        let parent = match self.open_at(thread, around) {
            Some(open) => {
                open.inside.add(covered);
                Some(open.id)
            }
            None => {
                self.outermost.add(covered);
                None
            }
        };
        Placed { id, parent, inside_ns: inside.ns }
    }

    /// Ends the input.
    pub fn finish(&mut self) {
        for (thread, open) in std::mem::take(&mut self.threads) {
            for open in open {
                self.outermost.add(open.inside);
                if self.missing.len() < MAX_MISSING {
                    self.missing.insert((thread, open.start), 0);
                }
            }
        }
    }

    /// Returns the innermost call around something that is not known to be missing.
    fn resolve(&self, thread: Thread, mut around: u64) -> u64 {
        while let Some(&outer) = self.missing.get(&(thread, around))
            && outer < around
        {
            around = outer;
        }
        around
    }

    /// Returns the call that began at a time, if any. Calls that began later have ended without arriving.
    fn open_at(&mut self, thread: Thread, start: u64) -> Option<&mut Open> {
        let open = self.threads.entry(thread).or_default();
        let mut inside = Covered::default();
        while let Some(over) = open.pop_if(|open| open.start > start) {
            inside.add(over.inside);
            if self.missing.len() < MAX_MISSING {
                self.missing.insert((thread, over.start), start);
            }
        }
        if start == 0 {
            self.outermost.add(inside);
            return None;
        }
        if open.last().is_none_or(|open| open.start != start) {
            if open.len() == DEEPEST {
                self.outermost.add(open.remove(0).inside);
            }
            self.next += 1;
            open.push(Open { start, id: self.next, inside: Covered::default() });
        }
        let open = open.last_mut()?;
        open.inside.add(inside);
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: Thread = (ProcessId(1), 7);

    /// Places a call from `start` to `end`, nested in the one that began at `around`.
    fn call(nesting: &mut Nesting, tier: Tier, start: u64, end: u64, around: u64) -> Placed {
        nesting.call(THREAD, tier, start, around, Some(end - start))
    }

    /// Check that each moment belongs to one call's own time, and to one call of each tier.
    ///
    /// ```text
    ///   program   10 [===========================================] 100   90, of which 80 are within
    ///   runtime        20 [=========] 50     60 [=========] 90          60, of which 25 are within
    ///   driver            25 [=====] 45            (none)               20, of which 5 are within
    ///   request              30 [=] 35
    ///   program                              92 [=] 94                  a call of its own tier
    /// ```
    #[test]
    fn each_moment_belongs_to_one_call() {
        let mut nesting = Nesting::default();
        let request = call(&mut nesting, Tier::SystemCalls, 30, 35, 25);
        let driver = call(&mut nesting, Tier::Driver, 25, 45, 20);
        let first = call(&mut nesting, Tier::Runtime, 20, 50, 10);
        let second = call(&mut nesting, Tier::Runtime, 60, 90, 10);
        let own = call(&mut nesting, Tier::Program, 92, 94, 10);
        let program = call(&mut nesting, Tier::Program, 10, 100, 0);
        assert_eq!([request, driver, first, second, own, program].map(|p| p.inside_ns), [0, 5, 20, 0, 0, 62]);
        assert_eq!(request.parent, Some(driver.id));
        assert_eq!(driver.parent, Some(first.id));
        assert_eq!([first, second, own].map(|p| p.parent), [Some(program.id); 3]);
        assert_eq!(program.parent, None);
        let mut covered = Covered { ns: 90, ..Covered::default() };
        covered.by_tier = [90, 60, 20, 5, 0];
        assert_eq!(nesting.outermost, covered);
    }

    /// Check that the calls within a missing call are assigned to the call around it, also if another call at the same
    /// depth follows, and that in a second pass the missing call is never a parent.
    ///
    /// ```text
    ///   10 [==================================] 100
    ///        20 [- missing -] 40   50 [===] 60
    ///            25 [===] 30           55 [=] 58
    /// ```
    #[test]
    fn children_of_missing_calls_move_to_the_call_around() {
        let events = [(25, 30, 20), (55, 58, 50), (50, 60, 10), (10, 100, 0)];
        let pass = |nesting: &mut Nesting| {
            let placed = events.map(|(start, end, around)| call(nesting, Tier::Driver, start, end, around));
            nesting.finish();
            placed
        };
        let mut first = Nesting::default();
        let [_, _, _, outer] = pass(&mut first);
        assert_eq!((outer.inside_ns, first.outermost.ns), (15, 90));
        let [orphan, inner, second, outer] = pass(&mut first.for_second_pass());
        assert_eq!([orphan.parent, inner.parent, second.parent], [Some(outer.id), Some(second.id), Some(outer.id)]);
        assert_eq!((outer.inside_ns, outer.parent), (15, None));
    }

    /// Check that the calls within a missing outermost call become outermost.
    #[test]
    fn children_of_missing_outermost_calls_become_outermost() {
        for last in [Some((200, 210)), None] {
            let mut nesting = Nesting::default();
            call(&mut nesting, Tier::Driver, 20, 30, 10);
            if let Some((start, end)) = last {
                call(&mut nesting, Tier::Driver, start, end, 0);
            }
            nesting.finish();
            assert_eq!(nesting.outermost.ns, if last.is_some() { 20 } else { 10 });
            let mut again = nesting.for_second_pass();
            assert_eq!(call(&mut again, Tier::Driver, 20, 30, 10).parent, None);
        }
    }

    /// Check that an unfinished call has no own time, and is the parent of the calls within it.
    #[test]
    fn unfinished_calls_are_parents_without_own_time() {
        let mut nesting = Nesting::default();
        let inner = call(&mut nesting, Tier::Driver, 20, 30, 10);
        let switch = nesting.moment(THREAD, 10);
        let outer = nesting.call(THREAD, Tier::Runtime, 10, 0, None);
        assert_eq!([inner.parent, switch.parent], [Some(outer.id); 2]);
        assert_eq!((nesting.outermost.ns, nesting.outermost.by_tier), (10, [0, 0, 10, 0, 0]));
    }

    /// Check that threads are separate, that numbers are unique, and that nothing is kept for an invalid recording.
    #[test]
    fn invalid_recordings_leave_nothing_behind() {
        let mut nesting = Nesting::default();
        let other = nesting.call((ProcessId(1), 8), Tier::Driver, 20, 10, Some(5));
        let here = call(&mut nesting, Tier::Driver, 20, 25, 10);
        assert_ne!(other.parent, here.parent);
        for time in 1..1_000 {
            nesting.call(THREAD, Tier::Driver, 2 * time + 1, 2 * time, Some(u64::MAX));
            nesting.moment(THREAD, u64::MAX - time);
            nesting.call(THREAD, Tier::Driver, time, time, Some(1));
        }
        assert!(nesting.threads.values().all(|open| open.len() <= DEEPEST));
        nesting.finish();
        assert_eq!(nesting.outermost.ns, u64::MAX);
    }
}
