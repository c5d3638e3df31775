//! Operations to report to the client: running, finished, written to a buffer.
//!
//! Each thread has its own queue if the release has per-thread buffers; otherwise all share one. A launch only adds to
//! its queue; finished operations are moved to the buffer occasionally, so that a launch is cheap on average.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::buffer::{self, Buffer, client};
use super::record::{self, Times};
use super::{gpu, pc_sampling, range_profiler};
use crate::activity::{Activity, Detail};
use crate::sys;
use crate::table::Table;

/// A queue is searched for finished operations when it has reached this size, or twice the number left by the last
/// search.
const SEARCH: usize = 64;
/// With `order=shuffle`, this many finished records wait for those of a later search.
const HELD_BACK: usize = 24;

#[derive(Debug)]
struct Queue {
    /// Operations that may still be running.
    running: Vec<(Activity, Times)>,
    /// Operations that never end.
    unfinished: Vec<Activity>,
    /// Finished ones that wait to be overtaken by later ones.
    held: Vec<(Activity, Times)>,
    buffer: Option<Buffer>,
    search_at: usize,
    random: u64,
}

// SAFETY: the names that activities point to live as long as the process.
unsafe impl Send for Queue {}

/// All queues, and those whose thread has ended.
#[derive(Debug, Default)]
struct Queues {
    all: Vec<&'static Mutex<Queue>>,
    free: Vec<&'static Mutex<Queue>>,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues { all: Vec::new(), free: Vec::new() });

/// A thread's queue; returned when the thread ends.
struct Own(Cell<Option<&'static Mutex<Queue>>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            lock(&QUEUES).free.push(queue);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn new_queue() -> &'static Mutex<Queue> {
    let mut queues = lock(&QUEUES);
    if let Some(queue) = queues.free.pop() {
        return queue;
    }
    let random = 0x9e37_79b9_7f4a_7c15 ^ (queues.all.len() as u64 + 1);
    let queue: &'static Mutex<Queue> = Box::leak(Box::new(Mutex::new(Queue {
        running: Vec::new(),
        unfinished: Vec::new(),
        held: Vec::new(),
        buffer: None,
        search_at: SEARCH,
        random,
    })));
    queues.all.push(queue);
    queue
}

fn shared() -> &'static Mutex<Queue> {
    static SHARED: OnceLock<&'static Mutex<Queue>> = OnceLock::new();
    SHARED.get_or_init(new_queue)
}

/// Returns the queue for the calling thread's launches.
fn mine(per_thread: bool) -> &'static Mutex<Queue> {
    if !per_thread {
        return shared();
    }
    let own = OWN.try_with(|own| match own.0.get() {
        Some(queue) => queue,
        None => {
            let queue = new_queue();
            own.0.set(Some(queue));
            queue
        }
    });
    // A thread that is ending no longer has one.
    own.unwrap_or_else(|_| shared())
}

/// Dropped records by context and stream id, since the client's last query.
static DROPPED: Mutex<Option<HashMap<(u32, u32), usize>>> = Mutex::new(None);

fn count_dropped(gpu: &Table, activity: &Activity) {
    gpu.truth.dropped.add(1);
    *lock(&DROPPED).get_or_insert_default().entry((activity.context, activity.stream)).or_default() += 1;
}

/// Returns and clears the count of dropped records: of one stream of a context, or of all.
pub fn take_dropped(of: Option<(u32, u32)>) -> usize {
    let mut dropped = lock(&DROPPED);
    let Some(counts) = dropped.as_mut() else { return 0 };
    match of {
        Some(key) => counts.remove(&key).unwrap_or(0),
        None => counts.drain().map(|(_, count)| count).sum(),
    }
}

/// Receives an operation of an enabled kind from the GPU.
pub fn produce(activity: &Activity) {
    let Ok(gpu) = gpu() else { return };
    gpu.truth.produced.of(activity.detail.kind()).add(1);
    pc_sampling::launched(activity);
    record(gpu, activity);
    if let Some(separator) = range_profiler::launched(activity) {
        record(gpu, &separator);
    }
}

fn record(gpu: &'static Table, activity: &Activity) {
    let script = (gpu.script)();
    sys::spend(script.record_cost);
    if pc_sampling::is_lost() {
        return;
    }
    if script.drop.occurs() || client().is_none() {
        count_dropped(gpu, activity);
        return;
    }
    let work = !matches!(activity.detail, Detail::Sync { .. });
    let zero = work && script.zero_time.occurs();
    let unfinished = work && script.unfinished.occurs();
    let mut full = Vec::new();
    let mut queue = lock(mine(script.per_thread));
    if unfinished {
        queue.unfinished.push(*activity);
    } else {
        queue.running.push((*activity, if zero { Times::Zero } else { Times::Known }));
    }
    if queue.running.len() >= queue.search_at {
        queue.write_finished(gpu, activity.queued, &mut full);
        queue.search_at = SEARCH.max(2 * queue.running.len());
    }
    drop(queue);
    buffer::deliver(gpu, full, false);
}

/// Delivers every finished record; with `force`, also the others.
pub fn flush(gpu: &'static Table, force: bool) {
    let queues = lock(&QUEUES).all.clone();
    let mut full = Vec::new();
    for queue in queues {
        let mut queue = lock(queue);
        queue.write_finished(gpu, sys::now(), &mut full);
        queue.write_held(gpu, 0, &mut full);
        if force {
            queue.write_unfinished(gpu, &mut full);
        }
        full.extend(queue.buffer.take_if(|b| !b.is_empty()));
    }
    buffer::deliver(gpu, full, true);
    buffer::settle(gpu);
}

impl Queue {
    /// Writes the operations finished by `now`.
    fn write_finished(&mut self, gpu: &Table, now: u64, full: &mut Vec<Buffer>) {
        let shuffle = (gpu.script)().shuffle;
        let mut running = std::mem::take(&mut self.running);
        running.retain(|(activity, times)| {
            if activity.end > now {
                return true;
            }
            if shuffle {
                self.held.push((*activity, *times));
            } else {
                self.write(gpu, activity, *times, full);
            }
            false
        });
        self.running = running;
        if shuffle {
            self.write_held(gpu, HELD_BACK, full);
        }
    }

    /// Writes held records, in random order, until `keep` are left.
    fn write_held(&mut self, gpu: &Table, keep: usize, full: &mut Vec<Buffer>) {
        while self.held.len() > keep {
            let at = (self.next_random() % self.held.len() as u64) as usize;
            let (activity, times) = self.held.swap_remove(at);
            self.write(gpu, &activity, times, full);
        }
    }

    /// Writes unfinished operations. They are never delivered again.
    fn write_unfinished(&mut self, gpu: &Table, full: &mut Vec<Buffer>) {
        let running = std::mem::take(&mut self.running);
        let unfinished = std::mem::take(&mut self.unfinished);
        for activity in running.into_iter().map(|(activity, _)| activity).chain(unfinished) {
            self.write(gpu, &activity, Times::Unfinished, full);
        }
    }

    fn write(&mut self, gpu: &Table, activity: &Activity, times: Times, full: &mut Vec<Buffer>) {
        let stride = record::stride((gpu.script)().release, activity.detail.kind());
        if let Some(buffer) = self.buffer.take_if(|b| !b.fits(stride)) {
            full.push(buffer);
        }
        if self.buffer.is_none() {
            self.buffer = client().and_then(Buffer::request);
        }
        match &mut self.buffer {
            Some(buffer) if buffer.fits(stride) => buffer.push(activity, stride, times),
            _ => count_dropped(gpu, activity),
        }
    }

    /// xorshift64: the order is the same in every run with the same records.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
