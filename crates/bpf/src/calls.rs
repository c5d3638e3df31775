//! Calls of functions, system calls, switches and tracepoints, as the programs write them; and what to gather at a call.

use crate::record::Fields;

/// Words of the argument list that can be gathered.
pub const CALL_WORDS: usize = 14;
/// Bytes behind a word that can be gathered at the entry.
pub const CALL_PAYLOAD: usize = 256;
/// Functions that can be watched in one trace.
pub const MAX_FUNCTIONS: usize = 32768;
const DEVICE_NAME: usize = 24;
const SYSCALL_HEAD: usize = 32;
const POINT_BYTES: usize = 128;

const NESTED: u16 = 1;
const UNFINISHED: u16 = 2;
const HAS_PAYLOAD: u16 = 4;
const HAS_OUT: u16 = 8;
const LAUNCHES: u16 = 16;
const ENCLOSED: u16 = 32;

/// What to gather at the calls of a function. Words are counted from 0, in the order of the argument list: six
/// registers, then the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    /// How many words.
    pub words: u8,
    /// The word that points to 8 bytes to be read at the return.
    pub out: Option<u8>,
    /// The word that points to bytes to be read at the entry, and how many; or to a text, read at the return.
    pub payload: Option<Payload>,
    /// The function returns a status, of which 0 means success.
    pub status: bool,
    /// Calls within calls of the same role are marked as nested; 0 is none, and at most 63.
    pub role: u8,
    /// Words whose product is the number of bytes that a call moves or takes.
    pub bytes: [Option<u8>; 2],
    /// The product is shifted left by this.
    pub shift: u8,
    /// The word by which sums are kept apart.
    pub class: Option<u8>,
    /// What it does to memory.
    pub memory: Memory,
    /// What kind of memory it is: sums are kept apart by it.
    pub space: u8,
    /// The group of addresses that it is in: the same number in another group is other memory.
    pub group: u8,
    /// A function of the kernel.
    pub kernel: bool,
    /// Take the stack at its calls.
    pub stack: bool,
    /// What it launches.
    pub launches: Option<Launches>,
    /// Its calls tell what kernels are called.
    pub teaches: bool,
    /// It gives the GPU work: a launch, a copy, a memset.
    pub submits: bool,
    /// The layer it belongs to, from 1 to 7, by which times are summed; 0 if it is not shown, and its time is its caller's.
    pub layer: u8,
}

/// How a launch says what it launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The word that says which kernel.
    pub word: u8,
    /// It is the driver's handle, not the address of a host function.
    pub handle: bool,
    /// Where the dimensions are.
    pub dims: Dims,
}

/// Where a launch has its dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dims {
    /// Nowhere that is known.
    None,
    /// Four words from this one on: two for the grid, two for the block, x and y in the first of each.
    Packed(u8),
    /// Six words from this one on.
    Words(u8),
    /// The first 24 bytes of the payload.
    Payload,
}

/// What lies behind a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// So many bytes.
    Bytes(u8, u16),
    /// A text that ends with a zero byte.
    Text(u8),
}

/// What a function does to memory and contexts, for the account of live memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Nothing that is accounted for.
    #[default]
    None = 0,
    /// Allocates: `out` is the address, or the first word where there is no `out`.
    Alloc = 1,
    /// Frees: the first word is the address.
    Free = 2,
    /// Makes the device in the first word current.
    SetDevice = 3,
    /// Makes the context in the first word current.
    SetContext = 4,
    /// The same, and keeps the one before.
    PushContext = 5,
    /// Returns to the one before.
    PopContext = 6,
    /// Makes a context, `out`, and makes it current.
    CreateContext = 7,
    /// Destroys the context in the first word.
    DestroyContext = 8,
    /// Retains the primary context, `out`, of the device in the second word.
    RetainPrimary = 9,
    /// Releases the primary context of the device in the first word.
    ReleasePrimary = 10,
    /// Resets the primary context of the device in the first word.
    ResetPrimary = 11,
    /// Resets the current device.
    ResetDevice = 12,
}

