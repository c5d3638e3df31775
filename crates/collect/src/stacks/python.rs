//! Python: declares Python processes to the BPF programs, and merges the frames read there into the native stacks.
//!
//! A launch or sample refers to two stacks, the native one and its Python part. Each pair becomes one stack of the
//! recording once both have arrived; the native one may have to wait for its tables. Until then the pair waits here.
//! A program file that contains an interpreter is declared once: what executes it has Python frames at once. Otherwise a process
//! is declared when the mapping of its interpreter has been read.
//!
//! ```text
//!  mapping of python or libpython ──> symbols::python::Interpreter (where, which version) ──> map python_processes
//!                                                                                                   │
//!  launch or sample ──> native stack's id ─┐                          bpf/python.h: walk the frames, send what is new
//!                       Python stack's id ─┴─> here: both parts there? ──> symbols::python::merge ──> one stack
//! ```

mod code;
mod layout;
mod loaded;
mod parts;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs::File,
    sync::Arc,
};

use bpf::{Mapped, PythonCode, PythonFrame, PythonMaps, PythonProcess, PythonStack};
use model::{
    budget::Budget,
    event::{ADDRESS, Event, Frame, FrameKind, Mapping, NamedFrame, ProcessId, Stack, StackEnd, StackId, Symbol},
};
use symbols::{
    FileId, Files,
    python::{self, Interpreter, Kind, Native, Part, Python, Unsupported},
};

pub(crate) use self::code::Code;
use self::{
    layout::{layout, shared_layout},
    loaded::Loaded,
    parts::{Parts, Whole},
};
use crate::sink::Sink;

/// The most bytes kept of Python code and stacks, for each process and in all, until it ends.
const PARTS: (u64, u64) = (32 << 20, 40 << 20);
/// The most bytes of names of lines.
const NAMES: (u64, u64) = (12 << 20, 16 << 20);
/// What a name costs beside its text: it is kept here and in the recording.
const NAME: usize = 192;
/// A frame without a name. The monitor shows no line for it.
const UNNAMED: &str = "[python]";
/// The file name of the interpreter's internal code objects.
const INTERNAL: &str = "__init__";

/// Threads and the probe compute the same hash.
const _: () = assert!(wire::known::MOST_PYTHON_FRAMES == bpf::PYTHON_STEPS);

/// The state of all Python processes.
pub struct Pythons {
    maps: PythonMaps,
    files: HashMap<FileId, Option<Arc<Program>>>,
    images: HashMap<ProcessId, Image>,
    numbers: Numbers,
    room: Budget,
    paired: HashMap<StackId, ProcessId>,
    waiting: Vec<Pair>,
    uneven: u64,
    loaded: Loaded,
}

/// Frame numbers, by name and file.
struct Numbers {
    known: HashMap<(String, Arc<str>), u32>,
    /// The names, and the image that each was first needed for.
    names: HashMap<u32, (ProcessId, NamedFrame)>,
    next: u32,
    room: Budget,
}

/// An interpreter, and its file. It stays open, so that no other file gets its inode.
struct Program {
    interpreter: Interpreter,
    file: File,
}

/// One process image.
#[derive(Default)]
struct Image {
    gone: bool,
    minor: u8,
    /// What was declared to the kernel.
    process: Option<PythonProcess>,
    ranges: Code,
    parts: Parts,
    /// Some of its stacks were not kept.
    full: bool,
}

/// A stack of two parts.
struct Pair {
    id: StackId,
    image: ProcessId,
    native: StackId,
    python: u64,
    time: u64,
}

impl Pythons {
    /// Creates an empty state.
    pub fn new(maps: PythonMaps) -> Self {
        Self {
            maps,
            files: HashMap::new(),
            images: HashMap::new(),
            numbers: Numbers::new(),
            room: Budget::new(PARTS.0, PARTS.1),
            paired: HashMap::new(),
            waiting: Vec::new(),
            uneven: 0,
            loaded: Loaded::default(),
        }
    }

    /// Finds the interpreters in files that will be mapped, so that the processes that execute them have Python frames at once.
    pub fn expect(&mut self, expected: &[FileId], files: &Files) {
        for id in expected {
            find(&mut self.files, &self.maps, *id, &files.path(*id), files);
        }
    }

