//! The flight recorder: keeps the recent past in memory, and writes it when something happens.
//!
//! ```text
//!   events ──> window (the last 30 s, say, and who holds memory)
//!      └────> triggers: errors, idle GPUs, slow functions ──┐
//!   SIGUSR1 ────────────────────────────────────────────────┴──> a cut of the window, after the last records have arrived
//! ```
//!
//! A cut shares the memory of chunks and tables, so it takes little time; another thread selects the events, folds
//! them, resolves names and writes the outputs while events continue to arrive. It waits until the records of all work
//! launched before its reason have arrived: at least 0.1 s, and at most 2 s if a kernel runs on.

pub mod slow;
mod triggers;
mod work;
mod xid;

use std::{borrow::Cow, collections::BTreeMap};

use model::{
    event::{DumpReason, Event, Note, ProcessId, Stack, StackId},
    memory::GpuMemory,
    window::{Cut, Limits, Reason, Window},
};
use symbols::Kept;

use self::{slow::Slow, triggers::Triggers};
use crate::sink::{Display, Printer, Sink};

/// How long a dump waits for the records of what happened before its reason: at least so long, and at most so long if work
/// that was launched before is still running.
const SHORTEST_WAIT_NS: u64 = 100_000_000;
const LONGEST_WAIT_NS: u64 = 2_000_000_000;

/// What to keep, and when to write it.
pub struct Options {
    /// How much of the past is kept.
    pub limits: Limits,
    /// The most dumps, not counting the one at the end.
    pub dumps: u32,
    /// Say who holds GPU memory. The events of [`crate::memory`] are expected.
    pub memory: bool,
    /// Write when a launch or an allocation fails, or a GPU reports an error.
    pub on_error: bool,
    /// Write when a process has not used its GPU for this time, in nanoseconds.
    pub on_idle: Option<u64>,
    /// Write when one of these functions is slow.
    pub on_slow: Vec<Slow>,
}

/// Writes dumps, on a thread of its own.
pub trait Dumper {
    /// Whether the last dump is still being written.
    fn is_busy(&mut self) -> bool;

    /// Writes a dump.
    fn write(&mut self, cut: Cut, kept: Kept);
}

/// Receives every event, and keeps the recent ones.
pub struct Flight<D> {
    window: Window,
    triggers: Triggers,
    dumper: D,
    most: u32,
    apart_ns: u64,
    memory: bool,
    /// The dump to write.
    pending: Option<Pending>,
    /// The last failed allocation for which no dump was written.
    refused: Option<(Reason, GpuMemory)>,
    written: u32,
    /// When the last reason for a dump, other than a signal, occurred.
    last: Option<u64>,
    /// Reasons for which no dump was written.
    skipped: BTreeMap<u8, u64>,
    display: Display,
}

/// A dump to write.
struct Pending {
    reason: Reason,
    /// Since when it waits.
    since: u64,
    /// Who held memory at that time.
    memory: GpuMemory,
}

impl<D: Dumper> Flight<D> {
    /// Creates a flight recorder that passes its dumps to `dumper`.
    pub fn new(options: Options, dumper: D) -> Self {
        let Options { limits, dumps, memory, on_error, on_idle, on_slow } = options;
        Self {
            window: Window::new(limits),
            triggers: Triggers::new(on_error, on_idle, on_slow),
            dumper,
            most: dumps,
            apart_ns: limits.ns,
            memory,
            pending: None,
            refused: None,
            written: 0,
            last: None,
            skipped: BTreeMap::new(),
            display: Display::default(),
        }
    }

    /// Prints events from now on.
    pub fn print(&mut self, printer: Box<dyn Printer>) {
        self.display = Display(Some(printer));
    }

    /// Returns a function of `program` that should be measured, but does not exist.
    pub fn missing_in(&self, program: &str) -> Option<&str> {
        self.triggers.missing_in(program)
    }

    /// Ends the recording: returns its last dump, and the dumper. A reason that has just occurred is that of the last dump.
    /// A program may have ended because of a failed allocation soon after others, for which no dump was written: the last
    /// one says who held memory then.
    pub fn finish(mut self, reason: Reason, status: Option<i32>) -> (Cut, D) {
        for text in self.notes() {
            self.window.push(&Event::Note(Note { text }));
        }
        self.window.advance(bpf::now().max(reason.time));
        let then = |earlier: &Reason| format!("{}; then {}", earlier.text, reason.text);
        let recent = |earlier: &Reason| reason.time.saturating_sub(earlier.time) < self.apart_ns;
        let (reason, memory) = match (self.pending.take(), self.refused.take()) {
            (Some(Pending { reason: earlier, memory, .. }), _) => (Reason { text: then(&earlier), ..earlier }, memory),
            (None, Some((earlier, memory))) if recent(&earlier) => (Reason { text: then(&earlier), ..reason }, memory),
            (None, _) => (reason.clone(), self.window.memory(reason.time)),
        };
        // Everything up to the end belongs to it.
        (self.window.cut(reason, status).with(memory), self.dumper)
    }