impl Gather {
    /// As `struct function`.
    pub(crate) fn to_bytes(self) -> [u8; 26] {
        let word = |word: Option<u8>| word.map_or(0, |w| w + 1);
        let (payload, text, length) = match self.payload {
            None => (0, 0, 0),
            Some(Payload::Bytes(at, length)) => (at + 1, 0, length.min(CALL_PAYLOAD as u16)),
            Some(Payload::Text(at)) => (at + 1, 1, 0),
        };
        let [low, high] = length.to_ne_bytes();
        let gathers = self.bytes[0].is_some()
            || self.class.is_some()
            || self.memory != Memory::None
            || self.launches.is_some()
            || self.teaches
            || text != 0;
        let (dims, dims_word) = match self.launches.map_or(Dims::None, |launches| launches.dims) {
            Dims::None => (0, 0),
            Dims::Packed(word) => (1, word),
            Dims::Words(word) => (2, word),
            Dims::Payload => (3, 0),
        };
        [
            self.words.min(CALL_WORDS as u8),
            word(self.out),
            payload,
            text,
            low,
            high,
            self.status.into(),
            self.role,
            word(self.bytes[0]),
            word(self.bytes[1]),
            self.shift,
            word(self.class),
            self.memory as u8,
            self.space,
            self.kernel.into(),
            self.stack.into(),
            word(self.launches.map(|launches| launches.word)),
            self.launches.is_some_and(|launches| launches.handle).into(),
            dims,
            dims_word,
            self.submits.into(),
            gathers.into(),
            self.teaches.into(),
            self.layer,
            self.group,
            0,
        ]
    }
}

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
    /// Watched calls around it.
    pub depth: u8,
    /// One of them has the same role.
    pub nested: bool,
    /// One of them returns a status: an error is counted there.
    pub enclosed: bool,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned when its thread or the trace ended.
    pub end: u64,
    /// What it returned.
    pub result: u64,
    /// What lay behind its `out` word at the return.
    pub out: Option<u64>,
    /// The session and correlation id of the launch made in it.
    pub launch: Option<(u64, u32)>,
    /// The launch is its own, not that of a call around it.
    pub launches: bool,
    /// The caller's stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// Where it returns to; 0 if that could not be read.
    pub caller: u64,
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
    /// Words of the argument list.
    pub words: Vec<u64>,
    /// What lay behind one of them; a text without its zero.
    pub payload: Vec<u8>,
}

impl CallRecord {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (session, start, end) = (f.u64()?, f.u64()?, f.u64()?);
        let (result, out, stack, python) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
        let (caller, around) = (f.u64()?, f.u64()?);
        let (function, correlation, pid, tid) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
        let cpu = f.u16()?.into();
        let [depth, words] = *f.bytes(2)? else { return None };
        let (length, flags) = (f.u16()?, f.u16()?);
        let has = |flag| flags & flag != 0;
        let unfinished = has(UNFINISHED);
        let (words, payload) = if has(HAS_PAYLOAD) || unfinished {
            let mut all = f.addresses(CALL_WORDS as u16)?;
            all.truncate(words.into());
            // What was not told in time is not in the record of an unfinished call.
            let payload = if has(HAS_PAYLOAD) { f.bytes(length.into())? } else { &[] };
            (all, payload.to_vec())
        } else {
            (f.addresses(words.into())?, Vec::new())
        };
        Some(Self {
            image,
            function,
            pid,
            tid,
            cpu,
            depth,
            nested: has(NESTED),
            enclosed: has(ENCLOSED),
            start,
            end: if unfinished { 0 } else { end },
            result: if unfinished { 0 } else { result },
            out: (has(HAS_OUT) && !unfinished).then_some(out),
            launch: (correlation != 0).then_some((session, correlation)),
            launches: has(LAUNCHES) && correlation != 0,
            stack,
            python,
            caller,
            around,
            words,
            payload,
        })
    }
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
    /// Watched calls around it.
    pub depth: u8,
    /// Entry.
    pub start: u64,
    /// Return; 0 if it had not returned.
    pub end: u64,
    /// What it returned.
    pub result: i64,
    /// The session and correlation id of the launch that it was made for.
    pub launch: Option<(u64, u32)>,
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
    /// ioctl: request, argument; mmap: length, protection, offset.
    pub words: [u64; 3],
    /// The descriptor.
    pub file: u32,
    /// The file's name.
    pub device: String,
    /// ioctl: what the argument points to, at the entry.
    pub head: Option<[u8; SYSCALL_HEAD]>,
}

impl SyscallRecord {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (session, start, end, result) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?.cast_signed());
        let around = f.u64()?;
        let words = [f.u64()?, f.u64()?, f.u64()?];
        let (number, correlation, pid, tid) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
        let cpu = f.u16()?.into();
        let [depth, flags] = *f.bytes(2)? else { return None };
        let file = f.u32()?;
        let device = f.text(DEVICE_NAME)?;
        let head = f.bytes(SYSCALL_HEAD)?.try_into().ok();
        let has = |flag| u16::from(flags) & flag != 0;
        Some(Self {
            image,
            number,
            pid,
            tid,
            cpu,
            depth,
            start,
            end: if has(UNFINISHED) { 0 } else { end },
            result,
            launch: (correlation != 0).then_some((session, correlation)),
            around,
            words,
            file,
            device,
            head: head.filter(|_| has(HAS_PAYLOAD)),
        })
    }
}

/// A followed thread came back to a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchRecord {
    /// The process image.
    pub image: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU it came back to.
    pub cpu: u32,
    /// Watched calls around it.
    pub depth: u8,
    /// When it left.
    pub out: u64,
    /// When it came back.
    pub back: u64,
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
    /// It could have run on, and had to give way.
    pub preempted: bool,
    /// The kernel's `TASK_*` state in which it left.
    pub state: u32,
}

