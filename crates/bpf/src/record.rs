//! The records of the ring buffers.

mod stacks;

use crate::{
    Cause,
    calls::{CallRecord, PointRecord, SwitchRecord, SyscallRecord},
    contract::{
        self,
        types::{
            exit_record, handover_record, launch_cpu, launch_record, process_origin, process_record, record_type,
            sample_record, start_record, thread_record,
        },
    },
    hits::{HitRecord, WaitRecord},
    python::{PythonCode, PythonStack},
    tensors::TensorRecord,
};

pub use stacks::{Memo, RawStack, StackRecord};

/// The parts of a launch's stack that the thread recognised itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The native stack.
    pub native: bool,
    /// The Python stack.
    pub python: bool,
}

/// A call that hands work to other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Its id, never used twice.
    pub id: u32,
    /// The process image.
    pub image: u32,
    /// The stack's id, 0 if it could not be taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// When it began.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// The call that handed the work over in which this call was made.
    pub cause: Cause,
}

impl Handover {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let handover_record { id, image, stack, python, time, tid, cause, .. } = contract::read(bytes)?;
        Some(Self { id, image, stack, python, time, tid, cause: Cause::of(cause) })
    }
}

/// A thread of a Python process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The process image.
    pub image: u32,
    /// The new thread.
    pub tid: u32,
    /// The thread that started it.
    pub creator: u32,
    /// The id of that thread's stack, 0 if it could not be taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// When.
    pub time: u64,
    /// The call that handed over the work in which it was started.
    pub cause: Cause,
}

/// A call of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchRecord {
    /// The process image, 0 if it is not followed.
    pub image: u32,
    /// Third argument of the marker.
    pub session: u64,
    /// The stack's id, 0 if it could not be taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// When.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// The call's correlation id, from the first argument of the marker.
    pub correlation: u32,
    /// Second argument of the marker.
    pub work: u16,
    /// The parts of its stack that the thread recognised, so that they were not walked.
    pub recognised: Recognised,
    /// The hash by which the Python part was recognised, otherwise 0.
    pub python_hash: u64,
    /// The thread's last launch that has returned, and how long it took.
    pub returned: Option<(u32, u64)>,
    /// The call that handed the work over, if the thread does such work.
    pub cause: Cause,
}

/// A process image that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    /// Its id.
    pub image: u32,
    /// The parent image, 0 if it is not followed.
    pub parent: u32,
    /// How it was created.
    pub origin: Origin,
    /// When.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The id that it knows itself by, if it has its own pid namespace; otherwise 0.
    pub inner: u32,
    /// Its short name.
    pub comm: String,
}

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
    Launch(LaunchRecord),
    /// A call that hands work to other threads has begun.
    Handover(Handover),
    /// A part of that work has a cause of its own: the stack is the code that made it, the cause the call.
    Forward(Handover),
    /// A call hands tasks to a thread pool. It is sent once for all that have the same stack.
    Task(Handover),
    /// A thread was started.
    Started(Started),
    /// What determined the walk of a launch's stack.
    Memo(Box<Memo>),
    /// A watched function was called.
    Call(Box<CallRecord>),
    /// A system call on a device file was made.
    Syscall(Box<SyscallRecord>),
    /// A followed thread was scheduled again.
    Switch(SwitchRecord),
    /// A tracepoint was hit.
    Point(Box<PointRecord>),
    /// A new key of hits, or a hit that did not fit into the kernel's map.
    Hit(HitRecord),
    /// A thread that launches GPU work was off the CPU.
    Wait(WaitRecord),
    /// The memory of a tensor changed.
    Tensor(TensorRecord),
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
        /// The call that handed the work over, if the thread does such work.
        cause: Cause,
    },
    /// A new process image is followed.
    Process(NewImage),
    /// A thread was created or renamed.
    Thread {
        /// Its process image.
        image: u32,
        /// The thread.
        tid: u32,
        /// The id that it knows itself by, if it has its own pid namespace; otherwise 0.
        inner: u32,
        /// When.
        time: u64,
        /// Its name.
        comm: String,
    },
    /// A thread of a Python process, or of one in its own pid namespace, has ended.
    ThreadEnd {
        /// Its process image.
        image: u32,
        /// When.
        time: u64,
        /// The thread.
        tid: u32,
        /// As in [`Record::Thread`].
        inner: u32,
    },
    /// A process image has ended.
    Exit {
        /// Its id.
        image: u32,
        /// When.
        time: u64,
        /// The process.
        pid: u32,
    },
}

