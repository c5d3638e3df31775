//! Fields of records: how each type is written and read.

use std::{fmt::Debug, sync::Arc};

use cuda::{calls::KernelRef, occupancy::Limits};
#[cfg(test)]
use proptest::{collection, option, prelude::*, sample::select};
#[cfg(test)]
use std::ops::Range;

use super::bytes::{Cursor, put, put_bytes, put_distance, unzigzag, zigzag};
use crate::event::{
    CostProgram, CounterId, DeviceIdentity, Direction, DumpReason, Frame, FrameKind, FunctionId, Instruction, Key,
    LaunchKind, Layer, LossCause, Memory, Mode, NamedFrame, Number, Operation, Origin, Owner, PointId, ProcessId,
    SessionId, SourceLine, StackEnd, StackId, Unit, Use, Uuid, Work,
};

/// A type that a record can contain: both directions of its encoding, and what it identifies.
pub trait Field: Sized + Debug + 'static {
    /// Returns any value.
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        unreachable!("not in an event")
    }

    fn put(&self, out: &mut Vec<u8>);

    /// `None`: the bytes are invalid.
    fn get(c: &mut Cursor<'_>) -> Option<Self>;

    /// Calls back with every number that other recordings use for something else.
    fn numbers(&mut self, _: &mut impl FnMut(Number<'_>)) {}

    /// Returns whose event it is, if it says so.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// Returns the stack that it is.
    fn stack(&self) -> Option<StackId> {
        None
    }

    /// Adds its parts to a key.
    fn key(&self, _: &mut Key) {
        unreachable!("not in a key")
    }
}

macro_rules! numbers {
    ($($type:ty: often $some:expr;)*) => {$(
        impl Field for $type {
            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                let often: Range<Self> = $some;
                prop_oneof![Just::<Self>(0), often, any::<Self>()].boxed()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                put(out, *self);
            }
            #[inline]
            fn get(c: &mut Cursor<'_>) -> Option<Self> {
                c.u64()?.try_into().ok()
            }
            fn key(&self, key: &mut Key) {
                key.push((*self).into());
            }
        }
    )*};
}

// Some repeat, and some are close to each other, as numbers and times are.
numbers! {
    u16: often 1..9;
    u32: often 1..9;
    u64: often 1 << 50..(1 << 50) + 100_000;
}

macro_rules! ids {
    ($($type:ident: $number:ident $(owns $owner:ident)? $(is $stack:ident)?;)*) => {$(
        impl Field for $type {
            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                Field::any().prop_map(Self).boxed()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            #[inline]
            fn get(c: &mut Cursor<'_>) -> Option<Self> {
                Field::get(c).map(Self)
            }
            fn numbers(&mut self, on: &mut impl FnMut(Number<'_>)) {
                on(Number::$number(self));
            }
            $(fn owner(&self) -> Option<Owner> {
                Some(Owner::$owner(*self))
            })?
            $(fn stack(&self) -> Option<$stack> {
                Some(*self)
            })?
            fn key(&self, key: &mut Key) {
                self.0.key(key);
            }
        }
    )*};
}

ids! {
    ProcessId: Process owns Process;
    SessionId: Session owns Session;
    StackId: Stack is StackId;
    FunctionId: Function;
    CounterId: Counter;
    PointId: Point;
}

/// The upper half, then the lower.
impl Field for Uuid {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<u128>().prop_map(Self).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        ((self.0 >> 64) as u64, self.0 as u64).put(out);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        let (upper, lower) = <(u64, u64)>::get(c)?;
        Some(Self(u128::from(upper) << 64 | u128::from(lower)))
    }
    fn owner(&self) -> Option<Owner> {
        Some(Owner::Gpu)
    }
}

/// Enumerations of one byte, each with the meaning of an unknown number: a value, or `None` where the record is
/// invalid.
macro_rules! enumerations {
    ($($type:ident: $from_number:expr;)*) => {$(
        impl Field for $type {
            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                let all = (0..=u8::MAX).filter_map(|number| $from_number(number).filter(|value| *value as u8 == number));
                select(all.collect::<Vec<Self>>()).boxed()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            #[inline]
            fn get(c: &mut Cursor<'_>) -> Option<Self> {
                $from_number(c.byte()?)
            }
        }
    )*};
}

enumerations! {
    Mode: |number| Some(Mode::from_number(number));
    Operation: |number| Some(Operation::from_number(number));
    Origin: |number| Some(Origin::from_number(number));
    StackEnd: |number| Some(StackEnd::from_number(number));
    Direction: |number| Some(Direction::from_number(number));
    Layer: |number| Some(Layer::from_number(number));
    Unit: |number| Some(Unit::from_number(number));
    FrameKind: |number| Some(FrameKind::from_number(number));
    LaunchKind: LaunchKind::from_number;
    LossCause: LossCause::from_number;
    CostProgram: CostProgram::from_number;
    DumpReason: |number| Some(DumpReason::from_number(number));
    Use: Use::from_number;
}

/// Returns a structure, or a variant of an enumeration, with any fields.
#[cfg(test)]
macro_rules! any_of {
    (($($name:tt)*) $(($how:ident $field:ident))*) => {
        any_of!(@ values $($how $field)*).prop_map(|any_of!(@ names $($field)*)| $($name)* { $($field),* }).boxed()
    };
    (@ values) => { Just(()) };
    (@ values plain $field:ident $($rest:tt)*) => { (Field::any(), any_of!(@ values $($rest)*)) };
    (@ values optional $field:ident $($rest:tt)*) => { (option::of(Field::any()), any_of!(@ values $($rest)*)) };
    (@ names) => { () };
    (@ names $field:ident $($rest:ident)*) => { ($field, any_of!(@ names $($rest)*)) };
}
#[cfg(test)]
pub(super) use any_of;

/// Structures: their fields, in file order.
macro_rules! structures {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl Field for $type {
            #[cfg(test)]
            fn any() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::{Just, Strategy};
                any_of!((Self) $((plain $field))*)
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            #[inline]
            fn get(c: &mut Cursor<'_>) -> Option<Self> {
                $(let $field = Field::get(c)?;)*
                Some(Self { $($field),* })
            }
            fn numbers(&mut self, on: &mut impl FnMut(crate::event::Number<'_>)) {
                $(self.$field.numbers(on);)*
            }
            fn owner(&self) -> Option<crate::event::Owner> {
                None$(.or(self.$field.owner()))*
            }
        }
    )*};
}
pub(super) use structures;

