//! Work handed to other threads: the work of PyTorch's autograd appears under the call of `backward()` that caused it, and
//! the tasks of XLA's thread pools under the code that handed them over.
//!
//! ```text
//!   caller   main > step (train.py:31) > backward > ... > Engine::execute_with_graph_task
//!   worker   start_thread > Engine::thread_main > Engine::evaluate_function > ... > cudaLaunchKernel
//!
//!   shown    main > step (train.py:31) > backward > ... > [handed over by backward (train.py:31)]
//!              > start_thread > Engine::thread_main > Engine::evaluate_function > ... > cudaLaunchKernel
//! ```
//!
//! The BPF programs know which call the work of a thread belongs to, if the thread does such work (`handover_state.h`).
//! Whether it does is seen on its stack: the outermost of the engine's functions there is one that works. On the calling
//! thread it is the call itself, and the stack is complete as it is.
//!
//! On request, a frame inside the boundary names the forward code that made the node whose work it is: `[backward of linear
//! (model.py:12)]`.
//!
//! A task of XLA that another task hands over has the same cause as that one. So the causes of tasks are calls outside of the
//! pools: those of the main thread, where JAX compiles and runs programs.
//!
//! A thread that Python's `threading` started appears under the code that started it, unless it does work that was handed to
//! it: `[started by start (train.py:12)]`. Who gave work to a thread of a Python pool later is not known.
//!
//! Both stacks become one stack of the recording once both have arrived.
//!
//! If several calls are in progress, the work is counted (`lost.handovers`) and appears under its own thread; from then
//! on `evaluate_function` is probed, and the GraphTask, which both functions have, is the key. Nothing is decided by
//! time or order.

mod boundary;
mod creators;
mod engine;
mod libraries;
mod places;
mod pools;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
    rc::Rc,
};

use bpf::{Cause, Recorder};
use model::{
    budget::Budget,
    event::{Event, Frame, Mapping, NamedFrame, ProcessId, Stack, StackEnd, StackId, Symbol},
};
use symbols::{FileId, Files};

use self::{
    boundary::Kind,
    creators::Creators,
    libraries::{Libraries, What},
    places::Places,
};
use crate::sink::Sink;

/// The most calls that are remembered. Work refers to calls in progress.
const MAX_CALLS: usize = 1 << 16;
/// The most calls that are nested in each other's work.
const MAX_NESTED: usize = 256;
/// Mappings of libraries that hand work over: of a process, and of all.
const PLACES: (u64, u64) = (64, 1 << 16);
/// The most ended images whose stacks may not have been read yet.
const MOST_GONE: usize = 256;
/// The most stacks that wait for their parts, or for a decision.
const MAX_WAITING: usize = 1 << 16;
/// The most combined stacks that are remembered. One that is forgotten is combined again.
const MAX_JOINED: usize = 1 << 18;
/// The most names of boundaries.
const MAX_BOUNDARIES: usize = 1 << 16;
/// Frames that mark a hand-over have numbers from here on; those of Python count from 0.
const FIRST_BOUNDARY: u32 = 1 << 31;

/// The calls that hand work over, and the stacks of that work.
pub struct Handovers {
    libraries: Libraries,
    /// Where each image has their functions. Forked images share those of their parent.
    images: HashMap<ProcessId, Rc<Places>>,
    /// Ended images, oldest first.
    gone: VecDeque<ProcessId>,
    places: Budget,
    calls: HashMap<u32, Call>,
    /// The ids of `calls`, oldest first.
    order: VecDeque<u32>,
    creators: Creators,
    waiting: Vec<JoinedStack>,
    joined: HashSet<StackId>,
    /// Work of an unknown call, if it is work: its stack has not arrived.
    undecided: HashMap<(ProcessId, StackId), u64>,
    boundaries: HashMap<String, u32>,
    unknown: u64,
}

/// A call that hands work over, or a part of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    kind: Kind,
    image: ProcessId,
    /// The thread that made it. 0 for tasks, which are no part of it.
    tid: u32,
    stack: StackId,
    cause: Cause,
    /// The forward code that made this part.
    forward: Option<StackId>,
}

