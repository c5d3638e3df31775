//! The members, by offset, of structs behind a pointer argument.
//!
//! The layouts are those of 64-bit Linux, unchanged since CUDA 4 (copies) and 11.8 (launch configurations).

use super::args::{Dims, Kind};
use super::payload::Struct;
use super::values::{Direction, Field, Value};

impl Struct {
    /// Returns its members. `next` is the argument word after the pointer. `None` if the bytes end before the struct
    /// does.
    pub(super) fn fields(self, bytes: &[u8], next: Option<u64>) -> Option<Vec<(Kind, Field)>> {
        let bytes = Bytes(bytes);
        match self {
            Struct::DriverLaunch => bytes.launch(Kind::ShortShared),
            Struct::RuntimeLaunch => bytes.launch(Kind::Shared),
            Struct::DriverCopy2D => {
                let way = driver_direction(bytes.short(16)?, bytes.short(72)?);
                bytes.copy(way, [112, 120], None)
            }
            Struct::DriverCopy3D => {
                let way = driver_direction(bytes.short(32)?, bytes.short(120)?);
                bytes.copy(way, [176, 184], Some(192))
            }
            Struct::DriverCopy3DPeer => bytes.copy(Some(Direction::Peer), [176, 184], Some(192)),
            Struct::RuntimeCopy3D => {
                let way = Direction::from_kind(bytes.short(152)?.into());
                bytes.runtime_copy(way, [0, 64], 128)
            }
            Struct::RuntimeCopy3DPeer => bytes.runtime_copy(Some(Direction::Peer), [0, 72], 144),
            Struct::Array2D => {
                let element = format_bytes(bytes.short(16)?)? * u64::from(bytes.short(20)?);
                Some(vec![bytes.elements(0)?, bytes.layers("height", 8)?, element_bytes(element)])
            }
            Struct::Array3D => {
                let element = format_bytes(bytes.short(24)?)? * u64::from(bytes.short(28)?);
                Some(vec![
                    bytes.elements(0)?,
                    bytes.layers("height", 8)?,
                    bytes.layers("depth", 16)?,
                    element_bytes(element),
                ])
            }
            Struct::Channels => {
                let bits = (0..4).try_fold(0, |sum, i| Some(sum + u64::from(bytes.short(4 * i)?)))?;
                Some(vec![element_bytes(bits / 8)])
            }
            Struct::Sizes => {
                let count = usize::try_from(next?).ok().filter(|&count| count <= bytes.0.len() / 8)?;
                let total = (0..count).try_fold(0u64, |sum, i| sum.checked_add(bytes.long(8 * i)?))?;
                Some(vec![(Kind::Bytes, Field { name: "bytes", value: Value::Bytes(total) })])
            }
        }
    }
}

/// Returns the direction for two `CUmemorytype`s: host 1, device 2, array 3, unified 4.
fn driver_direction(from: u32, to: u32) -> Option<Direction> {
    Some(match (from, to) {
        (1, 1) => Direction::HtoH,
        (1, 2 | 3) => Direction::HtoD,
        (2 | 3, 1) => Direction::DtoH,
        (2 | 3, 2 | 3) => Direction::DtoD,
        (1..=4, 1..=4) => Direction::Default,
        _ => return None,
    })
}

/// Returns the bytes of one component of a `CUarray_format`. Packed and block-compressed formats are not supported.
fn format_bytes(format: u32) -> Option<u64> {
    match format {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

fn element_bytes(bytes: u64) -> (Kind, Field) {
    (Kind::Bytes, Field { name: "element", value: Value::Bytes(bytes) })
}

/// Captured bytes, read by offset.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn short(&self, offset: usize) -> Option<u32> {
        self.at(offset).map(u32::from_le_bytes)
    }

    fn long(&self, offset: usize) -> Option<u64> {
        self.at(offset).map(u64::from_le_bytes)
    }

    fn field(&self, name: &'static str, kind: Kind, offset: usize) -> Option<(Kind, Field)> {
        Some((kind, Field { name, value: kind.value(&[self.long(offset)?])? }))
    }

    fn elements(&self, offset: usize) -> Option<(Kind, Field)> {
        self.field("width", Kind::Rows, offset)
    }

    fn layers(&self, name: &'static str, offset: usize) -> Option<(Kind, Field)> {
        self.field(name, Kind::Layers, offset)
    }

    /// Six dimensions, shared memory at 24, the stream at 32: the same in both libraries.
    fn launch(&self, shared: Kind) -> Option<Vec<(Kind, Field)>> {
        let dims = |at| Some(Value::Dims([self.short(at)?, self.short(at + 4)?, self.short(at + 8)?]));
        Some(vec![
            (Kind::Grid(Dims::Packed), Field { name: "grid", value: dims(0)? }),
            (Kind::Block(Dims::Packed), Field { name: "block", value: dims(12)? }),
            self.field("shared", shared, 24)?,
            self.field("stream", Kind::Stream, 32)?,
        ])
    }

    /// Reads the extent, then the direction.
    fn copy(
        &self,
        way: Option<Direction>,
        [width, height]: [usize; 2],
        depth: Option<usize>,
    ) -> Option<Vec<(Kind, Field)>> {
        let mut fields = vec![self.field("width", Kind::Bytes, width)?, self.field("height", Kind::Rows, height)?];
        if let Some(depth) = depth {
            fields.push(self.field("depth", Kind::Rows, depth)?);
        }
        fields.extend(way.map(|way| (Kind::Way, Field { name: "kind", value: Value::Direction(way) })));
        Some(fields)
    }

    /// An extent is in bytes, unless one side is an array: then it is in that array's elements, whose size is unknown
    /// here.
    fn runtime_copy(&self, way: Option<Direction>, arrays: [usize; 2], extent: usize) -> Option<Vec<(Kind, Field)>> {
        let mut fields = self.copy(way, [extent, extent + 8], Some(extent + 16))?;
        if self.long(arrays[0])? != 0 || self.long(arrays[1])? != 0 {
            for (kind, field) in fields.iter_mut().filter(|(kind, _)| kind.counts()) {
                *kind = Kind::Size;
                if let Value::Bytes(width) = field.value {
                    field.value = Value::Unsigned(width);
                }
            }
        }
        Some(fields)
    }
}
