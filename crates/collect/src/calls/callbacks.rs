//! Calls that processes report themselves, from CUPTI's callbacks ([`super::rings`]).
//!
//! The entries and exits of a thread become the same events that probes give: nesting, roles and launches are decided by
//! the same rules as in `bpf/calls.h`. Functions that CUPTI does not report, or that are called before the injected
//! library is loaded, still have probes ([`has_callback`]); their calls are put in their place between the others.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs, io,
    ops::ControlFlow,
    os::fd::BorrowedFd,
};

use bpf::calls::{CallRecord, Gather};
use cuda::calls::{self, Parameters, Payload};
use model::event::{Call, Event, FunctionId, Loss, LossCause, ProcessId, SessionId};
use wire::calls::{Capture, DOMAINS, FUNCTIONS, IS_FIRST, LAUNCHES, MOST_DEPTH, RINGS, TEXT};

use super::rings::{RingEvent, Rings};

/// The most processes that report their calls at a time; the memory of each is 64 MiB, of which most is never touched.
const MOST_PROCESSES: usize = 128;
/// The most events read in one round, of all processes.
const MOST_EVENTS: usize = 1 << 16;
/// The most probed calls of one process that wait to be put in their place.
const MOST_HELD: usize = 1 << 14;

/// Functions that programs call before the injected library is loaded, and functions without callbacks.
const WITHOUT_CALLBACK: [&str; 9] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetErrorName",
    "cudaGetErrorString",
];

/// Whether calls of a function are taken from its callback, if the process reports it.
pub fn has_callback(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) && !WITHOUT_CALLBACK.contains(&name)
}

/// Returns the name of the exported function for CUPTI's name of a callback: `cudaMalloc_v3020` is `cudaMalloc`. Only the
/// runtime's names have the version in which a function appeared.
pub fn exported_name(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, digits))
            if name.starts_with("cuda") && digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    }
}

/// A traced function of a process.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its number.
    pub id: FunctionId,
    /// What its calls are.
    pub gather: Gather,
    /// Its parameters, if its arguments are known.
    parameters: Option<Parameters>,
    /// What one of them points to is text.
    text: bool,
}

impl Traced {
    /// Creates a traced function. With `known`, its arguments are those of the table.
    pub fn new(id: FunctionId, gather: Gather, name: &str, known: bool) -> Self {
        let call = calls::call(name).filter(|_| known);
        let text = call.is_some_and(|call| matches!(call.capture().payload, Some(Payload::Text { .. })));
        Self { id, gather, parameters: call.map(calls::Call::parameters), text }
    }

    /// Returns what the process captures of a call.
    fn capture(&self, name: &str) -> Capture {
        let mut capture = Capture { traced: 1, ..Capture::default() };
        let (Some(parameters), Some(call)) = (&self.parameters, calls::call(name)) else { return capture };
        let wanted = call.capture();
        let place = |word: u8| parameters.offset(word).map_or(0, |offset| offset as u16 + 1);
        capture.parameters = parameters.length as u16;
        capture.out = wanted.out.map_or(0, place);
        (capture.payload, capture.length) = match wanted.payload {
            None => (0, 0),
            Some(Payload::Text { word }) => (place(word), TEXT),
            Some(Payload::Bytes { word, length }) => (place(word), length),
        };
        capture.checked()
    }
}

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
    looked: u64,
    /// Processes that report their calls, now or earlier.
    pub count: usize,
}

/// A probed call.
struct Held {
    call: CallRecord,
    /// It was called by the CUDA runtime.
    by_runtime: bool,
    /// Its role, as in [`Gather`].
    role: u8,
}

/// One process that reports its calls.
struct Reporting {
    process: ProcessId,
    session: SessionId,
    /// Its pid, and the pid that it knows itself by.
    pid: u32,
    own_pid: u32,
    rings: Rings,
    functions: HashMap<u16, Traced>,
    ids: HashSet<FunctionId>,
    threads: Vec<Thread>,
    /// The process has ended, or the trace.
    ended: bool,
}

#[derive(Default)]
struct Thread {
    tid: u32,
    open: Vec<Open>,
    /// It has reported its first runtime call.
    has_begun: bool,
}

/// A call that has not returned.
struct Open {
    function: u16,
    call: Call,
    /// Roles of the calls around it and its own, a bit each.
    roles: u64,
    /// It or a call around it returns a status.
    status: bool,
}