    /// Returns notes for the user: what is not watched, and how often there was a reason but no dump.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.triggers.unwatched();
        let count: u64 = self.skipped.values().sum();
        if count > 0 {
            let (seconds, most) = (self.apart_ns as f64 / 1e9, self.most);
            notes.push(format!(
                "no dump was written for {count} more reasons: dumps are at least {seconds} s apart, and at most {most} are \
                 written (--dumps)"
            ));
        }
        notes
    }

    /// Requests a dump, unless there were too many or one was written a short time ago.
    /// Returns whether it will be written.
    fn request(&mut self, reason: Reason, now: u64) -> bool {
        let signal = reason.kind == DumpReason::Signal;
        let soon = self.last.is_some_and(|last| now.saturating_sub(last) < self.apart_ns);
        if self.pending.is_some() || self.written >= self.most || (soon && !signal) {
            *self.skipped.entry(reason.kind as u8).or_default() += 1;
            return false;
        }
        if !signal {
            self.last = Some(now);
        }
        let memory = self.window.memory(reason.time);
        self.pending = Some(Pending { reason, since: now, memory });
        true
    }
}

impl<D: Dumper> Sink for Flight<D> {
    fn push(&mut self, event: &Event) {
        // Otherwise calls are only watched to find slow ones.
        let kept = self.memory || !matches!(event, Event::Function(_) | Event::Call(_));
        if let Some(reason) = self.triggers.event(event) {
            let refused = (reason.kind == DumpReason::Error && matches!(event, Event::Call(_))).then(|| reason.clone());
            let written = self.request(reason, bpf::now());
            if let Some(reason) = refused {
                self.refused = (!written).then(|| (reason.clone(), self.window.memory(reason.time)));
            }
        }
        if kept {
            self.display.print(event);
            self.window.push(event);
        }
    }

    fn stack(&self, id: StackId) -> Option<Cow<'_, Stack>> {
        self.window.stack(id).map(Cow::Borrowed)
    }

    fn round(&mut self, signalled: bool, kept: &Kept) {
        let now = bpf::now();
        self.window.advance(now);
        if signalled {
            let text = "signal SIGUSR1".into();
            self.request(Reason { time: now, kind: DumpReason::Signal, text }, now);
        }
        while let Some(reason) = self.triggers.time(now) {
            self.request(reason, now);
        }
        let due = self.pending.as_ref().is_some_and(|Pending { reason, since, .. }| {
            let waited = now.saturating_sub(*since);
            let complete = waited >= SHORTEST_WAIT_NS && !self.triggers.work.is_outstanding(reason.time);
            complete || waited >= LONGEST_WAIT_NS
        });
        if due
            && !self.dumper.is_busy()
            && let Some(Pending { reason, memory, .. }) = self.pending.take()
        {
            self.written += 1;
            let mut kept = kept.clone();
            kept.keep_bpf_programs();
            self.dumper.write(self.window.cut(reason, None).with(memory), kept);
        }
    }

    fn show(&mut self) {
        self.display.flush();
    }

    fn must_forget(&self) -> bool {
        self.window.must_forget()
    }

    fn forget_stacks(&mut self) -> Option<Vec<(ProcessId, StackId)>> {
        self.window.forget()
    }

    fn wants_losses(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Dumper for Nowhere {
        fn is_busy(&mut self) -> bool {
            false
        }

        fn write(&mut self, _: Cut, _: Kept) {}
    }

    /// Check that dumps for other reasons than signals are a window apart, and that a signal neither waits nor lets others
    /// wait: the slow step just after a signal is the one that matters.
    #[test]
    fn signals_do_not_suppress_other_reasons() {
        const S: u64 = 1_000_000_000;
        let limits = Limits { ns: 3 * S, bytes: 1 << 20 };
        let options = Options { limits, dumps: 10, memory: false, on_error: false, on_idle: None, on_slow: Vec::new() };
        let mut flight = Flight::new(options, Nowhere);
        let mut request = |kind, now| {
            flight.request(Reason { time: now, kind, text: String::new() }, now);
            flight.pending.take().is_some()
        };
        assert!(request(DumpReason::Signal, S));
        assert!(request(DumpReason::Slow, S + 1));
        assert!(!request(DumpReason::Idle, 3 * S));
        assert!(request(DumpReason::Signal, 3 * S));
        assert!(request(DumpReason::Idle, 5 * S));
    }
}
