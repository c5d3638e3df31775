//! When the recent past is written.
//!
//! A failed allocation is a reason whether or not the program recovers: PyTorch frees its cache and tries again, so what a
//! first failure finds is the most that was held, and a second one, soon after it, has no dump of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};

use model::{
    event::{Call, DumpReason, Event, Function, FunctionId, ProcessId, SessionId},
    memory::refused,
    window::Reason,
};
use text::{names::printable, units::bytes};

use super::{
    slow::{Limit, Slow, Usual},
    work::Work,
    xid::Xids,
};

/// The most distinct names of processes and ranges that are remembered, for messages.
const MOST_NAMES: usize = 1 << 16;

/// The most processes that have ended and whose names are remembered: their last calls may be reported after their end.
const MOST_ENDED: usize = 64;

/// A function or range that is measured.
struct Watched {
    name: String,
    limit: Limit,
    usual: Usual,
}

/// Everything that may be a reason for a dump.
pub struct Triggers {
    on_error: bool,
    on_idle: Option<u64>,
    /// What runs on GPUs.
    pub work: Work,
    slow: Vec<Slow>,
    xids: Option<Xids>,
    /// The functions that allocate and free memory, if failed allocations are a reason.
    of_memory: BTreeMap<FunctionId, Function>,
    /// The functions that are measured.
    functions: BTreeMap<FunctionId, Watched>,
    /// The NVTX ranges that are measured.
    ranges: HashMap<(SessionId, u32), Watched>,
    processes: HashMap<ProcessId, (u32, String)>,
    ended: VecDeque<ProcessId>,
    sessions: HashMap<SessionId, ProcessId>,
}

impl Triggers {
    /// Watches for errors, processes that do not use their GPU for a time, and slow functions.
    pub fn new(on_error: bool, on_idle: Option<u64>, slow: Vec<Slow>) -> Self {
        Self {
            on_error,
            on_idle,
            work: Work::default(),
            slow,
            xids: on_error.then(Xids::open).and_then(Result::ok),
            of_memory: BTreeMap::new(),
            functions: BTreeMap::new(),
            ranges: HashMap::new(),
            processes: HashMap::new(),
            ended: VecDeque::new(),
            sessions: HashMap::new(),
        }
    }

    /// Returns the reason for a dump that an event is.
    pub fn event(&mut self, event: &Event) -> Option<Reason> {
        self.work.event(event);
        match event {
            Event::Process(e) if self.processes.len() < MOST_NAMES => {
                self.processes.insert(e.id, (e.pid, e.comm.clone()));
            }
            Event::Exit(e) => {
                self.ended.push_back(e.process);
                if self.ended.len() > MOST_ENDED
                    && let Some(first) = self.ended.pop_front()
                {
                    self.processes.remove(&first);
                }
            }
            Event::Session(e) if self.sessions.len() < MOST_NAMES => drop(self.sessions.insert(e.id, e.process)),
            Event::Failed(e) if self.on_error => {
                let name = cuda::results::driver_result(e.code).unwrap_or("unknown error");
                let text = format!("a CUDA call of {} failed: {name} ({})", self.name(e.session), e.code);
                return Some(Reason { time: bpf::now(), kind: DumpReason::Error, text });
            }
            Event::Function(function) => {
                if self.on_error {
                    self.of_memory.insert(function.id, function.clone());
                }
                if let Some(slow) = self.slow.iter().find(|slow| slow.is_function(&function.name)) {
                    self.functions.insert(function.id, Watched::new(&function.name, slow));
                }
            }
            Event::Call(call) => {
                if let Some(reason) = self.refused(call) {
                    return Some(reason);
                }
                return self.functions.get_mut(&call.function)?.took(call.duration()?, call.end);
            }
            Event::RangeName(range) => {
                if let Some(slow) = self.slow.iter().find(|slow| slow.is_range(&range.name))
                    && self.ranges.len() < MOST_NAMES
                {
                    self.ranges.insert((range.session, range.id), Watched::new(&range.name, slow));
                }
            }
            Event::Range(range) if !range.mark => {
                let watched = self.ranges.get_mut(&(range.session, range.path))?;
                return watched.took(range.end.saturating_sub(range.start), range.end);
            }
            _ => {}
        }
        None
    }

    /// Returns the reason for a dump that a call is if there was no room for what it should have allocated.
    fn refused(&self, call: &Call) -> Option<Reason> {
        let function = self.of_memory.get(&call.function)?;
        let size = bytes(refused(function, call)?);
        let text = format!("{} of {size} in {} failed: out of memory", function.name, self.of_process(call.process));
        Some(Reason { time: call.end, kind: DumpReason::Error, text })
    }

    /// Returns the reason for a dump that the time is, or the kernel's log.
    pub fn time(&mut self, now: u64) -> Option<Reason> {
        if let Some((session, idle)) = self.on_idle.and_then(|limit| self.work.idle(now, limit)) {
            let text = format!("{} has not used its GPU for {:.1} s", self.name(session), idle as f64 / 1e9);
            return Some(Reason { time: now, kind: DumpReason::Idle, text });
        }
        let text = self.xids.as_mut()?.next()?;
        Some(Reason { time: now, kind: DumpReason::Error, text: printable(&text).into_owned() })
    }

    /// Returns a function of `program` that should be measured, but does not exist.
    pub fn missing_in(&self, program: &str) -> Option<&str> {
        let missing = self.slow.iter().filter(|slow| slow.is_of(program) && !self.is_watched(slow));
        missing.filter_map(Slow::function).next()
    }

    fn is_watched(&self, slow: &Slow) -> bool {
        self.functions.values().any(|known| slow.is_function(&known.name))
    }

    /// Returns notes about what is not watched.
    pub fn unwatched(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.on_error && self.xids.is_none() {
            notes.push("--on-error: errors of GPUs (Xids) are not seen, because /dev/kmsg cannot be read".to_owned());
        }
        for slow in &self.slow {
            if let Some(name) = slow.function()
                && !self.is_watched(slow)
            {
                notes.push(format!("--on-slow: no process has mapped a file with the function {}", printable(name)));
            }
        }
        notes
    }

    fn name(&self, session: SessionId) -> String {
        self.sessions.get(&session).map_or_else(|| "a process".to_owned(), |process| self.of_process(*process))
    }

    fn of_process(&self, process: ProcessId) -> String {
        match self.processes.get(&process) {
            Some((pid, comm)) => format!("process {pid} ({})", printable(comm)),
            None => "a process".to_owned(),
        }
    }
}

impl Watched {
    fn new(name: &str, slow: &Slow) -> Self {
        Self { name: name.to_owned(), limit: slow.limit, usual: Usual::default() }
    }

    /// Returns the reason for a dump, if it took too long.
    fn took(&mut self, took: u64, end: u64) -> Option<Reason> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let limit = match self.limit {
            Limit::Ns(limit) => (took > limit).then(|| format!("longer than {} ms", ms(limit)))?,
            Limit::Median(times) => {
                let median = self.usual.add(took)?;
                let is_slow = took as f64 > median as f64 * times;
                is_slow.then(|| format!("more than {times} times the median of {:.3} ms", ms(median)))?
            }
        };
        let text = format!("{} took {:.1} ms, {limit}", printable(&self.name), ms(took));
        Some(Reason { time: end, kind: DumpReason::Slow, text })
    }
}
