//! What to gather at the calls of a function.

use crate::contract::types::{function, function_dims, function_memory, limit};

/// Words of the argument list that can be gathered.
pub const CALL_WORDS: usize = limit::CALL_WORDS.0 as usize;
/// The most bytes that can be gathered at the entry from where a word points to.
pub const CALL_PAYLOAD: usize = limit::CALL_PAYLOAD.0 as usize;
/// Functions that can be watched in one trace.
pub const MAX_FUNCTIONS: usize = limit::MAX_FUNCTIONS.0 as usize;

/// What to gather at the calls of a function. Words are counted from 0, in the order of the argument list: six
/// registers, then the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    /// The number of words.
    pub words: u8,
    /// The word that points to 8 bytes to be read at the return.
    pub out: Option<u8>,
    /// The word that points to bytes to be read at the entry, and how many; or to a text, read at the return.
    pub payload: Option<Payload>,
    /// The function returns a status, of which 0 means success.
    pub status: bool,
    /// Calls within calls of the same role are marked as nested; 0 is none, and at most 63.
    pub role: u8,
    /// Words whose product is the number of bytes that a call copies or allocates.
    pub bytes: [Option<u8>; 2],
    /// The product is shifted left by this.
    pub shift: u8,
    /// The word by which sums are separated.
    pub class: Option<u8>,
    /// What it does to memory.
    pub memory: Memory,
    /// The kind of memory: sums are separate for each.
    pub space: u8,
    /// The group of its addresses: the same number in another group is different memory.
    pub group: u8,
    /// Whether it is a kernel function.
    pub kernel: bool,
    /// Whether to take the stack at its calls.
    pub stack: bool,
    /// What it launches.
    pub launches: Option<Launches>,
    /// Whether its calls contain the names of kernels.
    pub names_kernels: bool,
    /// Whether it submits GPU work: a launch, a copy, a memset.
    pub submits: bool,
    /// The layer it belongs to, from 1 to 7, by which times are summed; 0 if it is not shown and its time is attributed
    /// to its caller.
    pub layer: u8,
}

/// How a launch identifies its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The word that identifies the kernel.
    pub word: u8,
    /// Whether it is the driver's handle, not the address of a host function.
    pub handle: bool,
    /// Where the dimensions are.
    pub dims: Dims,
}

/// Where a launch has its dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dims {
    /// Unknown.
    None,
    /// Four words from this one on: two for the grid, two for the block, x and y in the first of each.
    Packed(u8),
    /// Six words from this one on.
    Words(u8),
    /// The first 24 bytes of the payload.
    Payload,
}

/// The data that a word points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// This many bytes.
    Bytes(u8, u16),
    /// Text terminated by a zero byte.
    Text(u8),
}

/// What a function does to memory and contexts, for tracking live memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Memory {
    /// Nothing that is tracked.
    #[default]
    None = function_memory::MEMORY_NONE.0 as u8,
    /// Allocates: `out` is the address, or the first word where there is no `out`.
    Alloc = function_memory::MEMORY_ALLOC.0 as u8,
    /// Frees: the first word is the address.
    Free = function_memory::MEMORY_FREE.0 as u8,
    /// Makes the device in the first word current.
    SetDevice = function_memory::MEMORY_SET_DEVICE.0 as u8,
    /// Makes the context in the first word current.
    SetContext = function_memory::MEMORY_SET_CONTEXT.0 as u8,
    /// Makes the context in the first word current, and keeps the previous one.
    PushContext = function_memory::MEMORY_PUSH_CONTEXT.0 as u8,
    /// Restores the previous context.
    PopContext = function_memory::MEMORY_POP_CONTEXT.0 as u8,
    /// Creates a context, `out`, and makes it current.
    CreateContext = function_memory::MEMORY_CREATE_CONTEXT.0 as u8,
    /// Destroys the context in the first word.
    DestroyContext = function_memory::MEMORY_DESTROY_CONTEXT.0 as u8,
    /// Retains the primary context, `out`, of the device in the second word.
    RetainPrimary = function_memory::MEMORY_RETAIN_PRIMARY.0 as u8,
    /// Releases the primary context of the device in the first word.
    ReleasePrimary = function_memory::MEMORY_RELEASE_PRIMARY.0 as u8,
    /// Resets the primary context of the device in the first word.
    ResetPrimary = function_memory::MEMORY_RESET_PRIMARY.0 as u8,
    /// Resets the current device.
    ResetDevice = function_memory::MEMORY_RESET_DEVICE.0 as u8,
}

impl Gather {
    /// Converts to the layout that the programs read.
    pub(crate) fn to_function(self) -> function {
        // The programs count words from 1.
        let word = |word: Option<u8>| word.map_or(0, |w| w + 1);
        let (payload, text, payload_bytes) = match self.payload {
            None => (None, false, 0),
            Some(Payload::Bytes(at, length)) => (Some(at), false, length.min(CALL_PAYLOAD as u16)),
            Some(Payload::Text(at)) => (Some(at), true, 0),
        };
        let gathers = self.bytes[0].is_some()
            || self.class.is_some()
            || self.memory != Memory::None
            || self.launches.is_some()
            || self.names_kernels
            || text;
        let (dims, dims_word) = match self.launches.map_or(Dims::None, |launches| launches.dims) {
            Dims::None => (function_dims::DIMS_NONE, 0),
            Dims::Packed(word) => (function_dims::DIMS_PACKED, word),
            Dims::Words(word) => (function_dims::DIMS_WORDS, word),
            Dims::Payload => (function_dims::DIMS_PAYLOAD, 0),
        };
        function {
            words: self.words.min(CALL_WORDS as u8),
            out: word(self.out),
            payload: word(payload),
            text: text.into(),
            payload_bytes,
            status: self.status.into(),
            role: self.role,
            bytes_a: word(self.bytes[0]),
            bytes_b: word(self.bytes[1]),
            shift: self.shift.cast_signed(),
            class_word: word(self.class),
            memory: self.memory as u8,
            space: self.space,
            kernel: self.kernel.into(),
            stack: self.stack.into(),
            launches: word(self.launches.map(|launches| launches.word)),
            handle: self.launches.is_some_and(|launches| launches.handle).into(),
            dims: dims.0 as u8,
            dims_word,
            submits: self.submits.into(),
            gathers: gathers.into(),
            names_kernels: self.names_kernels.into(),
            layer: self.layer,
            group: self.group,
            pad: 0,
        }
    }
}
