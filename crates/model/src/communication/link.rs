//! Assigns communication kernels to the calls that they execute, thread by thread.

use rustc_hash::FxHashMap;

use crate::event::{CommunicatorCall, SessionId, StackId};

/// The most calls and kernels that are kept: while recording, when programs cause them (50 MB), and of a recording (800 MB).
const MOST_ONLINE: usize = 1 << 20;
const MOST: usize = 16 << 20;

/// A communication kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The CUDA process.
    pub session: SessionId,
    /// The thread that launched it.
    pub tid: u32,
    /// When.
    pub launched: u64,
    /// From where.
    pub stack: StackId,
    /// Its start.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

/// Collects calls and kernels, in any order.
#[derive(Debug)]
pub struct Parts {
    threads: FxHashMap<(SessionId, u32), Thread>,
    most: usize,
    kept: usize,
    dropped: u64,
}

impl Default for Parts {
    fn default() -> Self {
        Self { threads: FxHashMap::default(), most: MOST_ONLINE, kept: 0, dropped: 0 }
    }
}

#[derive(Debug, Default)]
struct Thread {
    calls: Vec<CommunicatorCall>,
    kernels: Vec<Kernel>,
}

/// What a thread called up to a kernel, and the kernels up to its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The CUDA process.
    pub session: SessionId,
    /// Never empty.
    pub calls: &'a [CommunicatorCall],
    /// May be empty: an operation of no bytes or of a single member needs no kernel.
    pub kernels: &'a [Kernel],
}

impl Parts {
    /// Keeps as much as a recording may contain.
    pub fn keep_all(&mut self) {
        self.most = MOST;
    }

    /// Adds a call.
    pub fn call(&mut self, call: &CommunicatorCall) {
        if self.has_room() {
            self.threads.entry((call.session, call.tid)).or_default().calls.push(*call);
        }
    }

    /// Adds a communication kernel whose launch is known.
    pub fn kernel(&mut self, kernel: Kernel) {
        if self.has_room() {
            self.threads.entry((kernel.session, kernel.tid)).or_default().kernels.push(kernel);
        }
    }

    fn has_room(&mut self) -> bool {
        let room = self.kept < self.most;
        self.kept += usize::from(room);
        self.dropped += u64::from(!room);
        room
    }

    /// Returns how many calls and kernels did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Calls back with every part. `size` returns the number of members of a communicator, 0 if unknown.
    pub fn each(&mut self, size: impl Fn(u64) -> u32, mut on: impl FnMut(Part<'_>)) {
        let mut threads: Vec<_> = self.threads.iter_mut().collect();
        threads.sort_unstable_by_key(|(thread, _)| **thread);
        for ((session, _), Thread { calls, kernels }) in threads {
            // Nothing is launched for these.
            calls.retain(|call| call.bytes > 0 && size(call.communicator) != 1);
            calls.sort_by_key(|call| call.time);
            kernels.sort_by_key(|kernel| kernel.launched);
            let (mut calls, mut kernels) = (&calls[..], &kernels[..]);
            // Kernels before the first call have none.
            let before = calls.first().map_or(kernels.len(), |first| up_to(kernels, first.time));
            kernels = &kernels[before..];
            while !calls.is_empty() {
                let first = kernels.first().map_or(u64::MAX, |kernel| kernel.launched);
                let (own, later) = calls.split_at(calls.partition_point(|call| call.time <= first));
                let next = later.first().map_or(u64::MAX, |call| call.time);
                let (executing, after) = kernels.split_at(up_to(kernels, next));
                on(Part { session: *session, calls: own, kernels: executing });
                (calls, kernels) = (later, after);
            }
        }
    }
}

/// How many kernels were launched before this time.
fn up_to(kernels: &[Kernel], time: u64) -> usize {
    kernels.partition_point(|kernel| kernel.launched < time)
}