structures! {
    NamedFrame { kind, name, module }
    Instruction { session, cubin, function, offset }
    SourceLine { function, file, line }
    Memory {
        allocations, bytes, failed, frees, failed_frees, unknown_frees, missed_frees, released, untracked, live, live_bytes,
        peak_bytes,
    }
}

/// Enumerations whose variants have fields: a byte for the variant, then its fields in file order.
macro_rules! variants {
    ($type:ident { $($tag:literal = $variant:ident { $($field:ident),* })* }) => {
        impl Field for $type {
            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                prop_oneof![$(any_of!((Self::$variant) $((plain $field))*)),*].boxed()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($tag);
                        $($field.put(out);)*
                    })*
                }
            }
            #[inline]
            fn get(c: &mut Cursor<'_>) -> Option<Self> {
                match c.byte()? {
                    $($tag => {
                        $(let $field = Field::get(c)?;)*
                        Some(Self::$variant { $($field),* })
                    })*
                    _ => None,
                }
            }
        }
    };
}

variants! {
    Work {
        1 = Kernel { name, grid, block, registers, shared_memory }
        2 = Copy { direction, bytes, source, destination, peer }
        3 = Memset { bytes, value, memory }
    }
}

impl Field for u8 {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<u8>().boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        c.byte()
    }
}

impl Field for bool {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<bool>().boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        Some(c.byte()? != 0)
    }
}

/// Text; invalid UTF-8 becomes U+FFFD.
impl Field for String {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        collection::vec(any::<char>(), 0..12).prop_map(Self::from_iter).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        Some(String::from_utf8_lossy(c.bytes()?).into_owned())
    }
}

impl Field for Arc<str> {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        String::any().prop_map(Self::from).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        Some(Arc::from(String::from_utf8_lossy(c.bytes()?)))
    }
}

impl<T: Field> Field for Vec<T> {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        collection::vec(T::any(), 0..9).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.len() as u64);
        self.iter().for_each(|one| one.put(out));
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        c.several(T::get)
    }
    fn numbers(&mut self, on: &mut impl FnMut(Number<'_>)) {
        self.iter_mut().for_each(|one| one.numbers(on));
    }
}

impl Field for [u32; 3] {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(out));
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        Some([u32::get(c)?, u32::get(c)?, u32::get(c)?])
    }
}

/// Two fields in sequence.
impl<A: Field, B: Field> Field for (A, B) {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any()).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        Some((A::get(c)?, B::get(c)?))
    }
    fn numbers(&mut self, on: &mut impl FnMut(Number<'_>)) {
        self.0.numbers(on);
        self.1.numbers(on);
    }
    fn key(&self, key: &mut Key) {
        self.0.key(key);
        self.1.key(key);
    }
}

/// One more than the number; 0 for none.
impl Field for Option<u32> {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.map_or(0, |number| u64::from(number) + 1));
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        match c.u64()? {
            0 => Some(None),
            next => Some(Some((next - 1).try_into().ok()?)),
        }
    }
}

/// A byte that states whether the number is present, then the number.
impl Field for Option<i32> {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(number) = self {
            put(out, zigzag((*number).into()));
        }
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        if bool::get(c)? { Some(Some(unzigzag(c.u64()?).try_into().ok()?)) } else { Some(None) }
    }
}

