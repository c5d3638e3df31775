//! Known defects of CUPTI releases that affect a session, so that the user knows what not to trust.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use wire::Notice;

use crate::library;
use crate::notices::Notices;

/// Sessions of this process so far.
static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Whether the session has launched a graph.
static GRAPHS: AtomicBool = AtomicBool::new(false);

/// Begins a session.
pub fn begin() {
    resume();
    GRAPHS.store(false, Relaxed);
}

/// Subscribes again: to CUPTI this is another session.
pub fn resume() {
    SESSIONS.fetch_add(1, Relaxed);
}

/// Notes the launch of a graph.
#[inline]
pub fn graph_launched() {
    GRAPHS.store(true, Relaxed);
}

/// Queues notices about what has happened in the session.
pub fn report() {
    if GRAPHS.load(Relaxed) && confuses_graphs(SESSIONS.load(Relaxed), library::cupti_version()) {
        let mut notices = Notices::default();
        let text = "the work of CUDA graphs may be under the wrong launch: before CUDA 13.1 update 1, that is so in every \
                    recording of a process after the first";
        notices.add(Notice::CuptiFailed, text.into());
        notices.send();
    }
}

/// Whether CUPTI may report wrong correlation ids for launches of graphs, according to its release notes.
fn confuses_graphs(sessions: u32, version: u32) -> bool {
    sessions > 1 && (130_000..=130_101).contains(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only later sessions of CUDA 13.0 and 13.1 are affected.
    #[test]
    fn later_sessions_of_two_releases() {
        assert!(confuses_graphs(2, 130_001) && confuses_graphs(3, 130_101));
        assert!(!confuses_graphs(1, 130_001) && !confuses_graphs(2, 130_102) && !confuses_graphs(2, 28));
    }
}
