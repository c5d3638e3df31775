//! The collector's part of a trace: watches libraries as they are mapped, and converts records to events.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Range,
    os::fd::OwnedFd,
    path::PathBuf,
};

use anyhow::{Context, bail};
use bpf::{
    KernelFunction, KernelResult, Recorder,
    calls::{CALL_WORDS, CallRecord, Gather, PointRecord, SwitchRecord, SyscallRecord},
    tracefs,
};
use model::{
    calls::Tier,
    event::{Call, Event, FunctionId, Layer, Mapping, Note, ProcessId, SessionId, StackId, Switch},
};

use super::{
    callbacks::{Callbacks, Traced, exported_name, has_callback},
    file::is_usual,
    functions::Functions,
    kernel,
    late::Late,
    libraries::{Libraries, Watching},
    points::Format,
    search,
};
use crate::{injector::INJECTOR, process::procfs, sessions::Announced};

/// The most mappings that wait for their file to be inspected.
const MOST_DEFERRED: usize = 256;

/// A mapping whose file waits for inspection, and the owner of the file.
#[derive(Debug)]
struct Deferred {
    pid: u32,
    start: u64,
    end: u64,
    path: String,
    time: u64,
    owner: u32,
}

/// A trace in progress.
pub struct Tracer {
    /// What is watched.
    pub libraries: Libraries,
    /// Their numbers.
    pub functions: Functions,
    points: HashMap<u32, Format>,
    /// The result types of kernel functions.
    results: HashMap<u32, KernelResult>,
    /// The address ranges of our own code, by process image: it calls CUDA too.
    own_code: HashMap<ProcessId, Vec<Range<u64>>>,
    /// The address ranges of the CUDA runtime, and the paths of CUDA's libraries, by process image.
    runtime_code: HashMap<ProcessId, Vec<Range<u64>>>,
    cuda_files: HashMap<ProcessId, Vec<String>>,
    /// Processes that report their calls themselves, if they are expected to.
    pub callbacks: Option<Callbacks>,
    gone: Vec<ProcessId>,
    /// Every process is traced, so every mapping counts.
    pub all: bool,
    /// The calls are a part of a profile.
    pub beside_profile: bool,
    /// Libraries that were mapped before they were watched.
    pub late: Late,
    deferred: VecDeque<Deferred>,
    /// Mappings that did not fit among the deferred ones.
    pub overlooked: u64,
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
            results: HashMap::new(),
            own_code: HashMap::new(),
            runtime_code: HashMap::new(),
            cuda_files: HashMap::new(),
            callbacks: None,
            gone: Vec::new(),
            all,
            beside_profile: false,
            late: Late::default(),
            deferred: VecDeque::new(),
            overlooked: 0,
            refused: None,
        }
    }

    /// Watches a file before anything runs; returns `false` if it has nothing to watch.
    pub fn watch(
        &mut self,
        file: &PathBuf,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<bool> {
        let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        let path = real.to_string_lossy();
        self.libraries
            .watch(file, &path, recorder, &mut self.functions, push)
            .map(|watching| matches!(watching, Watching::Since(_)))
            .with_context(|| format!("cannot trace {path}"))
    }

    /// Watches the libraries on the search paths of loaders and Python, so that no first call is missed, and those that
    /// running processes have mapped.
    pub fn watch_machine(&mut self, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        for file in search::installed(|name| self.libraries.wanted.wants(name)) {
            if let Err(error) = self.watch(&file, recorder, push) {
                self.refuse(format!("{error:#}"), push);
            }
        }
        for pid in procfs::all() {
            self.watch_process(pid, recorder, push);
        }
    }

    /// Handles a file mapped by a process: watches it from now on, if it should be watched and is not yet.
    pub fn mapped(&mut self, mapped: &Mapped<'_>, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        if !self.libraries.wanted.wants(mapped.path) {
            return;
        }
        // This name refers to the mapped file itself, whatever is at its path by now, and in any container.
        let place = PathBuf::from(format!("/proc/{}/map_files/{:x}-{:x}", mapped.pid, mapped.start, mapped.end));
        let before = self.libraries.count();
        let mut watched = self.libraries.watch(&place, mapped.path, recorder, &mut self.functions, push);
        // The process exited before it was inspected. The next one that maps the same file is tried again.
        if watched.is_err() && !place.exists() {
            watched = self.libraries.watch(mapped.path.as_ref(), mapped.path, recorder, &mut self.functions, push);
        }
        match watched {
            Ok(Watching::Nothing) => {}
            Ok(Watching::Later(owner)) => self.defer(mapped, owner, push),
            Ok(Watching::Since(since)) => {
                self.late.add(mapped.pid, mapped.time, since);
                if self.libraries.count() > before && mapped.time != 0 {
                    let late = since.saturating_sub(mapped.time) as f64 / 1e6;
                    let text = format!(
                        "{} was probed {late:.1} ms after it was loaded: calls in that time are missing",
                        mapped.path
                    );
                    push(Event::Note(Note { text }));
                }
            }
            Err(_) if !place.exists() => {
                self.late.missed += 1;
                let text = format!(
                    "{} was mapped by a process that exited before the file was inspected: \
                     its calls are missing, unless the file was already probed",
                    mapped.path
                );
                push(Event::Note(Note { text }));
            }
            Err(error) => self.refuse(format!("{} is not probed: {error:#}", mapped.path), push),
        }
    }

    fn defer(&mut self, mapped: &Mapped<'_>, owner: u32, push: &mut dyn FnMut(Event)) {
        if self.deferred.len() >= MOST_DEFERRED {
            self.overlooked += 1;
            return;
        }
        let Mapped { pid, start, end, path, time } = *mapped;
        self.deferred.push_back(Deferred { pid, start, end, path: path.to_owned(), time, owner });
        let text = format!("user {owner} loads new libraries too fast: some are probed late");
        push(Event::Note(Note { text }));
    }

    /// Inspects deferred files for which there is time now.
    pub fn watch_deferred(&mut self, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        for _ in 0..self.deferred.len() {
            let Some(next) = self.deferred.pop_front() else { break };
            if self.libraries.has_time_for(next.owner) {
                let Deferred { pid, start, end, path, time, .. } = &next;
                let mapped = Mapped { pid: *pid, start: *start, end: *end, path, time: *time };
                self.mapped(&mapped, recorder, push);
            } else {
                self.deferred.push_back(next);
            }
        }
    }

    /// Watches the files that a running process has mapped.
    pub fn watch_process(&mut self, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        for mapping in procfs::mappings(pid, ProcessId(0)) {
            let mapped = Mapped { pid, start: mapping.start, end: mapping.end, path: &mapping.path, time: 0 };
            self.mapped(&mapped, recorder, push);
        }
    }

    fn refuse(&mut self, text: String, push: &mut dyn FnMut(Event)) {
        self.refused = Some(text.clone());
        push(Event::Note(Note { text }));
    }

    /// Watches a tracepoint, `CATEGORY:NAME`.
    pub fn watch_point(
        &mut self,
        name: &str,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        let Some((category, point)) = name.split_once(':').filter(|(c, p)| is_plain(c) && is_plain(p)) else {
            bail!("--tracepoint expects CATEGORY:NAME, such as sched:sched_switch, not {name}");
        };
        let read = |file| tracefs::read(&format!("events/{category}/{point}/{file}"));
        let id = match read("id") {
            Ok(id) => id,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let all = tracefs::tracepoints().unwrap_or_default();
                let near = text::near(all.iter().map(String::as_str), name);
                bail!("there is no tracepoint {name}{}", text::did_you_mean(&near));
            }
            Err(error) => return Err(error).context("cannot read the kernel's list of tracepoints (tracefs)"),
        };
        let id = id.trim().parse().context("tracefs returned an invalid tracepoint id")?;
        let function =
            self.functions.add(Layer::Point, category, point, true).context("too many functions are traced already")?;
        recorder.watch_point(id, function.id.0)?;
        self.points.insert(function.id.0, Format::parse(&read("format").unwrap_or_default()));
        push(Event::Function(function));
        Ok(())
    }

    /// Watches kernel functions with kprobes.
    pub fn watch_kernel(
        &mut self,
        names: Vec<String>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        // Without types, arguments have no names.
        let wanted: HashSet<_> = names.iter().map(String::as_str).collect();
        let known = bpf::kernel_functions(|name| wanted.contains(name)).unwrap_or_default();
        let known: HashMap<_, _> = known.iter().map(|function| (function.name.as_str(), function)).collect();
        let mut numbers = Vec::new();
        for name in &names {
            let number = self.describe_kernel(name, known.get(name.as_str()).copied(), recorder, push)?;
            numbers.push((name.clone(), number));
        }
        recorder.watch_kernel(&numbers).context("this kernel does not permit kprobes; use --driver to trace ioctls")
    }

    /// Watches kernel functions with fentry.
    pub fn hook_kernel(
        &mut self,
        functions: Vec<KernelFunction>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        let mut numbers = Vec::new();
        for function in functions {
            let number = self.describe_kernel(&function.name, Some(&function), recorder, push)?;
            numbers.push((function, number));
        }
        for refused in recorder.hook(&numbers) {
            let text = format!("{} is not traced (fentry): {}", refused.name, kernel::reason(&refused.error));
            push(Event::Note(Note { text }));
        }
        Ok(())
    }

    /// Numbers a kernel function, and sets what to gather at its calls.
    fn describe_kernel(
        &mut self,
        name: &str,
        known: Option<&KernelFunction>,
        recorder: &Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<u32> {
        let module = known.map_or("vmlinux", |function| &function.module);
        let library = if module == "vmlinux" { "kernel" } else { module };
        let mut function =
            self.functions.add(Layer::Kernel, library, name, true).context("too many functions are traced already")?;
        let mut gather = Gather { kernel: true, words: 6, layer: Tier::Kernel as u8 + 1, ..Gather::default() };
        if let Some(known) = known {
            gather.words = known.parameters.len().min(CALL_WORDS) as u8;
            function.parameters.clone_from(&known.parameters);
            function.void = known.result == KernelResult::Nothing;
            self.results.insert(function.id.0, known.result);
        }
        let number = function.id.0;
        recorder.describe(number, gather)?;
        push(Event::Function(function));
        Ok(number)
    }

    /// Handles a file mapped by a followed process.
    pub fn mapped_by(&mut self, mapping: &Mapping) {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        if name == INJECTOR || name.starts_with("libcupti.so") {
            self.own_code.entry(mapping.process).or_default().push(mapping.start..mapping.end);
        }
        if self.callbacks.is_some() && is_usual(&mapping.path) {
            let files = self.cuda_files.entry(mapping.process).or_default();
            if !files.contains(&mapping.path) {
                files.push(mapping.path.clone());
            }
            if name.starts_with("libcudart") {
                self.runtime_code.entry(mapping.process).or_default().push(mapping.start..mapping.end);
            }
        }
    }

    /// Handles a fork: the child has the mappings of its parent.
    pub fn forked(&mut self, child: ProcessId, parent: ProcessId) {
        fn copy<T: Clone>(map: &mut HashMap<ProcessId, Vec<T>>, child: ProcessId, parent: ProcessId) {
            if let Some(of_parent) = map.get(&parent).cloned() {
                map.insert(child, of_parent);
            }
        }
        copy(&mut self.own_code, child, parent);
        copy(&mut self.runtime_code, child, parent);
        copy(&mut self.cuda_files, child, parent);
    }

    /// Handles the end of a process image. Its last calls may not have been read yet.
    pub fn died(&mut self, image: ProcessId) {
        self.gone.push(image);
        if let Some(callbacks) = &mut self.callbacks {
            callbacks.ended(image);
        }
    }

    /// Handles a process that has loaded the injected library, before it continues: returns the memory for its calls. If
    /// it cannot report them, all functions are probed from now on.
    pub fn announced(
        &mut self,
        announced: Announced,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> Option<OwnedFd> {
        let Announced { process, session, pid, own_pid, reports, functions, .. } = announced;
        self.callbacks.as_ref()?;
        let names: HashSet<&str> = functions.iter().map(|(_, name)| exported_name(name)).collect();
        let mut opened = None;
        if reports {
            let mapped = self.cuda_files.get(&process).cloned().unwrap_or_default();
            let mut traced = Vec::new();
            for (number, name) in &functions {
                let name = exported_name(name);
                if !has_callback(name) {
                    continue;
                }
                let function = self.libraries.reported_function(name, &mapped, &mut self.functions, push);
                if let Some((id, known_as, gather)) = function {
                    traced.push((*number, known_as, Traced::new(id, gather, name, has_arguments(name, &names))));
                }
            }
            let opening = self.callbacks.as_mut()?.open(process, session, (pid, own_pid), traced);
            opened = opening.ok().flatten().and_then(|file| file.try_clone_to_owned().ok());
        }
        if opened.is_some() {
            self.probe_unreported(Some(&names), recorder, push);
        } else {
            self.fall_back(process, pid, recorder, push);
        }
        opened
    }

    /// Probes all functions if a process has initialised CUDA and does not report its calls: it did not load the injected
    /// library, or the library could not start.
    pub fn check_init(&mut self, call: &CallRecord, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        let process = ProcessId(call.image);
        if self.libraries.is_init(FunctionId(call.function))
            && self.callbacks.as_ref().is_some_and(|callbacks| !callbacks.has(process))
            && self.libraries.expects_reports()
        {
            self.fall_back(process, call.pid, recorder, push);
        }
    }

    /// Traces all calls with probes from now on.
    fn fall_back(&mut self, process: ProcessId, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        self.probe_unreported(None, recorder, push);
        let text = format!(
            "calls of process {pid} are traced with probes since it initialised CUDA: CUPTI does not report them"
        );
        push(Event::Note(Note { text }));
        let released = self.callbacks.as_mut().map(|callbacks| callbacks.release(process));
        for call in released.into_iter().flatten() {
            push(self.call(call, None, None));
        }
    }

    fn probe_unreported(
        &mut self,
        reported: Option<&HashSet<&str>>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) {
        if let Err(error) = self.libraries.probe_unreported(reported, recorder) {
            self.refuse(format!("some functions are not traced: {error:#}"), push);
        }
    }

    /// Takes a call from a probe if the process reports its calls: one that it reports itself is dropped, another one is
    /// put in its place between those. Returns the call if it has its place already.
    pub fn place(&mut self, call: CallRecord) -> Option<CallRecord> {
        let Some(callbacks) = &mut self.callbacks else { return Some(call) };
        let process = ProcessId(call.image);
        if callbacks.reports(process, FunctionId(call.function)) {
            return None;
        }
        let code = self.runtime_code.get(&process);
        let by_runtime =
            call.depth == 0 && code.is_some_and(|code| code.iter().any(|range| range.contains(&call.caller)));
        let role = self.libraries.role(FunctionId(call.function));
        callbacks.hold(call, by_runtime, role)
    }

    /// Reads the calls that processes have reported; returns `true` if there may be more.
    pub fn read_reported(&mut self, push: &mut dyn FnMut(Event)) -> bool {
        let Some(mut callbacks) = self.callbacks.take() else { return false };
        let any = callbacks.read(&mut |call| Some(self.call(call, None, None)), push);
        self.callbacks = Some(callbacks);
        any
    }

    /// Removes ended images once all their calls have been read.
    pub fn forget_gone(&mut self) {
        for image in self.gone.drain(..) {
            self.own_code.remove(&image);
            self.runtime_code.remove(&image);
            self.cuda_files.remove(&image);
        }
    }

    /// Whether the call was made by the injected library, or by CUPTI on its behalf, and not by the program.
    pub fn is_own(&self, call: &CallRecord) -> bool {
        let code = self.own_code.get(&ProcessId(call.image));
        code.is_some_and(|ranges| ranges.iter().any(|range| range.contains(&call.caller)))
    }

    /// Converts a call to an event.
    pub fn call(&self, record: CallRecord, launch: Option<(SessionId, u32)>, stack: Option<StackId>) -> Event {
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
            result: self.results.get(&record.function).map_or(record.result, |result| result.read(record.result)),
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
    pub fn syscall(&mut self, record: SyscallRecord, launch: Option<(SessionId, u32)>, push: &mut dyn FnMut(Event)) {
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
    pub fn point(&self, record: &PointRecord) -> Event {
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
pub fn switch(record: SwitchRecord, stack: Option<StackId>) -> Event {
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

/// Whether the parameters of a reported function are those of the table. From before CUDA 4 there are functions with 32-bit
/// addresses and sizes, which have a second version since.
fn has_arguments(name: &str, reported: &HashSet<&str>) -> bool {
    let short = ["cuMem", "cuArray", "cuDeviceTotalMem", "cuModuleGetGlobal"];
    let second = format!("{name}_v2");
    let own = |name: &str| cuda::call(name).map(|call| call.name);
    let is_first = reported.contains(second.as_str()) && own(&second) == own(name);
    !(is_first && short.iter().any(|start| name.starts_with(start)))
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

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
