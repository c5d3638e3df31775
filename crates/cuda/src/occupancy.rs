//! Occupancy: how many warps of a kernel a multiprocessor can hold at once, what limits that number, and how the blocks
//! of a grid fill the device.
//!
//! A block runs on one multiprocessor, and needs room there for all its warps, registers and shared memory at once. The
//! resources of a multiprocessor are reported by the driver; only the units in which they are allocated depend on the
//! compute capability:
//!
//! - Warps are 32 threads; a block has whole warps.
//! - Registers are allocated to warps, in units of 256. The register file is divided equally among the partitions of the
//!   multiprocessor (four; two in compute capability 6.0), so each partition holds whole warps.
//! - Shared memory is allocated to blocks, in units of 128 bytes from compute capability 8.0 on, and of 256 bytes before.
//!   The system reserves some for each block from 8.0 on, which the driver reports too.
//!
//! This is what the hardware could hold. Fewer warps run if the grid is small, if blocks end at different times, or if
//! clusters of blocks do not fit.

/// Threads in a warp.
pub const WARP: u32 = 32;
/// The unit in which registers are allocated to a warp.
const REGISTER_UNIT: u64 = 256;

/// The resources of a device; all 0 if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The compute capability: major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The most threads of a multiprocessor.
    pub threads: u32,
    /// The most blocks of a multiprocessor.
    pub blocks: u32,
    /// Registers of a multiprocessor.
    pub registers: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_memory: u32,
    /// Bytes of shared memory that the system reserves for each block.
    pub reserved_shared_memory: u32,
}

impl Limits {
    /// Whether they are known.
    pub fn is_known(&self) -> bool {
        [self.multiprocessors, self.threads / WARP, self.blocks, self.registers, self.shared_memory]
            .iter()
            .all(|limit| *limit > 0)
    }

    fn partitions(&self) -> u64 {
        if self.capability == (6, 0) { 2 } else { 4 }
    }

    fn shared_unit(&self) -> u64 {
        if self.capability.0 >= 8 { 128 } else { 256 }
    }
}

/// What a kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared_memory: u32,
}

impl Shape {
    /// Returns the shape of a launch.
    pub fn of(grid: [u32; 3], block: [u32; 3], registers: u16, shared_memory: u32) -> Self {
        let blocks = grid.iter().fold(1_u64, |all, one| all.saturating_mul((*one).into()));
        let threads = block.iter().fold(1_u32, |all, one| all.saturating_mul(*one));
        Self { blocks, threads, registers, shared_memory }
    }
}

/// What limits the number of warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limiter {
    /// Nothing: the multiprocessor is full.
    None,
    /// The registers of a thread.
    Registers,
    /// The shared memory of a block.
    SharedMemory,
    /// The number of warps of a block: another block does not fit.
    BlockSize,
    /// The number of blocks that a multiprocessor can hold: blocks are small.
    Blocks,
}

impl Limiter {
    /// Returns it in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::BlockSize => "block size",
            Self::Blocks => "blocks per SM",
        }
    }
}

/// How a kernel fills a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks that a multiprocessor holds at once.
    pub blocks: u32,
    /// Warps that it then holds.
    pub warps: u32,
    /// Warps that it could hold.
    pub most_warps: u32,
    /// What limits the number.
    pub limiter: Limiter,
    /// Blocks that the device holds at once: one wave.
    pub wave: u64,
    /// Waves that the grid needs; the last one may be partly full.
    pub waves: u64,
    /// Blocks in the last wave.
    pub last_wave: u64,
    /// Multiprocessors that get a block.
    pub multiprocessors: u32,
}

impl Occupancy {
    /// Returns the occupancy of a kernel; `None` if the device is not known or the numbers do not fit it.
    pub fn of(limits: &Limits, shape: &Shape) -> Option<Self> {
        if !limits.is_known() || shape.threads == 0 || shape.blocks == 0 {
            return None;
        }
        let warps = shape.threads.div_ceil(WARP);
        let most_warps = limits.threads / WARP;
        let per_warp = (u64::from(shape.registers) * u64::from(WARP)).next_multiple_of(REGISTER_UNIT);
        let by_registers = match per_warp {
            0 => u32::MAX,
            per_warp => {
                let in_partition = u64::from(limits.registers) / limits.partitions() / per_warp;
                (in_partition * limits.partitions() / u64::from(warps)) as u32
            }
        };
        let per_block = u64::from(shape.shared_memory) + u64::from(limits.reserved_shared_memory);
        let by_shared_memory = match per_block.next_multiple_of(limits.shared_unit()) {
            0 => u32::MAX,
            per_block => (u64::from(limits.shared_memory) / per_block) as u32,
        };
        // Of equal limits, the first one: what the user can change most easily.
        let candidates = [
            (by_registers, Limiter::Registers),
            (by_shared_memory, Limiter::SharedMemory),
            (most_warps / warps, Limiter::BlockSize),
            (limits.blocks, Limiter::Blocks),
        ];
        let (blocks, limiter) = candidates.into_iter().min_by_key(|(blocks, _)| *blocks)?;
        if blocks == 0 {
            return None;
        }
        let full = blocks * warps == most_warps;
        let wave = u64::from(blocks) * u64::from(limits.multiprocessors);
        let waves = shape.blocks.div_ceil(wave);
        Some(Self {
            blocks,
            warps: blocks * warps,
            most_warps,
            limiter: if full { Limiter::None } else { limiter },
            wave,
            waves,
            last_wave: shape.blocks - (waves - 1) * wave,
            multiprocessors: shape.blocks.min(limits.multiprocessors.into()) as u32,
        })
    }

