//! Arguments as CUPTI's callbacks pass them: in a C struct, in the order of the declaration.
//!
//! A probe sees the words of the calling convention, a callback sees this struct. Both are converted to the same words,
//! so that everything else is the same for both.
//!
//! The injected library does not interpret: it gets, for each callback, how many bytes of the struct to copy and where
//! the pointers are. Both follow from the table of functions, by C's layout rules.

use super::args::{Dims, Kind, places};
use super::call::Call;

/// The struct of a call's parameters, as far as its arguments are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The bytes to capture, from the start of the struct.
    pub length: usize,
    /// For each word of the call: its offset and its size.
    words: Vec<Option<(usize, usize)>>,
}

impl Parameters {
    /// Returns where a word is, as an offset into the struct; `None` if it is not in the struct.
    pub fn offset(&self, word: u8) -> Option<usize> {
        self.words.get(usize::from(word))?.map(|(offset, _)| offset)
    }

    /// Converts the captured bytes of the struct to the words of the call. What was not captured is 0.
    pub fn words(&self, bytes: &[u8]) -> Vec<u64> {
        let read = |(offset, size): (usize, usize)| {
            let mut word = [0; 8];
            if let Some(from) = bytes.get(offset..offset + size) {
                word[..size].copy_from_slice(from);
            }
            u64::from_le_bytes(word)
        };
        self.words.iter().map(|place| place.map_or(0, read)).collect()
    }
}

impl Call {
    /// Returns the layout of its parameters.
    pub fn parameters(&self) -> Parameters {
        let mut end = 0_usize;
        let mut words = Vec::new();
        for (&(_, kind), place) in places(self.args) {
            let (size, align) = size(kind);
            let start = end.next_multiple_of(align);
            end = start + size;
            let pieces = pieces(kind);
            for (&word, (offset, size)) in place.words().iter().zip(pieces) {
                let word = usize::from(word);
                if words.len() <= word {
                    words.resize(word + 1, None);
                }
                words[word] = Some((start + offset, size));
            }
        }
        Parameters { length: end, words }
    }
}

/// Returns the size and the alignment of an argument.
fn size(kind: Kind) -> (usize, usize) {
    match kind {
        Kind::Byte => (1, 1),
        Kind::Short => (2, 2),
        Kind::Int | Kind::Unsigned | Kind::Flags | Kind::Way | Kind::ShortShared | Kind::Float => (4, 4),
        Kind::Grid(_) | Kind::Block(_) => (12, 4),
        Kind::Extent => (24, 8),
        Kind::Pitched => (32, 8),
        Kind::Opaque(bytes) => (bytes.into(), 1),
        Kind::Pointer
        | Kind::Handle
        | Kind::Stream
        | Kind::Bytes
        | Kind::Rows
        | Kind::Layers
        | Kind::Elements(_)
        | Kind::Size
        | Kind::LongFlags
        | Kind::Shared
        | Kind::Kernel
        | Kind::HostStub
        | Kind::Text
        | Kind::Struct(_)
        | Kind::Out(_) => (8, 8),
    }
}

/// Returns the offset and size, within the argument, of each of its words.
fn pieces(kind: Kind) -> Vec<(usize, usize)> {
    match kind {
        Kind::Grid(Dims::Packed) | Kind::Block(Dims::Packed) => vec![(0, 8), (8, 4)],
        Kind::Grid(Dims::Loose) | Kind::Block(Dims::Loose) => vec![(0, 4), (4, 4), (8, 4)],
        Kind::Extent => vec![(0, 8), (8, 8), (16, 8)],
        Kind::Pitched => vec![(0, 8), (8, 8), (16, 8), (24, 8)],
        Kind::Opaque(_) => Vec::new(),
        _ => vec![(0, size(kind).0)],
    }
}

#[cfg(test)]
mod tests {
    use super::super::{all, call};

    /// Check the layout against the structs in CUPTI's headers: the offset of each word, by its number.
    #[test]
    fn layouts_are_those_of_cupti() {
        /// A function, the length of its parameters, and the offset of each word.
        type Case<'a> = (&'a str, usize, &'a [(u8, usize)]);
        let cases: [Case<'_>; 8] = [
            // function, gridDim x y z, blockDim x y z, sharedMemBytes, hStream, kernelParams, extra
            (
                "cuLaunchKernel",
                64,
                &[(0, 0), (1, 8), (2, 12), (3, 16), (4, 20), (5, 24), (6, 28), (7, 32), (8, 40), (9, 48), (10, 56)],
            ),
            // func, gridDim, blockDim, args, sharedMem, stream
            ("cudaLaunchKernel", 56, &[(0, 0), (1, 8), (2, 16), (3, 20), (4, 28), (5, 32), (6, 40), (7, 48)]),
            ("cudaMemcpyAsync", 40, &[(0, 0), (1, 8), (2, 16), (3, 24), (4, 32)]),
            ("cuMemsetD8Async", 32, &[(0, 0), (1, 8), (2, 16), (3, 24)]),
            ("cudaSetDevice", 4, &[(0, 0)]),
            ("cuGraphLaunch", 16, &[(0, 0), (1, 8)]),
            // devPtr, a handle of 64 bytes, flags
            ("cudaIpcOpenMemHandle", 76, &[(0, 0), (1, 72)]),
            ("cudaDeviceReset", 0, &[]),
        ];
        for (name, length, words) in cases {
            let parameters = call(name).expect("known").parameters();
            assert_eq!(parameters.length, length, "{name}");
            for &(word, offset) in words {
                assert_eq!(parameters.offset(word), Some(offset), "word {word} of {name}");
            }
        }
    }

    /// Check that each word is taken from its place with its size, and that a short struct gives zeros.
    #[test]
    fn words_are_read_with_their_size() {
        let parameters = call("cudaLaunchKernel").expect("known").parameters();
        let mut bytes = Vec::new();
        bytes.extend(0x1122_u64.to_le_bytes());
        for number in [2_u32, 3, 4, 5, 6, 7] {
            bytes.extend(number.to_le_bytes());
        }
        for word in [0xaa_u64, 0xbb, 0xcc] {
            bytes.extend(word.to_le_bytes());
        }
        let packed = |x: u64, y: u64| x | y << 32;
        assert_eq!(parameters.words(&bytes), [0x1122, packed(2, 3), 4, packed(5, 6), 7, 0xaa, 0xbb, 0xcc]);
        assert_eq!(parameters.words(&bytes[..20]), [0x1122, packed(2, 3), 4, 0, 0, 0, 0, 0]);
    }

    /// Check that every known function has a layout: all words that are captured are in the struct, within 128 bytes.
    #[test]
    fn every_captured_word_has_a_place() {
        for call in all() {
            let (capture, parameters) = (call.capture(), call.parameters());
            assert!(parameters.length <= 128, "{call:?}: {}", parameters.length);
            assert_eq!(parameters.words(&[]).len(), usize::from(capture.words), "{call:?}");
            let payload = capture.payload.map(|payload| match payload {
                super::super::Payload::Text { word } | super::super::Payload::Bytes { word, .. } => word,
            });
            for word in capture.out.into_iter().chain(payload) {
                let offset = parameters.offset(word).unwrap_or_else(|| panic!("{call:?}: word {word}"));
                assert!(offset + 8 <= parameters.length, "{call:?}");
            }
        }
    }
}
