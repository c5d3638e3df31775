//! The inverse of decoding, for a reader of what was written: named values in, captured words out.

use super::{
    args::{Dims, Kind, places},
    call::Call,
    payload::Struct,
    values::Direction,
};

/// An argument as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given<'a> {
    /// A number, an address, a handle.
    Number(u64),
    /// A time or a ratio.
    Float(f32),
    /// The dimensions of a grid or a block.
    Dims([u32; 3]),
    /// A string, the direction of a copy, or the name of a kernel in place of its handle.
    Text(&'a str),
}

/// The captured parts of a call, without its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// See [`super::Captured::words`].
    pub words: Vec<u64>,
    /// See [`super::Captured::out`].
    pub out: Option<u64>,
    /// See [`super::Captured::payload`].
    pub payload: Vec<u8>,
}

impl<'a> Given<'a> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Float(number) => Some(number.to_bits().into()),
            Self::Dims(_) => None,
            Self::Text(text) => Some(direction(text)? as u64),
        }
    }
}

fn direction(text: &str) -> Option<Direction> {
    Direction::ALL.into_iter().find(|direction| direction.to_string() == text)
}

impl Call {
    /// Returns captured parts that decode to the given arguments. `sized`: the bytes that the call moves are known.
    /// `kernel` returns a handle for the name of a kernel.
    pub fn encode<'a>(
        &self,
        given: &dyn Fn(&str) -> Option<Given<'a>>,
        sized: bool,
        kernel: &mut dyn FnMut(&'a str) -> u64,
    ) -> Encoded {
        let mut encoded = Encoded { words: vec![0; usize::from(self.capture().words)], ..Encoded::default() };
        // What was not captured is not zero.
        let mut captured = encoded.words.len();
        for (&(name, kind), place) in places(self.args) {
            let value = given(name);
            let number = value.and_then(Given::number);
            let mut extent = None;
            let words: &[u64] = match (kind, value) {
                (Kind::Out(_), _) => {
                    encoded.out = number;
                    continue;
                }
                (Kind::Text, Some(Given::Text(text))) => {
                    encoded.payload = [text.as_bytes(), b"\0"].concat();
                    continue;
                }
                (Kind::Struct(layout), _) => {
                    encoded.payload = layout.bytes(given, sized).unwrap_or_default();
                    continue;
                }
                (Kind::Opaque(_), _) => continue,
                (Kind::Kernel | Kind::HostStub, Some(Given::Text(name))) => &[kernel(name)],
                (Kind::Grid(Dims::Packed) | Kind::Block(Dims::Packed), Some(Given::Dims([x, y, z]))) => {
                    &[u64::from(x) | u64::from(y) << 32, z.into()]
                }
                (Kind::Grid(_) | Kind::Block(_), Some(Given::Dims(dims))) => &dims.map(u64::from),
                // An extent is written as its product.
                (Kind::Extent, _) => number.map_or(&[], |bytes| &*extent.insert([bytes, 1, 1])),
                _ => number.as_slice(),
            };
            if words.is_empty() {
                captured = captured.min(place.first().into());
            }
            for (at, word) in place.words().iter().zip(words) {
                encoded.words[usize::from(*at)] = *word;
            }
        }
        encoded.words.truncate(captured);
        encoded
    }
}

impl Struct {
    /// Returns the bytes of a struct with these members.
    fn bytes<'a>(self, given: &dyn Fn(&str) -> Option<Given<'a>>, sized: bool) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.length().into()];
        let mut put = |at: usize, number: u64, length: usize| {
            bytes[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
        };
        let number = |name: &str| given(name)?.number();
        let way = || match given("kind")? {
            Given::Text(text) => direction(text),
            _ => None,
        };
        // The kinds of memory between which the driver copies.
        let sides = match way() {
            Some(Direction::HtoH) => [1, 1],
            Some(Direction::HtoD) => [1, 2],
            Some(Direction::DtoH) => [2, 1],
            Some(Direction::DtoD) => [2, 2],
            Some(_) => [4, 4],
            None => [0, 0],
        };
        let members: &[(usize, &str)] = match self {
            Struct::DriverLaunch | Struct::RuntimeLaunch => {
                for (at, name) in [(0, "grid"), (12, "block")] {
                    let Given::Dims(dims) = given(name)? else { return None };
                    (0..3).for_each(|i| put(at + 4 * i, dims[i].into(), 4));
                }
                &[(24, "shared"), (32, "stream")]
            }
            Struct::DriverCopy2D => {
                [16, 72].into_iter().zip(sides).for_each(|(at, side)| put(at, side, 4));
                &[(112, "width"), (120, "height")]
            }
            Struct::DriverCopy3D => {
                [32, 120].into_iter().zip(sides).for_each(|(at, side)| put(at, side, 4));
                &[(176, "width"), (184, "height"), (192, "depth")]
            }
            Struct::DriverCopy3DPeer => &[(176, "width"), (184, "height"), (192, "depth")],
            Struct::RuntimeCopy3D | Struct::RuntimeCopy3DPeer => {
                // The size of a copy of an array is not known.
                put(0, u64::from(!sized), 8);
                if let Struct::RuntimeCopy3D = self {
                    put(152, way().map_or(u64::from(u32::MAX), |way| way as u64), 4);
                    &[(128, "width"), (136, "height"), (144, "depth")]
                } else {
                    &[(144, "width"), (152, "height"), (160, "depth")]
                }
            }
            // Components of one byte, as many as the element has bytes.
            Struct::Array2D => {
                put(16, 1, 4);
                put(20, number("element")?, 4);
                &[(0, "width"), (8, "height")]
            }
            Struct::Array3D => {
                put(24, 1, 4);
                put(28, number("element")?, 4);
                &[(0, "width"), (8, "height"), (16, "depth")]
            }
            Struct::Channels => {
                put(0, number("element")?.saturating_mul(8), 4);
                &[]
            }
            Struct::Sizes => &[(0, "bytes")],
        };
        for (at, name) in members {
            put(*at, number(name)?, 8);
        }
        Some(bytes)
    }
}
