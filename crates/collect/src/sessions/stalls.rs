//! Samples of GPU instructions that a session sends, and the cubins that contain the instructions.
//!
//! Samples arrive several times a second for the same instructions. They are added up and passed on now and then, so that
//! the recording stays small, and a crash loses only the last of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use model::event::{Event, Instruction, SessionId, StallReason, StallSamples, StallTotals};
use symbols::cubin::Barriers;
use wire::Message;

use super::quota::{Kind, MOST_TEXT, Used};

/// How often samples are passed on, and after how many sums at the latest.
const INTERVAL: Duration = Duration::from_secs(10);
const MOST_SUMS: usize = 1 << 16;
/// The most cubins of a session that arrive at the same time.
const MOST_PARTIAL: usize = 64;
/// The most stall reasons of a session.
const MOST_REASONS: u32 = 256;
/// The most bytes of names that are kept to find barriers.
const MOST_NAMES: usize = 8 << 20;

/// What a session has sent and was not passed on.
pub struct Stalls {
    /// By instruction, reason, and correlation id of the launch.
    sums: HashMap<(Instruction, u32, u32), u64>,
    since: Instant,
    /// The index of the reason `barrier`.
    barrier: Option<u32>,
    /// The barriers of each cubin.
    barriers: HashMap<u32, Barriers>,
    /// The names of functions by id, and their bytes.
    names: HashMap<u32, Box<[u8]>>,
    name_bytes: usize,
    /// Cubins of which a part has arrived.
    partial: HashMap<u32, Vec<u8>>,
    /// Cubins that were refused or are incomplete.
    refused: u32,
}

impl Stalls {
    pub fn new() -> Self {
        Self {
            sums: HashMap::new(),
            since: Instant::now(),
            barrier: None,
            barriers: HashMap::new(),
            names: HashMap::new(),
            name_bytes: 0,
            partial: HashMap::new(),
            refused: 0,
        }
    }

