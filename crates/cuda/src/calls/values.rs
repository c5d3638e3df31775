//! The input and output of decoding a call: captured words in, named fields and facts out.

use std::fmt;

/// The captured parts of one call. Any part may be missing or shorter than requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Captured<'a> {
    /// The first words of the argument list: six registers, then the stack slots.
    pub words: &'a [u64],
    /// The 8 bytes of the result, read at return.
    pub out: Option<u64>,
    /// The bytes behind the payload's pointer, read at entry. Text may or may not have its terminating NUL.
    pub payload: &'a [u8],
    /// The function's return value: rax.
    pub result: u64,
}

/// One argument, or one member of a struct it points to, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The argument's name.
    pub name: &'static str,
    /// Its value, according to its type.
    pub value: Value,
}

/// A value and its type.
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
    /// The dimensions of a grid or a block.
    Dims([u32; 3]),
    /// The direction of a copy.
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

/// The direction of a copy. The first five are `cudaMemcpyKind`'s numbers.
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
    /// The driver infers the direction from the pointers.
    Default = 4,
    /// Between two devices or contexts.
    Peer = 5,
}

impl Direction {
    /// All directions, in the order of their numbers.
    pub const ALL: [Direction; 6] =
        [Direction::HtoH, Direction::HtoD, Direction::DtoH, Direction::DtoD, Direction::Default, Direction::Peer];

    /// Converts a `cudaMemcpyKind` in a register, of which only the low half counts.
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

/// How a launch identifies its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelRef {
    /// A `CUfunction` or `CUkernel`, returned by the driver.
    Handle(u64),
    /// The host function that the compiler generated for the kernel: an address in the program's own code.
    HostStub(u64),
}

/// What a call did, for any function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Bytes allocated, copied or set. Unknown for a free.
    pub bytes: Option<u64>,
    /// The direction of a copy.
    pub direction: Option<Direction>,
    /// The address allocated or freed, or a handle if the memory has no address yet. `None` if the call failed or freed
    /// null.
    pub address: Option<u64>,
    /// The stream of the work.
    pub stream: Option<u64>,
    /// The kernel that is launched or otherwise used.
    pub kernel: Option<KernelRef>,
    /// Blocks in the grid.
    pub grid: Option<[u32; 3]>,
    /// Threads in a block.
    pub block: Option<[u32; 3]>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: Option<u64>,
}

/// The kind of the driver's object behind a kernel's handle. Launches accept either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A `CUfunction`: a kernel in a context.
    Function,
    /// A `CUkernel`, or the runtime's `cudaKernel_t`, which is the same type: a kernel of a library.
    Kernel,
}

/// What a call reveals about the names of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameFact {
    /// The mangled name of `kernel` from now on.
    Name {
        /// The handle or stub.
        kernel: KernelRef,
        /// Its name.
        name: String,
    },
    /// From now on `kernel` is the same as `of`.
    Alias {
        /// The new handle.
        kernel: KernelRef,
        /// The kernel it refers to.
        of: KernelRef,
    },
}