/// How a process image was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By fork: its memory is a copy of its parent's.
    Fork,
    /// By exec: its memory is its own.
    Exec,
    /// It was already running.
    Found,
}

/// What was lost since the recorder started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Launches that did not fit into the ring buffer.
    pub launches: u64,
    /// Stacks that did not fit into the ring buffer.
    pub stacks: u64,
    /// Samples that did not fit into the ring buffer.
    pub samples: u64,
    /// Process and thread events that did not fit into the ring buffer, and processes too many to follow.
    pub processes: u64,
    /// Stacks without a single frame.
    pub walks: u64,
    /// Calls, system calls, switches and tracepoints that did not fit into the ring buffer.
    pub calls: u64,
    /// Calls nested too deeply to be followed.
    pub deep_calls: u64,
    /// Calls that did not fit into the sums.
    pub sums: u64,
    /// Hits of events that fitted neither into their map nor into the ring buffer.
    pub hits: u64,
    /// Waits that did not fit into the ring buffer; the hits of their reasons include them.
    pub waits: u64,
    /// Allocations and frees of tensors that did not fit into the ring buffer.
    pub tensors: u64,
    /// Off-CPU intervals with a switch that the kernel did not report.
    pub switches: u64,
    /// Records of a type or length that the programs do not write.
    pub unparsed: u64,
    /// Failed reads of maps: sums are missing from what was read.
    pub unread: u64,
}

impl Losses {
    /// Counts a record that was read and not passed on.
    pub(crate) fn count(&mut self, record: &Record) {
        *match record {
            Record::Launch(_) => &mut self.launches,
            Record::Sample { .. } => &mut self.samples,
            Record::Process(_) | Record::Thread { .. } | Record::ThreadEnd { .. } | Record::Exit { .. } => {
                &mut self.processes
            }
            Record::Call(_) | Record::Syscall(_) | Record::Switch(_) | Record::Point(_) => &mut self.calls,
            Record::Hit(_) => &mut self.hits,
            Record::Wait(_) => &mut self.waits,
            Record::Tensor(_) => &mut self.tensors,
            Record::Stack(_)
            | Record::RawStack(_)
            | Record::PythonStack(_)
            | Record::PythonCode(_)
            | Record::Handover(_)
            | Record::Forward(_)
            | Record::Task(_)
            | Record::Started(_)
            | Record::Memo(_) => &mut self.stacks,
        } += 1;
    }
}

impl Record {
    /// Returns when it was sent, if its order relative to mappings matters; otherwise 0.
    pub fn time(&self) -> u64 {
        match self {
            // A forked process inherits what its parent had mapped until then.
            Self::Process(new) => new.time,
            Self::Stack(stack) => stack.time,
            Self::RawStack(raw) => raw.time,
            Self::Launch(launch) => launch.time,
            Self::Sample { time, .. } => *time,
            Self::Hit(hit) => hit.time,
            Self::Wait(wait) => wait.time,
            Self::Tensor(tensor) => tensor.time,
            Self::Handover(call) | Self::Forward(call) | Self::Task(call) => call.time,
            Self::Started(start) => start.time,
            Self::Thread { time, .. } | Self::ThreadEnd { time, .. } => *time,
            _ => 0,
        }
    }

