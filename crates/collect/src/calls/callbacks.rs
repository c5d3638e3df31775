//! Calls that processes report themselves, from CUPTI's callbacks ([`super::rings`]).
//!
//! The entries and exits of a thread become the same events that probes give: nesting, roles and launches are decided by
//! the same rules as in `bpf/calls.h`. Functions that CUPTI does not report, or that are called before the injected
//! library is loaded, still have probes ([`has_callback`]); their calls are put in their place between the others.
//!
//! Two probes take about 0.9 µs per call, two callbacks 0.14 µs. With an option that needs probes (`-p`, `-a`,
//! `--stacks`, driver requests, the scheduler, kernel functions, tracepoints, other libraries), all calls come from
//! probes: what the kernel reports is placed inside calls, so one observer must see both. So do those of
//! `--summary-only`, because sums in the kernel cost less than events.
//!
//! - Functions that are called before the library is loaded are `cuInit` and `cuGetProcAddress`;
//!   `__cudaRegisterFunction`, from which kernel names are learned, has no callback. The runtime initialises the driver
//!   before it reports its first call, so the library marks that call, and it begins here before the `cuInit` within
//!   it. For this the runtime's callbacks are all enabled until the first call; then only those of traced functions
//!   are, and a query function costs nothing.
//! - If CUPTI is missing or another client uses it, the library waits, at most 2 s, until the probes are attached. The
//!   runtime call that initialised CUDA is then missing.
//! - Unlike probes, callbacks see calls in a static runtime without symbols (cuBLAS contains one). They do not show
//!   arguments of functions that are not in the table, and do not see calls that CUDA rejects at once: before `cuInit`,
//!   in a forked child after `cuInit`, and after the driver's exit handler. With `--all-calls`, functions that the
//!   runtime calls before it reports a call, such as `cuKernelGetName` for CUPTI's own use, are shown before that call
//!   instead of within it.
//! - The session ends in an `atexit` handler, but calls are written until the process ends: the memory outlives both.

mod reporting;
mod thread;
mod traced;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    os::fd::BorrowedFd,
};

use bpf::calls::CallRecord;
use model::event::{Event, FunctionId, ProcessId, SessionId};
use wire::calls::{Capture, DOMAINS, FUNCTIONS, RINGS};

use self::{
    reporting::Reporting,
    thread::{Held, Thread, Timed},
};
use super::rings::Rings;
use crate::process::thread_ids::ThreadIds;

pub use traced::{Traced, exported_name, has_callback};

/// The most processes that report their calls at a time; the memory of each is 64 MiB, of which most is never touched.
const MOST_PROCESSES: usize = 128;
/// The most events read in one round, of all processes.
const MOST_EVENTS: usize = 1 << 16;
/// The most probed calls of one process that wait to be put in their place.
const MOST_HELD: usize = 1 << 14;

/// All processes that report their calls.
#[derive(Default)]
pub struct Callbacks {
    processes: Vec<Reporting>,
    /// The last processes that have ended, with the functions that they reported.
    over: VecDeque<(ProcessId, HashSet<FunctionId>)>,
    /// Calls of probed functions in processes that may report others, in the order of their return.
    held: HashMap<ProcessId, Vec<Held>>,
    /// Processes without reported calls that have ended.
    gone: Vec<ProcessId>,
    /// When [`Callbacks::look`] was last called.
    noted: u64,
    /// Processes that report their calls, now or earlier.
    pub count: usize,
}

