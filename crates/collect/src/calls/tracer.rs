//! The collector's part of a trace: which functions are watched, and their records as events.

mod reporting;
mod source;
mod watching;

use std::collections::{HashMap, VecDeque};

use bpf::{
    KernelResult,
    calls::{CallRecord, PointRecord, SwitchRecord, SyscallRecord},
};
use model::event::{Call, Event, FunctionId, ProcessId, SessionId, StackId, Switch};

use super::{
    callbacks::Callbacks, code::Code, functions::Functions, handles::Handles, late::Late, libraries::Libraries,
    points::Format,
};

/// A trace in progress.
pub struct Tracer {
    /// What is watched.
    pub libraries: Libraries,
    /// Their numbers.
    pub functions: Functions,
    points: HashMap<u32, Format>,
    /// The result types of kernel functions, and the bytes that each argument uses of its word.
    types: HashMap<u32, (KernelResult, Vec<u8>)>,
    code: Code,
    /// Processes that report their calls themselves, if they are expected to.
    pub callbacks: Option<Callbacks>,
    /// Every process is traced, so every mapping counts.
    pub all: bool,
    /// The calls are a part of a profile.
    pub beside_profile: bool,
    /// Libraries that were mapped before they were watched.
    pub late: Late,
    deferred: VecDeque<Deferred>,
    /// Mappings that did not fit among the deferred ones.
    pub overlooked: u64,
    /// Present once a process has launched kernels by handles that it got before.
    handles: Option<Handles>,
    /// Why the last library that could not be watched was rejected.
    pub refused: Option<String>,
}

impl Tracer {
    /// Creates a tracer that watches nothing yet.
    pub fn new(libraries: Libraries, all: bool) -> Self {
        Self::with(libraries, Functions::default(), all)
    }

    /// Creates a tracer of calls that are a part of a profile.
    pub fn beside_a_profile(libraries: Libraries) -> Self {
        Self { beside_profile: true, ..Self::new(libraries, false) }
    }

    /// Creates a tracer of processes that report their calls themselves, where they can.
    pub fn with_reports(libraries: Libraries) -> Self {
        Self { callbacks: Some(Callbacks::default()), ..Self::new(libraries.expect_reports(), false) }
    }

    /// Creates a tracer where functions with the same name in different files have one number.
    pub fn by_name(libraries: Libraries, all: bool) -> Self {
        Self::with(libraries, Functions::by_name(), all)
    }

    fn with(libraries: Libraries, functions: Functions, all: bool) -> Self {
        Self {
            libraries,
            functions,
            points: HashMap::new(),
            types: HashMap::new(),
            code: Code::default(),
            callbacks: None,
            all,
            beside_profile: false,
            late: Late::default(),
            deferred: VecDeque::new(),
            overlooked: 0,
            handles: None,
            refused: None,
        }
    }

    /// Converts a call to an event.
    fn call(&self, mut record: CallRecord, launch: Option<(SessionId, u32)>, stack: Option<StackId>) -> Event {
        if let Some((result, widths)) = self.types.get(&record.function) {
            record.result = result.read(record.result);
            // The rest of a word is whatever the caller left in the register.
            for (word, width) in record.words.iter_mut().zip(widths) {
                *word = KernelResult::Unsigned(*width).read(*word);
            }
        }
        Event::Call(Call {
            function: FunctionId(record.function),
            process: ProcessId(record.image),
            tid: record.tid,
            cpu: record.cpu,
            depth: record.depth,
            nested: record.nested,
            enclosed: record.enclosed,
            start: record.start,
            end: record.end,
            result: record.result,
            out: record.out,
            launch,
            launches: record.launches,
            around: record.around,
            stack,
            words: record.words,
            payload: record.payload,
        })
    }

    /// Converts a system call to an event, preceded by the description of its request if that is new.
    fn syscall(&mut self, record: SyscallRecord, launch: Option<(SessionId, u32)>, push: &mut dyn FnMut(Event)) {
        let (function, described) = self.functions.request(&record);
        if let Some(function) = described {
            push(Event::Function(function));
        }
        push(Event::Call(Call {
            function,
            process: ProcessId(record.image),
            tid: record.tid,
            cpu: record.cpu,
            depth: record.depth,
            nested: false,
            enclosed: false,
            start: record.start,
            end: record.end,
            result: record.result.cast_unsigned(),
            out: None,
            launch,
            launches: false,
            around: record.around,
            stack: None,
            words: record.words.to_vec(),
            payload: record.head.map_or(Vec::new(), |head| head.to_vec()),
        }));
    }

    /// Converts a tracepoint record to an event.
    fn point(&self, record: &PointRecord) -> Event {
        let text = self.points.get(&record.function).map_or(String::new(), |format| format.text(&record.bytes));
        Event::Call(Call {
            function: FunctionId(record.function),
            process: ProcessId(record.image),
            tid: record.tid,
            cpu: record.cpu,
            depth: record.depth,
            nested: false,
            enclosed: false,
            start: record.time,
            end: record.time,
            result: 0,
            out: None,
            launch: None,
            launches: false,
            around: record.around,
            stack: None,
            words: Vec::new(),
            payload: text.into_bytes(),
        })
    }
}

/// Converts a context switch to an event.
fn switch(record: SwitchRecord, stack: Option<StackId>) -> Event {
    Event::Switch(Switch {
        process: ProcessId(record.image),
        tid: record.tid,
        cpu: record.cpu,
        depth: record.depth,
        start: record.out,
        end: record.back,
        preempted: record.preempted,
        state: record.state,
        stack,
        around: record.around,
    })
}

/// A file mapped by a process.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// The process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The file's path as the process sees it.
    pub path: &'a str,
    /// When it was mapped; 0 if before the trace.
    pub time: u64,
}

impl<'a> From<&'a bpf::Mapped> for Mapped<'a> {
    fn from(bpf::Mapped { pid, start, length, path, time, .. }: &'a bpf::Mapped) -> Self {
        Self { pid: *pid, start: *start, end: start.saturating_add(*length), path, time: *time }
    }
}

/// A mapping whose file waits for inspection, and the owner of the file, if known.
#[derive(Debug)]
struct Deferred {
    pid: u32,
    start: u64,
    end: u64,
    path: String,
    time: u64,
    owner: Option<u32>,
}

impl Deferred {
    fn of(&Mapped { pid, start, end, path, time }: &Mapped<'_>, owner: Option<u32>) -> Self {
        Self { pid, start, end, path: path.to_owned(), time, owner }
    }

    fn mapped(&self) -> Mapped<'_> {
        let Self { pid, start, end, ref path, time, .. } = *self;
        Mapped { pid, start, end, path, time }
    }
}