    /// Parses one record; `None` if its type or length is not one that the programs write.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(match record_type(contract::read(bytes)?) {
            record_type::RECORD_STACK => Self::Stack(StackRecord::parse(bytes)?),
            record_type::RECORD_RAW_STACK => Self::RawStack(Box::new(RawStack::parse(bytes)?)),
            record_type::RECORD_PYTHON_STACK => Self::PythonStack(PythonStack::parse(bytes)?),
            record_type::RECORD_PYTHON_CODE => Self::PythonCode(Box::new(PythonCode::parse(bytes)?)),
            record_type::RECORD_LAUNCH => {
                let launch: launch_record = contract::read(bytes)?;
                let (native, python) = (launch_cpu::LAUNCH_KNOWN.0, launch_cpu::LAUNCH_PYTHON_KNOWN.0);
                let flags = u32::from(launch.cpu);
                Self::Launch(LaunchRecord {
                    image: launch.image,
                    session: launch.session,
                    stack: launch.stack,
                    python: launch.python,
                    time: launch.time,
                    pid: launch.pid,
                    tid: launch.tid,
                    cpu: flags & !(native | python),
                    correlation: launch.correlation,
                    work: launch.work,
                    recognised: Recognised { native: flags & native != 0, python: flags & python != 0 },
                    python_hash: launch.python_hash,
                    returned: (launch.previous != 0).then_some((launch.previous, launch.took)),
                    cause: Cause::of(launch.cause),
                })
            }
            record_type::RECORD_HANDOVER => Self::Handover(Handover::parse(bytes)?),
            record_type::RECORD_FORWARD => Self::Forward(Handover::parse(bytes)?),
            record_type::RECORD_TASK => Self::Task(Handover::parse(bytes)?),
            record_type::RECORD_START => {
                let start_record { image, tid, creator, stack, python, time, cause, .. } = contract::read(bytes)?;
                Self::Started(Started { image, tid, creator, stack, python, time, cause: Cause::of(cause) })
            }
            record_type::RECORD_MEMO => Self::Memo(Box::new(Memo::parse(bytes)?)),
            record_type::RECORD_DEEP_MEMO => Self::Memo(Box::new(Memo::parse_deep(bytes)?)),
            record_type::RECORD_CALL => Self::Call(Box::new(CallRecord::parse(bytes)?)),
            record_type::RECORD_SYSCALL => Self::Syscall(Box::new(SyscallRecord::parse(bytes)?)),
            record_type::RECORD_SWITCH => Self::Switch(SwitchRecord::parse(bytes)?),
            record_type::RECORD_POINT => Self::Point(Box::new(PointRecord::parse(bytes)?)),
            record_type::RECORD_HIT => Self::Hit(HitRecord::parse(bytes)?),
            record_type::RECORD_WAIT => Self::Wait(WaitRecord::parse(bytes)?),
            record_type::RECORD_TENSOR => Self::Tensor(TensorRecord::parse(bytes)?),
            record_type::RECORD_SAMPLE => {
                let sample_record { image, stack, python, time, tid, cpu, cause, .. } = contract::read(bytes)?;
                Self::Sample { image, stack, python, time, tid, cpu, cause: Cause::of(cause) }
            }
            record_type::RECORD_PROCESS => {
                let process_record { image, parent, origin, time, pid, inner, comm, .. } = contract::read(bytes)?;
                let origin = match process_origin(origin) {
                    process_origin::ORIGIN_EXEC => Origin::Exec,
                    process_origin::ORIGIN_FOUND => Origin::Found,
                    _ => Origin::Fork,
                };
                Self::Process(NewImage { image, parent, origin, time, pid, inner, comm: contract::text(&comm) })
            }
            record_type::RECORD_THREAD => {
                let thread_record { image, tid, inner, time, comm, .. } = contract::read(bytes)?;
                Self::Thread { image, tid, inner, time, comm: contract::text(&comm) }
            }
            record_type::RECORD_THREAD_END => {
                let exit_record { image, time, pid: tid, inner, .. } = contract::read(bytes)?;
                Self::ThreadEnd { image, time, tid, inner }
            }
            record_type::RECORD_EXIT => {
                let exit_record { image, time, pid, .. } = contract::read(bytes)?;
                Self::Exit { image, time, pid }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a truncated record or one of an unknown type is `None`, never a panic.
    #[test]
    fn invalid_records_are_rejected() {
        let mut bytes = vec![0; size_of::<launch_record>()];
        bytes[0] = 2;
        assert!(Record::parse(&bytes).is_some());
        assert_eq!(Record::parse(&bytes[..bytes.len() - 1]), None);
        bytes[0] = 99;
        assert_eq!(Record::parse(&bytes), None);
        assert_eq!(Record::parse(&[]), None);
    }

    /// Check that a new process has a place among the mapping records: a child inherits those of its parent that are older, and
    /// the reader passes them on first.
    #[test]
    fn new_processes_are_ordered_among_mappings() {
        let mut bytes = vec![0; size_of::<process_record>()];
        bytes[..4].copy_from_slice(&record_type::RECORD_PROCESS.0.to_ne_bytes());
        let time = std::mem::offset_of!(process_record, time);
        bytes[time..time + 8].copy_from_slice(&7_u64.to_ne_bytes());
        assert_eq!(Record::parse(&bytes).map(|record| record.time()), Some(7));
    }
}
