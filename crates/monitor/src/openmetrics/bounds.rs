//! The bucket bounds of histograms.

/// Bounds of durations in nanoseconds: powers of two, as the BPF programs count, from 1 µs to 4 s.
pub const DURATION_BOUNDS: [u64; 12] = powers(10, 2);
/// Bounds of sizes in bytes: 256 B to 4 GiB.
pub const SIZE_BOUNDS: [u64; 7] = powers(8, 4);

const fn powers<const N: usize>(first: u32, step: u32) -> [u64; N] {
    let mut bounds = [0; N];
    let mut place = 0;
    while place < N {
        bounds[place] = 1 << (first + step * place as u32);
        place += 1;
    }
    bounds
}
