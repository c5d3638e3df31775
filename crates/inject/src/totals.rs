//! Counters since the start of the session.

use core::cell::Cell;
use std::sync::{Mutex, PoisonError};

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release, SeqCst},
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
    /// Launches without a stack, or only counted, that did not fit into the queue.
    pub dropped_launches: AtomicU64,
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
    dropped_launches: AtomicU64::new(0),
};

/// One cache line of the counters that every launch touches.
#[repr(align(64))]
struct Shard {
    /// Calls that have begun, recorded or not.
    begun: AtomicU64,
    returned: AtomicU64,
    launches: AtomicU64,
    failed: AtomicU64,
    /// Calls that have one record.
    owed: AtomicU64,
}

/// Threads are assigned to shards in turn: there are enough that two busy threads rarely share one.
const SHARDS: usize = 64;

static LAUNCHES: [Shard; SHARDS] = [const {
    Shard {
        begun: AtomicU64::new(0),
        returned: AtomicU64::new(0),
        launches: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        owed: AtomicU64::new(0),
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
    pub fn count_begun(&self) {
        self.shard().begun.fetch_add(1, SeqCst);
    }

    /// Counts a launch-class call that belongs to the session.
    pub fn count_launch(&self) {
        self.shard().launches.fetch_add(1, Relaxed);
    }

    /// Counts a launch-class call that has one record.
    pub fn count_owed(&self) {
        self.shard().owed.fetch_add(1, Relaxed);
    }

    /// The number of the shard.
    pub fn index(&self) -> usize {
        self.0.get() as usize
    }

    /// Counts the return of a launch-class call that has begun.
    pub fn count_return(&self) {
        self.shard().returned.fetch_add(1, Release);
    }

    /// Counts a launch-class call of this thread that returned an error.
    pub fn count_failed(&self) {
        self.shard().failed.fetch_add(1, Relaxed);
    }
}

fn sum(of: impl Fn(&Shard) -> &AtomicU64) -> u64 {
    LAUNCHES.iter().map(|shard| of(shard).load(Relaxed)).sum()
}

/// The counters when the session began.
static BEFORE: Mutex<Option<wire::Totals>> = Mutex::new(None);
static OWED_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Begins a session, before CUPTI calls back.
pub fn begin() {
    forget_calls();
    OWED_BEFORE.store(sum(|shard| &shard.owed), Relaxed);
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(all());
}

/// Calls that were under way when this library unsubscribed have no callback at their end: they no longer count as under
/// way.
pub fn forget_calls() {
    for shard in &LAUNCHES {
        shard.returned.store(shard.begun.load(SeqCst), SeqCst);
    }
}

/// Launches of the session so far.
pub fn launches() -> u64 {
    snapshot().launches
}

/// Whether all launches that have exactly one record have it. Work of graphs makes this true early.
pub fn have_records() -> bool {
    let totals = snapshot();
    let owed = sum(|shard| &shard.owed).saturating_sub(OWED_BEFORE.load(Relaxed));
    let lost = totals.dropped_by_cupti + totals.dropped_queue_full + totals.invalid;
    records() + lost >= owed
}

/// Records of the session so far.
pub fn records() -> u64 {
    let totals = snapshot();
    totals.kernels + totals.copies + totals.memsets
}

/// Calls that have begun and not returned. Calls that begin or return meanwhile make it larger, never smaller.
pub fn in_flight() -> u64 {
    let of_shard = |shard: &Shard| {
        let returned = shard.returned.load(SeqCst);
        shard.begun.load(SeqCst).saturating_sub(returned)
    };
    LAUNCHES.iter().map(of_shard).sum()
}

/// The calls of each shard that have begun.
#[derive(Clone, Copy)]
pub struct Begun([u64; SHARDS]);

impl Begun {
    /// As of now.
    pub fn now() -> Self {
        Self(core::array::from_fn(|place| LAUNCHES[place].begun.load(SeqCst)))
    }

    /// The number of shards, usually threads, that have begun calls since an earlier time.
    pub fn active_since(&self, before: &Self) -> u64 {
        self.0.iter().zip(&before.0).filter(|(now, before)| now != before).count() as u64
    }
}

/// Adds to a counter; an amount of 0, the usual case, writes nothing.
pub fn add(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.fetch_add(amount, Relaxed);
    }
}

/// Returns the counters of the session as a message.
pub fn snapshot() -> wire::Totals {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
    let now = all();
    wire::Totals {
        launches: now.launches.saturating_sub(before.launches),
        kernels: now.kernels.saturating_sub(before.kernels),
        kernel_ns: now.kernel_ns.saturating_sub(before.kernel_ns),
        copies: now.copies.saturating_sub(before.copies),
        memsets: now.memsets.saturating_sub(before.memsets),
        syncs: now.syncs.saturating_sub(before.syncs),
        dropped_by_cupti: now.dropped_by_cupti.saturating_sub(before.dropped_by_cupti),
        dropped_queue_full: now.dropped_queue_full.saturating_sub(before.dropped_queue_full),
        zero_time: now.zero_time.saturating_sub(before.zero_time),
        unfinished: now.unfinished.saturating_sub(before.unfinished),
        invalid: now.invalid.saturating_sub(before.invalid),
        nameless: now.nameless.saturating_sub(before.nameless),
        buffers_refused: now.buffers_refused.saturating_sub(before.buffers_refused),
        dropped_launches: now.dropped_launches.saturating_sub(before.dropped_launches),
        failed: now.failed.saturating_sub(before.failed),
    }
}

/// Returns the counters since the start of the process.
fn all() -> wire::Totals {
    wire::Totals {
        launches: sum(|shard| &shard.launches),
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
        dropped_launches: TOTALS.dropped_launches.load(Relaxed),
        failed: sum(|shard| &shard.failed),
    }
}
