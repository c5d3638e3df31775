//! The fault of a round.

use std::time::Duration;

/// Random numbers that depend only on the seed and the round (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from a range.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// Returns one of several values.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0..of.len() as u64) as usize]
    }
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// warpscope is killed.
    KillTool,
    /// The target is killed.
    KillTarget,
    /// warpscope is stopped for a while.
    StopTool(Duration),
    /// The target is stopped for a while.
    StopTarget(Duration),
    /// Ctrl-C: SIGINT to both.
    Interrupt,
    /// SIGINT to warpscope alone.
    InterruptTool,
    /// The outputs are on a disk of this many KiB.
    SmallDisk(u64),
    /// No file may be larger than this many bytes.
    FileSize(u64),
    /// warpscope and the target may open this many descriptors.
    Descriptors(u64),
    /// The recording is truncated while it is being written.
    CutWhileWritten,
    /// The recording is truncated afterwards, to this many thousandths of its length.
    CutAfterwards(u64),
    /// Bytes of the recording are changed afterwards.
    Changed(u64),
}

impl Fault {
    pub fn random(random: &mut Random) -> Self {
        let pause = Duration::from_millis(random.within(1..400));
        match random.within(0..13) {
            0 => Self::None,
            1 | 2 => Self::KillTool,
            3 => Self::KillTarget,
            4 => Self::StopTool(pause),
            5 => Self::StopTarget(pause),
            6 => Self::Interrupt,
            7 => Self::InterruptTool,
            8 => Self::SmallDisk(random.within(4..300)),
            9 => Self::FileSize(random.within(1..200_000)),
            10 => Self::Descriptors(random.within(4..60)),
            11 => Self::CutWhileWritten,
            _ if random.next() & 1 == 0 => Self::CutAfterwards(random.within(0..1000)),
            _ => Self::Changed(random.next()),
        }
    }

    /// Whether the target runs to its end.
    pub fn leaves_the_target_alone(self) -> bool {
        !matches!(
            self,
            Self::KillTarget | Self::Interrupt | Self::InterruptTool | Self::Descriptors(_) | Self::FileSize(_)
        )
    }

    /// Whether warpscope runs to its end and can write its outputs.
    pub fn leaves_the_tool_alone(self) -> bool {
        matches!(self, Self::None | Self::StopTool(_) | Self::StopTarget(_) | Self::CutAfterwards(_) | Self::Changed(_))
    }
}
