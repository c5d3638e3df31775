//! What comes out of the ring buffer: the Rust side of `bpf/shared.h`.

use crate::{
    calls::{CallRecord, PointRecord, SwitchRecord, SyscallRecord},
    hits::HitRecord,
    python::{PythonCode, PythonStack},
};

const COMM_LENGTH: usize = 16;
const MAX_KERNEL_FRAMES: usize = 64;
const RAW_PAGE: usize = 4096;
const MEMO_WORDS: usize = 256;
const LAUNCH_KNOWN: u16 = 0x8000;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The frames of a stack not seen before.
    Stack(StackRecord),
    /// A stack that could not be walked in the kernel yet.
    RawStack(Box<RawStack>),
    /// The Python frames of a stack not seen before.
    PythonStack(PythonStack),
    /// A Python code object not seen before.
    PythonCode(Box<PythonCode>),
    /// The marker was called.
    Launch {
        /// The process image, 0 if it is not followed.
        image: u32,
        /// Third argument of the marker.
        session: u64,
        /// The stack's id, 0 if it could not be taken.
        stack: u64,
        /// The id of its Python part, 0 if there is none.
        python: u64,
        /// When.
        time: u64,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The CPU.
        cpu: u32,
        /// First argument of the marker.
        correlation: u32,
        /// Second argument of the marker.
        work: u16,
        /// The thread recognised its stack, which was not walked.
        known: bool,
    },
    /// What decided the walk of a launch's stack.
    Memo(Box<Memo>),
    /// A watched function was called.
    Call(Box<CallRecord>),
    /// A system call on a device file was made.
    Syscall(Box<SyscallRecord>),
    /// A followed thread came back to a CPU.
    Switch(SwitchRecord),
    /// A tracepoint was hit.
    Point(Box<PointRecord>),
    /// A key of hits is new, or a hit found no room in the kernel's map.
    Hit(HitRecord),
    /// A followed thread was running.
    Sample {
        /// The process image.
        image: u32,
        /// The stack's id, 0 if it could not be taken.
        stack: u64,
        /// The id of its Python part, 0 if there is none.
        python: u64,
        /// When.
        time: u64,
        /// The thread.
        tid: u32,
        /// The CPU.
        cpu: u32,
    },
    /// A new process image is followed.
    Process {
        /// Its id.
        image: u32,
        /// The image it came from, 0 if that is not followed.
        parent: u32,
        /// How it came to be.
        origin: Origin,
        /// When.
        time: u64,
        /// The process.
        pid: u32,
        /// Its short name.
        comm: String,
    },
    /// A thread was born or renamed.
    Thread {
        /// Its process image.
        image: u32,
        /// The thread.
        tid: u32,
        /// Its name.
        comm: String,
    },
    /// A process image is gone.
    Exit {
        /// Its id.
        image: u32,
        /// When.
        time: u64,
        /// The process.
        pid: u32,
    },
}

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRecord {
    /// Its id, a hash of image and frames.
    pub id: u64,
    /// The process image.
    pub image: u32,
    /// When it was first seen.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// Kernel addresses, innermost first: the instruction pointer, then addresses in calling instructions.
    pub kernel: Vec<u64>,
    /// User addresses, likewise.
    pub user: Vec<u64>,
    /// Why the user part ends where it does: `enum walk_result` of the unwinder.
    pub result: u8,
}

/// Registers and memory of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawStack {
    /// Its id, which stands for this stack alone.
    pub id: u64,
    /// The process image.
    pub image: u32,
    /// When it was taken.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// The general registers, by DWARF's numbers.
    pub general: [u64; 16],
    /// Kernel addresses, as in [`StackRecord`].
    pub kernel: Vec<u64>,
    /// Whole pages, from the one that rsp points into.
    pub bytes: Vec<u8>,
}

/// What decided the walk of a launch's stack: a thread that comes with the same registers and words has the same stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memo {
    /// The process image.
    pub image: u32,
    /// Third argument of the marker.
    pub session: u64,
    /// The stack's id.
    pub stack: u64,
    /// The stack pointer at the marker.
    pub sp: u64,
    /// The frame pointer there.
    pub bp: u64,
    /// How many words from `sp` on hold all that were read.
    pub span: u32,
    /// The words that were read: how many words above `sp`, and what was there.
    pub words: Vec<(u16, u64)>,
}

/// How a process image came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By fork: its memory is a copy of its parent's.
    Fork,
    /// By exec: its memory is its own.
    Exec,
    /// It was there already.
    Found,
}

/// What did not arrive since the recorder started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Launches that found the ring buffer full.
    pub launches: u64,
    /// Stacks that found it full.
    pub stacks: u64,
    /// Samples that found it full.
    pub samples: u64,
    /// Process and thread events that found it full, and processes too many to follow.
    pub processes: u64,
    /// Stacks of which not one frame could be taken.
    pub walks: u64,
    /// Calls, system calls, switches and tracepoints that found the ring buffer full.
    pub calls: u64,
    /// Calls nested too deeply to be followed.
    pub deep_calls: u64,
    /// Calls that found no room in the sums.
    pub sums: u64,
    /// Hits of events that found neither room in their map nor in the ring buffer.
    pub hits: u64,
    /// Records of a type or length that the programs do not write.
    pub unparsed: u64,
    /// Reads of maps that failed: sums are missing from what was read.
    pub unread: u64,
}

