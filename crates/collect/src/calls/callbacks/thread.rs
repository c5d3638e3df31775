//! The calls of a thread: nesting, roles and launches, by the same rules as in `bpf/calls.h`.

use bpf::calls::CallRecord;
use model::event::{Call, Event, ProcessId, SessionId};
use wire::calls::MOST_DEPTH;

use super::traced::Traced;

/// A thread, and its calls that have not returned.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) open: Vec<Open>,
    /// It has reported its first runtime call.
    pub(super) has_begun: bool,
}

/// A call that has not returned.
pub(super) struct Open {
    pub(super) function: u16,
    pub(super) call: Call,
    /// Roles of the calls around it and its own, a bit each.
    pub(super) roles: u64,
    /// It or a call around it returns a status.
    pub(super) status: bool,
}

/// An event and its time.
pub(super) type Timed = (u64, Event);

/// A probed call.
pub(super) struct Held {
    pub(super) call: CallRecord,
    /// It was called by the CUDA runtime.
    pub(super) by_runtime: bool,
    /// Its role, as in [`Gather`].
    pub(super) role: u8,
}

/// Whose calls they are.
pub(super) struct Owner {
    pub(super) process: ProcessId,
    pub(super) session: SessionId,
}

/// What is known of a call when it begins.
pub(super) struct Entry<'a> {
    pub(super) start: u64,
    pub(super) cpu: u32,
    pub(super) launch: Option<u32>,
    pub(super) parameters: &'a [u8],
}

impl Thread {
    /// A call begins within the open ones.
    pub(super) fn enter(&mut self, owner: &Owner, number: u16, traced: &Traced, entry: &Entry<'_>) {
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
    pub(super) fn leave(&mut self, depth: usize, time: u64, out: &mut Vec<Timed>) {
        while self.open.len() > depth {
            out.extend(self.open.pop().map(|open| (time, Event::Call(open.call))));
        }
    }

    /// Puts the probed calls of this thread that began before `time` in their place, in the innermost open call. If the
    /// next call is the `first` one, with this role, the runtime made them in it: they get a call around them that began
    /// before the first of them. Returns that time.
    pub(super) fn place(
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
pub(super) fn emit(
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
