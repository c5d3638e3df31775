//! The sizes of PyTorch's blocks.
//!
//! A request is rounded up to 512 bytes, and gets a free block that is at least as large. A larger block is split if its
//! rest is useful: of blocks up to 1 MiB any rest, of larger ones only a rest of more than 1 MiB. Otherwise the tensor holds
//! the whole block. Free neighbours are merged at once, so a free block extends to the next block in use or to the end of
//! its segment. With expandable segments, every block is split.
//!
//! The tracepoint reports the requested size only. The account has the segments and all live blocks, so it knows the
//! free room at an address and can apply the rule. On an H200 with PyTorch 2.11 the result was the same as PyTorch's
//! own, to the byte.

/// Sizes are multiples of this.
const UNIT: u64 = 512;

/// The largest block of the small pool, and the largest rest that is not split off in the large one.
const SMALL: u64 = 1 << 20;

/// Returns the size of the block that holds `requested` bytes. `room` is the free memory from its address on, if its segment
/// is known and is not an expandable one.
pub fn size(requested: u64, room: Option<u64>) -> u64 {
    let rounded = requested.max(1).checked_next_multiple_of(UNIT).unwrap_or(requested);
    match room {
        Some(room) if rounded > SMALL && room >= rounded && room - rounded <= SMALL => room,
        _ => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Check that sizes are rounded up to 512 bytes, and that only large blocks keep a rest, of at most 1 MiB.
    #[test]
    fn blocks_are_rounded_and_split() {
        for (requested, room, block) in [
            (1, None, 512),
            (512, None, 512),
            (513, Some(2 * MIB), 1024),
            (MIB, Some(MIB + 512), MIB),
            (MIB + 1, None, MIB + 512),
            (MIB + 1, Some(20 * MIB), MIB + 512),
            (MIB + 1, Some(2 * MIB), 2 * MIB),
            (19 * MIB, Some(20 * MIB), 20 * MIB),
            (19 * MIB - 1, Some(20 * MIB), 20 * MIB),
            (19 * MIB - 512, Some(20 * MIB), 19 * MIB - 512),
            (12_000_000, Some(12 * MIB), 12 * MIB),
            (5 * MIB, Some(4 * MIB), 5 * MIB),
            (u64::MAX, Some(1), u64::MAX),
        ] {
            assert_eq!(size(requested, room), block, "{requested} in {room:?}");
        }
    }
}
