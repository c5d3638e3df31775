//! Connects the server thread and the main loop: a scrape requests a snapshot and gets one made after the request.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};

use super::endpoints::Source;
use crate::{
    ended::Ended,
    map::Map,
    openmetrics::{Exposition, Format, Limits},
    snapshot::Snapshot,
};

/// How long a scrape waits for its snapshot. Prometheus waits 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A map costs more than a scrape: all users except root together get one per interval.
const BETWEEN_MAPS: Duration = Duration::from_millis(500);
/// If the main loop is silent for this long, the monitor is unhealthy.
const STALL_NS: u64 = 10_000_000_000;

/// A snapshot, and how long it took to make.
pub type TimedSnapshot = (Arc<Snapshot>, Duration);

/// A request for the map of a process.
pub struct MapRequest {
    /// The process.
    pub pid: u32,
    /// Where to send it; `None` if the process is not watched.
    pub answer: mpsc::SyncSender<Option<Map>>,
}

/// The queue of waiting scrapes.
pub struct Scrapes {
    waiting: Mutex<Vec<mpsc::SyncSender<TimedSnapshot>>>,
    exposition: Mutex<Exposition>,
    /// For a view that requests snapshots and shows each process's end; absent if there is none.
    ended: Mutex<Option<Ended>>,
    problem: Mutex<Option<String>>,
    maps: Mutex<Vec<MapRequest>>,
    /// When a map was last made for a user other than root.
    last_map: Mutex<Option<Instant>>,
    wakeup: OwnedFd,
    last_round: AtomicU64,
    closed: AtomicBool,
}

impl Scrapes {
    /// Creates an empty queue.
    pub fn new(limits: Limits) -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            exposition: Mutex::new(Exposition::new(limits)),
            ended: Mutex::default(),
            problem: Mutex::new(Some("the monitor is starting".to_owned())),
            maps: Mutex::default(),
            last_map: Mutex::default(),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            last_round: AtomicU64::new(bpf::now()),
            closed: AtomicBool::new(false),
        })
    }

    /// Returns a descriptor that becomes readable when a scrape is waiting.
    pub fn descriptor(&self) -> RawFd {
        self.wakeup.as_raw_fd()
    }

    /// Records that the main loop is alive, and returns the waiting scrapes.
    pub fn waiting(&self) -> Vec<mpsc::SyncSender<TimedSnapshot>> {
        self.last_round.store(bpf::now(), Ordering::Relaxed);
        // It fails if nothing has been written.
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// Returns the requested maps.
    pub fn map_requests(&self) -> Vec<MapRequest> {
        std::mem::take(&mut *lock(&self.maps))
    }

    /// Records a snapshot that no scrape requested: processes that ended in it are reported in the next one.
    pub fn observe(&self, snapshot: &Snapshot) {
        lock(&self.exposition).observe(snapshot);
        if let Some(ended) = &mut *lock(&self.ended) {
            ended.keep(snapshot);
        }
    }

    /// Keeps the processes that end in such snapshots from now on, for [`Scrapes::add_ended`].
    pub fn keep_ended(&self) {
        *lock(&self.ended) = Some(Ended::default());
    }

    /// Adds them to a snapshot that is shown.
    pub fn add_ended(&self, snapshot: &mut Snapshot) {
        if let Some(ended) = &mut *lock(&self.ended) {
            std::mem::take(ended).add_to(snapshot);
        }
    }

    /// Sets what keeps the monitor from working, if anything.
    pub fn set_problem(&self, problem: Option<String>) {
        *lock(&self.problem) = problem;
    }

    /// Stops accepting and answering requests; returns `true` if it was open before.
    pub fn close(&self) -> bool {
        let new = !self.closed.swap(true, Ordering::SeqCst);
        lock(&self.waiting).clear();
        self.ring();
        new
    }

    /// Whether requests are no longer accepted.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Returns a snapshot made now; `None` if the main loop does not make one.
    pub fn request(&self) -> Option<TimedSnapshot> {
        if self.is_closed() {
            return None;
        }
        let (answer, made) = mpsc::sync_channel(1);
        lock(&self.waiting).push(answer);
        // It may have been closed meanwhile.
        if self.is_closed() {
            return None;
        }
        self.ring();
        made.recv_timeout(TIMEOUT).ok()
    }

    /// Wakes the main loop.
    fn ring(&self) {
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

impl Source for Scrapes {
    fn metrics(&self, format: Format) -> Option<String> {
        let (snapshot, took) = self.request()?;
        Some(lock(&self.exposition).render(&snapshot, format, took))
    }

    fn health(&self) -> Result<(), String> {
        let silence = bpf::now().saturating_sub(self.last_round.load(Ordering::Relaxed));
        if silence > STALL_NS {
            return Err(format!("the monitor has not read the kernel's maps for {} s", silence / 1_000_000_000));
        }
        lock(&self.problem).clone().map_or(Ok(()), Err)
    }

    fn map(&self, pid: u32, user: u32) -> Result<Map, (u16, String)> {
        let unknown =
            || (404, format!("process {pid} is not running, or has not called CUDA since the monitor started"));
        let busy = || (503, "the monitor is busy: try again in a second".to_owned());
        let owner = owner(pid).ok_or_else(unknown)?;
        if user != 0 {
            if user != owner {
                return Err((403, format!("the memory of process {pid} is shown to root and its owner only")));
            }
            let now = Instant::now();
            let last = lock(&self.last_map).replace(now);
            if last.is_some_and(|last| now.duration_since(last) < BETWEEN_MAPS) {
                *lock(&self.last_map) = last;
                return Err(busy());
            }
        }
        let (answer, made) = mpsc::sync_channel(1);
        lock(&self.maps).push(MapRequest { pid, answer });
        self.ring();
        made.recv_timeout(TIMEOUT).map_err(|_| busy())?.ok_or_else(unknown)
    }
}

/// Returns the user who may request the map of a process besides root: its owner, as the kernel reports for its files
/// in /proc.
fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|info| info.uid())
}

/// The data of a thread that panicked is still consistent: it is replaced as a whole, never partly changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Process;

    /// Check that a view shows each process that ended in a snapshot that it did not request, once.
    #[test]
    fn unrequested_snapshots_lose_no_ended_process() {
        let scrapes = Scrapes::new(Limits::default()).expect("a queue");
        let process = Process { pid: 7, ended: true, ..Process::default() };
        let unseen = Snapshot { processes: vec![process], ..Snapshot::default() };
        let shown = || {
            let mut snapshot = Snapshot::default();
            scrapes.add_ended(&mut snapshot);
            snapshot.processes.len()
        };
        scrapes.observe(&unseen);
        assert_eq!(shown(), 0, "nothing is kept without a view");
        scrapes.keep_ended();
        scrapes.observe(&unseen);
        assert_eq!([shown(), shown()], [1, 0]);
    }

    /// Check that the monitor is not healthy before its probes are attached.
    #[test]
    fn a_starting_monitor_is_not_healthy() {
        let scrapes = Scrapes::new(Limits::default()).expect("a queue");
        assert_eq!(scrapes.health().expect_err("nothing is probed"), "the monitor is starting");
        scrapes.set_problem(None);
        scrapes.health().expect("healthy");
    }
}