impl SwitchRecord {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (out, back, around, _pid, tid) = (f.u64()?, f.u64()?, f.u64()?, f.u32()?, f.u32()?);
        let cpu = f.u16()?.into();
        let [depth, preempted] = *f.bytes(2)? else { return None };
        Some(Self { image, tid, cpu, depth, out, back, around, preempted: preempted != 0, state: f.u32()? })
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
    /// When the innermost call around it began; 0 if there is none.
    pub around: u64,
    /// Watched calls around it.
    pub depth: u8,
    /// The tracepoint's own record, as its format file describes it.
    pub bytes: [u8; POINT_BYTES],
}

impl PointRecord {
    pub(crate) fn parse(image: u32, f: &mut Fields<'_>) -> Option<Self> {
        let (time, around, function, pid, tid) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u32()?);
        let (cpu, depth) = (f.u16()?.into(), f.u16()? as u8);
        Some(Self {
            image,
            function,
            pid,
            tid,
            cpu,
            time,
            around,
            depth,
            bytes: f.bytes(POINT_BYTES)?.try_into().ok()?,
        })
    }
}

/// Calls of one function by one process image, summed in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The process image.
    pub image: u32,
    /// The function's number.
    pub function: u32,
    /// The word by which sums are kept apart, 0 where there is none.
    pub class: u32,
    /// Calls within calls of the same role.
    pub nested: bool,
    /// Calls that failed.
    pub failed: bool,
    /// How many.
    pub count: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Their time.
    pub ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Their time without that of calls within them.
    pub self_ns: u64,
    /// The time of those that are not within another call of their layer.
    pub outer_ns: u64,
    /// Calls by duration; see `bucket_of` in bpf/sums.h.
    pub buckets: Vec<u64>,
    /// Calls by the number of bits in their bytes.
    pub sizes: Vec<u64>,
}

impl Sum {
    /// From a key and the values under it: one, or one for each CPU.
    pub(crate) fn parse(key: &[u8], values: &[u8]) -> Option<Self> {
        const BUCKETS: usize = 128;
        const SIZES: usize = 64;
        let mut f = Fields::new(key);
        let (image, function, class, flags) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
        let (nested, failed) = (flags & 1 != 0, flags & 2 != 0);
        let mut sum = Self {
            image,
            function,
            class,
            nested,
            failed,
            min_ns: u64::MAX,
            buckets: vec![0; BUCKETS],
            sizes: vec![0; SIZES],
            ..Self::default()
        };
        for value in values.chunks_exact(64 + 8 * (BUCKETS + SIZES)) {
            let mut f = Fields::new(value);
            sum.count += f.u64()?;
            sum.errors += f.u64()?;
            sum.ns += f.u64()?;
            sum.max_ns = sum.max_ns.max(f.u64()?);
            sum.bytes += f.u64()?;
            sum.self_ns += f.u64()?;
            sum.outer_ns += f.u64()?;
            // A CPU that made no call has 0: it is not shorter than any.
            sum.min_ns = sum.min_ns.min(!f.u64()?);
            for count in sum.buckets.iter_mut().chain(&mut sum.sizes) {
                *count += f.u64()?;
            }
        }
        Some(sum)
    }
}

/// Failed calls of one function by one process image with one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSum {
    /// The process image.
    pub image: u32,
    /// The function's number.
    pub function: u32,
    /// The result.
    pub code: u32,
    /// Within calls that return a status of their own: the error is counted there.
    pub enclosed: bool,
    /// How many.
    pub count: u64,
}

/// Memory of one process image in one space, and what came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySum {
    /// The process image.
    pub image: u32,
    /// What kind it is, as [`Gather::space`] says.
    pub space: u32,
    /// Bytes that are live.
    pub live_bytes: u64,
    /// Allocations that are live.
    pub live: u64,
    /// The most bytes at a time.
    pub peak_bytes: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Frees that succeeded.
    pub frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees that failed.
    pub failed_frees: u64,
    /// Of the frees that succeeded: those of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was given out again, though no free of it was seen.
    pub missed_frees: u64,
    /// Allocations that were released with their context or device.
    pub released: u64,
    /// Allocations that succeeded and are not tracked: beyond the process's share, or without room.
    pub untracked: u64,
}

/// One allocation that is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The process image.
    pub image: u32,
    /// Its address, or its handle.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was allocated.
    pub time: u64,
    /// What kind it is, as [`Gather::space`] says.
    pub space: u32,
    /// The function that allocated it.
    pub function: u32,
    /// The stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
}

/// Live allocations with one call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The process image.
    pub image: u32,
    /// The function that allocated.
    pub function: u32,
    /// The stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// Bytes that are live.
    pub bytes: u64,
    /// Allocations that are live.
    pub count: u64,
    /// Since when there was always at least one.
    pub since: u64,
}

/// Launches of one kernel by one process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSum {
    /// The process image.
    pub image: u32,
    /// The kernel's handle, or the address of its host function; 0 for those for which there was no room.
    pub address: u64,
    /// It is a handle.
    pub handle: bool,
    /// Launches that succeeded.
    pub count: u64,
    /// Blocks of the last one.
    pub grid: [u32; 3],
    /// Threads per block of the last one.
    pub block: [u32; 3],
}
