//! What goes into decoding a call and what comes out: captured words in, named fields and facts out.

use std::fmt;

/// What was captured of one call. Anything may be missing or shorter than asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Captured<'a> {
    /// The first words of the argument list: six registers, then the stack's slots.
    pub words: &'a [u64],
    /// The 8 bytes behind the out argument, read at return.
    pub out: Option<u64>,
    /// The bytes behind the payload's pointer, read at entry. Text may or may not have its final NUL.
    pub payload: &'a [u8],
    /// What the function returned: rax.
    pub result: u64,
}

/// One argument, or one member of a struct it points to, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The argument's name.
    pub name: &'static str,
    /// Its value, as its type says.
    pub value: Value,
}

/// A value and how to read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An address, of the host or of a device.
    Pointer(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A number that may be negative.
    Number(i64),
    /// A count or an enumerator.
    Unsigned(u64),
    /// A time or a ratio.
    Float(f32),
    /// The extent of a grid or of a block.
    Dims([u32; 3]),
    /// Which way a copy goes.
    Direction(Direction),
    /// A stream. 0 is the default stream, 1 the legacy one, 2 the thread's own.
    Stream(u64),
    /// A C string, bytes that are not UTF-8 replaced.
    Text(String),
    /// Bits.
    Flags(u64),
    /// An opaque handle: an event, a graph, a module.
    Handle(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Stream(0) => f.write_str("0"),
            Value::Pointer(v) | Value::Stream(v) | Value::Flags(v) | Value::Handle(v) => write!(f, "{v:#x}"),
            Value::Bytes(v) | Value::Unsigned(v) => write!(f, "{v}"),
            Value::Number(v) => write!(f, "{v}"),
            Value::Float(v) => write!(f, "{v}"),
            Value::Dims([x, y, z]) => write!(f, "({x},{y},{z})"),
            Value::Direction(v) => write!(f, "{v}"),
            Value::Text(v) => write!(f, "{v:?}"),
        }
    }
}

/// Which way a copy goes. The first five are `cudaMemcpyKind`'s numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// Host to host.
    HtoH = 0,
    /// Host to device.
    HtoD = 1,
    /// Device to host.
    DtoH = 2,
    /// Within a device. Arrays count as device memory.
    DtoD = 3,
    /// The driver finds out from the pointers.
    Default = 4,
    /// Between two devices or contexts.
    Peer = 5,
}

impl Direction {
    /// All of them, in the order of their numbers.
    pub const ALL: [Direction; 6] =
        [Direction::HtoH, Direction::HtoD, Direction::DtoH, Direction::DtoD, Direction::Default, Direction::Peer];

    /// From a `cudaMemcpyKind` as it stands in a register, of which only the low half counts.
    pub fn from_kind(word: u64) -> Option<Direction> {
        Direction::ALL[..5].get(word as u32 as usize).copied()
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::HtoH => "HtoH",
            Direction::HtoD => "HtoD",
            Direction::DtoH => "DtoH",
            Direction::DtoD => "DtoD",
            Direction::Default => "Default",
            Direction::Peer => "PtoP",
        })
    }
}

/// How a launch names its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelRef {
    /// A `CUfunction` or `CUkernel`, which the driver hands out.
    Handle(u64),
    /// The host function that the compiler made for the kernel: an address in the program's own code.
    HostStub(u64),
}

/// What a call did, whichever function it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Bytes allocated, copied or set. A free does not say how many.
    pub bytes: Option<u64>,
    /// Which way a copy goes.
    pub direction: Option<Direction>,
    /// What was allocated or freed: an address, or a handle where the memory has none yet. `None` if the call failed or freed
    /// nothing.
    pub address: Option<u64>,
    /// The stream that the work goes to.
    pub stream: Option<u64>,
    /// The kernel launched, or the one that the call is about.
    pub kernel: Option<KernelRef>,
    /// Blocks in the grid.
    pub grid: Option<[u32; 3]>,
    /// Threads in a block.
    pub block: Option<[u32; 3]>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: Option<u64>,
}

/// What a call teaches about the names of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// From now on `kernel` is called this: the mangled name.
    Name {
        /// The handle or stub.
        kernel: KernelRef,
        /// What it is called.
        name: String,
    },
    /// From now on `kernel` is another way to say `of`.
    Alias {
        /// The new handle.
        kernel: KernelRef,
        /// What it stands for.
        of: KernelRef,
    },
}