/// A stack of two parts.
struct JoinedStack {
    kind: Kind,
    id: StackId,
    image: ProcessId,
    worker: StackId,
    caller: StackId,
    forward: Option<StackId>,
    time: u64,
}

/// The stack of the call that caused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No other thread did.
    Own,
    Caller(Call),
    Unknown,
}

impl Handovers {
    /// Creates an empty set. With `forward`, the forward code that made each piece of work is found, too.
    pub fn new(forward: bool) -> Self {
        Self {
            libraries: Libraries::new(forward),
            images: HashMap::new(),
            gone: VecDeque::new(),
            places: Budget::new(PLACES.0, PLACES.1),
            calls: HashMap::new(),
            order: VecDeque::new(),
            creators: Creators::default(),
            waiting: Vec::new(),
            joined: HashSet::new(),
            undecided: HashMap::new(),
            boundaries: HashMap::new(),
            unknown: 0,
        }
    }

    /// Adds a new image: a forked one has its parent's mappings.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        if let Some(places) = forked_from.and_then(|parent| self.images.get(&parent)) {
            self.images.insert(image, Rc::clone(places));
        }
    }

    /// Handles the end of an image. Its stacks may not have been read yet, so it is removed after others have ended.
    pub fn died(&mut self, image: ProcessId) {
        self.creators.died(image);
        self.gone.extend(self.images.contains_key(&image).then_some(image));
        if self.gone.len() > MOST_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.images.remove(&oldest);
            self.places.give_back_all(oldest);
        }
    }

    /// Handles a file mapped as code: watches PyTorch and XLA. Returns what prevents it.
    pub fn mapped(
        &mut self,
        mapping: &Mapping,
        file: Option<FileId>,
        files: &Files,
        recorder: &mut Recorder,
    ) -> Option<String> {
        let library = (file?, What::of(&mapping.path)?);
        let (images, gone) = (&self.images, &self.gone);
        let used = || {
            let gone: HashSet<&ProcessId> = gone.iter().collect();
            let running = images.iter().filter(|(image, _)| !gone.contains(image));
            running.flat_map(|(_, places)| places.files.iter().copied()).collect()
        };
        let problem = self.libraries.watch(library, mapping, files, recorder, &used);
        if let Some(places) = self.libraries.places(library.0, mapping.start, mapping.offset) {
            let known = self.images.entry(mapping.process).or_default();
            if !known.has(&places) && self.places.take(mapping.process, 1) {
                Rc::make_mut(known).add(places, library.0);
            }
        }
        problem
    }

    /// Returns how often a library or a mapping of one was ignored because there were too many.
    pub fn refused(&self) -> u64 {
        self.libraries.refused() + self.places.refused()
    }

    /// Adds a call that begins; `stack` is its stack.
    pub fn begun(&mut self, call: &bpf::Handover, stack: StackId) {
        let image = ProcessId(call.image);
        let (kind, tid) = (Kind::HandedOver, call.tid);
        self.add(call.id, Call { kind, image, tid, stack, cause: call.cause, forward: None });
    }

    /// Adds a call that hands tasks to a thread pool; `stack` is its stack.
    pub fn tasks(&mut self, call: &bpf::Handover, stack: StackId) {
        let (kind, image) = (Kind::Task, ProcessId(call.image));
        self.add(call.id, Call { kind, image, tid: 0, stack, cause: call.cause, forward: None });
    }

    /// Adds a part of a call's work; `stack` is that of the forward code that made it.
    pub fn part(&mut self, part: &bpf::Handover, stack: StackId) {
        let Cause::Call(of) = part.cause else { return };
        if let Some(&call) = self.calls.get(&of) {
            self.add(part.id, Call { forward: Some(stack), ..call });
        }
    }

    fn add(&mut self, id: u32, call: Call) {
        self.calls.insert(id, call);
        self.order.push_back(id);
        if self.order.len() > MAX_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
    }

    /// Removes combined stacks that `keep` does not accept: if they occur again, they are combined again.
    pub fn forget_stacks(&mut self, keep: &dyn Fn(StackId) -> bool) {
        self.joined.retain(|id| keep(*id));
    }

    /// Adds a thread; `stack` is that of the thread that started it, if it runs Python.
    pub fn started(&mut self, image: ProcessId, tid: u32, creator: u32, stack: Option<StackId>) {
        self.creators.started(image, tid, creator, stack);
    }

    /// Handles the end of a thread.
    pub fn thread_ended(&mut self, image: ProcessId, tid: u32) {
        self.creators.ended(image, tid);
    }

    /// Returns how many threads are shown without the code that started them because there were too many.
    pub fn threads_refused(&self) -> u64 {
        self.creators.refused()
    }

    /// Returns the stack that something on this thread appears under: its own, or its own below that of its cause or that of
    /// the thread that started it. `native` is the native part of its own stack, which arrives first.
    pub fn under(
        &mut self,
        image: ProcessId,
        (native, stack): (StackId, StackId),
        (cause, tid): (Cause, u32),
        time: u64,
        sink: &dyn Sink,
    ) -> StackId {
        let handed = self.handed(image, (native, stack), (cause, tid), time, sink);
        let Some(caller) = self.creators.of(image, tid).filter(|_| handed == stack) else { return handed };
        self.combine(Kind::Started, image, (stack, caller), None, time)
    }

    /// Returns the stack of work that was handed to this thread; the thread's own stack if it does other work.
    fn handed(
        &mut self,
        image: ProcessId,
        (native, stack): (StackId, StackId),
        (cause, tid): (Cause, u32),
        time: u64,
        sink: &dyn Sink,
    ) -> StackId {
        let found = self.find(image, cause, tid);
        let Some(places) = self.images.get(&image).filter(|_| found != Found::Own) else { return stack };
        if let Found::Caller(call) = found {
            let id = joint(call.kind, stack, call.stack, call.forward);
            if self.joined.contains(&id) {
                return id;
            }
        }
        match (found, sink.stack(native).map(|stack| places.work(&stack.frames))) {
            (Found::Own, _) | (_, Some(false)) => {}
            (Found::Unknown, Some(true)) => self.unknown += 1,
            (Found::Unknown, None) if self.undecided.len() >= MAX_WAITING => self.unknown += 1,
            (Found::Unknown, None) => *self.undecided.entry((image, native)).or_default() += 1,
            (Found::Caller(call), _) => {
                return self.combine(call.kind, image, (stack, call.stack), call.forward, time);
            }
        }
        stack
    }

    /// Returns the id of a worker's stack below its caller's; a new one waits for both parts.
    fn combine(
        &mut self,
        kind: Kind,
        image: ProcessId,
        (worker, caller): (StackId, StackId),
        forward: Option<StackId>,
        time: u64,
    ) -> StackId {
        let id = joint(kind, worker, caller, forward);
        if self.joined.contains(&id) {
            return id;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.unknown += 1;
            return worker;
        }
        if self.joined.len() >= MAX_JOINED {
            self.joined.clear();
        }
        if self.joined.insert(id) {
            self.waiting.push(JoinedStack { kind, id, image, worker, caller, forward, time });
        }
        id
    }

    /// Whether the record of a call has arrived.
    pub fn knows(&self, call: u32) -> bool {
        self.calls.contains_key(&call)
    }

    /// Finds the call that another thread of the image made. A process may report any number.
    fn find(&self, image: ProcessId, mut cause: Cause, tid: u32) -> Found {
        for _ in 0..MAX_NESTED {
            cause = match cause {
                Cause::None => return Found::Own,
                Cause::Unknown => return Found::Unknown,
                Cause::Call(id) => match self.calls.get(&id).filter(|call| call.image == image) {
                    None => return Found::Unknown,
                    Some(call) if call.tid != tid => return Found::Caller(*call),
                    // Its own call, within work that was handed to it.
                    Some(call) => call.cause,
                },
            }
        }
        Found::Unknown
    }

    /// Watches each piece of work from now on, if calls could not be distinguished without.
    pub fn watch_work(&mut self, recorder: &mut Recorder) -> Option<String> {
        if self.unknown == 0 || self.libraries.work {
            return None;
        }
        self.libraries.watch_work(recorder)
    }

    /// Pushes every stack whose parts have arrived to the sink. `python` returns the name of a Python frame.
    pub fn settle(&mut self, sink: &mut dyn Sink, python: &dyn Fn(u32) -> Option<NamedFrame>) {
        for joint in std::mem::take(&mut self.waiting) {
            let parts = [Some(joint.worker), Some(joint.caller), joint.forward];
            if parts.iter().flatten().all(|part| sink.owner(*part).is_some()) {
                self.emit(&joint, sink, python);
            } else {
                self.waiting.push(joint);
            }
        }
        let (images, unknown) = (&self.images, &mut self.unknown);
        self.undecided.retain(|(image, stack), times| {
            let Some(stack) = sink.stack(*stack) else { return true };
            if images.get(image).is_some_and(|places| places.work(&stack.frames)) {
                *unknown += *times;
            }
            false
        });
    }

    /// Pushes all remaining stacks to the sink, with the parts that have arrived.
    pub fn finish(&mut self, sink: &mut dyn Sink, python: &dyn Fn(u32) -> Option<NamedFrame>) {
        for joint in std::mem::take(&mut self.waiting) {
            self.emit(&joint, sink, python);
        }
    }

    /// Returns how many launches and samples belong to a call that is not known.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    fn emit(&mut self, joint: &JoinedStack, sink: &mut dyn Sink, python: &dyn Fn(u32) -> Option<NamedFrame>) {
        let Some(worker) = sink.stack(joint.worker) else { return };
        let mut stack = Stack { id: joint.id, process: joint.image, time: joint.time, ..worker.into_owned() };
        let names = |frames: &[Frame]| {
            let named = frames.iter().filter_map(|frame| match frame {
                Frame::Python(number) => python(*number),
                _ => None,
            });
            named.collect::<Vec<NamedFrame>>()
        };
        let caller = sink.stack(joint.caller).map(Cow::into_owned);
        let made = joint.forward.and_then(|forward| sink.stack(forward)).map(|forward| names(&forward.frames));
        let belongs = match joint.kind {
            Kind::HandedOver | Kind::Task => {
                self.images.get(&joint.image).is_some_and(|places| places.work(&stack.frames))
            }
            Kind::Started => creators::is_thread(&names(&stack.frames)),
        };
        if belongs && let Some(Stack { frames, end, .. }) = caller {
            if let Some(made) = made {
                stack.frames.push(self.boundary(boundary::forward_name(&made), sink));
            }
            stack.frames.push(self.boundary(boundary::name(joint.kind, &names(&frames)), sink));
            stack.frames.extend(frames);
            if stack.end == StackEnd::Whole {
                stack.end = end;
            }
        }
        sink.push(&Event::Stack(stack));
    }

    /// Returns the frame with this name; a new one is named first.
    fn boundary(&mut self, mut name: String, sink: &mut dyn Sink) -> Frame {
        if self.boundaries.len() >= MAX_BOUNDARIES && !self.boundaries.contains_key(&name) {
            name = boundary::OTHER.to_owned();
        }
        let next = FIRST_BOUNDARY.saturating_add(self.boundaries.len() as u32);
        let number = *self.boundaries.entry(name.clone()).or_insert(next);
        let frame = Frame::Python(number);
        if number == next {
            let names = vec![boundary::frame(&name)];
            sink.push(&Event::Symbol(Symbol { process: ProcessId(0), frame, since: 0, names }));
        }
        frame
    }
}

/// Returns the id of a worker's stack below its caller's. Calls within calls give chains, so the order matters.
fn joint(kind: Kind, worker: StackId, caller: StackId, forward: Option<StackId>) -> StackId {
    let mix = |hash: u64, value: u64| {
        let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 29
    };
    let id = mix(mix(mix(1, caller.0), worker.0), 2 + kind as u64);
    StackId(forward.map_or(id, |forward| mix(id, forward.0)) | 1)
}