    /// Adds a new image: a forked one inherits its parent's interpreter, also in the kernel.
    pub fn born(&mut self, image: ProcessId, forked_from: Option<ProcessId>) {
        let parent = forked_from.and_then(|parent| self.images.get(&parent));
        let new = parent.map_or_else(Image::default, |parent| Image {
            minor: parent.minor,
            process: parent.process,
            ranges: parent.ranges.clone(),
            ..Image::default()
        });
        // The parent may have been declared between the fork and now.
        if let Some(process) = &new.process {
            let _ = self.maps.declare(image.0, process);
        }
        self.images.insert(image, new);
    }

    /// Handles the end of an image; its stacks may still be waiting.
    pub fn died(&mut self, image: ProcessId) {
        self.maps.forget(image.0);
        if let Some(known) = self.images.get_mut(&image) {
            known.gone = true;
        }
    }

    /// Handles a file mapped as code. Problems with it are reported once.
    pub fn mapped(&mut self, mapping: &Mapping, file: Option<FileId>, files: &Files) -> Option<Unsupported> {
        let image = self.images.get_mut(&mapping.process)?;
        if image.ranges.add(mapping) {
            return None;
        }
        let (found, unsupported) = find(&mut self.files, &self.maps, file?, &mapping.path, files);
        let Some(found) = found else { return unsupported };
        let interpreter = &found.interpreter;
        let bias = image.ranges.add_interpreter(mapping, interpreter)?;
        image.minor = interpreter.minor;
        let process = layout(interpreter, bias);
        if !image.gone && image.process != Some(process) {
            // If the map is full, stacks show the interpreter's own frames instead.
            let _ = self.maps.declare(mapping.process.0, &process);
        }
        image.process = Some(process);
        None
    }

    /// Handles a file mapped by a process that is followed from its first call on: declares its interpreter, if it is one, so that the
    /// stack of this call has Python frames.
    pub fn found(&mut self, mapped: &Mapped) {
        self.loaded.declare_mapped(mapped, &self.maps);
    }

    /// Handles a process that has loaded CUDA, and that is followed from its first call on: declares its interpreter, so that
    /// the stack of this call has Python frames.
    pub fn loaded(&mut self, pid: u32) {
        self.loaded.declare(pid, &self.maps);
    }

    /// Whether an image has a Python interpreter whose frames are read.
    pub fn is_run_by(&self, image: ProcessId) -> bool {
        self.images.get(&image).is_some_and(|image| image.process.is_some())
    }

    /// Whether a native stack shows that its thread has no Python frames: it is whole, and none of it is the interpreter's.
    pub fn shows_no_frames(&self, image: ProcessId, stack: &Stack) -> bool {
        let Some(image) = self.images.get(&image).filter(|image| image.process.is_some()) else { return false };
        stack.end == StackEnd::Whole && !image.is_interpreted(stack)
    }

    /// Whether a stack has been taken while the interpreter ran Python code whose frames were not read, because the interpreter
    /// was found later.
    pub fn lacks_frames(&self, stack: &Stack) -> bool {
        let image = self.images.get(&stack.process).filter(|image| image.process.is_some());
        let is_python = |frame: &Frame| matches!(frame, Frame::Python(_));
        image.is_some_and(|image| image.is_interpreted(stack)) && !stack.frames.iter().any(is_python)
    }

    /// Returns the layout with which threads of an image can hash their own frames.
    pub fn shared_layout(&self, image: ProcessId) -> Option<wire::known::Python> {
        shared_layout(self.images.get(&image)?.process.as_ref()?, image.0)
    }

    /// Adds the frames of a Python stack.
    pub fn stack(&mut self, stack: &PythonStack) {
        let id = ProcessId(stack.image);
        let Some(image) = self.images.get_mut(&id) else { return };
        if self.room.take(id, image.parts.cost(stack)) {
            image.parts.add(stack);
        } else {
            image.full = true;
        }
    }

