//! One process that reports its calls: reads its rings, and puts probed calls between the reported ones.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use bpf::calls::CallRecord;
use model::event::{Event, FunctionId, Loss, LossCause, ProcessId, SessionId};
use wire::calls::{IS_FIRST, LAUNCHES, MOST_DEPTH};

use super::{
    thread::{Entry, Held, Open, Owner, Thread, Timed, emit},
    traced::Traced,
};
use crate::{
    calls::rings::{RingEvent, Rings},
    process::thread_ids::ThreadIds,
};

/// One process that reports its calls.
pub(super) struct Reporting {
    pub(super) process: ProcessId,
    pub(super) session: SessionId,
    /// It knows itself by another pid than ours.
    pub(super) renamed: bool,
    /// Calls of threads that are not known.
    pub(super) threadless: u64,
    pub(super) rings: Rings,
    pub(super) functions: HashMap<u16, Traced>,
    pub(super) ids: HashSet<FunctionId>,
    pub(super) threads: Vec<Thread>,
    /// The process has ended, or the trace.
    pub(super) ended: bool,
}

impl Reporting {
    /// Reads up to `most` events, and puts probed calls between them. Returns how many were read.
    pub(super) fn read(
        &mut self,
        (most, noted): (usize, u64),
        ids: &ThreadIds,
        held: &mut Vec<Held>,
        probed: &mut dyn FnMut(CallRecord) -> Option<Event>,
        out: &mut Vec<Timed>,
    ) -> usize {
        let Self { process, session, renamed, threadless, rings, functions, threads, .. } = self;
        let owner = Owner { process: *process, session: *session };
        let mut impossible = None;
        let taken = rings.drain(most, &mut |ring, event| {
            let thread = &mut threads[ring];
            match event {
                RingEvent::Thread { tid } => {
                    thread.leave(0, u64::MAX, out);
                    let tid = ids.outer(*process, *renamed, tid, u64::MAX).unwrap_or(0);
                    *thread = Thread { tid, ..Thread::default() };
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
                    *threadless += u64::from(thread.tid == 0);
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
        // If this was all, everything that a thread reported before `noted` has been read. Later probed calls wait.
        if taken < most {
            // Calls that the runtime made while it initialised CUDA wait for the program's call that they are in.
            let has_begun = |tid| threads.iter().any(|thread: &Thread| thread.tid == tid && thread.has_begun);
            let placed = |held: &mut Held| held.call.start < noted && (!held.by_runtime || has_begun(held.call.tid));
            for held in held.extract_if(.., placed) {
                let thread = threads.iter().find(|thread| thread.tid == held.call.tid);
                emit(thread.map_or(&[], |thread| &thread.open), held, None, probed, out);
            }
        }
        taken
    }

    /// Reports calls that have not returned, and what was lost.
    pub(super) fn finish(mut self, out: &mut Vec<Timed>) {
        for thread in &mut self.threads {
            thread.leave(0, u64::MAX, out);
        }
        let (lost, deep) = self.rings.lost();
        for (cause, count) in [
            (LossCause::RingCalls, lost),
            (LossCause::DeepCalls, deep),
            (LossCause::UnknownThreads, self.threadless),
            (LossCause::MalformedPackets, self.rings.broken() as u64),
        ] {
            if count > 0 {
                out.push((u64::MAX, Event::Loss(Loss { cause, count })));
            }
        }
    }
}