/// Reads fields off the front of a record; a short record reads as `None`.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Text in a field of `length` bytes, to its first zero.
    pub(crate) fn text(&mut self, length: usize) -> Option<String> {
        let bytes = self.bytes(length)?;
        let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn comm(&mut self) -> Option<String> {
        self.text(COMM_LENGTH)
    }

    pub(crate) fn addresses(&mut self, count: u16) -> Option<Vec<u64>> {
        let (words, _) = self.bytes(8 * usize::from(count))?.as_chunks();
        Some(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

impl Record {
    /// When it was sent, as far as its place among mappings matters; 0 where it does not.
    pub fn time(&self) -> u64 {
        match self {
            Self::Stack(stack) => stack.time,
            Self::RawStack(raw) => raw.time,
            Self::Launch { time, .. } | Self::Sample { time, .. } => *time,
            Self::Hit(hit) => hit.time,
            _ => 0,
        }
    }

    /// Reads one record as the programs wrote it; `None` if it is of a type or length that they do not write.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut f = Fields(bytes);
        let kind = f.u32()?;
        let image = f.u32()?;
        Some(match kind {
            1 => {
                let (id, time, pid) = (f.u64()?, f.u64()?, f.u32()?);
                let user = f.u16()?;
                let [kernel, result] = *f.bytes(2)? else { return None };
                let kernel = f.addresses(kernel.into())?;
                let user = f.addresses(user)?;
                Self::Stack(StackRecord { id, image, time, pid, kernel, user, result })
            }
            2 => {
                let (session, stack, python, time) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
                let (pid, tid, correlation) = (f.u32()?, f.u32()?, f.u32()?);
                let (cpu, work) = (f.u16()?, f.u16()?);
                let (cpu, known) = (u32::from(cpu & !LAUNCH_KNOWN), cpu & LAUNCH_KNOWN != 0);
                Self::Launch { image, session, stack, python, time, pid, tid, cpu, correlation, work, known }
            }
            3 => {
                let (stack, python, time, _pid) = (f.u64()?, f.u64()?, f.u64()?, f.u32()?);
                Self::Sample { image, stack, python, time, tid: f.u32()?, cpu: f.u32()? }
            }
            4 => {
                let parent = f.u32()?;
                let origin = match f.u32()? {
                    2 => Origin::Exec,
                    3 => Origin::Found,
                    _ => Origin::Fork,
                };
                let (time, pid, _pad) = (f.u64()?, f.u32()?, f.u32()?);
                Self::Process { image, parent, origin, time, pid, comm: f.comm()? }
            }
            5 => {
                let (tid, _pad) = (f.u32()?, f.u32()?);
                Self::Thread { image, tid, comm: f.comm()? }
            }
            6 => Self::Exit { image, time: f.u64()?, pid: f.u32()? },
            7 => {
                let (id, time, pid, pages) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
                let (ip, general) = (f.u64()?, f.addresses(16)?.try_into().ok()?);
                let kernel_frames = u16::try_from(f.u64()?).ok()?;
                let mut room = Fields(f.bytes(8 * MAX_KERNEL_FRAMES)?);
                let kernel = room.addresses(kernel_frames)?;
                let bytes = f.bytes(RAW_PAGE.checked_mul(pages as usize)?)?.to_vec();
                Self::RawStack(Box::new(RawStack { id, image, time, pid, ip, general, kernel, bytes }))
            }
            40 => {
                let (session, stack, sp, bp) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
                let (count, span) = (f.u32()?, f.u32()?);
                let values = f.addresses(MEMO_WORDS as u16)?;
                let words = values.into_iter().map(|value| Some((f.u16()?, value))).collect::<Option<Vec<_>>>()?;
                let words = words.get(..count as usize)?.to_vec();
                Self::Memo(Box::new(Memo { image, session, stack, sp, bp, span, words }))
            }
            8 => Self::PythonStack(PythonStack::parse(image, &mut f)?),
            9 => Self::PythonCode(Box::new(PythonCode::parse(image, &mut f)?)),
            10 => Self::Call(Box::new(CallRecord::parse(image, &mut f)?)),
            11 => Self::Syscall(Box::new(SyscallRecord::parse(image, &mut f)?)),
            12 => Self::Switch(SwitchRecord::parse(image, &mut f)?),
            13 => Self::Point(Box::new(PointRecord::parse(image, &mut f)?)),
            32 => Self::Hit(HitRecord::parse(&mut f)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record cut short or of an unknown type is `None`, never a panic.
    #[test]
    fn broken_records_are_refused() {
        let mut bytes = vec![0; 56];
        bytes[0] = 2;
        assert!(Record::parse(&bytes).is_some());
        assert_eq!(Record::parse(&bytes[..55]), None);
        bytes[0] = 99;
        assert_eq!(Record::parse(&bytes), None);
        assert_eq!(Record::parse(&[]), None);
    }
}
