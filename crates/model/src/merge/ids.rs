//! Translates the times and numbers of one recording to those of all.

use std::collections::HashMap;

use crate::event::{
    CostProgram, CounterId, Event, Frame, FunctionId, Layer, PointId, ProcessId, ProgramCost, SessionId, StackId, Unit,
};

/// The bits that numbers of one recording use; those above hold the index of the recording.
const BITS: u32 = 24;

/// Returns the index of the recording that a process belongs to.
pub fn recording_of(process: ProcessId) -> usize {
    (process.0 >> BITS) as usize
}

/// What all recordings have in common.
#[derive(Default)]
pub struct Shared {
    counters: HashMap<(String, String, String, Unit), CounterId>,
    functions: HashMap<(Layer, String, String), FunctionId>,
    programs: HashMap<CostProgram, ProgramCost>,
}

/// The numbers of one recording.
pub struct Ids {
    index: u32,
    shift: i64,
    /// The index of its machine.
    host: u32,
    /// The name of its machine, if there are several.
    label: String,
    counters: HashMap<CounterId, CounterId>,
    functions: HashMap<FunctionId, FunctionId>,
}

impl Ids {
    /// For the recording with this index, whose clock must be shifted so.
    pub fn new(index: u32, shift: i64, host: u32, label: &str) -> Self {
        Self { index, shift, host, label: label.to_owned(), counters: HashMap::new(), functions: HashMap::new() }
    }

    /// Translates a time. 0 is not a time.
    pub fn time(&self, time: u64) -> u64 {
        if time == 0 { 0 } else { time.saturating_add_signed(self.shift).max(1) }
    }

    fn tag(&self, number: u32) -> u32 {
        number ^ (self.index << BITS)
    }

    /// Image 0 is the kernel.
    fn process(&self, id: &mut ProcessId) {
        if *id != ProcessId(0) {
            id.0 = self.tag(id.0);
        }
    }

    fn session(&self, id: &mut SessionId) {
        id.0 = self.tag(id.0);
    }

    fn point(&self, id: &mut PointId) {
        id.0 = self.tag(id.0);
    }

