//! The flight recorder: why and when the recent past was written.

use serde::Serialize;

/// The recording is a dump of the recent past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// When its reason occurred.
    pub time: u64,
    /// The start of the window: what ended before is not in the recording.
    pub from: u64,
    /// Why it was written.
    pub reason: DumpReason,
    /// The reason in words, such as `train_step took 312 ms, longer than 200 ms`.
    pub text: String,
    /// The length of the window as requested, in nanoseconds.
    pub window_ns: u64,
    /// Events that were discarded before the window, since the recorder started.
    pub discarded: u64,
    /// The window is shorter than requested, because the buffer was full.
    pub full: bool,
}

/// Why a dump was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum DumpReason {
    /// The command exited, or the recording was stopped.
    #[default]
    End = 0,
    /// A signal requested it.
    Signal = 1,
    /// A CUDA call failed, or the driver reported an error of a GPU (Xid).
    Error = 2,
    /// A process did not use its GPU.
    Idle = 3,
    /// A function took longer than a limit.
    Slow = 4,
}

impl DumpReason {
    /// Returns the reason with this number.
    pub fn from_number(number: u8) -> Self {
        [Self::End, Self::Signal, Self::Error, Self::Idle, Self::Slow]
            .get(usize::from(number))
            .copied()
            .unwrap_or_default()
    }
}
