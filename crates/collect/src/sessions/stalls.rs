//! Samples of GPU instructions that a session sends, and the cubins that contain the instructions.
//!
//! Samples arrive several times a second for the same instructions. They are added up and passed on now and then, so that
//! the recording stays small, and a crash loses only the last of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use model::event::{Event, Instruction, SessionId, StallReason, StallSamples, StallTotals};
use wire::Message;

use super::quota::{Kind, MOST_TEXT, Used};

/// How often samples are passed on, and after how many sums at the latest.
const INTERVAL: Duration = Duration::from_secs(10);
const MOST_SUMS: usize = 1 << 16;
/// The most cubins of a session that arrive at the same time.
const MOST_PARTIAL: usize = 64;
/// The most stall reasons of a session.
const MOST_REASONS: u32 = 256;

/// What a session has sent and was not passed on.
pub struct Stalls {
    sums: HashMap<(Instruction, u32), u64>,
    since: Instant,
    /// The index of the reason `barrier`.
    barrier: Option<u32>,
    /// Cubins of which a part has arrived.
    partial: HashMap<u32, Vec<u8>>,
    /// Cubins that were refused or are incomplete.
    refused: u32,
}

impl Stalls {
    pub fn new() -> Self {
        Self { sums: HashMap::new(), since: Instant::now(), barrier: None, partial: HashMap::new(), refused: 0 }
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
                let offset = waiting_at(s.offset, self.barrier == Some(s.reason));
                let at = Instruction { session, cubin: s.cubin, function: s.function, offset };
                let sum = self.sums.entry((at, s.reason)).or_default();
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
                Some(bytes) if bytes.len() as u64 == u64::from(end.size) => cubin(end.number, bytes),
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
            })),
            _ => return false,
        }
        true
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
        for ((at, reason), count) in sums {
            push(Event::StallSamples(StallSamples { at, reason, count }));
        }
        self.since = Instant::now();
    }
}

/// The size of a GPU instruction, on all GPUs that can be sampled.
const INSTRUCTION: u64 = 16;

/// Returns the instruction at which a warp waits. At a barrier, the hardware reports the one that follows it.
fn waiting_at(offset: u64, at_barrier: bool) -> u64 {
    if at_barrier { offset.saturating_sub(INSTRUCTION) } else { offset }
}

/// Explains why kernels could not be sampled. The text is the number of an error, then the call and the error.
pub fn sentence(pid: u32, words: &str) -> String {
    let (code, words) = words.split_once(' ').unwrap_or(("", words));
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

    /// Check that samples are added up until they are passed on.
    #[test]
    fn samples_are_added_up() {
        let mut stalls = Stalls::new();
        let sample = |offset, count| {
            Message::StallSamples(wire::StallSamples { cubin: 1, function: 2, offset, reason: 4, count })
        };
        let (events, _) = all(&mut stalls, &[sample(16, 5), sample(32, 1), sample(16, 6)]);
        assert!(events.is_empty());
        let mut passed = Vec::new();
        stalls.pass_on(&mut |event| passed.push(event));
        let expected = |offset, count| {
            let at = Instruction { session: SessionId(3), cubin: 1, function: 2, offset };
            Event::StallSamples(StallSamples { at, reason: 4, count })
        };
        assert_eq!(passed, [expected(16, 11), expected(32, 1)]);
    }

    /// Check that samples at a barrier are those of the barrier, as on an H200: 0x6f0 is `BAR.SYNC`, and 0x700 is reported.
    #[test]
    fn samples_at_barriers_are_at_the_barrier() {
        assert_eq!([waiting_at(0x700, true), waiting_at(0x700, false), waiting_at(0, true)], [0x6f0, 0x700, 0]);
        let mut stalls = Stalls::new();
        let sample = |reason| {
            Message::StallSamples(wire::StallSamples { cubin: 1, function: 2, offset: 0x700, reason, count: 1 })
        };
        all(&mut stalls, &[Message::StallReason(2, b"barrier"), sample(2), sample(3)]);
        let mut offsets: Vec<u64> = stalls.sums.keys().map(|(at, _)| at.offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0x6f0, 0x700]);
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
        assert!(sentence(7, "27 x").contains("does not support"));
        assert!(sentence(7, "9 x: y (9)").ends_with("(x: y (9))"));
    }
}
