//! Cubins come from recorded programs. Whatever is changed in one, reading it ends soon, with little memory, and without a panic.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use symbols::cubin::{Barriers, Listing, lines};

/// How many mutants of each cubin are read.
const MUTANTS: usize = 4_000;
/// What reading one of them may take, on a busy machine, and the most memory at a time.
const TIME: Duration = Duration::from_secs(5);
const MEMORY: usize = 64 << 20;

/// Counts the memory in use.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with counters beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are those that it needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Numbers that look random and are the same in each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Changes a cubin in up to 8 places: bits, words with values at the limits, other parts of it, lengths.
fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    const LIMITS: [u64; 8] = [0, 1, 0x7f, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, i64::MIN as u64];
    for _ in 0..=numbers.below(8) {
        let (at, other) = (numbers.below(bytes.len()), numbers.below(bytes.len()));
        let size = [1, 2, 4, 8, 64][numbers.below(5)].min(bytes.len() - at).min(bytes.len() - other);
        // Headers are at both ends, and are worth most of the changes.
        let at = if numbers.below(2) == 0 { at % 64 } else { at }.min(bytes.len() - size);
        match numbers.below(6) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 | 2 => {
                let limit = LIMITS[numbers.below(LIMITS.len())].to_le_bytes();
                let size = size.min(limit.len());
                bytes[at..at + size].copy_from_slice(&limit[..size]);
            }
            3 => bytes.copy_within(other..other + size, at),
            4 => bytes.truncate(bytes.len() - numbers.below(bytes.len() / 4)),
            _ => {
                let part = bytes[other..other + size].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

fn read(cubin: &[u8], offset: u64) {
    let barriers = Barriers::of(cubin);
    for function in ["_Z5waitsPf", "_Z7stridedPKfPfmi", "gather"] {
        let wanted = [(function, offset), (function, 0), (function, u64::MAX)];
        let found = lines(cubin, &wanted);
        assert_eq!(found.len(), wanted.len());
        assert!(found.iter().all(|lines| lines.len() <= 64));
        assert!(barriers.of_wait(function.as_bytes(), offset).is_none_or(|barrier| barrier <= offset));
        let mut listing = Listing::new(cubin, &wanted);
        String::from_utf8_lossy(cubin).lines().for_each(|line| listing.line(line));
        assert_eq!(listing.finish().len(), wanted.len());
    }
}

/// Check thousands of mutants of the cubins of two compilers.
#[test]
fn changed_cubins_are_read_within_limits() {
    let cubins: [&[u8]; 3] = [
        include_bytes!("cubins/triton.cubin"),
        include_bytes!("cubins/nvcc.cubin"),
        include_bytes!("cubins/barriers.cubin"),
    ];
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for (number, cubin) in cubins.into_iter().enumerate() {
        for round in 0..MUTANTS {
            let mut mutant = cubin.to_vec();
            mutate(&mut mutant, &mut numbers);
            let (begun, before) = (Instant::now(), USED.load(Ordering::Relaxed));
            PEAK.store(before, Ordering::Relaxed);
            read(&mutant, 16 * numbers.below(256) as u64);
            let (took, used) = (begun.elapsed(), PEAK.load(Ordering::Relaxed) - before);
            assert!(took < TIME && used < MEMORY, "mutant {round} of cubin {number}: {took:?}, {used} bytes");
        }
    }
}
