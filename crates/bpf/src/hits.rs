//! Events that the user names: what to watch, and what was added up. The Rust side of `bpf/hits_shared.h`.

use crate::contract::{
    self,
    types::{hit_key, hit_limit, hit_point, hit_record, hit_register, hit_source, hit_sum},
};

/// Distinct (place, process image, stack) that are added up in the kernel, as a rule: some 40 MiB if all are there.
pub const MAX_HITS: u32 = 262_144;

/// Places that can be watched in one recording.
pub const MAX_HIT_POINTS: usize = hit_limit::MAX_HIT_POINTS.0 as usize;

const NO_REGISTER: u8 = hit_register::NO_REGISTER.0 as u8;

/// A place that is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitPoint {
    /// What a hit weighs; hits are only counted without.
    pub weight: Option<HitWeight>,
    /// It is a function's entry: the stack begins with the caller.
    pub at_entry: bool,
    /// Take the kernel part of the stack, too.
    pub kernel: bool,
}

/// A weight: where it is, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitWeight {
    /// Where.
    pub source: HitSource,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Negative values are possible.
    pub signed: bool,
}

/// Where a weight is. Registers are numbered as in DWARF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitSource {
    /// Nowhere: always this value.
    Constant(i64),
    /// In a register, from this bit on.
    Register(u8, u8),
    /// In the process's memory.
    Memory {
        /// A register that holds an address.
        base: Option<u8>,
        /// A register that is multiplied and added.
        index: Option<(u8, u8)>,
        /// What else is added.
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
    /// At the return of the function that begins there.
    pub returns: bool,
    /// Offset in the file of a counter that the kernel keeps above 0 while the probe is there.
    pub semaphore: Option<u64>,
}

/// By what hits are added up.
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
    /// Keeps equal addresses of different files apart.
    generation: u32,
}

/// Hits added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitSum {
    /// Hits.
    pub count: u64,
    /// Their weights.
    pub weight: u64,
    /// Of the hits, those whose weight was unreadable, negative or 2^56 and more: it is not in `weight`.
    pub outside: u64,
}

/// A key that is new, with a sum of 0; or a hit that found no room in the kernel's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitRecord {
    /// When.
    pub time: u64,
    /// Of what.
    pub key: HitKey,
    /// How much.
    pub sum: HitSum,
}

impl HitPoint {
    /// As the programs read it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A point is written as the C side reads it.
    #[test]
    fn points() {
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