/// An event and its time.
type Timed = (u64, Event);

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
            pid,
            own_pid,
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
    pub fn look(&mut self) {
        self.looked = bpf::now();
        self.processes.iter_mut().for_each(|reporting| reporting.rings.look());
    }

    /// Reads what processes have reported. Returns whether there may be more. `probed` converts a probed call to an event.
    pub fn read(&mut self, probed: &mut dyn FnMut(CallRecord) -> Option<Event>, push: &mut dyn FnMut(Event)) -> bool {
        let mut events: Vec<Timed> = Vec::new();
        let mut left = MOST_EVENTS;
        for reporting in &mut self.processes {
            let mut held = self.held.remove(&reporting.process).unwrap_or_default();
            let mut looked = self.looked;
            if reporting.ended {
                reporting.rings.look();
                looked = u64::MAX;
            }
            left -= reporting.read((left, looked), &mut held, probed, &mut events);
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

impl Reporting {
    /// Reads up to `most` events, and puts probed calls between them. Returns how many were read.
    fn read(
        &mut self,
        (most, looked): (usize, u64),
        held: &mut Vec<Held>,
        probed: &mut dyn FnMut(CallRecord) -> Option<Event>,
        out: &mut Vec<Timed>,
    ) -> usize {
        let Self { process, session, pid, own_pid, rings, functions, threads, .. } = self;
        let owner = Owner { process: *process, session: *session };
        let mut impossible = None;
        let taken = rings.drain(most, &mut |ring, event| {
            let thread = &mut threads[ring];
            match event {
                RingEvent::Thread { tid } => {
                    thread.leave(0, u64::MAX, out);
                    *thread = Thread { tid: translate(*pid, *own_pid, tid), ..Thread::default() };
                }
                RingEvent::First { time } => {
                    thread.has_begun = true;
                    thread.place(held, time, None, probed, out);
                }
                RingEvent::Enter { function, flags, depth, time, correlation, cpu, parameters } => {
                    let first = flags & IS_FIRST != 0;
                    let Some(traced) =
                        functions.get(&function).filter(|_| depth <= thread.open.len().min(MOST_DEPTH - 1))
                    else {
                        impossible = Some(ring);
                        return ControlFlow::Break(());
                    };
                    thread.leave(depth, time, out);
                    thread.has_begun |= first;
                    let began = thread.place(held, time, first.then_some(traced.gather.role), probed, out);
                    // A launch that was announced in a call that is not traced belongs to the driver's call within it.
                    let announced = flags & LAUNCHES != 0 || (thread.open.is_empty() && traced.gather.submits);
                    let launch = announced.then_some(correlation);
                    let entry = Entry { start: began.unwrap_or(time), cpu, launch, parameters };
                    thread.enter(&owner, function, traced, &entry);
                }
                RingEvent::Exit { function, depth, time, result, out: written, payload } => {
                    if thread.open.get(depth).is_none_or(|open| open.function != function) {
                        impossible = Some(ring);
                        return ControlFlow::Break(());
                    }
                    thread.place(held, time, None, probed, out);
                    thread.leave(depth + 1, time, out);
                    let Some(Open { mut call, .. }) = thread.open.pop() else { return ControlFlow::Break(()) };
                    call.end = time.max(call.start);
                    call.result = result.into();
                    call.out = written;
                    let text = functions.get(&function).is_some_and(|traced| traced.text);
                    call.payload = payload.strip_suffix(&[0]).filter(|_| text).unwrap_or(payload).to_vec();
                    out.push((call.end, Event::Call(call)));
                }
                RingEvent::Left => {
                    thread.leave(0, u64::MAX, out);
                    *thread = Thread::default();
                }
            }
            ControlFlow::Continue(())
        });
        if let Some(ring) = impossible {
            rings.ignore(ring);
        }
        // If this was all, everything that a thread reported before `looked` has been read. Later probed calls wait.
        if taken < most {
            // Calls that the runtime made while it initialised CUDA wait for the program's call that they are in.
            let has_begun = |tid| threads.iter().any(|thread: &Thread| thread.tid == tid && thread.has_begun);
            let placed = |held: &mut Held| held.call.start < looked && (!held.by_runtime || has_begun(held.call.tid));
            for held in held.extract_if(.., placed) {
                let thread = threads.iter().find(|thread| thread.tid == held.call.tid);
                emit(thread.map_or(&[], |thread| &thread.open), held, None, probed, out);
            }
        }
        taken
    }

    /// Reports calls that have not returned, and what was lost.
    fn finish(mut self, out: &mut Vec<Timed>) {
        for thread in &mut self.threads {
            thread.leave(0, u64::MAX, out);
        }
        let (lost, deep) = self.rings.lost();
        for (cause, count) in [
            (LossCause::RingCalls, lost),
            (LossCause::DeepCalls, deep),
            (LossCause::MalformedPackets, self.rings.broken() as u64),
        ] {
            if count > 0 {
                out.push((u64::MAX, Event::Loss(Loss { cause, count })));
            }
        }
    }
}

/// Whose calls they are.
struct Owner {
    process: ProcessId,
    session: SessionId,
}

/// What is known of a call when it begins.
struct Entry<'a> {
    start: u64,
    cpu: u32,
    launch: Option<u32>,
    parameters: &'a [u8],
}

impl Thread {
    /// A call begins within the open ones.
    fn enter(&mut self, owner: &Owner, number: u16, traced: &Traced, entry: &Entry<'_>) {
        let around = self.open.last();
        let (roles, status) = around.map_or((0, false), |open| (open.roles, open.status));
        let role = u64::from(traced.gather.role & 63);
        let inherited = around.and_then(|open| open.call.launch);
        // Starts identify calls: two calls of a thread never have the same.
        let start = around.map_or(entry.start, |open| entry.start.max(open.call.start + 1));
        let call = Call {
            function: traced.id,
            process: owner.process,
            tid: self.tid,
            cpu: entry.cpu,
            depth: self.open.len().min(MOST_DEPTH) as u8,
            nested: role != 0 && roles >> role & 1 != 0,
            enclosed: status,
            start,
            end: 0,
            result: 0,
            out: None,
            launch: entry.launch.map(|correlation| (owner.session, correlation)).or(inherited),
            launches: entry.launch.is_some(),
            around: around.map_or(0, |open| open.call.start),
            stack: None,
            words: traced.parameters.as_ref().map_or_else(Vec::new, |layout| layout.words(entry.parameters)),
            payload: Vec::new(),
        };
        let roles = roles | 1 << role;
        self.open.push(Open { function: number, call, roles, status: status || traced.gather.status });
    }

    /// Reports the open calls from this depth on as unfinished, innermost first.
    fn leave(&mut self, depth: usize, time: u64, out: &mut Vec<Timed>) {
        while self.open.len() > depth {
            out.extend(self.open.pop().map(|open| (time, Event::Call(open.call))));
        }
    }

    /// Puts the probed calls of this thread that began before `time` in their place, in the innermost open call. If the
    /// next call is the `first` one, with this role, the runtime made them in it: they get a call around them that began
    /// before the first of them. Returns that time.
    fn place(
        &self,
        held: &mut Vec<Held>,
        time: u64,
        first: Option<u8>,
        probed: &mut dyn FnMut(CallRecord) -> Option<Event>,
        out: &mut Vec<Timed>,
    ) -> Option<u64> {
        if held.is_empty() {
            return None;
        }
        let mut began = None;
        for held in held.extract_if(.., |held| held.call.tid == self.tid && held.call.start < time) {
            if let (Some(role), true, None) = (first, held.by_runtime, began) {
                began = Some((held.call.start.saturating_sub(1), role));
            }
            emit(&self.open, held, began, probed, out);
        }
        began.map(|(start, _)| start)
    }
}

/// Reports a probed call within open calls, or within a call of which the start and the role are known.
fn emit(
    open: &[Open],
    held: Held,
    within: Option<(u64, u8)>,
    probed: &mut dyn FnMut(CallRecord) -> Option<Event>,
    out: &mut Vec<Timed>,
) {
    let Held { mut call, role, .. } = held;
    let innermost = open.last().map(|open| (open.call.start, open.roles, open.status));
    let within = within.map(|(start, role)| (start, 1 << (role & 63), true));
    if let Some((start, roles, status)) = innermost.or(within) {
        call.depth = call.depth.saturating_add(open.len().max(1) as u8);
        call.enclosed |= status;
        call.nested |= role != 0 && roles >> (role & 63) & 1 != 0;
        if call.around == 0 {
            call.around = start;
        }
    }
    let time = call.end.max(call.start);
    out.extend(probed(call).map(|event| (time, event)));
}

/// Returns the id of a thread in our pid namespace; the process has its own pid namespace if it knows itself by another
/// pid.
fn translate(pid: u32, own_pid: u32, tid: u32) -> u32 {
    if pid == own_pid {
        return tid;
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ours = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok()).find(|task| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.and_then(|ids| ids.split_whitespace().last()?.parse().ok()) == Some(tid)
    });
    ours.unwrap_or(tid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which functions are reported by callbacks, and under which name.
    #[test]
    fn callbacks_have_the_names_of_functions() {
        for (name, exported) in [
            ("cudaMalloc_v3020", "cudaMalloc"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel_ptsz"),
            ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2"),
            ("cuMemAlloc_v2", "cuMemAlloc_v2"),
            ("cuStreamBeginCapture_v10000", "cuStreamBeginCapture_v10000"),
        ] {
            assert_eq!(exported_name(name), exported);
        }
        assert!(has_callback("cudaMalloc") && has_callback("cuMemAlloc_v2"));
        assert!(!has_callback("cuInit") && !has_callback("__cudaRegisterFunction") && !has_callback("ncclSend"));
    }

    /// Check that a function counts as reported after the end of its process, when records of probes may still arrive.
    #[test]
    fn ended_processes_have_reported_their_calls() {
        let (mut callbacks, process, function) = (Callbacks::default(), ProcessId(7), FunctionId(3));
        let traced = Traced::new(function, Gather::default(), "cudaMalloc", true);
        let file = callbacks.open(process, SessionId(1), (7, 7), vec![(5, "cudaMalloc".into(), traced)]);
        assert!(file.expect("memory").is_some());
        callbacks.ended(process);
        assert!(callbacks.has(process) && callbacks.reports(process, function));
        callbacks.read(&mut |_| None, &mut |_| {});
        assert!(!callbacks.has(process) && callbacks.reports(process, function));
        assert!(!callbacks.reports(process, FunctionId(4)) && !callbacks.reports(ProcessId(8), function));
    }
}
