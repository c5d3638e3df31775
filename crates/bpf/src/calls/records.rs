//! Records of single calls, system calls, context switches and tracepoints.

use std::mem::offset_of;

use crate::contract::{
    self,
    types::{call_flag, call_record, point_record, switch_record, syscall_record},
};

/// One call of a watched function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRecord {
    /// The process image.
    pub image: u32,
    /// The function's number.
    pub function: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU it began on.
    pub cpu: u32,
    /// The number of enclosing watched calls.
    pub depth: u8,
    /// Whether one of them has the same role.
    pub nested: bool,
    /// Whether one of them returns a status: an error is counted there.
    pub enclosed: bool,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned when its thread or the trace ended.
    pub end: u64,
    /// What it returned.
    pub result: u64,
    /// The value that its `out` word pointed to at the return.
    pub out: Option<u64>,
    /// The session and correlation id of the launch made in it.
    pub launch: Option<(u64, u32)>,
    /// Whether the launch is its own, not that of an enclosing call.
    pub launches: bool,
    /// The caller's stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// Its return address; 0 if it could not be read.
    pub caller: u64,
    /// When the innermost enclosing call began; 0 if there is none.
    pub around: u64,
    /// Words of the argument list.
    pub words: Vec<u64>,
    /// The data that one of them pointed to; text is without its zero byte.
    pub payload: Vec<u8>,
}

impl CallRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        const WORDS: usize = offset_of!(call_record, word);
        let call: call_record = contract::read_head(bytes, WORDS)?;
        let has = |flag| has(call.flags.into(), flag);
        let unfinished = has(call_flag::CALL_UNFINISHED);
        let whole = has(call_flag::CALL_HAS_PAYLOAD) || unfinished;
        let words = contract::read_several(bytes, WORDS, usize::from(call.words).min(call.word.len()))?;
        // Text may be longer than the payload of a record; a call without a payload is sent up to its last word.
        let length = if has(call_flag::CALL_HAS_PAYLOAD) { call.payload.into() } else { 0 };
        let payload = if whole { bytes.get(offset_of!(call_record, bytes)..)?.get(..length)? } else { &[] };
        Some(Self {
            image: call.image,
            function: call.function,
            pid: call.pid,
            tid: call.tid,
            cpu: call.cpu.into(),
            depth: call.depth,
            nested: has(call_flag::CALL_NESTED),
            enclosed: has(call_flag::CALL_ENCLOSED),
            start: call.start,
            end: if unfinished { 0 } else { call.end },
            result: if unfinished { 0 } else { call.result },
            out: (has(call_flag::CALL_HAS_OUT) && !unfinished).then_some(call.out),
            launch: (call.correlation != 0).then_some((call.session, call.correlation)),
            launches: has(call_flag::CALL_LAUNCHES) && call.correlation != 0,
            stack: call.stack,
            python: call.python,
            caller: call.caller,
            around: call.around,
            words,
            payload: payload.to_vec(),
        })
    }
}

fn has(flags: u32, flag: call_flag) -> bool {
    flags & flag.0 != 0
}

/// A system call on a device file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallRecord {
    /// The process image.
    pub image: u32,
    /// Its number.
    pub number: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU it began on.
    pub cpu: u32,
    /// The number of enclosing watched calls.
    pub depth: u8,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned.
    pub end: u64,
    /// What it returned.
    pub result: i64,
    /// The session and correlation id of the launch that it was made for.
    pub launch: Option<(u64, u32)>,
    /// When the innermost enclosing call began; 0 if there is none.
    pub around: u64,
    /// ioctl: request, argument; mmap: length, protection, offset.
    pub words: [u64; 3],
    /// The descriptor.
    pub file: u32,
    /// The file's name.
    pub device: String,
    /// ioctl: what the argument points to, at the entry.
    pub head: Option<[u8; 32]>,
}

impl SyscallRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let call: syscall_record = contract::read(bytes)?;
        let has = |flag| has(call.flags.into(), flag);
        Some(Self {
            image: call.image,
            number: call.number,
            pid: call.pid,
            tid: call.tid,
            cpu: call.cpu.into(),
            depth: call.depth,
            start: call.start,
            end: if has(call_flag::CALL_UNFINISHED) { 0 } else { call.end },
            result: call.result,
            launch: (call.correlation != 0).then_some((call.session, call.correlation)),
            around: call.around,
            words: call.word,
            file: call.file,
            device: contract::text(&call.device),
            head: has(call_flag::CALL_HAS_PAYLOAD).then_some(call.head),
        })
    }
}

/// A followed thread was scheduled again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchRecord {
    /// The process image.
    pub image: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU it was scheduled on.
    pub cpu: u32,
    /// The number of enclosing watched calls.
    pub depth: u8,
    /// When it left the CPU.
    pub out: u64,
    /// When it was scheduled again.
    pub back: u64,
    /// When the innermost enclosing call began; 0 if there is none.
    pub around: u64,
    /// Its stack when it left the CPU, 0 if it was not taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// Whether it was still runnable and was preempted.
    pub preempted: bool,
    /// The kernel's `TASK_*` state in which it left.
    pub state: u32,
}

impl SwitchRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let switch: switch_record = contract::read(bytes)?;
        Some(Self {
            image: switch.image,
            tid: switch.tid,
            cpu: switch.cpu.into(),
            depth: switch.depth,
            out: switch.out,
            back: switch.r#in,
            around: switch.around,
            stack: switch.stack,
            python: switch.python,
            preempted: switch.preempted != 0,
            state: switch.state,
        })
    }
}

/// A tracepoint was hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointRecord {
    /// The process image, 0 if it is not followed.
    pub image: u32,
    /// The tracepoint's number.
    pub function: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// When.
    pub time: u64,
    /// When the innermost enclosing call began; 0 if there is none.
    pub around: u64,
    /// The number of enclosing watched calls.
    pub depth: u8,
    /// The tracepoint's own record, as its format file describes it.
    pub bytes: [u8; 128],
}

impl PointRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let point: point_record = contract::read(bytes)?;
        Some(Self {
            image: point.image,
            function: point.function,
            pid: point.pid,
            tid: point.tid,
            cpu: point.cpu.into(),
            time: point.time,
            around: point.around,
            depth: point.depth as u8,
            bytes: point.bytes,
        })
    }
}
