//! Finds out how long launches took: the thread's next launch reports it.

use model::event::{Launch, ProcessId, Returned, SessionId};
use rustc_hash::FxHashMap;

/// A launch whose length is known, as far as it ever will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    pub launch: Launch,
    /// When the call returned, not after the thread's next launch. `None` if it was not reported.
    pub end: Option<u64>,
    /// When the thread launched next.
    pub next: Option<u64>,
}

/// The last launch of each thread.
#[derive(Default)]
pub(crate) struct LaunchLengths {
    last: FxHashMap<(ProcessId, u32), (Launch, Option<u64>)>,
    threads: FxHashMap<(SessionId, u32), (ProcessId, u32)>,
}

impl LaunchLengths {
    /// Adds a launch; returns the last one of its thread.
    pub(crate) fn launch(&mut self, launch: &Launch) -> Option<Launched> {
        let thread = (launch.process, launch.tid);
        let before = self.last.insert(thread, (*launch, None));
        if let Some((before, _)) = &before {
            self.threads.remove(&(before.session, before.correlation));
        }
        self.threads.insert((launch.session, launch.correlation), thread);
        before.map(|(before, took)| launched(before, took, Some(launch.time)))
    }

    /// Notes that a launch returned.
    pub(crate) fn returned(&mut self, returned: &Returned) {
        let thread = self.threads.get(&(returned.session, returned.correlation));
        if let Some((_, took)) = thread.and_then(|thread| self.last.get_mut(thread)) {
            *took = Some(returned.took);
        }
    }

    /// Returns the last launch of each thread.
    pub(crate) fn finish(self) -> impl Iterator<Item = Launched> {
        let mut last: Vec<_> = self.last.into_iter().collect();
        last.sort_by_key(|(thread, _)| *thread);
        last.into_iter().map(|(_, (launch, took))| launched(launch, took, None))
    }
}

fn launched(launch: Launch, took: Option<u64>, next: Option<u64>) -> Launched {
    let end = took.map(|took| launch.time.saturating_add(took).min(next.unwrap_or(u64::MAX)).max(launch.time));
    Launched { launch, end, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(tid: u32, correlation: u32, time: u64) -> Launch {
        Launch { tid, correlation, time, ..Launch::default() }
    }

    fn returned(correlation: u32, took: u64) -> Returned {
        Returned { session: SessionId(0), correlation, took }
    }

    /// Check that a launch has its own length, also if another thread launches in between, and ends before the next one.
    #[test]
    fn launches_have_their_own_lengths() {
        let mut lengths = LaunchLengths::default();
        assert_eq!(lengths.launch(&launch(1, 10, 100)), None);
        assert_eq!(lengths.launch(&launch(2, 11, 101)), None);
        lengths.returned(&returned(10, 50));
        let first = lengths.launch(&launch(1, 12, 200));
        assert_eq!(first, Some(Launched { launch: launch(1, 10, 100), end: Some(150), next: Some(200) }));
        lengths.returned(&returned(12, 900));
        lengths.returned(&returned(10, 1));
        let second = lengths.launch(&launch(1, 13, 300)).map(|second| second.end);
        assert_eq!(second, Some(Some(300)), "clocks differ a little");
        let rest: Vec<_> = lengths.finish().map(|rest| (rest.launch.correlation, rest.end, rest.next)).collect();
        assert_eq!(rest, [(13, None, None), (11, None, None)]);
    }
}