    /// Stack ids are hashes of images and frames, and other recordings have the same image ids.
    fn stack(&self, id: &mut StackId) {
        if !id.is_placeholder() && *id != StackId(0) {
            id.0 ^= u64::from(self.index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// Kernel and Python frames are named for all processes of a recording together.
    fn frame(&self, frame: &mut Frame) {
        match frame {
            Frame::User(_) => {}
            Frame::Kernel(address) => *address ^= u64::from(self.index) << 48,
            Frame::Python(number) => *number = self.tag(*number),
        }
    }

    fn function(&self, id: &mut FunctionId) {
        *id = self.functions.get(id).copied().unwrap_or(FunctionId(u32::MAX));
    }

    fn shift(&self, time: &mut u64) -> u64 {
        *time = self.time(*time);
        *time
    }

    fn span(&self, start: &mut u64, end: &mut u64) -> u64 {
        self.shift(start);
        self.shift(end)
    }

    /// Translates an event. Returns its time, or 0 if it has none.
    pub fn translate(&mut self, event: &mut Event, shared: &mut Shared) -> u64 {
        match event {
            Event::Start(e) => self.shift(&mut e.time),
            Event::End(e) => self.shift(&mut e.time),
            Event::Process(e) => {
                self.process(&mut e.id);
                self.process(&mut e.parent);
                self.shift(&mut e.time)
            }
            Event::Thread(e) => {
                self.process(&mut e.process);
                0
            }
            Event::Exit(e) => {
                self.process(&mut e.process);
                self.shift(&mut e.time)
            }
            Event::Mapping(e) => {
                self.process(&mut e.process);
                self.shift(&mut e.time)
            }
            Event::Stack(e) => {
                self.stack(&mut e.id);
                self.process(&mut e.process);
                e.frames.iter_mut().for_each(|frame| self.frame(frame));
                self.shift(&mut e.time)
            }
            Event::Sample(e) => {
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                self.shift(&mut e.time)
            }
            Event::Symbol(e) => {
                self.process(&mut e.process);
                self.frame(&mut e.frame);
                self.shift(&mut e.since);
                0
            }
            Event::Note(e) => {
                if !self.label.is_empty() {
                    e.text = format!("{}: {}", self.label, e.text);
                }
                0
            }
            Event::Loss(_) => 0,
            Event::OwnCost(_) => 0,
            Event::ProgramCost(e) => {
                let sum =
                    shared.programs.entry(e.program).or_insert(ProgramCost { program: e.program, runs: 0, ns: 0 });
                (sum.runs, sum.ns) = (sum.runs.saturating_add(e.runs), sum.ns.saturating_add(e.ns));
                *e = *sum;
                0
            }
            Event::Counter(e) => {
                let key = (e.name.clone(), e.source.clone(), e.weight.clone(), e.unit);
                let next = CounterId(shared.counters.len() as u32);
                let id = *shared.counters.entry(key).or_insert(next);
                self.counters.insert(e.id, id);
                e.id = id;
                0
            }
            Event::CounterPoint(e) => {
                self.point(&mut e.id);
                e.counter = self.counters.get(&e.counter).copied().unwrap_or(CounterId(u32::MAX));
                0
            }
            Event::Hits(e) => {
                self.point(&mut e.point);
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                0
            }
            Event::Wait(e) => {
                self.point(&mut e.reason);
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Tensor(e) => {
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                self.shift(&mut e.time)
            }
            Event::TensorFreed(e) => {
                self.process(&mut e.process);
                self.shift(&mut e.time)
            }
            Event::Shutdown(e) => {
                self.process(&mut e.process);
                self.shift(&mut e.time)
            }
            other => self.translate_more(other, shared),
        }
    }

    /// Translates GPU work and calls.
    fn translate_more(&mut self, event: &mut Event, shared: &mut Shared) -> u64 {
        match event {
            Event::Session(e) => {
                self.session(&mut e.id);
                self.process(&mut e.process);
                0
            }
            Event::Device(e) => {
                self.session(&mut e.session);
                if self.host > 0 {
                    // Each machine has a GPU 0: those of the others are numbered after those of the first.
                    e.identity.machine_index = None;
                    e.identity.pci = e.identity.pci.saturating_add(u64::from(self.host) << 48);
                }
                if !self.label.is_empty() {
                    e.name = format!("{} on {}", e.name, self.label);
                }
                0
            }
            Event::Launch(e) => {
                self.session(&mut e.session);
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                self.shift(&mut e.time)
            }
            Event::Activity(e) => {
                self.session(&mut e.session);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Sync(e) => {
                self.session(&mut e.session);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Range(e) => {
                self.session(&mut e.session);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Pause(e) => {
                self.session(&mut e.session);
                // Without an end it lasts.
                if e.to != u64::MAX {
                    self.shift(&mut e.to);
                }
                self.shift(&mut e.from)
            }
            Event::Dump(e) => self.span(&mut e.from, &mut e.time),
            Event::Energy(e) => self.shift(&mut e.time),
            Event::Gpm(e) => self.span(&mut e.start, &mut e.end),
            Event::PmSamples(e) => self.shift(&mut e.start),
            Event::NodeStack(e) => {
                self.session(&mut e.session);
                self.process(&mut e.process);
                self.stack(&mut e.stack);
                self.shift(&mut e.time)
            }
            Event::NodeCopied(e) => {
                self.session(&mut e.session);
                self.shift(&mut e.time)
            }
            Event::Function(e) => {
                let next = FunctionId(shared.functions.len() as u32);
                let id = *shared.functions.entry((e.layer, e.library.clone(), e.name.clone())).or_insert(next);
                self.functions.insert(e.id, id);
                e.id = id;
                0
            }
            Event::Call(e) => {
                self.function(&mut e.function);
                self.process(&mut e.process);
                if let Some((session, _)) = &mut e.launch {
                    self.session(session);
                }
                if let Some(stack) = &mut e.stack {
                    self.stack(stack);
                }
                self.shift(&mut e.around);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Switch(e) => {
                self.process(&mut e.process);
                if let Some(stack) = &mut e.stack {
                    self.stack(stack);
                }
                self.shift(&mut e.around);
                self.span(&mut e.start, &mut e.end)
            }
            Event::Sum(e) => {
                self.function(&mut e.function);
                self.process(&mut e.process);
                0
            }
            Event::ErrorSum(e) => {
                self.function(&mut e.function);
                0
            }
            Event::MemorySum(e) => {
                self.process(&mut e.process);
                0
            }
            Event::KernelSum(e) => {
                self.process(&mut e.process);
                0
            }
            other => {
                self.translate_session(other);
                0
            }
        }
    }

    /// Translates what has only a session.
    fn translate_session(&self, event: &mut Event) {
        match event {
            Event::Rank(e) => self.session(&mut e.session),
            Event::RangeName(e) => self.session(&mut e.session),
            Event::RangedLaunch(e) => self.session(&mut e.session),
            Event::KernelName(e) => self.session(&mut e.session),
            Event::Returned(e) => self.session(&mut e.session),
            Event::Failed(e) => self.session(&mut e.session),
            Event::Captured(e) => self.session(&mut e.session),
            Event::NodeCreated(e) => self.session(&mut e.session),
            Event::GraphDestroyed(e) => self.session(&mut e.session),
            Event::Empty(e) => self.session(&mut e.session),
            Event::Counted(e) => self.session(&mut e.session),
            Event::Sampling(e) => self.session(&mut e.session),
            Event::Totals(e) => self.session(&mut e.session),
            Event::SessionCost(e) => self.session(&mut e.session),
            Event::StallReason(e) => self.session(&mut e.session),
            Event::StallSamples(e) => self.session(&mut e.at.session),
            Event::StallLines(e) => self.session(&mut e.at.session),
            Event::InstructionText(e) => self.session(&mut e.at.session),
            Event::StallTotals(e) => self.session(&mut e.session),
            // Translated above. Listed, so that a new event is not forgotten.
            Event::Start(_) | Event::End(_) | Event::Process(_) | Event::Thread(_) | Event::Exit(_) => {}
            Event::Mapping(_) | Event::Stack(_) | Event::Sample(_) | Event::Symbol(_) | Event::Note(_) => {}
            Event::Dump(_) | Event::Loss(_) | Event::OwnCost(_) | Event::ProgramCost(_) | Event::Counter(_) => {}
            Event::CounterPoint(_) | Event::Hits(_) | Event::Wait(_) | Event::Tensor(_) => {}
            Event::TensorFreed(_) | Event::Shutdown(_) | Event::Session(_) | Event::Device(_) => {}
            Event::Launch(_) | Event::Activity(_) | Event::Sync(_) | Event::Range(_) => {}
            Event::NodeStack(_) | Event::NodeCopied(_) | Event::Function(_) | Event::Call(_) => {}
            Event::Switch(_) | Event::Sum(_) | Event::ErrorSum(_) | Event::MemorySum(_) | Event::KernelSum(_) => {}
            Event::Pause(_) | Event::SourceText(_) | Event::Energy(_) | Event::Gpm(_) => {}
            Event::PmSamples(_) => {}
        }
    }
}
