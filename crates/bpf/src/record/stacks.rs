//! Stacks: frames, copies of memory, and what determined a walk.

use std::mem::offset_of;

use crate::contract::{
    self,
    types::{deep_memo_record, deep_word, limit, memo_record, raw_stack_record, stack_record},
};

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
    /// User addresses, in the same form.
    pub user: Vec<u64>,
    /// Why the user part ends where it does: `enum walk_result` of the unwinder.
    pub result: u8,
}

/// Registers and memory of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawStack {
    /// Its id, which is unique to this stack.
    pub id: u64,
    /// The process image.
    pub image: u32,
    /// When it was taken.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// The general registers, by DWARF number.
    pub general: [u64; 16],
    /// Kernel addresses, as in [`StackRecord`].
    pub kernel: Vec<u64>,
    /// Whole pages, from the one that rsp points into.
    pub bytes: Vec<u8>,
}

/// What determined the walk of a launch's stack: with the same registers and words, a thread has the same stack.
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
    /// The words read: the offset above `sp` in words, and the value.
    pub words: Vec<(u16, u64)>,
}

impl StackRecord {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        const FRAMES: usize = offset_of!(stack_record, frames);
        let stack_record { image, id, time, pid, user_frames, kernel_frames, result, .. } =
            contract::read_head(bytes, FRAMES)?;
        let (kernel_frames, user_frames) = (usize::from(kernel_frames), usize::from(user_frames));
        let kernel = contract::read_several(bytes, FRAMES, kernel_frames)?;
        let user = contract::read_several(bytes, FRAMES + kernel_frames * size_of::<u64>(), user_frames)?;
        Some(Self { id, image, time, pid, kernel, user, result })
    }
}

impl RawStack {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let raw: raw_stack_record = contract::read(bytes)?;
        let length = (limit::RAW_PAGE.0 as usize).checked_mul(raw.pages as usize)?;
        Some(Self {
            id: raw.id,
            image: raw.image,
            time: raw.time,
            pid: raw.pid,
            ip: raw.registers.ip,
            general: raw.registers.general,
            kernel: raw.kernel.get(..raw.kernel_frames.try_into().ok()?)?.to_vec(),
            bytes: bytes.get(offset_of!(raw_stack_record, bytes)..)?.get(..length)?.to_vec(),
        })
    }
}

impl Memo {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let memo: memo_record = contract::read(bytes)?;
        let count = memo.count as usize;
        let (places, values) = (memo.place.get(..count)?, memo.value.get(..count)?);
        Some(Self {
            image: memo.image,
            session: memo.session,
            stack: memo.stack,
            sp: memo.sp,
            bp: memo.bp,
            words: places.iter().copied().zip(values.iter().copied()).collect(),
        })
    }

    pub(super) fn parse_deep(bytes: &[u8]) -> Option<Self> {
        const WORDS: usize = offset_of!(deep_memo_record, word);
        let deep_memo_record { image, session, stack, sp, bp, count, .. } = contract::read_head(bytes, WORDS)?;
        let words: Vec<deep_word> = contract::read_several(bytes, WORDS, count as usize)?;
        let words = words.iter().map(|word| Some((word.place.try_into().ok()?, word.value))).collect::<Option<_>>()?;
        Some(Self { image, session, stack, sp, bp, words })
    }
}
