//! Events named by the user: what to watch, and the sums. The Rust side of `bpf/shared/hits.h`.

use crate::contract::{
    self,
    types::{hit_key, hit_limit, hit_point, hit_record, hit_register, hit_source, hit_sum, wait_reason, wait_record},
};

/// The default limit of distinct (place, process image, stack) keys in the kernel: about 40 MiB if all are used.
pub const MAX_HITS: u32 = 262_144;

/// Places that can be watched in one recording.
pub const MAX_HIT_POINTS: usize = hit_limit::MAX_HIT_POINTS.0 as usize;

/// What a thread waits for, by number: these are the first places of a recording with time off the CPU.
pub const WAIT_REASONS: [&str; wait_reason::WAIT_REASONS.0 as usize] = [
    "[waiting for a CPU]",
    "[waiting for a lock]",
    "[sleeping]",
    "[waiting for events]",
    "[waiting for I/O]",
    "[waiting for a process]",
    "[waiting for a driver]",
    "[waiting for memory]",
    "[waiting]",
    "[short waits]",
];

const NO_REGISTER: u8 = hit_register::NO_REGISTER.0 as u8;

/// A watched place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitPoint {
    /// The weight of a hit; `None` to only count hits.
    pub weight: Option<HitWeight>,
    /// Whether it is a function's entry: the stack begins with the caller.
    pub at_entry: bool,
    /// Whether to take the kernel part of the stack, too.
    pub kernel: bool,
}

/// A weight: its location, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitWeight {
    /// Its location.
    pub source: HitSource,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether values can be negative.
    pub signed: bool,
}

/// The location of a weight. Registers have DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitSource {
    /// A constant.
    Constant(i64),
    /// In a register, starting at this bit.
    Register(u8, u8),
    /// In the process's memory.
    Memory {
        /// A register that holds an address.
        base: Option<u8>,
        /// A register, and the factor by which it is multiplied before it is added.
        index: Option<(u8, u8)>,
        /// A constant that is added.
        offset: i64,
    },
    /// In the record of a tracepoint.
    Field(u16),
}

/// Where to put a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitProbe {
    /// Offset in the file.
    pub offset: u64,
    /// The place's number.
    pub point: u32,
    /// Whether to probe the return of the function that begins there.
    pub returns: bool,
    /// Offset in the file of a semaphore that the kernel keeps above 0 while the probe is attached.
    pub semaphore: Option<u64>,
}

/// The key for summing hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HitKey {
    /// The stack's id, 0 if it could not be taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// The process image.
    pub image: u32,
    /// The place's number.
    pub point: u32,
    /// Distinguishes equal addresses of different files.
    generation: u32,
}

/// A sum of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitSum {
    /// The number of hits.
    pub count: u64,
    /// The sum of their weights.
    pub weight: u64,
    /// Hits whose weight was unreadable, negative or 2^56 and more: not included in `weight`.
    pub outside: u64,
}

/// A new key, with a sum of 0; or a hit that did not fit into the kernel's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitRecord {
    /// When.
    pub time: u64,
    /// The key.
    pub key: HitKey,
    /// The amount.
    pub sum: HitSum,
}

impl HitPoint {
    /// Converts to the layout that the programs read.
    pub(crate) fn to_point(self) -> hit_point {
        let mut point = hit_point {
            base: NO_REGISTER,
            index: NO_REGISTER,
            at_entry: self.at_entry.into(),
            kernel: self.kernel.into(),
            ..hit_point::default()
        };
        let Some(HitWeight { source, size, signed }) = self.weight else { return point };
        (point.size, point.is_signed) = (size, signed.into());
        let kind = match source {
            HitSource::Constant(value) => {
                point.offset = value;
                hit_source::SOURCE_CONSTANT
            }
            HitSource::Register(register, shift) => {
                (point.base, point.offset) = (register, shift.into());
                hit_source::SOURCE_REGISTER
            }
            HitSource::Memory { base, index, offset } => {
                (point.base, point.offset) = (base.unwrap_or(NO_REGISTER), offset);
                (point.index, point.scale) = index.unwrap_or((NO_REGISTER, 0));
                hit_source::SOURCE_MEMORY
            }
            HitSource::Field(at) => {
                point.offset = at.into();
                hit_source::SOURCE_FIELD
            }
        };
        point.source = kind.0 as u8;
        point
    }
}

impl From<hit_key> for HitKey {
    fn from(hit_key { stack, python, image, point, generation, .. }: hit_key) -> Self {
        Self { stack, python, image, point, generation }
    }
}

impl From<hit_sum> for HitSum {
    fn from(hit_sum { count, weight, outside }: hit_sum) -> Self {
        Self { count, weight, outside }
    }
}

impl HitRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let hit_record { time, key, sum, .. } = contract::read(bytes)?;
        Some(Self { time, key: key.into(), sum: sum.into() })
    }
}

/// A thread that launches GPU work was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    /// The thread.
    pub tid: u32,
    /// When it left the CPU.
    pub time: u64,
    /// When it ran again.
    pub end: u64,
    /// Its stack; the place is the reason.
    pub key: HitKey,
}

impl WaitRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let wait_record { tid, time, end, key, .. } = contract::read(bytes)?;
        Some(Self { tid, time, end, key: key.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a point is written in the layout of the C side.
    #[test]
    fn points_have_the_layout_of_the_c_side() {
        let source = HitSource::Memory { base: Some(6), index: Some((3, 8)), offset: -16 };
        let weight = HitWeight { source, size: 4, signed: true };
        let point = HitPoint { weight: Some(weight), at_entry: false, kernel: true };
        let mut expected = vec![3, 4, 1, 6, 3, 8, 0, 1];
        expected.extend((-16_i64).to_ne_bytes());
        assert_eq!(contract::bytes_of(&point.to_point()), expected);
        let counted = HitPoint { at_entry: true, ..HitPoint::default() };
        let expected = [0, 0, 0, NO_REGISTER, NO_REGISTER, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(contract::bytes_of(&counted.to_point()), expected);
    }
}