/// The kind of reference, then its number.
impl Field for Option<KernelRef> {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        let (handle, stub) = (u64::any().prop_map(KernelRef::Handle), u64::any().prop_map(KernelRef::HostStub));
        option::of(prop_oneof![handle, stub]).boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, number) = match *self {
            None => (0_u8, 0),
            Some(KernelRef::Handle(handle)) => (1, handle),
            Some(KernelRef::HostStub(address)) => (2, address),
        };
        (kind, number).put(out);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        let (kind, number) = <(u8, u64)>::get(c)?;
        Some(match kind {
            0 => None,
            1 => Some(KernelRef::Handle(number)),
            _ => Some(KernelRef::HostStub(number)),
        })
    }
}

impl Field for Frame {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        prop_oneof![
            u64::any().prop_map(Self::User),
            u64::any().prop_map(Self::Kernel),
            u32::any().prop_map(Self::Python)
        ]
        .boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_frame(out, &mut 0, *self);
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        get_frame(c, &mut 0)
    }
    fn numbers(&mut self, on: &mut impl FnMut(Number<'_>)) {
        on(Number::Frame(self));
    }
    fn key(&self, key: &mut Key) {
        match *self {
            Self::User(address) => (0_u64, address).key(key),
            Self::Kernel(address) => (1_u64, address).key(key),
            Self::Python(number) => (2_u64, number).key(key),
        }
    }
}

structures! {
    Limits { capability, multiprocessors, threads, blocks, registers, shared_memory, reserved_shared_memory }
}

/// At the end of its record: left out if nothing is known, as in recordings of earlier versions. The same holds for its
/// resources at the end of the identity.
impl Field for DeviceIdentity {
    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        let limits = prop_oneof![Just(Limits::default()), Limits::any()];
        (any_of!((Self) (plain uuid) (plain gpu) (plain pci) (plain machine_index) (plain limits)), limits)
            .prop_map(|(identity, limits)| Self { limits, ..identity })
            .boxed()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        let Self { uuid, gpu, pci, machine_index, limits } = self;
        if *self != Self::default() {
            uuid.put(out);
            gpu.put(out);
            pci.put(out);
            machine_index.put(out);
        }
        if *limits != Limits::default() {
            limits.put(out);
        }
    }
    #[inline]
    fn get(c: &mut Cursor<'_>) -> Option<Self> {
        if c.left() == 0 {
            return Some(Self::default());
        }
        let (uuid, gpu, pci, machine_index) = (Field::get(c)?, Field::get(c)?, Field::get(c)?, Field::get(c)?);
        let limits = if c.left() == 0 { Limits::default() } else { Field::get(c)? };
        Some(Self { uuid, gpu, pci, machine_index, limits })
    }
}

/// The frames of a stack, each as the difference of its address from the previous one.
pub mod frames {
    use super::{Cursor, Frame, get_frame, put, put_frame};

    #[inline]
    pub fn put_all(frames: &[Frame], out: &mut Vec<u8>) {
        put(out, frames.len() as u64);
        let mut last = 0;
        frames.iter().for_each(|frame| put_frame(out, &mut last, *frame));
    }

    #[inline]
    pub fn get_all(c: &mut Cursor<'_>) -> Option<Vec<Frame>> {
        let mut last = 0;
        c.several(|c| get_frame(c, &mut last))
    }
}

/// Intervals: each beginning as its distance from the end before, and each end as its distance from the beginning.
pub mod times {
    use super::{Cursor, put, put_distance};

    #[inline]
    pub fn put_all(times: &[(u64, u64)], out: &mut Vec<u8>) {
        put(out, times.len() as u64);
        let mut last = 0;
        for (start, end) in times {
            put_distance(out, last, *start);
            put_distance(out, *start, *end);
            last = *end;
        }
    }

    #[inline]
    pub fn get_all(c: &mut Cursor<'_>) -> Option<Vec<(u64, u64)>> {
        let mut last = 0;
        c.several(|c| {
            let start = c.distance(last)?;
            last = c.distance(start)?;
            Some((start, last))
        })
    }
}

const USER_FRAME: u8 = 0;
const KERNEL_FRAME: u8 = 1;
const PYTHON_FRAME: u8 = 2;

/// A frame's kind and the difference of its address from the previous one. A Python line is a number and has no
/// address.
#[inline]
fn put_frame(out: &mut Vec<u8>, last: &mut u64, frame: Frame) {
    let (kind, address) = match frame {
        Frame::User(address) => (USER_FRAME, address),
        Frame::Kernel(address) => (KERNEL_FRAME, address),
        Frame::Python(number) => return (PYTHON_FRAME, number).put(out),
    };
    out.push(kind);
    put_distance(out, *last, address);
    *last = address;
}

#[inline]
fn get_frame(c: &mut Cursor<'_>, last: &mut u64) -> Option<Frame> {
    let kind = c.byte()?;
    if kind == PYTHON_FRAME {
        return u32::get(c).map(Frame::Python);
    }
    *last = c.distance(*last)?;
    match kind {
        USER_FRAME => Some(Frame::User(*last)),
        KERNEL_FRAME => Some(Frame::Kernel(*last)),
        _ => None,
    }
}
