//! The kinds of activity that are recorded.

use core::sync::atomic::{AtomicBool, Ordering};

use cupti::ids::kind;

use crate::environment;

/// Whether graphs are recorded as wholes.
static WHOLE_GRAPHS: AtomicBool = AtomicBool::new(false);

/// Reads from the environment what the session records.
pub fn begin() {
    WHOLE_GRAPHS.store(environment::variable(wire::GRAPH_LEVEL_VARIABLE).is_some(), Ordering::Relaxed);
}

/// Returns the kinds.
pub fn all() -> impl Iterator<Item = u32> {
    let graphs = WHOLE_GRAPHS.load(Ordering::Relaxed).then_some(kind::GRAPH_TRACE);
    [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMCPY2, kind::MEMSET].into_iter().chain(graphs)
}

/// Whether a kind is recorded.
pub fn records(kind: u32) -> bool {
    all().any(|ours| ours == kind)
}
