//! Counters since the start of the process.

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// Counters on rare and slow paths.
pub struct Totals {
    /// Kernel records.
    pub kernels: AtomicU64,
    /// Their total time, where known.
    pub kernel_ns: AtomicU64,
    /// Copy records.
    pub copies: AtomicU64,
    /// Memset records.
    pub memsets: AtomicU64,
    /// Synchronisation records.
    pub syncs: AtomicU64,
    /// Records CUPTI dropped.
    pub dropped_by_cupti: AtomicU64,
    /// Records dropped because the queue was full.
    pub dropped_queue_full: AtomicU64,
    /// Records with start and end 0.
    pub zero_time: AtomicU64,
    /// Records with end 0.
    pub unfinished: AtomicU64,
    /// Records with impossible contents.
    pub invalid: AtomicU64,
    /// Kernels without a name.
    pub nameless: AtomicU64,
    /// Refused buffer requests.
    pub buffers_refused: AtomicU64,
}

/// The process's counters.
pub static TOTALS: Totals = Totals {
    kernels: AtomicU64::new(0),
    kernel_ns: AtomicU64::new(0),
    copies: AtomicU64::new(0),
    memsets: AtomicU64::new(0),
    syncs: AtomicU64::new(0),
    dropped_by_cupti: AtomicU64::new(0),
    dropped_queue_full: AtomicU64::new(0),
    zero_time: AtomicU64::new(0),
    unfinished: AtomicU64::new(0),
    invalid: AtomicU64::new(0),
    nameless: AtomicU64::new(0),
    buffers_refused: AtomicU64::new(0),
};

/// One cache line of the counters that every launch touches.
#[repr(align(64))]
struct Shard {
    launches: AtomicU64,
    /// Launches after the end of the session.
    late: AtomicU64,
    returned: AtomicU64,
    failed: AtomicU64,
}

/// Threads are assigned to shards in turn: there are enough that two busy threads rarely share one.
const SHARDS: usize = 64;

static LAUNCHES: [Shard; SHARDS] = [const {
    Shard {
        launches: AtomicU64::new(0),
        late: AtomicU64::new(0),
        returned: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    }
}; SHARDS];
static NEXT_SHARD: AtomicU32 = AtomicU32::new(0);

/// A thread's shard: 0 until it first counts, otherwise one more than the index.
pub struct ShardOf(Cell<u32>);

impl ShardOf {
    /// No shard chosen yet.
    pub const fn unset() -> Self {
        Self(Cell::new(0))
    }

    fn shard(&self) -> &'static Shard {
        let mut place = self.0.get();
        if place == 0 {
            place = NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS as u32 + 1;
            self.0.set(place);
        }
        // The remainder makes the index provably in bounds: this path must not contain a panic.
        &LAUNCHES[(place as usize - 1) % SHARDS]
    }

    /// Counts a launch-class call of this thread. [`Begun`] includes it, or the thread sees what was stored before.
    pub fn count_launch(&self) {
        self.shard().launches.fetch_add(1, SeqCst);
    }

    /// Counts a launch-class call after the end of the session, which is not recorded.
    pub fn count_late(&self) {
        self.shard().late.fetch_add(1, SeqCst);
    }

    /// The number of the shard.
    pub fn index(&self) -> usize {
        self.0.get() as usize
    }

    /// Counts the return of a launch-class call that was marked.
    pub fn count_return(&self) {
        self.shard().returned.fetch_add(1, Release);
    }

    /// Counts a launch-class call of this thread that returned an error.
    pub fn count_failed(&self) {
        self.shard().failed.fetch_add(1, Relaxed);
    }
}

/// Markers called so far.
pub fn launches() -> u64 {
    LAUNCHES.iter().map(|s| s.launches.load(Relaxed)).sum()
}

/// Calls that have begun and not returned. Calls that begin or return meanwhile make it larger, never smaller.
pub fn in_flight() -> u64 {
    let returned: u64 = LAUNCHES.iter().map(|s| s.returned.load(SeqCst)).sum();
    let begun: u64 = LAUNCHES.iter().map(|s| s.launches.load(SeqCst) + s.late.load(SeqCst)).sum();
    begun.saturating_sub(returned)
}

/// The marked calls of each shard that have begun.
#[derive(Clone, Copy)]
pub struct Begun([u64; SHARDS]);

impl Begun {
    /// As of now.
    pub fn now() -> Self {
        Self(core::array::from_fn(|place| LAUNCHES[place].launches.load(SeqCst)))
    }

    /// The number of shards, usually threads, that have begun calls since an earlier time.
    pub fn active_since(&self, before: &Self) -> u64 {
        self.0.iter().zip(&before.0).filter(|(now, before)| now != before).count() as u64
    }

    /// Whether all of them have returned. Threads that share a shard are not distinguished.
    pub fn have_returned(&self) -> bool {
        self.0.iter().zip(&LAUNCHES).all(|(begun, shard)| shard.returned.load(Acquire) >= *begun)
    }
}

/// Adds to a counter; an amount of 0, the usual case, writes nothing.
pub fn add(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.fetch_add(amount, Relaxed);
    }
}

/// Returns all counters as a message.
pub fn snapshot() -> wire::Totals {
    wire::Totals {
        launches: launches(),
        kernels: TOTALS.kernels.load(Relaxed),
        kernel_ns: TOTALS.kernel_ns.load(Relaxed),
        copies: TOTALS.copies.load(Relaxed),
        memsets: TOTALS.memsets.load(Relaxed),
        syncs: TOTALS.syncs.load(Relaxed),
        dropped_by_cupti: TOTALS.dropped_by_cupti.load(Relaxed),
        dropped_queue_full: TOTALS.dropped_queue_full.load(Relaxed),
        zero_time: TOTALS.zero_time.load(Relaxed),
        unfinished: TOTALS.unfinished.load(Relaxed),
        invalid: TOTALS.invalid.load(Relaxed),
        nameless: TOTALS.nameless.load(Relaxed),
        buffers_refused: TOTALS.buffers_refused.load(Relaxed),
        failed: LAUNCHES.iter().map(|s| s.failed.load(Relaxed)).sum(),
    }
}