impl Callbacks {
    /// Creates the memory for a process. Returns the file to pass to it, or `None` if there are too many processes.
    pub fn open(
        &mut self,
        process: ProcessId,
        session: SessionId,
        (pid, own_pid): (u32, u32),
        functions: Vec<(u16, String, Traced)>,
    ) -> io::Result<Option<BorrowedFd<'_>>> {
        if self.processes.len() >= MOST_PROCESSES {
            return Ok(None);
        }
        let mut captures = Box::new([[Capture::default(); FUNCTIONS]; DOMAINS]);
        for (number, name, traced) in &functions {
            let number = usize::from(*number);
            if let Some(place) = captures.get_mut(number / FUNCTIONS).and_then(|all| all.get_mut(number % FUNCTIONS)) {
                *place = traced.capture(name);
            }
        }
        let rings = Rings::new(&captures)?;
        self.count += 1;
        self.processes.push(Reporting {
            process,
            session,
            renamed: pid != own_pid,
            threadless: 0,
            rings,
            ids: functions.iter().map(|(_, _, traced)| traced.id).collect(),
            functions: functions.into_iter().map(|(number, _, traced)| (number, traced)).collect(),
            threads: (0..RINGS).map(|_| Thread::default()).collect(),
            ended: false,
        });
        Ok(self.processes.last().map(|last| last.rings.file()))
    }

    /// Whether a process reports its calls.
    pub fn has(&self, process: ProcessId) -> bool {
        self.processes.iter().any(|reporting| reporting.process == process)
    }

    /// Whether the calls of this function in this process are reported by the process itself. Records of its probes may
    /// arrive after its end: probes in a file stop all processes that map it, so they may be there for another one.
    pub fn reports(&self, process: ProcessId, function: FunctionId) -> bool {
        let reporting = self.processes.iter().map(|reporting| (reporting.process, &reporting.ids));
        let over = self.over.iter().map(|(process, ids)| (*process, ids));
        reporting.chain(over).any(|(which, ids)| which == process && ids.contains(&function))
    }

    /// Takes a call of a probed function, to be put in its place. Returns it if its place is certain already.
    pub fn hold(&mut self, call: CallRecord, by_runtime: bool, role: u8) -> Option<CallRecord> {
        let process = ProcessId(call.image);
        let reports = self.has(process);
        let held = self.held.entry(process).or_default();
        // Before the process reports anything, only the place of calls from the runtime is uncertain: the call of the
        // program that they are in may be reported later.
        if (!reports && !by_runtime && held.is_empty()) || held.len() >= MOST_HELD {
            return Some(call);
        }
        held.push(Held { call, by_runtime, role });
        None
    }

    /// Handles the end of a process. Its last calls may not have been read yet.
    pub fn ended(&mut self, process: ProcessId) {
        self.gone.push(process);
        for reporting in self.processes.iter_mut().filter(|reporting| reporting.process == process) {
            reporting.ended = true;
        }
    }

    /// Ends all processes.
    pub fn end_all(&mut self) {
        self.processes.iter_mut().for_each(|reporting| reporting.ended = true);
        self.gone.extend(self.held.keys());
    }

    /// Returns the calls of probed functions that wait for a process that does not report its calls.
    pub fn release(&mut self, process: ProcessId) -> Vec<CallRecord> {
        self.held.remove(&process).into_iter().flatten().map(|held| held.call).collect()
    }

    /// Notes what processes have reported so far; [`Callbacks::read`] reads no more than that. Called before the records of
    /// probes are read: those of all calls that a thread made before the ones noted here are then there.
    pub fn note_written(&mut self) {
        self.noted = bpf::now();
        self.processes.iter_mut().for_each(|reporting| reporting.rings.note_written());
    }

    /// Reads what processes have reported. Returns whether there may be more. `probed` converts a probed call to an event.
    pub fn read(
        &mut self,
        ids: &ThreadIds,
        probed: &mut dyn FnMut(CallRecord) -> Option<Event>,
        push: &mut dyn FnMut(Event),
    ) -> bool {
        let mut events: Vec<Timed> = Vec::new();
        let mut left = MOST_EVENTS;
        for reporting in &mut self.processes {
            let mut held = self.held.remove(&reporting.process).unwrap_or_default();
            let mut noted = self.noted;
            if reporting.ended {
                reporting.rings.note_written();
                noted = u64::MAX;
            }
            left -= reporting.read((left, noted), ids, &mut held, probed, &mut events);
            if !held.is_empty() {
                self.held.insert(reporting.process, held);
            }
        }
        for mut over in self.processes.extract_if(.., |reporting| reporting.ended && left > 0) {
            self.over.push_back((over.process, std::mem::take(&mut over.ids)));
            over.finish(&mut events);
        }
        let past = self.over.len().saturating_sub(MOST_PROCESSES);
        self.over.drain(..past);
        let reports = |process: &ProcessId| self.processes.iter().any(|reporting| reporting.process == *process);
        for process in self.gone.extract_if(.., |process| !reports(process)) {
            for Held { call, .. } in self.held.remove(&process).unwrap_or_default() {
                let time = call.end.max(call.start);
                events.extend(probed(call).map(|event| (time, event)));
            }
        }
        // Each thread's events are in order. Others may depend on what another thread did earlier.
        events.sort_by_key(|(time, _)| *time);
        let any = left < MOST_EVENTS;
        events.into_iter().for_each(|(_, event)| push(event));
        any
    }
}

#[cfg(test)]
mod tests {
    use bpf::calls::Gather;

    use super::*;

    /// Check that a function counts as reported after the end of its process, when records of probes may still arrive.
    #[test]
    fn ended_processes_have_reported_their_calls() {
        let (mut callbacks, process, function) = (Callbacks::default(), ProcessId(7), FunctionId(3));
        let traced = Traced::new(function, Gather::default(), "cudaMalloc", true);
        let file = callbacks.open(process, SessionId(1), (7, 7), vec![(5, "cudaMalloc".into(), traced)]);
        assert!(file.expect("memory").is_some());
        callbacks.ended(process);
        assert!(callbacks.has(process) && callbacks.reports(process, function));
        callbacks.read(&ThreadIds::default(), &mut |_| None, &mut |_| {});
        assert!(!callbacks.has(process) && callbacks.reports(process, function));
        assert!(!callbacks.reports(process, FunctionId(4)) && !callbacks.reports(ProcessId(8), function));
    }
}
