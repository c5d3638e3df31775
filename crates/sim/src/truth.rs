//! The ground truth: what really happened, counted at its source.
//!
//! With `truth=FILE` in the script, a process that exits normally (`exit`, or a return from `main`) appends one JSON
//! line to the file, in one write. A process that is killed, calls `_exit`, or never calls CUDA writes none. The line
//! is written by an exit handler that is registered before the injected library is loaded, so that it runs after the
//! handlers of that library.
//!
//! Fields: `pid`; `launched` {`kernel`, `copy`, `memset`, `graph`}: successful calls that submitted work to the GPU;
//! `captured`: launch-class calls that only added a node to a graph being captured; `waits`: calls in which the host
//! waited for the GPU; `failed`: outermost API calls that returned an error; `produced`, `delivered` {`kernel`, `copy`,
//! `memset`, `sync`}: activity records of enabled kinds (a graph launch produces one for each node); `dropped`: records
//! dropped; `zero_time`, `unfinished`: of the delivered; `kernel_ns`: sum over delivered kernels with both times known;
//! `callbacks`: calls of the subscriber's callback; `first_correlation`, `last_correlation`: 0 if no id was assigned;
//! `correlations`: the number of ids assigned.
//!
//! After all records are flushed, `produced` = `delivered` + `dropped`, summed over kinds.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::ids::kind;

/// A counter that any thread may add to.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to the counter; returns the count before.
    pub fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count for each kind of record.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Kinds {
    /// Kernels, and graphs that are recorded as wholes.
    pub kernel: Counter,
    /// Copies, including peer copies.
    pub copy: Counter,
    /// Memsets.
    pub memset: Counter,
    /// Waits.
    pub sync: Counter,
}

impl Kinds {
    const fn new() -> Self {
        Self { kernel: Counter::new(), copy: Counter::new(), memset: Counter::new(), sync: Counter::new() }
    }

    /// Returns the counter of an activity kind.
    pub fn of(&self, activity_kind: u32) -> &Counter {
        match activity_kind {
            kind::CONCURRENT_KERNEL | kind::GRAPH_TRACE => &self.kernel,
            kind::MEMCPY | kind::MEMCPY2 => &self.copy,
            kind::MEMSET => &self.memset,
            _ => &self.sync,
        }
    }

    fn json(&self) -> String {
        let Self { kernel, copy, memset, sync } = self;
        let (kernel, copy, memset, sync) = (kernel.get(), copy.get(), memset.get(), sync.get());
        format!(r#"{{"kernel":{kernel},"copy":{copy},"memset":{memset},"sync":{sync}}}"#)
    }
}

/// All counters. Only those of the fake libcuda are used.
#[derive(Debug)]
#[repr(C)]
pub struct Truth {
    /// Kernel launches.
    pub kernels: Counter,
    /// Copies.
    pub copies: Counter,
    /// Memsets.
    pub memsets: Counter,
    /// Graph launches.
    pub graphs: Counter,
    /// Launch-class calls that were captured.
    pub captured: Counter,
    /// Calls in which the host waited for the GPU.
    pub waits: Counter,
    /// Outermost API calls that returned an error.
    pub failed: Counter,
    /// Records produced.
    pub produced: Kinds,
    /// Records returned to the client.
    pub delivered: Kinds,
    /// Records dropped.
    pub dropped: Counter,
    /// Delivered records without times.
    pub zero_time: Counter,
    /// Delivered records that never finished.
    pub unfinished: Counter,
    /// Time of delivered kernels.
    pub kernel_ns: Counter,
    /// Calls of the subscriber's callback.
    pub callbacks: Counter,
    /// Correlation ids assigned.
    pub correlations: Counter,
}

/// This library's counters.
pub static TRUTH: Truth = Truth {
    kernels: Counter::new(),
    copies: Counter::new(),
    memsets: Counter::new(),
    graphs: Counter::new(),
    captured: Counter::new(),
    waits: Counter::new(),
    failed: Counter::new(),
    produced: Kinds::new(),
    delivered: Kinds::new(),
    dropped: Counter::new(),
    zero_time: Counter::new(),
    unfinished: Counter::new(),
    kernel_ns: Counter::new(),
    callbacks: Counter::new(),
    correlations: Counter::new(),
};

/// Returns the nth correlation id (from 0) of a process whose first one is `first`: ids wrap and skip 0.
pub fn correlation(first: u32, nth: u64) -> u32 {
    // There are 2^32 - 1 ids, 1 to 2^32 - 1; count from 0 among those.
    ((u64::from(first) - 1 + nth) % u64::from(u32::MAX)) as u32 + 1
}

impl Truth {
    /// Returns the line of JSON, with its newline.
    pub fn json(&self, pid: u32, first_correlation: u32) -> String {
        let count = self.correlations.get();
        let (first, last) = match count {
            0 => (0, 0),
            _ => (first_correlation, correlation(first_correlation, count - 1)),
        };
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            line,
            "{{\"pid\":{pid},\"launched\":{{\"kernel\":{},\"copy\":{},\"memset\":{},\"graph\":{}}},\"captured\":{},\
             \"waits\":{},\"failed\":{},\"produced\":{},\"delivered\":{},\"dropped\":{},\"zero_time\":{},\"unfinished\":{},\
             \"kernel_ns\":{},\"callbacks\":{},\"first_correlation\":{first},\"last_correlation\":{last},\
             \"correlations\":{count}}}",
            self.kernels.get(),
            self.copies.get(),
            self.memsets.get(),
            self.graphs.get(),
            self.captured.get(),
            self.waits.get(),
            self.failed.get(),
            self.produced.json(),
            self.delivered.json(),
            self.dropped.get(),
            self.zero_time.get(),
            self.unfinished.get(),
            self.kernel_ns.get(),
            self.callbacks.get(),
        );
        line
    }

    /// Appends the line to `path` in one write.
    pub fn append(&self, path: &str, first_correlation: u32) {
        let line = self.json(std::process::id(), first_correlation);
        let written = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            eprintln!("simulated GPU: cannot write the truth to {path}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids wrap after the largest and skip 0.
    #[test]
    fn correlation_ids_wrap() {
        let ids: Vec<u32> = (0..4).map(|n| correlation(u32::MAX - 1, n)).collect();
        assert_eq!(ids, [u32::MAX - 1, u32::MAX, 1, 2]);
        assert_eq!(correlation(1, 0), 1);
    }
}