    /// Whether the frames of a Python stack of an image have arrived.
    pub fn knows(&self, image: ProcessId, stack: u64) -> bool {
        self.images.get(&image).is_some_and(|image| image.parts.has(stack))
    }

    /// Adds a code object.
    pub fn code(&mut self, code: PythonCode) {
        let id = ProcessId(code.image);
        let Some(image) = self.images.get_mut(&id) else { return };
        if self.room.take(id, image.parts.cost_of_code(&code)) {
            image.parts.add_code(code);
        }
    }

    /// Returns the id of a stack with these two parts.
    pub fn pair_id(native: u64, python: u64) -> StackId {
        if python == 0 {
            return StackId(native);
        }
        StackId(native.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ python)
    }

    /// Returns the same, and pushes the stack to the sink once its parts have arrived.
    pub fn pair(&mut self, image: ProcessId, native: u64, python: u64, time: u64) -> StackId {
        let id = Self::pair_id(native, python);
        if python != 0 && self.paired.insert(id, image).is_none() {
            self.waiting.push(Pair { id, image, native: StackId(native), python, time });
        }
        id
    }

    /// Pushes every pair whose parts have arrived to the sink.
    pub fn settle(&mut self, sink: &mut dyn Sink) {
        for pair in std::mem::take(&mut self.waiting) {
            // A part that was left out does not arrive.
            let python = self.images.get(&pair.image).is_some_and(|image| image.full || image.parts.has(pair.python));
            if python && (sink.owner(pair.native).is_some() || sink.is_full(pair.image)) {
                self.emit(&pair, sink);
            } else {
                self.waiting.push(pair);
            }
        }
        let awaited: HashSet<ProcessId> = self.waiting.iter().map(|pair| pair.image).collect();
        self.remove_images(&|id, image| image.gone && !awaited.contains(&id));
    }

    /// Pushes all remaining pairs to the sink, with the parts that have arrived.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        for pair in std::mem::take(&mut self.waiting) {
            self.emit(&pair, sink);
        }
    }

    /// Removes ended images with everything that waits for their parts, and, once there are many, the frame numbers.
    /// Existing stacks keep their old numbers.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        const MANY: usize = 1 << 16;
        self.remove_images(&|image, _| gone(image));
        self.waiting.retain(|pair| !gone(pair.image));
        self.paired.retain(|_, image| !gone(*image));
        if self.numbers.known.len() > MANY {
            self.numbers.known.clear();
            self.numbers.names.clear();
            self.numbers.room = Budget::new(NAMES.0, NAMES.1);
        }
    }

    /// Removes the numbers of frames whose names the sink has removed: such a frame gets another number, and is named again.
    pub fn forget_names(&mut self, kept: &dyn Fn(u32) -> bool) {
        self.numbers.forget(kept);
    }

    /// Removes the stacks of an image except the parts in `keep` and the combined stacks that `whole` accepts; returns the
    /// removed Python parts.
    pub fn forget_stacks(
        &mut self,
        image: ProcessId,
        keep: &HashSet<u64>,
        whole: &dyn Fn(StackId) -> bool,
    ) -> Vec<u64> {
        self.paired.retain(|id, of| *of != image || whole(*id));
        self.waiting.retain(|pair| pair.image != image || whole(pair.id));
        let Some(known) = self.images.get_mut(&image) else { return Vec::new() };
        let (gone, bytes) = known.parts.forget(keep);
        self.room.give_back(image, bytes);
        known.full = false;
        gone
    }

    /// Removes interpreters in files that are no longer known.
    pub fn forget_files(&mut self, known: &HashSet<FileId>) {
        for (_, gone) in self.files.extract_if(|id, _| !known.contains(id)) {
            if let Some(info) = gone.and_then(|gone| gone.file.metadata().ok()) {
                self.maps.forget_program(&info);
            }
        }
    }

    /// Returns the name of a frame by its number.
    pub fn named(&self, number: u32) -> Option<&NamedFrame> {
        self.numbers.names.get(&number).map(|(_, name)| name)
    }

    /// Returns the number of stacks whose parts do not match.
    pub fn uneven(&self) -> u64 {
        self.uneven
    }

    /// Returns how often code, a stack or a name was left out.
    pub fn refused(&self) -> u64 {
        self.room.refused() + self.numbers.room.refused()
    }

    fn remove_images(&mut self, gone: &dyn Fn(ProcessId, &Image) -> bool) {
        for (id, _) in self.images.extract_if(|id, image| gone(*id, image)) {
            self.room.give_back_all(id);
        }
    }

    fn emit(&mut self, pair: &Pair, sink: &mut dyn Sink) {
        let nothing = Image::default();
        let image = self.images.get(&pair.image).unwrap_or(&nothing);
        let native = sink.stack(pair.native).map(Cow::into_owned);
        let python = image.parts.stack(pair.python);
        if native.is_none() && python.is_none() {
            return;
        }
        let (native, end) = native.map_or((Vec::new(), StackEnd::Broken), |stack| (stack.frames, stack.end));
        let kernel = native.iter().take_while(|frame| matches!(frame, Frame::Kernel(_))).count();
        let (kernel, user) = native.split_at(kernel);
        let kinds: Vec<Kind> = user.iter().map(|frame| image.kind(*frame)).collect();
        let whole = python.as_ref().map(|(_, whole)| *whole);
        let read = python.into_iter().flat_map(|(frames, _)| frames);
        let lines: Vec<(PythonFrame, NamedFrame)> = read.filter_map(|f| Some((f, image.name(&f)?))).collect();
        let entries: Vec<bool> = lines.iter().map(|(frame, _)| frame.entry).collect();
        let merged = python::merge(
            Native { kinds: &kinds, whole: end == StackEnd::Whole },
            Python { entries: &entries, whole: whole == Some(Whole::Yes) },
        );
        self.uneven += u64::from(merged.uneven);
        // A stack is complete if both its parts are.
        let end = match whole {
            Some(Whole::Truncated) if end == StackEnd::Whole => StackEnd::Truncated,
            Some(Whole::Broken) if end == StackEnd::Whole => StackEnd::Unreadable,
            _ => end,
        };
        let mut frames = kernel.to_vec();
        for part in merged.frames {
            frames.push(match part {
                Part::Native(index) => user[index],
                Part::Python(index) => number(&mut self.numbers, pair.image, &lines[index].1, sink),
            });
        }
        sink.push(&Event::Stack(Stack { id: pair.id, process: pair.image, time: pair.time, frames, end }));
    }
}

