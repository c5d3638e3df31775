//! Sums kept by the programs: calls, errors, memory, launches.

use crate::contract::{
    self,
    types::{sum, sum_flag, sum_key},
};

/// Calls of one function by one process image, summed in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The process image.
    pub image: u32,
    /// The function's number.
    pub function: u32,
    /// The word by which sums are separated, 0 if there is none.
    pub class: u32,
    /// Whether these are calls nested in calls of the same role.
    pub nested: bool,
    /// Whether these are calls that failed.
    pub failed: bool,
    /// How many.
    pub count: u64,
    /// The number of these that failed.
    pub errors: u64,
    /// Their total time, in nanoseconds.
    pub ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Their time without that of nested calls.
    pub self_ns: u64,
    /// The time of calls not nested in another call of their layer.
    pub outer_ns: u64,
    /// Calls by duration; see `bucket_of` in bpf/sums.h.
    pub buckets: Vec<u64>,
    /// Calls by the number of bits in their bytes.
    pub sizes: Vec<u64>,
}

impl Sum {
    /// Parses a key and its values: one, or one for each CPU.
    pub(crate) fn parse(key: &[u8], values: &[u8]) -> Option<Self> {
        let key: sum_key = contract::read(key)?;
        let has = |flag: sum_flag| key.flags & flag.0 != 0;
        let mut all = Self {
            image: key.image,
            function: key.function,
            class: key.class,
            nested: has(sum_flag::SUM_NESTED),
            failed: has(sum_flag::SUM_FAILED),
            min_ns: u64::MAX,
            ..Self::default()
        };
        for value in values.chunks_exact(size_of::<sum>()) {
            let one: sum = contract::read(value)?;
            all.count += one.count;
            all.errors += one.errors;
            all.ns += one.ns;
            all.max_ns = all.max_ns.max(one.max);
            all.bytes += one.bytes;
            all.self_ns += one.self_ns;
            all.outer_ns += one.outer;
            // A CPU without calls has 0, which must not count as the shortest.
            all.min_ns = all.min_ns.min(!one.inverse_min);
            add(&mut all.buckets, &one.buckets);
            add(&mut all.sizes, &one.sizes);
        }
        Some(all)
    }
}

fn add(all: &mut Vec<u64>, counts: &[u64]) {
    all.resize(counts.len(), 0);
    for (sum, count) in all.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// Failed calls of one function by one process image with one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSum {
    /// The process image.
    pub image: u32,
    /// The function's number.
    pub function: u32,
    /// The result.
    pub code: u32,
    /// Whether they are nested in calls that return a status: the error is counted there.
    pub enclosed: bool,
    /// How many.
    pub count: u64,
}

/// Memory of one process image in one space, with totals of allocations and frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySum {
    /// The process image.
    pub image: u32,
    /// The kind of memory, as in [`Gather::space`].
    pub space: u32,
    /// Bytes that are live.
    pub live_bytes: u64,
    /// Allocations that are live.
    pub live: u64,
    /// The most bytes live at the same time.
    pub peak_bytes: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Frees that succeeded.
    pub frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees that failed.
    pub failed_frees: u64,
    /// Of the frees that succeeded: those of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Allocations whose address was allocated again without a free in between.
    pub missed_frees: u64,
    /// Allocations that were released with their context or device.
    pub released: u64,
    /// Allocations that succeeded but are not tracked: over the process's share, or the map was full.
    pub untracked: u64,
}

/// One allocation that is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The process image.
    pub image: u32,
    /// Its address, or its handle.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was allocated.
    pub time: u64,
    /// The kind of memory, as in [`Gather::space`].
    pub space: u32,
    /// The function that allocated it.
    pub function: u32,
    /// The stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
}

/// Live allocations with one call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The process image.
    pub image: u32,
    /// The function that allocated.
    pub function: u32,
    /// The stack, 0 if none was taken.
    pub stack: u64,
    /// The id of its Python part, 0 if there is none.
    pub python: u64,
    /// Bytes that are live.
    pub bytes: u64,
    /// Allocations that are live.
    pub count: u64,
    /// Since when there has always been at least one.
    pub since: u64,
}

/// Launches of one kernel by one process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSum {
    /// The process image.
    pub image: u32,
    /// The kernel's handle, or the address of its host function; 0 for kernels that did not fit.
    pub address: u64,
    /// Whether it is a handle.
    pub handle: bool,
    /// Launches that succeeded.
    pub count: u64,
    /// Grid dimensions of the last launch, in blocks.
    pub grid: [u32; 3],
    /// Block dimensions of the last launch, in threads.
    pub block: [u32; 3],
}