    /// Handles a message about samples; `cubin` receives a cubin that is complete. Returns whether it was one.
    pub fn message(
        &mut self,
        session: SessionId,
        message: &Message<'_>,
        (used, all): (&mut Used, &mut Used),
        cubin: &mut dyn FnMut(u32, Vec<u8>),
        push: &mut dyn FnMut(Event),
    ) -> bool {
        match *message {
            Message::StallReason(index, name) => {
                let name = String::from_utf8_lossy(&name[..name.len().min(MOST_TEXT)]).into_owned();
                if index < MOST_REASONS {
                    if name == "barrier" {
                        self.barrier = Some(index);
                    }
                    push(Event::StallReason(StallReason { session, index, name }));
                }
            }
            Message::StallSamples(s) => {
                let offset = self.waiting_at(&s);
                let at = Instruction { session, cubin: s.cubin, function: s.function, offset };
                let sum = self.sums.entry((at, s.reason, s.correlation)).or_default();
                *sum = sum.saturating_add(s.count.into());
                if self.sums.len() >= MOST_SUMS {
                    self.pass_on(push);
                }
            }
            // An incomplete cubin is detected at its end.
            Message::CubinPart(number, bytes) => {
                let had = self.partial.get(&number).map(Vec::len);
                let fits = had.map_or(self.partial.len() < MOST_PARTIAL, |had| had + bytes.len() <= wire::MOST_CUBIN);
                if fits && used.take(all, &[(Kind::CubinBytes, bytes.len() as u64)]) {
                    self.partial.entry(number).or_default().extend_from_slice(bytes);
                }
            }
            Message::CubinEnd(end) => match self.partial.remove(&end.number) {
                Some(bytes) if bytes.len() as u64 == u64::from(end.size) => {
                    let barriers = Barriers::of(&bytes);
                    if !barriers.is_empty() {
                        self.barriers.insert(end.number, barriers);
                    }
                    cubin(end.number, bytes);
                }
                _ => self.refused += 1,
            },
            Message::StallTotals(t) => push(Event::StallTotals(StallTotals {
                session,
                samples: t.samples,
                other_kernels: t.other_kernels,
                dropped: t.dropped,
                unsent: t.unsent,
                buffer_full: t.full,
                contexts: t.contexts,
                contexts_refused: t.refused,
                buffer_bytes: t.buffer,
                memory_bytes: t.memory,
                period: t.period,
                cubins_refused: t.cubins_refused.saturating_add(self.refused),
                serialised: t.serialised != 0,
            })),
            // Names are of others, too.
            Message::Name(id, name) if self.barrier.is_some() && self.name_bytes + name.len() <= MOST_NAMES => {
                self.name_bytes += name.len();
                self.names.insert(id, name.into());
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Returns the instruction at which a warp waits: at a barrier, the hardware may report one that follows it.
    fn waiting_at(&self, samples: &wire::StallSamples) -> u64 {
        let barrier = || {
            let name = self.names.get(&samples.function)?;
            self.barriers.get(&samples.cubin)?.of_wait(name, samples.offset)
        };
        let at_barrier = self.barrier == Some(samples.reason);
        at_barrier.then(barrier).flatten().unwrap_or(samples.offset)
    }

    /// Passes the samples on, if it is time to.
    pub fn tick(&mut self, push: &mut dyn FnMut(Event)) {
        if !self.sums.is_empty() && self.since.elapsed() >= INTERVAL {
            self.pass_on(push);
        }
    }

    /// Passes all samples on.
    pub fn pass_on(&mut self, push: &mut dyn FnMut(Event)) {
        let mut sums: Vec<_> = self.sums.drain().collect();
        sums.sort_unstable();
        for ((at, reason, correlation), count) in sums {
            push(Event::StallSamples(StallSamples { at, reason, count, correlation }));
        }
        self.since = Instant::now();
    }
}

/// Explains why kernels could not be sampled. The text is the number of an error, then the call and the error.
pub fn sentence(pid: u32, words: &str) -> String {
    let (code, words) = words.split_once(' ').unwrap_or(("", words));
    if code == wire::NOT_SERIALISED {
        return format!(
            "process {pid} was sampled continuously: only CUPTI 12.4 or later identifies launches ({words})"
        );
    }
    let remedy = match code {
        "35" | "40" => {
            "reading the GPU's counters needs permission: run the command as root (--as-root under sudo), or load the \
             nvidia module with NVreg_RestrictProfilingToAdminUsers=0"
        }
        "39" => "sampling ended when another client of CUPTI began, such as torch.profiler",
        "26" => {
            "another tool uses the GPU's counters: stop it (ncu, Nsight Systems, or DCGM with `dcgmi profile --pause`) \
             and record again"
        }
        "27" | "11" | "34" | "41" | "42" | "43" => {
            "this GPU, driver or CUPTI does not support PC sampling, which needs a GPU of compute capability 7.0 or later"
        }
        _ => "the rest of the recording is complete",
    };
    format!("no stall reasons from process {pid}: {remedy} ({words})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stalls: &mut Stalls, messages: &[Message<'_>]) -> (Vec<Event>, Vec<(u32, Vec<u8>)>) {
        let (mut events, mut cubins) = (Vec::new(), Vec::new());
        let (mut used, mut total) = (Used::default(), Used::default());
        for message in messages {
            let mut cubin = |number, bytes| cubins.push((number, bytes));
            let quota = (&mut used, &mut total);
            assert!(stalls.message(SessionId(3), message, quota, &mut cubin, &mut |event| events.push(event)));
        }
        (events, cubins)
    }

    /// Check that samples of one launch are added up until they are passed on.
    #[test]
    fn samples_are_added_up() {
        let mut stalls = Stalls::new();
        let sample = |offset, count, correlation| {
            Message::StallSamples(wire::StallSamples { cubin: 1, function: 2, offset, reason: 4, count, correlation })
        };
        let (events, _) = all(&mut stalls, &[sample(16, 5, 0), sample(32, 1, 0), sample(16, 6, 0), sample(16, 7, 9)]);
        assert!(events.is_empty());
        let mut passed = Vec::new();
        stalls.pass_on(&mut |event| passed.push(event));
        let expected = |offset, count, correlation| {
            let at = Instruction { session: SessionId(3), cubin: 1, function: 2, offset };
            Event::StallSamples(StallSamples { at, reason: 4, count, correlation })
        };
        assert_eq!(passed, [expected(16, 11, 0), expected(16, 7, 9), expected(32, 1, 0)]);
    }

    /// Check that samples at a barrier are those of the barrier, wherever the hardware reports them, and that other samples
    /// stay: `waits` has `BAR.SYNC` at 0xd0. Without the cubin, all stay.
    #[test]
    fn samples_at_barriers_are_at_the_barrier() {
        let cubin = include_bytes!("../../../symbols/tests/cubins/nvcc.cubin");
        let mut stalls = Stalls::new();
        let sample = |cubin, offset, reason| {
            Message::StallSamples(wire::StallSamples { cubin, function: 5, offset, reason, count: 1, correlation: 0 })
        };
        let mut messages = vec![Message::StallReason(2, b"barrier")];
        messages.extend(cubin.chunks(wire::MAX_TEXT).map(|part| Message::CubinPart(1, part)));
        messages.push(Message::CubinEnd(wire::CubinEnd { number: 1, size: cubin.len() as u32 }));
        all(&mut stalls, &messages);
        let (mut used, mut total) = (Used::default(), Used::default());
        let name = Message::Name(5, b"_Z5waitsPf");
        assert!(!stalls.message(SessionId(3), &name, (&mut used, &mut total), &mut |_, _| {}, &mut |_| {}));
        let samples = [(1, 0xd0, 2), (1, 0xe0, 2), (1, 0xf0, 2), (1, 0xe0, 3), (7, 0xe0, 2)];
        all(&mut stalls, &samples.map(|(cubin, offset, reason)| sample(cubin, offset, reason)));
        let mut found: Vec<_> =
            stalls.sums.iter().map(|((at, reason, _), count)| (at.cubin, at.offset, *reason, *count)).collect();
        found.sort_unstable();
        assert_eq!(found, [(1, 0xd0, 2, 3), (1, 0xe0, 3, 1), (7, 0xe0, 2, 1)]);
    }

    /// Check that a cubin whose parts have all arrived is kept, and that one with a missing part is counted.
    #[test]
    fn incomplete_cubins_are_counted() {
        let mut stalls = Stalls::new();
        let end = |number, size| Message::CubinEnd(wire::CubinEnd { number, size });
        let messages = [
            Message::CubinPart(1, b"abc"),
            Message::CubinPart(2, b"x"),
            Message::CubinPart(1, b"de"),
            end(1, 5),
            end(2, 2),
            end(7, 0),
            Message::StallTotals(wire::StallTotals { cubins_refused: 1, ..Default::default() }),
        ];
        let (events, cubins) = all(&mut stalls, &messages);
        assert_eq!(cubins, [(1, b"abcde".to_vec())]);
        assert!(matches!(events[..], [Event::StallTotals(StallTotals { cubins_refused: 3, .. })]), "{events:?}");
    }

    /// Check that each kind of refusal has its remedy.
    #[test]
    fn refusals_have_a_remedy() {
        let text = sentence(7, "35 cuptiPCSamplingEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)");
        assert!(text.starts_with("no stall reasons from process 7: ") && text.contains("NVreg_RestrictProfiling"));
        assert!(sentence(7, "26 x").contains("another tool"));
        assert!(sentence(7, "continuous x").starts_with("process 7 was sampled continuously"));
        assert!(sentence(7, "27 x").contains("does not support"));
        assert!(sentence(7, "9 x: y (9)").ends_with("(x: y (9))"));
    }
}
