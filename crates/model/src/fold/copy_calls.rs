//! Calls that copy, and whether they returned after their copy.
//!
//! CUPTI reports no synchronisation for a call such as `cudaMemcpy`, which waits for its copy. So it is known by its times:
//! the call was still in progress when the copy ended, and took longer than a launch does.
//!
//! ```text
//!   GPU                 ######                   ######
//!   call       [== waited =====]     [==]                  a blocking copy, and one that is only launched
//! ```
//!
//! A short copy may be over before a call returns that does not wait for it. The names of functions distinguish them, but are
//! known only at the end: so the calls that may have waited are summed by thread and stack.

use rustc_hash::FxHashMap;

use crate::{
    event::{Launch, LaunchKind, Returned, SessionId},
    profile::{CopyCaller, CpuWeight, LateCopies, Profile},
};

/// A launch takes the CPU a few microseconds. A call that is over sooner has not waited, even if its copy is over, too.
const LAUNCH_NS: u64 = 5_000;

/// The most calls whose copy or whose length is not known yet: about 50 MB. Beyond, those of lost copies are given up.
const MOST: usize = 1 << 20;

/// What is known of a call.
#[derive(Clone, Copy)]
struct CopyCall {
    /// Where it was made.
    caller: CopyCaller,
    /// When it began.
    start: u64,
    /// How long it took.
    took: Option<u64>,
    /// When its copy ended.
    end: Option<u64>,
}

/// Calls that copy and are not settled yet.
#[derive(Default)]
pub struct CopyCalls {
    open: FxHashMap<(SessionId, u32), CopyCall>,
}

impl CopyCalls {
    /// Adds a launch.
    #[inline]
    pub fn launch(&mut self, launch: &Launch) {
        if launch.kind == LaunchKind::Copy {
            if self.open.len() >= MOST {
                self.open.clear();
            }
            let caller = (launch.process, launch.tid, launch.stack);
            let call = CopyCall { caller, start: launch.time, took: None, end: None };
            self.open.insert((launch.session, launch.correlation), call);
        }
    }

    /// Notes that the copy of a launch ran until `end`; 0 if that is not known.
    #[inline]
    pub fn ran(&mut self, launch: &Launch, end: u64, profile: &mut Profile) {
        if launch.kind == LaunchKind::Copy {
            let key = (launch.session, launch.correlation);
            if let Some(call) = self.open.get_mut(&key) {
                call.end = Some(end);
                self.settle(key, profile);
            }
        }
    }

    /// Notes how long a launch took. Those of other kinds are settled at once.
    pub fn returned(&mut self, returned: &Returned, profile: &mut Profile) {
        let key = (returned.session, returned.correlation);
        match self.open.get_mut(&key) {
            Some(call) => {
                call.took = Some(returned.took);
                self.settle(key, profile);
            }
            None => count(&mut profile.launching, returned.took),
        }
    }

    /// Counts a call of which everything is known.
    fn settle(&mut self, key: (SessionId, u32), profile: &mut Profile) {
        let Some(&CopyCall { caller, start, took: Some(took), end: Some(end) }) = self.open.get(&key) else { return };
        self.open.remove(&key);
        if took > LAUNCH_NS && end > start && end - start <= took {
            let LateCopies { waited, calls } = profile.late_copies.entry(caller).or_default();
            count(waited, end - start);
            count(calls, took);
        } else {
            count(&mut profile.launching, took);
        }
    }
}

fn count(sum: &mut CpuWeight, ns: u64) {
    sum.count += 1;
    sum.ns = sum.ns.saturating_add(ns);
}
