//! The memory of PyTorch's caching allocator: what to watch, and the records. The Rust side of `bpf/tensors.h`.

use crate::{
    Cause, HitPoint, HitWeight,
    contract::{
        self,
        types::{hit_limit, tensor_point, tensor_record, tensor_what},
    },
};

/// Places that can be watched in one recording.
pub const MAX_TENSOR_POINTS: usize = hit_limit::MAX_TENSOR_POINTS.0 as usize;

/// A place where PyTorch reports memory, and where its values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorPoint {
    /// A tensor got memory.
    Allocated {
        /// Its first address.
        address: HitWeight,
        /// The requested bytes.
        bytes: HitWeight,
        /// The device, in the process's own numbering.
        device: HitWeight,
    },
    /// The memory of a tensor was given back.
    Freed {
        /// Its first address.
        address: HitWeight,
    },
    /// The program is about to end.
    Shutdown,
}

/// Where to put a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorProbe {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the file of a semaphore that the kernel keeps above 0 while the probe is attached.
    pub semaphore: Option<u64>,
    /// The place's number.
    pub number: u32,
}

/// What happened to the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorChange {
    /// A tensor got memory.
    Allocated {
        /// Its first address.
        address: u64,
        /// The requested bytes.
        bytes: u64,
        /// The device, in the process's own numbering.
        device: u32,
        /// The stack's id, 0 if it could not be taken.
        stack: u64,
        /// The id of its Python part, 0 if there is none.
        python: u64,
        /// The call that handed the work over, if the thread does such work.
        cause: Cause,
    },
    /// The memory of a tensor was given back.
    Freed {
        /// Its first address.
        address: u64,
    },
    /// The program is about to end.
    Shutdown,
}

/// A change of the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRecord {
    /// The process image.
    pub image: u32,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
    /// What happened.
    pub change: TensorChange,
}

impl TensorPoint {
    /// Converts to the layout that the programs read.
    pub(crate) fn to_point(self) -> tensor_point {
        let of = |weight| HitPoint { weight, ..HitPoint::default() }.to_point();
        let (what, address, bytes, device) = match self {
            Self::Allocated { address, bytes, device } => {
                (tensor_what::TENSOR_ALLOCATED, Some(address), Some(bytes), Some(device))
            }
            Self::Freed { address } => (tensor_what::TENSOR_FREED, Some(address), None, None),
            Self::Shutdown => (tensor_what::TENSORS_ABANDONED, None, None, None),
        };
        tensor_point {
            address: of(address),
            bytes: of(bytes),
            device: of(device),
            what: what.0,
            ..tensor_point::default()
        }
    }
}

impl TensorRecord {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let tensor_record { image, time, address, bytes, stack, python, tid, device, what, cause, .. } =
            contract::read(bytes)?;
        let change = match tensor_what(what) {
            tensor_what::TENSOR_ALLOCATED => {
                TensorChange::Allocated { address, bytes, device, stack, python, cause: Cause::of(cause) }
            }
            tensor_what::TENSOR_FREED => TensorChange::Freed { address },
            _ => TensorChange::Shutdown,
        };
        Some(Self { image, tid, time, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HitSource, contract::bytes_of};

    /// Check that a record is read as the C side writes it, and that a truncated one is rejected.
    #[test]
    fn records_have_the_layout_of_the_c_side() {
        let mut bytes = Vec::new();
        for word in [34_u32, 7] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [100_u64, 0x7000, 512, 5, 6] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [1_u32, 2, 3, 0, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let change =
            TensorChange::Allocated { address: 0x7000, bytes: 512, device: 3, stack: 5, python: 6, cause: Cause::None };
        assert_eq!(TensorRecord::parse(&bytes), Some(TensorRecord { image: 7, tid: 2, time: 100, change }));
        assert_eq!(TensorRecord::parse(&bytes[..bytes.len() - 1]), None);
        let address = HitWeight { source: HitSource::Register(5, 0), size: 8, signed: true };
        assert_eq!(bytes_of(&TensorPoint::Freed { address }.to_point()).len(), 56);
    }
}
