//! Numbers that identify processes, stacks and sessions within a recording.

use serde::Serialize;

/// One program image in one process: created at fork or exec, ended at exec or exit. Unlike a pid it is never reused
/// within a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ProcessId(pub u32);

/// A distinct call stack of one process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StackId(pub u64);

impl StackId {
    /// Stands for the stack of a launch whose stack was not taken, because stacks were sampled.
    pub const NOT_SAMPLED: Self = Self(u64::MAX);
    /// Stands for the stacks of a process that has had too many distinct ones.
    pub const LEFT_OUT: Self = Self(u64::MAX - 1);

    /// Whether it stands for a stack that was deliberately not recorded.
    pub fn is_placeholder(self) -> bool {
        matches!(self, Self::NOT_SAMPLED | Self::LEFT_OUT)
    }
}

/// The bits that numbers of one recording use; in recordings that are read as one, those above are the recording's index.
pub const RECORDING_BITS: u32 = 24;

/// The connection of one injected library: one CUDA process. The first is 0; numbers are dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionId(pub u32);

impl SessionId {
    /// Returns the index of the recording that it belongs to.
    pub fn recording(self) -> usize {
        (self.0 >> RECORDING_BITS) as usize
    }
}

/// The UUID of a GPU or of an instance of one; 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub u128);

impl Uuid {
    /// Whether it is known.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// Reads `GPU-5f3c2d1e-...` or `MIG-...`, or the same without the prefix.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or(text);
        let dashes = digits.match_indices('-').map(|(at, _)| at);
        if digits.len() != 36 || !dashes.eq([8, 13, 18, 23]) {
            return None;
        }
        u128::from_str_radix(&digits.replace('-', ""), 16).ok().map(Self)
    }
}

/// `5f3c2d1e-0b6a-4d2f-9c1b-7a8e6d5c4b3a`, without a prefix.
impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(number) = self;
        let part = |shift: u32, bits: u32| (number >> shift) & ((1 << bits) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 32),
            part(80, 16),
            part(64, 16),
            part(48, 16),
            part(0, 48)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a UUID is written as nvidia-smi writes it, and that only that form is read.
    #[test]
    fn uuids_round_trip() {
        let uuid = Uuid(0x5f3c_2d1e_0b6a_4d2f_9c1b_7a8e_6d5c_4b3a);
        assert_eq!(uuid.to_string(), "5f3c2d1e-0b6a-4d2f-9c1b-7a8e6d5c4b3a");
        for prefix in ["GPU-", "MIG-", ""] {
            assert_eq!(Uuid::parse(&format!("{prefix}{uuid}")), Some(uuid));
        }
        for bad in ["", "GPU-", "GPU-????????-????-????-????-????????????", "5f3c2d1e0b6a4d2f9c1b7a8e6d5c4b3a-+--"] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