impl Image {
    /// Whether a frame of a stack is the interpreter's.
    fn is_interpreted(&self, stack: &Stack) -> bool {
        let is_interpreter = |frame: &Frame| match frame {
            Frame::User(address) => self.ranges.interpreter.iter().any(|range| range.contains(&(address & ADDRESS))),
            _ => false,
        };
        stack.frames.iter().any(is_interpreter)
    }

    fn kind(&self, frame: Frame) -> Kind {
        match frame {
            Frame::User(address) => self.ranges.kind(address),
            _ => Kind::Other,
        }
    }

    /// Returns the name of a frame; `None` if it is internal to the interpreter.
    fn name(&self, frame: &PythonFrame) -> Option<NamedFrame> {
        match self.parts.code(frame) {
            Some(code) if code.file == INTERNAL || !code.name.is_empty() => name(self.minor, code, frame.instruction),
            _ => Some(NamedFrame { kind: FrameKind::Python, name: UNNAMED.into(), module: "".into() }),
        }
    }
}

/// Returns the name of a line of Python code; `None` if it is internal to the interpreter.
pub(crate) fn name(minor: u8, code: &PythonCode, instruction: u32) -> Option<NamedFrame> {
    if code.file == INTERNAL {
        return None;
    }
    let line = python::line(minor, &code.lines, code.first_line, instruction);
    let base = code.file.rsplit('/').next().unwrap_or_default();
    let text = format!("{} ({base}:{line})", code.name);
    Some(NamedFrame { kind: FrameKind::Python, name: text.into(), module: code.file.as_str().into() })
}