    /// Returns the warps as a share of those that the multiprocessor could hold.
    pub fn share(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.most_warps.max(1))
    }

    /// Returns how full the waves are: 1 if the last wave is full.
    pub fn wave_share(&self) -> f64 {
        let blocks = (self.waves - 1).saturating_mul(self.wave).saturating_add(self.last_wave);
        blocks as f64 / (self.waves as f64 * self.wave as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    fn limits(capability: (u32, u32), multiprocessors: u32, [warps, blocks, shared]: [u32; 3]) -> Limits {
        Limits {
            capability,
            multiprocessors,
            threads: warps * WARP,
            blocks,
            registers: 65_536,
            shared_memory: shared * KIB,
            reserved_shared_memory: if capability.0 >= 8 { KIB } else { 0 },
        }
    }

    fn h200() -> Limits {
        limits((9, 0), 132, [64, 32, 228])
    }

    fn warps(limits: &Limits, threads: u32, registers: u16, shared_memory: u32) -> Option<(u32, Limiter)> {
        let shape = Shape { blocks: 1, threads, registers, shared_memory };
        Occupancy::of(limits, &shape).map(|occupancy| (occupancy.warps, occupancy.limiter))
    }

    /// Check the warps and the limiter against the rules of each generation, worked out by hand.
    #[test]
    fn warps_and_limiters() {
        let h200 = h200();
        assert_eq!(warps(&h200, 256, 32, 0), Some((64, Limiter::None)));
        // 40 registers are 1,280 of a warp; 12 warps fit into the 16,384 of a partition: 48 warps, six blocks of eight.
        assert_eq!(warps(&h200, 256, 40, 0), Some((48, Limiter::Registers)));
        // 33 registers are rounded up to 40.
        assert_eq!(warps(&h200, 256, 33, 0), Some((48, Limiter::Registers)));
        // 255 registers: 8,192 of a warp, two warps in a partition.
        assert_eq!(warps(&h200, 128, 255, 0), Some((8, Limiter::Registers)));
        // One KiB of each block is reserved: 228 KiB hold two blocks of 100 KiB, and one of 114 KiB.
        assert_eq!(warps(&h200, 256, 32, 100 * KIB), Some((16, Limiter::SharedMemory)));
        assert_eq!(warps(&h200, 256, 32, 113 * KIB), Some((16, Limiter::SharedMemory)));
        assert_eq!(warps(&h200, 256, 32, 113 * KIB + 1), Some((8, Limiter::SharedMemory)));
        // Two blocks of 24 warps are 48; 16 places stay empty.
        assert_eq!(warps(&h200, 768, 16, 0), Some((48, Limiter::BlockSize)));
        assert_eq!(warps(&h200, 32, 16, 0), Some((32, Limiter::Blocks)));
        assert_eq!(warps(&h200, 33, 16, 0), Some((64, Limiter::None)));
        // GeForce RTX 3090: 48 warps, 16 blocks. T4: 32 warps, shared memory in units of 256 bytes.
        let rtx_3090 = limits((8, 6), 82, [48, 16, 100]);
        assert_eq!(warps(&rtx_3090, 1024, 32, 0), Some((32, Limiter::BlockSize)));
        assert_eq!(warps(&rtx_3090, 64, 32, 0), Some((32, Limiter::Blocks)));
        let t4 = limits((7, 5), 40, [32, 16, 64]);
        assert_eq!(warps(&t4, 256, 64, 0), Some((32, Limiter::None)));
        assert_eq!(warps(&t4, 128, 32, 8 * KIB + 1), Some((28, Limiter::SharedMemory)));
        // P100: two partitions of 32,768 registers hold 12 warps of 2,560 each; four partitions would hold 6 each.
        let p100 = limits((6, 0), 56, [64, 32, 64]);
        assert_eq!(warps(&p100, 32, 80, 0), Some((24, Limiter::Registers)));
    }

    /// Check the waves of grids that are smaller than the device, that fill it, and that are one block too large.
    #[test]
    fn waves_and_their_tail() {
        let of = |blocks| {
            let shape = Shape { blocks, threads: 256, registers: 32, shared_memory: 0 };
            Occupancy::of(&h200(), &shape).expect("it fits")
        };
        let parts = |occupancy: Occupancy| (occupancy.waves, occupancy.last_wave, occupancy.multiprocessors);
        // Eight blocks on each of 132 multiprocessors.
        assert_eq!(of(1).wave, 1056);
        assert_eq!(parts(of(8)), (1, 8, 8));
        assert_eq!(parts(of(1056)), (1, 1056, 132));
        assert_eq!(parts(of(1057)), (2, 1, 132));
        assert_eq!(of(1056).wave_share(), 1.0);
        assert_eq!(of(1584).wave_share(), 0.75);
        assert_eq!(parts(of(u64::MAX)).2, 132);
    }

    /// Check that nothing is said about unknown devices, nor about numbers that cannot be right.
    #[test]
    fn contradictory_numbers_have_no_occupancy() {
        let fits = Shape { blocks: 1, threads: 32, registers: 16, shared_memory: 0 };
        assert_eq!(Occupancy::of(&Limits::default(), &fits), None);
        for shape in [
            Shape { threads: 0, ..fits },
            Shape { blocks: 0, ..fits },
            Shape { threads: u32::MAX, ..fits },
            Shape { registers: u16::MAX, ..fits },
            Shape { shared_memory: u32::MAX, ..fits },
        ] {
            assert_eq!(Occupancy::of(&h200(), &shape), None, "{shape:?}");
        }
        let huge = Shape::of([u32::MAX; 3], [u32::MAX; 3], 1, 1);
        assert_eq!((huge.blocks, huge.threads), (u64::MAX, u32::MAX));
        assert_eq!(Shape::of([2, 3, 4], [8, 4, 1], 1, 1).blocks, 24);
    }
}
