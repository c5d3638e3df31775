//! Translates the times and numbers of one recording to those of all.

use std::collections::HashMap;

use crate::clocks::Correction;
use crate::event::{
    CostProgram, CounterId, Event, Frame, FunctionId, Layer, Number, ProcessId, ProgramCost, RECORDING_BITS, StackId,
    Unit,
};

/// Returns the index of the recording that a process belongs to.
pub fn recording_of(process: ProcessId) -> usize {
    (process.0 >> RECORDING_BITS) as usize
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
    correction: Correction,
    /// The index of its machine.
    host: u32,
    /// The name of its machine, if there are several.
    label: String,
    counters: HashMap<CounterId, CounterId>,
    functions: HashMap<FunctionId, FunctionId>,
}

impl Ids {
    /// For the recording with this index, whose clock must be shifted so, and then corrected.
    pub fn new(index: u32, shift: i64, correction: Correction, host: u32, label: &str) -> Self {
        let (counters, functions) = (HashMap::new(), HashMap::new());
        Self { index, shift, correction, host, label: label.to_owned(), counters, functions }
    }

    /// Translates a time. 0 is a lost one, and `u64::MAX` one that is not known yet.
    pub fn time(&self, time: u64) -> u64 {
        if time == 0 || time == u64::MAX {
            return time;
        }
        self.correction.apply(time.saturating_add_signed(self.shift)).max(1)
    }

    fn tag(&self, number: &mut u32) {
        *number ^= self.index << RECORDING_BITS;
    }

    fn number(&self, number: Number<'_>) {
        match number {
            // Image 0 is the kernel.
            Number::Process(ProcessId(0)) => {}
            Number::Process(id) => self.tag(&mut id.0),
            Number::Session(id) => self.tag(&mut id.0),
            Number::Point(id) => self.tag(&mut id.0),
            // Stack ids are hashes of images and frames, and other recordings have the same image ids.
            Number::Stack(id) if id.is_placeholder() || *id == StackId(0) => {}
            Number::Stack(id) => id.0 ^= u64::from(self.index).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            // Kernel and Python frames are named for all processes of a recording together.
            Number::Frame(Frame::User(_)) => {}
            Number::Frame(Frame::Kernel(address)) => *address ^= u64::from(self.index) << 48,
            Number::Frame(Frame::Python(number)) => self.tag(number),
            Number::Function(id) => *id = self.functions.get(id).copied().unwrap_or(FunctionId(u32::MAX)),
            Number::Counter(id) => *id = self.counters.get(id).copied().unwrap_or(CounterId(u32::MAX)),
        }
    }

    /// Translates an event. Returns its latest time, or 0 if it has none.
    pub fn translate(&mut self, event: &mut Event, shared: &mut Shared) -> u64 {
        self.declare(event, shared);
        event.numbers(&mut |number| self.number(number));
        let mut latest = 0;
        event.times(&mut |time| {
            *time = self.time(*time);
            // An end that is not known yet is not a time.
            latest = latest.max(if *time == u64::MAX { 0 } else { *time });
        });
        latest
    }

    /// Finds what several recordings declare, and adds up or marks what numbers cannot distinguish.
    fn declare(&mut self, event: &mut Event, shared: &mut Shared) {
        match event {
            Event::Counter(e) => {
                let key = (e.name.clone(), e.source.clone(), e.weight.clone(), e.unit);
                let next = CounterId(shared.counters.len() as u32);
                self.counters.insert(e.id, *shared.counters.entry(key).or_insert(next));
            }
            Event::Function(e) => {
                let next = FunctionId(shared.functions.len() as u32);
                let key = (e.layer, e.library.clone(), e.name.clone());
                self.functions.insert(e.id, *shared.functions.entry(key).or_insert(next));
            }
            Event::ProgramCost(e) => {
                let sum =
                    shared.programs.entry(e.program).or_insert(ProgramCost { program: e.program, runs: 0, ns: 0 });
                (sum.runs, sum.ns) = (sum.runs.saturating_add(e.runs), sum.ns.saturating_add(e.ns));
                *e = *sum;
            }
            Event::Note(e) if !self.label.is_empty() => e.text = format!("{}: {}", self.label, e.text),
            Event::Device(e) => {
                if self.host > 0 {
                    // Each machine has a GPU 0: those of the others are numbered after those of the first.
                    e.identity.machine_index = None;
                    e.identity.pci = e.identity.pci.saturating_add(u64::from(self.host) << 48);
                }
                if !self.label.is_empty() {
                    e.name = format!("{} on {}", e.name, self.label);
                }
            }
            _ => {}
        }
    }
}
