//! An argument: its name, its kind, and the words that hold it.
//!
//! The System V convention passes the first six words that fit in registers and the others on the stack. A struct of
//! two words (`dim3`) is passed in registers as a whole or not at all. A larger one (`cudaExtent`, `cudaPitchedPtr`) is
//! always passed on the stack, which leaves the registers to the arguments after it.

use super::payload::Struct;
use super::values::{Direction, Value};

/// The number of words in registers.
const REGISTERS: u8 = 6;

/// An argument's name and kind.
pub(super) type Arg = (&'static str, Kind);

/// The kind of an argument. It determines how the argument is read, how it is shown, and what follows from it.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Pointer,
    Handle,
    Stream,
    /// Counted bytes: with [`Kind::Rows`] and [`Kind::Layers`], a factor of what the call allocates, copies or sets.
    Bytes,
    /// A `size_t` factor.
    Rows,
    /// A `size_t` factor where 0 means that the dimension is unused.
    Layers,
    /// A number of elements of 2^n bytes: a factor.
    Elements(u8),
    /// A `size_t` that is not counted: a pitch, an offset, an alignment.
    Size,
    Int,
    Unsigned,
    Byte,
    Short,
    Flags,
    /// `unsigned long long` flags.
    LongFlags,
    /// A `cudaMemcpyKind`.
    Way,
    /// A `dim3` by value, or three numbers.
    Grid(Dims),
    Block(Dims),
    /// Dynamic shared memory as a `size_t`, and as an `unsigned`.
    Shared,
    ShortShared,
    /// A `CUfunction`, `CUkernel` or `cudaKernel_t`.
    Kernel,
    /// The address of a kernel's host function.
    HostStub,
    /// A `float`: only behind a pointer, because as an argument it is not in these words.
    Float,
    /// A C string: the payload.
    Text,
    /// A struct behind a pointer: the payload.
    Struct(Struct),
    /// A `cudaExtent` by value: width in bytes, height, depth.
    Extent,
    /// A `cudaPitchedPtr` by value, of which only the pointer counts.
    Pitched,
    /// The pointer to which the function writes its result, and the kind of the result.
    Out(&'static Kind),
    /// A struct of this many bytes by value, which is not captured.
    Opaque(u8),
}

/// How the three dimensions of a grid or block are passed.
#[derive(Clone, Copy)]
pub(super) enum Dims {
    /// A `dim3` by value: x and y in one word, z in the next.
    Packed,
    /// Three arguments.
    Loose,
}

impl Kind {
    /// Whether it is a factor of the call's bytes.
    pub(super) fn counts(self) -> bool {
        match self {
            Kind::Bytes | Kind::Rows | Kind::Layers | Kind::Elements(_) | Kind::Extent => true,
            Kind::Struct(layout) => layout.counts(),
            _ => false,
        }
    }

    /// Returns the value in these words. The upper half of a word is garbage if the type has 32 bits.
    pub(super) fn value(self, words: &[u64]) -> Option<Value> {
        let first = *words.first()?;
        let low = first as u32;
        Some(match self {
            Kind::Pointer | Kind::HostStub | Kind::Pitched | Kind::Out(_) | Kind::Text | Kind::Struct(_) => {
                Value::Pointer(first)
            }
            Kind::Handle | Kind::Kernel => Value::Handle(first),
            Kind::Stream => Value::Stream(first),
            Kind::Bytes | Kind::Size | Kind::Shared => Value::Bytes(first),
            Kind::ShortShared => Value::Bytes(low.into()),
            Kind::Rows | Kind::Layers | Kind::Elements(_) => Value::Unsigned(first),
            Kind::Int => Value::Number((low as i32).into()),
            Kind::Unsigned => Value::Unsigned(low.into()),
            Kind::Byte => Value::Unsigned((first as u8).into()),
            Kind::Short => Value::Unsigned((first as u16).into()),
            Kind::Flags => Value::Flags(low.into()),
            Kind::LongFlags => Value::Flags(first),
            Kind::Way => Direction::from_kind(first).map_or(Value::Unsigned(low.into()), Value::Direction),
            Kind::Grid(dims) | Kind::Block(dims) => Value::Dims(match (dims, words) {
                (Dims::Packed, &[xy, z, ..]) => [xy as u32, (xy >> 32) as u32, z as u32],
                (Dims::Loose, &[x, y, z, ..]) => [x as u32, y as u32, z as u32],
                _ => return None,
            }),
            Kind::Float => Value::Float(f32::from_bits(low)),
            Kind::Opaque(_) => return None,
            Kind::Extent => match *words {
                [width, height, depth, ..] => Value::Bytes(width.checked_mul(height)?.checked_mul(depth)?),
                _ => return None,
            },
        })
    }
}

/// The words that hold an argument: at most four.
#[derive(Clone, Copy)]
pub(super) struct Place {
    words: [u8; 4],
    count: u8,
}

impl Place {
    pub(super) fn words(&self) -> &[u8] {
        &self.words[..self.count as usize]
    }

    pub(super) fn first(&self) -> u8 {
        self.words[0]
    }
}

/// Returns every argument with its words.
pub(super) fn places(args: &'static [Arg]) -> impl Iterator<Item = (&'static Arg, Place)> {
    let (mut register, mut stack) = (0, REGISTERS);
    let mut take = move |in_registers: bool, count: u8, place: &mut Place| {
        let next = if in_registers && register + count <= REGISTERS { &mut register } else { &mut stack };
        for _ in 0..count {
            place.words[place.count as usize] = *next;
            place.count += 1;
            *next += 1;
        }
    };
    args.iter().map(move |arg| {
        let mut place = Place { words: [0; 4], count: 0 };
        match arg.1 {
            Kind::Grid(Dims::Packed) | Kind::Block(Dims::Packed) => take(true, 2, &mut place),
            Kind::Grid(Dims::Loose) | Kind::Block(Dims::Loose) => (0..3).for_each(|_| take(true, 1, &mut place)),
            Kind::Extent => take(false, 3, &mut place),
            Kind::Pitched => take(false, 4, &mut place),
            // It is on the stack and uses no register. No argument after it is on the stack.
            Kind::Opaque(_) => {}
            _ => take(true, 1, &mut place),
        }
        (arg, place)
    })
}