/// Returns the interpreter in a file. It is declared when it is first found; a problem with it is returned once.
fn find(
    known: &mut HashMap<FileId, Option<Arc<Program>>>,
    maps: &PythonMaps,
    id: FileId,
    path: &str,
    files: &Files,
) -> (Option<Arc<Program>>, Option<Unsupported>) {
    if !Interpreter::may_be_in(path) {
        return (None, None);
    }
    if let Some(known) = known.get(&id) {
        return (known.clone(), None);
    }
    let file = files.open(id);
    let found = file.and_then(|file| Some((Interpreter::find(&file, path)?, file)));
    let (found, unsupported) = match found {
        Some((Ok(interpreter), file)) => (Some(Arc::new(Program { interpreter, file })), None),
        Some((Err(why), _)) => (None, Some(why)),
        None => (None, None),
    };
    if let Some(Program { interpreter, file }) = found.as_deref()
        && let Ok(info) = file.metadata()
        && let Some(code) = interpreter.segments.executable().map(|segment| segment.address).min()
    {
        // Without room, a process is declared when its mapping has been read.
        let _ = maps.declare_program(&info, code, &layout(interpreter, 0));
    }
    known.insert(id, found.clone());
    (found, unsupported)
}

impl Numbers {
    /// Creates an empty state.
    fn new() -> Self {
        Self { known: HashMap::new(), names: HashMap::new(), next: 0, room: Budget::new(NAMES.0, NAMES.1) }
    }

    /// Removes numbers except those in `kept`.
    fn forget(&mut self, kept: &dyn Fn(u32) -> bool) {
        self.known.retain(|_, number| kept(*number));
        for (_, (image, name)) in self.names.extract_if(|number, _| !kept(*number)) {
            if *name.name != *UNNAMED {
                self.room.give_back(image, bytes(&name));
            }
        }
    }
}

/// What a name costs.
fn bytes(name: &NamedFrame) -> u64 {
    (NAME + 2 * (name.name.len() + name.module.len())) as u64
}

/// Returns the frame's number in the recording; a new one is named first.
fn number(numbers: &mut Numbers, image: ProcessId, name: &NamedFrame, sink: &mut dyn Sink) -> Frame {
    let key = (name.name.to_string(), name.module.clone());
    let unnamed = NamedFrame { kind: FrameKind::Python, name: UNNAMED.into(), module: "".into() };
    let fits = numbers.known.contains_key(&key) || key.0 == UNNAMED || numbers.room.take(image, bytes(name));
    let (key, name) = if fits { (key, name) } else { ((UNNAMED.to_owned(), "".into()), &unnamed) };
    let next = numbers.next;
    let number = *numbers.known.entry(key).or_insert(next);
    let frame = Frame::Python(number);
    if number == next {
        numbers.next = next.wrapping_add(1);
        numbers.names.insert(number, (image, name.clone()));
        sink.push(&Event::Symbol(Symbol { process: ProcessId(0), frame, since: 0, names: vec![name.clone()] }));
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Named(Vec<Frame>);

    impl Sink for Named {
        fn push(&mut self, event: &Event) {
            let Event::Symbol(symbol) = event else { panic!("{event:?}") };
            self.0.push(symbol.frame);
        }

        fn stack(&self, _: StackId) -> Option<Cow<'_, Stack>> {
            None
        }
    }

    /// Check that a line is named once, and again after the sink has removed its name; others keep their numbers.
    #[test]
    fn removed_names_are_reported_again() {
        let (mut numbers, mut sink) = (Numbers::new(), Named::default());
        let name = |text: &str| NamedFrame { kind: FrameKind::Python, name: text.into(), module: "a.py".into() };
        let (one, other) = (name("one (a.py:1)"), name("other (a.py:2)"));
        let mut of = |numbers: &mut Numbers, name| number(numbers, ProcessId(1), name, &mut sink);
        let before = [of(&mut numbers, &one), of(&mut numbers, &other), of(&mut numbers, &one)];
        assert_eq!(before, [0, 1, 0].map(Frame::Python));
        numbers.forget(&|number| number == 1);
        let after = [of(&mut numbers, &one), of(&mut numbers, &other)];
        assert_eq!(after, [2, 1].map(Frame::Python));
        assert_eq!(sink.0, [0, 1, 2].map(Frame::Python));
    }
}
